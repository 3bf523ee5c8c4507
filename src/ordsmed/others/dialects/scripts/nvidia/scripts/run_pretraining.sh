#!/usr/bin/env bash
# Pretrain an ELECTRA in two phases; positional arguments, all with defaults: see configs/pretrain_config.sh
# The original documents it without four of them (xla, optimizer, seed, job name): so it is read if the fifth is a number.
set -e
usage() {
    echo "usage: bash scripts/run_pretraining.sh BATCH1 RATE1 amp|tf32|fp32 GPUS xla|no_xla WARMUP1 STEPS1 SAVE" \
        "RESUME lamb|adam ACCUMULATE PASSES1 SEED JOB BATCH2 RATE2 WARMUP2 STEPS2 PASSES2 base|large DATA1 DATA2" \
        "CODE CHECKPOINT" >&2
    echo "run_pretraining.sh: $1" >&2
    exit 2
}
batch1=${1:-176} rate1=${2:-6e-3} precision=${3:-amp} gpus=${4:-8}
if [[ "$5" =~ ^[0-9]+$ ]]; then
    set -- "${@:1:4}" xla "$5" "${6:-10000}" "${7:-500}" "${8:-false}" lamb "${9:-true}" "${10:-48}" 12439 "" \
        "${11:-24}" "${12:-4e-3}" "${13:-200}" "${14:-930}" "${15:-144}" base "" "" "" "${16:-None}"
fi
xla=${5:-xla} warmup1=${6:-2000} steps1=${7:-10000} save=${8:-500} resume=${9:-false} optimizer=${10:-lamb}
accumulate=${11:-true} passes1=${12:-48} seed=${13:-12439}
batch2=${15:-24} rate2=${16:-4e-3} warmup2=${17:-200} steps2=${18:-930} passes2=${19:-144}
model=${20:-base}
records=${DATA_PREP_WORKING_DIR:-data}/tfrecord_lower_case_1_seq_len
corpus=wikicorpus_en
[ ! -d "${records}_128_random_seed_12345/books_wiki_en_corpus" ] || corpus=books_wiki_en_corpus
data1=${21:-${records}_128_random_seed_12345/$corpus/train/pretrain_data*}
data2=${22:-${records}_512_random_seed_12345/$corpus/train/pretrain_data*}
results=${23:+${23}/}results
init=${24:-None}

[[ "$batch1" =~ ^[0-9]+$ ]] || usage "BATCH1: found $batch1; wanted rows a GPU, a number"
if [ "$accumulate" != true ]; then
    passes1=1 passes2=1
fi
words=(--devices "$gpus" --model_size "$model" --results_dir "$results" --generator_hidden_size 0.3333333
    --disc_weight 50.0 --optimizer "$optimizer" --skip_adaptive --opt_beta_1 0.878 --opt_beta_2 0.974
    --lr_decay_power 0.5 --save_checkpoints_steps "$save" --seed "$seed" --log_dir "$results")
case "$precision" in
amp) words+=(--amp) ;;
tf32) words+=(layout.precision=tf32) ;;
fp32) ;;
*) usage "precision: found $precision; wanted amp, tf32 or fp32" ;;
esac
[ "$xla" != xla ] || words+=(--xla)
restore=()
[ "$resume" != true ] || restore=(--restore_checkpoint latest)
[ "$init" = None ] || restore=(--restore_checkpoint "$init")
second=(--model_name "$model" --phase2 --restore_checkpoint latest)
[ "${restore_checkpoint:-true}" = true ] || second=(--model_name "$model-phase2")

python run_pretraining.py --model_name "$model" "${words[@]}" "${restore[@]}" --pretrain_tfrecords "$data1" \
    --max_seq_length 128 --train_batch_size "$batch1" --gradient_accumulation_steps "$passes1" \
    --learning_rate "$rate1" --num_train_steps "$steps1" --num_warmup_steps "$warmup1"
python run_pretraining.py "${second[@]}" "${words[@]}" --pretrain_tfrecords "$data2" \
    --max_seq_length 512 --train_batch_size "$batch2" --gradient_accumulation_steps "$passes2" \
    --learning_rate "$rate2" --num_train_steps "$steps2" --num_warmup_steps "$warmup2"
