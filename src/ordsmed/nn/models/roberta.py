"""RoBERTa (Liu et al. 2019): BERT's network without token types, with positions counted from 2.

Positions start after the id of the padding token, 1, so two rows of the position table are unused.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from torch import nn

from ordsmed.base.errors import RecipeError
from ordsmed.base.menu import Choice
from ordsmed.nn.config import expect
from ordsmed.nn.dropout import Dropout
from ordsmed.nn.encoder import EncoderSettings, both_ends
from ordsmed.nn.model import Capabilities, Names, SpecialTokens, Tuning, classes, size, small_rate


@dataclass(frozen=True)
class Roberta(EncoderSettings, Choice):
    """A RoBERTa; `size` names one of: base large."""

    types: int = 0
    """number of token types; 0: none, as in the paper (exported as one row of zeros)"""
    epsilon: float = 1e-5
    """epsilon of layer norms"""

    SIZES: ClassVar[dict[str, dict[str, int]]] = {"base": size(12, 768), "large": size(24, 1024)}
    capabilities: ClassVar[Capabilities] = Capabilities(types=True, tensor=True)
    model_type: ClassVar[str] = "roberta"
    other_types: ClassVar[tuple[str, ...]] = ("xlm-roberta", "camembert")  # the same network, other vocabularies
    architectures: ClassVar[dict[str, str]] = classes("Roberta", head="ForMaskedLM")
    offset: ClassVar[int] = 2
    head_activation: ClassVar[str | None] = "gelu"

    def fits(self, tokenizer: SpecialTokens) -> None:
        if tokenizer.pad != self.offset - 1:
            wanted = f"{self.offset - 1}, from which a RoBERTa counts positions"
            problem = f"its padding token has the id {tokenizer.pad}"
            raise RecipeError("tokenizer", problem, wanted, 'train one with `order = "roberta"`')

    def pooled(self) -> dict[str, nn.Module]:
        return {"first_dropout": Dropout(self.dropout), **super().pooled()}

    def tuning(self) -> Tuning:
        """Return the authors' defaults: rate 1e-5, 6 % of warm-up, decay 0.1, and beta2 0.98."""
        return Tuning(learning_rate=small_rate(self, base=1e-5), warmup=0.06, decay=0.1, betas=(0.9, 0.98))

    def hugging_face(self, vocabulary: int, tokenizer: SpecialTokens) -> dict[str, Any]:
        ends = {"bos_token_id": tokenizer.start, "eos_token_id": tokenizer.stop}
        return super().hugging_face(vocabulary, tokenizer) | ends

    def names(self) -> Names:
        table, pairs = self.body_names("roberta")
        pairs |= {"head.dense": "lm_head.dense", "head.norm": "lm_head.layer_norm"}
        pairs |= {"classify.dense": "classifier.dense", "classify.out": "classifier.out_proj"}
        scores, tied, copies = self.scores("roberta", "lm_head.decoder", "lm_head.bias")
        return Names(
            table | both_ends(pairs) | scores,
            self.heads,
            "roberta.",
            zeros=self.without_types("roberta"),
            tied=tied,
            copies=copies,
            buffers=("position_ids",),
            others=(".pooler.dense.weight", ".pooler.dense.bias"),
        )

    @classmethod
    def from_hugging_face(cls, config: dict[str, Any], **sizes: str) -> Self:
        expect(config, pad_token_id=(cls.offset - 1,))
        return super().from_hugging_face(config, **sizes)
