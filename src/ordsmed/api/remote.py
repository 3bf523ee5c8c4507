"""RemoteModel: a model of an `ordsmed serve` on this or another machine, with the methods of an opened model.

model = ordsmed.open("http://localhost:8000/tiny-bert")
model.fill("it is [MASK].").masks[0][0]     ->  exactly what the model itself returns
"""

from __future__ import annotations

import base64
import http.client
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn, TypedDict, TypeVar, Unpack

import msgspec
import numpy as np

from ordsmed.api.options import EmbedOptions, Texts, WritingOptions, embed_form, sampling_options, text_of, texts_of
from ordsmed.base.errors import OrdsmedError, RecipeError, RunError, nearest
from ordsmed.learn.score.answers import Answered
from ordsmed.measure.likelihood.surprisal import Scored
from ordsmed.use.embed import Embedded
from ordsmed.use.fill import Filled
from ordsmed.use.generation.options import Generated
from ordsmed.use.predict import Classified, Tagged

TOKEN = "ORDSMED_TOKEN"  # environment variable with the token of the server's --token-file
TRIES, SECONDS = 5, 600.0  # most tries of a request, and its timeout
AGAIN = (429, 503)  # the server is busy: retry after the time it names
METHODS = ("fill", "generate", "stream", "embed", "answer", "classify", "tag", "score")
OPEN = "open the folder of the model on its machine"
Result = TypeVar("Result")


class ServedScores(TypedDict):
    """The answer of /score for one model."""

    model: str
    scores: list[Scored]


class PackedArray(TypedDict):
    """The vectors of a text as base64 in JSON."""

    text: str
    words: list[str]
    shape: list[int]
    dtype: str
    vectors: str


class Problem(msgspec.Struct, rename={"problem": "found"}):
    """The reason why a request was rejected."""

    error: str
    place: str = ""
    problem: str = ""
    wanted: str = ""
    remedy: str = ""


class ModelFacts(msgspec.Struct):
    """A server's description of one of its models."""

    name: str
    family: str
    step: int | None
    labels: tuple[str, ...]
    can: tuple[str, ...]
    pairs: bool = False  # missing from older servers


class ServerFacts(msgspec.Struct):
    models: list[ModelFacts]


class NotServed(RecipeError, AttributeError):
    """A method that opened models have, but served models do not."""


@dataclass(frozen=True)
class RemoteModel:
    """A served model. A text gives one result, a list of texts a list of results."""

    url: str  # of the server
    facts: ModelFacts

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
        return RemoteModel(url, models[names.index(name) if name else 0])

    @property
    def family(self) -> str:
        """Return its architecture: bert, gpt2, elmo..."""
        return self.facts.family

    @property
    def step(self) -> int | None:
        """Return the step of its checkpoint, or None if it is not from a run."""
        return self.facts.step

    @property
    def labels(self) -> tuple[str, ...]:
        """Return its classes or tags."""
        return self.facts.labels

    @property
    def can(self) -> tuple[str, ...]:
        """Return the names of the methods that it supports."""
        return self.facts.can

    @property
    def pairs(self) -> bool:
        """Return whether `classify` needs two texts."""
        return self.facts.pairs

    def __repr__(self) -> str:
        at = f", step {self.step:,}" if self.step is not None else ""
        return f"<{self.family} from {self.url}/{self.facts.name}{at}: {', '.join(self.can)}>"

    @property
    def _path(self) -> str:
        return urllib.parse.quote(self.facts.name)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        raise NotServed(self.url, f"a served model has no `{name}`; it has {', '.join(METHODS)}", "", OPEN)

    def check(self, method: str) -> None:
        if method not in self.can:
            cannot = f"its model {self.facts.name} cannot {method}: it is a {self.family}"
            raise RecipeError(self.url, cannot, "", f"it can {', '.join(self.can)}")

    def fill(self, texts: str | Texts, *, best: int = 5, targets: Sequence[str] = ()) -> Filled | list[Filled]:
        """Return the best guesses for each [MASK] of a text."""
        body = {"texts": texts_of("fill", texts), "best": best, "targets": list(targets)}
        return _like(texts, self._ask("api/fill", body, list[Filled]))

    def generate(self, prompts: str | Texts = "", **settings: Unpack[WritingOptions]) -> Generated | list[Generated]:
        """Return how the model continues a text; it begins an empty one itself."""
        options = sampling_options(settings)
        body = {"texts": texts_of("generate", prompts), **msgspec.to_builtins(options)}
        texts = self._ask("api/generate", body, list[Generated])
        return texts[0] if isinstance(prompts, str) and options.samples == 1 else texts

    def stream(self, prompt: str = "", **settings: Unpack[WritingOptions]) -> Iterator[str]:
        """Yield the text after the prompt in pieces, as they are generated."""
        options = msgspec.to_builtins(replace(sampling_options(settings), samples=1))
        body = {"texts": [text_of("stream", prompt)], **options, "stream": True}
        with _request(f"{self.url}/{self._path}/api/generate", msgspec.json.encode(body)) as answer:
            for line in answer:
                _, sign, event = line.strip().partition(b"data: ")
                if sign and event != b"[DONE]":
                    piece = msgspec.json.decode(event)
                    if "error" in piece:
                        raise RunError(self.url, str(piece["error"]))
                    if piece["text"]:
                        yield piece["text"]

    def embed(self, texts: str | Texts, **settings: Unpack[EmbedOptions]) -> Embedded | list[Embedded]:
        """Return a vector for each word of a text, or one for the whole text (of="sentences")."""
        form = embed_form(settings)
        if form.mix or form.carry:
            raise RecipeError("embed", "found mix or carry", "other options", OPEN)
        options = {name: getattr(form, name) for name in ("of", "layers", "pieces", "pool", "prompt", "dtype", "cut")}
        packed = self._ask("api/embed", {"texts": texts_of("embed", texts), **options}, list[PackedArray])
        return _like(texts, [_unpacked(entry) for entry in packed])

    def answer(self, question: str | Texts, context: str | Texts, *, best: int = 3) -> Answered | list[Answered]:
        """Return the part of a text that answers a question, with its probability and other candidates."""
        body = {"questions": texts_of("answer", question), "contexts": texts_of("answer", context), "best": best}
        return _like(question, self._ask("api/answer", body, list[Answered]))

    def classify(self, texts: str | Texts, seconds: str | Texts = ()) -> Classified | list[Classified]:
        """Return the class of a text, or its predicted number. A model for pairs needs a second text."""
        body = {"texts": texts_of("classify", texts), "seconds": texts_of("classify", seconds) if seconds else []}
        return _like(texts, self._ask("api/classify", body, list[Classified]))

    def tag(self, sentences: str | Texts | Sequence[Texts]) -> Tagged | list[Tagged]:
        """Return a tag for each word of a sentence: a text, split at white space, or a list of words."""
        several = [sentences] if isinstance(sentences, str) else list(sentences)
        return _like(sentences, self._ask("api/tag", {"sentences": several}, list[Tagged]))

    def score(self, texts: str | Texts, *, way: str = "") -> Scored | list[Scored]:
        """Return the log likelihood of a text, and the surprisal of each token and word in bits."""
        body = {"texts": texts_of("score", texts), "way": way}
        return _like(texts, self._ask("score", body, list[ServedScores])[0]["scores"])

    def _ask(self, path: str, body: object, kind: type[Result]) -> Result:
        with _request(f"{self.url}/{self._path}/{path}", msgspec.json.encode(body)) as answer:
            return msgspec.json.decode(answer.read(), type=kind)


def _like(texts: object, results: list[Result]) -> Result | list[Result]:
    return results[0] if isinstance(texts, str) else results


def _unpacked(entry: PackedArray) -> Embedded:
    numbers = np.frombuffer(base64.b64decode(entry["vectors"]), np.dtype(entry["dtype"]).newbyteorder("<"))
    vectors = numbers.astype(entry["dtype"]).reshape(entry["shape"])
    return Embedded(entry["text"], tuple(entry["words"]), vectors)


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
