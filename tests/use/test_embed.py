"""Vectors of words and lines: transformers' hidden states, in the order of the lines, whole or absent on disk."""

from __future__ import annotations

import gzip
import io
import json
import re

import numpy as np
import pytest
import torch
from tokenizers import pre_tokenizers

from kit.absent import Lazy
from kit.families import shaken
from ordsmed import cli
from ordsmed.base.errors import DataError, RecipeError, RunError
from ordsmed.learn.objectives import hybrid
from ordsmed.nn.models import gpt2
from ordsmed.text import vocabulary
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.use import embed as verb
from ordsmed.use.embed import Form, embed, entries, lines_of, reader_of
from ordsmed.use.readers import Read, TransformerReader, WordShares, layers_of, windows
from ordsmed.weights.trained_model import Trained, open_model

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")]
h5py, parquet = Lazy("h5py"), Lazy("pyarrow.parquet")
TEXTS = [
    "The smith mends  a gate.",
    "",
    "a",
    " it's naïve — 🙂  \t",
    "mends the the",
    "Smiths mend\u00a0gates, the gate",
]
LONGEST = 40
BERT, ROBERTA, GPT2, MODERN = FAMILIES = ("bert", "roberta", "gpt2", "modernbert")


def wordpiece():
    letters = "abcdefghijklmnopqrstuvwxyz.,'"
    names = [*vocabulary.BERT, *letters, *(f"##{letter}" for letter in letters), "the", "gate", "##ate", "smith"]
    return Tokenizer(vocabulary.wordpiece({name: n for n, name in enumerate(names)}, lowercase=True))


def bytebpe(kind, prefix_space=False):
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    signs = vocabulary.ROBERTA if kind == "roberta" else [vocabulary.END]
    names = [*signs, *letters, "th", "the", "Ġthe", "ga", "Ġga", "<mask>"]
    pieces = {name: n for n, name in enumerate(names)}
    merges = [("t", "h"), ("th", "e"), ("Ġ", "the"), ("g", "a"), ("Ġ", "ga")]
    if kind == "roberta":
        return Tokenizer(vocabulary.roberta(pieces, merges))
    return Tokenizer(vocabulary.byte_level(pieces, merges, prefix_space=prefix_space, special=signs))


def foreign_layout(family, words):
    """A network of transformers, every number in it random."""
    import transformers as t

    torch.manual_seed(sum(map(ord, family)))
    signs = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2, "sep_token_id": 3}
    shape = {
        "vocab_size": words,
        "hidden_size": 16,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "max_position_embeddings": LONGEST,
    }
    if family == BERT:
        return shaken(t.BertForMaskedLM(t.BertConfig(**shape)))
    if family == ROBERTA:
        more = {"max_position_embeddings": LONGEST + 2, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
        return shaken(t.RobertaForMaskedLM(t.RobertaConfig(**{**shape, **more, "type_vocab_size": 1})))
    if family == MODERN:
        return shaken(t.ModernBertForMaskedLM(t.ModernBertConfig(**shape, **signs, local_attention=6)))
    shape = {"vocab_size": words, "n_embd": 16, "n_layer": 3, "n_head": 2, "n_positions": LONGEST}
    return shaken(t.GPT2LMHeadModel(t.GPT2Config(**shape, bos_token_id=0, eos_token_id=0)))


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A folder of each family, as transformers writes it."""
    found = {}
    for family in FAMILIES:
        folder = tmp_path_factory.mktemp(family)
        tokenizer = wordpiece() if family in (BERT, MODERN) else bytebpe(family)
        tokenizer.save(folder)
        foreign_layout(family, tokenizer.vocabulary).save_pretrained(folder)
        found[family] = folder
    return found


@pytest.fixture(scope="module")
def trained(folders):
    return open_model(folders[BERT])


def framed(family, tokenizer, ids):
    return [0, *ids] if family == GPT2 else [tokenizer.start, *ids, tokenizer.stop]


def asked_there(folder, family, line, how="mean"):
    """A line's words from transformers' hidden states, by hand; [L, T, D]."""
    from transformers import AutoModel

    theirs, tokenizer = AutoModel.from_pretrained(folder).eval(), Tokenizer.load(folder)
    encoding = tokenizer.plain.encode(line, add_special_tokens=False)
    ids = torch.tensor([framed(family, tokenizer, encoding.ids)])
    with torch.no_grad():
        states = theirs(ids, attention_mask=torch.ones_like(ids), output_hidden_states=True).hidden_states
    states = torch.stack(states)[:, 0, 1 : 1 + len(encoding.ids)]
    found = []
    for match in re.finditer(r"\S+", line):
        inside = [n for n, (a, b) in enumerate(encoding.offsets) if a < match.end() and b > max(match.start(), a)]
        chosen = {"mean": inside, "first": inside[:1], "last": inside[-1:]}[how]
        found.append(states[:, chosen].mean(1) if chosen else torch.zeros(4, 16))
    return torch.stack(found, 1).numpy() if found else np.zeros((4, 0, 16), np.float32)


def written(folder, lines, out, **form):
    """The entries of a file of vectors."""
    source = io.BytesIO("".join(f"{line}\n" for line in lines).encode())
    embed(folder, source, out, Form(**form))
    return entries_of(out)


def entries_of(out):
    if out.suffix == ".h5":
        with h5py.File(out) as file:
            return [file[str(n)][:] for n in range(len(file))]
    if out.suffix == ".npy":
        return list(np.load(out))
    with np.load(out) as file:
        return [file[str(n)] for n in range(len(file))]


# values


@pytest.mark.parametrize("family", FAMILIES)
def test_all_layers_are_transformers_hidden_states(folders, family, tmp_path):
    found = written(folders[family], TEXTS, tmp_path / "x.h5", layers="all", batch=4)
    assert len(found) == len(TEXTS)
    for line, entry in zip(TEXTS, found, strict=True):
        wanted = asked_there(folders[family], family, line)
        assert entry.shape == wanted.shape == (4, len(line.split()), 16)
        assert entry.dtype == np.float32
        np.testing.assert_allclose(entry, wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("how", ["first", "last"])
@pytest.mark.parametrize("family", [BERT, GPT2])
def test_a_word_is_its_first_or_last_piece(folders, family, how, tmp_path):
    found = written(folders[family], TEXTS, tmp_path / "x.h5", pieces=how)
    for line, entry in zip(TEXTS, found, strict=True):
        np.testing.assert_allclose(entry, asked_there(folders[family], family, line, how)[-1], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_layers_are_chosen_and_mixed(folders, family, tmp_path):
    every = written(folders[family], TEXTS, tmp_path / "all.h5", layers="all")
    mix = tmp_path / "mix.json"
    mix.write_text(json.dumps({"weights": [0.0, 1.0, -1.0, 0.5], "gamma": 2.0}))
    shares = np.exp([0.0, 1.0, -1.0, 0.5])
    cases = {
        "top": ({}, lambda x: x[-1]),
        "one": ({"layers": "-4"}, lambda x: x[0]),
        "some": ({"layers": "0,-1,2"}, lambda x: x[[0, 3, 2]]),
        "mean": ({"layers": "mean"}, lambda x: x.mean(0)),
        "mix": ({"mix": str(mix)}, lambda x: 2 * np.tensordot(shares / shares.sum(), x, 1)),
    }
    for name, (form, wanted) in cases.items():
        for one, other in zip(written(folders[family], TEXTS, tmp_path / f"{name}.h5", **form), every, strict=True):
            assert one.shape == wanted(other).shape
            np.testing.assert_allclose(one, wanted(other), atol=1e-6)


def test_layers_of_every_kind_of_block(tiny_run):
    assert {layers_of(open_model(path)) for path in (tiny_run.bert, tiny_run.gpt2)} == {3}


def test_a_step_of_a_run_is_asked(tiny_run, tmp_path):
    for name, step in (("last", None), ("early", 8)):
        embed(tiny_run.bert, io.BytesIO(b"the fox\n"), tmp_path / f"{name}.npz", Form(), step=step)
    assert not np.array_equal(*(entries_of(tmp_path / f"{name}.npz")[0] for name in ("last", "early")))


def test_sentences_are_the_mean_of_words_or_the_sign_before_them(folders, tmp_path):
    words = written(folders[BERT], TEXTS, tmp_path / "w.h5", layers="all")
    means = written(folders[BERT], TEXTS, tmp_path / "s.h5", of="sentences", layers="all", pool="words")
    for one, other in zip(means, words, strict=True):
        np.testing.assert_allclose(one, other.mean(1) if other.size else np.zeros((4, 16)), atol=1e-6)
    signs = written(folders[BERT], TEXTS, tmp_path / "f.h5", of="sentences", pool="first")
    from transformers import AutoModel

    theirs, tokenizer = AutoModel.from_pretrained(folders[BERT]).eval(), Tokenizer.load(folders[BERT])
    for line, sign in zip(TEXTS, signs, strict=True):
        with torch.no_grad():
            wanted = theirs(torch.tensor([tokenizer.encode(line, special=True)])).last_hidden_state[0, 0].numpy()
        np.testing.assert_allclose(sign, wanted, atol=1e-5)


def test_a_hybrid_sees_all_of_a_line(tmp_path):
    tokenizer = bytebpe("roberta")
    settings = gpt2.Gpt2(width=16, layers=2, heads=2, positions=LONGEST)
    torch.manual_seed(2)
    model = Trained(shaken(hybrid.Hybrid().build(settings, tokenizer)), tokenizer, settings, tmp_path)
    reader = TransformerReader(model, [2], pool="first")
    found = reader.read(["a gate", "a"])
    ids = torch.tensor([[tokenizer.end, *tokenizer.encode("a gate"), tokenizer.end]])
    with torch.no_grad():
        wanted = model.objective.model(
            ids, torch.arange(ids.shape[1])[None], torch.ones_like(ids), causal=torch.tensor([False])
        )
    np.testing.assert_allclose(found[0].vectors[0, 0], wanted[0, 1], atol=1e-6)
    np.testing.assert_allclose(found[0].pooled[0], wanted[0, 0], atol=1e-6)


# pieces and words


def test_pieces_find_their_words_through_white_space_of_every_kind():
    line = "  a\u2028bc\t\t d\u3000"
    found = WordShares.of(line, [(0, 1), (1, 3), (4, 5), (5, 6), (6, 6), (7, 8), (8, 9), (9, 10)], "mean")
    assert found.words == ["a", "bc", "d"]
    assert list(zip(found.piece, found.word, found.share, strict=True)) == [
        (1, 0, 1),
        (2, 1, 0.5),
        (3, 1, 0.5),
        (7, 2, 1),
    ]


def test_a_piece_over_two_words_counts_for_both():
    found = WordShares.of("ab cd", [(0, 4), (4, 5)], "mean")
    assert list(zip(found.piece, found.word, found.share, strict=True)) == [(0, 0, 1), (0, 1, 0.5), (1, 1, 0.5)]
    for how, last in (("first", [1, 1, 0]), ("last", [1, 0, 1])):
        assert WordShares.of("ab cd", [(0, 4), (4, 5)], how).share.tolist() == last


@pytest.mark.parametrize("prefix", [False, True])
@pytest.mark.parametrize("kind", ["gpt2", "roberta"])
def test_byte_level_pieces_find_their_words(kind, prefix):
    line = "the  the gæte 🙂x"
    encoding = bytebpe(kind, prefix).plain.encode(line, add_special_tokens=False)
    found = WordShares.of(line, encoding.offsets, "mean")
    assert found.bare == 0
    pieces = [[encoding.tokens[p] for p in found.piece[found.word == n]] for n in range(4)]
    start = "Ġthe" if prefix and kind == "gpt2" else "the"
    assert pieces[:2] == [[start], ["Ġthe"]]
    assert pieces[2] in (["Ġga", "te"], ["Ġ", "g", "Ã", "¦", "t", "e"], ["g", "Ã", "¦", "t", "e"])
    assert pieces[3][-1] == "x"
    assert len([p for p in pieces[3] if p != "Ġ"]) == 5


def test_a_word_without_a_piece_is_zeros_and_told(folders, tmp_path, capsys):
    [found] = written(folders[BERT], ["a \u200b gate \ufffd"], tmp_path / "x.h5")
    assert [bool(word.any()) for word in found] == [True, False, True, False]
    [alone] = written(folders[BERT], ["\u200b"], tmp_path / "y.h5")
    assert alone.shape == (1, 16)
    assert not alone.any()
    assert "2 of 4 words have no token: their vectors are zeros" in capsys.readouterr().err


def test_words_without_a_piece_are_not_in_a_mean(folders, tmp_path):
    two, three = (
        written(folders[BERT], [line], tmp_path / f"{n}.npy", of="sentences")
        for n, line in enumerate(("the gate", "the \u200b gate"))
    )
    assert np.allclose(two, three, atol=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_folder_without_heads_is_enough(folders, family, tmp_path):
    from transformers import AutoModel

    AutoModel.from_pretrained(folders[family]).save_pretrained(tmp_path / "bare")
    Tokenizer.load(folders[family]).save(tmp_path / "bare")
    bare, whole = (written(f, TEXTS, tmp_path / f"{n}.npz") for n, f in enumerate((tmp_path / "bare", folders[family])))
    assert all(np.array_equal(a, b) for a, b in zip(bare, whole, strict=True))
    made = [open_model(folder, body=True) for folder in (tmp_path / "bare", folders[family])]
    headless = family != "gpt2"  # which scores words by its table alone
    assert [model.bare for model in made] == [headless, False]
    for ask in (made[0].check_heads, lambda: open_model(tmp_path / "bare")) if headless else ():
        with pytest.raises(DataError, match=r"bare: has a network without the required heads \(\w+Model\)"):
            ask()
    made[1].check_heads()


def test_names_of_signs_are_mere_text(trained):
    [found] = TransformerReader(trained, [3]).read(["[MASK]"])
    assert found.words == ["[MASK]"]
    assert len(trained.tokenizer.plain.encode("[MASK]", add_special_tokens=False).ids) > 1


# long lines


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("pieces", "room"), [(5, 8), (8, 8), (9, 8), (29, 8), (30, 7), (11, 1), (40, 2)])
def test_each_piece_is_taken_from_the_window_where_it_has_most_context(pieces, room, causal):
    found = windows(pieces, room, causal=causal)
    taken = [p for _, low, high in found for p in range(low, high)]
    assert taken == list(range(pieces))
    starts = [start for start, _, _ in found]
    assert all(0 <= start <= max(pieces - room, 0) for start in starts)

    def context(piece, start):
        inside = 0 <= piece - start < room
        return (piece - start if causal else min(piece - start, start + room - 1 - piece)) if inside else -1

    for start, low, high in found:
        for piece in range(low, high):
            assert context(piece, start) == max(context(piece, other) for other in starts)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_line_longer_than_the_positions_is_read_in_windows(folders, family, tmp_path, capsys):
    line = " ".join(["the", "gate", "a", "smith", "mends"] * 12)
    short, found = written(folders[family], ["a", line], tmp_path / "x.h5", batch=2)
    assert short.shape == (1, 16)
    assert found.shape == (60, 16)
    assert "1 line is longer than the model's 40 positions: read in windows" in capsys.readouterr().err
    tokenizer = Tokenizer.load(folders[family])
    encoding = tokenizer.plain.encode(line, add_special_tokens=False)
    room = LONGEST - (1 if family == GPT2 else 2)
    assert len(encoding.ids) > 2 * room
    states, model = np.zeros((len(encoding.ids), 16)), open_model(folders[family]).objective.model
    for start, low, high in windows(len(encoding.ids), room, causal=family == GPT2):
        ids = torch.tensor([framed(family, tokenizer, encoding.ids[start : start + room])])
        with torch.no_grad():
            states[low:high] = model(ids, torch.arange(ids.shape[1])[None])[0, 1 + low - start : 1 + high - start]
    parts = WordShares.of(line, encoding.offsets, "mean")
    wanted = np.zeros((60, 16))
    np.add.at(wanted, parts.word, states[parts.piece] * parts.share[:, None])
    np.testing.assert_allclose(found, wanted, atol=1e-5)


# order and memory


class Echo:
    """A reader that makes a line's number of characters its vector, and notes what it is given."""

    layers, width, pools = 1, 1, ("mean",)

    def __init__(self):
        self.given = []

    def read(self, lines):
        self.given.append(lines)
        return [Read(line.split(), np.full((1, len(line.split()), 1), len(line), np.float32)) for line in lines]


def test_lines_are_read_by_length_and_come_in_their_order():
    chance = np.random.default_rng(0)
    texts, reader = ["x" * int(n) for n in chance.integers(0, 200, 2500)], Echo()
    found = list(entries(reader, texts, Form(batch=64)))
    assert [read.words for read in found] == [text.split() for text in texts]
    lengths = [[len(line) for line in lines] for lines in reader.given]
    assert max(len(batch) for batch in lengths) == 64
    assert np.mean([max(batch) - min(batch) for batch in lengths]) < 30


def test_what_is_held_does_not_grow_with_the_text(monkeypatch):
    monkeypatch.setattr(verb, "BUFFER_LINES", 100)
    given = 0

    def texts():
        nonlocal given
        for n in range(20_000):
            given += 1
            yield "a b" * (n % 7)

    most = 0
    for taken, _ in enumerate(entries(Echo(), texts(), Form()), 1):
        most = max(most, given - taken)
    assert taken == given == 20_000
    assert most < 100


def test_large_vectors_make_small_buffers(monkeypatch):
    monkeypatch.setattr(verb, "BUFFER_BYTES", 4 * 10)
    reader = Echo()
    assert len(list(entries(reader, ["a b c"] * 9, Form(batch=64)))) == 9
    assert [len(lines) for lines in reader.given] == [4, 4, 1]


def test_carried_lines_come_unsorted_in_batches_of_that_size():
    reader, texts = Echo(), ["xxx", "x", "", "xx", "x"]
    assert len(list(entries(reader, texts, Form(batch=2, carry=True)))) == 5
    assert reader.given == [["xxx", "x"], ["", "xx"], ["x"]]


def test_the_batch_changes_nothing(trained):
    alone = [TransformerReader(trained, [0, 3], pool="tokens").read([line])[0] for line in TEXTS]
    together = TransformerReader(trained, [0, 3], pool="tokens", batch=4).read(TEXTS)
    for one, other in zip(alone, together, strict=True):
        assert one.words == other.words
        np.testing.assert_allclose(one.vectors, other.vectors, atol=1e-6)
        np.testing.assert_allclose(one.pooled, other.pooled, atol=1e-6)


# files


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("layers", ["top", "all"])
@pytest.mark.parametrize("of", ["words", "sentences"])
def test_every_kind_of_file_holds_the_same(folders, tmp_path, monkeypatch, of, layers, dtype):
    monkeypatch.setattr(verb.vectors, "GROUP", 300)  # more than one row group
    form = {"of": of, "layers": layers, "dtype": dtype}
    first = written(folders[BERT], TEXTS, tmp_path / "x.h5", **form)
    assert {entry.dtype for entry in first} == {np.dtype(dtype)}
    assert [entry.ndim for entry in first] == [1 + (of == "words") + (layers == "all")] * len(TEXTS)
    second = written(folders[BERT], TEXTS, tmp_path / "x.npz", **form)
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.dtype == other.dtype
    if of == "sentences":
        embed(folders[BERT], io.BytesIO("\n".join(TEXTS).encode()), tmp_path / "x.npy", Form(**form))
        np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), np.stack(first))
    embed(folders[BERT], io.BytesIO("\n".join(TEXTS).encode()), tmp_path / "x.parquet", Form(**form))
    assert parquet.ParquetFile(tmp_path / "x.parquet").num_row_groups > 1
    table = parquet.read_table(tmp_path / "x.parquet").to_pydict()
    assert table["line"] == list(range(len(TEXTS)))
    assert table["words"] == [line.split() for line in TEXTS]
    for one, other in zip(first, table["vectors"], strict=True):
        np.testing.assert_array_equal(one, np.array(other, dtype).reshape(one.shape))
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith(".")) == []


@pytest.mark.parametrize("ending", [".h5", ".npz", ".npy", ".parquet"])
def test_an_empty_text_makes_an_empty_file(folders, tmp_path, ending):
    out = tmp_path / f"x{ending}"
    told = embed(folders[BERT], io.BytesIO(b""), out, Form(of="sentences"))
    assert told == f"{out}: 0 lines, 0 words; an entry is 16 numbers of float32"
    if ending == ".npy":
        assert np.load(out).shape == (0, 16)
    elif ending == ".parquet":
        assert parquet.read_table(out).num_rows == 0
    else:
        assert written(folders[BERT], [], tmp_path / f"y{'.h5' if ending == '.h5' else '.npz'}") == []


def test_files_plain_and_packed_and_with_a_mark_at_their_start(folders, tmp_path):
    (tmp_path / "a.txt").write_bytes("\ufeffthe gate\r\n\nsmith".encode())
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"the gate\n\nsmith\n"))
    for name in ("a.txt", "a.txt.gz"):
        assert list(lines_of(tmp_path / name)) == ["the gate", "", "smith"]
        assert verb.count(tmp_path / name) == 3
        told = embed(folders[BERT], tmp_path / name, tmp_path / f"{name}.npz", Form())
        assert told == f"{tmp_path / name}.npz: 3 lines, 3 words; an entry is words x 16 numbers of float32"
    assert [len(e) for e in entries_of(tmp_path / "a.txt.npz")] == [2, 0, 1]


def test_lines_are_cut_where_blocks_end(tmp_path, monkeypatch):
    monkeypatch.setattr(verb.texts, "BLOCK", 3)
    (tmp_path / "a.txt").write_bytes("æææ b\n\n\nc\nlast".encode())
    assert list(lines_of(tmp_path / "a.txt")) == ["æææ b", "", "", "c", "last"]
    assert verb.count(tmp_path / "a.txt") == 5


@pytest.mark.parametrize("ending", [".h5", ".npz", ".npy", ".parquet"])
@pytest.mark.parametrize("error", [DataError, KeyboardInterrupt])
def test_what_is_not_whole_does_not_stand(folders, tmp_path, monkeypatch, ending, error):
    monkeypatch.setattr(verb, "BUFFER_LINES", 2)
    out, source = tmp_path / f"x{ending}", tmp_path / "a.txt"
    source.write_bytes(b"the gate\n" * 4 + (b"a \xff\n" if error is DataError else b"a"))
    if error is KeyboardInterrupt:
        real = verb.finisher

        def stopped(*given):
            finish = real(*given)
            return lambda number, read: finish(number, read) if number < 4 else (_ for _ in ()).throw(error)

        monkeypatch.setattr(verb, "finisher", stopped)
    with pytest.raises(error) as raised:
        embed(folders[BERT], source, out, Form(of="sentences"))
    if error is DataError:
        assert f"{source}:5: invalid UTF-8 at byte 3 of the line (0xff)" in str(raised.value)
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_a_file_that_stands_is_kept_unless_told(folders, tmp_path):
    out = tmp_path / "x.npz"
    out.write_text("mine")
    with pytest.raises(RecipeError, match=r"x\.npz: already exists; wanted a new file; name another, or add --anew"):
        embed(folders[BERT], io.BytesIO(b"a\n"), out, Form())
    with pytest.raises(DataError):
        embed(folders[BERT], io.BytesIO(b"\xff\n"), out, Form(), anew=True)
    assert out.read_text() == "mine"
    embed(folders[BERT], io.BytesIO(b"a\n"), out, Form(), anew=True)
    assert len(entries_of(out)) == 1


def test_a_disk_that_refuses_is_one_line(folders, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"file/x\.npz: cannot write: "):
        embed(folders[BERT], io.BytesIO(b"a\n"), tmp_path / "file" / "x.npz", Form())


# what cannot be


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({"of": "letters"}, "--of: found letters; wanted words or sentences"),
        ({"dtype": "int8"}, "--dtype: found int8; wanted float32 or float16"),
        ({"pieces": "frist"}, "--pieces: found frist; wanted mean or first or last; did you mean `first`?"),
        ({"batch": 0}, "--batch: found 0; wanted 1 or more"),
        ({"pool": "first"}, "--pool: found first with --of words; wanted --of sentences"),
        ({"mix": "x.json", "layers": "all"}, "--mix: mixes all layers, but --layers chooses some"),
    ],
)
def test_options_that_do_not_fit_are_refused(form, said):
    with pytest.raises(RecipeError, match=re.escape(said)):
        Form(**form)


@pytest.mark.parametrize("asked", ["4", "-5", "0,,1", "upper", "1.5"])
def test_layers_that_are_not_there_are_refused(folders, tmp_path, asked):
    with pytest.raises(RecipeError, match=f"--layers: found {asked}; wanted top, all, mean or numbers from -4 to 3"):
        written(folders[BERT], ["a"], tmp_path / "x.h5", layers=asked)
    assert not list(tmp_path.iterdir())


def test_a_family_without_state_carries_nothing(folders, trained):
    with pytest.raises(RecipeError, match=r"--carry: .* \(bert\) has no state to carry; wanted an ELMo"):
        reader_of(trained, Form(carry=True))


def test_a_causal_model_has_no_sign_that_sees_a_line(folders, tmp_path):
    with pytest.raises(
        RecipeError, match=r"--pool: found first, but .* has no such token that attends to the whole line"
    ):
        written(folders[GPT2], ["a"], tmp_path / "x.h5", of="sentences", pool="first")


@pytest.mark.parametrize(
    "text", ["[1]", "{}", '{"weights": "ab"}', '{"weights": [1], "beta": 2}', '{"weights": [[1]]}']
)
def test_a_mix_that_is_none_is_refused(folders, tmp_path, text):
    (tmp_path / "m.json").write_text(text)
    with pytest.raises(DataError, match=r"m\.json: is not a mix of layers; wanted"):
        written(folders[BERT], ["a"], tmp_path / "x.h5", mix=str(tmp_path / "m.json"))


def test_a_mix_of_other_layers_is_refused(folders, tmp_path):
    (tmp_path / "m.json").write_text('{"weights": [0, 0, 0]}')
    with pytest.raises(DataError, match=r"m\.json: 3 weights; wanted 4, one per layer of"):
        written(folders[BERT], ["a"], tmp_path / "x.h5", mix=str(tmp_path / "m.json"))


def test_another_ending_is_refused_before_anything_is_read(tmp_path):
    for name, said in (("x.txt", "ends in .txt"), ("x", "has no ending")):
        with pytest.raises(RecipeError, match=f"{said}; wanted one of .h5 .hdf5 .npz .npy .parquet"):
            embed("nowhere", io.BytesIO(), tmp_path / name, Form())
    with pytest.raises(RecipeError, match=r"or write a vector per line, with --of sentences"):
        embed("nowhere", io.BytesIO(), tmp_path / "x.npy", Form())
    (tmp_path / "x.npz").mkdir()
    with pytest.raises(RecipeError, match="is a folder; wanted a file"):
        embed("nowhere", io.BytesIO(), tmp_path / "x.npz", Form())


def test_a_missing_package_is_named_with_what_installs_it(tmp_path, monkeypatch):
    import sys

    for name, ending in (("h5py", ".h5"), ("pyarrow", ".parquet")):
        monkeypatch.setitem(sys.modules, name, None)
        extra = "hdf5" if ending == ".h5" else "parquet"
        with pytest.raises(
            RecipeError, match=rf"needs {name}, which is not installed; pip install 'ordsmed\[{extra}\]'"
        ):
            embed("nowhere", io.BytesIO(), tmp_path / f"x{ending}", Form())


def test_numbers_too_large_for_float16_are_refused(trained, folders):
    finish = verb.finisher(Form(dtype="float16", pool="mean"), Echo(), None, folders[BERT])
    assert finish(0, Read(["a"], np.full((1, 1, 1), 6e4, np.float32))).dtype == np.float16
    with pytest.raises(DataError, match="line 3: a number that float16 cannot hold; use --dtype float32"):
        finish(3, Read(["a"], np.full((1, 1, 1), 1e5, np.float32)))


# the command


def test_the_command(folders, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.txt").write_text("the gate\n\n")
    cli.main(["embed", str(folders[BERT]), "in.txt", "out.h5", "--layers=-1,0", "--of", "sentences", "--device", "cpu"])
    assert capsys.readouterr().out == "out.h5: 2 lines, 2 words; an entry is 2 x 16 numbers of float32\n"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a\n")))
    cli.main(["embed", str(folders[BERT]), "-", "out.npz"])
    assert entries_of(tmp_path / "out.npz")[0].shape == (1, 16)
    with pytest.raises(SystemExit):
        cli.main(["embed", str(folders[BERT]), "none.txt", "out2.npz"])
    assert capsys.readouterr().err == "ordsmed: none.txt: no such file\n"
