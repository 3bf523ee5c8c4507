"""Megatron's BERT (2020): norms precede attention and feed-forward, with one at the end and none over embeddings.

Initial weights of residual projections are divided by sqrt(2 x layers) (`deep`, Megatron's --deep-init).
"""

from dataclasses import dataclass
from typing import ClassVar

from ordsmed.base.menu import Choice
from ordsmed.nn.encoder import PairedEncoderSettings
from ordsmed.nn.model import classes, size


@dataclass(frozen=True)
class MegatronBert(PairedEncoderSettings, Choice):
    """A Megatron BERT; `size` names one of: 345M."""

    deep: bool = True
    """initialize residual projections with std / sqrt(2 x layers)"""
    epsilon: float = 1e-5
    """epsilon of layer norms"""

    SIZES: ClassVar[dict[str, dict[str, int]]] = {"345M": size(24, 1024)}
    model_type: ClassVar[str] = "megatron-bert"
    architectures: ClassVar[dict[str, str]] = classes("MegatronBert", head="ForMaskedLM", head_pair="ForPreTraining")
    pre_norm: ClassVar[bool] = True
