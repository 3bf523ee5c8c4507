"""Megatron's command lines: where each flag goes, compared with tables written by hand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kit.dialects import called, changes, resolved
from ordsmed.base.arguments import UsageError
from ordsmed.translate import perform
from ordsmed.translate.program import find

CODE, BASE = "megatron", ["--train-data", "a.json"]
P, E, C = "pretrain: ", "encode: ", "corpus: "
SCHEDULE = P + "phase[1].schedule"
FLAGS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "--num-layers": (["3"], {P + "model.layers": 3}),
    "--hidden-size": (["64"], {P + "model.width": 64, P + "model.heads": 16}),
    "--num-attention-heads": (["4"], {P + "model.heads": 4}),
    "--intermediate-size": (["96"], {P + "model.inner": 96}),
    "--max-position-embeddings": (["640"], {P + "model.positions": 640}),
    "--layernorm-epsilon": (["1e-6"], {P + "model.epsilon": 1e-6}),
    "--hidden-dropout": (["0.2"], {P + "model.dropout": 0.2}),
    "--attention-dropout": (["0.3"], {P + "model.attention_dropout": 0.3}),
    "--deep-init": ([], {P + "model.deep": True}),
    "--pretrained-bert": ([], {P + "init": "bert-large-uncased"}),
    "--vocab-size": (["99", "--tokenizer-type", "SentencePieceTokenizer"], {
        "tokenizer: tokenizer.kind": "sentencepiece", "tokenizer: tokenizer.model": "bpe",
        "tokenizer: tokenizer.size": 99, "tokenizer: tokenizer.coverage": 1.0,
    }),
    "--make-vocab-size-divisible-by": (["64"], {P + "layout.divisible": 64}),
    "--fp16": ([], {P + "layout.precision": "fp16", P + "layout.reduce": "fp16"}),
    "--fp32-embedding": (["--fp16"], {P + "layout.precision": "fp16", P + "layout.reduce": "fp16",
                                      P + "layout.exact": ["embeddings"]}),
    "--fp32-layernorm": (["--fp16"], {P + "layout.precision": "fp16", P + "layout.reduce": "fp16",
                                      P + "layout.exact": ["norms"]}),
    "--fp32-tokentypes": (["--fp16"], {P + "layout.precision": "fp16", P + "layout.reduce": "fp16",
                                       P + "layout.exact": ["types"]}),
    "--fp32-allreduce": (["--fp16"], {P + "layout.precision": "fp16"}),
    "--loss-scale": (["128", "--fp16"], {P + "layout.precision": "fp16", P + "layout.reduce": "fp16",
                                         P + "layout.scale": 128.0}),
    "--loss-scale-window": (["50", "--fp16"], {P + "layout.precision": "fp16", P + "layout.reduce": "fp16",
                                               P + "layout.scale_window": 50}),
    "--batch-size": (["6"], {P + "phase[1].batch": 6, P + "validation_rows": 600}),
    "--train-iters": (["500"], {P + "phase[1].steps": 500, P + "phase[1].warmup": 5}),
    "--lr": (["0.5"], {P + "phase[1].rate": 0.5}),
    "--lr-decay-style": (["cosine"], {SCHEDULE + ".kind": "cosine"}),
    "--lr-decay-iters": (["2000000"], {P + "phase[1].warmup": 20_000, SCHEDULE + ".end": 0.51}),
    "--warmup": (["0.02"], {P + "phase[1].warmup": 20_000, SCHEDULE + ".end": 0.02}),
    "--weight-decay": (["0.2"], {P + "optimizer.kind": "adamw", P + "optimizer.decay": 0.2}),
    "--clip-grad": (["0.5"], {P + "clip": 0.5}),
    "--seed": (["7"], {P + "seed": 7, C + "seed": 7}),
    "--checkpoint-activations": ([], {P + "layout.recompute": True}),
    "--log-interval": (["9"], {P + "log": 9}),
    "--save": (["to/x"], {P + "out": "to/x"}),
    "--save-interval": (["11"], {P + "save": 11}),
    "--load": ([".", "--save", "to/x"], {P + "out": "to/x", P + "init": "."}),
    "--finetune": (["--load", ".", "--save", "to/x"], {P + "out": "to/x", P + "init": "."}),
    "--eval-iters": (["3"], {P + "validation_rows": 12}),
    "--eval-batch-size": (["5"], {P + "validation_rows": 500}),
    "--eval-interval": (["70"], {P + "validate": 70}),
    "--eval-text-key": (["body", "--valid-data", "v.json"], {
        C + "given.validation.kind": "jsonl", C + "given.validation.path": "v.json",
        C + "given.validation.text_key": "body"}),
    "--train-data": (["wikipedia"], {C + "source[1].path": "data/wikipedia/wikidump_lines.json"}),
    "--valid-data": (["webtext"], {C + "given.validation.kind": "jsonl",
                                   C + "given.validation.path": "data/webtext/data.json"}),
    "--test-data": (["t.json"], {C + "given.test.kind": "jsonl", C + "given.test.text_key": "sentence",
                                 C + "given.test.path": "t.json"}),
    "--split": (["95,5"], {C + "split": "95,5"}),
    "--text-key": (["body"], {C + "source[1].text_key": "body"}),
    "--use-tfrecords": ([], {E + "records": ["a.json"], P + "objective.examples": "masked"}),
    "--presplit-sentences": ([], {C + "sentences": "presplit"}),
    "--seq-length": (["128"], {P + "phase[1].length": 128}),
    "--max-preds-per-seq": (["20"], {P + "objective.hide": 20 / 512}),
    "--tokenizer-type": (["GPT2BPETokenizer"], {E + "tokenizer": "gpt2"}),
    "--tokenizer-model-type": (["bert-base-cased"], {E + "tokenizer": "bert-base-cased"}),
    "--tokenizer-path": (["vocab.txt"], {E + "tokenizer": "vocab.txt"}),
    "--num-workers": (["4"], {P + "layout.workers": 4}),
}  # fmt: skip


def test_every_flag_of_pretraining_is_in_a_table() -> None:
    flags = {flag.name for flag in find("megatron", "pretrain_bert.py").flags if flag.goes}
    elsewhere = {"--model-parallel-size", "--cache-dir", "--reset-position-ids", "--reset-attention-mask"}
    assert flags - elsewhere == set(FLAGS)


@pytest.mark.parametrize("flag", FLAGS)
def test_a_flag_arrives(flag: str) -> None:
    words, wanted = FLAGS[flag]
    got = changes(CODE, "pretrain_bert.py", BASE, flag, *words)
    assert got == {key: pytest.approx(value) if isinstance(value, float) else value for key, value in wanted.items()}


def test_layers_are_split_over_processes_that_are_there() -> None:
    got = changes(CODE, "pretrain_bert.py", BASE, "--model-parallel-size", "2", world=4)
    assert got == {P + "layout.tensor": 2, P + "phase[1].batch": 8, P + "validation_rows": 800}
    with pytest.raises(UsageError, match="--model-parallel-size: found 2; wanted processes that divide by it; found 1"):
        called(CODE, "pretrain_bert.py", *BASE, "--model-parallel-size", "2")


def test_gpt2_has_its_own_objective() -> None:
    got = resolved(CODE, "pretrain_gpt2.py", *BASE, "--reset-attention-mask", "--reset-position-ids")
    assert (got[P + "objective.kind"], got[P + "objective.separate"], got[P + "model.deep"]) == ("clm", True, True)
    assert (got[C + "sentences"], got[E + "sentences"]) == ("none", False)
    assert not resolved(CODE, "pretrain_gpt2.py", *BASE)[P + "objective.separate"]
    with pytest.raises(UsageError, match="--reset-position-ids: found alone"):
        called(CODE, "pretrain_gpt2.py", *BASE, "--reset-position-ids")


def test_a_run_that_is_loaded_alone_is_not_written_to() -> None:
    """As theirs, which saves nothing without --save; ours keeps the new run beside its recipes."""
    got = resolved(CODE, "pretrain_bert.py", *BASE, "--load", ".")
    assert (got[P + "init"], got[P + "out"]) == (".", "work/as/pretrain_bert/pretrain")


def test_what_theirs_does_by_code_is_told() -> None:
    notes = called(CODE, "pretrain_bert.py", *BASE, "--lr-decay-style", "exponential", "--load", "none", "--save", "x",
                   "--lazy-loader", "--loose-json").notes  # fmt: skip
    assert "--lr-decay-style exponential: the rate stays, as in their code, which has no more of it" in notes
    assert "--load none: is not there; it begins anew, as theirs does" in notes
    assert any(note.startswith("--lazy-loader: not needed here") for note in notes)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--train-data", "a.csv"], "found a.csv; wanted JSON lines"),
        (["--train-data", "books"], "found books; wanted wikipedia, webtext"),
        ([], "--train-data: missing"),
        ([*BASE, "--exit-interval", "5"], "has no meaning here"),
        ([*BASE, "--num-layrs", "5"], "did you mean `--num-layers`?"),
        ([*BASE, "--tokenizer-type", "CharacterLevelTokenizer"], "GPT2BPETokenizer has all bytes"),
        ([*BASE, "--finetune"], "found without --load"),
        ([*BASE, "--lr", "much"], "--lr: found much; wanted a number"),
        ([*BASE, "--seed", "1.5"], "--seed: found 1.5; wanted a whole number"),
        ([*BASE, "--lr", "1", "word"], "`word` is one word too many"),
    ],
)
def test_wrong_words(words: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        called(CODE, "pretrain_bert.py", *words)


EVALUATIONS = {
    "": {"kind": "wikitext", "files": ["f"], "overlap": 32},
    "--cloze-eval": {"kind": "cloze", "files": ["f"], "key": "text"},
    "--webtext-eval": {"kind": "perplexity", "files": ["f"], "key": "text", "overlap": 0, "batch": 16,
                       "iterations": 5000},
}  # fmt: skip


@pytest.mark.parametrize("mode", EVALUATIONS)
def test_the_three_evaluations(mode: str) -> None:
    words = ["--model-path", "m", "--data-path", "f", "--batch-size", "16", "--num-layers", "24", "--cache-dir", "c"]
    call = called(CODE, "scripts/run_gpt2_eval.py", *words, *mode.split())
    assert call.recipes["evaluate"] == {"models": ["m"], "probe": [EVALUATIONS[mode]]}
    assert call.environment == {"ORDSMED_CACHE": "c"}


def test_texts_by_a_model_that_is_split() -> None:
    call = called(CODE, "generate_samples.py", "--load", "m", "--top_k", "5", "--top_p", "0.9", "--out-seq-length", "7",
                  "--model-parallel-size", "2")  # fmt: skip
    said = "m --tokens 7 --seed 1234 --temperature 1 --top-k 5 --top-p 0.9 --devices 2"
    assert perform.words(find("megatron", "generate_samples.py"), call) == ["generate", *said.split()]


def test_commands_of_their_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As printed: abbreviated flags (--fp32-em) and all."""
    monkeypatch.chdir(tmp_path)
    bert = (
        "--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --batch-size 4 --seq-length 512 "
        "--max-preds-per-seq 80 --max-position-embeddings 512 --train-iters 1000000 --save checkpoints/bert_345m "
        "--load checkpoints/bert_345m --resume-dataloader --train-data wikipedia --lazy-loader "
        "--tokenizer-type BertWordPieceTokenizer --tokenizer-model-type bert-large-uncased --presplit-sentences "
        "--cache-dir cache --split 949,50,1 --distributed-backend nccl --lr 0.0001 --lr-decay-style linear "
        "--lr-decay-iters 990000 --weight-decay 1e-2 --clip-grad 1.0 --warmup .01 --fp16 --fp32-em"
    )
    got = resolved(CODE, "pretrain_bert.py", *bert.split(), world=64)
    wanted = {
        "out": "checkpoints/bert_345m", "phase[1].steps": 1_000_000, "phase[1].batch": 256, "phase[1].warmup": 9900,
        "phase[1].rate": 1e-4, "objective.hide": 0.15, "layout.exact": ["embeddings"], "model.layers": 24,
    }  # fmt: skip
    assert {key: got[P + key] for key in wanted} == wanted
    assert got[E + "tokenizer"] == "bert-large-uncased"
