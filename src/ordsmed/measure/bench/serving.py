"""Load test of a served model: latencies and requests per second by number of clients and text length.

a model, or a random one of the recipe's sizes -> `ordsmed serve`, or a running server -> concurrent clients -> a table

Each cell is limited by a number of requests and a duration, and starts with a few requests that are not counted.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np

from ordsmed.base import files
from ordsmed.base.errors import RunError, meant
from ordsmed.base.launch.local import end_with_parent
from ordsmed.base.say import many, say
from ordsmed.base.screen import markdown
from ordsmed.measure.bench.measurement import versions
from ordsmed.measure.bench.recipe import Bench
from ordsmed.measure.bench.table import place_of, store

PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<|endoftext|>")
COMMON = (
    "a about after all also an and any as at back be but by can come could day do even first for from get give go good "
    "have he her him his how i if in into it its just know like look make man may me more most my new no not now of on "
    "one only or other our out over people say see she so some take than that the their them then there these they "
    "this time to two up us use want was water way we well what when which who will with work world would year you"
)
WORDS = COMMON.split()
OPENED = 600.0  # seconds to wait for a server to open its model
WARM = 4  # uncounted requests at the start of a cell
SHARES = (50, 90, 99)
REQUESTS: dict[str, Callable[[str, int], dict[str, Any]]] = {  # method -> request body for a text
    "embed": lambda text, _: {"texts": [text], "of": "sentences"},
    "fill": lambda text, _: {"texts": [f"{text} [MASK]"]},
    "score": lambda text, _: {"texts": [text]},
    "generate": lambda text, tokens: {"texts": [text], "tokens": tokens, "seed": len(text)},
    "classify": lambda text, _: {"texts": [text]},
    "tag": lambda text, _: {"sentences": [text]},
    "answer": lambda text, _: {"questions": ["what is it?"], "contexts": [text]},
}


@dataclass(frozen=True)
class LoadResult:
    seconds: float  # time from the first request to the last answer
    latencies: list[float] = field(default_factory=list)  # seconds of each successful request
    statuses: dict[str, int] = field(default_factory=dict)  # counts of other results

    @property
    def rate(self) -> float:
        return len(self.latencies) / self.seconds

    def milliseconds(self, share: int) -> float:
        return float(np.percentile(self.latencies, share, method="inverted_cdf")) * 1e3


def measure_serving(name: str, recipe: Bench, *, json_line: bool) -> list[str]:
    """Measure latency and throughput for every combination of text length and number of clients.

    Store the table, unless the recipe's `keep` is empty. Return it as lines to print, or as one line of JSON.
    """
    rows = []
    with _server(recipe) as url:
        facts = _facts(url)
        method = recipe.ask or facts["can"][0]
        if method not in facts["can"]:
            raise RunError("ask", f"found {method}", " or ".join(facts["can"]), meant(method, facts["can"]))
        for length, clients in itertools.product(recipe.words, recipe.clients):
            say(f"{name}: {method}, {length or 'mixed'} words, {many(clients, 'client')}")
            rows.append(_cell(url, method, length, clients, recipe))
    table = {
        "bench": name,
        "measure": "serve",
        "model": facts["name"],
        "family": facts["family"],
        "ask": method,
        "url": recipe.url,
        **versions(),
        "rows": rows,
    }
    if recipe.keep:
        store(place_of(name), table, lines(table))
    return [json.dumps(table)] if json_line else lines(table)


def lines(table: dict[str, Any]) -> list[str]:
    names = {
        "words": "words",
        "tokens": "tokens",
        "clients": "clients",
        "requests_per_second": "req/s",
        "tokens_per_second": "tok/s",
        "p50_ms": "p50 ms",
        "p90_ms": "p90 ms",
        "p99_ms": "p99 ms",
        "beside_ms": "+ms",
        "unanswered": "failed",
    }
    shown = [key for key in names if any(row.get(key) not in (None, 0) for row in table["rows"])]
    rows = [["-" if row.get(key) is None else row[key] for key in shown] for row in table["rows"]]
    return [
        f"{table['model']} ({table['family']}): {table['ask']}; +ms: time of a single client outside the model",
        *markdown([names[key] for key in shown], rows, padded=True),
    ]


def _cell(url: str, method: str, length: int, clients: int, recipe: Bench) -> dict[str, Any]:
    texts = [*sentences(length, recipe.requests)]
    bodies = [json.dumps(REQUESTS[method](text, recipe.written)).encode() for text in texts]
    address = f"{url}/score" if method == "score" else f"{url}/api/{method}"
    load(address, bodies[:WARM], min(clients, WARM), recipe.seconds)
    model_seconds_before = _model_seconds(url)
    result = load(address, bodies, clients, recipe.seconds)
    if not result.latencies:
        raise RunError(url, f"answered none of {method}: {result.statuses}", "at least one answer")
    computed = _model_seconds(url) - model_seconds_before
    row: dict[str, Any] = {"words": length or "mixed", "tokens": _tokens(url, texts), "clients": clients}
    row["requests_per_second"] = round(result.rate, 1)
    if method == "generate":
        row["tokens_per_second"] = round(result.rate * recipe.written, 1)
    row |= {f"p{share}_ms": round(result.milliseconds(share), 1) for share in SHARES}
    if clients == 1 and method != "generate":
        row["beside_ms"] = round((sum(result.latencies) - computed) / len(result.latencies) * 1e3, 2)
    return row | {"requests": len(result.latencies), "unanswered": sum(result.statuses.values()), **result.statuses}


def sentences(length: int, count: int) -> Iterator[str]:
    """Yield texts of `length` words; 0: two of three like sentences of SST-2, one like a context of SQuAD."""
    draw = random.Random(length)
    for number in range(count):
        mean, deviation = (19, 9) if number % 3 else (120, 50)
        size = length or max(4, min(250, round(draw.gauss(mean, deviation))))
        yield " ".join(draw.choices(WORDS, k=size))


def load(address: str, bodies: Iterable[bytes], clients: int, seconds: float) -> LoadResult:
    """Send requests from `clients` threads with persistent connections, until all are sent or the time is over."""
    location, remaining, end = urllib.parse.urlsplit(address), iter(bodies), time.perf_counter() + seconds
    lock, latencies, statuses = threading.Lock(), list[float](), dict[str, int]()

    def ask(connection: http.client.HTTPConnection, body: bytes) -> None:
        began = time.perf_counter()
        try:
            connection.request("POST", location.path, body)
            answer = connection.getresponse()
            answer.read()
            status = str(answer.status)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            status = "refused" if isinstance(error, ConnectionRefusedError) else "lost"
        with lock:
            if status == "200":
                latencies.append(time.perf_counter() - began)
            else:
                statuses[status] = statuses.get(status, 0) + 1

    def client(_: int) -> None:
        with contextlib.closing(http.client.HTTPConnection(location.netloc, timeout=OPENED)) as connection:
            while time.perf_counter() < end:
                with lock:
                    body = next(remaining, None)
                if body is None:
                    return
                ask(connection, body)

    began = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        list(pool.map(client, range(clients)))
    return LoadResult(time.perf_counter() - began, latencies, statuses)


def _facts(url: str) -> dict[str, Any]:
    [facts, *_] = json.loads(_get(f"{url}/"))["models"]
    return dict(facts)


def _tokens(url: str, texts: Sequence[str]) -> float | None:
    body = json.dumps({"inputs": list(texts[:100])}).encode()
    with contextlib.suppress(RunError):
        return round(float(np.mean([len(row) for row in json.loads(_get(f"{url}/tokenize", body))])), 1)
    return None


def _model_seconds(url: str) -> float:
    location = urllib.parse.urlsplit(url)
    text = _get(f"{location.scheme}://{location.netloc}/metrics").decode()
    match = re.search(r"^ordsmed_batch_seconds_total (\S+)$", text, re.MULTILINE)
    return float(match[1]) if match else 0.0


def _get(address: str, body: bytes | None = None) -> bytes:
    location = urllib.parse.urlsplit(address)
    try:
        with contextlib.closing(http.client.HTTPConnection(location.netloc, timeout=60)) as connection:
            connection.request("POST" if body else "GET", location.path or "/", body)
            answer = connection.getresponse()
            content = answer.read()
    except (OSError, http.client.HTTPException) as error:
        raise RunError(address, f"cannot be reached: {error}", "a server of `ordsmed serve`") from None
    if answer.status != 200:
        raise RunError(address, f"answered {answer.status}", "a server of `ordsmed serve`, without a token")
    return content


@contextlib.contextmanager
def _server(recipe: Bench) -> Iterator[str]:
    """Yield the address of the model, on a running server or one that is started for it."""
    if recipe.url:
        yield recipe.url.rstrip("/")
        return
    with tempfile.TemporaryDirectory() as folder:
        name = recipe.init or str(_random_model(recipe, Path(folder) / "made-up"))
        words = [] if not recipe.layout.threads else ["--threads", str(recipe.layout.threads)]
        if recipe.layout.precision != "auto":
            words += ["--precision", recipe.layout.precision]
        with started([sys.executable, "-m", "ordsmed", "serve", f"model={name}", "--port", "0", *words]) as url:
            yield f"{url}/model"


@contextlib.contextmanager
def started(command: Sequence[str]) -> Iterator[str]:
    """Start a server, yield the address from its line `http://...: serving`, and stop it afterwards."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        process = subprocess.Popen(command, stderr=output, stdout=output, preexec_fn=end_with_parent)
        try:
            yield _address(process, output)
        finally:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()


def _address(process: subprocess.Popen[bytes], output: IO[str]) -> str:
    deadline = time.monotonic() + OPENED
    while time.monotonic() < deadline:
        ended = process.poll() is not None
        output.seek(0)
        text = output.read()
        if match := re.search(r"^http://\S+(?=: serving)", text, re.MULTILINE):
            return match[0]
        if ended:
            line = ([line for line in text.splitlines() if line.strip()] or ["no output"])[-1]
            raise RunError("serve", f"the server ended: {line.removeprefix('ordsmed: ')}")
        time.sleep(0.1)
    raise RunError("serve", f"the server printed no address within {OPENED:g} seconds")


def _random_model(recipe: Bench, folder: Path) -> Path:
    """Write a model of the recipe's sizes with random weights and a small vocabulary of words."""
    from ordsmed.base import settings
    from ordsmed.base.folder import SETTINGS, TOKENIZER, WEIGHTS
    from ordsmed.learn.objective import fresh
    from ordsmed.nn.model import own_tensors
    from ordsmed.text.tokenizer import Tokenizer
    from ordsmed.weights import weights
    from ordsmed.weights.foreign import Networks

    folder.mkdir()
    known = (*PIECES, *WORDS)
    pieces = [*known, *(f"unused{n}" for n in range(recipe.vocabulary - len(known)))]
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    tokenizer = Tokenizer.load(folder / "vocab.txt")
    weights.write(folder / WEIGHTS, own_tensors(fresh(recipe.objective, recipe.model, tokenizer, 0)))
    files.write_text(folder / SETTINGS, settings.write(Networks(model=recipe.model, objective=recipe.objective)))
    tokenizer.save(folder / TOKENIZER)
    return folder
