"""Measure probes beside minicons and lm_eval on the same exported weights: scores, decisions and seconds.

    python tests/measure/judges.py pairs WAY FOLDER FILE... [--most PAIRS] [--threads N]
    python tests/measure/judges.py texts FOLDER wiki.valid.tokens lambada.jsonl

WAY is causal, masked or word; files are BLiMP's, unpacked. minicons is given a start sign where it reads from left to
right; lm_eval reads its own tasks' files with the data beside them. It puts a space before each sentence of BLiMP (its
`target_delimiter`), so its decisions are compared with ours of sentences with that space. Both must be installed:

    pip install --no-deps minicons lm_eval accelerate
    pip install datasets evaluate wonderwords more_itertools sacrebleu rouge-score word2number pytablewriter

Seconds are of this process's CPU, each in a process of its own, loading left out.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import re
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ordsmed.measure.evaluation.evaluate import ComputeOptions, evaluate
from ordsmed.measure.likelihood import ways
from ordsmed.measure.likelihood.detokenizers import wikitext as put_together
from ordsmed.measure.likelihood.items import Item
from ordsmed.measure.probes import bits, cloze, minimal_pairs
from ordsmed.weights.trained_model import open_model

KEYS = ("sentence_good", "sentence_bad")
BATCH = 32  # sentences that minicons is given at once
METRICS = {"masked": "original", "word": "within_word_l2r"}

Rows = list[dict[str, str]]


def read(files: Sequence[str], most: int) -> Rows:
    """Pairs of all files, of each the first so many; without those of equal sentences, which are ties."""
    lines = (line for file in files for line in Path(file).read_text("utf-8").splitlines()[: most or None])
    return [row for row in map(json.loads, lines) if row[KEYS[0]] != row[KEYS[1]]]


def by_minicons(way: str, folder: str, rows: Rows, threads: int) -> tuple[list[float], float]:
    """Both scores of each pair in turn, and seconds."""
    import torch
    from minicons import scorer
    from transformers import PreTrainedTokenizerBase

    torch.set_num_threads(threads)
    if not hasattr(PreTrainedTokenizerBase, "batch_encode_plus"):  # which newer transformers have no longer
        PreTrainedTokenizerBase.batch_encode_plus = PreTrainedTokenizerBase.__call__  # type: ignore[attr-defined]
    causal = way == "causal"
    model: Any = (scorer.IncrementalLMScorer if causal else scorer.MaskedLMScorer)(folder, "cpu")
    if model.tokenizer.pad_token is None:
        model.tokenizer.pad_token = model.tokenizer.eos_token
    more = {"bos_token": True} if causal else {"PLL_metric": METRICS[way]}
    texts = [row[key] for row in rows for key in KEYS]
    began, found = time.process_time(), []
    for at in range(0, len(texts), BATCH):
        found += model.sequence_score(texts[at : at + BATCH], reduction=lambda x: x.double().sum().item(), **more)
    return found, time.process_time() - began


def by_lm_eval(folder: str, tasks: list[dict[str, Any]]) -> dict[str, Any]:
    """Its own tasks, each with a local file in place of what it would load."""
    import lm_eval
    import yaml
    from lm_eval.tasks import TaskManager

    os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TQDM_DISABLE": "1"}
    own = Path(str(lm_eval.__file__)).parent / "tasks"
    with tempfile.TemporaryDirectory() as place:
        for task in tasks:
            local = {
                "include": str(own / task["of"]),
                "task": task["name"],
                "dataset_path": "json",
                "tag": [],
                "dataset_name": None,
                "dataset_kwargs": {"data_files": task["data"]},
            }
            local |= {f"{split}_split": None for split in ("training", "validation") if "test" in task["data"]}
            (Path(place) / f"{task['name']}.yaml").write_text(yaml.safe_dump(local))
        manager = TaskManager(include_path=place, include_defaults=False)
        result = lm_eval.simple_evaluate(
            "hf",
            model_args={"pretrained": folder, "dtype": "float32"},
            tasks=[task["name"] for task in tasks],
            batch_size=BATCH,
            device="cpu",
            task_manager=manager,
            bootstrap_iters=0,
            log_samples=True,
        )
    assert result is not None
    return dict(result)


def ours(way: str, folder: str, rows: Rows, threads: int, before: str = "") -> tuple[list[float], float]:
    """Of the same pairs, by the probe as `ordsmed evaluate` runs it."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "pairs.jsonl"
        path.write_text("".join(json.dumps({key: before + row[key] for key in KEYS}) + "\n" for row in rows))
        evaluate(
            [folder],
            [minimal_pairs.MinimalPairs((_first(path, place),), way)],
            out=place,
            means=ComputeOptions(threads=1),
        )
        began = time.process_time()
        [result] = evaluate(
            [folder], [minimal_pairs.MinimalPairs((str(path),), way)], out=place, means=ComputeOptions(threads=threads)
        )
    return [score for record in result.records for score in record.scores], time.process_time() - began


def _first(path: Path, place: str) -> str:
    """A file of few pairs, for what is loaded with the first."""
    few = Path(place) / "few.jsonl"
    few.write_text("".join(path.read_text().splitlines(keepends=True)[:8]))
    return str(few)


def apart(what: Any, *given: Any) -> Any:
    """In a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(what, given)


def told(name: str, rows: Rows, theirs: Sequence[float], own: Sequence[float]) -> None:
    """How many pairs are decided alike, and every one that is not."""
    pairs = list(zip(theirs[::2], theirs[1::2], own[::2], own[1::2], strict=True))
    other = [n for n, (a, b, c, d) in enumerate(pairs) if (a > b) != (c > d)]
    far = max(abs(a - b) for a, b in zip(theirs, own, strict=True))
    right = sum(c > d for _, _, c, d in pairs)
    print(
        f"{name}: {len(pairs):,} pairs, {len(pairs) - len(other):,} decided alike; furthest apart {far:.2g}; "
        f"{100 * right / len(pairs):.2f} % right"
    )
    for n in other:
        a, b, c, d = pairs[n]
        print(f"  {rows[n][KEYS[0]]!r} / {rows[n][KEYS[1]]!r}: theirs {a:.6f} {b:.6f}, ours {c:.6f} {d:.6f}")


def pairs(asked: argparse.Namespace) -> None:
    rows, name = read(asked.files, asked.most), f"{Path(asked.model).name} {asked.way}"
    theirs, long = apart(by_minicons, asked.way, asked.model, rows, asked.threads)
    own, short = apart(ours, asked.way, asked.model, rows, asked.threads)
    told(f"{name}, minicons", rows, theirs, own)
    print(f"  minicons {long:.1f} s, ours {short:.1f} s: {long / short:.1f} x")
    if asked.way != "causal":
        return
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "pairs.jsonl"
        path.write_text("".join(json.dumps({key: row[key] for key in KEYS}) + "\n" for row in rows))
        task = {"of": "blimp/_template_yaml", "name": "local_blimp", "data": {"train": str(path)}}
        found = apart(by_lm_eval, asked.model, [task])["samples"]["local_blimp"]
    found = sorted(found, key=lambda one: int(one["doc_id"]))
    theirs = [float(one["filtered_resps"][n][0]) for one in found for n in range(2)]
    told(f"{name}, lm_eval, a space before", rows, theirs, ours("causal", asked.model, rows, 1, before=" ")[0])
    same = sum((a > b) == (c > d) for a, b, c, d in zip(theirs[::2], theirs[1::2], own[::2], own[1::2], strict=True))
    print(f"  {same:,} decided alike without that space")


def texts(asked: argparse.Namespace) -> None:
    """LAMBADA's last words, and WikiText's pages one by one."""
    from lm_eval.tasks.wikitext.preprocess_wikitext import wikitext_detokenizer

    raw = Path(asked.wikitext).read_text("utf-8")
    pages = [page for page in re.split(r"(?m)^(?= = [^=].* = $)", raw) if page.strip()]
    rebuilt = [put_together(page) for page in pages]
    assert rebuilt == [wikitext_detokenizer({"page": page}) for page in pages]
    with tempfile.TemporaryDirectory() as place:
        given, plain = Path(place) / "pages.jsonl", Path(place) / "plain.jsonl"
        given.write_text("".join(json.dumps({"page": page}) + "\n" for page in pages))
        plain.write_text("".join(json.dumps({"text": page}) + "\n" for page in rebuilt))
        data = [
            ("wikitext/wikitext.yaml", "local_wikitext", {"test": str(given)}),
            ("lambada/lambada_openai.yaml", "local_lambada", {"test": str(asked.lambada)}),
        ]
        tasks = [{"of": of, "name": name, "data": files} for of, name, files in data]
        result = apart(by_lm_eval, asked.model, tasks)
        ends, last = evaluate(
            [asked.model],
            [bits.Bits((str(plain),)), cloze.Cloze((asked.lambada,))],
            out=place,
            means=ComputeOptions(threads=asked.threads),
        )
    _lambada(result["samples"]["local_lambada"], result["results"]["local_lambada"], last)
    theirs = [
        float(one["filtered_resps"][0])
        for one in sorted(result["samples"]["local_wikitext"], key=lambda one: int(one["doc_id"]))
    ]
    words, size = (sum(map(count, pages)) for count in (lambda x: len(re.split(r"\s+", x)), lambda x: len(x.encode())))
    nats = math.fsum(record.nats for record in ends.records)
    facts = result["results"]["local_wikitext"]
    print(
        f"WikiText: {len(pages)} pages; lm_eval word_perplexity {facts['word_perplexity,none']:.4f}, "
        f"bits_per_byte {facts['bits_per_byte,none']:.6f}; ours, counted by its words and bytes, "
        f"{math.exp(nats / words):.4f}, {nats / math.log(2) / size:.6f}"
    )
    own = as_they_cut(asked.model, rebuilt)
    print(
        f"  cut as it cuts, its last window of a page whole: {math.exp(-sum(own) / words):.4f}; of a page at most "
        f"{max(abs(a / b - 1) for a, b in zip(theirs, own, strict=True)):.1g} apart"
    )


def _lambada(samples: list[dict[str, Any]], facts: dict[str, Any], own: Any) -> None:
    """It takes for the last word what stands behind the last space, line breaks included."""
    samples = sorted(samples, key=lambda one: int(one["doc_id"]))
    found = [(float(one["filtered_resps"][0][0]), bool(one["filtered_resps"][0][1])) for one in samples]
    passages = [one["doc"]["text"] for one in samples]
    alike = [text.split(" ")[-1] == text.split()[-1] for text in passages]
    far = max(abs(log - row.log) for (log, _), row, same in zip(found, own.records, alike, strict=True) if same)
    same = sum(right == row.word for (_, right), row in zip(found, own.records, strict=True))
    print(
        f"LAMBADA: {same:,} of {len(found):,} decided alike, {sum(right for _, right in found):,} right; furthest "
        f"apart {far:.2g}; perplexity {facts['perplexity,none']:.6g}, ours "
        f"{own.finding.facts['word_perplexity']:.6g}"
    )
    for text, (log, _), row in zip(passages, found, own.records, strict=True):
        if text.split(" ")[-1] != text.split()[-1]:
            print(f"  another last word: {text.split(' ')[-1]!r}, {log:.4f}; ours {text.split()[-1]!r}, {row.log:.4f}")


def as_they_cut(folder: str, pages: list[str]) -> list[float]:
    """Our scores of the windows that lm_eval reads: the last one of a page is as long as the model's window."""
    from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

    scorer: Any = ways.scorer(open_model(folder), "causal")
    length, result = scorer.max_tokens - 1 + len(scorer.start_tokens), []
    for page in pages:
        ids = scorer.cut([page])[0].pieces.tolist()
        items = []
        for window in get_rolling_token_windows(ids, int(scorer.start_tokens[0]), length, 1):
            before, asked = make_disjoint_window(window)
            row = np.asarray([*before, *asked])
            items.append(Item(row, first=len(row) - len(asked), sign=False))
        result.append(math.fsum(one.total for one in scorer.scores(items)))
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    which = parser.add_subparsers(required=True)
    one = which.add_parser("pairs")
    one.add_argument("way", choices=["causal", "masked", "word"])
    one.add_argument("model")
    one.add_argument("files", nargs="+")
    one.add_argument("--most", type=int, default=0, help="pairs of each file")
    one.set_defaults(go=pairs)
    two = which.add_parser("texts")
    for name in ("model", "wikitext", "lambada"):
        two.add_argument(name)
    two.set_defaults(go=texts)
    for each in (one, two):
        each.add_argument("--threads", type=int, default=1)
    asked = parser.parse_args()
    asked.go(asked)


if __name__ == "__main__":
    main()
