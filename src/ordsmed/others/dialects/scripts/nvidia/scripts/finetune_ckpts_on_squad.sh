#!/usr/bin/env bash
# Fine-tune every checkpoint of a pretraining on SQuAD: checkpoints=results/base/checkpoints
set -e
checkpoints=${checkpoints:-results/base/checkpoints}
shopt -s nullglob
found=("$checkpoints"/ckpt-*[0-9] "$checkpoints"/step-*)
if [ "${#found[@]}" = 0 ]; then
    echo "finetune_ckpts_on_squad.sh: $checkpoints: no checkpoints; wanted ckpt-* or step-* of a pretraining" >&2
    exit 2
fi
for checkpoint in "${found[@]}"; do
    out=$(dirname "$checkpoints")/squad/$(basename "$checkpoint")
    echo "==== $checkpoint"
    python postprocess_pretrained_ckpt.py --pretrained_checkpoint="$checkpoint" --output_dir="$out" --amp
    bash scripts/run_squad.sh "$out/discriminator" "${epochs:-2}" "${batch:-16}" "${rate:-4e-4}" \
        "${precision:-amp}" "${gpus:-8}" "${seed:-1}" "${version:-1.1}" \
        "${data_dir:-${DATA_PREP_WORKING_DIR:-data}/download/squad/v${version:-1.1}}" "$out" None train_eval
done
