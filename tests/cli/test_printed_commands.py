"""Every command that is printed works as it stands: it is taken from the lines of some runs, and given to a shell."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from maker.test_texts import prose
from ordsmed.base import ending
from ordsmed.cli import main
from ordsmed.cli.next_steps import SERVING
from ordsmed.maker import closing, hours, request
from ordsmed.maker import plan as planning

QUOTED = 'The "home ec" film isn\'t $HOME, `ls` or 100 % of it\\!'  # a sentence with all that a shell reads
PRETRAIN = """
data = "{data}"
save = 2
validate = 2
validation_rows = 8
layout = {{ device = "cpu", precision = "fp32" }}
model = {{ kind = "bert", width = 64, layers = 1, heads = 1, positions = 64 }}
objective = {{ kind = "mlm" }}
phase = [{{ steps = 4, length = 32, batch = 4, learning_rate = 1e-3 }}]
"""
FINETUNE = """
init = "my model"
epochs = 1
batch = 8
layout = {{ device = "cpu", precision = "fp32" }}
task = {{ kind = "{kind}", train = "{file}", dev = "{file}", length = 32 }}
"""
MADE = ("make", "my texts", "--hours", "0.005")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where all stands, in a folder whose name has to be quoted: texts, a recipe of pretraining, two of fine-tuning."""
    folder = tmp_path_factory.mktemp("printed") / "it's here"
    (folder / "my texts").mkdir(parents=True)
    for number in range(20):
        (folder / f"my texts/{number}.txt").write_text(prose(10, seed=number))
    (folder / "run's.toml").write_text(PRETRAIN.format(data="my model/data"))
    lines = prose(16, of=1, seed=99).split("\n\n")
    labelled = [f"{line}\t{'few' if len(line.split()) < 24 else 'many'}" for line in lines]
    (folder / "classes.tsv").write_text("text\tlabel\n" + "\n".join(labelled) + "\n")
    tagged = ["\n".join(f"{word} {'B-R' if 'river' in word else 'O'}" for word in line.split()) for line in lines]
    (folder / "tags.conll").write_text("\n\n".join(tagged) + "\n")
    for kind, file in (("classify", "classes.tsv"), ("tag", "tags.conll")):
        (folder / f"{kind}.toml").write_text(FINETUNE.format(kind=kind, file=file))
    (folder / "bin").mkdir()
    for name, words in (("ordsmed", "-m ordsmed "), ("python3", "")):
        (folder / f"bin/{name}").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {words}"$@"\n')
        (folder / f"bin/{name}").chmod(0o755)
    return folder


@pytest.fixture
def printed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., list[str]]:
    """Give words to `ordsmed` (some seconds are enough for `make`); returns the commands among the lines printed."""
    monkeypatch.setattr(request, "SHORTEST_HOURS", 0.0)
    monkeypatch.setattr(hours, "CLOSING_SECONDS", 1.0)
    monkeypatch.setattr(planning, "_speed", lambda device, processes: 1e9)
    monkeypatch.setattr(hours.Hours, "deadline", lambda *_: 60.0)
    monkeypatch.setattr(closing, "_sentences", lambda corpus: iter([QUOTED] * 3))
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.chdir(folder)

    def give(*words: str) -> list[str]:
        with contextlib.suppress(SystemExit):  # of a run that was stopped
            main(words)
        said = "\n".join(reversed(capfd.readouterr()))
        assert "next: ordsmed" not in said, "a command stands on a line of its own"
        return re.findall(r"^ {4}((?:ordsmed|python3) .*)$", said, re.MULTILINE)

    return give


def given_to_a_shell(folder: Path, command: str) -> None:
    """The command ends well; a server is stopped once it listens."""
    path = f"{folder}/bin{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "BROWSER": "true", "OMP_NUM_THREADS": "1"}
    serves = command.startswith("ordsmed serve ")
    line = f"exec {command} --port 0" if serves else command
    with subprocess.Popen(
        ["sh", "-c", line], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout
        said = [process.stdout.readline()]
        while serves and said[-1] and ": serving" not in said[-1]:
            said.append(process.stdout.readline())
        if serves:
            process.send_signal(signal.SIGTERM)
        said += process.stdout.readlines()
        ended = process.wait(300)
    assert ended == (128 + signal.SIGTERM if serves and ended else 0), (command, said)


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "verbs"),
    [
        ((*MADE[:2], "my model", *MADE[2:], "--kind", "bert"), "pretrain fill show pretrain"),
        ((*MADE[:2], "writer", *MADE[2:], "--for", "write"), "pretrain generate show pretrain"),
        ((*MADE[:2], "vectors", *MADE[2:], "--for", "embed", "--kind", "bert"), "pretrain fill embed show pretrain"),
        (("show", "my model"), "show"),
        (("pretrain", "run's.toml", "out=a run"), "pretrain fill show recipes export serve"),
        (("finetune", "classify.toml", "out=classes"), "finetune evaluate predict classify export"),
        (("finetune", "tag.toml", "out=tags"), "finetune evaluate predict tag export"),
        (("export", "my model", "an export"), "python3"),
        (("export", "my model", "as google's", "--to", "google_bert"), ""),
        (("index", "my model", "my model/corpus", "an index"), "search"),
        (("report", "my model", "--out", "my page.html"), "python3"),
        (("import", "an export", "imported"), "show"),
        (("encode", "folder-wordpiece", "corpus=my model", "tokenizer=my model", "out=ids"), "pretrain recipes"),
    ],
)
def test_what_a_run_prints_works(
    words: tuple[str, ...], verbs: str, printed: Callable[..., list[str]], folder: Path
) -> None:
    commands = printed(*words)
    wanted = [verb for verb in verbs.split() if verb != "serve" or all(map(find_spec, SERVING))]
    assert [word.split()[0] if word.startswith("python3") else word.split()[1] for word in commands] == wanted
    for command in commands:
        if "tiny/bert" not in command:  # 520 steps; test_next_steps reads it
            given_to_a_shell(folder, command)


@pytest.mark.long
def test_what_continues_a_stopped_run_works(
    printed: Callable[..., list[str]], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as stops:
        stops.setenv(ending.STOP_AT, "2")
        first, again = printed("pretrain", "run's.toml", "out=stopped 'run'")
    assert first == again == '''ordsmed pretrain "stopped 'run'"'''
    given_to_a_shell(folder, again)
    assert "done" in (folder / "stopped 'run'/status.json").read_text()
    with monkeypatch.context() as stops:
        stops.setenv(ending.STOP_AT, "2")
        *_, training, whole = printed(*MADE[:2], "stopped make", *MADE[2:], "--kind", "bert")
    assert training == "ordsmed pretrain 'stopped make/model'"
    assert whole == "ordsmed make 'my texts' 'stopped make' --hours 0.005 --for fill --kind bert"
    printed(*shlex.split(whole)[1:])
    assert '"state": "done"' in (folder / "stopped make/status.json").read_text()


def test_what_a_stopped_command_prints_works(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ending.DEVICES, raising=False)
    title, line = ending.stop_lines("show", ["my texts/'0'.txt", "--anew"], ending.BEGINS_AGAIN).split("\n")
    assert title.endswith("start again with:")
    assert line == """    ordsmed show "my texts/'0'.txt" --anew"""
    assert shlex.split(line) == ["ordsmed", "show", "my texts/'0'.txt", "--anew"]
