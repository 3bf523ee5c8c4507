"""Load on `ordsmed serve`, next to pipelines of transformers behind the same framework, with batches padded.

    PYTHONPATH=src python tests/measure/serve_load.py FOLDER [--width 768 --layers 12] [--clients 64] [--requests 256]

FOLDER is made if it is not there: a BERT of this shape with random weights, as a Hugging Face folder. Texts have 4 to
200 words, lengths as of sentences and of paragraphs, one mask each. Both servers are processes of their own, asked one
after the other by the same clients; requests are bounded in number.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import os
import random
import re
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

WORDS = [f"w{n}" for n in range(2_000)]
GATHER = 0.005  # seconds in which the other server gathers requests
BATCH = 64


def make(folder: Path, width: int, layers: int) -> None:
    """A model of this shape; a vocabulary of the usual size, most of it never seen."""
    import torch
    from transformers import BertConfig, BertForMaskedLM, BertTokenizerFast

    folder.mkdir(parents=True)
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *(f"unused{n}" for n in range(30_522 - 2_005))]
    (folder / "vocab.txt").write_text("\n".join(names) + "\n")
    torch.manual_seed(0)
    how = {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": max(1, width // 64)}
    config = BertConfig(vocab_size=30_522, intermediate_size=4 * width, **how)
    BertForMaskedLM(config).save_pretrained(folder)
    BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)


def texts(count: int) -> list[str]:
    """Two of three as long as sentences (SST-2: 19 words), one as long as a paragraph (SQuAD: 120)."""
    draw = random.Random(0)
    sizes = [max(4, min(200, round(draw.gauss(*((19, 9) if n % 3 else (120, 50)))))) for n in range(count)]
    return [" ".join([*draw.choices(WORDS, k=size - 1), "[MASK]"]) for size in sizes]


def padded_server(folder: str, port: int, threads: int) -> None:
    """The other one: requests that came together are one batch of the pipeline."""
    import torch
    import uvicorn
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse
    from starlette.routing import Route
    from transformers import pipeline

    torch.set_num_threads(threads)
    fill = pipeline("fill-mask", model=folder, device="cpu")
    waiting: asyncio.Queue[Any] = asyncio.Queue()

    async def compute() -> None:
        while True:
            batch = [await waiting.get()]
            await asyncio.sleep(GATHER)
            while len(batch) < BATCH and not waiting.empty():
                batch.append(waiting.get_nowait())
            with torch.inference_mode():
                results = await asyncio.to_thread(fill, [text for text, _ in batch], batch_size=BATCH, top_k=5)
            results = results if len(batch) > 1 else [results]
            for (_, future), result in zip(batch, results, strict=True):
                future.set_result(result)

    tasks = []

    async def answer(request: Any) -> JSONResponse:
        if not tasks:
            tasks.append(asyncio.create_task(compute()))
        future = asyncio.get_running_loop().create_future()
        await waiting.put(((await request.json())["inputs"], future))
        return JSONResponse(await future)

    app = Starlette(routes=[Route("/fill-mask", answer, methods=["POST"])])
    print(f"http://127.0.0.1:{port}: serving", file=sys.stderr, flush=True)
    uvicorn.run(app, port=port, log_level="warning")


def load(port: int, bodies: list[bytes], clients: int) -> tuple[float, list[float]]:
    """Seconds of all requests, and of each."""
    lock, left, taken = threading.Lock(), list(bodies), list[float]()

    def client() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
        while True:
            with lock:
                if not left:
                    return
                body = left.pop()
            began = time.perf_counter()
            connection.request("POST", "/fill-mask", body)
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 200, answer.status
            taken.append(time.perf_counter() - began)

    began = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        for future in [pool.submit(client) for _ in range(clients)]:
            future.result()
    return time.perf_counter() - began, sorted(taken)


def measured(command: list[str], port: int, bodies: list[bytes], clients: int) -> dict[str, float]:
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr
        next(line for line in server.stderr if re.search("http://.*: serving", line))
        for _ in range(200):
            try:
                load(port, bodies[:4], 1)
                break
            except OSError:
                time.sleep(0.2)
        _, alone = load(port, bodies[:16], 1)
        seconds, taken = load(port, bodies, clients)
        server.terminate()
    return {
        "requests_per_second": len(bodies) / seconds, "p50": taken[len(taken) // 2],
        "p99": taken[min(len(taken) - 1, int(0.99 * len(taken)))], "alone": sum(alone) / len(alone),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--requests", type=int, default=256)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--padded", type=int, default=0, help="(the other server, at this port)")
    args = parser.parse_args()
    if args.padded:
        padded_server(args.folder, args.padded, args.threads)
        return
    if not Path(args.folder).exists():
        make(Path(args.folder), args.width, args.layers)
    bodies = [json.dumps({"inputs": text}).encode() for text in texts(args.requests)]
    threads = ["--threads", str(args.threads)]
    commands = {
        "ordsmed": [sys.executable, "-m", "ordsmed", "serve", args.folder, "--port", "8731", *threads],
        "padded": [sys.executable, __file__, args.folder, "--padded", "8732", *threads],
    }
    for name, port in (("padded", 8732), ("ordsmed", 8731)):
        print(json.dumps({"server": name, **measured(commands[name], port, bodies, args.clients)}), flush=True)


if __name__ == "__main__":
    main()
