"""RemoteModel: a model of an `ordsmed serve` on this or another machine, with the methods of an opened model.

model = ordsmed.open("http://localhost:8000/tiny-bert")
model.fill("it is [MASK].").masks[0][0]     ->  exactly what the model itself returns
"""

from __future__ import annotations

import http.client
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import msgspec

from ordsmed.api.methods import METHODS, ModelMethods
from ordsmed.base.errors import OrdsmedError, RecipeError, RunError, nearest
from ordsmed.use.generation.options import SamplingOptions

TOKEN = "ORDSMED_TOKEN"  # environment variable with the token of the server's --token-file
TRIES, SECONDS = 5, 600.0  # most tries of a request, and its timeout
AGAIN = (429, 503)  # the server is busy: retry after the time it names
OPEN = "open the folder of the model on its machine"


class Problem(msgspec.Struct, rename={"problem": "found"}):
    """The reason why a request was rejected."""

    error: str
    place: str = ""
    problem: str = ""
    wanted: str = ""
    remedy: str = ""


class NotServed(RecipeError, AttributeError):
    """A method that opened models have, but served models do not."""


@dataclass(frozen=True)
class RemoteModel(ModelMethods):
    """A served model, as its server describes it."""

    name: str
    family: str
    step: int | None
    labels: tuple[str, ...]
    can: tuple[str, ...]
    pairs: bool = False  # missing from older servers
    url: str = ""  # of the server

    @staticmethod
    def of(address: str) -> RemoteModel:
        """Connect to `http://host:8000/name`, or without a name to the first model of the server."""
        scheme, _, rest = address.partition("://")
        host, _, name = rest.partition("/")
        url, name = f"{scheme}://{host}", urllib.parse.unquote(name.strip("/"))
        try:
            models = msgspec.json.decode(_request(f"{url}/", None).read(), type=ServerFacts).models
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise RunError(url, "is not a server of `ordsmed serve`", "a server that lists its models") from None
        names = [model.name for model in models]
        if name and name not in names:
            raise RecipeError(address, f"no model `{name}`", "", nearest(name, names))
        return replace(models[names.index(name) if name else 0], url=url)

    def __repr__(self) -> str:
        at = f", step {self.step:,}" if self.step is not None else ""
        return f"<{self.family} from {self.url}/{self.name}{at}: {', '.join(self.can)}>"

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        problem = f"a served model has no `{name}`; it has {', '.join((*METHODS, 'stream'))}"
        raise NotServed(self.url, problem, "", OPEN)

    def check(self, method: str) -> None:
        if method not in self.can:
            cannot = f"its model {self.name} cannot {method}: it is a {self.family}"
            raise RecipeError(self.url, cannot, "", f"it can {', '.join(self.can)}")

    def _results(self, method: str, *inputs: list[Any], **options: object) -> list[Any]:
        if options.get("mix") or options.get("carry"):
            raise RecipeError("embed", "found mix or carry", "other options", OPEN)
        served = METHODS[method]
        with self._answer(method, *inputs, **options) as answer:
            return served.results(msgspec.json.decode(answer.read(), type=served.answer))

    def _stream(self, prompt: str, options: SamplingOptions) -> Iterator[str]:
        with self._answer("generate", [prompt], **{**vars(options), "samples": 1, "stream": True}) as answer:
            for line in answer:
                _, sign, event = line.strip().partition(b"data: ")
                if sign and event != b"[DONE]":
                    piece = msgspec.json.decode(event)
                    if "error" in piece:
                        raise RunError(self.url, str(piece["error"]))
                    if piece["text"]:
                        yield piece["text"]

    def _answer(self, method: str, *inputs: list[Any], **options: object) -> http.client.HTTPResponse:
        served = METHODS[method]
        known = {name: value for name, value in options.items() if name in served.request.__struct_fields__}
        url = f"{self.url}/{urllib.parse.quote(self.name)}/{served.path}"
        return _request(url, msgspec.json.encode(served.request(*inputs, **known)))


class ServerFacts(msgspec.Struct):
    models: list[RemoteModel]


def _request(url: str, body: bytes | None) -> http.client.HTTPResponse:
    """Send a request and return the response. If the server is busy, retry when it says so."""
    headers = {"content-type": "application/json", "accept": "application/json"}
    if token := os.environ.get(TOKEN):
        headers["authorization"] = f"Bearer {token}"
    for tries_left in reversed(range(TRIES)):
        try:
            request = urllib.request.Request(url, body, headers)
            answer: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=SECONDS)
            return answer
        except urllib.error.HTTPError as error:
            with error:
                if error.code not in AGAIN or not tries_left:
                    raise _refusal(url, error) from None
                time.sleep(min(float(error.headers.get("retry-after") or 1), 30.0))
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise RunError(url, f"cannot be reached: {reason}", "a server", "start one: `ordsmed serve`") from None
    raise AssertionError("unreachable")


def _refusal(url: str, error: urllib.error.HTTPError) -> OrdsmedError:
    """Return the error of a rejected request, as a local model would raise it."""
    try:
        refusal = msgspec.json.decode(error.read(), type=Problem)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return RunError(url, f"answers {error.code} {error.reason}", "a server of `ordsmed serve`")
    kind = RecipeError if error.code < 500 and error.code not in AGAIN else RunError
    return kind(refusal.place or url, refusal.problem or refusal.error, refusal.wanted, refusal.remedy)
