"""`ordsmed.finetune`: the verb of this name as a function, which the verb calls as well."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ordsmed.base.files import in_a_line
from ordsmed.finetune import finetune as session
from ordsmed.finetune.plan import FinetuningPlan
from ordsmed.train.keywords import words_of
from ordsmed.train.result import TrainingRun


@in_a_line()
def finetune(
    recipe: str | Path, *, overrides: Sequence[str] = (), deadline: float | None = None, anew: bool = False,
    layout: str | Mapping[str, object] = "", site: str = "", **settings: object,
) -> TrainingRun:  # fmt: skip
    """Teach a pretrained network a task, or make trials (`seeds`, `grid`), or go on with a run's folder.

    Keywords change settings of the recipe; tables are dicts or dotted keys; `overrides` are the command line's words.
    `anew`: delete what stands in the folder. Ctrl-C saves the run and raises Stopped; the same call goes on.

        run = ordsmed.finetune("tiny/words", init="work/pretrain/tiny-bert", task={"length": 64})
        run.scores["f1"], run.open().tag("Newts swim in Bergen")
    """
    if not isinstance(layout, str):  # of the recipe, not a mesh
        layout, settings["layout"] = "", layout
    words = words_of(FinetuningPlan.recipes, str(recipe), overrides, settings)
    how = {"deadline": deadline, "anew": anew, "layout": layout, "site": site}
    return TrainingRun(session.finetune(str(recipe), words, **how))
