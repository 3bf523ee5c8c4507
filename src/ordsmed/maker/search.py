"""A search engine for a corpus, which `make --for search` builds once the language model is trained.

corpus -> pairs/train, dev, test.jsonl -> dense/ (vectors)  -> pairs/cross.jsonl -> cross/ (scores of two texts)
dev pairs -> the weight of vectors in a combined search, and whether the cross-encoder is used
test/: held-out passages and questions -> how often the right passage is found
index/ of all texts; sentence-transformers/, cross-encoder/ as exports
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from ordsmed.api import searching, training
from ordsmed.base import files, settings
from ordsmed.base.run import Run
from ordsmed.base.say import duration, many, say
from ordsmed.base.screen import command, command_lines, table
from ordsmed.corpus.folder import parts
from ordsmed.corpus.pairs import Pairing, write_pairs
from ordsmed.learn.score.ranking import MEASURES, measures
from ordsmed.maker.closing import against_guessing, corpus_of
from ordsmed.maker.request import MakeRequest
from ordsmed.maker.runner import Clock, Stage
from ordsmed.tell.report import report
from ordsmed.train.meters import read as read_metrics
from ordsmed.use.index.choice import Rescoring, SearchChoice, SearchTrial
from ordsmed.use.index.open_index import DEPTH, OpenIndex
from ordsmed.use.index.passages import read_as
from ordsmed.use.index.rerank import Reranker
from ordsmed.use.index.search_output import lines as hit_lines
from ordsmed.weights.export import export

Pair = dict[str, str]
MINED_FROM = 20_000  # pairs for which wrong answers are searched
TESTED = 300  # most questions of the test
AMONG = 2_000  # most passages that are searched
RERANKED = 20  # passages per question that the cross-encoder reranks
UNTRAINED, CHOSEN_BY = "vectors, before pairs", "mrr@10"
BY = {  # kind of search, and whether the cross-encoder reranks
    ("words", False): "words (BM25)",
    ("dense", False): "vectors",
    ("both", False): "both",
    ("both", True): "both, reranked",
}
ASKED = 8  # preferred words of an example question
SHOWN, HITS = 3, 2  # example questions, and passages shown for each
SURE, LEAST = 0.6, 0.2  # share of the time for epochs, without starts and checks; least epochs
DENSE = 0.6  # share of the training time for dense vectors; the cross-encoder has the rest


def write_training_pairs(folder: Path) -> None:
    """Write pairs of each split of the corpus, without quotes between splits; existing files are kept."""
    corpus = corpus_of(folder)
    splits = {"test": "test", "dev": "validation", "train": "train"}
    if not parts(corpus, "test"):
        splits = {"test": "validation", "train": "train"}  # a test needs texts that were not used for any choice
    for name, split in splits.items():
        path = folder / f"pairs/{name}.jsonl"
        if not path.exists() and parts(corpus, split):
            test = folder / "pairs/test.jsonl"
            against = (str(test),) if name != "test" and test.exists() else ()
            for line in write_pairs([str(corpus)], str(path), Pairing(split=split, against=against)):
                say(line)
    if not (path := folder / "pairs/cross.jsonl").exists():
        with (folder / "pairs/train.jsonl").open(encoding="utf-8") as file:
            files.write_text(path, "".join(islice(file, MINED_FROM)))


def read_pairs(folder: Path, *names: str, most: int) -> list[Pair]:
    """Return at most `most` pairs of each of these files, if it exists."""
    pairs = list[Pair]()
    for name in names:
        if (path := folder / f"pairs/{name}.jsonl").exists():
            with path.open(encoding="utf-8") as file:
                pairs += map(json.loads, islice(file, most))
    return pairs


def stages(request: MakeRequest, clock: Clock) -> Iterator[Stage]:
    """Yield the stages that build a search engine from the trained language model."""
    folder = Path(request.out)
    yield Stage("pairs", partial(write_training_pairs, folder), [folder / "pairs"])
    left = request.time.pair_training(clock.used)
    for name, share in (("dense", DENSE), ("cross", 1 - DENSE)):
        yield Stage(name, partial(train, folder, name, share * left, request.devices), [folder / name])
    yield Stage("results", partial(close, request, clock), [folder / "test", folder / "index"])


def train(folder: Path, name: str, seconds: float, devices: int) -> None:
    """Train dense vectors or the cross-encoder, with as many epochs as fit into the seconds."""
    if Run(folder / name).status:
        training.finetune(str(folder / name), devices=devices)  # resume with the same settings
        return
    recipe, words = settings.read(folder / f"{name}.toml"), list[str]()
    epochs = SURE * seconds / _epoch_seconds(folder, name, recipe["task"])
    if epochs < recipe["epochs"]:
        words = [f"epochs={max(epochs, LEAST):.2g}"]
        say(f"{name}: {words[0]}, by the time that is left and the speed of the language model")
    training.finetune(str(folder / f"{name}.toml"), overrides=words, devices=devices)


def _epoch_seconds(folder: Path, name: str, task: dict[str, Any]) -> float:
    length = task["length"]
    speeds = [
        line["tokens_per_second"]
        for line in read_metrics(folder / "model/metrics.jsonl")
        if "tokens_per_second" in line
    ]
    per_byte = Run(folder / "data").status["train"]["tokens"] / Run(corpus_of(folder)).status["train"]["bytes"]
    pairs = read_pairs(folder, "cross" if name == "cross" else "train", most=MINED_FROM)
    sizes = [[per_byte * len(pair[side].encode()) for side in ("anchor", "positive")] for pair in pairs]
    read = sum(sum(min(length, side) for side in size) for size in sizes)
    if name == "cross":
        read = (1 + task["mine"]) * sum(min(length, sum(size)) for size in sizes)
    return read / max(median(speeds[-50:]), 1e-9) if speeds else 1e-9


def close(request: MakeRequest, clock: Clock) -> dict[str, Any]:
    """Test the search, build the index, exports and page; return the facts for the status, with `lines` to print."""
    folder = Path(request.out)
    model = Run(folder / "model").status
    facts: dict[str, Any] = {name: model.get(name) for name in ("validation", "unigram", "verdict")}
    lines = against_guessing(facts)
    pairs, dev = (read_pairs(folder, name, most=TESTED) for name in ("test", "dev"))
    choice = SearchChoice()
    if pairs:
        facts["search"], choice = _tested(folder, pairs, dev, searching.reranker(folder / "cross"))
        chosen = choice.lines()
        if "reranked" not in choice.scores:
            chosen.append("reranker: is left out; too few questions to measure whether it helps")
        facts["verdict"] = [*chosen, _verdict(facts["search"], choice, len(pairs))]
        lines += [*_score_lines(facts["search"], len(pairs)), *facts["verdict"]]
    facts |= {"weight": choice.weight, "reranked": choice.top > 0}
    index = searching.index(folder / "dense", corpus_of(folder), folder / "index", weight=choice.weight)
    if choice.top:
        index = searching.with_reranker(index, folder / "cross", choice)
    for pair in _examples(pairs):
        hits = index.search(pair["anchor"], HITS)
        facts.setdefault("examples", []).extend(f"  {line}" for line in hit_lines(pair["anchor"], hits, HITS, index))
    lines += [f"hits in all texts, by {_way(choice)}:", *facts.get("examples", [])]
    card: dict[str, Any] = {"title": request.title, "language": request.language, "licence": request.licence}
    for run, out, whose in (
        ("dense", "sentence-transformers", "SentenceTransformer"),
        ("cross", "cross-encoder", "CrossEncoder"),
    ):
        path = export(folder / run, folder / out, to="sentence_transformers", name=folder.resolve().name, **card)
        lines.append(f"{path}: for {whose} of sentence-transformers")
    Run(folder).set(**facts)
    report.write([str(folder)], out=str(folder / "report.html"))
    lines += [
        f"{index.folder}: {index.size}; {folder / 'report.html'}: the page",
        *command_lines(
            f"all of it took {duration(clock.used)}; try next", command("search", index.folder, "a question")
        ),
    ]
    return {**facts, "lines": lines}


def _tested(
    folder: Path, pairs: Sequence[Pair], dev: Sequence[Pair], rerank: Rescoring
) -> tuple[dict[str, dict[str, float]], SearchChoice]:
    """Return the scores of each kind of search on test questions, and the choice made on dev questions.

    Passages of all splits are searched.
    """
    passages = list(
        dict.fromkeys(pair["positive"] for pair in [*pairs, *dev, *read_pairs(folder, "dev", "train", most=AMONG)])
    )[:AMONG]
    path = folder / "test/passages.jsonl"
    files_of = ({"_id": str(number), "text": text} for number, text in enumerate(passages))
    shutil.rmtree(path.parent, ignore_errors=True)  # from an earlier, interrupted call
    path.parent.mkdir()
    files.write_text(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in files_of))
    before = searching.index(folder / "model", path, folder / "test/before", kind="dense")
    after = searching.index(folder / "dense", path, folder / "test/index", weight=0.5)
    numbers = {text: str(number) for number, text in enumerate(passages)}
    choice = _chosen(after, rerank, dev or pairs, numbers)
    after, options = (
        after.weighted(choice.weight),
        Reranker(rerank, choice.top or RERANKED, choice.rerank_weight or 1.0),
    )
    scores = {UNTRAINED: _measured(before, "dense", None, pairs, numbers)}
    for (kind, reranked), name in BY.items():
        scores[name] = _measured(after, kind, options if reranked else None, pairs, numbers)
    return scores, choice


def _chosen(index: OpenIndex, rerank: Rescoring, pairs: Sequence[Pair], numbers: dict[str, str]) -> SearchChoice:
    """Choose whether to use vectors and the reranker, by held-out questions with known passages."""
    questions, wanted = [pair["anchor"] for pair in pairs], [int(numbers[pair["positive"]]) for pair in pairs]
    rankings = index.rankings(questions, index.encoder.questions(questions), DEPTH, words=True)
    dense, words = ([ranking for ranking in column if ranking] for column in zip(*rankings, strict=True))
    trial = SearchTrial(dense, words, wanted, np.array(index.passages.rows[:, 0]))

    def text_of(number: int) -> str:
        return read_as("", index.passages[number].text)

    return trial.rerank(trial.choose(), questions, text_of, rerank)


def _way(choice: SearchChoice) -> str:
    way = BY["both", False] if choice.weight else BY["words", False]
    return f"{way}, reranked" if choice.top else way


def _verdict(scores: dict[str, dict[str, float]], choice: SearchChoice, count: int) -> str:
    """Return a line on the gain of the chosen search over words, on test questions."""
    words = scores[BY["words", False]][CHOSEN_BY]
    used = scores[BY["both", True] if choice.top else BY["both", False]][CHOSEN_BY] if choice.weight else words
    questions = many(count, "other question")
    if not choice.weight and not choice.top:
        return f"the index is searched by words (BM25): {CHOSEN_BY} {words:.1f} on {questions}"
    return f"the index is searched by {_way(choice)}: {CHOSEN_BY} {used:.1f} on {questions}, words alone {words:.1f}"


def _measured(
    index: OpenIndex, kind: str, rerank: Reranker | None, pairs: Sequence[Pair], numbers: dict[str, str]
) -> dict[str, float]:
    """Return scores in percent; documents are ranked by their first passages."""
    rows = []
    questions = [pair["anchor"] for pair in pairs]
    vectors = index.encoder.questions(questions) if kind != "words" else None
    every = index.found(questions, vectors, DEPTH, kind=kind, rerank=rerank)
    for pair, hits in zip(pairs, every, strict=True):
        documents = list(dict.fromkeys(hit.passage.id for hit in hits))
        rows.append(measures([int(name == numbers[pair["positive"]]) for name in documents], [1]))
    means = 100 * np.mean(rows, 0)
    return dict(zip(MEASURES, means.tolist(), strict=True))


def _score_lines(scores: dict[str, dict[str, float]], count: int) -> list[str]:
    names = ("mrr@10", "ndcg@10", "recall@100")
    rows = [(name, *(f"{of[key]:.1f}" for key in names)) for name, of in scores.items()]
    return [f"{count:,} held-out questions, in per cent:", *table([("", *names), *rows], numbers=True)]


def _examples(pairs: Sequence[Pair]) -> list[Pair]:
    order = {"questions": 0, "title": 1, "cloze": 2}

    def unlike(pair: Pair) -> tuple[int, int]:
        return order.get(pair["source"], 3), abs(len(pair["anchor"].split()) - ASKED)

    return sorted(pairs, key=unlike)[:SHOWN]
