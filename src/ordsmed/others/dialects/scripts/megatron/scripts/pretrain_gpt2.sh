#!/usr/bin/env bash
# Pretrain a GPT-2 of 345M on one GPU; further arguments change flags
set -e
python pretrain_gpt2.py \
    --num-layers 24 --hidden-size 1024 --num-attention-heads 16 --batch-size 8 --seq-length 1024 \
    --max-position-embeddings 1024 --train-iters 320000 \
    --save checkpoints/gpt2_345m --load checkpoints/gpt2_345m --resume-dataloader \
    --train-data wikipedia --lazy-loader --tokenizer-type GPT2BPETokenizer --cache-dir cache \
    --split 949,50,1 --distributed-backend nccl \
    --lr 0.00015 --lr-decay-style cosine --weight-decay 1e-2 --clip-grad 1.0 --warmup .01 \
    --checkpoint-activations --fp16 "$@"
