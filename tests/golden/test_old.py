"""Folders of every verb as an earlier version left them, in old.tar.xz: they open and go on, to what old.json tells.

They were made at the version that old.json names (`commit`), and stand for all that people have from then. Making them
anew (`PYTHONPATH=src:tests python tests/golden/test_old.py`) would give that promise up: add others beside them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tarfile
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from kit.makers import synthetic_text
from ordsmed.base import run
from ordsmed.base.ending import Stopped
from ordsmed.base.run import Run
from ordsmed.corpus.pipeline import Corpus
from ordsmed.data.encode import Encoding
from ordsmed.data.store import Store
from ordsmed.data.tokenizer_training import TokenizerTraining
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.train import loop
from ordsmed.train.finetune.finetune import finetune
from ordsmed.train.pretrain.pretrain import pretrain
from ordsmed.use.fill import fill
from ordsmed.weights import weights
from ordsmed.weights.trained_model import open_model

ARCHIVE, TOLD = (Path(__file__).with_name(name) for name in ("old.tar.xz", "old.json"))
WHEN = 1_700_000_000  # the time of all files: that of texts is part of what is made of them
STOP = 5  # the step before which unfinished trainings were stopped
LAYOUT = 'layout = { device = "cpu", threads = 1 }\n'
RECIPES = {
    "corpus": 'validation = 0.1\nlanguage = "en"\nlicence = "CC0-1.0"\ntitle = "Invented sentences"\nout = "corpus"\n'
    'source = { kind = "text", path = "texts.txt" }\n',
    "pieces": 'corpus = "corpus.toml"\nout = "pieces"\ntokenizer = { kind = "wordpiece", size = 90 }\n',
    "words": 'corpus = "corpus.toml"\nout = "words"\ntokenizer = { kind = "words", size = 24, least = 2 }\n',
    "store": 'corpus = "corpus.toml"\ntokenizer = "pieces.toml"\nout = "store"\n',
    "word-store": 'corpus = "corpus.toml"\ntokenizer = "words.toml"\nout = "word-store"\n',
    "finished": 'data = "store.toml"\nout = "finished"\nsave = 6\nvalidate = 3\nvalidation_rows = 4\n'
    'model = { kind = "bert", width = 8, layers = 1, heads = 2, positions = 32 }\nobjective = "mlm"\n'
    f"{LAYOUT}phase = [{{ steps = 6, length = 16, batch = 4, rate = 1e-2, warmup = 2 }}]\n",
    "electra": 'data = "store.toml"\nout = "electra"\nsave = 20\nvalidate = 4\nvalidation_rows = 4\n'
    'model = { kind = "electra", width = 8, layers = 1, heads = 2, positions = 32 }\nobjective = "rtd"\n'
    f"{LAYOUT}phase = [{{ steps = 6, length = 16, batch = 4, rate = 1e-2, warmup = 2 }},"
    " { steps = 4, length = 24, batch = 4, rate = 1e-2 }]\n",
    "elmo": 'data = "word-store.toml"\nout = "elmo"\nsave = 20\nvalidate = 4\nvalidation_rows = 4\n'
    'model = { kind = "elmo", width = 8, cells = 8, layers = 1, highways = 1, filters = [[1, 4], [2, 4]] }\n'
    f'objective = {{ kind = "bilm", samples = 8 }}\n{LAYOUT}'
    "phase = [{ steps = 8, length = 10, batch = 4, rate = 1e-2 }]\n",
    "tuned": 'init = "finished"\nout = "tuned"\nsteps = 10\nbatch = 4\nrate = 1e-2\nsave = 20\nfeatures = "features"\n'
    f'{LAYOUT}task = {{ kind = "classify", train = "train.tsv", dev = "dev.tsv", length = 16 }}\n',
}
TRAININGS: dict[str, Callable[..., Path]] = {"electra": pretrain, "elmo": pretrain, "tuned": finetune}
MADE = {
    "corpus": Corpus,
    "pieces": TokenizerTraining,
    "words": TokenizerTraining,
    "store": Encoding,
    "word-store": Encoding,
}


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Stand where a copy of them is; what is told of them."""
    with tarfile.open(ARCHIVE) as archive:
        safe: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # Debian 12 has 3.11.2
        archive.extractall(tmp_path, **safe)
    monkeypatch.chdir(tmp_path)
    return dict(json.loads(TOLD.read_text(encoding="utf-8")))


def test_corpora_tokenizers_and_stores_stand_and_hold_the_same(
    old: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.stat().st_mtime_ns for name in MADE for path in Path(name).rglob("*")}
    for name, kind in MADE.items():
        assert run.obtain(kind, f"{name}.toml") == Path(name)
    assert capsys.readouterr().err.count("exists, reused") == len(MADE)
    assert {path: path.stat().st_mtime_ns for name in MADE for path in Path(name).rglob("*")} == before
    assert {name: rows(Path(name)) for name in ("store", "word-store")} == old["rows"]
    assert {name: pieces(Path(name)) for name in ("pieces", "words")} == old["pieces"]


@pytest.mark.usefixtures("details")
@pytest.mark.parametrize("name", TRAININGS)
def test_a_stopped_training_goes_on_as_it_would_have(
    old: dict[str, Any], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """By its recipe: what it was made from still has the same fingerprints. Nothing of what it reads is made again."""
    stood = {path for path in Path().rglob("*") if path.parts[0] not in (name, f".{name}.lock")}
    TRAININGS[name](f"{name}.toml")
    said = capsys.readouterr().err
    assert f"resumed from {name}/checkpoints/step-00000000{STOP - 1}" in said
    assert name != "tuned" or said.count("cached features are used") == 2
    assert {p for p in Path().rglob("*") if p.parts[0] != name and p.suffix != ".lock"} == {
        p for p in stood if p.suffix != ".lock"
    }
    same(old, course(Path(name)), old["courses"][name])
    same(
        old, left(Path(name)), old["left"][name], near=1e-3
    )  # where a gradient is all but 0, Adam makes steps of noise


def test_a_finished_run_opens_and_answers_as_it_did(old: dict[str, Any]) -> None:
    assert Run(Path("finished")).status["state"] == "done"
    same(old, left(Path("finished")), old["left"]["finished"])
    same(old, guesses(Path("finished")), old["guesses"])
    pretrain("finished.toml")  # nothing to do
    same(old, course(Path("finished")), old["courses"]["finished"])


def same(old: dict[str, Any], found: Any, wanted: Any, near: float = 1e-5) -> None:
    """To the bit where products and functions round as they did where these were made; elsewhere almost."""
    if old["arithmetic"] == arithmetic():
        assert found == wanted
    else:
        assert flat(found) == pytest.approx(flat(wanted), rel=near, abs=near)


def flat(value: Any) -> list[float]:
    values = value.values() if isinstance(value, dict) else value
    return [n for one in values for n in (flat(one) if isinstance(one, list | dict) else [one])]


def arithmetic() -> str:
    """How this machine and this torch round: a digest of a step of a layer as wide as those of the runs."""
    chance = torch.Generator().manual_seed(3)
    rows, *matrices = (torch.randn(n, 8, generator=chance) for n in (64, 8, 24, 90))
    held = [matrix.requires_grad_() for matrix in matrices]
    state = functional.gelu(functional.linear(rows, held[0])) + rows @ held[0].tanh()
    parts = functional.linear(functional.layer_norm(state, (8,)), held[1]).view(4, 16, 3, 2, 4).permute(2, 0, 3, 1, 4)
    mixed = functional.scaled_dot_product_attention(*parts).transpose(1, 2).reshape(64, 8).sigmoid().exp()
    scores = functional.linear(mixed, held[2])
    (scores.logsumexp(1).mean() + torch.addmm(rows, mixed, held[0]).square().sum().sqrt()).backward()
    crc = 0
    for numbers in (state, mixed, scores, scores.softmax(1), rows.erf().sum(0), *(one.grad for one in held)):
        assert numbers is not None
        crc = zlib.crc32(numbers.detach().contiguous().numpy().tobytes(), crc)
    return f"torch {torch.__version__.partition('+')[0]}, {torch.backends.cpu.get_cpu_capability()}, {crc:08x}"


def course(folder: Path) -> list[list[float]]:
    """What every step and every validation of a run found."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [[line["step"], *(line[key] for key in ("loss", "norm", "validation") if key in line)] for line in lines]


def left(folder: Path) -> dict[str, list[float]]:
    """Two sums over each of the weights that a run left."""
    held = weights.read(folder / "weights" / "model.safetensors")
    return {k: [float(v.double().sum()), float(v.double().square().sum())] for k, v in sorted(held.items())}


def guesses(folder: Path) -> dict[str, list[float]]:
    """What an opened run puts in the place of a mask: the share of every piece."""
    [mask] = fill(open_model(folder), "the old [MASK] mends a bell.", best=90).masks
    return {text: [share] for text, share in sorted((guess.text, guess.probability) for guess in mask)}


def rows(folder: Path) -> list[str]:
    """Tokens, documents and sentences of a store."""
    stores = [Store.open(folder / split) for split in ("train", "validation")]
    columns = [column for one in stores for column in (one.tokens, one.document_starts, one.starts)]
    return [f"{zlib.crc32(np.ascontiguousarray(column, dtype='<i8').tobytes()):08x}" for column in columns]


def pieces(folder: Path) -> list[Any]:
    """What a tokenizer is, and what it makes of a sentence."""
    tokenizer = Tokenizer.load(folder)
    return [tokenizer.fingerprint, [int(n) for n in tokenizer.encode("My sister forgets two unknown kettles.")]]


def make(folder: Path) -> None:
    """Everything, into a folder that one stands in; trainings are stopped, packed up, and then gone on with."""
    (folder / "texts.txt").write_text(synthetic_text(40), encoding="utf-8")
    for seed, (name, count) in enumerate((("train", 24), ("dev", 12))):
        texts = [line for line in synthetic_text(count, seed).splitlines() if line]
        lines = [f"{text.partition('.')[0]}.\t{'fox' in text.partition('.')[0]}" for text in texts]
        (folder / f"{name}.tsv").write_text("\n".join(["text\tlabel", *lines]) + "\n", encoding="utf-8")
    for path in folder.iterdir():
        os.utime(path, (WHEN, WHEN))
    for name, text in RECIPES.items():
        (folder / f"{name}.toml").write_text(text, encoding="utf-8")
    for name, kind in MADE.items():
        run.obtain(kind, f"{name}.toml")
    pretrain("finished.toml")
    update = loop.train_step

    def stopping(job: Any, batches: Any, rate: float, index: int, inner: int, *more: Any, **how: Any) -> Any:
        if index == 0 and inner + 1 == STOP - 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return update(job, batches, rate, index, inner, *more, **how)

    loop.train_step = stopping  # type: ignore[assignment]
    for name, perform in TRAININGS.items():
        try:
            perform(f"{name}.toml")
        except Stopped:
            pass
        else:
            raise AssertionError(name)
    loop.train_step = update
    pack(folder)
    for name, perform in TRAININGS.items():
        perform(f"{name}.toml")
    trained = ("finished", *TRAININGS)
    found = {
        "commit": subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=TOLD.parent, text=True).strip(),
        "arithmetic": arithmetic(),
        "courses": {name: course(Path(name)) for name in trained},
        "left": {name: left(Path(name)) for name in trained},
        "guesses": guesses(Path("finished")),
        "rows": {name: rows(Path(name)) for name in ("store", "word-store")},
        "pieces": {name: pieces(Path(name)) for name in ("pieces", "words")},
    }
    TOLD.write_text(json.dumps(found) + "\n", encoding="utf-8")


def pack(folder: Path) -> None:
    """All files but locks and pictures of the course; nothing of the machine they were made on."""
    for path in (*folder.rglob("status.json"), *folder.rglob("data.json")):
        path.write_text(path.read_text().replace(str(folder), "/old"), encoding="utf-8")
    for path in folder.rglob("environment.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"host": "old", "command": ""}), encoding="utf-8")
    with tarfile.open(ARCHIVE, "w:xz", preset=9) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.suffix not in (".lock", ".svg") and "tensorboard" not in path.parts:
                info = archive.gettarinfo(path, str(path.relative_to(folder)))
                info.uid = info.gid = 0
                info.uname, info.gname, info.mtime = "", "", WHEN
                with path.open("rb") as file:
                    archive.addfile(info, file)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        make(Path(place).resolve())
        os.chdir("/")
