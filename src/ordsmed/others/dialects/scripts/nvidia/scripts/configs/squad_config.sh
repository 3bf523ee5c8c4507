#!/usr/bin/env bash
# NVIDIA's machines as arguments of run_squad.sh: examples per GPU and learning rates
#   bash scripts/run_squad.sh $(source scripts/configs/squad_config.sh && dgxa100_8gpu_amp) train_eval

# epochs, examples per GPU in training and in inference, learning rate, precision, GPUs, version; environment variables:
# electra_model, data_dir, results_dir, init_checkpoint
settings() {
    local model=${electra_model:-google/electra-base-discriminator}
    local data=${data_dir:-${DATA_PREP_WORKING_DIR:-data}/download/squad/v$7}
    local checkpoint=checkpoints/electra_base_qa_v2_False_epoch_$1_ckpt
    [ "$7" != 2.0 ] || checkpoint=${checkpoint/False/True}
    echo "$model $1 $2 $3 $4 $5 $6 1 $7 $data ${results_dir:-results} ${init_checkpoint:-$checkpoint}"
}

dgx1_1gpu_amp() { settings 2 16 256 1e-4 amp 1 1.1; }
dgx1_1gpu_fp32() { settings 2 8 256 1e-4 fp32 1 1.1; }
dgx1_8gpu_amp() { settings 2 16 256 4e-4 amp 8 1.1; }
dgx1_8gpu_fp32() { settings 2 8 256 3e-4 fp32 8 1.1; }
dgx2_16gpu_amp() { settings 2 32 256 1e-3 amp 16 1.1; }
dgx2_16gpu_fp32() { settings 2 32 256 1e-3 fp32 16 1.1; }
dgx2_1gpu_amp() { settings 2 32 256 2e-4 amp 1 1.1; }
dgx2_1gpu_fp32() { settings 2 32 256 2e-4 fp32 1 1.1; }
dgxa100_1gpu_amp() { settings 2 32 512 2e-4 amp 1 1.1; }
dgxa100_1gpu_tf32() { settings 2 32 512 2e-4 tf32 1 1.1; }
dgxa100_8gpu_amp() { settings 2 32 512 8e-4 amp 8 1.1; }
dgxa100_8gpu_tf32() { settings 2 32 512 8e-4 tf32 8 1.1; }
dgx1_8gpu_amp_v2() { settings 3 16 256 4e-4 amp 8 2.0; }
