"""Tokenizers: equal to the library and to Hugging Face on real vocabularies, saved and loaded, words found."""

from __future__ import annotations

import json
import lzma
import os
from pathlib import Path

import numpy as np
import pytest

from ordsmed.base.errors import DataError
from ordsmed.data.words import Words, splitter_of
from ordsmed.text import tokenizer as module
from ordsmed.text.tokenizer import DIGIT, LETTER, NEVER, OTHER, SPACE, WITHIN, Tokenizer, byte_of
from ordsmed.text.tokenizers import bytebpe, wordpiece
from ordsmed.text.tokenizers import words as whole_words

TEXTS = [
    "The newts ran, and the newts won: 42 of them, unbelievably!",
    "Ærlig talt, det var 3,14 og ikke 2,72; «smørbrød» sa han.",
    "naïve café – ¿qué? 你好 мир\tTab\u00a0nbsp\r\nend  two   three \n\n four",
    "",
    "  \n ",
    "don't we'll I'm <|endoftext|> [MASK] <mask> </s>",
    "x" * 150,
    "a\x1cb \x85c\u2028d e\u0301 \u0301f",
]
FILES = (
    "bert-base-uncased-vocab.txt",
    "bert-base-cased-vocab.txt",
    "norbert/norwegian_wordpiece_vocab_30k.txt",
    "norbert/norwegian_sentencepiece_vocab_30k.json",
    "ltg-bert/tokenizer.json",
    "gpt2",
    "gpt2/hf-gpt2-vocab.json",
    "roberta/roberta-base-tokenizer.json",
)


@pytest.fixture(scope="module", params=["wordpiece", "cased", "bytebpe", "words"])
def trained(request: pytest.FixtureRequest) -> Tokenizer:
    settings = {
        "wordpiece": wordpiece.WordPiece(size=220, unused=2),
        "cased": wordpiece.WordPiece(size=220, lowercase=False),
        "bytebpe": bytebpe.ByteBpe(size=320, special=("<pad>",)),
        "words": whole_words.WordList(least=1, split="spaces"),
    }
    return settings[request.param].train(TEXTS * 3)


def metaspace() -> Tokenizer:
    from tokenizers import Tokenizer as Pipeline
    from tokenizers import models, pre_tokenizers

    pieces = [("<unk>", 0.0), ("▁The", -1.0), ("▁new", -1.0), ("ts", -1.0), ("▁", -3.0)]
    pipeline = Pipeline(models.Unigram(pieces, 0, False))
    pipeline.pre_tokenizer = pre_tokenizers.Metaspace()
    return Tokenizer(pipeline)


def words(tokenizer: Tokenizer, text: str) -> list[str]:
    ids = np.asarray(tokenizer.encode(text))
    found: list[str] = []
    for number, goes_on in zip(ids, tokenizer.continues(ids), strict=True):
        piece = tokenizer.piece(number)
        if goes_on:
            found[-1] += piece
        else:
            found.append(piece)
    return found


def test_saved_and_loaded_it_is_the_same(trained: Tokenizer, tmp_path: Path) -> None:
    trained.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    assert (again.fingerprint, again.roles, again.special) == (trained.fingerprint, trained.roles, trained.special)
    for text in TEXTS:
        for special in (False, True):
            assert again.encode(text, special) == trained.encode(text, special)


def test_plain_vocabulary_files_give_the_same(trained: Tokenizer, tmp_path: Path) -> None:
    trained.save(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    again = Tokenizer.load(tmp_path)
    if trained.kind == "wordpiece":
        assert again.fingerprint == trained.fingerprint
        assert again.lowercase == trained.lowercase
    for text in TEXTS[:5]:
        assert again.encode(text, True) == trained.encode(text, True)


def test_another_vocabulary_has_another_fingerprint(trained: Tokenizer) -> None:
    about = json.loads(trained.pipeline.to_str())
    one, two = list(about["model"]["vocab"])[-2:]
    vocabulary = about["model"]["vocab"]
    vocabulary[one], vocabulary[two] = vocabulary[two], vocabulary[one]
    from tokenizers import Tokenizer as Pipeline

    assert Tokenizer(Pipeline.from_str(json.dumps(about))).fingerprint != trained.fingerprint


def test_hugging_face_loads_it(trained: Tokenizer, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    trained.save(tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in TEXTS:
        assert theirs(text, add_special_tokens=False)["input_ids"] == trained.encode(text)
        assert theirs(text)["input_ids"] == trained.encode(text, True)
    assert ("token_type_ids" in theirs("a b")) == (trained.kind == "wordpiece")
    assert (theirs.mask_token_id, theirs.pad_token_id) == (trained.mask, trained.pad)
    assert theirs.decode(trained.encode(TEXTS[0])) == trained.decode(trained.encode(TEXTS[0]))


def test_bytes_come_back() -> None:
    tokenizer = bytebpe.ByteBpe(size=300).train(TEXTS)
    for text in TEXTS:
        assert tokenizer.decode(tokenizer.encode(text), skip_special=False) == text


def test_names_of_special_tokens_are_text_in_a_corpus(trained: Tokenizer) -> None:
    name = trained.piece(min(trained.special))
    batch = trained.encode_batch([f"a {name} b", "a"])
    assert not set(batch[0].tolist()) & (trained.special - {trained.unknown})
    assert min(trained.special) in trained.encode(f"a {name} b")


def test_words_of_wordpiece() -> None:
    tokenizer = wordpiece.WordPiece(size=60).train(["new newts newts new"] * 5)
    assert words(tokenizer, "newts, new [MASK] newtsw") == ["newts", "[UNK]", "new", "[MASK]", "newts##w"]
    assert not tokenizer.continues(np.asarray([tokenizer.encode("newtsw")[1:]] * 2))[:, 0].any()


def test_words_of_bytebpe() -> None:
    tokenizer = bytebpe.ByteBpe(size=258).train(["ab"])
    assert words(tokenizer, "The néwts don't\n42nd 你好!?") == [
        "The",
        "Ġ",
        "nÃ©wts",
        "Ġ",
        "don",
        "'",
        "t",
        "Ċ",
        "42",
        "nd",
        "Ġ",
        "ä½łå¥½",
        "!?",
    ]
    joined = bytebpe.ByteBpe(size=270).train(["the newts ran the newts ran"] * 9)
    assert words(joined, "the newts ran") == ["the", "Ġnewts", "Ġran"]
    ids = np.asarray([joined.encode("newts<|endoftext|>newts")])
    assert not joined.continues(ids)[0, int(np.argmax(ids[0] == joined.end)) + 1]


def test_words_of_metaspace() -> None:
    assert words(metaspace(), "The newts") == ["▁The", "▁newts"]


def test_one_or_many_rows_are_alike(trained: Tokenizer) -> None:
    ids = np.asarray(trained.encode(TEXTS[0])[:12])
    rows = trained.continues(np.stack([ids, ids]))
    assert (rows == trained.continues(ids)).all()
    assert rows.dtype == np.bool_


@pytest.mark.long
def test_the_table_of_words_gives_what_the_pipeline_gives(trained: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    from hypothesis import given
    from hypothesis import strategies as st

    monkeypatch.setattr("ordsmed.data.words.FULL", 30)  # the table begins anew now and then
    table = Words(trained, np.dtype("<u2"))
    assert table.cut is not None
    white = (" ", "\n", " ", "\t", "\r", "\x1c", "\x85", "\u00a0", "\u2028")
    signs = st.sampled_from([*white, *"aéT's1你-ßİ", "\u0301", "[MASK]"])

    @given(st.lists(st.lists(signs, max_size=14).map("".join), min_size=1, max_size=5))
    def check(texts: list[str]) -> None:
        ids, lengths = table.encode(texts)
        wanted = [e.tolist() for e in trained.encode_batch(texts)]
        assert [a.tolist() for a in np.split(ids, np.cumsum(lengths)[:-1])] == wanted

    check()


def test_pipelines_that_see_whole_texts_are_not_cut() -> None:
    assert splitter_of(metaspace()) is None
    assert splitter_of(bytebpe.ByteBpe(size=300, prefix_space=True).train(TEXTS)) is None
    ids, lengths = Words(metaspace(), np.dtype("<u2")).encode(["The newts", "", "The"])
    assert lengths.tolist() == [3, 0, 1]
    assert ids.tolist() == [1, 2, 3, 1]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("vocab.txt", "the\nnewts\n", r"has no \[UNK\]"),
        ("vocab.json", '{"a": 0}', "is half of a byte-level vocabulary"),
        ("tokenizer.json", '{"model": {"type": "Magic"}}', "not a tokenizer"),
        ("tokenizer.json", "{", "not JSON"),
        ("dict.txt", "13 850314647\n262 800385005\n", "list of frequencies"),
        ("notes.md", "hello", "holds no tokenizer"),
    ],
)
def test_what_is_no_tokenizer_is_refused(tmp_path: Path, name: str, content: str, said: str) -> None:
    (tmp_path / name).write_text(content)
    for path in (tmp_path, tmp_path / name):
        with pytest.raises(DataError, match=said) as error:
            Tokenizer.load(path)
        assert str(tmp_path) in str(error.value)


def test_broken_bytes_and_absent_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_bytes(b"[UNK]\n[CLS]\n[SEP]\n\xff\xfe\n")
    for path in (tmp_path / "vocab.txt", tmp_path / "none"):
        with pytest.raises(DataError, match=str(path)):
            Tokenizer.load(path)


FULL = os.environ.get("ORDSMED_GRID") == "full"


def library(path: Path) -> object:
    import tokenizers

    if path.suffix == ".txt":
        cased = "uncased" not in path.name
        return tokenizers.BertWordPieceTokenizer(str(path), lowercase=not cased)
    if "gpt2" in str(path):
        pieces = path / "encoder.json" if path.is_dir() else path
        return tokenizers.ByteLevelBPETokenizer(str(pieces), str(pieces.with_name("vocab.bpe")))
    return tokenizers.Tokenizer.from_file(str(path))


def real_texts(shared_data: Path) -> list[str]:
    found = []
    for name in ("english-novels-100.txt.xz", "norec-train.no.txt.xz"):
        with lzma.open(shared_data / "corpus" / name) as file:
            found += file.read(2_000_000 if FULL else 200_000).decode("utf-8", "ignore").splitlines(keepends=True)
    for name in ("utf8tests.txt", "utf8tests.bin"):
        found += (
            (shared_data / "robust/utf8tests" / name).read_bytes().decode("utf-8", "replace").splitlines(keepends=True)
        )
    return found


@pytest.mark.long
@pytest.mark.parametrize("name", FILES)
def test_real_vocabularies_equal_the_library(shared_data: Path, name: str) -> None:
    path = shared_data / "vocab" / name
    ours, theirs, texts = Tokenizer.load(path), library(path), real_texts(shared_data)
    for special in (False, True):
        wanted = [e.ids for e in theirs.encode_batch(texts, add_special_tokens=special)]  # type: ignore[attr-defined]
        assert [e.ids for e in ours.pipeline.encode_batch(texts, add_special_tokens=special)] == wanted
        assert [ours.encode(text, special) for text in texts[:50]] == wanted[:50]
    plain = [a.tolist() for a in ours.encode_batch(texts)]
    ids, lengths = Words(ours, np.dtype("<i4")).encode(texts)
    assert [a.tolist() for a in np.split(ids, np.cumsum(lengths)[:-1])] == plain


def test_gold_ids_of_bert(shared_data: Path) -> None:
    gold = json.loads((shared_data / "tokenizer-gold/bert-uncased-wordpiece-300.json").read_text())
    tokenizer = Tokenizer.load(shared_data / "vocab/bert-base-uncased-vocab.txt")
    assert len(gold) == 300
    for entry in gold:
        ids = tokenizer.encode(entry["original"])
        assert ids == entry["ids"]
        assert [tokenizer.piece(i) for i in ids] == entry["wordpiece"]


@pytest.mark.long
def test_fairseq_frequencies_give_roberta(shared_data: Path) -> None:
    vocab = shared_data / "vocab"
    ours = Tokenizer.load([vocab / "roberta/dict.txt", vocab / "gpt2/encoder.json", vocab / "gpt2/vocab.bpe"])
    theirs = Tokenizer.load(vocab / "roberta/roberta-base-tokenizer.json")
    for text in (*TEXTS[:3], "Hello <s> world"):
        assert ours.encode(text, True) == theirs.encode(text, True)
    assert ours.mask == ours.vocabulary - 1  # this list is longer than RoBERTa's, <mask> stands behind it
    with pytest.raises(DataError, match=r"encoder\.json and vocab\.bpe"):
        Tokenizer.load(vocab / "roberta/dict.txt")


@pytest.mark.long
@pytest.mark.parametrize("name", FILES)
def test_real_vocabularies_through_hugging_face(shared_data: Path, name: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    ours = Tokenizer.load(shared_data / "vocab" / name)
    ours.save(tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert Tokenizer.load(tmp_path).fingerprint == ours.fingerprint
    for text in TEXTS:
        assert theirs(text, add_special_tokens=False)["input_ids"] == ours.encode(text)
        assert theirs(text)["input_ids"] == ours.encode(text, True)


def with_config(folder: Path, tokenizer: Tokenizer, **config: object) -> Tokenizer:
    tokenizer.save(folder)
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return Tokenizer.load(folder)


def test_roles_are_what_the_config_says_or_known_names(tmp_path: Path) -> None:
    made = bytebpe.ByteBpe(size=300, special=("[X]", "<pad>", "[PAD]", "[MASK]", "<mask>")).train(TEXTS)
    first = made.vocabulary - 6
    assert made.roles == {"pad": first + 2, "mask": first + 3, "end": first + 5}, "the names of BERT come first"
    found = with_config(tmp_path, made, mask_token={"content": "[X]"}, pad_token="<pad>", unk_token="[none]")
    assert (found.roles, found.unknown) == ({"pad": first + 1, "mask": first, "end": first + 5}, None)
    assert found.special == set(range(first, first + 6))
    assert Tokenizer.load(tmp_path / "tokenizer.json").mask == first, "also beside the file"
    (tmp_path / "tokenizer.json").rename(tmp_path / "mine.json")
    assert Tokenizer.load(tmp_path / "mine.json").mask == first + 3, "a config is of tokenizer.json alone"


def test_a_registered_sign_plays_its_role_before_a_plain_piece() -> None:
    from tokenizers import Tokenizer as Pipeline
    from tokenizers import models

    pipeline = Pipeline(models.WordLevel({"[PAD]": 0, "a": 1, "<unk>": 2, "[UNK]": 3}, unk_token="<unk>"))
    assert Tokenizer(pipeline).roles == {"pad": 0, "unknown": 3}, "plain pieces, where there is no other"
    pipeline.add_special_tokens(["<unk>", "<s>", "</s>"])
    found = Tokenizer(pipeline)
    assert found.roles == {"pad": 0, "unknown": 2, "start": 4, "stop": 5, "end": 5}
    assert found.special == {0, 2, 4, 5}
    assert not found.whole_words


def test_what_is_written_for_other_tools(tmp_path: Path) -> None:
    def config(tokenizer: Tokenizer) -> dict[str, object]:
        tokenizer.save(tmp_path)
        return json.loads((tmp_path / "tokenizer_config.json").read_text())

    always = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    names = ["input_ids", "attention_mask"]
    bert = {
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "mask_token": "[MASK]",
    }
    assert config(wordpiece.WordPiece(size=60).train(TEXTS)) == {
        **always,
        **bert,
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
    }
    end = "<|endoftext|>"
    assert config(bytebpe.ByteBpe(size=300).train(TEXTS)) == {
        **always,
        "model_input_names": names,
        "eos_token": end,
        "bos_token": end,
    }
    roberta = config(bytebpe.ByteBpe(size=300, order="roberta").train(TEXTS))
    assert (roberta["bos_token"], roberta["eos_token"], roberta["cls_token"]) == ("<s>", "</s>", "<s>")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "merges.txt",
        "tokenizer.json",
        "tokenizer_config.json",
        "vocab.json",
        "vocab.txt",
    ]


def test_no_file_of_another_tool_cuts_or_fills_up_texts(tmp_path: Path) -> None:
    made = wordpiece.WordPiece(size=60).train(["new newts"] * 5)
    made.pipeline.enable_truncation(2)
    made.pipeline.enable_padding(length=9)
    made.pipeline.save(str(tmp_path / "tokenizer.json"))
    found = Tokenizer.load(tmp_path)
    assert len(found.encode("new new new")) == 3
    assert found.fingerprint == made.fingerprint


def test_fingerprints_stay_from_version_to_version() -> None:
    """Stores are known by them: what is in the file counts, but no version, no nulls and no order of keys."""
    made = wordpiece.WordPiece(size=60).train(["new"])
    made.about = {
        "version": "1.0",
        "padding": 1,
        "truncation": 2,
        "model": {"b": [1, {"x": None}], "a": None, "c": "é"},
    }
    assert made.fingerprint == "fedd85c11526e427"
    other = Tokenizer(made.pipeline)
    other.about = {"model": {"c": "é", "b": [1, {}]}, "padding": 3}
    assert other.fingerprint == made.fingerprint
    assert len(made.fingerprint) == 16


def test_ids_with_gaps_and_capitals_lost_within_a_sequence() -> None:
    from tokenizers import Tokenizer as Pipeline
    from tokenizers import models, normalizers, pre_tokenizers

    pipeline = Pipeline(models.WordLevel({"[UNK]": 0, "a": 7}, unk_token="[UNK]"))
    pipeline.pre_tokenizer = pre_tokenizers.Whitespace()
    pipeline.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Sequence([normalizers.Lowercase()])])
    found = Tokenizer(pipeline)
    assert (found.vocabulary, found.lowercase, found.kind) == (8, True, "wordlevel")
    assert found.encode_batch(["A x"])[0].tolist() == [7, 0]
    assert found.encode_batch(["A x"])[0].dtype == np.int32
    assert found.words("A  x") == ["a", "x"]
    with pytest.raises(DataError, match="tokenizer: no piece 3; wanted 0 to 7"):
        found.piece(3)
    pipeline.normalizer = normalizers.BertNormalizer(lowercase=False)
    assert not Tokenizer(pipeline).lowercase
    assert found.decode([0, 7], skip_special=False) == "[UNK] a"
    pipeline.add_special_tokens(["[UNK]"])
    assert (Tokenizer(pipeline).decode([0, 7]), Tokenizer(pipeline).decode([0, 7], False)) == ("a", "[UNK] a")


def test_every_byte_has_its_letter() -> None:
    from tokenizers import pre_tokenizers

    table, cutter = byte_of(), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    assert set(table) == set(pre_tokenizers.ByteLevel.alphabet())
    assert sorted(table.values()) == list(range(256))
    for code in [*range(0x800), 0x1234, 0x4F60, 0x20AC, 0xFFFD, 0x1F600, 0x10FFFF]:
        letters = cutter.pre_tokenize_str(chr(code))[0][0]
        assert bytes(table[letter] for letter in letters) == chr(code).encode()


@pytest.mark.parametrize(
    ("before", "after", "goes_on"),
    [
        ("a", "b", True),
        ("a", "1", False),
        ("1", "2", True),
        ("!", "?", True),
        ("a", "!", False),
        ("!", "a", False),
        ("1", "a", False),
        ("a", " ", False),
        (" ", "a", False),
        (" ", " ", False),
        ("\n", "a", False),
    ],
)
def test_where_words_of_bytes_go_on(before: str, after: str, goes_on: bool) -> None:
    assert BYTES.continues(np.asarray(BYTES.encode(before + after))).tolist() == [False, goes_on]


def test_a_blank_alone_belongs_to_the_word_behind_it_where_asked() -> None:
    """As the library counts words, signs left out, which it may keep together with an apostrophe's letters."""
    for text in ("a newt  ran", "a newt\n ran !", "\u00e9 \u00e9 1 2 ?!"):
        cut = BYTES.pipeline.encode(text)
        words = np.asarray(cut.word_ids)
        assert BYTES.continues(np.asarray(cut.ids), blanks=True)[1:].tolist() == (words[1:] == words[:-1]).tolist()
    marked = np.asarray([*BYTES.encode("a "), BYTES.end, *BYTES.encode(" a")])
    assert BYTES.continues(marked, blanks=True).tolist() == [False, False, False, False, True]


BYTES = bytebpe.ByteBpe(size=257).train(["a"])


@pytest.mark.parametrize(
    ("raw", "first", "last"),
    [
        (b" a", SPACE, LETTER),
        (b"a1", LETTER, DIGIT),
        (b"1!", DIGIT, OTHER),
        (b"?\n", OTHER, NEVER),
        ("½é".encode(), DIGIT, LETTER),
        ("😀你".encode(), OTHER, LETTER),
        ("\u00a0😀".encode(), SPACE, OTHER),
        (b"\xa5a", WITHIN, LETTER),
        (b"\xbf", WITHIN, LETTER),
        (b"\x80!", WITHIN, OTHER),
        (b"\xc3", LETTER, LETTER),
    ],
)
def test_borders_of_byte_level_pieces(raw: bytes, first: int, last: int) -> None:
    """A piece that begins inside a character continues a word; half a character counts as a letter."""
    letter = {byte: written for written, byte in byte_of().items()}
    assert module._byte_border("".join(letter[byte] for byte in raw)) == (first, last)


def test_where_words_of_other_marks_go_on() -> None:
    from tokenizers import Tokenizer as Pipeline

    about = json.loads(metaspace().pipeline.to_str())
    about["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [about["pre_tokenizer"] | {"replacement": "_"}]}
    about["model"]["vocab"] = [[piece.replace("▁", "_"), score] for piece, score in about["model"]["vocab"]]
    other = Tokenizer(Pipeline.from_str(json.dumps(about)))
    assert words(other, "The newts The") == ["_The", "_newts", "_The"]
    about = json.loads(wordpiece.WordPiece(size=60).train(["new newts newts new"] * 5).pipeline.to_str())
    about["model"]["continuing_subword_prefix"] = "@@"
    about["model"]["vocab"] = {piece.replace("##", "@@"): n for piece, n in about["model"]["vocab"].items()}
    assert words(Tokenizer(Pipeline.from_str(json.dumps(about))), "newtsw") == ["newts@@w"]


def test_added_words_and_pieces_at_blanks() -> None:
    from tokenizers import Tokenizer as Pipeline
    from tokenizers import models, pre_tokenizers

    about = json.loads(BYTES.pipeline.to_str())
    own = Pipeline.from_str(json.dumps(about))
    own.add_tokens(["zzz", "!!!"])
    found = Tokenizer(own)
    assert found.continues(np.asarray(found.encode("azzz!!!"))).tolist() == [False, True, False], (
        "added words have borders"
    )
    pipeline = Pipeline(models.WordPiece({"<S>": 0, "</S>": 1, "<UNK>": 2, "a": 3, "##b": 4}, unk_token="<UNK>"))
    pipeline.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    assert not Tokenizer(pipeline).whole_words, "pieces are no words, however they are cut"
    assert words(Tokenizer(pipeline), "ab a") == ["a##b", "a"]
