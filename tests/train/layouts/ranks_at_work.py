"""What each process of the layout tests runs: training by a list of cases, what was found to a file.

usage: ranks_at_work.py CASES.json FOLDER    started as several processes with torchrun's variables
"""

from __future__ import annotations

import dataclasses
import gc
import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

from kit.makers import build, learned
from ordsmed.base import run
from ordsmed.base.ranks import Ranks, connect, disconnect, init_mesh, prepare, rendezvous
from ordsmed.data.features import by_length
from ordsmed.learn import inference as asking
from ordsmed.nn import attention
from ordsmed.train import checkpoint, loop
from ordsmed.train.finetune import examples
from ordsmed.train.finetune.plan import FinetuningPlan
from ordsmed.train.finetune.recipe import Finetuning
from ordsmed.train.mesh import compiler
from ordsmed.train.pretrain import texts
from ordsmed.train.pretrain.recipe import Pretraining
from ordsmed.train.saving import Saving


def live_bytes() -> int:
    """Bytes of all tensors that are alive in this process, each piece of memory once."""
    gc.collect()
    storages = {}
    for thing in gc.get_objects():
        try:
            if isinstance(thing, torch.Tensor) and type(thing) in (torch.Tensor, torch.nn.Parameter):
                storages[thing.untyped_storage().data_ptr()] = thing.untyped_storage().nbytes()
        except (ReferenceError, RuntimeError):
            continue
    return sum(storages.values())


def work(case: dict[str, Any], met: Ranks, folder: Path) -> dict[str, Any]:
    """One case: build, maybe restore, train, maybe save."""
    compiler.BACKEND = case.get("backend", "aot_eager")
    recipe, _ = run.load(Pretraining, case["recipe"], case.get("overrides", []))
    shape = tuple(case["shape"])
    layout = dataclasses.replace(recipe.layout, replicate=shape[0], shard=shape[1], tensor=shape[2])
    recipe = dataclasses.replace(recipe, layout=layout)
    before = live_bytes() if case.get("measure") else 0
    job = build(recipe, init_mesh(met, shape))
    rows = [
        n
        for micro in next(loop.load(job.rows(0), job.share(0), 3, 4, workers=0, device=job.ranks.device))
        for n in micro.numbers.tolist()
    ]
    first = 0
    if case.get("restore"):
        found = checkpoint.latest(Path(case["restore"]) / "checkpoints", place="test")
        assert found
        job.carry(0)
        checkpoint.restore(found[0], job.objective, job.optimizer, job.parts, job.ranks, job.parallel.rows)
        first = found[1]["step"]
    gradients: list[int] = []
    measure = loop.total_norm

    def measured(parts: Any) -> torch.Tensor:
        gradients.append(sum(p.local.grad.numel() * 4 for p in parts if p.local.grad is not None))
        return measure(parts)

    loop.total_norm = measured
    lines = learned(job, case.get("steps", 10), first=first, rate=None)
    loop.total_norm = measure
    moments = [v for part in job.parts for v in job.optimizer.state[part.local].values() if v.ndim]
    found_out = {
        "lines": lines,
        "rows": rows,
        "initial_facts": job.initial_facts,
        "data_rank": job.ranks.data_rank,
        "weights": sum(p.local.numel() * 4 for p in job.parts),
        "gradients": max(gradients),
        "moments": sum(v.numel() * 4 for v in moments),
    }
    if case.get("measure"):
        found_out["live"] = live_bytes() - before
    if case.get("judge"):
        validation = job.data.validation(0)
        assert validation is not None
        found_out["judged"] = texts.validate(job, validation, case["judge"])
    if case.get("save"):
        saving = Saving(job, Path(case["save"]))
        saving.save(first + len(lines), final=True)
        found_out["copied"] = sum(
            t.numel() * t.element_size()
            for kind in (
                checkpoint._weights(job.objective, job.ranks, job.parallel.rows),
                checkpoint._moments(job.optimizer, job.parts, job.ranks, job.parallel.rows),
            )
            for t in saving.writer._copy(kind, set())[0].values()
        )
    del job
    return found_out


def fine_tune(case: dict[str, Any], met: Ranks) -> dict[str, Any]:
    """One case of a task: build, train, and what it then tells of the dev files."""
    compiler.BACKEND, asking.TOKENS = "aot_eager", {"cpu": case["asked"]}
    attention.CALL_COST = 0  # examples of a row are looked at one by one, however short they are
    recipe, _ = run.load(Finetuning, case["task"], case["overrides"])
    shape = tuple(case["shape"])
    alike = recipe.layout.with_precision("fp32")
    layout = dataclasses.replace(alike, replicate=shape[0], shard=shape[1], tensor=shape[2])
    recipe, ranks = dataclasses.replace(recipe, layout=layout), init_mesh(met, shape)
    job = FinetuningPlan.of(recipe, ranks).completed(make=True).build()
    lines = learned(job, rate=None)
    made = job.data
    assert isinstance(made, examples.TaskData)
    assert made.dev is not None
    answers, _ = asking.predict_all(job.objective, made.dev.features, made.packing, ranks)
    batches = len(by_length(made.dev.features.sizes, case["asked"]))
    told = {name: values.astype(float).flatten().tolist() for name, values in answers.items()}
    return {"lines": lines, "judged": made.validate(job, 0), "answers": told, "batches": batches}


def main() -> None:
    torch._dynamo.config.cache_size_limit = 64
    cases, folder = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
    met = connect(rendezvous(prepare("cpu", 1), 120.0), 120.0)
    found = {}
    for case in cases:
        torch._dynamo.reset()
        found[case["name"]] = fine_tune(case, met) if "task" in case else work(case, met, folder)
        (folder / f"rank-{met.rank}.json").write_text(json.dumps(found))
    disconnect(met)


if __name__ == "__main__":
    os.environ.setdefault("RANK", "0")
    main()
