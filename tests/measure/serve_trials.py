"""Trials of a served model that take minutes, each a word: what is printed is a line of JSON.

PYTHONPATH=src python tests/measure/serve_trials.py overload FOLDER [--seconds 60]   # 10 x what it can; memory
PYTHONPATH=src python tests/measure/serve_trials.py hostile FOLDER [--requests 1000] # bodies that are no requests
PYTHONPATH=src python tests/measure/serve_trials.py ending FOLDER                    # TERM under load
PYTHONPATH=src python tests/measure/serve_trials.py minicons FOLDER --texts FILE     # /score masked, in turn with it
PYTHONPATH=src python tests/measure/serve_trials.py streams FOLDER                   # of openai's client, 16 and one
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ordsmed.measure.bench.serving import load, sentences, started

THREADS = str(len(os.sched_getaffinity(0)))


def command(folder: str, *words: str) -> list[str]:
    return [sys.executable, "-m", "ordsmed", "serve", f"model={folder}", "--port", "0", "--threads", THREADS, *words]


def memory_of(url: str) -> int:
    """Of the process that listens there, in KiB."""
    port = f"{int(url.rpartition(':')[2]):04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    inode = next(row[9] for row in rows if row[1].endswith(f":{port}") and row[3] == "0A")
    for place in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if os.readlink(place) == f"socket:[{inode}]":
                status = (place.parents[1] / "status").read_text()
                return int(re.findall(r"VmRSS:\s+(\d+)", status)[0])
        except OSError:
            continue
    raise LookupError(port)


def overload(args: argparse.Namespace) -> dict[str, Any]:
    """As many clients as ten times the queue holds, for a minute more than the one after which memory is read."""
    bodies = [json.dumps({"texts": [f"{text} [MASK]"]}).encode() for text in sentences(19, 500)]
    memory: list[tuple[float, int]] = []
    over = threading.Event()
    with started(command(args.folder, "--queue", "20")) as url:

        def watch() -> None:
            began = time.monotonic()
            while not over.wait(2):
                memory.append((time.monotonic() - began, memory_of(url)))

        watcher = threading.Thread(target=watch)
        watcher.start()
        result = load(f"{url}/model/api/fill", itertools.cycle(bodies), 200, args.seconds)
        over.set()
        watcher.join()
        well = load(f"{url}/model/api/fill", bodies[:4], 1, 60)
    half = [size for moment, size in memory if moment > args.seconds / 2]
    return {
        "answered": len(result.latencies),
        **result.statuses,
        "next": len(well.latencies),
        "p99_ms": round(result.milliseconds(99)),
        "mib": [round(size / 1024) for _, size in memory][:: max(1, len(memory) // 8)],
        "growth_of_the_second_half": round(max(half) / half[0] - 1, 4),
    }


def hostile_bodies(count: int) -> list[bytes]:
    """Cut, nested, huge, of wrong types and lengths, not UTF-8: from what would have been right."""
    draw = random.Random(0)
    right: list[dict[str, Any]] = [
        {"texts": ["a b [MASK]"]},
        {"inputs": "a b [MASK]"},
        {"input": ["a"], "model": "model"},
        {"prompt": "a"},
        {"pairs": [{"good": "a", "bad": "b"}]},
        {"questions": ["a"], "contexts": ["b"]},
        {"ids": [[1, 2]]},
        {"query": "a", "texts": ["b"]},
        {"inputs": {"question": "a", "context": "b"}},
        {"sentences": ["a"]},
    ]
    values: list[Any] = [
        None,
        -1,
        1e308,
        True,
        [],
        {},
        [[]],
        [None],
        "",
        "\0",
        "\ud800",
        [1] * 5_000,
        {"a": {}},
        "x" * 300_000,
        [["a"] * 3],
        2**70,
        [float("nan")],
        float("inf"),
        ["a", 1],
        [-1],
    ]
    bodies = []
    for number in range(count):
        body = json.loads(json.dumps(draw.choice(right)))
        text = json.dumps(body).encode()
        kind = number % 6
        if kind == 0:
            bodies.append(text[: draw.randrange(len(text))])
        elif kind == 1:
            body[draw.choice([*body])] = draw.choice(values)
            bodies.append(json.dumps(body).encode())
        elif kind == 2:
            body[draw.choice(["nonsense", "way", "model", "parameters", "max_tokens", "steps"])] = draw.choice(values)
            bodies.append(json.dumps(body).encode())
        elif kind == 3:
            place = draw.randrange(len(text))
            bodies.append(text[:place] + bytes([draw.randrange(256)]) + text[place + 1 :])
        elif kind == 4:
            opening = draw.choice([b"[", b'{"inputs":', b'[{"texts":'])
            bodies.append(opening * 10_000)
        else:
            bodies.append(draw.choice([b"NaN", b"1" * 5_000, b"\xff\xfe", b"null", b'{"inputs": NaN}', b"[" + text]))
    return bodies


def hostile(args: argparse.Namespace) -> dict[str, Any]:
    statuses: Counter[str] = Counter()
    with started(command(args.folder)) as url:
        place = url.removeprefix("http://")
        connection = http.client.HTTPConnection(place, timeout=60)

        def ask(path: str, body: bytes | None = None) -> tuple[int, bytes]:
            connection.request("POST" if body is not None else "GET", path, body)
            answer = connection.getresponse()
            return answer.status, answer.read()

        described = json.loads(ask("/openapi.json")[1])["paths"]
        paths = [path.replace("{task}", "fill-mask") for path, operations in described.items() if "post" in operations]
        slow = [socket.create_connection(place.split(":")) for _ in range(20)]  # half a head, and no more
        for client in slow:
            client.sendall(b"POST /model/api/fill HTTP/1.1\r\nHo")
        for number, body in enumerate(hostile_bodies(args.requests)):
            statuses[str(ask(paths[number % len(paths)], body)[0])] += 1
        try:
            statuses[str(ask("/model/api/fill", b'{"texts": "' + b"a" * (50 << 20) + b'"}')[0])] += 1
        except OSError:  # refused before all of it was sent
            statuses["closed"] += 1
            connection.close()
        began = time.perf_counter()
        status, _ = ask("/model/api/fill", json.dumps({"texts": ["a [MASK]"]}).encode())
        return {**statuses, "next": status, "next_ms": round((time.perf_counter() - began) * 1e3)}


def ending(args: argparse.Namespace) -> dict[str, Any]:
    """All requests that were sent before it closed are answered."""
    bodies = [json.dumps({"texts": [f"{text} [MASK]"]}).encode() for text in sentences(19, 300)]
    with tempfile.TemporaryFile("w+") as log:
        server = subprocess.Popen(command(args.folder), stderr=log)
        url = ""
        while not url:
            time.sleep(0.2)
            log.seek(0)
            url = next(iter(re.findall(r"http://\S+(?=: serving)", log.read())), "")
        threading.Timer(5, server.send_signal, [signal.SIGTERM]).start()
        result = load(f"{url}/model/api/fill", itertools.cycle(bodies), 64, 8)
        return {"answered": len(result.latencies), **result.statuses, "status": server.wait(60)}


def minicons(args: argparse.Namespace) -> dict[str, Any]:
    """Masked, each token hidden by itself; in one run, texts by texts."""
    import torch
    from transformers import PreTrainedTokenizerBase

    if not hasattr(PreTrainedTokenizerBase, "batch_encode_plus"):  # which minicons 0.3 calls
        PreTrainedTokenizerBase.batch_encode_plus = PreTrainedTokenizerBase.__call__  # type: ignore[attr-defined]
    from minicons.scorer import MaskedLMScorer

    torch.set_num_threads(int(THREADS))
    texts = [line for line in Path(args.texts).read_text().splitlines() if line.strip()][: args.requests]
    model = MaskedLMScorer(args.folder, "cpu")
    spent, sums = {"minicons": 0.0, "ordsmed": 0.0}, [list[float](), list[float]()]
    with started(command(args.folder, "--precision", args.precision)) as url:
        connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=600)
        for at in range(0, len(texts), 8):  # of more at once its scores of all words fill the memory
            some = texts[at : at + 8]
            began = time.perf_counter()
            sums[0] += model.sequence_score(some, reduction=lambda logs: logs.double().sum().item())
            spent["minicons"] += time.perf_counter() - began
            began = time.perf_counter()
            connection.request("POST", "/model/score", json.dumps({"texts": some, "way": "masked"}))
            [answer] = json.loads(connection.getresponse().read())
            spent["ordsmed"] += time.perf_counter() - began
            sums[1] += [scored["log_likelihood"] for scored in answer["scores"]]
    apart = max(abs(a - b) for a, b in zip(*sums, strict=True))
    return {
        **{name: round(s, 2) for name, s in spent.items()},
        "texts": len(texts),
        "apart": apart,
        "ratio": round(spent["minicons"] / spent["ordsmed"], 2),
    }


def streams(args: argparse.Namespace) -> dict[str, Any]:
    """Texts that openai's client reads as server-sent events, an event a token: one stream, 16 at once, one again."""
    import openai

    prompts = [*sentences(16, 16)]

    def read(client: openai.OpenAI, prompt: str) -> int:
        pieces = client.completions.create(
            model="model", prompt=prompt, max_tokens=args.tokens, stream=True, seed=1, logprobs=0
        )
        return sum(len(piece.choices[0].logprobs.tokens) for piece in pieces if piece.choices[0].logprobs)

    server = started(command(args.folder, "--timeout", "900"))
    with server as url, openai.OpenAI(base_url=f"{url}/v1", api_key="none", timeout=900) as client:
        read(client, prompts[0])
        rates = []
        for count in (1, 16, 1):
            began = time.perf_counter()
            with ThreadPoolExecutor(count) as pool:
                read_tokens = sum(pool.map(lambda prompt: read(client, prompt), prompts[:count]))
            rates.append(read_tokens / (time.perf_counter() - began))
    alone = (rates[0] + rates[2]) / 2
    return {"tokens_per_second": [round(rate, 1) for rate in rates], "ratio": round(rates[1] / alone, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trial", choices=["overload", "hostile", "ending", "minicons", "streams"])
    parser.add_argument("folder")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--precision", default="fp32", help="of minicons' trial, ours alone")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--tokens", type=int, default=48, help="of a stream")
    parser.add_argument("--texts")
    args = parser.parse_args()
    trials = {"overload": overload, "hostile": hostile, "ending": ending, "minicons": minicons, "streams": streams}
    print(json.dumps(trials[args.trial](args)))


if __name__ == "__main__":
    main()
