"""BERT: a post-norm Transformer encoder with learned positions (Devlin et al. 2018).

Sizes: BERT's release of 24 small models and its base and large.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ordsmed.base.menu import Choice
from ordsmed.nn.encoder import EncoderSettings, deep
from ordsmed.nn.model import Capabilities, Names, SpecialTokens, task_classes


def _size(layers: int, width: int) -> dict[str, int]:
    return {"layers": layers, "width": width, "heads": width // 64, "inner": 4 * width}


@dataclass(frozen=True)
class Bert(EncoderSettings, Choice):
    """A BERT; `size` names one of: tiny mini small medium base large."""

    deep: bool = False
    """initialize residual projections with std / sqrt(2 x layers)"""

    LATER_ADDED: ClassVar[tuple[str, ...]] = (*EncoderSettings.LATER_ADDED, "deep")
    SIZES: ClassVar[dict[str, dict[str, int]]] = {
        "tiny": _size(2, 128), "mini": _size(4, 256), "small": _size(4, 512),
        "medium": _size(8, 512), "base": _size(12, 768), "large": _size(24, 1024),
    }  # fmt: skip
    capabilities: ClassVar[Capabilities] = Capabilities(types=True, tensor=True, pairs=True)
    model_type: ClassVar[str] = "bert"
    architectures: ClassVar[dict[str, str]] = {
        "": "BertModel",
        "head": "BertForMaskedLM",
        "head pair": "BertForPreTraining",
        **task_classes("Bert"),
    }
    begins: ClassVar[Mapping[str, str]] = {"classify.dense": "pair.dense"}

    @property
    def residual_std(self) -> float:
        return deep(self.initializer_std, self.layers) if self.deep else self.initializer_std

    def hugging_face(self, vocabulary: int, tokenizer: SpecialTokens) -> dict[str, Any]:
        return self.described(vocabulary, tokenizer)

    def names(self) -> Names:
        return self.bert_names()

    @staticmethod
    def from_hugging_face(config: dict[str, Any]) -> Bert:
        """The settings a Hugging Face config.json means."""
        return Bert.read(config)
