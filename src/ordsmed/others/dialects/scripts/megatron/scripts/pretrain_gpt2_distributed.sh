#!/usr/bin/env bash
# As pretrain_gpt2.sh, on all GPUs of NNODES machines; further arguments change flags
set -e
GPUS_PER_NODE=${GPUS_PER_NODE:-8}
NNODES=${NNODES:-1}
NODE_RANK=${NODE_RANK:-0}
MASTER_ADDR=${MASTER_ADDR:-localhost}
MASTER_PORT=${MASTER_PORT:-6000}
torchrun --nproc_per_node="$GPUS_PER_NODE" --nnodes="$NNODES" --node_rank="$NODE_RANK" \
    --master_addr="$MASTER_ADDR" --master_port="$MASTER_PORT" pretrain_gpt2.py \
    --num-layers 24 --hidden-size 1024 --num-attention-heads 16 --batch-size 8 --seq-length 1024 \
    --max-position-embeddings 1024 --train-iters 320000 \
    --save checkpoints/gpt2_345m --load checkpoints/gpt2_345m --resume-dataloader \
    --train-data wikipedia --lazy-loader --tokenizer-type GPT2BPETokenizer --cache-dir cache \
    --split 949,50,1 --distributed-backend nccl \
    --lr 0.00015 --lr-decay-style cosine --weight-decay 1e-2 --clip-grad 1.0 --warmup .01 \
    --checkpoint-activations --fp16 "$@"
