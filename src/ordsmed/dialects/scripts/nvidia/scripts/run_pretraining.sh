#!/usr/bin/env bash
# Two phases of an ELECTRA; arguments by their place, all with defaults: see configs/pretrain_config.sh
set -e
batch1=${1:-176} rate1=${2:-6e-3} precision=${3:-amp} gpus=${4:-8} xla=${5:-xla}
warmup1=${6:-2000} steps1=${7:-10000} save=${8:-500} resume=${9:-false} optimizer=${10:-lamb}
accumulate=${11:-true} passes1=${12:-48} seed=${13:-12439} job=${14:-electra_lamb}
batch2=${15:-24} rate2=${16:-4e-3} warmup2=${17:-200} steps2=${18:-930} passes2=${19:-144}
model=${20:-base}
records=${DATA_PREP_WORKING_DIR:-data}
data1=${21:-$records/tfrecord_lower_case_1_seq_len_128_random_seed_12345/wikicorpus_en/train/pretrain_data*}
data2=${22:-$records/tfrecord_lower_case_1_seq_len_512_random_seed_12345/wikicorpus_en/train/pretrain_data*}
results=${23:-results}
init=${24:-None}

if [ "$accumulate" != true ]; then
    passes1=1 passes2=1
fi
words=(--devices "$gpus" --model_name "$job" --model_size "$model" --results_dir "$results"
    --optimizer "$optimizer" --skip_adaptive --opt_beta_1 0.878 --opt_beta_2 0.974 --lr_decay_power 0.5
    --save_checkpoints_steps "$save" --seed "$seed")
case "$precision" in
amp) words+=(--amp) ;;
tf32) words+=(layout.precision=tf32) ;;
fp32) ;;
*) echo "run_pretraining.sh: precision: found $precision; wanted amp, tf32 or fp32" >&2 && exit 2 ;;
esac
[ "$xla" != xla ] || words+=(--xla)
restore=()
[ "$resume" != true ] || restore=(--restore_checkpoint latest)
[ "$init" = None ] || restore=(--restore_checkpoint "$init")

python run_pretraining.py "${words[@]}" "${restore[@]}" --pretrain_tfrecords "$data1" --max_seq_length 128 \
    --train_batch_size "$batch1" --gradient_accumulation_steps "$passes1" --learning_rate "$rate1" \
    --num_train_steps "$steps1" --num_warmup_steps "$warmup1"
python run_pretraining.py "${words[@]}" --phase2 --restore_checkpoint latest --pretrain_tfrecords "$data2" \
    --max_seq_length 512 --train_batch_size "$batch2" --gradient_accumulation_steps "$passes2" \
    --learning_rate "$rate2" --num_train_steps "$steps2" --num_warmup_steps "$warmup2"
