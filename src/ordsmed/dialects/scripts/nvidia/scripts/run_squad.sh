#!/usr/bin/env bash
# An ELECTRA on SQuAD: model epochs batch rate amp|tf32|fp32 GPUs seed version data results checkpoint mode
# Their code has a batch of inference behind the batch, their README has none: both are understood.
set -e
if [[ "$4" =~ ^[0-9]+$ ]]; then
    set -- "${@:1:3}" "${@:5}"
fi
model=${1:-google/electra-base-discriminator} epochs=${2:-2} batch=${3:-16} rate=${4:-4e-4} precision=${5:-amp}
gpus=${6:-8} seed=${7:-1} version=${8:-1.1} data=${9:-data/squad/v$version} results=${10:-results}
init=${11:-None} mode=${12:-train_eval} steps=${13:--1}

words=(--devices "$gpus" --electra_model "$model" --data_dir "$data" --output_dir "$results" --seed "$seed"
    --max_seq_length 384 --doc_stride 128 --joint_head True --beam_size 5 --max_steps "$steps")
[ "$init" = None ] || words+=(--init_checkpoint "$init")
[ "$version" != 2.0 ] || words+=(--version_2_with_negative --null_score_diff_threshold -5.6)
case "$precision" in
amp) words+=(--amp) ;;
tf32) [[ "$mode" != *train* ]] || words+=(layout.precision=tf32) ;;
fp32) ;;
*) echo "run_squad.sh: precision: found $precision; wanted amp, tf32 or fp32" >&2 && exit 2 ;;
esac
training=(--do_train --train_batch_size "$batch" --num_train_epochs "$epochs" --learning_rate "$rate"
    --warmup_proportion 0.05 --weight_decay_rate 0.01 --layerwise_lr_decay 0.8 --xla)
case "$mode" in
train) words+=("${training[@]}") ;;
eval) words+=(--do_predict --do_eval) ;;
prediction) words+=(--do_predict) ;;
train_eval) words+=("${training[@]}" --do_predict --do_eval) ;;
*) echo "run_squad.sh: mode: found $mode; wanted train, eval, train_eval or prediction" >&2 && exit 2 ;;
esac
python run_tf_squad.py "${words[@]}"
