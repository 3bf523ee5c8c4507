"""A menu entry like mlm that performs FAULT when it is named: how a fault gets into a process of the real command."""

# ruff: noqa: F401 (faults name them)

import contextlib
import errno
import os
import resource
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import torch

import ordsmed
from ordsmed.base import files, ranks, run, snapshots
from ordsmed.base.menu import Choice
from ordsmed.data import loader
from ordsmed.learn.objectives import mlm
from ordsmed.learn.objectives.mlm import Mlm
from ordsmed.train import checkpoint, loop, meters, saving, session, watch
from ordsmed.train.pretrain import finish, plan, texts
from ordsmed.weights import boxes, weights


@dataclass(frozen=True)
class Faulty(Mlm, Choice):
    """As mlm."""


RANK = int(os.environ.get("RANK", "0"))


def before(place, name, act):
    """Call `act` with what is given to a function, before it."""
    real = getattr(place, name)

    def both(*given, **named):
        act(*given, **named)
        return real(*given, **named)

    setattr(place, name, both)


def after(place, name, act):
    real = getattr(place, name)

    def both(*given, **named):
        found = real(*given, **named)
        act(*given, **named)
        return found

    setattr(place, name, both)


def once(word="once"):
    """Is it the first time, over all processes and attempts of a test?"""
    with contextlib.suppress(FileExistsError):
        os.close(os.open(os.environ["MARKS"] + "/" + word, os.O_CREAT | os.O_EXCL))
        return True
    return False


def mark(word):
    """Let the test know."""
    once(word)


def until(word):
    """Wait until the test marks it so."""
    while not os.path.exists(os.environ["MARKS"] + "/" + word):
        time.sleep(0.005)


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def full(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


def limit(bytes):
    """The longest file that may be written: what a process can have of a full disk without being root. 0: any."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes or resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def at_step(step, act):
    """Before the update of this step."""
    before(loop, "train_step", lambda job, batches, rate, index, inner, **_: act() if inner + 1 == step else None)


def sick(steps, factor):
    """The losses of these steps times a factor."""
    now = [0]
    before(loop, "train_step", lambda job, batches, rate, index, inner, **_: now.__setitem__(0, inner + 1))
    well = mlm.MaskedTokens.forward

    def forward(self, batch):
        return {k: v * (factor if now[0] in steps else 1.0) for k, v in well(self, batch).items()}

    mlm.MaskedTokens.forward = forward


exec(os.environ.get("FAULT", ""))
