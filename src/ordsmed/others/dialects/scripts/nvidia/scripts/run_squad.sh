#!/usr/bin/env bash
# Fine-tune an ELECTRA on SQuAD; positional arguments, all with defaults; the first is required if any is given.
# The original's code has the batch size of inference after the batch size, its documents do not: both are accepted.
set -e
usage() {
    echo "usage: bash scripts/run_squad.sh MODEL EPOCHS BATCH [INFERENCE BATCH] RATE amp|tf32|fp32 GPUS SEED" \
        "1.1|2.0 DATA RESULTS CHECKPOINT train|eval|train_eval|prediction" >&2
    echo "run_squad.sh: $1" >&2
    exit 2
}
if [[ "$4" =~ ^[0-9]+$ ]]; then
    set -- "${@:1:3}" "${@:5}"
fi
model=${1:-google/electra-base-discriminator} epochs=${2:-2} batch=${3:-16} rate=${4:-4e-4} precision=${5:-amp}
gpus=${6:-8} seed=${7:-1} version=${8:-1.1} data=${9:-${DATA_PREP_WORKING_DIR:-data}/download/squad/v$version}
results=${10:-results} init=${11:-None} mode=${12:-train_eval} env=${13:-interactive} cache=${14:-} steps=${15:--1}

[[ ! "$model" =~ ^[0-9.]+$ ]] || usage "MODEL: found $model; wanted a model's name or folder before the epochs"
case "$version" in 1.1 | 2.0) ;; *) usage "version: found $version; wanted 1.1 or 2.0" ;; esac
words=(--electra_model "$model" --data_dir "$data" --output_dir "$results" --seed "$seed"
    --max_seq_length 384 --doc_stride 128 --joint_head True --beam_size 5 --max_steps "$steps")
[ "$env" = cluster ] || words=(--devices "$gpus" "${words[@]}")
[ -z "$cache" ] || words+=(--cache_dir "$cache")
[ "$version" != 2.0 ] || words+=(--version_2_with_negative --null_score_diff_threshold -5.6)
training=(--do_train --train_batch_size "$batch" --num_train_epochs "$epochs" --learning_rate "$rate"
    --warmup_proportion 0.05 --weight_decay_rate 0.01 --layerwise_lr_decay 0.8)
asking=()
case "$mode" in
train) ;;
eval) training=() asking=(--do_predict --do_eval) ;;
prediction) training=() asking=(--do_predict) ;;
train_eval) asking=(--do_predict --do_eval) ;;
*) usage "mode: found $mode; wanted train, eval, train_eval or prediction" ;;
esac
# without a checkpoint, use the model trained by the same arguments
[ "$init" != None ] || [ "${#training[@]}" != 0 ] || init=$results/squad_v$version
[ "$init" = None ] || words+=(--init_checkpoint "$init")
case "$precision" in
amp) words+=(--amp --xla) ;;
tf32) [ "${#training[@]}" = 0 ] || words+=(layout.precision=tf32) ;;
fp32) ;;
*) usage "precision: found $precision; wanted amp, tf32 or fp32" ;;
esac
python run_tf_squad.py "${words[@]}" "${training[@]}" "${asking[@]}"
