"""Megatron's command lines: targets of each flag, compared with tables written by hand."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from kit.dialects import called, changes, installed, resolved, words_of
from ordsmed.base import run, snapshots
from ordsmed.base.arguments import UsageError
from ordsmed.base.ranks import ProcessInfo
from ordsmed.cli import main
from ordsmed.data.encode import Encoding
from ordsmed.others.dialects.megatron import copy_sentencepiece, result_line, write_checkpoint, write_log
from ordsmed.others.translate import perform
from ordsmed.others.translate.program import find
from ordsmed.weights.origin import Origin

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
    "--vocab-size": (
        ["99", "--tokenizer-type", "SentencePieceTokenizer"],
        {
            "tokenizer: tokenizer.kind": "sentencepiece",
            "tokenizer: tokenizer.model": "bpe",
            "tokenizer: tokenizer.size": 99,
            "tokenizer: tokenizer.coverage": 1.0,
        },
    ),
    "--make-vocab-size-divisible-by": (["64"], {P + "layout.divisible": 64}),
    "--fp16": ([], {P + "layout.precision": "fp16", P + "layout.reduce": "fp16"}),
    "--fp32-embedding": (
        ["--fp16"],
        {P + "layout.precision": "fp16", P + "layout.reduce": "fp16", P + "layout.exact": ["embeddings"]},
    ),
    "--fp32-layernorm": (
        ["--fp16"],
        {P + "layout.precision": "fp16", P + "layout.reduce": "fp16", P + "layout.exact": ["norms"]},
    ),
    "--fp32-tokentypes": (
        ["--fp16"],
        {P + "layout.precision": "fp16", P + "layout.reduce": "fp16", P + "layout.exact": ["types"]},
    ),
    "--fp32-allreduce": (["--fp16"], {P + "layout.precision": "fp16"}),
    "--loss-scale": (
        ["128", "--fp16"],
        {
            P + "layout.precision": "fp16",
            P + "layout.reduce": "fp16",
            P + "layout.scale": 128.0,
            P + "layout.scale_window": 0,
        },
    ),
    "--loss-scale-window": (
        ["50", "--fp16"],
        {P + "layout.precision": "fp16", P + "layout.reduce": "fp16", P + "layout.scale_window": 50},
    ),
    "--batch-size": (["6"], {P + "phase[1].batch": 6, P + "validation_rows": 600}),
    "--train-iters": (["500"], {P + "phase[1].steps": 500, P + "phase[1].warmup": 5}),
    "--lr": (["0.5"], {P + "phase[1].learning_rate": 0.5}),
    "--lr-decay-style": (["cosine"], {SCHEDULE + ".kind": "cosine", SCHEDULE + ".over": 1_010_000}),
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
    "--no-load-optim": (["--load", ".", "--save", "to/x"], {P + "out": "to/x", P + "init": "."}),
    "--eval-iters": (["3"], {P + "validation_rows": 12}),
    "--eval-batch-size": (["5"], {P + "validation_rows": 500}),
    "--eval-interval": (["70"], {P + "validate": 70}),
    "--eval-text-key": (
        ["body", "--valid-data", "v.json"],
        {
            C + "given.validation.kind": "jsonl",
            C + "given.validation.path": "v.json",
            C + "given.validation.text_key": "body",
        },
    ),
    "--train-data": (["wikipedia"], {C + "source[1].path": "data/wikipedia/wikidump_lines.json"}),
    "--valid-data": (
        ["webtext"],
        {C + "given.validation.kind": "jsonl", C + "given.validation.path": "data/webtext/data.json"},
    ),
    "--test-data": (
        ["t.json"],
        {C + "given.test.kind": "jsonl", C + "given.test.text_key": "sentence", C + "given.test.path": "t.json"},
    ),
    "--split": (["95,5"], {C + "split": "95,5"}),
    "--text-key": (["body"], {C + "source[1].text_key": "body"}),
    "--use-tfrecords": ([], {E + "records": ["a.json"], P + "objective.examples": "masked"}),
    "--presplit-sentences": ([], {C + "sentences": "presplit"}),
    "--seq-length": (["128"], {P + "phase[1].length": 128}),
    "--max-preds-per-seq": (["20"], {P + "objective.most": 20}),
    "--tokenizer-type": (["GPT2BPETokenizer"], {E + "tokenizer": "gpt2"}),
    "--tokenizer-model-type": (["bert-base-cased"], {E + "tokenizer": "bert-base-cased"}),
    "--tokenizer-path": (["vocab.txt"], {E + "tokenizer": "vocab.txt"}),
    "--num-workers": (["4"], {P + "layout.workers": 4}),
    "--DDP-impl": (["local"], {P + "layout.overlap": False}),
}
IDLE = {
    "--hysteresis": "7",
    "--min-scale": "2",
    "--checkpoint-num-layers": "3",
    "--no-save-optim": "",
    "--no-save-rng": "",
    "--no-load-rng": "",
    "--resume-dataloader": "",
    "--distributed-backend": "gloo",
    "--local_rank": "1",
    "--eval-seq-length": "64",
    "--eval-max-preds-per-seq": "5",
    "--lazy-loader": "",
    "--loose-json": "",
    "--shuffle": "",
    "--delim": ";",
    "--overlapping-eval": "8",
    "--cloze-eval": "",
    "--eval-hf": "",
    "--load-openai": "",
    "--temperature": "2",
    "--top_p": "0.5",
    "--top_k": "4",
    "--out-seq-length": "9",
}
REFUSED = {
    "--use-npy-data-loader": "",
    "--train-data-path": "x",
    "--val-data-path": "x",
    "--test-data-path": "x",
    "--input-data-sizes-file": "x",
}
ELSEWHERE = {
    "--model-parallel-size",
    "--cache-dir",
    "--reset-position-ids",
    "--reset-attention-mask",
    "USE_TORCH_DDP",
    "ORDSMED_EXPORT",
    "--exit-interval",
}


def test_every_flag_of_pretraining_is_in_a_table() -> None:
    for name in ("pretrain_bert.py", "pretrain_gpt2.py"):
        flags = {flag.name for flag in find(CODE, name).flags}
        assert flags == {*FLAGS, *IDLE, *REFUSED, *ELSEWHERE}


@pytest.mark.parametrize("flag", IDLE)
def test_a_flag_that_does_nothing_says_so(flag: str) -> None:
    words = [flag, *IDLE[flag].split()]
    assert not changes(CODE, "pretrain_bert.py", BASE, *words)
    assert any(flag in note for note in called(CODE, "pretrain_bert.py", *BASE, *words).notes)


@pytest.mark.parametrize("flag", REFUSED)
def test_a_flag_that_is_refused_says_what_to_do(flag: str) -> None:
    with pytest.raises(UsageError, match=f"^{flag}: is not supported; .{{20,}}"):
        called(CODE, "pretrain_bert.py", *BASE, flag, *REFUSED[flag].split())


@pytest.mark.parametrize("flag", FLAGS)
def test_a_flag_arrives(flag: str) -> None:
    words, wanted = FLAGS[flag]
    got = changes(CODE, "pretrain_bert.py", BASE, flag, *words)
    assert got == {key: pytest.approx(value) if isinstance(value, float) else value for key, value in wanted.items()}


@pytest.mark.parametrize("words", ["--layernorm-epsilon 1e-6", "--intermediate-size 96"])
def test_a_gpt2_of_theirs_knows_no_epsilon_and_no_inner_width(words: str) -> None:
    """The checkpoint that ORDSMED_EXPORT writes could not represent them either."""
    flag = words.split()[0]
    assert changes(CODE, "pretrain_gpt2.py", BASE, *words.split()) == {}
    note = next(note for note in called(CODE, "pretrain_gpt2.py", *BASE, *words.split()).notes if flag in note)
    assert "as in the original" in note
    assert "after the flags" in note


def test_layers_are_split_over_processes_that_are_there() -> None:
    got = changes(CODE, "pretrain_bert.py", BASE, "--model-parallel-size", "2", world=4)
    assert got == {P + "layout.tensor": 2, P + "phase[1].batch": 8, P + "validation_rows": 800}
    with pytest.raises(UsageError, match="--model-parallel-size: found 2 with 1 process; wanted 2 processes"):
        called(CODE, "pretrain_bert.py", *BASE, "--model-parallel-size", "2")


def test_a_bound_above_the_share_bounds_nothing() -> None:
    """15 % of 512 are at most 77, so former runs with 80 still resume."""
    assert changes(CODE, "pretrain_bert.py", BASE, "--max-preds-per-seq", "77") == {}
    assert changes(CODE, "pretrain_bert.py", BASE, "--max-preds-per-seq", "76") == {P + "objective.most": 76}


def test_weights_alone_of_another_folder_begin_where_a_run_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of the run itself is refused, because the run would resume there."""
    monkeypatch.chdir(tmp_path)
    for name in ("s", "m/mp_rank_00"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "s/status.json").write_text('{"verb": "pretrain"}')
    words = ["--save", "s", "--finetune", "--load"]
    assert called(CODE, "pretrain_bert.py", *BASE, *words, "m").recipes["pretrain"]["init"] == "m"
    with pytest.raises(UsageError, match="--finetune: found with s for --load and --save, which resumes that run"):
        called(CODE, "pretrain_bert.py", *BASE, *words, "s")


def test_a_scale_that_is_said_stays() -> None:
    words = [*BASE, "--fp16", "--loss-scale-window", "50"]
    assert called(CODE, "pretrain_bert.py", *words).recipes["pretrain"]["layout"]["scale_window"] == 50
    call = called(CODE, "pretrain_bert.py", *words, "--loss-scale", "8")
    assert [call.recipes["pretrain"]["layout"][key] for key in ("scale", "scale_window")] == [8.0, 0]
    assert "--loss-scale-window: has no effect with --loss-scale, which is constant" in call.notes
    assert called(CODE, "pretrain_bert.py", *words, "--loss-scale", "0").recipes["pretrain"]["layout"]["scale"] == 0
    assert (
        "--loss-scale: has no effect without --fp16"
        in called(CODE, "pretrain_bert.py", *BASE, "--loss-scale", "8").notes
    )


def test_records_say_what_is_hidden() -> None:
    """For records, --max-preds-per-seq is the number of masked positions per record."""
    call = called(CODE, "pretrain_bert.py", *BASE, "--use-tfrecords", "--max-preds-per-seq", "20")
    assert "--max-preds-per-seq: has no effect for TFRecords, which contain token ids" in call.notes
    assert call.recipes["pretrain"]["objective"]["mask_prob"] == 0.15
    assert "most" not in call.recipes["pretrain"]["objective"]


def test_gpt2_has_its_own_objective() -> None:
    got = resolved(CODE, "pretrain_gpt2.py", *BASE, "--reset-attention-mask", "--reset-position-ids")
    assert (got[P + "objective.kind"], got[P + "objective.separate"], got[P + "model.deep"]) == ("clm", True, True)
    assert (got[C + "sentences"], got[E + "sentences"]) == ("none", False)
    assert not resolved(CODE, "pretrain_gpt2.py", *BASE)[P + "objective.separate"]
    with pytest.raises(UsageError, match="--reset-position-ids: found alone"):
        called(CODE, "pretrain_gpt2.py", *BASE, "--reset-position-ids")


def test_a_run_that_is_loaded_alone_is_not_written_to() -> None:
    """Without --save the original saves nothing; ordsmed puts the new run next to its recipes."""
    got = resolved(CODE, "pretrain_bert.py", *BASE, "--load", ".")
    assert (got[P + "init"], got[P + "out"]) == (".", "work/as/pretrain_bert/pretrain")


def test_what_theirs_does_by_code_is_told() -> None:
    notes = called(
        CODE,
        "pretrain_bert.py",
        *BASE,
        "--lr-decay-style",
        "exponential",
        "--load",
        "none",
        "--save",
        "x",
        "--lazy-loader",
        "--loose-json",
    ).notes
    assert "--lr-decay-style exponential: the learning rate is constant, as in the original's code" in notes
    assert "--load none: does not exist; the weights start at random, as in the original" in notes
    assert any(note.startswith("--lazy-loader: not needed here") for note in notes)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--train-data", "a.csv"], "found a.csv; wanted JSON lines"),
        ([*BASE, "--lr-decay-iters", "0"], "--lr-decay-iters: found 0; wanted a number of steps, 1 or more"),
        (["--train-data", "books"], "found books; wanted wikipedia, webtext"),
        ([], "--train-data: missing"),
        ([*BASE, "--num-layrs", "5"], "did you mean `--num-layers`?"),
        ([*BASE, "--tokenizer-type", "CharacterLevelTokenizer"], "GPT2BPETokenizer has a token for every byte"),
        ([*BASE, "--finetune"], "found without --load"),
        ([*BASE, "--use-npy-data-loader"], "is not supported"),
        ([*BASE, "--lr", "much"], "--lr: found much; wanted a number"),
        ([*BASE, "--seed", "1.5"], "--seed: found 1.5; wanted a whole number"),
        ([*BASE, "--lr", "1", "word"], "found `word`; wanted flags"),
    ],
)
def test_wrong_words(words: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        called(CODE, "pretrain_bert.py", *words)


def test_shares_that_leave_nothing_to_train_on() -> None:
    with pytest.raises(UsageError, match=re.escape("--test_percent: found 5.5 in total; wanted less than 1; give")):
        called(CODE, "split_json.py", "--input_files", "a.json", "--output_dir", "o", "--test_percent", "0.5", "5")


def test_words_by_place_that_lack_tell_how_theirs_is_called() -> None:
    with pytest.raises(UsageError, match=r"no output; wanted `presplit_sentences_json.py input output`;"):
        called(CODE, "presplit_sentences_json.py", "a.json")


EVALUATIONS = {
    "": {"kind": "wikitext", "files": ["f"], "overlap": 32},
    "--cloze-eval": {"kind": "cloze", "files": ["f"], "key": "text"},
    "--webtext-eval": {
        "kind": "perplexity",
        "files": ["f"],
        "key": "text",
        "overlap": 0,
        "batch": 16,
        "iterations": 5000,
    },
}


@pytest.mark.parametrize("mode", EVALUATIONS)
def test_the_three_evaluations(mode: str) -> None:
    words = ["--model-path", "m", "--data-path", "f", "--batch-size", "16", "--num-layers", "24", "--cache-dir", "c"]
    call = called(CODE, "scripts/run_gpt2_eval.py", *words, *mode.split())
    assert call.recipes["evaluate"] == {"models": ["m"], "probe": [EVALUATIONS[mode]]}
    assert call.environment == {"ORDSMED_CACHE": "c"}


DIRECT_FLAGS: dict[str, tuple[str, Any]] = {  # a value, and what of the call is another by it
    "--load": ("n", "models"),
    "--valid-data": ("g", "files"),
    "--cloze-eval": ("", "kind"),
    "--seq-length": ("64", "window"),
    "--overlapping-eval": ("8", "overlap"),
    "--cache-dir": ("there", "environment"),
    "--model-parallel-size": ("2", "words"),
    "--num-attention-heads": ("4", "models"),
    "--eval-hf": ("", ""),
    "--load-openai": ("", ""),
}


@pytest.mark.parametrize("flag", DIRECT_FLAGS)
def test_a_flag_of_the_evaluation_itself_arrives(flag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m" / "mp_rank_00").mkdir(parents=True)
    value, place = DIRECT_FLAGS[flag]

    def laid(*words: str) -> dict[str, Any]:
        call = called(CODE, "evaluate_gpt2.py", "--load", "m", "--valid-data", "f", *words)
        (probe,) = call.recipes["evaluate"]["probe"]
        return {
            **probe,
            "models": call.recipes["evaluate"]["models"],
            "environment": call.environment,
            "words": (*call.words, call.devices),
        }

    before, after = laid(), laid(flag, *value.split())
    assert before == {
        "kind": "wikitext",
        "files": ["f"],
        "overlap": 32,
        "window": 512,
        "models": ["m"],
        "environment": {},
        "words": (0,),
    }
    changed = {key for key in before | after if before.get(key) != after.get(key)}
    wanted = {"kind", "key", "overlap", "window"} if place == "kind" else {place} if place else set[str]()
    assert changed == wanted


def test_an_evaluation_itself_takes_what_its_one_parser_takes() -> None:
    program = find(CODE, "evaluate_gpt2.py")
    assert {flag.name for flag in program.flags} | {"--DDP-impl"} == {
        name for name in (*FLAGS, *IDLE, *REFUSED, *ELSEWHERE) if name.startswith("--")
    }
    call = called(CODE, program.name, "--eval-hf", "--valid-data", "f", "g", "--lr", "1", "--batch-size", "8")
    assert call.recipes["evaluate"]["models"] == ["gpt2"]
    assert [note.partition(":")[0] for note in call.notes] == ["--batch-size", "--lr", "--valid-data"]
    for words, said in (["--valid-data", "f"], "no --load"), (["--load", "m"], "no --valid-data"):
        with pytest.raises(UsageError, match=said):
            called(CODE, program.name, *words)


@pytest.mark.parametrize("words", ["", "--top_k 0", "--top_p 0.0"])
def test_texts_are_drawn_where_neither_way_is_named_fully(words: str) -> None:
    call = called(CODE, "generate_samples.py", "--load", "m", "--temperature", "0.7", *words.split())
    assert call.words == ["m", "--tokens", "256", "--seed", "1234", "--until", "stop", "--temperature", "0.7"]
    assert not any("likeliest" in note for note in call.notes)


EVALUATION_FLAGS: dict[str, tuple[str, Any]] = {  # a value, and what of the call is another by it
    "--model-path": ("n", "models"),
    "--data-path": ("g", "files"),
    "--cloze-eval": ("", "kind"),
    "--webtext-eval": ("", "kind"),
    "--eval-iters": ("7 --webtext-eval", "iterations"),
    "--batch-size": ("3 --webtext-eval", "batch"),
    "--seq-length": ("64", "window"),
    "--overlapping-eval": ("8", "overlap"),
    "--text-key": ("body --cloze-eval", "key"),
    "--cache-dir": ("there", "environment"),
    "--model-parallel-size": ("2", "words"),
    "--num-attention-heads": ("4", "models"),
    "--num-layers": ("3", ""),
    "--hidden-size": ("64", ""),
    "--load-openai": ("", ""),
}


@pytest.mark.parametrize("flag", EVALUATION_FLAGS)
def test_a_flag_of_an_evaluation_arrives(flag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flag changes only its setting; a flag without effect causes a note."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m" / "mp_rank_00").mkdir(parents=True)
    value, place = EVALUATION_FLAGS[flag]
    least = ["--model-path", "m", "--data-path", "f"]
    first, *more = value.split() or [""]
    own = [flag, *([first] if first and not first.startswith("--") else [])]

    def laid(words: list[str]) -> dict[str, Any]:
        call = called(CODE, "run_gpt2_eval.py", *least, *words)
        (probe,) = call.recipes["evaluate"]["probe"]
        return {
            **probe,
            "models": call.recipes["evaluate"]["models"],
            "environment": call.environment,
            "words": (*call.words, call.devices),
        }

    before, after = laid(more), laid([*own, *more])
    changed = {key for key in before | after if before.get(key) != after.get(key)}
    assert (place in changed) == bool(place)
    assert place == "kind" or changed <= {place}
    assert place or any(flag in note for note in called(CODE, "run_gpt2_eval.py", *least, *own).notes)
    assert {one.name for one in find(CODE, "run_gpt2_eval.py").flags} == set(EVALUATION_FLAGS)


WRITING_FLAGS = {
    "--load": ("n", "n"),
    "--temperature": ("0.5", "--temperature 0.5"),
    "--greedy": ("", "--greedy"),
    "--top_k": ("4", "--top-k 4"),
    "--top_p": ("0.5", "--top-p 0.5"),
    "--out-seq-length": ("9", "--tokens 9"),
    "--seed": ("3", "--seed 3"),
    "--fp16": ("", "--precision fp16"),
    "--model-parallel-size": ("2", "--devices 2"),
    "--num-attention-heads": ("4", "work/as/taken/m-4-heads"),
    "--cache-dir": ("there", ""),
}
WRITING_IDLE = {
    "--recompute": "",
    "--num-layers": "2",
    "--hidden-size": "32",
    "--intermediate-size": "64",
    "--max-position-embeddings": "32",
    "--layernorm-epsilon": "1e-6",
    "--vocab-size": "9",
    "--make-vocab-size-divisible-by": "64",
    "--tokenizer-type": "GPT2BPETokenizer",
    "--tokenizer-model-type": "gpt2",
    "--tokenizer-path": "x",
    "--seq-length": "32",
    "--batch-size": "2",
    "--hidden-dropout": "0",
    "--attention-dropout": "0",
    "--fp32-embedding": "",
    "--fp32-layernorm": "",
    "--fp32-tokentypes": "",
    "--distributed-backend": "gloo",
    "--local_rank": "0",
}


@pytest.mark.parametrize("flag", [*WRITING_FLAGS, *WRITING_IDLE])
def test_a_flag_of_texts_arrives(flag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m" / "mp_rank_00").mkdir(parents=True)
    program = find(CODE, "generate_samples.py")
    value, wanted = WRITING_FLAGS.get(flag, (WRITING_IDLE.get(flag, ""), ""))
    before, after = (called(CODE, program.name, "--load", "m", *words) for words in ([], [flag, *value.split()]))
    words = " ".join(perform.words(program, after))
    assert f"{wanted} ".lstrip() in f"{words} "
    assert (words != " ".join(perform.words(program, before))) == bool(wanted)
    assert any(flag in note for note in after.notes) == (flag in WRITING_IDLE)
    assert after.environment == ({"ORDSMED_CACHE": "there"} if flag == "--cache-dir" else {})
    assert {one.name for one in program.flags} == {*WRITING_FLAGS, *WRITING_IDLE, *LEARNING}


LEARNING = {  # which their one parser takes here too
    flag: value
    for flag, value in {
        **{flag: (words or [""])[0] for flag, (words, _) in FLAGS.items()},
        **IDLE,
        **REFUSED,
        "--exit-interval": "5",
        "--reset-position-ids": "",
        "--reset-attention-mask": "",
    }.items()
    if flag not in (*WRITING_FLAGS, *WRITING_IDLE)
}


def test_flags_of_trainings_do_nothing_where_texts_are_written() -> None:
    program = find(CODE, "generate_samples.py")
    switches = [flag.name for flag in program.flags if flag.kind is bool]
    words = [word for flag, value in LEARNING.items() for word in ([flag] if flag in switches else [flag, value])]
    call = called(CODE, program.name, "--load", "m", *words)
    assert perform.words(program, call) == perform.words(program, called(CODE, program.name, "--load", "m"))
    (note,) = [one for one in call.notes if one.endswith("used only by training")]
    assert set(note.partition(":")[0].split(", ")) | {
        "--overlapping-eval",
        "--cloze-eval",
        "--eval-hf",
        "--load-openai",
    } == set(LEARNING)


def test_texts_by_a_model_that_is_split() -> None:
    call = called(
        CODE,
        "generate_samples.py",
        "--load",
        "m",
        "--top_k",
        "5",
        "--top_p",
        "0.9",
        "--out-seq-length",
        "7",
        "--model-parallel-size",
        "2",
    )
    said = "m --tokens 7 --seed 1234 --until stop --temperature 1 --top-k 5 --top-p 0.9 --devices 2"
    assert perform.words(find("megatron", "generate_samples.py"), call) == ["generate", *said.split()]


BERT = (
    "--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --batch-size 4 --seq-length 512 "
    "--max-preds-per-seq 80 --max-position-embeddings 512 --train-iters 1000000 --save checkpoints/bert_345m "
    "--load checkpoints/bert_345m --resume-dataloader --train-data wikipedia --lazy-loader "
    "--tokenizer-type BertWordPieceTokenizer --tokenizer-model-type bert-large-uncased --presplit-sentences "
    "--cache-dir cache --split 949,50,1 --distributed-backend nccl --lr 0.0001 --lr-decay-style linear "
    "--lr-decay-iters 990000 --weight-decay 1e-2 --clip-grad 1.0 --warmup .01 --fp16 --fp32-embedding"
)
GPT2 = (
    "--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --batch-size 8 --seq-length 1024 "
    "--max-position-embeddings 1024 --train-iters 320000 --save checkpoints/gpt2_345m --load checkpoints/gpt2_345m "
    "--resume-dataloader --train-data wikipedia --lazy-loader --tokenizer-type GPT2BPETokenizer --cache-dir cache "
    "--split 949,50,1 --distributed-backend nccl --lr 0.00015 --lr-decay-style cosine --weight-decay 1e-2 "
    "--clip-grad 1.0 --warmup .01 --checkpoint-activations --fp16"
)
EVALUATE = (
    "python scripts/run_gpt2_eval.py --model-parallel-size 1 --num-layers 24 --hidden-size 1024 "
    "--num-attention-heads 16 --model-path gpt2_345m --data-path data.txt --batch-size 16 {}--cache-dir cache"
)
AS_PRINTED = [  # every call of a program in their README, with paths
    f"python pretrain_bert.py {BERT}",
    f"python pretrain_bert.py {BERT} --split 95,5 --deep-init --checkpoint-num-layers 1 --text-key body",
    f"python pretrain_bert.py {BERT} --train-data a.json b.json wikipedia",
    f"python pretrain_bert.py {BERT} --train-data a.json b.json --valid-data c.json d.json --test-data e.json f.json",
    f"python pretrain_bert.py {BERT} --train-data 1.tfrecord 2.tfrecord --use-tfrecords",
    f"python pretrain_bert.py {BERT} --tokenizer-type SentencePieceTokenizer --tokenizer-model-type bpe "
    "--tokenizer-path tokenizer.model",
    f"python pretrain_gpt2.py {GPT2}",
    EVALUATE.format(""),
    EVALUATE.format("--cloze-eval "),
    EVALUATE.format("--eval-iters 5000 --webtext-eval "),
    "./scripts/presplit_sentences_json.py in.json out.json",
    "./scripts/split_json.py --input_files a.json b.json --output_dir out --test_percent 0.05 0.01",
]
LAUNCHERS = {  # each script, and what it adds to the README's words
    "pretrain_bert.sh": BERT + " --fp32-layernorm",
    "pretrain_bert_distributed.sh": BERT + " --fp32-layernorm",
    "pretrain_bert_model_parallel.sh": BERT.replace("bert_345m", "bert_345m_mp2")
    + " --fp32-layernorm --model-parallel-size 2",
    "pretrain_bert_tfrecords_distributed.sh": BERT.replace("wikipedia --lazy-loader", "a b --use-tfrecords")
    + " --fp32-layernorm --valid-data c --test-data d",
    "pretrain_bert_sentencepiece.sh": BERT + " --fp32-layernorm --tokenizer-type SentencePieceTokenizer "
    "--tokenizer-model-type bpe --tokenizer-path tokenizer.model",
    "pretrain_gpt2.sh": GPT2,
    "pretrain_gpt2_distributed.sh": GPT2,
    "pretrain_gpt2_model_parallel.sh": GPT2.replace("gpt2_345m", "gpt2_345m_mp2") + " --model-parallel-size 2",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed(tmp_path_factory.mktemp("megatron"), CODE)


@pytest.mark.parametrize("line", AS_PRINTED)
def test_a_line_of_their_readme(folder: Path, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every script gives valid recipes and calls a program at the original's path."""
    monkeypatch.chdir(folder)
    name, *words = line.removeprefix("python ").split()
    assert Path(name).is_file()
    call = called(CODE, name, *words)
    assert perform.words(find(CODE, name), call)[0] in ("pretrain", "evaluate", "corpus")
    assert bool(resolved(CODE, name, *words)) == (not name.endswith("_json.py"))


@pytest.mark.parametrize("script", LAUNCHERS)
def test_a_launcher_is_what_their_readme_says(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare all flags; scripts for several machines use torchrun, by default with 8 GPUs of one machine."""
    monkeypatch.chdir(folder)
    records = {"TRAIN_RECORDS": "a b", "VALID_RECORDS": "c", "TEST_RECORDS": "d"}
    first, *words = words_of(folder, f"bash scripts/{script}", **records)
    many = "distributed" in script or "parallel" in script
    assert first == ("torchrun" if many else "python")
    at = words.index("pretrain_bert.py" if "bert" in script else "pretrain_gpt2.py")
    place = "--nproc_per_node=8 --nnodes=1 --node_rank=0 --master_addr=localhost --master_port=6000 "
    assert " ".join([*words[:at], ""]) == (place if many else "")
    program = find(CODE, words[at])
    got, wanted = (program.read(own, ProcessInfo(0, 8), {}) for own in (words[at + 1 :], LAUNCHERS[script].split()))
    assert got.of == wanted.of
    assert got.explicit - wanted.explicit == set()
    resolved(CODE, words[at], *words[at + 1 :], world=8)


def test_words_behind_a_launcher_and_variables_change_it(folder: Path) -> None:
    many = {"GPUS_PER_NODE": "4", "NNODES": "2", "NODE_RANK": "1", "MP_SIZE": "4", "MASTER_ADDR": "a"}
    words = words_of(folder, "bash scripts/pretrain_gpt2_model_parallel.sh --batch-size 2", **many)
    assert words[1:5] == ["--nproc_per_node=4", "--nnodes=2", "--node_rank=1", "--master_addr=a"]
    got = find(CODE, "pretrain_gpt2.py").read(words[words.index("pretrain_gpt2.py") + 1 :], ProcessInfo(0, 8), {})
    assert (got.batch_size, got.model_parallel_size, got.save) == (2, 4, "checkpoints/gpt2_345m_mp4")


@pytest.mark.parametrize(
    ("variables", "way"),
    [
        ({}, "--greedy --precision fp16"),
        ({"TOPK": "5"}, "--temperature 0.9 --top-k 5 --precision fp16"),
        ({"TOPP": "0.8", "TEMP": "1.5"}, "--temperature 1.5 --top-p 0.8 --precision fp16"),
        (
            {"TOPK": "7", "TOPP": "0.8", "MPSIZE": "2", "CHECKPOINT_PATH": "m", "MAXSEQLEN": "64"},
            "--temperature 0.9 --top-k 7 --top-p 0.8 --precision fp16 --devices 2",
        ),
    ],
)
def test_texts_by_the_variables_of_their_script(folder: Path, variables: dict[str, str], way: str) -> None:
    _, name, *words = words_of(folder, "bash scripts/generate_text.sh", **variables)
    got = perform.words(find(CODE, name), called(CODE, name, *words))
    model, tokens = variables.get("CHECKPOINT_PATH", "checkpoints/gpt2_345m"), variables.get("MAXSEQLEN", "1024")
    assert got == f"generate {model} --tokens {tokens} --seed 1234 --until stop {way}".split()


def test_what_their_bert_of_345m_becomes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On 64 GPUs, with an abbreviated flag (--fp32-em)."""
    monkeypatch.chdir(tmp_path)
    got = resolved(CODE, "pretrain_bert.py", *BERT.replace("--fp32-embedding", "--fp32-em").split(), world=64)
    wanted = {
        "out": "checkpoints/bert_345m",
        "phase[1].steps": 1_000_000,
        "phase[1].batch": 256,
        "phase[1].warmup": 9900,
        "phase[1].learning_rate": 1e-4,
        "objective.mask_prob": 0.15,
        "layout.exact": ["embeddings"],
        "model.layers": 24,
    }
    assert {key: got[P + key] for key in wanted} == wanted
    assert got[E + "tokenizer"] == "bert-large-uncased"


def test_several_texts_are_held_out_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files must have one format; named corpora may each have another text key."""
    monkeypatch.chdir(tmp_path)
    got = called(CODE, "pretrain_bert.py", *BASE, "--valid-data", "b.json", "c.json").recipes["corpus"]["given"]
    assert got["validation"] == {"kind": "jsonl", "path": ["b.json", "c.json"], "text_key": "sentence"}
    with pytest.raises(UsageError, match=r"--valid-data: found corpora with different .* names of corpora.toml"):
        called(CODE, "pretrain_bert.py", *BASE, "--valid-data", "b.json", "wikipedia")
    names = "".join(f'[{name}]\nkind = "jsonl"\npath = "{name}.json"\n' for name in ("wikipedia", "mine"))
    (tmp_path / "corpora.toml").write_text(names)
    corpus = called(
        CODE, "pretrain_bert.py", *BASE, "--train-data", "mine", "x.json", "--test-data", "wikipedia", "mine"
    ).recipes["corpus"]
    assert corpus["source"] == [
        {"kind": "named", "names": "mine", "file": "corpora.toml"},
        {"kind": "jsonl", "path": "x.json", "text_key": "sentence"},
    ]
    assert corpus["given"]["test"] == {"kind": "named", "names": ["wikipedia", "mine"], "file": "corpora.toml"}


def test_how_copies_sum_their_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    """USE_TORCH_DDP, a constant in the original's files, is an environment variable."""
    program = find(CODE, "pretrain_bert.py")
    for words, environment, wanted in (
        ([], {}, None),
        ([], {"USE_TORCH_DDP": "0"}, False),
        ([], {"USE_TORCH_DDP": "True"}, True),
        (["--DDP-impl", "torch"], {"USE_TORCH_DDP": "0"}, True),
    ):
        call = program.translated(program.read([*BASE, *words], ProcessInfo(), environment))
        assert call.recipes["pretrain"].get("layout", {}).get("overlap") == wanted


STEPS = [
    {"step": 1, "rate": 1e-4, "seconds": 0.5, "scale": 65536.0, "mlm": 10.0, "pair": 0.75},
    {"step": 2, "rate": 2e-4, "seconds": 0.25, "scale": 32768.0, "mlm": 9.0, "pair": 0.25},
    {"step": 2, "validation": 3.5, "mlm": 3.0, "pair": 0.5},
    {"step": 3, "rate": 3e-4, "seconds": 0.125, "scale": 32768.0, "mlm": 8.0, "pair": 0.5},
    {"step": 4, "rate": 4e-4, "seconds": 0.125, "scale": 65536.0, "mlm": 7.0, "pair": 0.25},
    {"step": 5, "rate": 5e-4, "seconds": 0.125, "scale": 65536.0, "mlm": 7.0, "pair": 0.25},
]
LINES = """\
 iteration        2/       5 | elapsed time per iteration (ms): 375.0 | learning rate 2.000E-04 | \
lm loss 9.500000E+00 | nsp loss 5.000000E-01 | loss scale 32768.0 |
---
 validation loss at iteration 2 | LM loss: 3.000000E+00 | NSP loss: 5.000000E-01 | total loss: 3.500000E+00
---
 iteration        4/       5 | elapsed time per iteration (ms): 125.0 | learning rate 4.000E-04 | \
lm loss 7.500000E+00 | nsp loss 3.750000E-01 | loss scale 65536.0 |
---
 validation loss at the end of training for val data | LM loss: 3.000000E+00 | NSP loss: 5.000000E-01 | \
total loss: 3.500000E+00
---
"""


def test_lines_that_a_dashboard_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Lines have means over steps; a GPT-2 has one loss, and no loss scale without fp16."""
    (tmp_path / "status.json").write_text('{"steps_asked": [2, 3]}')
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in STEPS))
    write_log(tmp_path, every=2)
    lines = (tmp_path / "log-megatron.txt").read_text()
    assert re.sub("---+", "---", lines) == LINES
    assert "end of training for val data" in capsys.readouterr().out
    (tmp_path / "status.json").write_text('{"steps_asked": [2, 3], "state": "stopped"}')
    write_log(tmp_path, every=2)
    lines = (tmp_path / "log-megatron.txt").read_text()
    assert "end of training" not in lines + capsys.readouterr().out
    gpt2 = [{"step": 1, "rate": 1e-4, "seconds": 0.5, "clm": 2.0}, {"step": 1, "validation": 2.0, "clm": 2.0}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in gpt2))
    write_log(tmp_path, every=1)
    lines = (tmp_path / "log-megatron.txt").read_text()
    assert "| learning rate 1.000E-04 | lm loss 2.000000E+00 |\n" in lines
    assert " validation loss at iteration 1 | LM loss: 2.000000E+00 | LM PPL: 7.389056E+00\n" in lines


@pytest.mark.parametrize(
    ("kind", "found", "line"),
    [
        (
            "wikitext",
            {"perplexity": math.e**2, "adjusted_perplexity": math.e**3, "tokens": 31, "original_tokens": 21},
            "results on wiki | avg loss: 2.0000E+00 | ppl: 7.3891E+00 | adjusted ppl: 2.0086E+01 | token ratio: 1.5 |",
        ),
        (
            "cloze",
            {"last_token": 25.0, "examples": 8},
            "results on wiki | number correct: 2.0000E+00 | total examples: 8.0000E+00 | avg accuracy: 2.5000E-01",
        ),
        (
            "perplexity",
            {"perplexity": math.e},
            "loss at the end of training for test data | LM loss: 1.000000E+00 | LM PPL: 2.718282E+00",
        ),
    ],
)
def test_the_line_of_an_evaluation(kind: str, found: dict[str, Any], line: str) -> None:
    assert result_line(kind, found) == f" validation {line}"


@pytest.mark.parametrize(
    ("kind", "files", "path", "refused"),
    [
        ("GPT2BPETokenizer", ["v.txt"], "v.txt", True),
        ("GPT2BPETokenizer", ["t/vocab.txt"], "t", True),
        ("GPT2BPETokenizer", ["t/vocab.json", "t/merges.txt"], "t", False),
        ("GPT2BPETokenizer", ["s.model"], "s.model", True),
        ("BertWordPieceTokenizer", ["t/vocab.json", "t/merges.txt"], "t", True),
        ("BertWordPieceTokenizer", ["v.txt"], "v.txt", False),
    ],
)
def test_a_tokenizer_of_another_kind_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, files: list[str], path: str, refused: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in files:
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).touch()
    words = [*BASE[:2], "--tokenizer-type", kind, "--tokenizer-path", path]
    if refused:
        with pytest.raises(UsageError, match=f"--tokenizer-path: found {path}, .*; wanted files of a {kind}"):
            called(CODE, "pretrain_bert.py", *words)
    else:
        assert called(CODE, "pretrain_bert.py", *words).recipes["encode"]["tokenizer"] == path


def test_checkpoints_on_request(tiny_run: Any, tmp_path: Path) -> None:
    """The checkpoint is in the run's folder, which stays a run; writing it twice works."""
    run = tmp_path / "run"
    shutil.copytree(tiny_run.gpt2, run)
    for _ in range(2):
        write_checkpoint(run, ranks=2)
    step = (run / "latest_checkpointed_iteration.txt").read_text()
    names = [f"{path.parent.name}/{path.name}" for path in sorted((run / f"iter_{int(step):07}").glob("*/*"))]
    assert names == ["mp_rank_00/model_optim_rng.pt", "mp_rank_01/model_optim_rng.pt"]
    assert Origin.of(run).last() == int(step)
    assert not list(run.glob("*.part"))
    assert set(os.listdir(run)) - set(os.listdir(tiny_run.gpt2)) == {
        f"iter_{int(step):07}",
        "latest_checkpointed_iteration.txt",
    }


def test_a_run_stops_at_the_next_multiple(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = [*BASE, "--save", "s", "--exit-interval", "50"]
    assert called(CODE, "pretrain_bert.py", *words).environment == {"ORDSMED_STOP_AT": "50"}
    snapshots.path_of(Path("s/checkpoints"), 50).mkdir(parents=True)
    assert called(CODE, "pretrain_bert.py", *words).environment == {"ORDSMED_STOP_AT": "100"}
    for saved, wanted in ((99, "100"), (100, "150"), (130, "150")):  # as --save-interval left them, or a signal
        snapshots.path_of(Path("s/checkpoints"), saved).mkdir()
        assert called(CODE, "pretrain_bert.py", *words).environment == {"ORDSMED_STOP_AT": wanted}
    assert called(CODE, "pretrain_bert.py", *words, "--anew").environment == {"ORDSMED_STOP_AT": "50"}
    assert called(CODE, "pretrain_bert.py", *BASE, "--exit-interval", "9").environment == {"ORDSMED_STOP_AT": "9"}
    with pytest.raises(UsageError, match="--exit-interval: found 0"):
        called(CODE, "pretrain_bert.py", *BASE, "--exit-interval", "0")


def test_texts_and_tokens_of_other_words_lie_beside_those_that_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A restart in the folder may use other data, and the former data stay for the first command line."""
    monkeypatch.chdir(tmp_path)
    for name, text in (("a", "One two."), ("b", "Two one.")):
        (tmp_path / f"{name}.json").write_text(json.dumps({"sentence": text}) + "\n")
        (tmp_path / f"{name}.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "one", name]))
    program = find(CODE, "pretrain_bert.py")

    def places(texts: str, vocabulary: str) -> list[str]:
        words = [
            "--train-data",
            f"{texts}.json",
            "--tokenizer-path",
            f"{vocabulary}.txt",
            "--save",
            "s",
            "--split",
            "1",
        ]
        values = program.read(words, ProcessInfo(), {})
        call = program.translated(values)
        perform.keep_former_results(program, call)
        perform.prepare(program, values, call)
        paths = [perform.recipe_at(program, call, name) for name in ("corpus", "encode")]
        run.obtain(Encoding, str(paths[1]))
        return [path.parent.name for path in paths]

    assert places("a", "a") == ["s", "s"]
    main(["as", CODE, program.name, "--train-data", "b.json", "--tokenizer-path", "a.txt", "--save", "s", "--recipe"])
    assert re.search(r"^corpus = \"work/as/s-[0-9a-f]{8}/corpus.toml\"$", capsys.readouterr().out, re.MULTILINE)
    corpus, encoded = places("b", "a")
    assert corpus == encoded != "s"
    (_, other) = places("a", "b")
    assert other not in ("s", encoded)
    pieces = ["--train-data", "a.json", "--save", "s", "--split", "1", "--tokenizer-type", "SentencePieceTokenizer"]
    call = called(CODE, program.name, *pieces)
    perform.keep_former_results(program, call)
    assert {name: path.parent.name == "s" for path in perform.recipes(program, call, ()) for name in [path.stem]} == {
        "corpus": True,
        "tokenizer": True,
        "encode": False,
        "pretrain": True,
    }
    assert [places("a", "a"), places("b", "a"), places("a", "b")] == [["s", "s"], [encoded, encoded], ["s", other]]


def test_what_is_loaded(tiny_run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A TensorFlow checkpoint is given by its prefix; a run cannot resume in the folder of a Megatron checkpoint."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bert.ckpt.index").touch()
    call = called(CODE, "pretrain_bert.py", *BASE, "--load", "bert.ckpt", "--save", "x")
    assert (call.recipes["pretrain"]["init"], call.notes) == ("bert.ckpt", [])
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "latest_checkpointed_iteration.txt").write_text("100")
    with pytest.raises(UsageError, match=r"--save: .* contains checkpoints of Megatron-LM.* another folder; `--load"):
        called(CODE, "pretrain_bert.py", *BASE, "--load", "theirs", "--save", "theirs")
    shutil.copytree(tiny_run.gpt2, tmp_path / "run")
    alone = [*BASE, "--finetune", "--load", "run", "--save"]
    assert called(CODE, "pretrain_gpt2.py", *alone, "x").recipes["pretrain"]["init"] == "run/weights"
    with pytest.raises(UsageError, match=r"--finetune: found with run for --load and --save.* another --save"):
        called(CODE, "pretrain_gpt2.py", *alone, "run")
    (tmp_path / "run" / "weights").rename(tmp_path / "run" / "out_override")
    with pytest.raises(UsageError, match=r"--no-load-optim: found with run, an unfinished run"):
        called(CODE, "pretrain_gpt2.py", *BASE, "--no-load-optim", "--load", "run", "--save", "x")
    (tmp_path / "run" / "out_override").rename(tmp_path / "run" / "weights")
    shutil.copy(tmp_path / "theirs" / "latest_checkpointed_iteration.txt", tmp_path / "run")
    assert "init" not in called(CODE, "pretrain_bert.py", *BASE, "--load", "run", "--save", "run").recipes["pretrain"]
    program = find(CODE, "pretrain_bert.py")
    values = program.read(BASE, ProcessInfo(), {"ORDSMED_EXPORT": "1"})
    with pytest.raises(UsageError, match="ORDSMED_EXPORT: found without --save"):
        program.translated(values)


def test_a_checkpoint_whose_heads_the_command_line_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkpoint is imported first; a model that has the number of heads is used unchanged."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a" / "iter_0000100" / "mp_rank_00").mkdir(parents=True)
    (tmp_path / "a" / "latest_checkpointed_iteration.txt").write_text("100\n")
    file = "a/iter_0000100/mp_rank_00/model_optim_rng.pt"
    Path(file).touch()
    heads = ["--num-attention-heads", "4"]
    for load, target in (
        ("a", "a-100-4-heads"),
        (file, "a-iter_0000100-mp_rank_00-model_optim_rng.pt-4-heads"),
        (str(tmp_path / "a/iter_0000100"), f"{'-'.join(tmp_path.parts[1:])}-a-iter_0000100-4-heads"),
    ):
        place = f"work/as/taken/{target}"
        call = called(CODE, "pretrain_bert.py", *BASE, "--load", load, "--save", "x", *heads)
        assert (call.recipes["pretrain"]["init"], len(call.before)) == (place, 1)
        assert called(CODE, "generate_samples.py", "--load", load, *heads).words[0] == place
        call = called(CODE, "run_gpt2_eval.py", "--model-path", load, "--data-path", "f", *heads)
        assert call.recipes["evaluate"]["models"] == [place]
    (tmp_path / "b").mkdir()
    for load, words in (("b", heads), ("a", [])):
        call = called(CODE, "pretrain_bert.py", *BASE, "--load", load, "--save", "x", *words)
        assert (call.recipes["pretrain"]["init"], call.before) == (load, [])


def test_a_corpus_whose_file_is_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (note,) = called(CODE, "pretrain_bert.py", "--train-data", "wikipedia").notes
    assert note.startswith("wikipedia: data/wikipedia/wikidump_lines.json does not exist; set its path in corpora.toml")


CORPORA = """
class wikipedia(json_dataset):
    PATH = '/data/wiki.json'
    def __init__(self, **kwargs):
        kwargs['text_key'] = 'body'
        kwargs['loose_json'] = True
class mine(json_dataset):
    PATH = 'mine.jsonl'
class unnamed(json_dataset):
    PATH = 'x'
NAMED_CORPORA = {'wikipedia': wikipedia, 'openwebtext': mine}
raise SystemExit('nobody runs this')
"""


def test_names_of_their_corpora_py(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """corpora.py is parsed and not executed; corpora.toml precedes it; other names have the original's paths."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data_utils").mkdir()
    (tmp_path / "data_utils" / "corpora.py").write_text(CORPORA)
    words = ["--train-data", "wikipedia", "openwebtext", "webtext"]
    sources = called(CODE, "pretrain_bert.py", *words).recipes["corpus"]["source"]
    assert [(one["path"], one["text_key"]) for one in sources] == [
        ("/data/wiki.json", "body"),
        ("mine.jsonl", "sentence"),
        ("data/webtext/data.json", "text"),
    ]
    with pytest.raises(UsageError, match="found unnamed"):
        called(CODE, "pretrain_bert.py", "--train-data", "unnamed")
    (tmp_path / "corpora.toml").write_text('[wikipedia]\nkind = "text"\npath = "w.txt"\n')
    sources = called(CODE, "pretrain_bert.py", *words).recipes["corpus"]["source"]
    assert [one["kind"] for one in sources] == ["named", "jsonl", "jsonl"]
    (tmp_path / "data_utils" / "corpora.py").write_text("class (")
    with pytest.raises(UsageError, match=r"corpora.py: is not Python .* or list the corpora in corpora.toml"):
        called(CODE, "pretrain_bert.py", *words)


def test_a_trained_sentencepiece_is_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call keeps its tokenizer, so that its run can resume; another file of that name is used unchanged."""
    monkeypatch.chdir(tmp_path)
    words = [*BASE, "--tokenizer-type", "SentencePieceTokenizer", "--tokenizer-path", "in/t", "--save", "a"]
    own = tmp_path / "work" / "as" / "a" / "tokenizer"
    own.mkdir(parents=True)
    for name in ("spiece.model", "spiece.vocab"):
        (own / name).write_text(name)
    for _ in range(2):
        call = called(CODE, "pretrain_bert.py", *words)
        assert call.recipes["encode"]["tokenizer"] == "<tokenizer>"
        copy_sentencepiece(own, Path("in/t.model"))
    assert Path("in/t.vocab").read_text() == "spiece.vocab"
    assert not [note for note in call.notes if "trained" in note]
    other = called(CODE, "pretrain_bert.py", *words, "--save", "b")
    assert other.recipes["encode"]["tokenizer"] == "in/t.model"
    Path("in/t.model").write_text("mine")
    assert called(CODE, "pretrain_bert.py", *words).recipes["encode"]["tokenizer"] == "in/t.model"
