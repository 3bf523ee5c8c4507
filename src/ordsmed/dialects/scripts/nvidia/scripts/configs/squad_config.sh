#!/usr/bin/env bash
# NVIDIA's machines as arguments of run_squad.sh: examples a GPU and rates
#   bash scripts/run_squad.sh $(source scripts/configs/squad_config.sh && dgxa100_8gpu_amp) train_eval

# epochs, examples a GPU, rate, precision, GPUs, version
settings() {
    local model=${electra_model:-google/electra-base-discriminator} init=${init_checkpoint:-None}
    echo "$model $1 $2 $3 $4 $5 1 $6 ${data_dir:-data/squad/v$6} ${results_dir:-results} $init"
}

dgx1_1gpu_amp() { settings 2 16 1e-4 amp 1 1.1; }
dgx1_1gpu_fp32() { settings 2 8 1e-4 fp32 1 1.1; }
dgx1_8gpu_amp() { settings 2 16 4e-4 amp 8 1.1; }
dgx1_8gpu_fp32() { settings 2 8 3e-4 fp32 8 1.1; }
dgx2_16gpu_amp() { settings 2 32 1e-3 amp 16 1.1; }
dgx2_16gpu_fp32() { settings 2 32 1e-3 fp32 16 1.1; }
dgx2_1gpu_amp() { settings 2 32 2e-4 amp 1 1.1; }
dgx2_1gpu_fp32() { settings 2 32 2e-4 fp32 1 1.1; }
dgxa100_1gpu_amp() { settings 2 32 2e-4 amp 1 1.1; }
dgxa100_1gpu_tf32() { settings 2 32 2e-4 tf32 1 1.1; }
dgxa100_8gpu_amp() { settings 2 32 8e-4 amp 8 1.1; }
dgxa100_8gpu_tf32() { settings 2 32 8e-4 tf32 8 1.1; }
dgx1_8gpu_amp_v2() { settings 3 16 4e-4 amp 8 2.0; }
