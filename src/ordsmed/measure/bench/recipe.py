"""The recipe of a bench: what is measured, of which sizes, and in which combinations."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from ordsmed.base.measurements import PLACE
from ordsmed.base.menu import Menu
from ordsmed.base.settings import as_toml
from ordsmed.measure.bench import published
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
STEPS = ("training", "finetune")  # what several processes do together; torch's profile is of the first alone
TABLES = ("training", "finetune", "predict")  # what tables are made of, and kept


@dataclass(frozen=True)
class Axes:
    """What is measured in every combination; what is left out is as the recipe has it."""

    cells: tuple[tuple[str, ...], ...] = ((),)
    """settings that belong together, as the command line's words: [["length=128", "batch=176"], ...]"""
    lengths: tuple[int, ...] = ()
    """tokens a row"""
    batches: tuple[int, ...] = ()
    """rows a step"""
    precisions: tuple[str, ...] = ()
    """fp32, tf32, bf16, fp16"""
    compile: tuple[bool, ...] = ()
    """blocks compiled, or not"""
    layouts: tuple[str, ...] = ()
    """replicate x shard x tensor, as 1x2x1"""
    devices: tuple[int, ...] = ()
    """processes, one a GPU (or share of the CPU)"""
    scaling: Literal["weak", "strong"] = "weak"
    """weak: n devices have n times the rows a step of one; strong: the same rows on any number"""
    train: tuple[tuple[int, int], ...] = ()
    """pairs: of this length so many rows are to be learned; how long that takes is told"""
    published: str = ""
    """whose figures stand beside ours: one of those that `measure/bench/published.toml` holds"""

    def __post_init__(self) -> None:
        if not self.cells:
            raise ValueError("cells: found none; wanted one or more")
        if self.devices and min(self.devices) < 1:
            raise ValueError(f"devices: found {min(self.devices)}; wanted 1 or more")
        if self.published and self.published not in published.names():
            raise ValueError(f"published: found {self.published}; wanted one of {', '.join(published.names())}")
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
    """training steps; what the loop adds to a step's arithmetic; packed and masked rows from one core; corpus to store;
    the index map of a large store; an epoch's pairs of segments from a large store; ELMo's steps beside those
    of a plain script; a task's steps, and asking it, packed beside padded; requests to a served model"""
    model: Annotated[Any, Menu("models")] = None
    """training, overhead, finetune, predict, serve: the network"""
    objective: Annotated[Any, Menu("objectives")] = None
    """training, overhead, loader, serve: what is learned"""
    optimizer: Annotated[Any, Menu("optimizers", "adamw")] = None
    """training, overhead, finetune: left out: adamw"""
    dropout: float | None = None
    """of hidden states and of attention; left out: the model's own"""
    length: int = 128
    """tokens a row"""
    batch: int = 16
    """rows a step; finetune: examples"""
    steps: int = 10
    """that are measured, in all rounds together"""
    rounds: int = 5
    """training: blocks that the steps are cut into; the clock is read between them alone, the median is told"""
    profile: int = 0
    """training: steps more, of which is told what they spend their time on; 0: none"""
    beside: Literal["none", "transformers"] = "none"
    """training: whose step of the same sizes is measured in turn with ours"""
    devices: int = 1
    """training, finetune: processes, one a GPU (or share of the CPU)"""
    keep: str = str(PLACE)
    """training, finetune, predict: the file that measurements are added to; serve: is its table kept? "": none"""
    table: Axes | None = None
    """training, finetune, predict: lengths, batches, precisions, ... whose every combination is measured"""
    vocabulary: int = 30_522
    """ids of the made-up text"""
    tokens: int = 2_000_000
    """training, overhead, loader: tokens of the made-up text; encode: characters at most, 0: the whole corpus"""
    lengths: tuple[int, ...] = (128, 512)
    """loader: row lengths"""
    sentences: int = 10_000_000
    """windows, pairs: sentences of the made-up store"""
    style: Literal["next", "order", "electra"] = "next"
    """pairs: whose"""
    corpus: str = "stdlib"
    """encode: folder or recipe"""
    tokenizer: str = "stdlib-wordpiece"
    """encode, and finetune and predict with real files: folder, file or recipe"""
    task: Annotated[Any, Menu("tasks")] = None
    """finetune, predict: what is learned or asked; with `train`: from these files, else from made-up examples"""
    init: str | None = None
    """finetune, predict: a pretrained network with its tokenizer, in place of [model], dropout and tokenizer; serve:
    any model that can be served, in place of [model]"""
    sizes: tuple[tuple[int, int], ...] = ()
    """finetune, predict: tokens of made-up examples, as pairs: so many per cent of them have at most so many"""
    batches: tuple[tuple[int, int], ...] = ((1, 100), (256, 5), (512, 5))
    """predict: pairs: examples asked at once, and how often"""
    url: str = ""
    """serve: the address of a model that is served, as http://host:8000/name, in place of one that is served here"""
    ask: Literal["", "embed", "fill", "score", "generate", "classify", "tag", "answer"] = ""
    """serve: what is asked of it; left out: the first of what it can"""
    words: tuple[int, ...] = (16, 128, 0)
    """serve: of a text; 0: of mixed lengths, as sentences of SST-2 and contexts of SQuAD"""
    clients: tuple[int, ...] = (1, 8, 64)
    """serve: that ask at once"""
    requests: int = 256
    """serve: in each cell at most"""
    seconds: float = 20.0
    """serve: that a cell asks for at most"""
    written: int = 32
    """serve: tokens that a text is gone on with"""
    layout: Layout = field(default_factory=Layout)
    """what belongs to the machine"""

    verb: ClassVar[str] = "bench"
    out: ClassVar[None] = None

    def __post_init__(self) -> None:
        both, task = ("model", "objective"), ("task",) if self.init else ("task", "model")
        needed = {"training": both, "plain": both, "overhead": both, "loader": ("objective",)}
        for name in (needed | {"finetune": task, "predict": task}).get(self.measure, ()):
            if getattr(self, name) is None:
                raise ValueError(f"{name}: missing; wanted a [{name}] to measure")
        for name, least in LEAST.items():
            if getattr(self, name) < least:
                raise ValueError(f"{name}: found {getattr(self, name)}; wanted {least} or more")
        for name, nothing, those in (("profile", 0, STEPS[:1]), ("beside", "none", STEPS[:1]), ("devices", 1, STEPS)):
            if self.measure not in those and getattr(self, name) != nothing:
                problem = f"found {getattr(self, name)} with measure {self.measure}"
                raise ValueError(f"{name}: {problem}; wanted {' or '.join(those)}")
        if self.measure == "predict" and self.layout.compile:
            raise ValueError("layout.compile: found true with measure predict; wanted false: models in use are not")
        if self.table and self.measure not in TABLES:
            raise ValueError(f"table: found one with measure {self.measure}; wanted {', '.join(TABLES)}")
        if self.measure in ("finetune", "predict") and not self.sizes and not self.task.paths("train"):
            raise ValueError("sizes: missing; wanted lengths of made-up examples, or files in task.train")
        if not self.batches or min(map(min, self.batches)) < 1:
            raise ValueError(f"batches: found {as_toml(self.batches)}; wanted pairs of 1 or more")
        shares, tokens = zip(*self.sizes or ((0, 1), (100, 1)), strict=True)
        if (shares[0], shares[-1]) != (0, 100) or [*shares] != sorted(shares) or [*tokens] != sorted(tokens):
            raise ValueError(f"sizes: found {as_toml(self.sizes)}; wanted pairs from 0 to 100 per cent that rise")

        if self.measure == "serve" and not (self.url or self.init or (self.model and self.objective)):
            raise ValueError("init: missing; wanted a model to serve, a [model] with [objective], or a url")
        for name in ("words", "clients"):
            if not getattr(self, name) or min(getattr(self, name)) < (name == "clients"):
                raise ValueError(f"{name}: found {as_toml(getattr(self, name))}; wanted numbers, clients 1 or more")

    def stamp(self) -> object:
        """Nothing: a measurement is never reused."""
