"""The plan of a speedrun: the sample of the texts, the steps for each budget, and the expected time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ordsmed.base import settings
from ordsmed.base.errors import RecipeError
from ordsmed.base.run import Run
from ordsmed.base.say import duration, many, operations
from ordsmed.maker import texts
from ordsmed.maker.plan import PIECES_A_WORD
from ordsmed.maker.recipes import write
from ordsmed.maker.runner import JobPlan
from ordsmed.maker.speedrun.budget import Budgeted, budgeted, expected_tokenizer
from ordsmed.maker.speedrun.track import SpeedrunRequest, Track
from ordsmed.maker.texts import InputTexts, TextSurvey
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.train.mesh.layout import Layout
from ordsmed.train.mesh.precision import UNITS

SURE = 1.5  # multiple of the allowed passes; more by a sample are certainly too many


@dataclass(frozen=True)
class SpeedrunPlan(JobPlan):
    request: SpeedrunRequest
    track: Track
    texts: InputTexts
    survey: TextSurvey
    runs: dict[float, Budgeted]  # by budget
    seconds: float  # of the training, one run after the other

    @property
    def words(self) -> float:
        """About how many words of text are used for training."""
        return min(self.survey.words * (1 - self.track.validation), float(self.track.words))

    def rows(self) -> Iterator[tuple[str, Sequence[str]]]:
        rule, rest = self.track, self.survey.words - self.track.words
        sample = f"about {self.words:,.0f} words to learn from, {rule.validation:.0%} of as many held out"
        left_out = [f"about {rest:,.0f} words are left out: {rule.words:,} at most"] if rest > 0 else []
        yield "texts", texts.lines(self.texts, self.survey)
        yield "sample", [sample, *left_out]
        yield "tokenizer", [f"{settings.plain(rule.tokenizer)['kind']}, up to {rule.tokenizer.size:,} pieces"]
        for budget, planned in self.runs.items():
            yield f"budget {budget:g}", _training(planned, self.words * PIECES_A_WORD, self.request, rule)

    def facts(self) -> dict[str, Any]:
        runs = [
            {
                "budget": budget,
                "flops": run.flops,
                "steps": run.steps,
                "tokens": run.tokens,
                "seconds": run.seconds,
                "passes": run.passes(self.words * PIECES_A_WORD),
                "recipe": settings.plain(run.recipe),
            }
            for budget, run in self.runs.items()
        ]
        return {
            "track": settings.plain(self.track),
            "texts": settings.plain(self.texts),
            "words": self.words,
            "words_of_texts": self.survey.words,
            "runs": runs,
        }

    def write(self, run_folder: Run) -> dict[str, Any]:
        """Write the recipes of the sample, the tokenizer and the token ids."""
        write(recipes_of(self.request, self.track, self.texts, self.survey), run_folder.path)
        return {}


def _training(run: Budgeted, unique: float, request: SpeedrunRequest, rule: Track) -> list[str]:
    seeds = request.seeds or rule.seeds
    return [
        f"{operations(run.flops)}: {many(run.steps, 'step')}, {run.tokens:,} tokens, "
        f"about {run.passes(unique):.2g} passes over the sample",
        f"{many(len(seeds), 'seed')}, each about {duration(run.seconds)} of this machine",
    ]


def plan(request: SpeedrunRequest) -> SpeedrunPlan:
    """Return the plan of a request; texts are sampled, and nothing is written."""
    rule = request.rule
    table = request.learned
    inputs = texts.input_texts(request.texts, request.out)
    survey = texts.survey(inputs)
    tokenizer = expected_tokenizer(rule.tokenizer)
    runs = runs_of(request, rule, table, "", tokenizer)
    seconds = len(request.seeds or rule.seeds) * sum(run.seconds for run in runs.values())
    result = SpeedrunPlan(request, rule, inputs, survey, runs, seconds)
    for run in result.runs.values():
        check_precision(run.recipe.layout)
        check_passes(run, result.words * PIECES_A_WORD, SURE * rule.passes, request, result.words)
    return result


def runs_of(
    request: SpeedrunRequest, rule: Track, table: settings.Table, data: str, tokenizer: Tokenizer
) -> dict[float, Budgeted]:
    location = request.recipe or request.kind or next(iter(rule.recipes))
    return {
        budget: budgeted(table, location, data or "data", tokenizer, budget * rule.flops) for budget in request.budgets
    }


def check_passes(run: Budgeted, unique: float, most: float, request: SpeedrunRequest, words: float) -> None:
    """Raise if the text would be read too often, unless the request allows it."""
    passes = run.passes(unique)
    if passes > most and not request.yes:
        problem = f"{words:,.0f} words to learn from, which the budget reads {passes:.1f} times"
        wanted = f"at most {request.rule.passes:g} passes"
        smaller = request.rule.passes / passes * max(request.budgets)
        remedy = f"more text, --budget {smaller:.2g}, or --yes, which makes no entry"
        raise RecipeError(", ".join(request.texts), problem, wanted, remedy)


def check_precision(layout: Layout) -> None:
    """Raise for a precision without CPU support: other machines could not reproduce the entry."""
    cuda = layout.device.startswith("cuda") or (layout.device == "auto" and torch.cuda.is_available())
    if cuda or layout.precision in ("auto", "fp32"):
        return  # a training on a GPU checks this itself
    if not any(getattr(torch.cpu, name, bool)() for name in UNITS.values()) or layout.precision != "bf16":
        problem = f"found {layout.precision}, for which this CPU has no units"
        raise RecipeError("layout.precision", problem, "fp32, or auto", "or a machine that has them")


def recipes_of(request: SpeedrunRequest, rule: Track, inputs: InputTexts, survey: TextSurvey) -> dict[str, Any]:
    out = Path(request.out)
    source: list[Mapping[str, Any]] = list(inputs.sources) or [{"kind": "corpus", "name": inputs.corpus}]
    corpus: dict[str, Any] = {
        "source": source,
        "clean": inputs.clean if inputs.sources else [],
        "validation": rule.validation,
        "max_words": rule.words,
        "title": out.resolve().name,
        "broken": "skip",
        "out": str(out / "corpus"),
    }
    if inputs.sources and not inputs.marked_up:
        corpus["longest"] = rule.longest
    if survey.language:
        corpus["language"] = survey.language
    tokenizer = {"corpus": str(out / "corpus.toml"), "tokenizer": settings.plain(rule.tokenizer)}
    data = {"corpus": str(out / "corpus.toml"), "tokenizer": str(out / "tokenizer.toml"), "out": str(out / "data")}
    return {"corpus": corpus, "tokenizer": {**tokenizer, "out": str(out / "tokenizer")}, "data": data}
