"""ELECTRA (Clark et al. 2020): BERT's network with separate embedding and hidden sizes, and a head for replaced tokens.

The generator is a smaller network of the same kind. It may share the embeddings, of dimension E, which both networks
project to their hidden size D.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from torch import nn

from ordsmed.base.checks import or_more
from ordsmed.base.menu import Choice
from ordsmed.nn.activations import ACTIVATIONS
from ordsmed.nn.dropout import Dropout
from ordsmed.nn.encoder import Encoder, EncoderSettings, both_ends
from ordsmed.nn.heads import DetectHead
from ordsmed.nn.model import NARROW, Capabilities, Model, Names, SpecialTokens, Tuning, classes, size, small_rate


@dataclass(frozen=True)
class Electra(EncoderSettings, Choice):
    """An ELECTRA; `size` names one of: small base large."""

    embedding: int = 0
    """embedding size: dimension of the embeddings (E); 0: the hidden size; elsewhere embedding_size"""

    SIZES: ClassVar[dict[str, dict[str, int]]] = {
        "small": size(12, 256, embedding=128),
        "base": size(12, 768, embedding=768),
        "large": size(24, 1024, embedding=1024),
    }
    capabilities: ClassVar[Capabilities] = Capabilities(types=True, tensor=True, detects=True)
    model_type: ClassVar[str] = "electra"
    architectures: ClassVar[dict[str, str]] = classes("Electra", head="ForMaskedLM", detect="ForPreTraining")
    head_activation: ClassVar[str | None] = "gelu"

    def __post_init__(self) -> None:
        super().__post_init__()
        or_more(self, embedding=0)
        object.__setattr__(self, "embedding", self.embedding or self.width)

    @property
    def embedded(self) -> int:
        return self.embedding

    def build(self, vocabulary: int) -> Encoder:
        """Build the network; the projection from E to D is initialized by Glorot, as in the reference."""
        model = super().build(vocabulary)
        if model.project is not None:
            nn.init.xavier_uniform_(model.project.weight)
        return model

    def detect_head(self, model: Model) -> DetectHead:
        head = DetectHead(self.width, self.initializer_std, ACTIVATIONS[self.activation])
        nn.init.xavier_uniform_(head.out.weight)
        return head

    def pooled(self) -> dict[str, nn.Module]:
        dense = nn.Linear(self.width, self.width)
        return {"first_dropout": Dropout(self.dropout), "dense": dense, "gelu": nn.GELU()}

    def smaller(self, width: int, layers: int) -> Self:
        return replace(super().smaller(width, layers), embedding=self.embedding * width // self.width)

    def generator(self, width: int, layers: int, heads: int, inner: int, embedding: int) -> Self:
        return replace(self, width=width, layers=layers, heads=heads, inner=inner, embedding=embedding)

    def tuning(self) -> Tuning:
        """Return the authors' defaults: 1e-4 and layer decay 0.8; large 5e-5 and 0.9; small (width 256) 3e-4."""
        large = self.width >= 1024
        rate = 3e-4 if 256 <= self.width < NARROW else small_rate(self, base=5e-5 if large else 1e-4)
        return Tuning(rate, layer_decay=0.9 if large else 0.8)

    def hugging_face(self, vocabulary: int, tokenizer: SpecialTokens) -> dict[str, Any]:
        return super().hugging_face(vocabulary, tokenizer) | {"embedding_size": self.embedding}

    def names(self) -> Names:
        table, pairs = self.body_names("electra")
        pairs |= {
            "model.project": "electra.embeddings_project",
            "head.dense": "generator_predictions.dense",
            "head.norm": "generator_predictions.LayerNorm",
            "detect.dense": "discriminator_predictions.dense",
            "detect.out": "discriminator_predictions.dense_prediction",
            "classify.dense": "classifier.dense",
            "classify.out": "classifier.out_proj",
        }
        words, scores = "electra.embeddings.word_embeddings.weight", "generator_lm_head.weight"
        table |= {**both_ends(pairs), "head.bias": "generator_lm_head.bias"}
        table |= {} if self.tied else {"head.words.weight": scores}
        return Names(
            table,
            self.heads,
            "electra.",
            tied={scores: words} if self.tied else {},
            buffers=("position_ids",),
            zeros=self.without_types("electra"),
        )

    @classmethod
    def from_hugging_face(cls, config: dict[str, Any], **sizes: str) -> Self:
        return super().from_hugging_face({"embedding_size": 128, **config}, embedding="embedding_size", **sizes)
