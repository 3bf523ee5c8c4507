"""The seconds that single steps of a training take on this machine."""

from __future__ import annotations

import contextlib
import itertools
import tempfile
import time
from pathlib import Path

from ordsmed.train import loop
from ordsmed.train.callbacks import AfterStep, LoopState
from ordsmed.train.job import Job

WARM, TIMED = 3, 12  # warm-up steps that are not timed; least number of timed steps
LONG = 4.0  # least seconds of timed steps per phase, to average over the machine's other load


class _EnoughSteps(Exception):
    """Signal that enough steps were timed."""


def step_times(job: Job, start: int, most: int) -> list[float]:
    """Return the seconds of some steps after step `start`.

    Leave out the first steps, which warm up threads and libraries, and steps with a validation.
    """
    ends = [time.perf_counter()]

    def after_step(state: LoopState) -> None:
        ends.append(time.perf_counter())
        if state.step == start + most or (len(ends) > WARM + TIMED and ends[-1] - ends[0] >= LONG):
            raise _EnoughSteps

    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(_EnoughSteps):
        loop.train(job, Path(folder), start, 1.0, callbacks=[AfterStep(after_step)])
    steps = [
        later - earlier
        for number, (earlier, later) in enumerate(itertools.pairwise(ends), start)
        if number == start or not job.recipe.validates(number)
    ]
    return steps[WARM:] or steps
