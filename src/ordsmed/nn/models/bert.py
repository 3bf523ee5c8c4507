"""BERT: a post-norm Transformer encoder with learned positions (Devlin et al. 2018).

Sizes: BERT's release of 24 small models and its base and large.
"""

from dataclasses import dataclass
from typing import ClassVar

from ordsmed.base.menu import Choice
from ordsmed.nn.encoder import EncoderSettings, PairedEncoderSettings
from ordsmed.nn.model import classes, size


@dataclass(frozen=True)
class Bert(PairedEncoderSettings, Choice):
    """A BERT; `size` names one of: tiny mini small medium base large."""

    LATER_ADDED: ClassVar[tuple[str, ...]] = (*EncoderSettings.LATER_ADDED, "deep")
    SIZES: ClassVar[dict[str, dict[str, int]]] = {
        "tiny": size(2, 128),
        "mini": size(4, 256),
        "small": size(4, 512),
        "medium": size(8, 512),
        "base": size(12, 768),
        "large": size(24, 1024),
    }
    model_type: ClassVar[str] = "bert"
    architectures: ClassVar[dict[str, str]] = classes("Bert", head="ForMaskedLM", head_pair="ForPreTraining")
