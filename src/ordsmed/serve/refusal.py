"""Refusals: errors that answer a request. Each protocol writes them in another form."""

from __future__ import annotations

from dataclasses import dataclass

from ordsmed.base.errors import OrdsmedError

STATUS = {  # HTTP status, unless a protocol has another
    "invalid": 400,  # the request is malformed
    "token": 401,  # the token is absent or wrong
    "host": 403,  # this host name, or a page of this origin, is not allowed
    "unknown": 404,  # no such model, or no such path
    "method": 405,
    "slow": 408,  # the body arrived too slowly
    "cannot": 400,  # the model does not have this method
    "large": 413,  # too many bytes, items or characters
    "busy": 429,  # the queue is full
    "broken": 500,  # an error in the server
    "memory": 503,
    "closing": 503,
    "crowded": 503,  # there are too many connections
    "late": 504,  # the deadline has passed
}
RETRY_AFTER = {"busy": 1, "crowded": 1, "closing": 5, "memory": 5}  # seconds for Retry-After


class Refusal(Exception):
    """An error with place, problem, wanted value and remedy; `kind` is a key of STATUS."""

    def __init__(self, kind: str, problem: str, wanted: str = "", remedy: str = "", place: str = "") -> None:
        self.kind, self.place, self.problem, self.wanted, self.remedy = kind, place, problem, wanted, remedy
        parts = [f"{place}: {problem}" if place else problem, f"wanted {wanted}" if wanted else "", remedy]
        super().__init__("; ".join(filter(None, parts)))

    @property
    def status(self) -> int:
        return STATUS[self.kind]

    @staticmethod
    def of(error: OrdsmedError, hidden: dict[str, str], kind: str = "invalid") -> Refusal:
        """Return a refusal for an error of this library, with the paths in `hidden` replaced by their names."""
        parts = [_without(text, hidden) for text in (error.place, error.found, error.wanted, error.remedy)]
        return Refusal(kind, parts[1], parts[2], parts[3], parts[0])


@dataclass(frozen=True)
class ErrorForm:
    """The status and body of a refusal in a protocol."""

    status: int
    body: object


def _without(text: str, hidden: dict[str, str]) -> str:
    for path, name in hidden.items():
        text = text.replace(path, name)
    return text
