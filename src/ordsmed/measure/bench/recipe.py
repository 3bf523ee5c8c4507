"""The recipe of a benchmark: what to measure, in which sizes and combinations."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from ordsmed.base.checks import or_more
from ordsmed.base.measurements import DEFAULT_PATH
from ordsmed.base.menu import Menu
from ordsmed.base.settings import as_toml
from ordsmed.measure.bench import published_figures
from ordsmed.train.mesh.layout import Layout

LEAST = {
    "requests": 1,
    "seconds": 0.1,
    "written": 1,
    "length": 1,
    "batch": 1,
    "steps": 1,
    "rounds": 1,
    "profile": 0,
    "devices": 1,
    "sentences": 1,
    "tokens": 0,
}
STEPS = ("training", "finetune")  # run on several processes; only the first supports `profile` and `beside`
TABLES = ("training", "finetune", "predict")  # measures that support `table` and `keep`


@dataclass(frozen=True)
class Axes:
    """Values to measure in every combination; an empty axis keeps the recipe's value."""

    cells: tuple[tuple[str, ...], ...] = ((),)
    """groups of settings, written as on the command line: [["length=128", "batch=176"], ...]"""
    lengths: tuple[int, ...] = ()
    """tokens per row"""
    batches: tuple[int, ...] = ()
    """rows per step"""
    precisions: tuple[str, ...] = ()
    """fp32, tf32, bf16, fp16"""
    compile: tuple[bool, ...] = ()
    """with and without compiled blocks"""
    layouts: tuple[str, ...] = ()
    """replicate x shard x tensor, as 1x2x1"""
    devices: tuple[int, ...] = ()
    """processes, one per GPU (or share of the CPU)"""
    scaling: Literal["weak", "strong"] = "weak"
    """weak: n devices get n times the rows per step of one; strong: the same rows for any number of devices"""
    train: tuple[tuple[int, int], ...] = ()
    """pairs of a length and a number of rows: report how long training on them takes"""
    published: str = ""
    """published figures to compare with: a name in `measure/bench/published_figures.toml`"""

    def __post_init__(self) -> None:
        if not self.cells:
            raise ValueError("cells: found none; wanted one or more")
        if self.devices and min(self.devices) < 1:
            raise ValueError(f"devices: found {min(self.devices)}; wanted 1 or more")
        if self.published and self.published not in published_figures.names():
            raise ValueError(f"published: found {self.published}; wanted one of {', '.join(published_figures.names())}")
        if any(min(pair) < 1 for pair in self.train):
            raise ValueError(f"train: found {as_toml(self.train)}; wanted pairs of a length and rows, 1 or more each")
        for mesh in self.layouts:
            if not all(part.isdigit() and int(part) for part in mesh.split("x")) or mesh.count("x") != 2:
                raise ValueError(f"layouts: found {mesh}; wanted replicate x shard x tensor as in 1x2x1")
            processes = math.prod(map(int, mesh.split("x")))
            if self.devices and processes not in self.devices:
                raise ValueError(
                    f"layouts: found {mesh} with devices {as_toml(self.devices)}; wanted {processes} among them"
                )


@dataclass(frozen=True)
class Bench:
    """One measurement."""

    measure: Literal[
        "training", "overhead", "loader", "encode", "windows", "pairs", "plain", "finetune", "predict", "serve"
    ]
    """training: steps; overhead: time the loop adds to a step; loader: rows from one core; encode: corpus to store;
    windows: index map of a large store; pairs: an epoch of sentence pairs; plain: ELMo compared with a plain script;
    finetune, predict: packed compared with padded rows; serve: requests to a served model"""
    model: Annotated[Any, Menu("models")] = None
    """training, overhead, finetune, predict, serve: the network"""
    objective: Annotated[Any, Menu("objectives")] = None
    """training, overhead, loader, serve: the objective"""
    optimizer: Annotated[Any, Menu("optimizers", "adamw")] = None
    """training, overhead, finetune: the optimizer; default: adamw"""
    dropout: float | None = None
    """dropout of hidden states and attention; default: the model's"""
    length: int = 128
    """tokens per row"""
    batch: int = 16
    """rows per step; finetune: examples per step"""
    steps: int = 10
    """measured steps, over all rounds"""
    rounds: int = 5
    """training: blocks of steps; the clock is read only between blocks, and the median is reported"""
    profile: int = 0
    """training: additional steps that are profiled by kind of operation; 0: none"""
    beside: Literal["none", "transformers"] = "none"
    """training: implementation whose steps of the same sizes are measured alternately"""
    devices: int = 1
    """training, finetune: processes, one per GPU (or share of the CPU)"""
    keep: str = str(DEFAULT_PATH)
    """training, finetune, predict: file to add measurements to; serve: store the table; "": store nothing"""
    table: Axes | None = None
    """training, finetune, predict: lengths, batches, precisions, ... to measure in every combination"""
    vocabulary: int = 30_522
    """vocabulary size of the synthetic text"""
    tokens: int = 2_000_000
    """training, overhead, loader: tokens of the synthetic text; encode: most characters, 0: the whole corpus"""
    lengths: tuple[int, ...] = (128, 512)
    """loader: row lengths"""
    sentences: int = 10_000_000
    """windows, pairs: sentences of the synthetic store"""
    style: Literal["next", "order", "electra"] = "next"
    """pairs: kind of sentence pairs"""
    corpus: str = "stdlib"
    """encode: folder or recipe"""
    tokenizer: str = "stdlib-wordpiece"
    """encode, and finetune and predict with real files: folder, file or recipe"""
    task: Annotated[Any, Menu("tasks")] = None
    """finetune, predict: the task; with `train`: on these files, otherwise on synthetic examples"""
    init: str | None = None
    """finetune, predict: a pretrained network with its tokenizer, replaces [model], dropout and tokenizer; serve: any
    model that can be served, replaces [model]"""
    sizes: tuple[tuple[int, int], ...] = ()
    """finetune, predict: lengths of synthetic examples, as pairs: per cent of examples, most tokens of these"""
    batches: tuple[tuple[int, int], ...] = ((1, 100), (256, 5), (512, 5))
    """predict: pairs of a batch size and a number of repetitions"""
    url: str = ""
    """serve: address of a running server's model, such as http://host:8000/name; default: start a server"""
    ask: Literal["", "embed", "fill", "score", "generate", "classify", "tag", "answer"] = ""
    """serve: the method to request; default: the first that the model supports"""
    words: tuple[int, ...] = (16, 128, 0)
    """serve: words per text; 0: mixed lengths, like sentences of SST-2 and contexts of SQuAD"""
    clients: tuple[int, ...] = (1, 8, 64)
    """serve: concurrent clients"""
    requests: int = 256
    """serve: most requests per cell"""
    seconds: float = 20.0
    """serve: longest duration of a cell, in seconds"""
    written: int = 32
    """serve: tokens to generate per text"""
    layout: Layout = field(default_factory=Layout)
    """devices, precision and other settings of the machine"""

    verb: ClassVar[str] = "bench"
    out: ClassVar[None] = None

    def __post_init__(self) -> None:
        network, task = ("model", "objective"), ("task",) if self.init else ("task", "model")
        needed = {"training": network, "plain": network, "overhead": network, "loader": ("objective",)}
        for name in (needed | {"finetune": task, "predict": task}).get(self.measure, ()):
            if getattr(self, name) is None:
                raise ValueError(f"{name}: missing; wanted a [{name}] to measure")
        or_more(self, **LEAST)
        for name, default, measures in (
            ("profile", 0, STEPS[:1]),
            ("beside", "none", STEPS[:1]),
            ("devices", 1, STEPS),
        ):
            if self.measure not in measures and getattr(self, name) != default:
                problem = f"found {getattr(self, name)} with measure {self.measure}"
                raise ValueError(f"{name}: {problem}; wanted {' or '.join(measures)}")
        if self.measure == "predict" and self.layout.compile:
            raise ValueError(
                "layout.compile: found true with measure predict; wanted false, as inference does not compile"
            )
        if self.table and self.measure not in TABLES:
            raise ValueError(f"table: found one with measure {self.measure}; wanted {', '.join(TABLES)}")
        if self.measure in ("finetune", "predict") and not self.sizes and not self.task.paths("train"):
            raise ValueError("sizes: missing; wanted lengths of synthetic examples, or files in task.train")
        if not self.batches or min(map(min, self.batches)) < 1:
            raise ValueError(f"batches: found {as_toml(self.batches)}; wanted pairs of 1 or more")
        shares, tokens = zip(*self.sizes or ((0, 1), (100, 1)), strict=True)
        if (shares[0], shares[-1]) != (0, 100) or [*shares] != sorted(shares) or [*tokens] != sorted(tokens):
            raise ValueError(f"sizes: found {as_toml(self.sizes)}; wanted increasing pairs from 0 to 100 per cent")

        if self.measure == "serve" and not (self.url or self.init or (self.model and self.objective)):
            raise ValueError("init: missing; wanted a model to serve, a [model] with [objective], or a url")
        for name in ("words", "clients"):
            if not getattr(self, name) or min(getattr(self, name)) < (name == "clients"):
                raise ValueError(f"{name}: found {as_toml(getattr(self, name))}; wanted numbers, clients 1 or more")

    def stamp(self) -> object:
        """Return None: a benchmark is always measured again, so the versions of its inputs need not be identified."""
