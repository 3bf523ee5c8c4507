"""A small encoded folder and recipes over it, trained on the GPU; what a test switches in torch is switched back."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from kit.makers import make_store, make_words

# torch reads it once a process, and some test before the one that needs it may have multiplied
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("data") / "store")


@pytest.fixture
def recipe(store: Path, tmp_path: Path) -> Callable[..., Path]:
    """Write a recipe file: BERT or GPT-2 of two layers in fp32, dropout 0 unless `dropout` says otherwise."""

    def write(name: str = "run", kind: str = "bert", *, dropout: float = 0.0, more: str = "", **top: object) -> Path:
        top = {"data": str(store), "out": str(tmp_path / name), "save": 4, "validate": 6, "validation_rows": 8, **top}
        lines = [f"{key} = {value!r}".replace("'", '"') for key, value in top.items()]
        lines += ["[layout]", 'precision = "fp32"', "[model]", f'kind = "{kind}"', "width = 32", "layers = 2"]
        lines += ["heads = 2", "positions = 64"]
        lines += [f"dropout = {dropout}", f"attention_dropout = {dropout}"]
        lines += ["[objective]", f'kind = "{"mlm" if kind == "bert" else "clm"}"']
        lines += ["[[phase]]", "steps = 12", "length = 32", "batch = 8", "learning_rate = 2e-3", "warmup = 2", more]
        path = tmp_path / f"{name}.toml"
        path.write_text("\n".join(lines) + "\n")
        return path

    return write


@pytest.fixture
def elmo(tmp_path: Path) -> Callable[..., Path]:
    """The same for a small ELMo over whole words."""
    words = make_words(tmp_path / "words")

    def write(name: str = "elmo", lstm: str = "exact", clip: float = 0.0, samples: int = 40) -> Path:
        path = tmp_path / f"{name}.toml"
        path.write_text(
            f'data = "{words}"\nout = "{tmp_path / name}"\nsave = 4\nvalidate = 6\nvalidation_rows = 32\n'
            '[layout]\nprecision = "fp32"\n'
            f'[model]\nkind = "elmo"\nwidth = 32\ncells = 64\nhighways = 1\nfilters = [[1, 16], [3, 32]]\n'
            f'dropout = 0.0\nlstm = "{lstm}"\ncell_clip = {clip}\nprojection_clip = {clip}\n'
            f'[objective]\nkind = "bilm"\nsamples = {samples}\n'
            "[[phase]]\nsteps = 12\nlength = 12\nbatch = 8\nrate = 2e-3\nwarmup = 2\n"
        )
        return path

    return write


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    yield
    torch.use_deterministic_algorithms(False)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.compiler.reset()
