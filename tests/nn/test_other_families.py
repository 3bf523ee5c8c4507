"""Folders of RoBERTas under other names, of more rows than tokens, and of networks that are not known here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import ordsmed
from kit.makers import synthetic_text
from ordsmed.base.errors import DataError
from ordsmed.weights import foreign

SPECIAL = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
SENTENCE = "The river {} the old bridge."


@pytest.fixture(scope="module")
def unigram() -> Any:
    """A tokenizer as XLM-R's: SentencePiece's unigram pieces in RoBERTa's order of special tokens."""
    transformers = pytest.importorskip("transformers")
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    pipeline = Tokenizer(models.Unigram())
    pipeline.pre_tokenizer, pipeline.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=200, special_tokens=[*SPECIAL.values()], unk_token="<unk>")
    pipeline.train_from_iterator([synthetic_text(200)], trainer)
    pipeline.add_special_tokens(["<mask>"])
    pipeline.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    names = {**SPECIAL, "mask_token": "<mask>", "cls_token": "<s>", "sep_token": "</s>"}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=pipeline, **names)


def network(family: str, head: str, tokenizer: Any, spare: int) -> Any:
    import transformers

    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
    ids = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "max_position_embeddings": 66}
    settings = getattr(transformers, f"{family}Config")(vocab_size=len(tokenizer) + spare, **sizes, **ids)
    torch.manual_seed(3)
    made = getattr(transformers, f"{family}{head}")(settings).eval()
    for parameter in made.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    return made


@pytest.mark.parametrize(("family", "spare"), [("XLMRoberta", 5), ("Camembert", 2_000), ("Roberta", 0)])
def test_the_same_guesses_as_transformers(family: str, spare: int, unigram: Any, tmp_path: Path) -> None:
    """Rows behind the vocabulary are never guessed: the probabilities of the tokens are those without them."""
    import transformers

    theirs = network(family, "ForMaskedLM", unigram, spare)
    theirs.save_pretrained(tmp_path / "theirs")
    unigram.save_pretrained(tmp_path / "theirs")
    ids = unigram(SENTENCE.format("<mask>"), return_tensors="pt")
    place = ids["input_ids"][0].tolist().index(unigram.mask_token_id)
    model = ordsmed.open(tmp_path / "theirs", device="cpu")
    guesses = model.fill(SENTENCE.format("[MASK]"), best=len(unigram) - 20).masks[0]
    ordsmed.export(tmp_path / "theirs", tmp_path / "exported")
    exported = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "exported").eval()
    with torch.no_grad():
        wanted, again = (of(**ids).logits[0, place] for of in (theirs, exported))
    assert len(again) == len(unigram)
    torch.testing.assert_close(again, wanted[: len(unigram)], rtol=1e-4, atol=1e-5)
    best = wanted[: len(unigram)].softmax(-1).sort(descending=True)
    found = torch.tensor([guess.probability for guess in guesses])
    torch.testing.assert_close(found, best.values[: len(guesses)], rtol=1e-4, atol=1e-6)
    assert guesses[0].text.strip() == unigram.decode([int(best.indices[0])]).strip()


def test_a_classifier_of_such_a_family(unigram: Any, tmp_path: Path) -> None:
    theirs = network("XLMRoberta", "ForSequenceClassification", unigram, 5)
    theirs.save_pretrained(tmp_path)
    unigram.save_pretrained(tmp_path)
    text = SENTENCE.format("and")
    with torch.no_grad():
        wanted = theirs(**unigram(text, return_tensors="pt")).logits[0].softmax(-1)
    found = ordsmed.open(tmp_path, device="cpu").classify(text).probabilities
    assert list(found.values()) == pytest.approx(wanted.tolist(), rel=1e-4)


@pytest.mark.parametrize("kind", ["distilbert", "t5", "xlm", "bort"])
def test_another_network_is_told_what_can_be_opened(kind: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind, "vocab_size": 9}))
    told = rf"model_type: found {kind}; wanted one of bert, camembert, .*, roberta, xlm-roberta; use a model"
    with pytest.raises(DataError, match=told) as refused:
        foreign.settings(tmp_path)
    assert "did you mean" not in str(refused.value)
    assert "elmo" not in str(refused.value)


def test_a_tokenizer_with_more_tokens_than_rows_is_refused(unigram: Any, tmp_path: Path) -> None:
    network("XLMRoberta", "ForMaskedLM", unigram, -7).save_pretrained(tmp_path)
    unigram.save_pretrained(tmp_path)
    with pytest.raises(
        DataError, match=r"token rows, but the tokenizer has \d+ tokens; wanted a row for each token; put the"
    ):
        ordsmed.open(tmp_path, device="cpu")
