"""Steps of every family, objective and task on a CUDA device that computes nothing: run in a process of its own.

python steps.py LIBRARY WHAT    prints what was found as JSON; WHAT: a function below, as cases, tasks or ledger
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import sys
import traceback
import warnings
from pathlib import Path

if __name__ == "__main__":  # before torch is imported
    _place = importlib.util.find_spec("torch").origin  # type: ignore[union-attr]
    ctypes.CDLL(str(Path(str(_place)).parent / "lib" / "libtorch_cpu.so"), mode=ctypes.RTLD_GLOBAL)
    ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import torch
from ledger import Ledger, one_kernel_of_attention
from torch._subclasses.fake_tensor import FakeTensorMode

from ordsmed.base.ranks import Ranks
from ordsmed.data.batch import Batch
from ordsmed.learn.groups import groups
from ordsmed.learn.objectives import bilm, clm, diffusion, hybrid, mlm, mlm_nsp, rtd
from ordsmed.learn.optimizers import adagrad, adamw, lamb, muon, stableadamw
from ordsmed.learn.phases import Phase
from ordsmed.learn.tasks import classify, squad, tag
from ordsmed.learn.upper_layers import Top
from ordsmed.nn.kernels import switch
from ordsmed.nn.model import Block
from ordsmed.nn.models import bert, electra, elmo, gpt2, megatron_bert, modern, roberta
from ordsmed.train import job as jobs
from ordsmed.train import loop
from ordsmed.train.guard import Guard
from ordsmed.train.mesh import parallel, precision
from ordsmed.train.mesh.layout import Layout
from ordsmed.train.mesh.precision import Scaler

CUDA = torch.device("cuda:0")
modern._fresh = lambda weight, std: None  # it draws until all lie within bounds, and here are no numbers
PRECISIONS = ("fp32", "bf16", "fp16")
LAYOUTS: dict[str, Any] = {how: Layout(precision=how) for how in PRECISIONS}  # type: ignore[arg-type]
LAYOUTS["fp8"] = Layout(precision="bf16", fp8=True)
LAYOUTS |= {
    "recomputed": Layout(precision="bf16", recompute=True),
    "recomputed in fp8": Layout(precision="bf16", recompute=True, fp8=True),
    "exact norms": Layout(precision="bf16", exact=("norms",)),
    "exact embeddings": Layout(precision="fp16", exact=("embeddings", "types")),
    "accumulated": Layout(precision="bf16"),
}
SMALL = {"width": 64, "layers": 1, "heads": 2}
FAKES = rtd.Generator(width=32)
CASES: dict[str, tuple[Any, Any]] = {
    "electra rtd": (rtd.Rtd(generator=FAKES), electra.Electra(**SMALL)),
    "electra rtd, never right": (rtd.Rtd(generator=FAKES, never_right=True), electra.Electra(**SMALL)),
    "electra rtd, doubled": (rtd.Rtd(generator=FAKES, reference_duplicates=True), electra.Electra(**SMALL)),
    "electra rtd, nothing shared": (rtd.Rtd(generator=FAKES, share="none"), electra.Electra(**SMALL)),
    "electra mlm": (mlm.Mlm(), electra.Electra(**SMALL, embedding=32)),
    "bert mlm": (mlm.Mlm(), bert.Bert(**SMALL)),
    "bert mlm_nsp": (mlm_nsp.MlmNsp(), bert.Bert(**SMALL)),
    "bert diffusion": (diffusion.Diffusion(), bert.Bert(**SMALL)),
    "roberta mlm": (mlm.Mlm(), roberta.Roberta(**SMALL)),
    "megatron_bert mlm": (mlm.Mlm(), megatron_bert.MegatronBert(**SMALL)),
    "megatron_bert mlm_nsp": (mlm_nsp.MlmNsp(), megatron_bert.MegatronBert(**SMALL)),
    "modern mlm": (mlm.Mlm(), modern.ModernBert(**{**SMALL, "layers": 2}, every=2, inner=96, window=8)),
    "modern hybrid": (hybrid.Hybrid(), modern.ModernBert(**SMALL, inner=96, window=8)),
    "gpt2 clm": (clm.Clm(), gpt2.Gpt2(**SMALL)),
    "gpt2 hybrid": (hybrid.Hybrid(), gpt2.Gpt2(**SMALL)),
    "elmo bilm, exact": (bilm.BiLm(samples=64), elmo.Elmo(width=32, cells=64)),
    "elmo bilm, fused": (
        bilm.BiLm(samples=64),
        elmo.Elmo(width=32, cells=64, lstm="fast", cell_clip=0.0, projection_clip=0.0),
    ),
    "elmo bilm, all words": (bilm.BiLm(samples=0), elmo.Elmo(width=32, cells=64)),
}
DIFFERENT = ("electra rtd", "megatron_bert mlm", "modern mlm", "gpt2 clm")
TWO = ("a", "b")
WEIGHTED = {"labels": TWO, "class_weights": {"a": 2.0}}
TASKS: dict[str, Any] = {
    "classify": classify.Classify(labels=TWO),
    "classify, weighted": classify.Classify(**WEIGHTED),
    "classify, mean": classify.Classify(labels=TWO, pool="mean"),
    "classify, max": classify.Classify(labels=TWO, pool="max"),
    "number": classify.Classify(number=True, scale=(0.0, 1.0)),
    "tag": tag.Tag(labels=TWO),
    "tag, weighted": tag.Tag(**WEIGHTED),
    "tag, mixed": tag.Tag(labels=TWO, top=Top(mix=True)),
    "tag, recurrent": tag.Tag(labels=TWO, top=Top(recurrent=8)),
    "squad": squad.Squad(),
    "squad, joint": squad.Squad(head="joint", version="2.0"),
    "squad, google": squad.Squad(head="joint", form="google", version="2.0"),
}
TUNED: dict[str, tuple[Any, Any]] = {
    **{f"bert {name}": (task, bert.Bert(**SMALL)) for name, task in TASKS.items()},
    "electra squad": (TASKS["squad"], electra.Electra(**SMALL)),
    "roberta classify": (TASKS["classify"], roberta.Roberta(**SMALL)),
    "gpt2 classify": (TASKS["classify"], gpt2.Gpt2(**SMALL)),
    "modern tag": (TASKS["tag"], modern.ModernBert(**SMALL, inner=96, window=8)),
    "elmo classify": (TASKS["classify"], elmo.Elmo(width=32, cells=64)),
    "elmo tag": (TASKS["tag"], elmo.Elmo(width=32, cells=64)),
    "elmo squad, joint": (TASKS["squad, joint"], elmo.Elmo(width=32, cells=64)),
}
OPTIMIZERS = {
    "adamw": adamw.AdamW(),
    "adamw bert": adamw.AdamW(variant="bert"),
    "lamb": lamb.Lamb(),
    "muon": muon.Muon(),
    "stableadamw": stableadamw.StableAdamW(),
    "adagrad": adagrad.Adagrad(),
}
REAL: dict[str, tuple[Any, Any, int, int, int, int]] = {  # objective, model, rows, length, places, vocabulary
    "electra-base at 128": (
        rtd.Rtd(generator=rtd.Generator(width=256)),
        electra.Electra(**electra.Electra.SIZES["base"]),
        512,
        128,
        19,
        30_522,
    ),
    "modern-base at 1024": (mlm.Mlm(), modern.ModernBert(**modern.ModernBert.SIZES["base"]), 64, 1024, 307, 50_368),
    "elmo, 128 x 20 words": (bilm.BiLm(samples=8_192), elmo.Elmo(), 128, 20, 0, 793_471),
    "gpt2-345m at 1024": (clm.Clm(), gpt2.Gpt2(**gpt2.Gpt2.SIZES["345M"]), 64, 1024, 1024, 50_257),
}


@dataclasses.dataclass
class Signs:
    """As much of a tokenizer as objectives ask for."""

    vocabulary: int = 1_000
    pad: int = 0
    start: int = 2
    stop: int = 3
    mask: int = 4
    end: int = 5
    unknown: int = 1
    special: tuple[int, ...] = (0, 1, 2, 3, 4, 5)


def batch_for(objective: Any, rows: int = 4, length: int = 32, places: int = 5) -> Batch:
    """What such an objective reads, on the CPU, as rows come from the loader."""
    kind = type(objective).__module__.rpartition(".")[2]

    def ids(*shape: int) -> torch.Tensor:
        return torch.zeros(shape, dtype=torch.int64)

    made: dict[str, Any] = {
        "numbers": ids(rows),
        "tokens": ids(rows, length),
        "positions": ids(rows, length),
        "documents": torch.ones(rows, length, dtype=torch.int32),
        "bounds": torch.zeros(rows + 2, dtype=torch.int32),
    }
    if kind == "bilm":
        length, different = (3, 20) if places else (length, 2_000)  # words of a row, and different ones of the batch
        letters = {
            "characters": torch.zeros(8 * different, dtype=torch.uint8),
            "words": ids(different + 1),
            "streams": ids(rows),
        }
        made = {"numbers": ids(rows), **{name: ids(rows, 2 * length) for name in ("tokens", "positions", "targets")}}
        made |= {"weights": torch.ones(rows, 2 * length), **letters}
        return Batch(**made, **({"candidates": ids(objective.samples), "tries": ids()} if objective.samples else {}))
    if kind in ("clm", "hybrid", "diffusion"):
        made |= {"targets": ids(rows, length), "weights": torch.ones(rows, length)}
    else:
        made |= {
            "targets": ids(rows, places),
            "predicted_positions": ids(rows, places),
            "weights": torch.ones(rows, places),
        }
    if kind in ("hybrid", "diffusion"):
        made["counting"] = ids(rows * length // 2)
    if kind == "hybrid":
        made["causal"] = torch.ones(rows, dtype=torch.bool)
    if kind in ("rtd", "mlm_nsp"):
        made |= {"types": ids(rows, length), **({"keys": ids(rows)} if kind == "rtd" else {"pairs": ids(rows)})}
    return Batch(**made)


def examples_for(task: Any, family: Any) -> Batch:
    """What such a task reads, on the CPU: several examples in a row where the family takes them so."""
    alone = family.capabilities.state
    begins, sizes = [0, 32, 64, 96] if alone else [0, 10, 32, 44], [10, 9, 12, 8]
    rows, length = 4 if alone else 2, 32

    def ids(*shape: int) -> torch.Tensor:
        return torch.zeros(shape, dtype=torch.int64)

    made: dict[str, Any] = {
        "numbers": ids(4),
        "documents": torch.ones(rows, length, dtype=torch.int32),
        "spans": torch.tensor([begins, sizes]).T,
        "weights": torch.ones(rows, length),
    }
    made |= {name: ids(rows, length) for name in ("tokens", "positions", "targets")}
    if alone:
        made |= {"characters": torch.zeros(100, dtype=torch.uint8), "words": ids(21)}
    else:
        cuts = torch.tensor([*begins[:2], 19, *begins[2:], 52, rows * length], dtype=torch.int32)
        made |= {"types": ids(rows, length), "bounds": cuts}
    if task.role == "classify":
        made["labels"] = torch.zeros(4) if task.number else ids(4)
    elif task.role != "tag":
        made["labels"] = ids(4, 3)
    return Batch(**made)


def job_for(objective: Any, model: Any, layout: Layout, optimizer: Any, vocabulary: int) -> jobs.Job:
    """A job whose networks lie on the device, put together as train/job.py does."""
    with torch.device("cuda"):
        made = objective.build(model, Signs(vocabulary)).train()
    if hasattr(made, "elmo"):
        with torch.device("cuda"):
            made.begin(0, 4)
    precision.return_half(made, layout)
    ranks = Ranks(CUDA)
    spread = parallel.spread(made, layout, ranks)
    phases = (Phase(steps=1, length=8, batch=1, learning_rate=1e-3),)
    recipe: Any = SimpleNamespace(
        seed=1, clip=1.0, average=0.99, trouble=Guard(), layout=layout, phases=phases, decay_schedule="constant"
    )
    return jobs.Job(recipe, ranks, None, made, optimizer.build(groups(made)), spread, Scaler.of(layout), "")  # type: ignore[arg-type]


def step_of(
    objective: Any,
    model: Any,
    how: str,
    optimizer: Any = OPTIMIZERS["adamw"],
    *,
    shape: tuple[int, ...] = (),
    vocabulary: int = 1_000,
    validates: bool = True,
) -> dict[str, Any]:
    """One step and a validation: types of what blocks give, gradients, launches, waits."""
    with FakeTensorMode():
        job = job_for(objective, model, LAYOUTS[how], optimizer, vocabulary)
        tuned = hasattr(objective, "role")
        batch = examples_for(objective, model) if tuned else batch_for(objective, *shape)
        micros = [batch] * (3 if how == "accumulated" else 1)
        given: set[str] = set()
        passes: dict[str, Any] = {}  # the way forward and back alone
        for module in job.objective.modules():
            if isinstance(module, Block):
                module.register_forward_hook(lambda _, __, out: given.update(_types(out)))
        before = {name: (p.dtype, p.device.type) for name, p in job.objective.named_parameters()}
        if shape or tuned:  # what the first update makes it makes once
            with Ledger():
                loop.train_step(job, micros, 1e-3, 0, 0, step=1)
        with Ledger() as step:
            job.parallel.sum_gradients = lambda parts: passes.update(step.told())  # type: ignore[method-assign]
            loop.train_step(job, micros, 1e-3, 0, 0, step=1)
        after = {name: (p.dtype, p.device.type) for name, p in job.objective.named_parameters()}
        assert before == after, "a step changes no weight's type or place"
        judged = Ledger()
        if validates:
            job.objective.eval()
            with torch.no_grad(), precision.autocast(job.recipe.layout, CUDA), judged:
                sums = job.objective.validate(batch.to(CUDA))
            away = [name for name, value in sums.items() if value.device.type != "cuda" and not name.endswith("_count")]
            assert not away, f"a validation tells {away} elsewhere"
        return {"types": sorted(given), "judged": judged.told()["waits"], "step": step.told(), **passes}


def _types(out: Any) -> Iterator[str]:
    for value in out if isinstance(out, tuple) else (out,):
        yield str(value.dtype).removeprefix("torch.")


def cases() -> dict[str, Any]:
    """Every objective with every family that it is for, in every precision."""
    return {f"{name}, {how}": _time_micro_batch(*CASES[name], how) for name in CASES for how in PRECISIONS}


def tasks() -> dict[str, Any]:
    """Every task, in every precision."""
    return {f"{name}, {how}": _time_micro_batch(*TUNED[name], how) for name in TUNED for how in PRECISIONS}


def in_8_bits() -> dict[str, Any]:
    """Every family with products in 8 bits that has such layers."""
    return {name: _time_micro_batch(*CASES[name], "fp8") for name in CASES if not name.startswith("elmo")}


def layouts() -> dict[str, Any]:
    """Families whose blocks differ, by layouts that change when something is computed, and in which type."""
    hows = ("recomputed", "recomputed in fp8", "exact norms", "exact embeddings", "accumulated")
    return {f"{name}, {how}": _time_micro_batch(*CASES[name], how) for name in DIFFERENT for how in hows}


def older() -> dict[str, Any]:
    """On a V100, whose 16 bits are fp16 alone, and on an AMD: masks in place of kernels for texts of any length."""
    torch.cuda.get_device_capability = lambda *_: (7, 0)  # type: ignore[assignment]
    told = {f"{name}, V100": _time_micro_batch(*CASES[name], "fp16") for name in DIFFERENT}
    torch.cuda.get_device_capability, torch.version.hip = lambda *_: (9, 4), "6.4"  # type: ignore[assignment]
    return told | {f"{name}, AMD": _time_micro_batch(*CASES[name], "bf16") for name in DIFFERENT}


def kernels_in_16_bits() -> dict[str, Any]:
    """Kernels of ours in fp16, beside products in 8 bits, and where blocks are computed again."""
    switch._running.update(("cross_entropy", "gelu", "residual_norm"))
    hows = ("fp16", "fp8", "recomputed", "exact norms", "exact embeddings")
    return {f"{name}, {how}": _time_micro_batch(*CASES[name], how) for name in DIFFERENT for how in hows}


def optimizers() -> dict[str, Any]:
    """A step of each."""
    return {name: _time_micro_batch(*CASES["bert mlm"], "bf16", optimizer) for name, optimizer in OPTIMIZERS.items()}


def ledger() -> dict[str, Any]:
    """Steps of real sizes, forward, backward, clipping and the optimizer, in bf16."""
    usual, of_elmo = OPTIMIZERS["adamw"], OPTIMIZERS["adagrad"]
    return {
        name: _time_micro_batch(
            objective,
            model,
            "bf16",
            of_elmo if name.startswith("elmo") else usual,
            shape=tuple(shape),
            vocabulary=vocabulary,
            validates=False,
        )
        for name, (objective, model, *shape, vocabulary) in REAL.items()
    }


def by_kernels() -> dict[str, Any]:
    """The same with those kernels of ours that are operators of torch; each is counted as one launch."""
    switch._running.update(("cross_entropy", "gelu", "residual_norm"))
    return ledger()


def _time_micro_batch(*how: Any, **more: Any) -> dict[str, Any]:
    try:
        return step_of(*how, **more)
    except Exception as error:  # whatever it is, the test tells it
        place = [f"{Path(f.filename).name}:{f.lineno}" for f in traceback.extract_tb(error.__traceback__)]
        return {"error": f"{type(error).__name__}: {str(error)[:500]} at {' '.join(place[-4:])}"}


@contextmanager
def pretending() -> Iterator[None]:
    """What asks the driver is answered, and weights are not drawn."""
    torch.cuda.is_available = lambda: True
    torch.cuda.get_device_capability = lambda *_: (9, 0)  # type: ignore[assignment]
    torch.cuda.get_device_name = lambda *_: "a GPU"  # type: ignore[assignment]
    torch.cuda.is_bf16_supported = lambda *_, **__: True  # type: ignore[assignment]
    torch.nn.init.trunc_normal_ = lambda weight, **_: weight  # type: ignore[assignment]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


if __name__ == "__main__":
    torch.set_num_threads(1)
    with pretending(), one_kernel_of_attention() if sys.argv[2] in ("ledger", "by_kernels") else nullcontext():
        print(json.dumps(globals()[sys.argv[2]]()))
