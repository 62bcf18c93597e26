#!/bin/bash
# Trains a small decoder with Megatron-LM; `plan read` reads it as it stands.
TP=2
PP=2
MODEL="--num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 4096
       --max-position-embeddings 4096 --vocab-size 50304 --swiglu --normalization RMSNorm
       --position-embedding-type rope --disable-bias-linear --untie-embeddings-and-output-weights"
torchrun --nnodes 2 --nproc-per-node 8 pretrain_gpt.py $MODEL \
  --tensor-model-parallel-size $TP --pipeline-model-parallel-size $PP --sequence-parallel \
  --micro-batch-size 2 --global-batch-size 128 --bf16 --use-distributed-optimizer \
  --overlap-grad-reduce --overlap-param-gather --attention-dropout 0 --hidden-dropout 0
