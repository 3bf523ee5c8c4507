"""The verb that writes: its words, prompts from everywhere, one process or several, a closed pipe, a real terminal."""

from __future__ import annotations

import io
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kit.processes import PATIENT, run_born
from ordsmed import cli
from ordsmed.api.model import open as open_model
from ordsmed.cli.verbs import generate as verb

COMMAND = [sys.executable, "-m", "ordsmed", "generate"]


@pytest.fixture
def says(tiny_run: Any, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs the verb in this process: status, output, complaint."""

    def call(*words: str, model: Path = tiny_run.gpt2) -> tuple[int, str, str]:
        capsys.readouterr()
        status = 0
        try:
            cli.main(["generate", str(model), *words, "--device", "cpu", "--threads", "1"])
        except SystemExit as ended:
            status = int(ended.code or 0)
        return (status, *capsys.readouterr())

    return call


def test_names_that_people_know(says: Any, tiny_run: Any) -> None:
    assert says("the old", "--top-k", "9", "--tokens", "5") == says("the old", "--best", "9", "--tokens", "5")
    assert says("the old", "--top-p", ".5", "--tokens", "5") == says("the old", "--share", ".5", "--tokens", "5")
    assert says("the old", "--greedy", "--tokens", "5") == says("the old", "--temperature", "0", "--tokens", "5")
    wanted = open_model(tiny_run.gpt2, device="cpu").generate(
        "the old", tokens=9, temperature=0.7, best=20, share=0.9, penalty=1.2, stop=(".",), seed=5, samples=2
    )
    told = says(
        "the old",
        "--tokens",
        "9",
        "--temperature",
        ".7",
        "--top-k",
        "20",
        "--top-p",
        ".9",
        "--stop",
        ".",
        "--repetition-penalty",
        "1.2",
        "--seed",
        "5",
        "--samples",
        "2",
    )
    assert told == (0, "".join(f"{text.text}\n" for text in wanted), "")


def test_a_prompt_that_ends_the_prompts(says: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a stream; its first line is written on as if it came alone."""
    for text in ("the old\nstop\na bell\n", "the old\n"):
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(text.encode()), isatty=lambda: False))
        told = says("--until", "stop", "--tokens", "4")
        assert told == says("the old", "--tokens", "4")


def test_files_in_and_out(says: Any, tiny_run: Any, tmp_path: Path) -> None:
    """The same texts in every form; batches change nothing."""
    (tmp_path / "p.txt").write_text("the old\n\na bell\n")
    (tmp_path / "p.jsonl").write_text('{"prompt": "the old", "id": 1}\n{"text": ""}\n{"prompt": "a bell", "id": 3}\n')
    how = ("--tokens", "6", "--samples", "2")
    plain = says("--file", str(tmp_path / "p.txt"), *how)
    assert plain == says("the old", "", "a bell", *how) == says("--file", str(tmp_path / "p.txt"), "--batch", "1", *how)
    status, lines, _ = says("--file", str(tmp_path / "p.jsonl"), "--json", *how)
    records = [json.loads(line) for line in lines.splitlines()]
    assert status == 0
    texts = open_model(tiny_run.gpt2, device="cpu").generate(["the old", "", "a bell"], tokens=6, samples=2)
    assert [record["prompt"] + record["continuation"] for record in records] == [text.text for text in texts]
    assert plain[1] == "".join(f"{text.text}\n" for text in texts)
    assert [(record.get("id"), record["sample"]) for record in records] == [
        (1, 0),
        (1, 1),
        (None, 0),
        (None, 1),
        (3, 0),
        (3, 1),
    ]
    assert says("--file", str(tmp_path / "p.jsonl"), "--out", str(tmp_path / "o.jsonl"), *how) == (0, "", "")
    assert (tmp_path / "o.jsonl").read_text() == lines
    assert says("--file", str(tmp_path / "p.txt"), "--out", str(tmp_path / "o.txt"), *how)[0] == 0
    assert (tmp_path / "o.txt").read_text() == "".join(f"{' '.join(text.text.splitlines())}\n" for text in texts)


def test_lines_of_a_stream_are_answered_as_they_come(says: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    stdin: Any = SimpleNamespace(buffer=io.BytesIO(b"the old\n\n"), isatty=lambda: False)
    monkeypatch.setattr(sys, "stdin", stdin)
    assert says("--tokens", "4") == says("the old", "", "--tokens", "4")
    stdin.buffer = io.BytesIO(b"the old\nno\xff\n")
    status, out, complaint = says("--tokens", "4")
    assert (status, out.count("\n")) == (1, 1)
    assert complaint == "ordsmed: standard input:2: invalid UTF-8 at byte 3 of the line (0xff); wanted UTF-8 text; " + (
        "correct that line\n"
    )


def test_a_masked_model_writes_by_filling(says: Any, tiny_run: Any) -> None:
    status, out, _ = says("the old", "--tokens", "4", "--greedy", model=tiny_run.bert)
    assert status == 0
    assert out.startswith("the old")
    assert "[" not in out
    cli.main(["fill", str(tiny_run.bert), "--all", "the [MASK] fox [MASK]", "--together", "2"])


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["a", "--temperature=-1"], 1, "--temperature: found -1.0; wanted 0 or more"),
        (["a", "--top-p", "0"], 1, "--share (--top-p): found 0.0; wanted above 0, to 1"),
        (["a", "--penalty", "0"], 1, "--penalty: found 0.0; wanted above 0; 1 changes nothing"),
        (["a", "--greedy", "--temperature", "0.5"], 2, "--greedy: found with --temperature 0.5; wanted one of the two"),
        (["a", "--file", "p.txt"], 2, "--file: found with a text; wanted one of the two"),
        (
            ["--file", "nowhere.txt"],
            1,
            "nowhere.txt: no such file; wanted a file with one prompt per line, or JSON lines (.jsonl)",
        ),
        (["a\udcff"], 1, "'a\\udcff': invalid UTF-8 at character 2; wanted UTF-8 text"),
        (["a", "--top-k", "-1"], 2, "--top-k/--best: found -1; wanted a whole number, 0 or more"),
        (["a", "--precision", "fp8"], 1, "--precision: found fp8; wanted fp32 or bf16 or fp16"),
    ],
)
def test_what_cannot_be_is_one_line(says: Any, words: list[str], status: int, said: str) -> None:
    found = says(*words)
    assert found[:2] == (status, "")
    assert found[2].startswith(f"ordsmed: {said}")
    assert found[2].count("\n") == 1


def test_a_terminal_is_asked(says: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where standard input is none, with --interactive."""
    asked: list[Any] = []
    monkeypatch.setattr(verb, "_session", lambda network, how, until: asked.append(how.tokens))
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    assert says("--tokens", "7")[0] == 0
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: False))
    assert says("--interactive", "--tokens", "8")[0] == 0
    assert asked == [7, 8]


def environment() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE")} | {"OMP_NUM_THREADS": "1"}


@pytest.mark.long
@pytest.mark.parametrize("kind", ["gpt2", "bert"])
def test_processes_that_share_every_layer_write_the_same(
    says: Any, tiny_run: Any, tmp_path: Path, kind: str, nursery: Any
) -> None:
    """From a file and from standard input, which the first one reads."""
    model = getattr(tiny_run, kind)
    (tmp_path / "p.txt").write_text("the old\n\na bell rings\n")
    how = ["--tokens", "6", "--top-p", "0.9"]
    wanted = says("--file", str(tmp_path / "p.txt"), *how, model=model)
    alone = ["generate", str(model), *how, "--device", "cpu"]
    apart = [*alone, "--devices", "2"]
    run = run_born(nursery, tmp_path, *apart, "--file", tmp_path / "p.txt")
    assert (run.returncode, run.stdout) == (0, wanted[1]), run.stderr
    run = run_born(nursery, tmp_path, *apart, read=(tmp_path / "p.txt").read_text())
    assert (run.returncode, run.stdout) == (0, wanted[1]), run.stderr
    if kind == "bert":
        asked = "the old\n/tokens 3\n\n/quit\n"
        one, both = (run_born(nursery, tmp_path, *words, "--interactive", read=asked) for words in (alone, apart))
        assert (both.returncode, both.stdout) == (0, one.stdout), both.stderr
        assert "> the old" in one.stdout
        assert "tokens 3" in one.stdout


@pytest.mark.long
@pytest.mark.parametrize("devices", [[], ["--devices", "2"]])
def test_a_reader_that_goes_away_is_no_fault(tiny_run: Any, devices: list[str]) -> None:
    words = [*COMMAND, str(tiny_run.gpt2), "the old", "--tokens", "100000", "--device", "cpu", *devices]
    process = subprocess.Popen(words, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(3)
    process.stdout.close()
    with process.stderr:
        told = process.stderr.read().decode()
    assert process.wait() == 141
    assert "Traceback" not in told, told


@pytest.mark.long
def test_ctrl_c_leaves_nothing_half_written(tiny_run: Any, tmp_path: Path) -> None:
    words = [*COMMAND, str(tiny_run.gpt2), "a", "b", "--tokens", "1000000", "--out", str(tmp_path / "out.txt")]
    process = subprocess.Popen(words, env=environment(), stderr=subprocess.PIPE)
    until = time.monotonic() + PATIENT
    while not list(tmp_path.iterdir()) and time.monotonic() < until:
        time.sleep(0.02)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate()
    assert process.returncode == 130
    assert told.decode().splitlines()[-1] == "ordsmed: stopped"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_a_real_terminal(tiny_run: Any) -> None:
    """A prompt, an empty one, a setting, a text that is ended, the end."""
    pid, terminal = pty.fork()
    if not pid:
        words = [*COMMAND, str(tiny_run.gpt2), "--tokens", "5", "--greedy", "--device", "cpu"]
        os.execve(sys.executable, words, environment())
    told = bytearray()

    def until(sign: bytes, after: int = 0, seconds: float = PATIENT) -> int:
        end = time.monotonic() + seconds
        while sign not in told[after:]:
            assert time.monotonic() < end, told.decode(errors="replace")
            if select.select([terminal], [], [], 0.1)[0]:
                told.extend(os.read(terminal, 4096))
        return told.index(sign, after) + len(sign)

    wanted = open_model(tiny_run.gpt2, device="cpu").generate("the old", tokens=5, temperature=0)
    at = until(b"> ")
    os.write(terminal, b"the old\n")
    at = until(wanted.text.split("\n")[0].encode(), until(b"the old\r\n", at))
    os.write(terminal, b"/tokens 1000000\n")
    at = until(b"tokens 1000000", at)
    os.write(terminal, b"\n")
    at = until(b"> \r\n", at)
    while len(told) == at:  # it writes
        told.extend(os.read(terminal, 4096))
    os.write(terminal, b"\x03")
    at = until(b"> ", until(b"(ended)\r\n", at))
    os.write(terminal, b"/quit\n")
    until(b"/quit\r\n", at)
    assert os.waitpid(pid, 0)[1] == 0
    os.close(terminal)
