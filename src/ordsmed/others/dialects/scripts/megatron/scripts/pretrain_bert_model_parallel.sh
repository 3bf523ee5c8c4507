#!/usr/bin/env bash
# As pretrain_bert.sh, with each layer split over MP_SIZE GPUs; further arguments change flags
set -e
GPUS_PER_NODE=${GPUS_PER_NODE:-8}
NNODES=${NNODES:-1}
NODE_RANK=${NODE_RANK:-0}
MASTER_ADDR=${MASTER_ADDR:-localhost}
MASTER_PORT=${MASTER_PORT:-6000}
MP_SIZE=${MP_SIZE:-2}
torchrun --nproc_per_node="$GPUS_PER_NODE" --nnodes="$NNODES" --node_rank="$NODE_RANK" \
    --master_addr="$MASTER_ADDR" --master_port="$MASTER_PORT" pretrain_bert.py --model-parallel-size "$MP_SIZE" \
    --num-layers 24 --hidden-size 1024 --num-attention-heads 16 --batch-size 4 --seq-length 512 \
    --max-preds-per-seq 80 --max-position-embeddings 512 --train-iters 1000000 \
    --save checkpoints/bert_345m_mp"$MP_SIZE" --load checkpoints/bert_345m_mp"$MP_SIZE" --resume-dataloader \
    --train-data wikipedia --lazy-loader \
    --tokenizer-type BertWordPieceTokenizer --tokenizer-model-type bert-large-uncased \
    --presplit-sentences --cache-dir cache --split 949,50,1 --distributed-backend nccl \
    --lr 0.0001 --lr-decay-style linear --lr-decay-iters 990000 --weight-decay 1e-2 --clip-grad 1.0 \
    --warmup .01 --fp16 --fp32-layernorm --fp32-embedding "$@"
