"""Every flag of every program, given alone, changes the call, is refused or causes a note; none is ignored silently.

A mode is a program with the minimal arguments that it needs. `unused` are the flags
that this call does not use, as in the original; `same` those that change nothing, because they repeat other arguments.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kit import elmo_files
from ordsmed.base.errors import OrdsmedError
from ordsmed.base.ranks import ProcessInfo
from ordsmed.base.settings import read as read_table
from ordsmed.others.translate.program import Call, Flag, Program, find, names, programs

UNUSED = ": not used by this call"
WORD = "word9"
SIZES = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "type_vocab_size",
    "vocab_size",
    "max_position_embeddings",
)
MEANT: dict[str, Any] = {  # of what takes not any word
    "--lr_decay_power": 3.0,
    "--size": 99_999,
    "n_train_tokens": 99_999,
    "--n_train_tokens": 99_999,
    "model_size": "base",
    "--adam-betas": "(0.8,0.9)",
    "--lr": "0.125",
    "--update-freq": "[3]",
    "--max-tokens": 4096,
    "--lr-scheduler": "fixed",
    "--activation-fn": "relu",
    "--arch": "roberta_large",
    "--sample-break-mode": "eos",
    "--task_name": "rte",
    "--optim": "stable_adamw",
    "--lr_scheduler_type": "cosine",
    "--language": "sw",
    "--train_language": "sw",
    "--vocab_file": "vocab.txt",
    "--ddp-backend": "fully_sharded",
    "--vocab-file": "c.txt",
}


@dataclass(frozen=True)
class Mode:
    """A program with the minimal arguments that it needs."""

    code: str
    program: str
    least: str
    unused: str = ""  # flags of which a note says that this call does not use them, as in the original
    same: str = ""  # flags that change nothing: the words mean it already, or it is read when all is done
    dropped: str = ""  # flags that are read and lost: to be mended
    beside: str = ""  # for flags that need others: `--phase2 --restore_checkpoint=latest, ...`

    def __str__(self) -> str:
        return f"{self.code} {self.program} {self.least[:24]}"


MODES = [Mode(**table) for table in read_table(Path(__file__).with_name("flags_alone.toml"))["mode"]]
WHOLE = {
    "benchmark_pretraining.sh",
    "benchmark_squad.sh",
    "vocabulary.py",
    "presplit_sentences_json.py",
    "fairseq-hydra-train",
}  # words by their place alone, or settings


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write the files that the command lines name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ORDSMED_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("ordsmed.base.machine.host.cores", lambda: 64)
    Path("c.json").write_text(json.dumps(dict.fromkeys(SIZES, 8)))
    Path("t.csv").write_text("sentence1,sentence2,label\na,b,1\n")
    Path("n.json").write_text('{"tokens": ["a"], "ner_tags": ["O"]}\n')
    Path("vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\n")
    Path("x/XNLI-1.0").mkdir(parents=True)
    for name in ("dev", "test"):
        Path(f"x/XNLI-1.0/xnli.{name}.tsv").write_text("language\tgold_label\tsentence1\tsentence2\n")
    asked = elmo_files.options(n_characters=261) | {
        "bidirectional": True,
        "n_epochs": 2,
        "n_train_tokens": 1000,
        "batch_size": 4,
        "unroll_steps": 5,
    }
    elmo_files.checkpoint(Path("elmo"), asked, elmo_files.arrays(asked), 5)
    Path("v").write_text("\n".join(["<S>", "</S>", "<UNK>", "the", "newts", ""]))
    Path("t").mkdir()
    Path("t/a").write_text("the newts\n" * 9)


def value_of(flag: Flag) -> Any:
    """Return a value other than the default."""
    if flag.name in MEANT:
        return MEANT[flag.name]
    if flag.one_of:
        return next(one for one in flag.one_of if one != flag.default)
    if flag.kind in (int, float):
        return flag.kind((flag.default or 0) * 0.5 + 4.3)
    return {bool: not flag.default, list: ["sst"], dict: {"num_hidden_layers": 5}, str: WORD}[flag.kind]


def said(program: Program, flag: Flag, least: list[str]) -> tuple[list[str], dict[str, str]]:
    """Return the arguments and the environment that give the flag."""
    value = value_of(flag)
    if flag.name.isupper():
        return least, {flag.name: str(value)}
    if flag.within:
        held = next((word for word in least if word.startswith(f"{flag.within}=")), f"{flag.within}={{}}")
        table = json.loads(held.partition("=")[2]) | {flag.name: value}
        return [*(word for word in least if word != held), f"{flag.within}={json.dumps(table)}"], {}
    if flag.kind is bool and not (program.absl or program.fields or flag.valued):
        return [*least, flag.name], {}
    return [*least, f"{flag.name}={value}"], {}


def shape(call: Call) -> str:
    """Return everything that a call would do, except its functions."""
    notes = [note for note in call.notes if not note.endswith(UNUSED)]
    return repr(
        (
            call.verb,
            call.recipes,
            call.words,
            call.writes,
            call.environment,
            call.devices,
            call.gpus,
            call.shared,
            notes,
            len(call.before),
            len(call.after),
            [shape(one) for one in call.then],
        )
    )


def outcome(program: Program, flag: Flag, least: list[str], usual: str) -> str:
    words, environment = said(program, flag, least)
    try:
        values = program.read(words, ProcessInfo(0, 1), environment)
        call = program.translated(values)
    except OrdsmedError as error:
        named = (flag.name.lstrip("-"), flag.key, flag.key.replace("_", "-"), WORD)
        return "refused" if any(name in str(error) for name in named) else f"other error: {error}"
    listed = [note.removesuffix(UNUSED).split(", ") for note in call.notes if note.endswith(UNUSED)]
    if any(flag.spelling in shown for shown in listed):
        return "unused"
    return "same" if shape(call) == usual else "changed"


def given(mode: Mode) -> Iterator[tuple[str, str]]:
    """Return each flag that has an effect, and the effect."""
    program, least = find(mode.code, mode.program), mode.least.split()
    usual = shape(program.translated(program.read(least, ProcessInfo(0, 1), {})))
    beside = dict(line.split(" ", 1) for line in mode.beside.split(", ") if line)
    for flag in program.flags:
        if flag.goes and (flag.name.startswith("-") or flag.name.isupper() or flag.within):
            words = [*least, *beside.get(flag.name, "").split()]
            yield flag.name, outcome(program, flag, words, usual)


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("mode", MODES, ids=str)
def test_a_flag_is_not_dropped(mode: Mode) -> None:
    found: dict[str, list[str]] = {}
    for name, what in given(mode):
        found.setdefault(what, []).append(name)
    found.pop("changed", None)
    found.pop("refused", None)
    wanted = {"unused": mode.unused.split(), "same": [*mode.same.split(), *mode.dropped.split()]}
    assert {what: set(names) for what, names in found.items()} == {
        what: set(names) for what, names in wanted.items() if names
    }


def test_every_program_has_a_mode() -> None:
    known = {(code, name) for code in names() for name, program in programs(code).items() if program.flags}
    assert {(mode.code, mode.program) for mode in MODES} == {one for one in known if one[1] not in WHOLE}
