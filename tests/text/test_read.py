"""Reading: every packing alike, bounded memory, and one line that names the place for what cannot be read."""

from __future__ import annotations

import base64
import bz2
import gzip
import lzma
import os
import sys
import tracemalloc
import types
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from ordsmed.base.errors import DataError
from ordsmed.text import read

PACK: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.compress,
}
TEXT = "\n".join(f"linje {i} æøå 東京 😀" for i in range(5000)) + "\n"


def complaint(path: Path, errors: read.Errors = "strict") -> str:
    with pytest.raises(DataError) as caught:
        list(read.lines(path, errors))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("suffix", PACK)
def test_every_packing_gives_the_same_lines(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(PACK[suffix](TEXT.encode()))
    with read.tallied() as tally:
        assert list(read.lines(path)) == TEXT.splitlines()
    assert tally.bytes == path.stat().st_size


@pytest.mark.parametrize("suffix", [s for s in PACK if s])
@pytest.mark.parametrize("kept", [0, 0.3, 0.9])
def test_a_cut_off_file_is_named(tmp_path: Path, suffix: str, kept: float) -> None:
    path = tmp_path / f"a.txt{suffix}"
    packed = PACK[suffix](TEXT.encode())
    path.write_bytes(packed[: int(kept * len(packed))])
    assert complaint(path).startswith(f"{path}: is cut off")


@pytest.mark.parametrize("suffix", [s for s in PACK if s])
def test_a_damaged_file_is_named(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(b"this is not packed at all, whatever its name says")
    assert complaint(path).startswith(f"{path}: ")


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst"])
def test_packed_files_joined_are_one(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(PACK[suffix](b"one\ntw") + PACK[suffix](b"o\n"))
    assert list(read.lines(path)) == ["one", "two"]


@pytest.mark.parametrize("suffix", PACK)
def test_invalid_utf8_names_file_and_byte(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.txt{suffix}"
    good = "å".encode() * (read.BLOCK // 2 + 10)
    path.write_bytes(PACK[suffix](good + b"\n\xff\xfe rest\n"))
    assert f"byte {len(good) + 1:,}" in complaint(path)
    with read.tallied() as tally:
        *_, last = read.lines(path, "replace")
    assert last == "\ufffd\ufffd rest"
    assert tally.replaced == 2


def test_a_character_cut_off_at_the_end_is_invalid(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"abc\xe6\x9d")
    assert "byte 3" in complaint(path)


def test_a_replacement_character_that_stood_there_is_not_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("\ufffd".encode() + b"\xf0" + "\ufffd".encode())
    with read.tallied() as tally:
        assert list(read.lines(path, "replace")) == ["\ufffd" * 3]
    assert tally.replaced == 1


def test_line_ends_and_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo\rthree\n\nfour")
    assert list(read.lines(path)) == ["one", "two", "three", "", "four"]


@given(st.text(st.characters(codec="utf-8"), max_size=40), st.integers(1, 7))
def test_blocks_may_fall_anywhere(text: str, size: int) -> None:
    data = text.encode()
    whole, read.blocks = read.blocks, lambda *_: (data[i : i + size] for i in range(0, len(data), size))
    try:
        found = "".join(read.texts(Path("x")))
    finally:
        read.blocks = whole
    assert found == text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


@pytest.mark.parametrize("text", ["word " * 900_000, "x" * 4_500_000, "東京。" * 1_000_000])
def test_a_long_line_passes_in_bounded_memory(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.txt.xz"
    path.write_bytes(lzma.compress(text.encode(), preset=0))
    tracemalloc.start()
    lengths = [len(line) for line in read.lines(path)]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert lengths == [len(text)]
    assert peak < 64e6


def test_a_line_without_end_is_cut_at_white_space(tmp_path: Path) -> None:
    path = tmp_path / "a.txt.gz"
    words = 8_000_000
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(words // 1000):
            file.write(b"words " * 1000)
    tracemalloc.start()
    with read.tallied() as tally:
        counts = [(line.count("words"), len(line)) for line in read.lines(path)]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sum(count for count, _ in counts) == words
    assert max(length for _, length in counts) <= read.LONGEST
    assert tally.cut == len(counts) - 1 > 3
    assert peak < 48e6


def test_files_folders_and_patterns(tmp_path: Path) -> None:
    for name in ("b.txt", "a.txt", "deep/c.txt", ".hidden", ".git/x.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    names = lambda paths: [str(p.relative_to(tmp_path)) for p in read.files(paths)]  # noqa: E731
    assert names(str(tmp_path)) == ["a.txt", "b.txt", "deep/c.txt"]
    assert names(f"{tmp_path}/*.txt") == ["a.txt", "b.txt"]
    assert names([f"{tmp_path}/b.txt", str(tmp_path)]) == ["b.txt", "a.txt", "deep/c.txt"]


def test_nothing_found_is_said(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent.txt", tmp_path / "*.gz"):
        with pytest.raises(DataError) as caught:
            read.files(str(path))
        assert str(caught.value).startswith(str(path))


def test_an_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.tar.gz"
    path.write_bytes(gzip.compress(b"x"))
    assert "unpack it first" in complaint(path)


def test_utf8_tests(shared_data: Path, tmp_path: Path) -> None:
    path = shared_data / "robust" / "utf8tests" / "utf8tests.bin"
    data = path.read_bytes()
    with pytest.raises(UnicodeDecodeError) as caught:
        data.decode()
    assert f"{path}: byte {caught.value.start:,}: invalid UTF-8" in complaint(path)
    with read.tallied() as tally:
        found = "\n".join(read.lines(path, "replace"))
    expected = data.decode(errors="replace")
    assert found.split("\n") == expected.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n").split("\n")
    assert tally.replaced == expected.count("\ufffd") - data.count("\ufffd".encode()) > 0


@pytest.mark.long
@pytest.mark.parametrize("suffix", [s for s in PACK if s])
def test_a_bomb_is_refused_wherever_it_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
    monkeypatch.setattr(read, "WINDOW", 1 << 20)
    path = tmp_path / f"a.txt{suffix}"
    noise = b"\n".join(base64.b64encode(os.urandom(60)) for _ in range(12_000))  # 1 MB
    path.write_bytes(PACK[suffix](noise))
    assert len(list(read.lines(path))) == 12_000
    path.write_bytes(PACK[suffix](noise) + 2 * PACK[suffix](bytes(5 << 20)))
    assert "unpacks to more than 200 times its size (after byte " in complaint(path)
    for densest in (0, 1 << 28):
        assert sum(map(len, read.blocks(path, densest))) == len(noise) + (10 << 20)


NORWEGIAN = "Båten lå ved kaia, og det blåste friskt.\nÆrlig talt så ingen øya før klokka åtte.\n" * 20


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("suffix", ["", ".xz"])
def test_utf16_is_recognised(tmp_path: Path, encoding: str, suffix: str) -> None:
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(PACK[suffix](NORWEGIAN.encode(encoding)))
    for errors in ("strict", "replace"):
        assert complaint(path, errors) == f"{path}: is {encoding.upper()}; wanted text in UTF-8; convert it"
    with pytest.raises(DataError, match=f'convert it, or set encoding = "{encoding}" or "auto"'):
        list(read.lines(path, encoding="utf-8"))
    for said in (encoding, "auto"):
        with read.tallied() as tally:
            assert list(read.lines(path, encoding=said)) == NORWEGIAN.splitlines()
        assert tally.encodings == {encoding: 1}


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        (NORWEGIAN, "cp1252"),
        ("It’s “so” – he said.\n", "cp1252"),
        ("Všichni lidé rodí se svobodní a rovní.\n", "cp1250"),
        ("Mañana será otro año, señor; aquí está el niño.\n", "cp1252"),
        ("Wszyscy ludzie rodzą się wolni i równi, są oni obdarzeni.\n", "cp1250"),
        ("Bütün insanlar hür, haklar bakımından eşit doğarlar.\n", "cp1254"),
        ("Őszi erdő, hűvös szőlő árnyékában.\n", "cp1250"),
        ("Съешь ещё этих мягких французских булок, да выпей же чаю у окна.\n" * 9, "koi8-r"),
        ("Съешь ещё этих мягких французских булок, да выпей же чаю.\n", "cp1251"),
        ("Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι.\n", "cp1253"),
        ("Το χωριό βρίσκεται ψηλά στο βουνό, και το χειμώνα ο δρόμος κλείνει από το χιόνι.\n", "cp1253"),
        ("Узимку в селі тихо, лише чути, як скрипить сніг під ногами.\n", "koi8-u"),
        ("أمطرت السماء أمس طوال اليوم ولذلك بقينا في البيت.\n", "iso8859-6"),
        ("أمطرت السماء أمس طوال اليوم ولذلك بقينا في البيت.\n", "cp1256"),
        ("Ma sœur a mangé des œufs à la fête, ça coûte cher : 5 €.\n", "iso8859-15"),
        ("Ma sœur a mangé des œufs à la fête, ça coûte cher : 5 €.\n", "cp1252"),
        ("昨日は朝から雨が降っていたので、家で本を読んで過ごしました。\n", "utf-16-le"),
        ("昨天下了一整天的雨，所以我们没有出去，只好在家里看书。\n", "utf-16-be"),
        ("어제는 아침부터 비가 와서 집에서 책을 읽으며 하루를 보냈습니다.\n", "utf-16-le"),
        ("これは日本語の文章です。むかしむかしあるところに。\n", "cp932"),
        ("これは日本語の文章です。むかしむかし。\n", "euc_jp"),
        ("这是我们的国家，他不会来的，也没有人在上面。\n", "gb18030"),
        ("這是我們的國家，他不會來的，也沒有人在上面。\n", "cp950"),
        ("모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다.\n", "cp949"),
        ("これは日本語です。\n", "iso2022_jp_2"),
        ("这是中文。\n我们的 abc 国家。\n", "hz"),
        ("한국어는\n", "iso2022_kr"),
    ],
)
def test_an_encoding_is_guessed(tmp_path: Path, text: str, encoding: str) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(text.encode(encoding))
    with read.tallied() as tally:
        assert "\n".join(read.lines(path, encoding="auto")) + "\n" == text
    assert tally.encodings == {encoding: 1}
    path.write_bytes(text.encode())
    with read.tallied() as tally:
        assert "\n".join(read.lines(path, encoding="auto")) + "\n" == text
    assert not tally.encodings


@pytest.mark.parametrize(
    "text",
    [
        "Зимой в деревне тихо, слышно, как скрипит снег.\n",
        "เมื่อวานฝนตกทั้งวันเราจึงอยู่บ้านอ่านหนังสือ\n",
        "أمطرت السماء أمس طوال اليوم.\n",
        "अब वह घर में है और कल बाज़ार जाएगा।\n",
        "Το χωριό βρίσκεται ψηλά στο βουνό.\n",
        "גשם ירד אתמול כל היום.\n",
    ],
)
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf16_of_other_alphabets_is_no_utf8(tmp_path: Path, text: str, encoding: str) -> None:
    """Its bytes may be ASCII, half of them signs that no text has, which a corpus would drop in silence."""
    path = tmp_path / "a.txt"
    path.write_bytes((text * 9).encode(encoding))
    assert complaint(path) == f"{path}: is {encoding.upper()}; wanted text in UTF-8; convert it"
    assert list(read.lines(path, encoding="auto")) == text.splitlines() * 9


@pytest.mark.parametrize("line", ["1\t0\t1\t0\n", "a\tb\n", "\n\n\n\n", "\x04\x04\x04 \x04"])
def test_columns_of_single_signs_are_no_utf16(tmp_path: Path, line: str) -> None:
    (tmp_path / "a.txt").write_text(line * 99)
    assert "\n".join(read.lines(tmp_path / "a.txt", encoding="auto")) == (line * 99).removesuffix("\n")


def test_what_is_not_in_utf8_is_told_what_it_looks_like(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    for encoding in ("cp1252", "utf-16-le"):
        path.write_bytes(b"\xe6" * (encoding == "cp1252") + NORWEGIAN.encode(encoding))
        with pytest.raises(DataError, match=f'set encoding = "{encoding}" or "auto"'):
            list(read.lines(path, encoding="utf-8"))
    path.write_bytes(b"a \x81\x8d\x8f b")
    for how, remedy in (
        ({"encoding": "utf-8", "errors": "strict"}, 'convert the file, or set `encoding`, or errors = "replace"'),
        ({"encoding": "utf-8"}, "convert the file, or set `encoding`"),
        ({}, "convert the file"),
        ({"errors": "strict"}, 'convert the file, or set errors = "replace"'),
    ):
        with pytest.raises(DataError) as caught:
            list(read.lines(path, **how))
        assert caught.value.remedy == remedy


def test_what_cannot_be_told_is_not_guessed(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    spanish = "La razón del señor, el corazón.\n".encode("cp1252")  # as good Polish letters in cp1250
    for data in (b"a \x81\x8d\x8f b", spanish, bytes(range(128, 256)) * 9, os.urandom(3000).replace(b"\0", b"")):
        path.write_bytes(data)
        with pytest.raises(DataError, match="its encoding cannot be detected; set `encoding`"):
            list(read.lines(path, encoding="auto"))
    for data in (b"a\0\0b" * 9, b"a\0b\0 \0\0\0\0 no text at all ", b"plain ~{and~} ~{ text ~}", b"\x1b[31mred\x1b[0m"):
        path.write_bytes(data)
        assert list(read.lines(path, "replace", encoding="auto")) == list(read.lines(path, "replace"))


@pytest.mark.parametrize("encoding", ["iso2022_jp_2", "iso2022_kr", "hz"])
def test_what_only_looks_like_ascii_is_noticed(tmp_path: Path, encoding: str) -> None:
    text = {"iso2022_jp_2": "日本語", "iso2022_kr": "한국어", "hz": "中文\n国家"}[encoding]
    path = tmp_path / "a.txt"
    path.write_bytes(b"first lines\n" * 9 + text.encode(encoding))
    assert f"is {encoding.upper()}, which is written in ASCII; wanted text in UTF-8" in complaint(path)


def test_bad_bytes_of_other_encodings_are_named_or_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xa4\xa2ok\xff\xa4\xa4\n")
    with pytest.raises(DataError, match=r"byte 4: invalid EUC_JP \(0xff: .*\); wanted text in euc_jp"):
        list(read.lines(path, encoding="euc_jp"))
    with read.tallied() as tally:
        assert list(read.lines(path, "replace", encoding="euc_jp")) == ["あok\ufffdい"]
    assert tally.replaced == 1


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40), st.integers(1, 7))
def test_blocks_of_utf16_may_fall_anywhere(text: str, size: int) -> None:
    data = text.encode("utf-16-be")
    blocks = (data[i : i + size] for i in range(0, len(data), size))
    found = "".join(read.decode(blocks, "x", encoding="utf-16-be"))
    assert found == text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def test_bytes_are_decoded_by_the_first_encoding_that_fits() -> None:
    assert read.decoded(b"\xef\xbb\xbf\xc3\xb8", ["utf-8", "latin-1"], "strict", "a") == ("ø", "utf-8")
    assert read.decoded(b"\xf8", ["utf-8", "latin-1"], "strict", "a") == ("ø", "latin-1")
    with pytest.raises(DataError, match=r"a: byte 1: invalid UTF-8 \(0xff: .*\); wanted text in utf-8 or ascii"):
        read.decoded(b"x\xff", ["utf-8", "ascii"], "strict", "a")
    with read.tallied() as tally:
        assert read.decoded(b"\xff\xef\xbf\xbd", ["utf-8"], "replace", "a") == ("\ufffd\ufffd", "utf-8")
    assert tally.replaced == 1


def test_threads_count_apart() -> None:
    from concurrent.futures import ThreadPoolExecutor

    def count(number: int) -> int:
        with read.tallied() as tally:
            for _ in range(2000):
                read.tally().replaced += 1
        return tally.replaced

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(count, range(16))) == [2000] * 16


def test_a_zero_among_letters_is_no_utf_16(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"a line of text\n\0 and what stands behind a zero\n")
    assert list(read.lines(tmp_path / "a.txt")) == ["a line of text", "\0 and what stands behind a zero"]


def test_a_reader_may_be_closed_while_an_unpacker_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the import its exceptions are unknown, and it cannot have raised any."""
    monkeypatch.setitem(sys.modules, "zstandard", types.ModuleType("zstandard"))
    assert OSError in read.broken()
    monkeypatch.undo()
    assert zstandard.ZstdError in read.broken()


@pytest.mark.parametrize(
    ("path", "remedy"),
    [
        ("work/fetch/squad/train-v1.1.json", "`ordsmed fetch squad` gets it"),
        ("work/fetch/wikipedia-nn", "`ordsmed fetch wikipedia-nn` gets it"),
        ("lessons/words-train.conll", "`python3 docs/lessons.py`, in the source of ordsmed, writes it"),
        ("work/fetch/", "relative paths are from the current folder"),
        ("mine/squad/train.json", "relative paths are from the current folder"),
    ],
)
def test_what_fetch_gets_and_is_not_there_leads_to_fetch(
    path: str, remedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError) as refused:
        read.files(path)
    assert str(refused.value).endswith(f"; {remedy}")


def test_what_is_no_file_is_reported_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.txt").write_text("x")
    (tmp_path / "elsewhere").mkdir()
    (folder := tmp_path / "texts").mkdir()
    (folder / "shelf").symlink_to(tmp_path / "elsewhere")
    (folder / "gone").symlink_to(tmp_path / "nothing")
    (folder / "file").symlink_to(tmp_path / "a.txt")
    os.mkfifo(folder / "pipe")
    (folder / ".hidden").symlink_to(tmp_path / "nothing")
    for _ in range(2):
        assert read.files(str(folder)) == [folder / "file"]
    wanted = "gone (a link that leads nowhere), pipe (a FIFO, socket or device), shelf (a link to a folder)"
    assert capsys.readouterr().err.splitlines() == [f"{folder}: left out: {wanted}"]
