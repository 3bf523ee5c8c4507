"""What the words of another code's program say, with settings of ours behind them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ordsmed.base.arguments import UsageError
from ordsmed.base.ranks import Place
from ordsmed.others.translate.program import Call, Flag, Program, Values, find

FAIRSEQ = (
    "data --task=masked_lm --criterion=masked_lm --arch=roberta_base --optimizer=adam --max-update=1 --batch-size=1"
)


@pytest.mark.parametrize(
    ("code", "name", "words", "said"),
    [
        ("megatron", "pretrain_bert.py", "--train-data=a.json --train-iters=0", "--train-iters: found 0; wanted"),
        ("megatron", "pretrain_bert.py", "--train-data=a.json --model-parallel-size=0",
         "--model-parallel-size: found 0; wanted more than 0"),
        ("nvidia", "run_pretraining.py", "--model_name=m --pretrain_tfrecords=a --learning_rate=0",
         "--learning_rate: found 0; wanted more than 0"),
        ("fairseq", "fairseq-train", f"{FAIRSEQ} --lr=0 --lr-scheduler=polynomial_decay", "--lr: found 0; wanted"),
        ("electra", "run_pretraining.py",
         """--data-dir=d --model-name=m --hparams={"model_hparam_overrides":{"hidden_size":"x"}}""",
         "hidden_size: found x; wanted a whole number"),
    ],
)  # fmt: skip
def test_numbers_that_nothing_is_made_of(code: str, name: str, words: str, said: str) -> None:
    program = find(code, name)
    with pytest.raises(UsageError, match=said):
        program.translated(program.read(words.split(), Place(0, 1), {}))


@pytest.mark.parametrize(
    ("code", "name", "words", "flag"),
    [
        ("fairseq", "fairseq-train", f"{FAIRSEQ} --save-dir=s", "save_dir"),
        ("huggingface", "run_qa.py", "--do_train --train_file=q.json --model_name_or_path=m", "output_dir"),
        ("google", "run_pretraining.py", "--bert_config_file=c.json --input_file=r --do_train --output_dir=s",
         "output_dir"),
        ("google", "run_squad.py", "--train_file=q.json --init_checkpoint=m --do_train --output_dir=s", "output_dir"),
    ],
)  # fmt: skip
def test_a_folder_behind_the_flags_is_that_of_all_files(
    code: str, name: str, words: str, flag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What their scripts look for is made of the run, wherever it is."""
    monkeypatch.chdir(tmp_path)
    sizes = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "type_vocab_size",
             "vocab_size", "max_position_embeddings")  # fmt: skip
    Path("c.json").write_text(json.dumps(dict.fromkeys(sizes, 8)))
    Path("vocab.txt").touch()
    program = find(code, name)
    values = program.read([*words.split(), "out=x", "out=y"], Place(0, 1), {})
    assert (values.elsewhere, values.of[flag]) == ("y", "y")
    assert program.translated(values).recipes[program.verb]["out"] == "y"


FLAGS = (
    Flag("--rate", 1.0, "rate"), Flag("--width", 2, "model.width", joint=True),
    Flag("--log", str, "a file", joint=True),
    Flag("--table", "{}", "its keys", joint=True), Flag("key", 3, "model.layers", within="--table"),
    Flag("--quiet", False, nothing="nobody speaks"), Flag("--noted", False, "told", joint=True),
)  # fmt: skip


def noted(call: Callable[[Values, Call], None], words: str) -> list[str]:
    program = Program("a.py", "", FLAGS, call, "finetune")
    return program.translated(program.read(words.split(), Place(0, 1), {})).notes


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
