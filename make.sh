#!/usr/bin/env bash
# The whole way once: a folder of text -> corpus -> tokenizer -> token ids -> a pretrained BERT -> scores -> a folder
# that Hugging Face's transformers loads. One dial, --hours: how long pretraining may take on this machine.
#
# `ordsmed make TEXTS OUT --hours H` does the same in one command; this is its long form, to read and to copy from.
#
#     ./make.sh                                   # 3 minutes of pretraining on the documentation of this Python
#     ./make.sh --hours 8 --text my-texts         # files of yours: plain or packed text, blank lines between documents
#     ./make.sh --hours 24 --text my-texts --out work/large -- --devices 8       # behind `--`: words for pretrain
#
# Every step is a plain `ordsmed` command, which the script prints before it runs it: copy the ones you need. A step that
# is finished is not done again, so the same line resumes after a kill. No network is used.
set -euo pipefail

hours=0.05 text="" out=work/whole-way
while [ $# -gt 0 ]; do
    case "$1" in
        --hours) hours=$2; shift 2 ;;
        --text) text=$2; shift 2 ;;
        --out) out=$2; shift 2 ;;
        --) shift; break ;;
        *) sed -n '2,12s/^# \{0,1\}//p' "$0"; exit 2 ;;
    esac
done
here=$(cd "$(dirname "$0")" && pwd)
SECONDS=0

step() { printf '\n== %s (after %d s)\n' "$1" $SECONDS; }
run() {
    printf '$'
    for word in "$@"; do case "$word" in *[!a-zA-Z0-9_./=,:-]*) printf " '%s'" "$word" ;; *) printf ' %s' "$word" ;; esac; done
    printf '\n'
    "$@"
}
finished() { [ -e "$1/scores.json" ] && grep -q '"state": "done"' "$1/status.json"; }

step "1. corpus: cleaned documents, each once, 1 % and more held out"
if [ -n "$text" ]; then
    run ordsmed corpus folder source.path="$text" out="$out/corpus"
else
    run ordsmed corpus stdlib out="$out/corpus"
fi

step "2. tokenizer: 4,500 pieces for little text, BERT's 30,000 for more than 20 MB"
pieces=$([ "$(du -sk "$out/corpus/train" | cut -f1)" -lt 20000 ] && echo 4500 || echo 30000)
run ordsmed tokenizer folder-wordpiece corpus="$out/corpus" tokenizer.size="$pieces" out="$out/tokenizer"

step "3. encode: the texts as token ids, mapped into memory"
run ordsmed encode folder-wordpiece corpus="$out/corpus" tokenizer="$out/tokenizer" out="$out/data"

step "4. the dial: the largest network whose training fits into $hours h, by steps that are timed here"
# a recipe and its training; from the second on 20 tokens a weight, the first for a few hundred thousand words
networks=(
    "quickstart phase[1].steps=1600"
    "bert-mini phase=[{steps=54000,length=64,batch=64,rate=1e-3,warmup=0.1}]"
    "bert-small phase=[{steps=70000,length=128,batch=64,rate=7e-4,warmup=0.1}]"
    "bert-medium phase=[{steps=50000,length=128,batch=128,rate=5e-4,warmup=0.1}]"
    "bert-base phase=[{steps=67000,length=128,batch=256,rate=4e-4,warmup=0.1}]"
)
if [ ! -f "$out/network" ]; then # measured once, so that the same line resumes the same run
    network=${networks[0]}
    for next in "${networks[@]}"; do
        read -ra words <<<"$next"
        needed=$(ordsmed estimate "${words[@]}" data="$out/data" --measure --json |
            python3 -c 'import json, sys; print(json.load(sys.stdin)["hours"]["likely"])')
        printf '%s: %.2f h here\n' "${words[0]}" "$needed"
        python3 -c "import sys; sys.exit($needed > $hours)" || break
        network=$next
    done
    echo "$network" >"$out/network"
fi
read -ra words <"$out/network"
seconds=$(python3 -c "print(round($hours * 3600))")

step "5. pretrain ${words[0]}: as many steps as fit into $seconds s"
finished "$out/model" || run ordsmed pretrain "${words[@]}" data="$out/data" out="$out/model" --deadline "${seconds}s" "$@"
run ordsmed fill "$out/model" "it does [MASK] exist."

step "6. score: how likely the held-out texts are (lower is better)"
run ordsmed evaluate "$out/model" --probe pseudo_perplexity "$out/corpus/validation"

step "7. a task: tags of words, learned from 600 small sentences that the next line makes in lessons/"
run python3 "$here/docs/lessons.py"
finished "$out/tagger" || run ordsmed finetune tiny/words init="$out/model" task.length=32 out="$out/tagger"
run ordsmed evaluate "$out/tagger"

step "8. export: a folder for Hugging Face's transformers, and a page about the runs"
run ordsmed export "$out/model" "$out/hugging-face" --anew
run ordsmed fill "$out/hugging-face" "it does [MASK] exist."
run ordsmed report "$out" --out "$out/report.html"

step "done: $out/hugging-face is the model, $out/report.html the page"
