#!/usr/bin/env bash
# From a model to a batch script: the fastest plan that Megatron-LM starts, and what Slurm and the program read.
#
#   MODEL=llama3-70b GPUS=64 OUT=run bash examples/plan-to-launch.sh && sbatch run/job.sbatch --data-path ...
set -euo pipefail

MODEL=${MODEL:-llama3-8b} GPUS=${GPUS:-16} CLUSTER=${CLUSTER:-dgx-h100} OUT=${OUT:-run}

answer=$(plan --model "$MODEL" --gpus "$GPUS" --cluster "$CLUSTER" --for megatron-lm --format json)
plan export - --to megatron-lm --output "$OUT" --force <<<"$answer"
plan export - --to slurm --output "$OUT" --force <<<"$answer"
