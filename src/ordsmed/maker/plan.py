"""The plan of `make`: data, tokenizer, network and training that fit into the time, shown on one screen.

texts, hours, purpose  ->  survey of the texts, speed of the machine  ->  vocabulary, network, length, batch, steps
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from ordsmed.base import hub, settings
from ordsmed.base.errors import RecipeError
from ordsmed.base.launch import site
from ordsmed.base.machine import devices
from ordsmed.base.machine.speed import measured_peak
from ordsmed.base.machine.threads import threads_of
from ordsmed.base.say import duration, many
from ordsmed.corpus.pipeline import workers_for
from ordsmed.maker import texts
from ordsmed.maker.learning import Learning, Scope, continued, fresh
from ordsmed.maker.networks import Table
from ordsmed.maker.recipes import recipes_of, training_recipe
from ordsmed.maker.request import SEARCH, MakeRequest
from ordsmed.maker.texts import InputTexts, TextSurvey
from ordsmed.maker.trial import tokens_a_second
from ordsmed.text import language

OF_CPU, OF_GPU = 0.75, 0.35  # share of a device's measured peak that small networks reach in training
BF16_GAIN = 0.35  # share of the gain of 16-bit products that steps gain
TRIALS = 3  # maximum number of networks whose training steps are timed
SEARCHING = 0.45  # share of the time for building a search engine from a language model
CLOSING, CLOSING_SECONDS = (0.03, 25.0)  # for examples, scores and export: share of the time, least seconds
PREPARING, PREPARING_SECONDS = 0.2, 8.0  # most share of the time for the corpus; least seconds
LEAST = 0.1  # least share of the time for training
PIECES_A_WORD = 1.4
CLOSED = "examples, scores, a page, a folder for Hugging Face"
SEARCHED = "pairs of texts, vectors and a reranker from them, a test, an index, folders for sentence-transformers"
MANY_LANGUAGES = 0.1  # least share of the text for a language to count


@dataclass(frozen=True)
class MakePlan:
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

    def lines(self) -> list[str]:
        phase = self.recipes["model"]["phase"][0]
        expected = int(self.tokens / phase["batch"] / phase["length"])
        more = f"; at most {many(phase['steps'], 'step')}, if they are faster" if phase["steps"] > expected else ""
        on = f"{self.device}, {many(self.threads, 'thread')}" if self.threads else self.device
        learned = self.recipes.get("tokenizer", {}).get("tokenizer")
        passes = f"{self.passes:.2g}" if self.passes < 10 else f"{self.passes:.0f}"
        rows = [
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
        return [f"  {'' if n else name:<10} {line}" for name, of_row in rows for n, line in enumerate(of_row)]

    def facts(self) -> Table:
        return asdict(self)


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
    seconds, device = request.hours * 3600, torch.device("cuda" if torch.cuda.is_available() else "cpu")
    threads = threads_here(request.devices)
    speed = _speed(device, threads or max(1, request.devices))
    portion, preparing = _portion(survey, seconds, workers_for(inputs.bytes))
    training = max(seconds - max(preparing, used) - closing_seconds(request), LEAST * seconds)
    words = survey.words * portion
    pieces = vocabulary or vocabulary_size(words, survey.alphabet)
    scope = Scope(speed, training, words * PIECES_A_WORD, pieces, survey.alphabet)
    fits = None if vocabulary is None else not vocabulary

    def choose(scope: Scope) -> Learning:
        return continued(request, inputs, scope, fits) if request.start else fresh(request, scope)

    learning, scope = _by_trials(choose, scope, threads, max(1, request.devices))
    tokens = learning.network.tokens
    expected = min(tokens * learning.network.operations / scope.speed, training)
    notes = _notes(learning, scope, survey, portion, seconds - training + expected)
    recipes = recipes_of(request, inputs, survey, learning, scope, portion)
    name, passes = devices.name_of(device), tokens / scope.unique
    sizes = (learning.weights, tokens, passes, portion, name, learning.described, notes)
    return MakePlan(request, inputs, survey, recipes, seconds, expected, *sizes, threads)


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


def closing_seconds(request: MakeRequest, seconds: float = 0.0) -> float:
    """Return the seconds for examples, scores and export; a search engine also needs pairs, models and index.

    `seconds` is the total time; 0: the time of the request.
    """
    seconds = seconds or request.hours * 3600
    return max(CLOSING_SECONDS, CLOSING * seconds) + (SEARCHING * seconds if request.purpose == SEARCH else 0.0)


def hours_for(request: MakeRequest, seconds: float) -> float:
    """Return the hours, rounded up, in which `seconds` of preparing and training fit next to the other stages."""
    share = CLOSING + (SEARCHING if request.purpose == SEARCH else 0.0)
    hours = max(seconds / (1 - share), (seconds + CLOSING_SECONDS) / (1 - share + CLOSING)) / 3600
    digits = 1 - math.floor(math.log10(hours))
    return math.ceil(hours * 10**digits) / 10**digits


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


def _portion(survey: TextSurvey, seconds: float, workers: int) -> tuple[float, float]:
    """Return the share of the text that is read, and the seconds to make its corpus, tokenizer and token ids."""
    reading = 3.0 * survey.seconds * survey.characters / 1e6 / workers
    portion = min(1.0, max(PREPARING * seconds - PREPARING_SECONDS, 4.0) / max(reading, 1e-9))
    if portion >= 0.95:
        return 1.0, reading + PREPARING_SECONDS
    return float(f"{portion:.2g}"), PREPARING * seconds
