#!/usr/bin/env bash
# Download data and write records of both lengths: wiki_only (default) or wiki_books
# Read from the environment: DATA_PREP_WORKING_DIR (data), vocab_file (vocab/vocab.txt), shards (2048)
set -e
cd "$(dirname "${BASH_SOURCE[0]}")/.."
what=${1:-wiki_only} shards=${shards:-2048} vocabulary=${vocab_file:-vocab/vocab.txt}
case "$what" in
wiki_only) corpus=wikicorpus_en parts=(wikicorpus_en) ;;
wiki_books) corpus=books_wiki_en_corpus parts=(bookscorpus wikicorpus_en) ;;
*) echo "create_datasets_from_start.sh: found $what; wanted wiki_only or wiki_books" >&2 && exit 2 ;;
esac

step() { python data/dataPrep.py --action "$@"; }
for part in "${parts[@]}" squad; do
    step download --dataset "$part"
done
for part in "${parts[@]}"; do
    step text_formatting --dataset "$part"
done
step sharding --dataset "$corpus" --n_training_shards "$shards" --n_test_shards "$shards"
for length in 128 512; do
    step create_tfrecord_files --dataset "$corpus" --max_seq_length "$length" --n_training_shards "$shards" \
        --n_test_shards "$shards" --vocab_file="$vocabulary" --do_lower_case=1
done
