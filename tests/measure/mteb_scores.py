"""Measure the probes `retrieval` and `similarity` beside mteb's evaluators on the same files and vectors, offline.

    PYTHONPATH=src HF_HUB_OFFLINE=1 PYTHON tests/measure/mteb_scores.py MODEL SET STS.tsv

SET is a folder as BEIR has them, or a file of SQuAD; PYTHON has mteb beside what Ordsmed needs.
"""

from __future__ import annotations

import json
import sys
import tempfile
from typing import Any

import mteb
import numpy as np
from datasets import Dataset
from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.sts import AbsTaskSTS
from mteb.abstasks.task_metadata import TaskMetadata
from mteb.models.model_meta import ModelMeta

from ordsmed.measure.evaluation.evaluate import ComputeOptions, evaluate
from ordsmed.measure.probes.retrieval import Retrieval
from ordsmed.measure.probes.similarity import Similarity
from ordsmed.use.text_encoder import TextEncoder
from ordsmed.weights.origin import Origin
from ordsmed.weights.trained_model import open_model


def about(kind: str, main: str) -> TaskMetadata:
    return TaskMetadata(
        name=f"Local{kind}",
        dataset={"path": "local/files", "revision": "1"},
        description="local files",
        type=kind,
        category="t2t",
        modalities=["text"],
        eval_splits=["test"],
        eval_langs=["eng-Latn"],
        main_score=main,
        date=("2026-01-01", "2026-01-02"),
        domains=["Web"],
        task_subtypes=[],
        license="cc0-1.0",
        annotations_creators="derived",
        dialect=[],
        sample_creation="found",
        bibtex_citation="",
        reference=None,
    )


class LocalRetrieval(AbsTaskRetrieval):
    metadata = about("Retrieval", "ndcg_at_10")
    probe: Retrieval

    def load_data(self, **_: Any) -> None:
        found = self.probe.set
        corpus = Dataset.from_list([{"id": n, "title": "", "text": text} for n, text in found.passages.items()])
        queries = Dataset.from_list([{"id": n, "text": text} for n, text in found.questions.items()])
        self.dataset = {
            "default": {
                "test": {"corpus": corpus, "queries": queries, "relevant_docs": found.grades, "top_ranked": None}
            }
        }
        self.data_loaded = True


class LocalSTS(AbsTaskSTS):
    metadata = about("STS", "cosine_spearman")
    probe: Similarity
    min_score, max_score = 0, 5

    def load_data(self, **_: Any) -> None:
        rows = [{"sentence1": p.first, "sentence2": p.second, "score": p.score} for p in self.probe.pairs]
        self.dataset = {"test": Dataset.from_list(rows)}
        self.data_loaded = True


class Ours:
    """Vectors of a model of ours, as mteb asks for them."""

    mteb_model_meta = ModelMeta.create_empty({"name": "ours/model", "revision": "1"})

    def __init__(self, name: str) -> None:
        self.encoder = TextEncoder(open_model(Origin.of(name), None))

    def encode(self, inputs: Any, *, prompt_type: Any = None, **_: Any) -> np.ndarray:
        group = {None: "", "query": "query", "document": "passage"}[getattr(prompt_type, "value", prompt_type)]
        texts = [text for batch in inputs for text in batch["text"]]
        return np.concatenate([*self.encoder.vectors(texts, group)])

    def similarity(self, first: Any, second: Any) -> np.ndarray:
        return np.asarray(first) @ np.asarray(second).T

    def similarity_pairwise(self, first: Any, second: Any) -> np.ndarray:
        return (np.asarray(first) * np.asarray(second)).sum(1)


def main() -> None:
    name, retrieval, sts = sys.argv[1:]
    probes = Retrieval(files=(retrieval,)), Similarity(files=(sts,))
    with tempfile.TemporaryDirectory() as out:
        ours = [result.finding.facts for result in evaluate([name], probes, out=out, means=ComputeOptions("cpu", 2))]
    LocalRetrieval.probe, LocalSTS.probe = probes
    found = mteb.evaluate(Ours(name), [LocalRetrieval(), LocalSTS()], cache=None, co2_tracker=False)
    theirs = [result.scores["test"][0] for result in found.task_results]
    names = {"ndcg@10": "ndcg_at_10", "mrr@10": "mrr_at_10", "recall@100": "recall_at_100", "map": "map_at_1000"}
    pairs = {"spearman": "cosine_spearman", "pearson": "cosine_pearson"}
    for facts, scores, both in zip(ours, theirs, (names, pairs), strict=True):
        for key, its in both.items():
            row = {"score": key, "ours": facts[key] / 100, "mteb": scores[its]}
            print(json.dumps(row | {"difference": abs(row["ours"] - row["mteb"])}))


if __name__ == "__main__":
    main()
