"""Several processes and one terminal: what the first one says to the others, and how a text ends for all at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from ordsmed.base.errors import RecipeError
from ordsmed.use.generation import leading
from ordsmed.use.generation.options import SamplingOptions

NETWORK: Any = SimpleNamespace(ranks=SimpleNamespace(world=2))
HOW = SamplingOptions(stop=("x",), seed=4)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the first process says, as JSON hands it on."""
    made: list[Any] = []

    def first_alone(ranks: Any, act: Callable[[], Any]) -> Any:
        made.append(act())
        return made[-1]

    monkeypatch.setattr(leading, "on_rank0", first_alone)
    return made


def test_ctrl_c_ends_a_text_between_two_steps(said: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Any] = []

    def steps(network: Any, prompt: str, how: SamplingOptions, sample: int) -> Iterator[str]:
        if prompt == "bad":
            raise RecipeError("bad", "is refused")
        for number in range(3):
            if (prompt, number) == ("long", 1) and len(done) == 1:
                os.kill(os.getpid(), signal.SIGINT)
            done.append((prompt, number, how, sample))
            yield str(number)

    monkeypatch.setattr(leading, "steps", steps)
    before = signal.getsignal(signal.SIGINT)
    text = leading.lead(NETWORK, "long", HOW, 1)
    assert [next(text), next(text)] == ["0", "1"]
    with pytest.raises(KeyboardInterrupt):
        next(text)
    with pytest.raises(RecipeError):
        next(leading.lead(NETWORK, "bad", HOW, 0))
    assert list(leading.lead(NETWORK, "short", HOW, 0)) == ["0", "1", "2"]
    leading.end(NETWORK)
    assert signal.getsignal(signal.SIGINT) is before
    wrote, heard = [*done], iter([*said])
    done.clear()
    monkeypatch.setattr(leading, "on_rank0", lambda ranks, act: next(heard))
    leading.follow(NETWORK)
    assert done == wrote == [*(("long", n, HOW, 1) for n in range(2)), *(("short", n, HOW, 0) for n in range(3))]
    assert next(heard, "none") == "none"


def test_alone_nobody_is_told(said: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leading, "steps", lambda *asked: iter(asked[1:]))
    one: Any = SimpleNamespace(ranks=SimpleNamespace(world=1))
    assert list(leading.lead(one, "a", HOW, 2)) == ["a", HOW, 2]
    assert said == []
