"""Small tokenizers of every kind, made of their pieces."""

from __future__ import annotations

from ordsmed.text import vocabulary
from ordsmed.text.tokenizer import Tokenizer

LETTERS = "abcdefghijklmnopqrstuvwxyz"
MERGES = [("Ġ", "n"), ("e", "w"), ("Ġn", "ew"), ("Ġnew", "t"), ("i", "n"), ("in", "g")]


def wordpiece(*pieces: str, lowercase: bool = True) -> Tokenizer:
    names = [*vocabulary.BERT, *pieces]
    return Tokenizer(vocabulary.wordpiece({name: n for n, name in enumerate(names)}, lowercase=lowercase))


def byte_pieces(*more: str) -> dict[str, int]:
    from tokenizers.pre_tokenizers import ByteLevel

    return {name: n for n, name in enumerate([*sorted(ByteLevel.alphabet()), *map("".join, MERGES), *more])}


def ltg(*pieces: str) -> Tokenizer:
    """WordPiece over bytes, without a sign of what goes on a word: LTG-BERT's."""
    from tokenizers import AddedToken, decoders, models, pre_tokenizers
    from tokenizers import Tokenizer as Pipeline

    names = {name: n for n, name in enumerate([*vocabulary.BERT, *pieces])}
    pipeline = Pipeline(models.WordPiece(names, unk_token="[UNK]", continuing_subword_prefix=""))
    pipeline.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    pipeline.decoder = decoders.ByteLevel()
    pipeline.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in vocabulary.BERT])
    return Tokenizer(pipeline)


def gpt2() -> Tokenizer:
    return Tokenizer(vocabulary.byte_level(byte_pieces(), MERGES, prefix_space=False, special=[vocabulary.END]))


def roberta() -> Tokenizer:
    names = {name: n for n, name in enumerate([*vocabulary.ROBERTA, *byte_pieces()])}
    return Tokenizer(vocabulary.roberta(names, MERGES))


def unigram(*pieces: str) -> Tokenizer:
    from tokenizers import AddedToken, decoders, models, pre_tokenizers
    from tokenizers import Tokenizer as Pipeline

    names = ["<unk>", "<s>", "</s>", *pieces]
    scores = [(name, -float(n)) for n, name in enumerate(names)]
    pipeline = Pipeline(models.Unigram(scores, unk_id=0, byte_fallback=False))
    pipeline.pre_tokenizer, pipeline.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    pipeline.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in names[:3]])
    return Tokenizer(pipeline)
