"""sentence-transformers' folders: a network, and modules that make a vector from its tokens.

    run -> Hugging Face's files of the network without heads
           modules.json             Transformer, Pooling, Normalize
           1_Pooling/config.json    mean, first or last token
           config_sentence_transformers.json    prompts, similarity

Sparse vectors use the masked-LM head (MLMTransformer, SpladePooling; opened as SparseEncoder). Vectors of tokens use a
projection and a mask of the tokens that count (Dense, MultiVectorMask, Normalize; opened as MultiVectorEncoder).

The vectors equal those of `ordsmed embed --of sentences --pool tokens` (first, last), scaled to length 1 if normalized.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from ordsmed.base import files
from ordsmed.base.errors import RecipeError
from ordsmed.base.folder import WEIGHTS
from ordsmed.base.menu import Choice
from ordsmed.learn.task import Embedding, LateInteraction, Reranking, TextVectors, TokenVectors
from ordsmed.learn.usage import Usage, in_python
from ordsmed.nn.model import ModelSettings
from ordsmed.weights import weights
from ordsmed.weights.foreign import Imported
from ordsmed.weights.hub_files import config, tensors, write_tokenizer
from ordsmed.weights.trained_model import Trained

_THEIRS = "sentence_transformers."
MODULES = tuple(f"{_THEIRS}models.{name}" for name in ("Transformer", "Pooling", "Normalize"))
SPARSE_MODULES = tuple(f"{_THEIRS}sparse_encoder.models.{name}" for name in ("MLMTransformer", "SpladePooling"))
TOKEN_MODULES = (
    f"{_THEIRS}base.modules.transformer.Transformer",
    f"{_THEIRS}base.modules.dense.Dense",
    f"{_THEIRS}multi_vector_encoder.modules.multi_vector_mask.MultiVectorMask",
    f"{_THEIRS}base.modules.normalize.Normalize",
)
POOLS = {"mean": "mean_tokens", "first": "cls_token", "last": "lasttoken"}  # names in sentence-transformers


@dataclass(frozen=True)
class SentenceTransformers(Choice):
    """Write-only: a folder that sentence-transformers opens to embed texts."""

    wanted: ClassVar[str] = ""
    readers: ClassVar[str] = "sentence-transformers loads it"
    families: ClassVar[tuple[str, ...]] = ()

    pool: Literal["mean", "first", "last"] | None = None
    """vector of a text: the mean of its tokens, or the first or last token; default, as for the other settings: as the
    model learned it from pairs of texts, else the mean"""
    normalize: bool | None = None
    """scale vectors to length 1; default: as learned, else true"""
    similarity: Literal["cosine", "dot", "euclidean", "manhattan"] | None = None
    """how vectors are compared; default: as learned, else cosine"""
    query: str | None = None
    """prompt before queries (`query: `); default: as learned, else none"""
    passage: str | None = None
    """prompt before passages (`passage: `); default: as learned, else none"""
    length: int = 0
    """maximum tokens of a text, the rest is truncated; 0: as learned, else as many as the network reads"""

    def __post_init__(self) -> None:
        if self.length < 0 or self.length == 1:
            raise ValueError(f"length: found {self.length}; wanted 2 or more, or 0")

    def recognises(self, path: Path) -> bool:
        return False

    def read(self, path: Path, overrides: Sequence[str] = ()) -> Imported:
        raise RecipeError(path, "is not read in this format", "a folder with config.json")

    @staticmethod
    def opened(folder: Path) -> str:
        described = folder / "config_sentence_transformers.json"
        usual = "SentenceTransformer"
        kind = files.read_table(described).get("model_type", usual) if described.is_file() else "CrossEncoder"
        return f"from sentence_transformers import {kind}; print({kind}({str(folder)!r}))"

    @staticmethod
    def takes(family: ModelSettings) -> bool:
        return bool(family.architectures.get(""))

    def _read_by_sparse(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("query", "passage", "length")}

    def vectors_of(self, trained: Trained) -> TextVectors:
        """Return how texts become vectors: as set here, otherwise as the model learned it."""
        usual = _learned(trained) or TextVectors("mean", True, {"query": "", "passage": ""}, trained.settings.longest())
        prompts = {"query": self.query, "passage": self.passage}
        return replace(
            usual,
            pool=self.pool or usual.pool,
            normalize=usual.normalize if self.normalize is None else self.normalize,
            prompts={name: usual.prompts[name] if text is None else text for name, text in prompts.items()},
            length=self.length or usual.length,
        )

    def check(self, trained: Trained) -> None:
        """Raise RecipeError for a model that no class of transformers computes identically."""
        learned = _learned(trained)
        if learned and learned.sparse and self != replace(SentenceTransformers(), **self._read_by_sparse()):
            problem = "found pool, normalize or similarity for sparse vectors, which are pooled and compared as learned"
            raise RecipeError("--set", problem, "query, passage or length")
        prompts_alone = replace(SentenceTransformers(), query=self.query, passage=self.passage)
        if isinstance(trained.objective, LateInteraction) and self != prompts_alone:
            problem = "found pool, normalize, similarity or length for vectors of tokens, which are as learned"
            raise RecipeError("--set", problem, "query or passage")
        if isinstance(trained.objective, Reranking) and self != SentenceTransformers():
            problem = "found settings of vectors for a cross-encoder, which makes none"
            raise RecipeError("--set", problem, "no settings")
        if trained.objective.shifted:
            problem = "is a hybrid with bidirectional attention, which no class of transformers has"
        elif not self.takes(trained.settings):
            problem = f"is a {trained.kind}, which no class of transformers has"
        elif not _of_tokens(trained) and self.vectors_of(trained).pool == "first" and trained.causal:
            raise RecipeError(
                "--set pool", f"found first, but the first token of a {trained.kind} attends to no other", "last"
            )
        elif self.length > (longest := trained.settings.longest()):
            raise RecipeError("--set length", f"found {self.length}", f"at most {longest}, which the network reads")
        else:
            return
        raise RecipeError(trained.folder, problem, "", "`ordsmed embed RUN INPUT OUT --of sentences` uses it directly")

    def write(self, trained: Trained, folder: Path) -> None:
        if isinstance(trained.objective, Reranking):
            _write_cross_encoder(trained, trained.objective, folder)
        elif isinstance(trained.objective, LateInteraction):
            self._write_token_vectors(trained, trained.objective.tokens, folder)
        else:
            self._write_vectors(trained, folder)

    def _write_vectors(self, trained: Trained, folder: Path) -> None:
        options = self.vectors_of(trained)
        learned = _learned(trained) is not None  # if so, texts get the tokenizer's special tokens there
        _write_network(trained, folder, head=options.sparse, continues=trained.causal and not learned)
        files.write_json(
            folder / "sentence_bert_config.json", {"max_seq_length": options.length, "do_lower_case": False}
        )
        modules, pooling = _modules_of(options, trained)
        _write_modules(folder, modules, pooling)
        opened_by = {"model_type": "SparseEncoder"} if options.sparse else {}
        self._write_comparison(folder, options.prompts, self.similarity or options.similarity, opened_by)

    def _write_token_vectors(self, trained: Trained, settings: TokenVectors, folder: Path) -> None:
        _write_network(trained, folder)
        lengths: dict[str, Any] = {"query_length": settings.query_length, "document_length": settings.length}
        if settings.expand:
            filler = trained.tokenizer.pipeline.id_to_token(settings.filler)
            lengths["query_expansion"] = {"strategy": "min", "attend": True, "token": filler, "length": settings.expand}
        files.write_json(folder / "sentence_bert_config.json", {"max_seq_length": settings.length, **lengths})
        read = {"module_input_name": "token_embeddings", "module_output_name": "token_embeddings"}
        sizes = {"in_features": trained.settings.width, "out_features": settings.width, "bias": False}
        dense = {**sizes, "activation_function": "torch.nn.modules.linear.Identity", **read}
        skipped = [trained.tokenizer.pipeline.id_to_token(number) for number in settings.skipped]
        mask = {"skiplist_words": skipped, "skiplist_tasks": ["document"], "keep_only_token_ids": None}
        _write_modules(folder, TOKEN_MODULES, dense, mask, read)
        weight = trained.objective.get_parameter("projection.out.weight").detach().cpu().float()
        weights.write(folder / "1_Dense" / WEIGHTS, {"linear.weight": weight})
        self._write_comparison(folder, settings.prompts, "maxsim", {"model_type": "MultiVectorEncoder"})

    def _write_comparison(
        self, folder: Path, learned: Mapping[str, str], similarity: str, opened_by: dict[str, str]
    ) -> None:
        chosen = {"query": self.query, "document": self.passage}
        usual = {"query": learned["query"], "document": learned["passage"]}
        prompts = {name: usual[name] if text is None else text for name, text in chosen.items()}
        compared = {"default_prompt_name": None, "similarity_fn_name": similarity, **opened_by}
        files.write_json(folder / "config_sentence_transformers.json", {"prompts": prompts, **compared})

    def usage(self, name: str, folder: Path, trained: Trained) -> Usage:
        if isinstance(trained.objective, Reranking):
            return _usage_of_cross_encoder(name)
        learned = _learned(trained)
        sparse, tokens = learned is not None and learned.sparse, _of_tokens(trained)
        opened_by = "MultiVectorEncoder" if tokens else "SparseEncoder" if sparse else "SentenceTransformer"
        code = (
            f"from sentence_transformers import {opened_by}\n\n"
            f"model = {opened_by}({name!r})\n"
            'questions = model.encode_query(["What is old?"])\n'
            'texts = model.encode_document(["The bridge is old.", "It rains."])\n'
            "print(model.similarity(questions, texts))\n"
        )
        limit = (
            "This network was never trained on pairs of texts: compare its similarities with each other, not with 1."
        )
        options = in_python(name, code) if learned or tokens else f"{in_python(name, code)}\n\n{limit}"
        does = "gives a vector for a text"
        more: tuple[str, ...] = ()
        if sparse:
            does, more = "gives a weight for each token of the vocabulary, most of them 0", ("sparse-encoder",)
        if tokens:
            does, more = "gives a vector for each token of a text (late interaction)", ("multi-vector", "colbert")
        tags = ("sentence-transformers", "feature-extraction", *more)
        return Usage("sentence-similarity", does, options, library="sentence-transformers", tags=tags)


def _of_tokens(trained: Trained) -> bool:
    return isinstance(trained.objective, LateInteraction)


def _write_network(trained: Trained, folder: Path, *, head: bool = False, continues: bool = False) -> None:
    """Write the network and tokenizer in Hugging Face's format, without heads unless `head` is true."""
    network = trained.objective.networks()[""]
    if not head:
        network = replace(network, modules={"model": network.modules["model"]}, labels=(), number=False)
    files.write_json(folder / "config.json", config(network, trained.tokenizer))
    weights.write(folder / WEIGHTS, tensors(network))
    write_tokenizer(trained.tokenizer, trained.settings, folder, continues=continues, opening=trained.opening)
    if trained.tokenizer.pad is None:  # sentence-transformers pads texts to a batch
        described = files.read_table(folder / "tokenizer_config.json")
        files.write_json(folder / "tokenizer_config.json", described | {"pad_token": described["eos_token"]})


def _learned(trained: Trained) -> TextVectors | None:
    return trained.objective.vectors if isinstance(trained.objective, Embedding) else None


def _modules_of(settings: TextVectors, trained: Trained) -> tuple[Sequence[str], dict[str, Any]]:
    """Return the classes of the modules that process a text, and the settings of the pooling module."""
    if settings.sparse:
        pooling = {"pooling_strategy": "max", "activation_function": "relu"}
        return SPARSE_MODULES, {**pooling, "word_embedding_dimension": trained.tokenizer.vocabulary}
    modes = {f"pooling_mode_{name}": name == POOLS[settings.pool] for name in POOLS.values()}
    sizes = {"word_embedding_dimension": trained.settings.width, "include_prompt": True}
    return MODULES if settings.normalize else MODULES[:2], {**sizes, **modes}


def _write_modules(folder: Path, kinds: Sequence[str], *settings: dict[str, Any]) -> None:
    names = [kind.rpartition(".")[2] for kind in kinds]
    for number, name in enumerate(names[1:], 1):
        (folder / f"{number}_{name}").mkdir()
    for number, described in enumerate(settings, 1):
        files.write_json(folder / f"{number}_{names[number]}/config.json", described)
    modules = [
        {"idx": n, "name": str(n), "path": f"{n}_{name}" if n else "", "type": kind}
        for n, (name, kind) in enumerate(zip(names, kinds, strict=True))
    ]
    files.write_json(folder / "modules.json", modules)


def _write_cross_encoder(trained: Trained, scorer: Reranking, folder: Path) -> None:
    network = trained.objective.networks()[""]
    activation = "Sigmoid" if scorer.share else "Identity"
    path = f"torch.nn.modules.{'activation' if scorer.share else 'linear'}.{activation}"
    described = config(network, trained.tokenizer) | {"sentence_transformers": {"activation_fn": path}}
    files.write_json(folder / "config.json", described)
    weights.write(folder / WEIGHTS, tensors(network))
    write_tokenizer(trained.tokenizer, trained.settings, folder)
    tokenizer = files.read_table(folder / "tokenizer_config.json")
    files.write_json(folder / "tokenizer_config.json", tokenizer | {"model_max_length": trained.learned.length})


def _usage_of_cross_encoder(name: str) -> Usage:
    code = (
        "from sentence_transformers import CrossEncoder\n\n"
        f"model = CrossEncoder({name!r})\n"
        'print(model.predict([("What is old?", "The bridge is old."), ("What is old?", "It rains.")]))\n'
    )
    does, tags = "scores how well a text answers a question", ("cross-encoder", "reranker", "sentence-transformers")
    return Usage("text-ranking", does, in_python(name, code), library="sentence-transformers", tags=tags)
