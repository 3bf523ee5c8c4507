"""The plan of `make`: data, tokenizer, network and training that fit into the time, shown on one screen.

texts, hours, purpose  ->  survey of the texts, speed of the machine  ->  vocabulary, network, length, batch, steps
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from ordsmed.base import files, hub, settings
from ordsmed.base.errors import RecipeError
from ordsmed.base.launch import site
from ordsmed.base.machine import devices
from ordsmed.base.machine.speed import measured_peak
from ordsmed.base.machine.threads import threads_of
from ordsmed.base.run import Run
from ordsmed.base.say import duration, many, say
from ordsmed.corpus.pipeline import workers_for
from ordsmed.maker import texts
from ordsmed.maker.learning import Learning, Scope, continued, fresh
from ordsmed.maker.networks import Table
from ordsmed.maker.recipes import recipes_of, training_recipe, write
from ordsmed.maker.request import SEARCH, MakeRequest
from ordsmed.maker.runner import JobPlan
from ordsmed.maker.texts import InputTexts, TextSurvey
from ordsmed.maker.trial import tokens_a_second
from ordsmed.text import language

OF_CPU, OF_GPU = 0.75, 0.35  # share of a device's measured peak that small networks reach in training
BF16_GAIN = 0.35  # share of the gain of 16-bit products that steps gain
TRIALS = 3  # maximum number of networks whose training steps are timed
PIECES_A_WORD = 1.4
CLOSED = "examples, scores, a page, a folder for Hugging Face"
SEARCHED = "pairs of texts, vectors and a reranker from them, a test, an index, folders for sentence-transformers"
MANY_LANGUAGES = 0.1  # least share of the text for a language to count


@dataclass(frozen=True)
class MakePlan(JobPlan):
    request: MakeRequest
    texts: InputTexts
    survey: TextSurvey
    recipes: dict[str, Table]  # by file name
    seconds: float  # total time
    training: float  # expected seconds of training
    weights: int  # of the network, including embeddings
    tokens: float  # read by training
    passes: float
    portion: float
    device: str
    network: str  # as text
    notes: tuple[str, ...] = ()
    threads: int = 0  # CPU threads of the training, over all processes; 0: a GPU trains

    def rows(self) -> list[tuple[str, list[str]]]:
        phase = self.recipes["model"]["phase"][0]
        expected = int(self.tokens / phase["batch"] / phase["length"])
        more = f"; at most {many(phase['steps'], 'step')}, if they are faster" if phase["steps"] > expected else ""
        on = f"{self.device}, {many(self.threads, 'thread')}" if self.threads else self.device
        learned = self.recipes.get("tokenizer", {}).get("tokenizer")
        passes = f"{self.passes:.2g}" if self.passes < 10 else f"{self.passes:.0f}"
        return [
            ("texts", texts.lines(self.texts, self.survey)),
            ("tokenizer", [f"{learned['kind']}, up to {learned['size']:,} pieces" if learned else "the model's"]),
            ("network", [f"{self.network}: {self.weights / 1e6:,.1f} million weights"]),
            (
                "training",
                [
                    f"about {many(expected, 'step')} of {phase['batch']} rows of {phase['length']} tokens: "
                    f"{passes} passes over the text",
                    f"{duration(self.training)} of {duration(self.seconds)}, on {on}{more}",
                ],
            ),
            ("then", [SEARCHED if self.request.purpose == SEARCH else CLOSED]),
            ("note", list(self.notes)),
        ]

    def facts(self) -> Table:
        return asdict(self)

    def write(self, run_folder: Run) -> dict[str, Any]:
        """Write the recipes, and return their checksums for the status."""
        paths = write(self.recipes, run_folder.path)
        names = " ".join(path.name for path in paths)
        say(f"{names} in {run_folder.path}: the plan as recipes, to look at or change")
        return {"written": {path.stem: files.checksum(path) for path in paths}}


def vocabulary_size(words: float, alphabet: int) -> int:
    """Return a suitable vocabulary size for a text of `words` words with `alphabet` characters."""
    return int(min(32_000, max(1_000, 4 * alphabet, 250 * round(11.5 * math.sqrt(words) / 250))))


def plan(request: MakeRequest, *, vocabulary: int | None = None, used: float = 0.0) -> MakePlan:
    """Plan a request by a sample of the texts and the speed of the device; nothing is written.

    `vocabulary` is the size of a tokenizer planned before, 0 for that of the initial model, None if there was none.
    `used` is the seconds already spent.
    """
    if request.site:
        site.Destination.find(request.site)
    if request.start and not hub.folder(request.start).exists():
        raise RecipeError("--from", f"found {request.start}", "a model", hub.remedy(request.start))
    inputs = texts.input_texts(request.texts, request.out)
    survey = texts.survey(inputs)
    hours, device = request.time, torch.device("cuda" if torch.cuda.is_available() else "cpu")
    threads = threads_here(request.devices)
    speed = _speed(device, threads or max(1, request.devices))
    reading = 3.0 * survey.seconds * survey.characters / 1e6 / workers_for(inputs.bytes)
    portion, preparing = hours.preparing(reading)
    training = hours.training(max(preparing, used))
    words = survey.words * portion
    pieces = vocabulary or vocabulary_size(words, survey.alphabet)
    scope = Scope(speed, training, words * PIECES_A_WORD, pieces, survey.alphabet)
    fits = None if vocabulary is None else not vocabulary

    def choose(scope: Scope) -> Learning:
        return continued(request, inputs, scope, fits) if request.start else fresh(request, scope)

    learning, scope = _by_trials(choose, scope, threads, max(1, request.devices))
    tokens = learning.network.tokens
    expected = min(tokens * learning.network.operations / scope.speed, training)
    notes = _notes(learning, scope, survey, portion, hours.seconds - training + expected)
    recipes = recipes_of(request, inputs, survey, learning, scope, portion)
    name, passes = devices.name_of(device), tokens / scope.unique
    sizes = (learning.weights, tokens, passes, portion, name, learning.described, notes)
    return MakePlan(request, inputs, survey, recipes, hours.seconds, expected, *sizes, threads)


def _by_trials(
    choose: Callable[[Scope], Learning], scope: Scope, threads: int, processes: int
) -> tuple[Learning, Scope]:
    """Choose a network by the peak speed of the CPU, then again by the speed of timed steps of that network."""
    learning = choose(scope)
    for _ in range(TRIALS if threads else 0):
        scope, weights = replace(scope, speed=_tried(learning, scope, threads, processes)), learning.network.weights
        learning = choose(scope)
        if learning.network.weights == weights:
            break
    return learning, scope


def _tried(learning: Learning, scope: Scope, threads: int, processes: int) -> float:
    chosen, recipe = learning.network, training_recipe(Path(), learning, scope)
    speed = tokens_a_second(settings.plain(chosen.model), recipe, learning.vocabulary, max(1, threads // processes))
    return speed * chosen.operations * processes


def _notes(learning: Learning, scope: Scope, survey: TextSurvey, portion: float, ends: float) -> tuple[str, ...]:
    notes = list(learning.notes)
    if learning.passes_end_it(scope):
        most = f"more than {learning.passes:.0f} passes over so little text would overfit"
        notes.append(f"{most}: ends after about {duration(ends)}")
    if portion < 1:
        notes.append(f"{portion:.2%} of the text is read: more would not be reached in the time, which --hours decides")
    shares = [share for code, share in survey.languages.items() if code != language.UNKNOWN]
    if sum(share >= MANY_LANGUAGES for share in shares) > 1:
        notes.append("several languages: the model learns all of them, each from its share")
    return tuple(notes)


def threads_here(processes: int) -> int:
    """Return the CPU threads of a training by `processes`, over all of them; 0 if a GPU trains."""
    count = max(1, processes)
    return 0 if torch.cuda.is_available() else count * threads_of(local_world=count)


def _speed(device: torch.device, count: int) -> float:
    """Return the operations a second that training a small network will likely reach on `count` GPUs or threads."""
    if device.type == "cuda":
        return measured_peak(device, "bf16") * OF_GPU * count
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # several threads may wait for each other while something else runs
    try:
        fp32, bf16 = (measured_peak(device, precision) for precision in ("fp32", "bf16"))
        return fp32 * (1 + BF16_GAIN * max(0.0, bf16 / fp32 - 1)) * OF_CPU * count
    finally:
        torch.set_num_threads(threads)
