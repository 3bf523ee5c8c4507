"""sentence-transformers' folders: a network with how its tokens become the vector of a text.

    run -> Hugging Face's files of the network without heads
           modules.json             Transformer, Pooling, Normalize
           1_Pooling/config.json    mean, first or last token
           config_sentence_transformers.json    prompts, the similarity that is meant

Its vectors are those of `ordsmed embed --of sentences --pool tokens` (first, last), at length 1 where they are normal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal

from ordsmed.base import files
from ordsmed.base.errors import RecipeError
from ordsmed.base.folder import WEIGHTS
from ordsmed.base.menu import Choice
from ordsmed.learn.usage import Usage, in_python
from ordsmed.nn.model import ModelSettings
from ordsmed.weights import weights
from ordsmed.weights.foreign import Imported
from ordsmed.weights.hub_files import config, tensors, write_tokenizer
from ordsmed.weights.trained import Trained

MODULES = ("Transformer", "Pooling", "Normalize")
POOLS = {"mean": "mean_tokens", "first": "cls_token", "last": "lasttoken"}  # ours -> theirs


@dataclass(frozen=True)
class SentenceTransformers(Choice):
    """Written alone: for vectors of texts, by its own library and all that take its folders."""

    wanted: ClassVar[str] = "nothing: such folders are written only; their network is Hugging Face's"
    readers: ClassVar[str] = "sentence-transformers' SentenceTransformer loads it"
    families: ClassVar[tuple[str, ...]] = ()

    pool: Literal["mean", "first", "last"] = "mean"
    """which vector is a text's: the mean of its tokens, or that of the first or last of them"""
    normalize: bool = True
    """vectors of length 1"""
    similarity: Literal["cosine", "dot", "euclidean", "manhattan"] = "cosine"
    """how vectors are compared"""
    query: str = ""
    """written before texts that are searched with (`query: `)"""
    passage: str = ""
    """written before texts that are found (`passage: `)"""
    length: int = 0
    """most tokens of a text, the rest is cut off; 0: as many as the network reads"""

    def __post_init__(self) -> None:
        if self.length < 0 or self.length == 1:
            raise ValueError(f"length: found {self.length}; wanted 2 or more, or 0")

    def recognises(self, path: Path) -> bool:
        return False

    def read(self, path: Path, overrides: Sequence[str] = ()) -> Imported:
        raise RecipeError(path, "is not read as such a folder", "a folder with config.json")

    @staticmethod
    def takes(family: ModelSettings) -> bool:
        """Its network is one of transformers' own."""
        return bool(family.architectures.get(""))

    def check(self, trained: Trained) -> None:
        """Refuse what no class of transformers reads as we do."""
        if trained.objective.shifted:
            problem = "is a hybrid, whose tokens see both sides: no class of transformers does"
        elif not self.takes(trained.settings):
            problem = f"is a {trained.kind}: no class of transformers has it"
        elif self.pool == "first" and trained.causal:
            raise RecipeError("--set pool", f"found first; the first token of a {trained.kind} sees no other", "last")
        elif self.length > (longest := trained.settings.longest()):
            raise RecipeError("--set length", f"found {self.length}", f"at most {longest}, which the network reads")
        else:
            return
        raise RecipeError(trained.folder, problem, "", "`ordsmed embed --of sentences` opens it as it is")

    def write(self, trained: Trained, folder: Path) -> None:
        network = trained.objective.networks()[""]
        network = replace(network, modules={"model": network.modules["model"]}, labels=(), number=False)
        files.write_json(folder / "config.json", config(network, trained.tokenizer))
        weights.write(folder / WEIGHTS, tensors(network))
        write_tokenizer(trained.tokenizer, trained.settings, folder, continues=trained.causal)
        if trained.tokenizer.pad is None:  # texts are read side by side there
            described = files.read_table(folder / "tokenizer_config.json")
            files.write_json(folder / "tokenizer_config.json", described | {"pad_token": described["eos_token"]})
        length = self.length or trained.settings.longest()
        files.write_json(folder / "sentence_bert_config.json", {"max_seq_length": length, "do_lower_case": False})
        modes = {f"pooling_mode_{name}": name == POOLS[self.pool] for name in POOLS.values()}
        pooling = folder / "1_Pooling"
        pooling.mkdir()
        size = {"word_embedding_dimension": trained.settings.width}
        files.write_json(pooling / "config.json", {**size, **modes, "include_prompt": True})
        names = MODULES if self.normalize else MODULES[:2]
        if self.normalize:
            (folder / "2_Normalize").mkdir()
        modules = [
            {
                "idx": n,
                "name": str(n),
                "path": f"{n}_{name}" if n else "",
                "type": f"sentence_transformers.models.{name}",
            }
            for n, name in enumerate(names)
        ]
        files.write_json(folder / "modules.json", modules)
        prompts = {"query": self.query, "document": self.passage}
        how = {"prompts": prompts, "default_prompt_name": None, "similarity_fn_name": self.similarity}
        files.write_json(folder / "config_sentence_transformers.json", how)

    def usage(self, name: str, folder: Path) -> Usage:
        code = (
            "from sentence_transformers import SentenceTransformer\n\n"
            f"model = SentenceTransformer({name!r})\n"
            'questions = model.encode_query(["What is old?"])\n'
            'texts = model.encode_document(["The bridge is old.", "It rains."])\n'
            "print(model.similarity(questions, texts))\n"
        )
        limit = (
            "Vectors of a network that was never trained on pairs of texts tell them apart roughly: compare "
            "similarities with one another, not with 1."
        )
        does = "gives a vector for a text"
        how, tags = f"{in_python(name, code)}\n\n{limit}", ("sentence-transformers", "feature-extraction")
        return Usage("sentence-similarity", does, how, library="sentence-transformers", tags=tags)
