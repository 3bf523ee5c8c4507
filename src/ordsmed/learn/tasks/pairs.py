"""Pairs: learn vectors of texts that are similar if texts belong together, as an anchor and its positive.

    "What falls?" - "Rain falls ."   ->  states [L, D]  ->  pool  ->  vectors [D]  ->  more similar than others

The other texts of a step are negatives, in addition to those of the files, so the loss is computed over a complete
step, not over its micro-batches. Other losses learn from scores of pairs. learn/embedding/ reads files, makes rows,
computes losses and scores predictions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from ordsmed.base.checks import or_more
from ordsmed.base.errors import RecipeError
from ordsmed.base.menu import Choice, kind_of
from ordsmed.base.say import say
from ordsmed.data.features import ExampleRows, Features, Packing
from ordsmed.data.pieces import Ints, TextReader
from ordsmed.learn.embedding import inputs, outputs, tokens
from ordsmed.learn.embedding.encoder import TERM, PairComparing, PairEncoder
from ordsmed.learn.embedding.inputs import BY_SIMILARITY, OF_SCORES, Loss
from ordsmed.learn.embedding.losses import Comparison, losses
from ordsmed.learn.embedding.maxsim import TokenRows
from ordsmed.learn.embedding.mining import Mining, mined_negatives, with_added, with_negatives
from ordsmed.learn.embedding.outputs import PairFiles, PairPredictions
from ordsmed.learn.embedding.records import PairRecords, read_records, records_of_pairs
from ordsmed.learn.embedding.sparse import SparsePairEncoder
from ordsmed.learn.embedding.tokens import TokenPairEncoder
from ordsmed.learn.task import Arrays, Files, Renewing, TextVectors, TokenVectors
from ordsmed.learn.upper_layers import Top
from ordsmed.nn.model import ModelSettings
from ordsmed.text import read
from ordsmed.text.labelled.tables import Format
from ordsmed.text.tokenizer import Tokenizer

SPECIAL = 2  # tokens around a text
TEMPERATURE = 0.05  # the default; in sentence-transformers scale = 20
SIMILARITY = ("normalize", "similarity", "temperature", "flops", "flops_warmup", "symmetric", "margin", "widths")
COMPARED_BY = ("head", "loss", "pool", *SIMILARITY, "proportions", "token_width")
OF_TOKENS = ("token_width", "query_length", "expand", "skip_punctuation")
TOKEN_WIDTH = 128  # as ColBERT has it
FLOPS = (5e-5, 3e-5)  # the default of `flops`, as in the examples of sentence-transformers
COSINES = "task.normalize=true and dense vectors, because its scores are cosines"
MIN_NORM = 1e-12  # by which a vector is divided at least, as in torch
COMPARED = 64  # batch size of the loss of dev files


@dataclass(frozen=True, kw_only=True)
class TextPairs(Files, PairFiles, Renewing[PairRecords], Choice):
    """Vectors of texts, from pairs of texts that belong together."""

    head: Literal["dense", "sparse", "multi-vector"] = "dense"
    """dense: a vector of the network's width; sparse: a weight for each token of the vocabulary, most of them 0, by the
    masked-LM head of the pretrained model (SPLADE); multi-vector: a vector for each token, compared by MaxSim (late
    interaction, ColBERT)"""
    loss: Loss | None = None
    """infonce: find the positive among all texts of the step; cosent: order pairs by their scores; cosine_mse: predict
    the score as the cosine; margin_mse, kl: learn a cross-encoder's scores of positive and negatives; left out: cosent
    if each pair has a score and no negatives, else infonce"""
    pool: Literal["mean", "first", "last"] | None = None
    """the vector of a text: the mean of its tokens, or the first or last; left out: last for causal networks, else
    mean"""
    normalize: bool | None = None
    """normalize vectors to length 1 and compare them by cosine; false: by dot product; left out: true, except sparse
    ones"""
    similarity: Literal["cosine", "dot"] | None = None
    """dense: how vectors are compared (similarity_fn_name); cosine with normalize=false does not change their lengths;
    left out: by `normalize`"""
    temperature: float | None = None
    """similarities are divided by it; left out: 1 for kl, sparse and multi-vector, else 0.05; elsewhere its inverse:
    scale = 20"""
    flops: tuple[float, ...] = ()
    """sparse: weights of the FLOPS regularizer of anchors and of other texts; left out: [5e-5, 3e-5];
    elsewhere query_regularizer_weight, document_regularizer_weight"""
    flops_warmup: int = 0
    """sparse: steps in which `flops` grows quadratically from 0; elsewhere a third of all steps"""
    symmetric: bool = False
    """infonce: also find each positive's anchor among all anchors"""
    margin: float | None = None
    """infonce: ignore a text as a negative if its similarity to the anchor exceeds the positive's by this margin"""
    widths: tuple[int, ...] = ()
    """lengths of prefixes that are trained as vectors too: [256, 128, 64]; elsewhere matryoshka_dims"""
    query: str = ""
    """prompt before anchors, in training and inference (`query: `)"""
    passage: str = ""
    """prompt before positives and negatives (`passage: `)"""
    mine: int = 0
    """number of hard negatives for each training pair: texts of the files that BM25 finds for the anchor"""
    mining: Mining = field(default_factory=Mining)
    """hard negatives that the model finds during training"""
    proportions: tuple[float, ...] = ()
    """relative number of steps from each file of `train`; left out: proportional to their sizes"""
    length: int = 256
    """maximum tokens of a text; longer ones are truncated; elsewhere max_seq_length"""
    token_width: int = TOKEN_WIDTH
    """multi-vector: dimension of each token's vector"""
    query_length: int = 0
    """multi-vector: maximum tokens of an anchor; 0: as `length`"""
    expand: int = 0
    """multi-vector: pad shorter anchors to this many tokens with masks, which get vectors too (ColBERT: 32); 0: no
    padding; elsewhere query_expansion"""
    skip_punctuation: bool = False
    """multi-vector: no vectors for punctuation in positives and negatives; elsewhere skiplist_words"""
    format: Format | None = None
    """format of the files; left out: by their suffix"""
    header: bool = True
    """whether the first line of TSV and CSV has the names of columns"""
    errors: read.Errors = "strict"
    """bytes that are not UTF-8: strict: an error; otherwise replaced and counted"""

    role: ClassVar[str] = "pairs"
    FORMAT: ClassVar[str] = "sentence-transformers"
    NARROW_SHARE: ClassVar[float] = 0.3
    MADE_UP: ClassVar[str] = "pairs.jsonl"
    UNREAD: ClassVar[tuple[str, ...]] = (*Files.UNREAD, *COMPARED_BY, "mining")
    LATER: ClassVar[tuple[str, ...]] = ("train", "dev", "format", "header", "errors")
    LATER_ADDED: ClassVar[tuple[str, ...]] = ("mining", "flops_warmup", "similarity", *OF_TOKENS)

    def __post_init__(self) -> None:
        or_more(self, length=1, mine=0, flops_warmup=0, token_width=1, query_length=0, expand=0)
        if self.top != Top():
            raise ValueError("top: found layers; wanted none: a text's vector is pooled from the states of the network")
        if self.temperature is not None and not self.temperature > 0:
            raise ValueError(f"temperature: found {self.temperature:g}; wanted above 0")
        if self.loss not in (None, "infonce"):
            for name, usual in (("symmetric", False), ("margin", None)):
                if getattr(self, name) != usual:
                    raise ValueError(f"{name}: found with {self.loss}; wanted it with infonce only")
        _check_head(self)
        if self.loss == "cosine_mse" and not self.by_cosine:
            raise ValueError(f"loss: found cosine_mse with vectors that are compared by dot product; wanted {COSINES}")
        if list(self.widths) != sorted(set(self.widths), reverse=True) or min(self.widths, default=1) < 1:
            raise ValueError(f"widths: found {list(self.widths)}; wanted whole numbers, the largest first")
        if min(self.proportions, default=1) <= 0:
            raise ValueError(f"proportions: found {list(self.proportions)}; wanted numbers above 0")

    @property
    def unit(self) -> bool:
        """Return whether vectors have length 1."""
        return self.head != "sparse" if self.normalize is None else self.normalize

    @property
    def by_cosine(self) -> bool:
        return self.unit or self.similarity == "cosine"

    @property
    def record(self) -> str:
        return "spearman" if self.loss in BY_SIMILARITY else f"mrr@{outputs.BEST}"

    def synthetic(self, sizes: Ints, words: Callable[[int], str]) -> str:
        counts = [max(1, size - SPECIAL) for size in sizes.tolist()]
        rows = ({"anchor": words(count), "positive": words(count)} for count in counts)
        return "".join(json.dumps(row) + "\n" for row in rows)

    def records(self, paths: Sequence[str], *, learning: bool = False) -> PairRecords:
        records = read_records(paths, self.format, self.errors, header=self.header)
        return with_negatives(records, self.mine) if learning and self.mine else records

    @property
    def pairs(self) -> bool:
        """Return whether the model scores two texts, because it has no single vector for a text."""
        return self.head == "multi-vector"

    @property
    def method(self) -> str:
        return "classify" if self.pairs else ""

    def about(self, texts: Sequence[str], seconds: Sequence[str]) -> PairRecords:
        return records_of_pairs(texts, seconds)

    def complete(self, records: PairRecords) -> TextPairs:
        loss = self.loss or ("cosent" if records.scored and not records.negatives else "infonce")
        if loss in OF_SCORES:
            inputs.check_scores(records, loss)
        elif not np.isnan(records.gold).all():
            say(f"{records.files[0]}: {loss} does not use scores; task.loss chooses another loss")
        if self.mining.count and loss != "infonce":
            raise RecipeError("task.mining", f"found with {loss}, which learns from scores", "it with infonce only")
        return replace(self, loss=loss)

    def features(self, records: PairRecords, reader: TextReader) -> Features:
        if self.head == "multi-vector":
            return tokens.pair_features(records, reader, self.token_vectors(reader.tokenizer))
        return inputs.features(records, reader, self.length, self.query, self.passage)

    def rows(self, features: Features, packing: Packing, batch: int, *key: object) -> ExampleRows:
        rows = inputs.RecordRows(features, packing, *key, batch=batch, proportions=self.proportions)
        if self.loss == "infonce" and batch < 2 and int(np.diff(rows.first).min()) < 3:
            problem = f"found {batch}, with pairs without negatives"
            raise RecipeError("batch", problem, "2 or more: other texts of the step are the negatives")
        return rows

    def renewal(self, epoch: float) -> int | None:
        return self.mining.steps(epoch) if self.mining.count else None

    def chosen(self, records: PairRecords, answers: Arrays, *key: object) -> Ints:
        return mined_negatives(self._vectors_of(answers), records, self.mining, *key)

    def with_chosen(self, features: Features, chosen: Ints) -> Features:
        more = features.more
        first, members, scores = with_added(more["first"], more["members"], more["scores"], chosen)
        return replace(features, more={**more, "first": first, "members": members, "scores": scores})

    def token_vectors(self, tokenizer: Tokenizer) -> TokenVectors:
        """Return how tokens get vectors; raise an error if the tokenizer does not support the settings."""
        prompts, query_length = {"query": self.query, "passage": self.passage}, self.query_length or self.length
        skipped = tuple(tokens.punctuation(tokenizer).values()) if self.skip_punctuation else ()
        if self.skip_punctuation and (tokenizer.whole_words or not skipped):
            problem, wanted = "found true; no punctuation character is a single token", "another tokenizer, or false"
            raise RecipeError("task.skip_punctuation", problem, wanted)
        if self.expand and tokenizer.mask is None:
            raise RecipeError(
                "task.expand", f"found {self.expand}; the tokenizer has no mask", "0, or another tokenizer"
            )
        filler = tokenizer.mask or 0
        return TokenVectors(
            self.token_width, prompts, self.length, query_length, self.expand, filler, skipped, self.widths
        )

    def build(self, model: ModelSettings, tokenizer: Tokenizer) -> PairComparing:
        is_tokens = self.head == "multi-vector"
        widest, named = (self.token_width, "task.token_width") if is_tokens else (model.width, "the network's width")
        if self.widths and self.widths[0] > widest:
            raise RecipeError("task.widths", f"found {self.widths[0]}", f"at most {widest}, {named}")
        if is_tokens:
            return TokenPairEncoder(model, tokenizer.vocabulary, self.token_vectors(tokenizer), self.comparison)
        if self.pool == "first" and model.capabilities.causal:
            raise RecipeError("task.pool", "found first; the first token of a causal model sees no other token", "last")
        pool = self.pool or ("last" if model.capabilities.causal else "mean")
        prompts = {"query": self.query, "passage": self.passage}
        if self.head == "sparse":
            if model.capabilities.causal or "head" not in model.architectures:
                problem = f"found sparse; a {kind_of(model)} has no masked-LM head"
                raise RecipeError("task.head", problem, "another network, or dense")
            options = TextVectors("max", normalize=False, prompts=prompts, length=self.length, sparse=True)
            return SparsePairEncoder(model, tokenizer.vocabulary, options, self.comparison)
        vectors = TextVectors(pool, self.unit, prompts, self.length, self.widths, compared=self.similarity)
        return PairEncoder(model, tokenizer.vocabulary, vectors, self.comparison)

    @property
    def comparison(self) -> Comparison:
        loss = self.loss or "infonce"
        usual = 1.0 if loss == "kl" or self.head != "dense" else TEMPERATURE
        temperature = usual if self.temperature is None else self.temperature
        flops = (self.flops or FLOPS) if self.head == "sparse" else ()
        options = loss, temperature, self.by_cosine, self.symmetric, self.margin, self.widths
        return Comparison(*options, flops, self.flops_warmup)

    def predictions(self, records: PairRecords, features: Features, answers: Arrays) -> PairPredictions:
        return outputs.predictions(records, self._compared(features, answers))

    def score(self, records: PairRecords, predictions: PairPredictions) -> dict[str, float]:
        return outputs.score(records, predictions, by_scores=self.record == "spearman")

    def count_scored(self, records: PairRecords) -> int:  # type: ignore[override]
        return outputs.count_scored(records, by_scores=self.record == "spearman")

    def losses(self, features: Features, answers: Arrays) -> dict[str, float]:
        """Return the mean loss of dev files, in batches of COMPARED consecutive records."""
        rows = inputs.RecordRows(features, Packing(0), batch=COMPARED)
        if self.loss in OF_SCORES and np.isnan(rows.scores[rows.first[:-1] + 1]).any():
            return {}
        vectors, total = self._compared(features, answers), 0.0
        for numbers in np.split(np.arange(len(rows)), range(COMPARED, len(rows), COMPARED)):
            texts, labels = rows.labels(numbers)
            of_texts = vectors.padded(texts) if isinstance(vectors, TokenRows) else torch.from_numpy(vectors[texts])
            parts = losses(self.comparison, of_texts, torch.from_numpy(labels))
            total += sum(float(lost.sum()) for _, lost in parts)
        return {TERM: total / len(rows)}

    def guesses(self, train: PairRecords, records: PairRecords) -> PairPredictions:
        return outputs.guesses(records)

    def _compared(self, features: Features, answers: Arrays) -> outputs.Vectors:
        """Return vectors whose dot products are the similarities, or the vectors of tokens."""
        if "vector" not in answers:
            return TokenRows(answers["vectors"], features.starts)
        return self._vectors_of(answers)

    def _vectors_of(self, answers: Arrays) -> NDArray[np.float32]:
        vectors: NDArray[np.float32] = answers["vector"]
        if not self.by_cosine or self.unit:
            return vectors
        lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
        return np.asarray(vectors / np.maximum(lengths, MIN_NORM), np.float32)


def _check_head(task: TextPairs) -> None:
    dense_only = {name: getattr(task, name) is not None for name in ("pool", "normalize", "similarity")}
    if task.head == "sparse":
        dense_only |= {"normalize": task.normalize is True, "widths": bool(task.widths)}
    for name in (name for name, is_set in dense_only.items() if is_set and task.head != "dense"):
        raise ValueError(f"{name}: found with {task.head} vectors; wanted it with dense vectors only")
    for name in ("flops", "flops_warmup"):
        if getattr(task, name) and task.head != "sparse":
            raise ValueError(f"{name}: found with {task.head} vectors; wanted it with task.head=sparse only")
    if task.mining.count and task.head == "multi-vector":
        raise ValueError("mining: found with multi-vector vectors; wanted it with dense or sparse vectors")
    if len(task.flops) not in (0, 2) or min(task.flops, default=0) < 0:
        raise ValueError(f"flops: found {list(task.flops)}; wanted two numbers of 0 or more, of anchors and candidates")
    for name in OF_TOKENS:
        if task.head != "multi-vector" and getattr(task, name) != getattr(TextPairs, name):
            raise ValueError(f"{name}: found with {task.head} vectors; wanted it with task.head=multi-vector only")
    if task.head == "multi-vector" and task.loss == "cosine_mse":
        raise ValueError("loss: found cosine_mse with sums of cosines; wanted cosent, or task.head=dense")
    longest = task.query_length or task.length
    for name, value, most in (("query_length", longest, task.length), ("expand", task.expand, longest)):
        if value > most:
            raise ValueError(f"{name}: found {value}; wanted at most {most}, the maximum length")
