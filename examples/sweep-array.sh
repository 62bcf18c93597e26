#!/bin/bash
#SBATCH --job-name=plan-sweep
#SBATCH --array=1-16
#SBATCH --cpus-per-task=8
# A study over a Slurm array: every task answers its part into a store of its own, and the parts are merged.
#
#   jobs=$(sbatch --parsable sweep-array.sh study.toml) && sbatch --dependency=afterok:$jobs sweep-array.sh --merge study.toml
#
# A task that is requeued goes on where it stopped. PLAN_PARTS is the folder of the parts (default: parts).
set -euo pipefail

parts=${PLAN_PARTS:-parts}
if [ "${1:-}" = --merge ]; then
  plan sweep merge "$parts"/*.sqlite -o "$(basename "${2%.*}").sqlite"
  exit
fi
mkdir -p "$parts"
plan sweep "$1" --shard "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT" -o "$parts/$SLURM_ARRAY_TASK_ID.sqlite" --quiet \
  --results /dev/null
