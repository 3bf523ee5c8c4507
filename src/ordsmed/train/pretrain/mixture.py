"""Mixture: the share of each data in a phase, and how often each is repeated, known before training."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

from ordsmed.base.errors import RecipeError
from ordsmed.base.say import detail, large, many, say
from ordsmed.train.pretrain.texts import TextData

USUAL = 4.0  # passes up to which repeated text is about as useful as new text (Muennighoff et al. 2023)
SHOWN = 20  # portions listed one by one


@dataclass(frozen=True)
class Portion:
    """The tokens that a phase reads from one of its data."""

    phase: int
    name: str
    tokens: int  # tokens available
    drawn: float  # tokens that the phase reads

    @property
    def epochs(self) -> float:
        return self.drawn / self.tokens

    def line(self, whole: float) -> str:
        return (
            f"phase {self.phase}: {self.drawn / whole:.3g} from {self.name}, {large(self.drawn)} of its "
            f"{large(self.tokens)} tokens, {_epochs(self.epochs)}"
        )


def _epochs(count: float) -> str:
    return many(float(f"{count:.3g}"), "epoch")


def mixed(data: TextData) -> TextData:
    """Return the data with weights in place of every mix, so that later changes of the data do not affect the run."""
    recipe, phases = data.recipe, []
    for index, phase in enumerate(recipe.phase):
        tokens = data.tokens(index)  # raises if any has none
        if mix := recipe.mix_of(index):
            location = f"phase[{index + 1}].mix" if phase.mix else "mix"
            shares = mix.shares(list(tokens.values()), phase.rows * phase.length, location)
            phase = dataclasses.replace(phase, data=dict(zip(tokens, shares, strict=True)), mix=None)
        phases.append(phase)
    return dataclasses.replace(data, recipe=dataclasses.replace(recipe, phase=tuple(phases), mix=None))


def portions(data: TextData) -> list[Portion]:
    read = list[Portion]()
    for index, phase in enumerate(data.phases):
        weights = data.recipe.data_of(index)
        unit = phase.rows * phase.length / math.fsum(weights.values())
        read += [Portion(index + 1, n, t, unit * weights[n]) for n, t in data.tokens(index).items()]
    return read


def portion_lines(data: TextData) -> list[str]:
    """Return lines on the portions of each phase; warn of too many repetitions, or raise by `max_epochs`."""
    lines, read = list[str](), portions(data)
    for number, phase in enumerate(data.phases, 1):
        of_phase = [portion for portion in read if portion.phase == number]
        if phase.min_length:
            lines.append(data.long_documents(number - 1))
        if len(of_phase) > 1:
            lines += _table(of_phase, float(phase.rows * phase.length))
    _check(read, data.recipe.max_epochs, several=len(data.recipe.sources) > 1)
    return lines


def _table(of_phase: Sequence[Portion], whole: float) -> list[str]:
    lines = [portion.line(whole) for portion in sorted(of_phase, key=lambda portion: -portion.epochs)]
    if len(lines) <= SHOWN:
        return lines
    for line in lines[SHOWN:]:
        detail(line)
    least = min(of_phase, key=lambda portion: portion.epochs)
    rest = f"phase {least.phase}: {len(lines) - SHOWN:,} more, down to {_epochs(least.epochs)} of {least.name}"
    return [*lines[:SHOWN], rest]


def _check(read: Sequence[Portion], most: float, *, several: bool) -> None:
    epochs = dict[str, float]()
    for portion in read:
        epochs[portion.name] = epochs.get(portion.name, 0.0) + portion.epochs
    over = sorted((name for name in epochs if epochs[name] > (most or USUAL) + 1e-9), key=lambda name: -epochs[name])
    if not over or not (most or several):
        return
    worst = f"{_epochs(epochs[over[0]])} of {over[0]}"
    worst += f", and more than {most or USUAL:g} of {many(len(over) - 1, 'other')}" if over[1:] else ""
    if most:
        remedy = "fewer steps, a smaller share of it, or a larger `max_epochs`"
        raise RecipeError("max_epochs", f"found {worst}", f"at most {most:g}", remedy)
    say(f"data: {worst}: more than about {USUAL:g} epochs help less and less; `max_epochs` can refuse them")
