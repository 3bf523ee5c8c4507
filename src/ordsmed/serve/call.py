"""A request on its way from a protocol to the batcher and back, and the endpoints that answer requests.

body -> msgspec -> ServedCall(request) -> Endpoint.run -> call.compute(model, method, items) -> answer -> body
"""

from __future__ import annotations

import asyncio
import functools
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from ordsmed.base.errors import OrdsmedError, meant
from ordsmed.base.say import many
from ordsmed.serve.batcher import Batcher
from ordsmed.serve.metrics import ServerMetrics
from ordsmed.serve.models import ModelCall, ServedModel, ServedModels
from ordsmed.serve.refusal import ErrorForm, Refusal
from ordsmed.serve.runs import RunReader
from ordsmed.serve.workers import Worker
from ordsmed.serve.writing import FillingWriter, PendingTexts, RowInProgress
from ordsmed.use.generate import rows_of
from ordsmed.use.generation.continuing import TextRow, rows_of_ids
from ordsmed.use.generation.network import WritingNetwork, writing
from ordsmed.use.generation.options import SamplingOptions

MENU = "protocols"
LISTED = 100  # maximum of truncated inputs that the header lists
Result = TypeVar("Result")
Prompt = str | list[int]  # a text, or token ids


@dataclass(frozen=True)
class ServerLimits:
    body: int = 8 << 20
    """maximum bytes of a request"""
    items: int = 2_048
    """maximum texts of a request"""
    characters: int = 2_000_000
    """maximum characters of all texts of a request"""
    numbers: int = 1 << 24
    """maximum numbers in all vectors of an answer"""
    seconds: float = 120.0
    """maximum time from a request to its answer, including the wait in the queue"""
    arrival: float = 20.0
    """seconds within which a request must arrive completely"""
    tokens: int = 4_096
    """maximum new tokens of a text; all samples of a request may have 16 times as many"""


@dataclass(frozen=True)
class Service:
    """The models, queue, limits and metrics that all calls share."""

    models: ServedModels
    batcher: Batcher
    limits: ServerLimits = field(default_factory=ServerLimits)
    metrics: ServerMetrics = field(default_factory=ServerMetrics)
    runs: RunReader = field(default_factory=RunReader)
    indexes: dict[str, Any] = field(default_factory=dict)  # each ServedIndex by name
    pool: str = ""  # how a text is pooled, as in `embed`
    checkpoints: bool = False  # whether requests may use the checkpoints of served runs
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)  # only one checkpoint is open at a time
    worker: Worker | None = None  # this process, if there are several

    def __post_init__(self) -> None:
        self.batcher.on_batch = self.metrics.add_batch
        self.metrics.gauges |= {
            "queue_items": lambda: self.batcher.waiting,
            "batch_size": lambda: self.batcher.computing,
        }
        if self.worker:
            self.metrics.share(self.worker)


@dataclass(frozen=True)
class ServedCall:
    service: Service
    name: str  # of the model in the path; empty: none
    request: Any  # the decoded body; None: no body
    parameters: dict[str, str] = field(default_factory=dict)  # of the path
    agent: str = ""  # the client's program, as its User-Agent header names it
    headers: dict[str, str] = field(default_factory=dict)  # of the answer

    def report_truncated(self, numbers: Sequence[int]) -> None:
        """Add a header with the positions (from 0) of the inputs that were truncated."""
        if len(numbers):
            more = f", and {len(numbers) - LISTED} more" if len(numbers) > LISTED else ""
            self.headers["x-truncated-inputs"] = ", ".join(map(str, numbers[:LISTED])) + more

    def model(self, method: str, name: str = "") -> ServedModel:
        """Return the model named by the path, else by the request, else the first that has the method."""
        return self.service.models.find(self.name or name, method)

    async def compute(
        self, served: ServedModel, method: str, items: Sequence[tuple[object, ...]], **options: object
    ) -> list[Any]:
        """Return the results of a model's method for the items, in their order."""
        self.check_size(items)
        if not items:
            return []
        work = ModelCall(served, method, tuple(sorted(options.items())), len(items[0]))
        costs = [_characters(item) for item in items]
        if options.get("way") in ("masked", "word"):
            costs = [cost * max(1, cost // 16) for cost in costs]  # these compute one row per token
        future = self.service.batcher.submit(work, items, costs, self.service.limits.seconds)
        return await self.answer(served, asyncio.wrap_future(future))

    async def answer(self, served: ServedModel, results: Awaitable[Result]) -> Result:
        """Return the awaited result. Turn errors of this library into refusals that show no paths of this machine."""
        try:
            return await results
        except OrdsmedError as error:
            raise Refusal.of(error, served.hidden) from None

    def write(
        self,
        served: ServedModel,
        prompts: Sequence[Prompt],
        options: SamplingOptions,
        alternatives: int | None = None,
        *,
        echoed: bool = False,
    ) -> PendingTexts:
        """Start generating `options.samples` texts for each prompt. Return the request, which yields their pieces.

        With `alternatives`, each token comes with its log-probability and those of that many most probable tokens;
        with `echoed`, the tokens of the prompt too.
        """
        limits, count = self.service.limits, len(prompts) * options.samples
        self.check_size([(prompt,) for prompt in prompts for _ in range(options.samples)])
        if options.tokens > limits.tokens or options.tokens * count > 16 * limits.tokens:
            wanted = f"at most {limits.tokens:,} per text and {16 * limits.tokens:,} in total"
            raise Refusal("large", f"found {options.tokens * count:,} new tokens", wanted)
        request = PendingTexts(count, limits.seconds)
        writer = served.writer
        if writer is None:
            if alternatives is not None:
                raise Refusal("cannot", "a model that fills masks gives no log-probabilities", "a causal model")
            filling = FillingWriter(writing(served.model.trained), [*map(str, prompts)], options, request)
            self.service.batcher.add(filling, count)
            return request
        try:
            rows = [row for prompt in prompts for row in _rows(writer.network, options, prompt)]
        except OrdsmedError as error:
            raise Refusal.of(error, served.hidden) from None
        if (longest := max(len(row.ids) for row in rows)) > writer.network.longest:
            wanted = f"at most {writer.network.longest:,}, the model's window"
            raise Refusal("invalid", f"found a prompt of {longest:,} tokens", wanted, "send its end")
        entries = [RowInProgress(row, number, request) for number, row in enumerate(rows)]
        for row in rows:
            row.alternatives, row.echoed = alternatives, echoed and alternatives is not None
        self.service.batcher.add(writer, count, lambda: writer.waiting.extend(entries))
        return request

    def check_size(self, items: Sequence[tuple[object, ...]]) -> None:
        """Refuse an empty request, too many texts, and too many characters."""
        limits = self.service.limits
        if not items:
            raise Refusal("invalid", "an empty batch", "at least one text")
        if len(items) > min(limits.items, self.service.batcher.limits.queue):
            raise Refusal(
                "large", f"found {many(len(items), 'text')}", f"at most {limits.items:,}", "send them in parts"
            )
        characters = sum(map(_characters, items))
        if characters > limits.characters:
            wanted = f"at most {limits.characters:,}"
            raise Refusal("large", f"found {many(characters, 'character')}", wanted, "send them in parts")


@dataclass(frozen=True)
class Endpoint:
    """A path, with the function that answers it and the types of its request and answer."""

    path: str
    does: str  # one line of description
    run: Callable[[ServedCall], Awaitable[object]]
    request: object = None  # the type of the body; None: a GET endpoint
    answer: object = None  # the type of the answer, for OpenAPI
    needs: str = ""  # the method that a model must have
    public: bool = False  # whether it is answered without a token, and while the server stops

    @property
    def verb(self) -> str:
        return "GET" if self.request is None else "POST"

    @functools.cached_property
    def _decoder(self) -> msgspec.json.Decoder[object]:
        return msgspec.json.Decoder(self.request)

    def read(self, body: bytes) -> object:
        """Decode the body as the endpoint's type, or refuse it with the location of the error.

        A null field counts as missing: clients send null for parameters that the user did not set.
        """
        if self.request is None:
            return None
        try:
            if b"null" in body:
                body = msgspec.json.encode(_without_nulls(msgspec.json.decode(body)))
            return self._decoder.decode(body)
        except msgspec.ValidationError as error:
            raise _mismatch(str(error), self.request) from None
        except RecursionError:
            raise Refusal("invalid", "JSON that is nested too deeply", "the documented form of the request") from None
        except ValueError as error:
            raise Refusal("invalid", f"not JSON: {error}", "a JSON object") from None


@dataclass(frozen=True)
class ServedProtocol:
    """A protocol: its endpoints, and the function that writes refusals in its form."""

    name: str
    endpoints: tuple[Endpoint, ...]
    failure: Callable[[Refusal], ErrorForm]


def texts_of(value: str | Sequence[Any], location: str) -> list[str]:
    """Return the texts as a list. Refuse elements that are not text; errors name `location`, a field of the request."""
    texts = [value] if isinstance(value, str) else list(value)
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise Refusal("invalid", f"found {type(text).__name__}", "a text", place=f"{location}[{number}]")
    return texts


def prompts_of(served: ServedModel, value: str | Sequence[Any], location: str) -> list[Prompt]:
    """Return the prompts, texts or lists of token ids, as a list. Refuse ids that the tokenizer does not have."""
    if not isinstance(value, str) and value and all(isinstance(number, int) for number in value):
        value = [value]
    prompts = [value] if isinstance(value, str) else list(value)
    for number, prompt in enumerate(prompts):
        if not isinstance(prompt, str):
            _check_tokens(served, prompt, f"{location}[{number}]")
    return prompts


def _check_tokens(served: ServedModel, ids: object, location: str) -> None:
    vocabulary = served.model.trained.tokenizer.vocabulary
    if not isinstance(ids, list) or not all(isinstance(number, int) for number in ids):
        raise Refusal("invalid", f"found {type(ids).__name__}", "a text, or a list of token ids", place=location)
    if any(not 0 <= number < vocabulary for number in ids):
        wanted = f"ids from 0 to {vocabulary - 1:,}"
        raise Refusal("invalid", "found token ids of another tokenizer", wanted, "send texts", location)


def texts_of_tokens(served: ServedModel, value: str | Sequence[Any], location: str) -> list[str]:
    """Return the texts as a list, with lists of token ids decoded."""
    return [
        prompt if isinstance(prompt, str) else _text_of(served, prompt, f"{location}[{number}]")
        for number, prompt in enumerate(prompts_of(served, value, location))
    ]


def _text_of(served: ServedModel, ids: list[int], location: str) -> str:
    """Decode token ids. Refuse ids that differ from those of the decoded text."""
    tokenizer = served.model.trained.tokenizer
    text = tokenizer.decode(ids)
    plain = [number for number in ids if number not in tokenizer.special]
    if tokenizer.encode(text) != plain:
        problem = "found token ids that differ from those of the decoded text"
        raise Refusal("invalid", problem, "the ids of complete texts", "send texts", location)
    return text


def _rows(network: WritingNetwork, options: SamplingOptions, prompt: Prompt) -> list[TextRow]:
    """Return a row to generate for each sample. No special token is put before token ids."""
    if isinstance(prompt, str):
        return rows_of(network, options, prompt)
    if not prompt:
        raise Refusal("invalid", "found an empty list of tokens", "at least one token", place="prompt")
    return rows_of_ids(options, network.trained.tokenizer.decode(prompt, skip_special=False), prompt)


def _characters(item: object) -> int:
    """Return the number of characters in an item, plus one for each text."""
    if isinstance(item, str):
        return len(item) + 1
    return sum(map(_characters, item)) if isinstance(item, tuple | list) else 0


def _without_nulls(value: object) -> object:
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [_without_nulls(inner) for inner in value] if isinstance(value, list) else value


def _mismatch(message: str, request: object) -> Refusal:
    problem, _, location = message.partition(" - at ")
    location = location.strip("`")
    field_name = re.fullmatch(r"Object contains unknown field `(.*)`", problem)
    if field_name is None:
        return Refusal("invalid", problem[:1].lower() + problem[1:], place=location or "$")
    fields = getattr(request, "__struct_fields__", ())
    return Refusal(
        "invalid", f"unknown field `{field_name[1][:80]}`", "", meant(field_name[1], fields), location or "$"
    )
