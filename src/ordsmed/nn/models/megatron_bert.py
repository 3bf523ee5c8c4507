"""Megatron's BERT: norms before attention and feed-forward, one at the end, none over the embeddings (Megatron 2020).

Fresh weights of what blocks add are smaller by sqrt(2 x layers) (`deep`, Megatron's --deep-init).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ordsmed.base.menu import Choice
from ordsmed.nn.encoder import EncoderSettings, deep
from ordsmed.nn.model import Capabilities, Names, SpecialTokens, task_classes


@dataclass(frozen=True)
class MegatronBert(EncoderSettings, Choice):
    """A Megatron BERT; `size` names one of: 345M."""

    deep: bool = True
    """initialize residual projections with std / sqrt(2 x layers)"""
    epsilon: float = 1e-5
    """epsilon of layer norms"""

    SIZES: ClassVar[dict[str, dict[str, int]]] = {"345M": {"layers": 24, "width": 1024, "heads": 16, "inner": 4096}}
    capabilities: ClassVar[Capabilities] = Capabilities(types=True, tensor=True, pairs=True)
    model_type: ClassVar[str] = "megatron-bert"
    architectures: ClassVar[dict[str, str]] = {
        "": "MegatronBertModel",
        "head": "MegatronBertForMaskedLM",
        "head pair": "MegatronBertForPreTraining",
        **task_classes("MegatronBert"),
    }
    begins: ClassVar[Mapping[str, str]] = {"classify.dense": "pair.dense"}
    pre_norm: ClassVar[bool] = True

    @property
    def residual_std(self) -> float:
        return deep(self.initializer_std, self.layers) if self.deep else self.initializer_std

    def hugging_face(self, vocabulary: int, tokenizer: SpecialTokens) -> dict[str, Any]:
        return self.described(vocabulary, tokenizer)

    def names(self) -> Names:
        return self.bert_names()

    @staticmethod
    def from_hugging_face(config: dict[str, Any]) -> MegatronBert:
        """The settings a Hugging Face config.json means."""
        return MegatronBert.read(config)
