"""The store: Megatron's bytes exactly, read back by anybody, refused when damaged."""

from __future__ import annotations

import itertools
import struct
from pathlib import Path

import numpy as np
import pytest

from ordsmed.base.errors import DataError, RunError
from ordsmed.data import store as module
from ordsmed.data.lexicon import LexiconWriter
from ordsmed.data.store import Store, StoreWriter, dtype_for

DOCUMENTS = [[[5, 6, 7], [8]], [[9, 10]], [[1], [2], [3, 4]]]
# 9 bytes of magic, version 1, type 8 (uint16), 2 sequences, 3 document borders; then lengths, byte offsets, borders
GOLDEN = bytes.fromhex(
    "4d4d4944494458 0000 0100000000000000 08 0200000000000000 0300000000000000"
    "02000000 01000000 0000000000000000 0400000000000000 0000000000000000 0100000000000000 0200000000000000"
)


def write(prefix: Path, documents: list[list[list[int]]], vocabulary: int = 100) -> Path:
    with StoreWriter(prefix, vocabulary) as store:
        for document in documents:
            store.add(document)
    return prefix


def read_independently(prefix: Path) -> list[list[list[int]]]:
    """Megatron's format, read without our code."""
    raw = prefix.with_suffix(".idx").read_bytes()
    magic, version, code, sequences, documents = struct.unpack_from("<9sQBQQ", raw)
    assert (magic, version) == (b"MMIDIDX\0\0", 1)
    kind = {8: "H", 4: "i"}[code]
    lengths = struct.unpack_from(f"<{sequences}i", raw, 34)
    offsets = struct.unpack_from(f"<{sequences}q", raw, 34 + 4 * sequences)
    borders = struct.unpack_from(f"<{documents}q", raw, 34 + 12 * sequences)
    assert len(raw) == 34 + 12 * sequences + 8 * documents
    tokens = prefix.with_suffix(".bin").read_bytes()
    found = [list(struct.unpack_from(f"<{n}{kind}", tokens, o)) for n, o in zip(lengths, offsets, strict=True)]
    return [found[a:b] for a, b in itertools.pairwise(borders)]


def test_the_index_byte_by_byte(tmp_path: Path) -> None:
    write(tmp_path / "a", [[[1, 2]], [[300]]], 301)
    assert (tmp_path / "a.idx").read_bytes() == GOLDEN
    assert (tmp_path / "a.bin").read_bytes() == bytes.fromhex("010002002c01")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.bin", "a.counts.npy", "a.idx"]


@pytest.mark.parametrize("vocabulary", [100, 65_499, 65_500])
def test_another_reader_finds_what_was_written(tmp_path: Path, vocabulary: int) -> None:
    write(tmp_path / "a", DOCUMENTS, vocabulary)
    assert read_independently(tmp_path / "a") == DOCUMENTS
    assert dtype_for(vocabulary).itemsize == (2 if vocabulary < 65_500 else 4)


def test_read_back(tmp_path: Path) -> None:
    store = Store.open(write(tmp_path / "a.b", DOCUMENTS), vocabulary=100, fingerprint="f")
    assert store.tokens.tolist() == [5, 6, 7, 8, 9, 10, 1, 2, 3, 4]
    assert store.lengths.tolist() == [3, 1, 2, 1, 1, 2]
    assert store.starts.tolist() == [0, 3, 4, 6, 7, 8, 10]
    assert store.documents.tolist() == [0, 2, 3, 6]
    assert store.document_starts.tolist() == [0, 4, 6, 10]
    assert (store.token_count, store.sequence_count, store.document_count) == (10, 6, 3)
    assert store.document(1).tolist() == [9, 10]
    assert (store.document_starts.dtype, store.starts.dtype, store.lengths.dtype) == (np.int64, np.int64, np.int32)
    assert store.fingerprint == "f"


def test_blocks_do_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK", 2)
    store = Store.open(write(tmp_path / "a", DOCUMENTS))
    assert read_independently(tmp_path / "a") == DOCUMENTS
    (tmp_path / "a.counts.npy").unlink()
    assert store.starts.tolist() == [0, 3, 4, 6, 7, 8, 10]
    assert store.counts.tolist() == [0, *[1] * 10]


def test_many_documents_at_once_and_empty_ones_left_out(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "a", 100) as store:
        store.extend(np.asarray([5, 6, 7]), np.asarray([0, 2, 0, 1, 0]), np.asarray([2, 1, 0, 2]))
        store.extend(np.asarray([8]), np.asarray([1]), np.asarray([1]))
        store.add([[], []])
    assert read_independently(tmp_path / "a") == [[[5, 6]], [[7]], [[8]]]


def test_a_store_of_nothing(tmp_path: Path) -> None:
    store = Store.open(write(tmp_path / "a", []), vocabulary=3)
    assert (store.token_count, store.sequence_count, store.document_count) == (0, 0, 0)
    assert store.document_starts.tolist() == [0]
    assert store.counts.tolist() == [0, 0, 0]


def test_counts_are_kept_and_made_again(tmp_path: Path) -> None:
    write(tmp_path / "a", DOCUMENTS, 12)
    beside = tmp_path / "a.counts.npy"
    wanted = [0, *[1] * 10, 0]
    assert np.load(beside).tolist() == wanted
    beside.write_bytes(b"damaged")
    assert Store.open(tmp_path / "a", vocabulary=12).counts.tolist() == wanted
    assert np.load(beside).tolist() == wanted


def test_an_id_outside_the_vocabulary_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "a", DOCUMENTS)
    with pytest.raises(DataError, match=r"a\.bin: holds the id 10; wanted ids below 8"):
        _ = Store.open(tmp_path / "a", vocabulary=8).counts
    with pytest.raises(DataError, match="id 8; wanted ids below 8"):
        write(tmp_path / "b", DOCUMENTS, 8)


@pytest.mark.parametrize("end", [".bin", ".idx"])
def test_a_file_cut_in_half_is_refused(tmp_path: Path, end: str) -> None:
    write(tmp_path / "a", DOCUMENTS)
    path = tmp_path / f"a{end}"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=f"a{end}: {len(whole) // 2} bytes; wanted {len(whole)} bytes"):
        Store.open(tmp_path / "a")


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a\.idx: no such file"):
        Store.open(tmp_path / "a")
    write(tmp_path / "a", DOCUMENTS)
    raw = (tmp_path / "a.idx").read_bytes()
    for changed, said in ((b"GARBAGE!!" + raw[9:], "begins with"), (raw[:17] + b"\x07" + raw[18:], "type code 7")):
        (tmp_path / "a.idx").write_bytes(changed)
        with pytest.raises(DataError, match=said):
            Store.open(tmp_path / "a")
    (tmp_path / "a.idx").write_bytes(raw[:-8] + struct.pack("<q", 5))
    with pytest.raises(DataError, match="documents end at sequence 5; wanted 6"):
        Store.open(tmp_path / "a")


def test_what_is_broken_off_leaves_no_store(tmp_path: Path) -> None:
    write(tmp_path / "a", DOCUMENTS)

    def break_off() -> None:
        with StoreWriter(tmp_path / "a", 100) as store:
            store.add([[1, 2]])
            assert not (tmp_path / "a.idx").exists()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        break_off()
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_told(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    (tmp_path / "a.idx.part").symlink_to("/dev/full")
    with pytest.raises(RunError, match=r"cannot write: No space left"):
        write(tmp_path / "a", DOCUMENTS)
    assert list(tmp_path.iterdir()) == []


def test_the_index_of_2020(tmp_path: Path) -> None:
    lengths = [3, 1, 2]
    head = b"TNTIDX\0\0" + struct.pack("<QQQQQQ", 1, 8, 2, 3, 3, 3)
    body = struct.pack("<4q4q3q3q", 0, 1, 2, 3, 0, 3, 4, 6, *lengths, 0, 2, 3)
    (tmp_path / "a.idx").write_bytes(head + body)
    (tmp_path / "a.bin").write_bytes(np.arange(6, dtype="<u2").tobytes())
    store = Store.open(tmp_path / "a")
    assert store.starts.tolist() == [0, 3, 4, 6]
    assert store.document_starts.tolist() == [0, 4, 6]
    assert store.tokens.tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(("end", "said"), [(".idx", "big-endian numbers"), (".bin", "holds the id 25600; wanted ids")])
def test_a_flipped_file_is_refused_by_name(tmp_path: Path, end: str, said: str) -> None:
    prefix = write(tmp_path / "a", [[[1, 2, 99]], [[100]]], 101)
    path = tmp_path / f"a{end}"
    raw = path.read_bytes()
    if end == ".bin":
        path.write_bytes(np.frombuffer(raw, "<u2").astype(">u2").tobytes())
    else:
        head = struct.pack(">9sQBQQ", *struct.unpack("<9sQBQQ", raw[:34]))
        path.write_bytes(head + raw[34:])
    with pytest.raises(DataError, match=f"a{end}: {said}"):
        Store.open(prefix, vocabulary=101)


def test_what_megatron_wrote(shared_data: Path) -> None:
    folder = shared_data / "pretrain-samples/megatron-gpt2"
    found = {path.stem: Store.open(path) for path in sorted(folder.glob("*.idx"))}
    web = found["meg-gpt2-openwebtext_text_document"]
    assert (web.token_count, web.document_count, web.tokens.dtype) == (1_361_845, 1000, np.uint16)
    prompts = found["ag_news_prompt_inputs_document"]
    assert (prompts.token_count, prompts.document_count, prompts.tokens.dtype) == (5945, 100, np.int32)
    for store in found.values():
        assert store.starts[-1] == store.document_starts[-1] == store.token_count


def test_what_is_renamed_stands_on_the_disk_before(tmp_path: Path, synced: list[tuple[str, str]]) -> None:
    with StoreWriter(tmp_path / "a", 100) as store:
        store.add([[1, 2], [3]])
    for end in (".bin", ".idx"):
        pushed = synced.index(("sync", str(tmp_path / f"a{end}.part")))
        assert pushed < synced.index(("rename", str(tmp_path / f"a{end}")))
    assert synced.index(("rename", str(tmp_path / "a.bin"))) < synced.index(("rename", str(tmp_path / "a.idx")))
    assert synced[-1] == ("sync", str(tmp_path))


@pytest.mark.parametrize("more", [1, 2, 1000])
def test_bytes_behind_the_last_token_are_refused(tmp_path: Path, more: int) -> None:
    with StoreWriter(tmp_path / "a", 100) as store:
        store.add([[1, 2], [3]])
    with (tmp_path / "a.bin").open("ab") as file:
        file.write(bytes(more))
    with pytest.raises(DataError, match=rf"a\.bin: {6 + more} bytes; wanted 6 bytes, according to a\.idx"):
        Store.open(tmp_path / "a")


def test_counts_of_another_store_are_made_again(tmp_path: Path) -> None:
    for name, ids in (("a", [1, 2, 2, 5]), ("b", [1, 2, 3])):
        with StoreWriter(tmp_path / name, 6) as store:
            store.add([ids])
    (tmp_path / "b.counts.npy").replace(tmp_path / "a.counts.npy")
    assert Store.open(tmp_path / "a", vocabulary=6).counts.tolist() == [0, 1, 2, 0, 0, 1]
    assert np.load(tmp_path / "a.counts.npy").tolist() == [0, 1, 2, 0, 0, 1]


def interrupted(prefix: Path, key: str = "k") -> None:
    """Two documents that are kept, and one behind them that is not."""

    def writing() -> None:
        with StoreWriter(prefix, 100, key=key) as store:
            for document in ([[5, 6], [7]], [[8]]):
                store.add(document)
            store.keep(at=7)
            store.add([[9, 9]])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        writing()


def test_a_writing_goes_on_from_where_it_was_kept(tmp_path: Path) -> None:
    whole = tmp_path / "whole" / "a"
    write(whole, [[[5, 6], [7]], [[8]], [[1, 2, 3]]])
    interrupted(tmp_path / "a")
    assert not (tmp_path / "a.idx").exists()
    with StoreWriter(tmp_path / "a", 100, key="k") as store:
        assert (store.note, store.token_count, store.sequence_count, store.document_count) == ({"at": 7}, 4, 3, 2)
        store.add([[1, 2, 3]])
    for end in (".bin", ".idx", ".counts.npy"):
        assert (tmp_path / f"a{end}").read_bytes() == whole.with_name(f"a{end}").read_bytes()
    assert sorted(path.name for path in tmp_path.glob("a.*")) == ["a.bin", "a.counts.npy", "a.idx"]


@pytest.mark.parametrize("change", ["key", "no key", "cut", "torn", "gone", "kept"])
def test_what_does_not_fit_is_begun_anew(tmp_path: Path, change: str) -> None:
    interrupted(tmp_path / "a", "" if change == "no key" else "k")
    bin_, kept = tmp_path / "a.bin.part", tmp_path / "a.kept"
    if change == "cut":
        bin_.write_bytes(bin_.read_bytes()[:7])
    elif change == "gone":
        (tmp_path / "a.documents.part").unlink()
    elif change == "torn":
        kept.write_bytes(kept.read_bytes()[:-30])
    with StoreWriter(tmp_path / "a", 100, key={"key": "other", "no key": ""}.get(change, "k")) as store:
        goes_on = change == "kept"
        assert (store.note, store.token_count) == (({"at": 7}, 4) if goes_on else ({}, 0))
        store.add([[1]])
    assert read_independently(tmp_path / "a") == ([[[5, 6], [7]], [[8]], [[1]]] if goes_on else [[[1]]])
    assert not kept.exists()


def test_what_is_kept_is_on_the_disk(tmp_path: Path, synced: list[tuple[str, str]]) -> None:
    interrupted(tmp_path / "a")
    part = ("sync", str(tmp_path / "a.kept.part"))
    assert synced.index(part) < synced.index(("rename", str(tmp_path / "a.kept")))


def test_sequences_that_do_not_follow_each_other_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "a", DOCUMENTS)
    raw = bytearray((tmp_path / "a.idx").read_bytes())
    at = 34 + 4 * 6 + 8 * 4  # the offset of the fifth sequence
    raw[at : at + 8] = struct.pack("<q", 12)
    (tmp_path / "a.idx").write_bytes(bytes(raw))
    for size in (1, 4, 1000):
        monkeypatch.setattr(module, "BLOCK", size)
        with pytest.raises(DataError, match=r"a\.idx: its sequences are not contiguous; encode again"):
            _ = Store.open(tmp_path / "a").starts


def test_a_store_is_named_with_either_ending(tmp_path: Path) -> None:
    write(tmp_path / "a.1", DOCUMENTS)
    for name in ("a.1", "a.1.bin", "a.1.idx"):
        assert Store.open(tmp_path / name).token_count == 10
        assert Store.open(str(tmp_path / name)).prefix == tmp_path / "a.1"
    assert Store.open(tmp_path / "a.1").counts.tolist() == [0, *[1] * 10, *[0] * 89], "as they were saved"
    assert Store.open(tmp_path / "a.1", vocabulary=11).counts.tolist() == [0, *[1] * 10]


def test_words_of_a_lexicon_are_counted_at_the_unknown_one(tmp_path: Path) -> None:
    def lexicon(words: int) -> None:
        with LexiconWriter(tmp_path, ["<S>", "</S>", "<UNK>", "the"], 2) as made:
            made.number(np.arange(4, 4 + words), [f"w{n}" for n in range(words)])

    lexicon(3)
    with StoreWriter(tmp_path / "a", 4, 2) as store:
        store.add([[3, 4, 6], [0, 5]])
    assert store.dtype == np.dtype("<i4")
    found = Store.open(tmp_path / "a", vocabulary=4)
    assert (found.tokens.tolist(), found.counts.tolist()) == ([3, 4, 6, 0, 5], [1, 0, 3, 1])
    (tmp_path / "a.counts.npy").unlink()
    assert Store.open(tmp_path / "a", vocabulary=4).counts.tolist() == [1, 0, 3, 1]
    (tmp_path / "a.counts.npy").unlink()
    lexicon(2)
    with pytest.raises(DataError, match=r"a\.bin: holds the id 6; wanted ids below 6, in little-endian order"):
        Store.open(tmp_path / "a", vocabulary=4)


def test_another_version_of_the_old_index_is_refused(tmp_path: Path) -> None:
    body = struct.pack("<1q1q1q", 0, 0, 0)
    (tmp_path / "a.bin").write_bytes(b"")
    (tmp_path / "a.idx").write_bytes(b"TNTIDX\0\0" + struct.pack("<QQQQQQ", 2, 8, 2, 0, 0, 1) + body)
    with pytest.raises(DataError, match="version 1, integers"):
        Store.open(tmp_path / "a")
