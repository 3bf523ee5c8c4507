"""Parsing of command lines of other codes, with settings after the flags."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ordsmed.base.arguments import UsageError
from ordsmed.base.ranks import ProcessInfo
from ordsmed.others.translate.converters import listed, positive, unless_empty
from ordsmed.others.translate.program import Call, Flag, Program, Values, find, idle, joint, refused

FAIRSEQ = (
    "data --task=masked_lm --criterion=masked_lm --arch=roberta_base --optimizer=adam --max-update=1 --batch-size=1"
)


@pytest.mark.parametrize(
    ("code", "name", "words", "said"),
    [
        ("megatron", "pretrain_bert.py", "--train-data=a.json --train-iters=0", "--train-iters: found 0; wanted"),
        (
            "megatron",
            "pretrain_bert.py",
            "--train-data=a.json --model-parallel-size=0",
            "--model-parallel-size: found 0; wanted more than 0",
        ),
        (
            "nvidia",
            "run_pretraining.py",
            "--model_name=m --pretrain_tfrecords=a --learning_rate=0",
            "--learning_rate: found 0; wanted more than 0",
        ),
        ("fairseq", "fairseq-train", f"{FAIRSEQ} --lr=0 --lr-scheduler=polynomial_decay", "--lr: found 0; wanted"),
        (
            "electra",
            "run_pretraining.py",
            """--data-dir=d --model-name=m --hparams={"model_hparam_overrides":{"hidden_size":"x"}}""",
            "hidden_size: found x; wanted a whole number",
        ),
    ],
)
def test_numbers_that_nothing_is_made_of(code: str, name: str, words: str, said: str) -> None:
    program = find(code, name)
    with pytest.raises(UsageError, match=said):
        program.translated(program.read(words.split(), ProcessInfo(0, 1), {}))


@pytest.mark.parametrize(
    ("code", "name", "words", "flag"),
    [
        ("fairseq", "fairseq-train", f"{FAIRSEQ} --save-dir=s", "save_dir"),
        ("huggingface", "run_qa.py", "--do_train --train_file=q.json --model_name_or_path=m", "output_dir"),
        (
            "google",
            "run_pretraining.py",
            "--bert_config_file=c.json --input_file=r --do_train --output_dir=s",
            "output_dir",
        ),
        ("google", "run_squad.py", "--train_file=q.json --init_checkpoint=m --do_train --output_dir=s", "output_dir"),
    ],
)
def test_a_folder_behind_the_flags_is_that_of_all_files(
    code: str, name: str, words: str, flag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The original's files are made from the run in any folder."""
    monkeypatch.chdir(tmp_path)
    sizes = (
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "intermediate_size",
        "type_vocab_size",
        "vocab_size",
        "max_position_embeddings",
    )
    Path("c.json").write_text(json.dumps(dict.fromkeys(sizes, 8)))
    Path("vocab.txt").touch()
    program = find(code, name)
    values = program.read([*words.split(), "out=x", "out=y"], ProcessInfo(0, 1), {})
    assert (values.out_override, values.of[flag]) == ("y", "y")
    assert program.translated(values).recipes[program.verb]["out"] == "y"


FLAGS = (
    Flag("--rate", 1.0, "rate"),
    Flag("--width", 2, "model.width", joint=True),
    Flag("--log", str, "a file", joint=True),
    Flag("--table", "{}", "its keys", joint=True),
    Flag("key", 3, "model.layers", within="--table"),
    Flag("--quiet", False, nothing="nobody speaks"),
    Flag("--noted", False, "told", joint=True),
)


def noted(call: Callable[[Values, Call], None], words: str) -> list[str]:
    program = Program("a.py", "", FLAGS, call, "finetune")
    return program.translated(program.read(words.split(), ProcessInfo(0, 1), {})).notes


def test_a_flag_that_is_neither_read_nor_noted_is_told() -> None:
    every = '--rate=3 --width=4 --log=x --table={"key":5} --quiet --noted'

    def reads(values: Values, call: Call) -> None:
        call.notes.append("--noted: as it is")
        values.read_later("log")
        assert values.width == 4

    quiet = "--quiet: not needed here: nobody speaks"
    assert noted(reads, every) == [quiet, "--noted: as it is"]
    unused = "--rate, --width, --log, --table key, --noted: not used by this call"
    assert noted(lambda values, call: call.recipes.clear(), every) == [quiet, unused]
    assert noted(lambda values, call: call.recipes.clear(), "") == []

    def tells(values: Values, call: Call) -> None:
        call.recipes.clear()
        call.notes.append("--table key: as it is")

    assert noted(tells, '--table={"key":5}') == ["--table key: as it is"]
    assert noted(lambda values, call: call.put("rate", 9), "--rate=3") == ["--rate: not used by this call"]


def test_a_setting_may_be_carried_by_a_word_or_by_a_later_call() -> None:
    def by_word(values: Values, call: Call) -> None:
        call.recipes.clear()
        call.words.append("rate=3.0")

    def by_another(values: Values, call: Call) -> None:
        call.then.append(Call("finetune", recipes={**call.recipes}))
        call.recipes.clear()

    assert noted(by_word, "--rate=3") == noted(by_another, "--rate=3") == []
    assert noted(by_word, "--rate=4") == ["--rate: not used by this call"]


ROWS = (
    Flag("--cpu", False, "layout.device", by={True: "cpu"}),
    Flag("--steps", -1, "steps", by=positive),
    Flag("--files", str, "corpus: files", by=listed),
    Flag("--workers", 1, "layout.workers", explicit=True),
    Flag("--tokens", 256, "--tokens"),
    Flag("--greedy", False, "--greedy"),
    Flag("--cache", str, "ORDSMED_CACHE", by=unless_empty),
    Flag("--half", False, "layout.precision", by={True: "fp16"}),
    Flag("--scale", 128.0, "layout.scale", needs="--half"),
    Flag("--way", "a", "way", one_of=("a", "b")),
)


def rows_of(words: str) -> Call:
    program = Program("a.py", "", ROWS, lambda values, call: None, "embed", sets="model.kind=bert corpus:exact=true")
    return program.translated(program.read(words.split(), ProcessInfo(0, 1), {}))


def test_a_row_says_what_a_value_becomes() -> None:
    """A flag sets a setting, an argument, a variable, or nothing; constant settings are set too."""
    least = rows_of("")
    assert least.recipes == {"embed": {"model": {"kind": "bert"}, "way": "a"}, "corpus": {"exact": True}}
    assert (least.words, least.environment, least.notes) == (["--tokens", "256"], {}, [])
    every = rows_of("--cpu --steps=5 --files=a,b --workers=1 --tokens=3 --greedy --cache=c --half --scale=2 --way=b")
    layout = {"device": "cpu", "workers": 1, "precision": "fp16", "scale": 2.0}
    assert every.recipes["embed"] == {"model": {"kind": "bert"}, "way": "b", "steps": 5, "layout": layout}
    assert every.recipes["corpus"] == {"exact": True, "files": ["a", "b"]}
    assert (every.words, every.environment) == (["--tokens", "3", "--greedy"], {"ORDSMED_CACHE": "c"})
    assert every.notes == rows_of("--cache= --steps=0").notes == []


def test_a_row_that_needs_another_flag() -> None:
    call = rows_of("--scale=2 --steps=0")
    assert call.notes == ["--scale: has no effect without --half"]
    assert "layout" not in call.recipes["embed"]
    with pytest.raises(UsageError, match="--way: found c; wanted a, b"):
        rows_of("--way=c")


def test_flags_are_spelled_with_their_defaults() -> None:
    flags = joint("a.b", "--x=1 --y=0.5 --z:int -w=False v= --u=1e-4 --t=None")
    assert [flag.default_or_type for flag in flags] == [1, 0.5, int, False, "", 1e-4, "None"]
    assert {(flag.goes, flag.joint) for flag in flags} == {("a.b", True)}
    assert [flag.nothing for flag in idle("why", "--x=1 --y:str")] == ["why", "why"]
    assert [flag.refused for flag in refused("that", "--x=1")] == ["that"]
    with pytest.raises(ValueError, match="--x: must be NAME=DEFAULT or NAME:TYPE"):
        idle("why", "--x")


def test_flags_that_exclude_each_other_or_must_be_there() -> None:
    program = Program("a.py", "", (Flag("--a", False, "a"), Flag("--b-c", str, "b")), lambda *_: None, "embed")
    values = program.read(["--a", "--b-c=1"], ProcessInfo(0, 1), {})
    assert values.says("--b-c")
    assert not values.says("--d")
    values.require("--a", "--b-c")
    with pytest.raises(UsageError, match="--a: found with --b-c; wanted one of the two"):
        values.refuse_both("--a", "--b-c")
    with pytest.raises(UsageError, match=r"a.py: no --b-c; wanted `a.py --b-c ...`"):
        program.read(["--a"], ProcessInfo(0, 1), {}).require("--a", "--b-c")
