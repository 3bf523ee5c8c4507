"""Refusal: why a request is not answered as was wished; each protocol writes it in its own form."""

from __future__ import annotations

from dataclasses import dataclass

from ordsmed.base.errors import OrdsmedError

STATUS = {  # of HTTP, where a protocol has no other
    "invalid": 400,  # the request is not what it should be
    "token": 401,  # the token is absent or wrong
    "host": 403,  # a name of this machine, or a page, that may not ask
    "unknown": 404,  # no such model, or no such path
    "method": 405,
    "slow": 408,  # the body did not come in time
    "cannot": 400,  # the model was not made for that
    "large": 413,  # too many bytes, items or characters
    "busy": 429,  # the queue is full
    "broken": 500,  # a mistake of the server's
    "memory": 503,
    "closing": 503,
    "crowded": 503,  # there are too many connections
    "late": 504,  # the deadline has passed
}
AGAIN = {"busy": 1, "crowded": 1, "closing": 5, "memory": 5}  # seconds after which it may be tried once more


class Refusal(Exception):
    """What was found, wanted, and what helps; `kind` is one of STATUS."""

    def __init__(self, kind: str, problem: str, wanted: str = "", remedy: str = "", place: str = "") -> None:
        self.kind, self.place, self.problem, self.wanted, self.remedy = kind, place, problem, wanted, remedy
        parts = [f"{place}: {problem}" if place else problem, f"wanted {wanted}" if wanted else "", remedy]
        super().__init__("; ".join(filter(None, parts)))

    @property
    def status(self) -> int:
        return STATUS[self.kind]

    @staticmethod
    def of(error: OrdsmedError, hidden: dict[str, str], kind: str = "invalid") -> Refusal:
        """An error of the library's as one; `hidden`: paths of this machine and what is written in their place."""
        parts = [_without(text, hidden) for text in (error.place, error.found, error.wanted, error.remedy)]
        return Refusal(kind, parts[1], parts[2], parts[3], parts[0])


@dataclass(frozen=True)
class ErrorForm:
    """A refusal as a protocol writes it."""

    status: int
    body: object


def _without(text: str, hidden: dict[str, str]) -> str:
    for path, name in hidden.items():
        text = text.replace(path, name)
    return text
