#!/usr/bin/env bash
# NVIDIA's machines as arguments of run_pretraining.sh: rows per GPU and accumulation steps, of both phases
#   bash scripts/run_pretraining.sh $(source scripts/configs/pretrain_config.sh && dgxa100_8gpu_amp)

# precision, GPUs, and of each phase: rows per GPU and accumulation steps
settings() {
    echo "$3 6e-3 $1 $2 xla 2000 10000 500 false lamb true $4 42 electra_lamb $5 4e-3 200 930 $6 base"
}

dgxa100_8gpu_amp() { settings amp 8 176 48 24 144; }
dgxa100_8gpu_tf32() { settings tf32 8 88 96 12 288; }
dgx2_16gpu_amp() { settings amp 16 176 24 24 72; }
dgx2_16gpu_fp32() { settings fp32 16 88 48 12 144; }
dgx1_8gpu_amp() { settings amp 8 88 96 12 288; }
dgx1_8gpu_fp32() { settings fp32 8 40 211 6 576; }
dgxa100_1gpu_amp() { settings amp 1 176 384 24 1152; }
dgxa100_1gpu_tf32() { settings tf32 1 88 768 12 2304; }
dgx2_1gpu_amp() { settings amp 1 176 384 24 1152; }
dgx2_1gpu_fp32() { settings fp32 1 88 768 12 2304; }
dgx1_1gpu_amp() { settings amp 1 88 768 12 2304; }
dgx1_1gpu_fp32() { settings fp32 1 40 1689 6 4608; }
