"""Load on `ordsmed serve`, in turn with pipelines of transformers behind the same framework, with batches padded.

    PYTHONPATH=src python tests/measure/serve_load.py FOLDER [--clients 64] [--requests 192] [--rounds 2]

FOLDER is made if it is not there: a BERT of this shape with random weights, as a Hugging Face folder. Texts are those
of `ordsmed bench serve`, or lines of --texts FILE; both servers are open all the time and asked one after the other.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np

from ordsmed.measure.bench.serving import PIECES, WORDS, load, sentences, started

GATHER = 0.005  # seconds in which the other server gathers requests
BATCH = 64


def make(folder: Path, width: int, layers: int) -> None:
    """A model of this shape; a vocabulary of the usual size, most of it never seen."""
    import torch
    from transformers import BertConfig, BertForMaskedLM, BertTokenizerFast

    folder.mkdir(parents=True)
    names = [*PIECES, *WORDS]
    names += [f"unused{n}" for n in range(30_522 - len(names))]
    (folder / "vocab.txt").write_text("\n".join(names) + "\n")
    torch.manual_seed(0)
    how = {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": max(1, width // 64)}
    BertForMaskedLM(BertConfig(vocab_size=30_522, intermediate_size=4 * width, **how)).save_pretrained(folder)
    BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)


def padded_server(folder: str, port: int, threads: int) -> None:
    """The other one: requests that came together are one batch of the pipeline."""
    import torch
    import uvicorn
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse
    from starlette.routing import Route
    from transformers import pipeline

    torch.set_num_threads(threads)
    fill = pipeline("fill-mask", model=folder, device="cpu", tokenizer_kwargs={"truncation": True})
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
    config = uvicorn.Config(app, port=port, log_level="warning")
    server = uvicorn.Server(config)

    async def serve() -> None:
        asyncio.get_running_loop().call_later(1, print, f"http://127.0.0.1:{port}: serving")
        await server.serve()

    asyncio.run(serve())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--requests", type=int, default=192)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--texts", help="a file, a text a line; a word of each is hidden")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--padded", type=int, default=0, help="(the other server, at this port)")
    args = parser.parse_args()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    if args.padded:
        padded_server(args.folder, args.padded, args.threads)
        return
    if not Path(args.folder).exists():
        make(Path(args.folder), args.width, args.layers)
    texts = Path(args.texts).read_text().splitlines() if args.texts else list(sentences(0, args.requests))
    draw = random.Random(1)
    chosen = draw.sample(texts, min(args.requests, len(texts)))
    bodies = [json.dumps({"inputs": f"{text} [MASK]"}).encode() for text in chosen]
    threads = ["--threads", str(args.threads)]
    padded = [sys.executable, __file__, args.folder, "--padded", "8732", *threads]
    ours = [sys.executable, "-m", "ordsmed", "serve", args.folder, "--port", "0", *threads]
    results: dict[str, list[dict[str, float]]] = {"padded": [], "ordsmed": []}
    with started(padded) as theirs, started(ours) as own:
        urls = {"padded": f"{theirs}/fill-mask", "ordsmed": f"{own}/fill-mask"}
        for url in urls.values():
            load(url, bodies[:8], 8, 60)
        for turn in range(args.rounds):
            for name in [*urls][:: 1 if turn % 2 else -1]:
                found = load(urls[name], bodies, args.clients, 600)
                line = {"requests_per_second": found.rate, "p50_ms": found.milliseconds(50)}
                results[name].append(line | {"p99_ms": found.milliseconds(99), "lost": sum(found.statuses.values())})
                print(json.dumps({"server": name, **results[name][-1]}), flush=True)
    mean = {name: {key: float(np.mean([r[key] for r in rows])) for key in rows[0]} for name, rows in results.items()}
    ratio = mean["ordsmed"]["requests_per_second"] / mean["padded"]["requests_per_second"]
    print(json.dumps({"rate": round(ratio, 2), "p99": round(mean["ordsmed"]["p99_ms"] / mean["padded"]["p99_ms"], 2)}))


if __name__ == "__main__":
    main()
