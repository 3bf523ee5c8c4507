#!/usr/bin/env bash
# Continue prompts with the GPT-2 of CHECKPOINT_PATH; TOPK=0 TOPP=0: always the most probable token
set -e
CHECKPOINT_PATH=${CHECKPOINT_PATH:-checkpoints/gpt2_345m}
MPSIZE=${MPSIZE:-1}
NLAYERS=${NLAYERS:-24}
NHIDDEN=${NHIDDEN:-1024}
NATT=${NATT:-16}
MAXSEQLEN=${MAXSEQLEN:-1024}
TEMP=${TEMP:-0.9}
TOPK=${TOPK:-0}
TOPP=${TOPP:-0}
python generate_samples.py --model-parallel-size "$MPSIZE" --num-layers "$NLAYERS" --hidden-size "$NHIDDEN" \
    --num-attention-heads "$NATT" --max-position-embeddings "$MAXSEQLEN" --seq-length "$MAXSEQLEN" \
    --out-seq-length "$MAXSEQLEN" --load "$CHECKPOINT_PATH" --temperature "$TEMP" --top_k "$TOPK" --top_p "$TOPP" \
    --tokenizer-type GPT2BPETokenizer --fp16 --cache-dir cache "$@"
