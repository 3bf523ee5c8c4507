#!/usr/bin/env bash
# Every checkpoint that a pretraining kept, fine-tuned on SQuAD: checkpoints=results/models/NAME/checkpoints
set -e
checkpoints=${checkpoints:-results/models/base/checkpoints}
for checkpoint in "$checkpoints"/*; do
    name=$(basename "$checkpoint")
    python postprocess_pretrained_ckpt.py --pretrained_checkpoint "$checkpoint" \
        --output_dir "$(dirname "$checkpoints")/discriminators/$name"
    bash scripts/run_squad.sh "$(dirname "$checkpoints")/discriminators/$name" "${epochs:-2}" "${batch:-16}" \
        "${rate:-4e-4}" "${precision:-amp}" "${gpus:-8}" "${seed:-1}" "${version:-1.1}" \
        "${data_dir:-data/squad/v${version:-1.1}}" "$(dirname "$checkpoints")/squad/$name" None train_eval
done
