"""Near duplicates: what is like a better text is dropped, what is half alike stays, however the work is cut."""

from __future__ import annotations

import lzma
import random
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import starmap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ordsmed.base.errors import DataError
from ordsmed.corpus import buckets, near, signatures, similar
from ordsmed.corpus.signatures import Near

HOW = Near()
ALPHABETS = {
    "english": ("etaoinshrdlucmfwyp", " ", (2, 9)),
    "norwegian": ("enrtsdilkgmoaåøævfpbhu", " ", (2, 14)),
    "chinese": ("".join(map(chr, range(0x4E00, 0x4E00 + 2500))), "", (1, 3)),
}


@dataclass(frozen=True)
class Language:
    """An invented language: words by Zipf's law, sentences of some 12."""

    words: list[str]
    blank: str

    def sentence(self, chance: random.Random) -> list[str]:
        return [self.word(chance) for _ in range(chance.randint(6, 18))]

    def word(self, chance: random.Random) -> str:
        return self.words[int(len(self.words) ** chance.random()) - 1]

    def text(self, sentences: list[list[str]]) -> str:
        end = "。" if not self.blank else ". "
        return end.join(self.blank.join(words) for words in sentences) + end

    def document(self, chance: random.Random, words: int) -> list[list[str]]:
        made: list[list[str]] = []
        while sum(map(len, made)) < words:
            made.append(self.sentence(chance))
        return made


def language(name: str) -> Language:
    letters, blank, (least, most) = ALPHABETS[name]
    chance = random.Random(name)
    words = ["".join(chance.choices(letters, k=chance.randint(least, most))) for _ in range(8000)]
    return Language(words, blank)


def replaced(made: list[list[str]], share: float, spoken: Language, chance: random.Random) -> list[list[str]]:
    """With this share of the words, drawn at random, replaced."""
    places = [(s, w) for s, words in enumerate(made) for w in range(len(words))]
    found = [list(words) for words in made]
    for s, w in chance.sample(places, round(share * len(places))):
        found[s][w] = spoken.word(chance)
    return found


def swapped(made: list[list[str]], share: float, spoken: Language, chance: random.Random) -> list[list[str]]:
    """With this share of the sentences replaced by others."""
    gone = set(chance.sample(range(len(made)), round(share * len(made))))
    return [spoken.sentence(chance) if n in gone else words for n, words in enumerate(made)]


class Shelf:
    """Texts by number; picklable."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = list(texts)

    def __call__(self, number: int) -> str:
        return self.texts[number]


def search(
    folder: Path,
    texts: Sequence[str],
    *,
    cut: int = 1000,
    how: Near = HOW,
    preference: Sequence[int] | None = None,
    spread: Callable[..., Iterator[Any]] = starmap,
    **more: Any,
) -> list[tuple[int, int, float]]:
    """Sign texts in files of `cut`, and find."""
    folder.mkdir(exist_ok=True)
    files, counts = [], []
    for start in range(0, len(texts), cut):
        files.append(folder / f"{start}.npy")
        counts.append(len(texts[start : start + cut]))
        np.save(files[-1], signatures.signatures(texts[start : start + cut], how))
    wanted = None if preference is None else np.array(preference, np.int64)
    found = near.find(files, counts, wanted, Shelf(texts), how, folder, spread, **more)
    assert not (folder / "near").exists()
    return list(zip(found.numbers.tolist(), found.kept.tolist(), found.similarity.tolist(), strict=True))


def pairs(found: list[tuple[int, int, float]]) -> list[tuple[int, int]]:
    return [(number, kept) for number, kept, _ in found]


def mixture(count: int, seed: int = 3) -> list[str]:
    """Documents, some of them copies that differ more or less."""
    chance, spoken = random.Random(seed), language("english")
    made: list[list[list[str]]] = []
    for n in range(count):
        if n % 3 or not made:
            made.append(spoken.document(chance, chance.randint(20, 60)))
        else:
            made.append(replaced(chance.choice(made), chance.choice([0, 0.02, 0.05, 0.1, 0.15]), spoken, chance))
    return [spoken.text(sentences) for sentences in made]


def one_by_one(texts: Sequence[str], preference: Sequence[int]) -> set[int]:
    """The promise, spelled out: every document against every kept one."""
    shingles = [
        {t[n : n + 7] for n in range(len(t) - 6)} for t in (re.sub(r"\W", "", text.casefold()) for text in texts)
    ]
    kept: list[int] = []
    for n in sorted(range(len(texts)), key=lambda n: (-preference[n], n)):
        if all(10 * len(shingles[n] & shingles[k]) < 7 * len(shingles[n] | shingles[k]) for k in kept):
            kept.append(n)
    return set(range(len(texts))) - set(kept)


@pytest.mark.parametrize("name", list(ALPHABETS))
def test_short_copies_with_little_replaced_are_found_and_half_replaced_ones_kept(name: str, tmp_path: Path) -> None:
    spoken, chance = language(name), random.Random(11)
    made = [spoken.document(chance, 40) for _ in range(150)]
    texts = [spoken.text(d) for d in made]
    little = [spoken.text(replaced(d, 0.05, spoken, chance)) for d in made]
    half = [spoken.text(replaced(d, 0.5, spoken, chance)) for d in made]
    halves = [spoken.text(swapped(d, 0.5, spoken, chance)) for d in made]
    found = search(tmp_path, texts + little + half + halves)
    assert pairs(found) == [(150 + n, n) for n in range(150)]


@pytest.mark.long
@pytest.mark.parametrize("name", list(ALPHABETS))
def test_long_copies_with_little_replaced_are_found_and_half_replaced_ones_kept(name: str, tmp_path: Path) -> None:
    spoken, chance = language(name), random.Random(12)
    made = [spoken.document(chance, 20_000) for _ in range(6)]
    changes = [replaced, swapped]
    texts = [spoken.text(d) for d in made]
    texts += [spoken.text(change(d, 0.05, spoken, chance)) for change in changes for d in made]
    texts += [spoken.text(d[: len(d) * 19 // 20]) for d in made]
    texts += [spoken.text(change(d, 0.5, spoken, chance)) for change in changes for d in made]
    assert pairs(search(tmp_path, texts)) == [(n, n % 6) for n in range(6, 24)]


@pytest.mark.long
def test_two_novels_are_not_alike(shared_data: Path, tmp_path: Path) -> None:
    with lzma.open(shared_data / "corpus/english-novels-100.txt.xz", "rt") as file:
        texts = [file.read(500_000) for _ in range(4)]
    assert search(tmp_path, texts) == []
    assert max(signatures.jaccard(texts[0], other, HOW) for other in texts[1:]) < 0.4


@pytest.mark.long
def test_one_of_the_kept_is_always_named_and_the_promise_is_kept(tmp_path: Path) -> None:
    texts = mixture(240)
    preference = [len(t) for t in texts]
    found = search(tmp_path, texts, preference=preference)
    dropped = {number for number, _, _ in found}
    wanted = one_by_one(texts, preference)
    assert len(wanted) > 40
    assert len(dropped ^ wanted) <= 2  # what lies at the threshold itself may be missed
    for number, kept, similarity in found:
        assert kept not in dropped
        assert (-preference[kept], kept) < (-preference[number], number)
        assert signatures.jaccard(texts[number], texts[kept], HOW) == pytest.approx(similarity, abs=0.15)


def test_no_chain(tmp_path: Path) -> None:
    words = [f"word{n:03d}" for n in range(300)]
    chain = [" ".join(words[20 * n : 20 * n + 140]) for n in range(4)]  # neighbours share 120 of 160 words: 0.75
    assert [signatures.jaccard(chain[0], other, HOW) > 0.7 for other in chain[1:]] == [True, False, False]
    assert pairs(search(tmp_path, chain)) == [(1, 0), (3, 2)]
    found = pairs(search(tmp_path, chain, preference=[0, 9, 0, 1]))
    assert found in ([(0, 1), (2, 1)], [(0, 1), (2, 3)])  # it is as much like the one as like the other
    assert pairs(search(tmp_path, chain, preference=[0, 9, 0, 1], how=Near(keep="first"))) == [(1, 0), (3, 2)]


@pytest.mark.long
def test_the_same_however_it_is_cut_and_by_however_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = mixture(120)
    preference = [len(t) for t in texts]
    wanted = search(tmp_path / "a", texts, preference=preference)
    assert search(tmp_path / "b", texts, cut=7, preference=preference) == wanted
    with ProcessPoolExecutor(2) as pool:
        spread = lambda function, arguments: pool.map(function, *zip(*arguments, strict=True))  # noqa: E731
        assert search(tmp_path / "c", texts, cut=50, preference=preference, spread=spread) == wanted
    monkeypatch.setattr(buckets, "RUN", 30)
    monkeypatch.setattr(buckets, "RUNS", 3)
    monkeypatch.setattr(buckets, "PART", 13)
    monkeypatch.setattr(similar, "PAIRS", 2)
    assert search(tmp_path / "d", texts, cut=7, preference=preference) == wanted


@pytest.mark.long
def test_a_search_that_was_killed_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After any interruption, results of finished tasks are used and the result is the same; other searches restart."""
    texts, done = mixture(90), list[str]()
    wanted = search(tmp_path / "whole", texts, cut=30)
    monkeypatch.setattr(buckets, "RUN", 30)

    def interrupted(after: int) -> Callable[..., Iterator[Any]]:
        def spread(function: Callable[..., Any], tasks: Iterator[tuple[Any, ...]]) -> Iterator[Any]:
            for task in tasks:
                if len(done) == after:
                    raise KeyboardInterrupt
                yield function(*task)

        return spread

    for module, name in ((near, "write_run"), (buckets, "_equal"), (similar, "_compare")):
        inner = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *task, inner=inner: (done.append(inner.__name__), inner(*task))[1])
    folder = tmp_path / "killed"
    for after in (1, 3, 9, 20):
        with pytest.raises(KeyboardInterrupt):
            search_again(folder, texts, interrupted(after))
        assert len(done) == after
    assert search_again(folder, texts, starmap) == wanted
    assert len(done) == 3 + 1 + 25 * (done.count("_compare") // 25)
    assert not (folder / "near").exists()
    with pytest.raises(KeyboardInterrupt):
        search_again(folder, texts, interrupted(len(done) + 5))
    kept = sorted((folder / "near").glob("*.npz"))
    assert len(kept) == 5
    kept[-1].write_bytes(kept[-1].read_bytes()[:-9])  # a power cut
    assert search_again(folder, texts, starmap) == wanted
    with pytest.raises(KeyboardInterrupt):
        search_again(folder, texts, interrupted(len(done) + 9))
    assert search_again(folder, texts[::-1], starmap) == search(tmp_path / "other", texts[::-1], cut=30)


def search_again(
    folder: Path, texts: Sequence[str], spread: Callable[..., Iterator[Any]]
) -> list[tuple[int, int, float]]:
    """The same signatures' files, if they are of the same texts."""
    files = [folder / f"{start}.npy" for start in range(0, len(texts), 30)]
    for n, path in enumerate(files):
        made = signatures.signatures(texts[30 * n : 30 * n + 30], HOW)
        if not path.exists() or (np.load(path) != made).any():
            folder.mkdir(exist_ok=True)
            np.save(path, made)
    found = near.find(files, [30] * len(files), None, Shelf(texts), HOW, folder, spread)
    return list(zip(found.numbers.tolist(), found.kept.tolist(), found.similarity.tolist(), strict=True))


def test_signatures_are_the_same_in_any_company(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [
        "",
        "a",
        "中",
        "中文\0",
        "æøå " * 40,
        "x" * 9,
        "new\u2003line\n" * 30,
        "𝔘😀" * 20,
        "\ud800 lone",
        *mixture(5),
    ]
    together = signatures.signatures(texts, HOW)
    assert together.dtype.str == "<u4"
    assert together.shape == (len(texts), 128)
    assert (np.stack([signatures.signatures([text], HOW)[0] for text in texts]) == together).all()
    monkeypatch.setattr(signatures, "BATCH", 50)
    assert (signatures.signatures(texts, HOW) == together).all()
    assert (signatures.signatures(texts, Near(seed=1)) != together).mean() > 0.99


def test_signatures_of_every_machine() -> None:
    found = signatures.signatures(["Over hekken står en grå hegre.", "短い文"], Near(permutations=16))
    assert found[:, :4].tolist() == [
        [3108220568, 3108220568, 3108220568, 1656444595],
        [3663561873, 2939301955, 1956321166, 3663561873],
    ]


def test_case_white_space_and_punctuation_do_not_count() -> None:
    assert signatures.jaccard("One  TWO\n\tthree four", " one two three FOUR ", HOW) == 1
    assert signatures.jaccard("«Don’t», she said – “re-use 1.5 €”…", "dont SHE said: reuse 15!", HOW) == 1
    assert signatures.jaccard("a", "b", HOW) == 0
    assert signatures.jaccard("", " \n", HOW) == 1


def test_letters_digits_and_marks_of_any_script_count() -> None:
    for one, other in [
        ("वह किताब", "वह कताब"),
        ("ที่นี่", "ที่นี้"),
        ("x 1", "x 2"),
        ("naïve", "naive"),
        ("短い文", "短い分"),
        ("𐍈a", "𐍉a"),
    ]:
        assert signatures.jaccard(one, other, HOW) < 1, one
    for code in (*range(0x3000), *range(0xFE00, 0x10000), *range(0x1F000, 0x1FA00), *range(0xE0000, 0xE0100)):
        kind = unicodedata.category(chr(code))
        if kind not in ("Cn", "Co", "Cs"):
            assert (signatures._kinds()[code] == signatures.LETTER) == (kind[0] in "LMN"), hex(code)


def test_texts_of_signs_alone_are_told_apart() -> None:
    assert signatures.jaccard("🙂 🙂", "*** ***", HOW) == 0
    assert signatures.jaccard("🙂🙂", "🙂\n🙂", HOW) == 1
    assert signatures.jaccard("?!", "", HOW) == 0


@pytest.mark.parametrize("change", [r"[^\w\s]", r"\s", r"[^\w]"])
def test_copies_that_differ_by_what_does_not_count_are_found(shared_data: Path, tmp_path: Path, change: str) -> None:
    """Real reviews without their punctuation, their blanks, or both, in capitals: all copies go and nothing else."""
    with lzma.open(shared_data / "corpus/norec-train.no.txt.xz", "rt", encoding="utf-8") as file:
        texts = file.read(400_000).split("\n\n")[:-1]
    changed = [re.sub(change, "", text).upper().replace("ẞ", "SS") for text in texts]
    found = search(tmp_path, [*texts, *changed])
    assert pairs(found) == [(n + len(texts), n) for n in range(len(texts))]
    assert {similarity for _, _, similarity in found} == {1.0}


@pytest.mark.parametrize("words", [4, 12, 100, 400])
def test_the_estimate_is_as_good_as_it_says(words: int) -> None:
    spoken, chance = language("english"), random.Random(words)
    made = [spoken.document(chance, words) for _ in range(150)]
    one = [spoken.text(d) for d in made]
    other = [spoken.text(replaced(d, 0.09, spoken, chance)) for d in made]
    estimate = (signatures.signatures(one, HOW) == signatures.signatures(other, HOW)).mean(1)
    truth = np.array([signatures.jaccard(a, b, HOW) for a, b in zip(one, other, strict=True)])
    assert 0.5 < truth.mean() < 0.95
    assert abs((estimate - truth).mean()) < 0.012
    assert (estimate - truth).std() < 0.045


def test_pairs_at_the_threshold_are_found() -> None:
    for threshold in (0.3, 0.5, 0.7, 0.8, 0.9, 1.0):
        bands, rows = Near(threshold=threshold).bands()
        assert bands * rows <= 128
        assert 1 - (1 - threshold**rows) ** bands >= 0.985
    assert HOW.bands() == (25, 5)


def test_nothing_one_and_all_equal(tmp_path: Path) -> None:
    assert search(tmp_path, []) == []
    assert search(tmp_path, ["one"]) == []
    assert search(tmp_path, ["", "", "a" * 50, ""]) == [(1, 0, 1), (3, 0, 1)]
    line = " ".join(map(str, range(600_000)))
    assert len(line) > 4_000_000
    assert pairs(search(tmp_path, [line, line[9000:] + " and more"], preference=[0, 1])) == [(0, 1)]


@pytest.mark.long
def test_many_equal_and_many_of_one_template(tmp_path: Path) -> None:
    assert len(search(tmp_path / "a", ["the same words for all of these"] * 100_000, cut=20_000)) == 99_999
    spoken, chance = language("english"), random.Random(8)
    template = spoken.document(chance, 60)
    made = [template + spoken.document(chance, 50) for _ in range(3000)]
    pages = [spoken.text(d) for d in made]
    assert 0.3 < signatures.jaccard(pages[0], pages[1], HOW) < 0.6
    pages.append(spoken.text(replaced(made[2000], 0.03, spoken, chance)))
    assert pairs(search(tmp_path / "b", pages)) == [(3000, 2000)]
    little = [spoken.text(template) * 2 + f"number {n}" for n in range(3000)]
    assert pairs(search(tmp_path / "c", little)) == [(n, 0) for n in range(1, 3000)]


def test_against_other_documents(tmp_path: Path) -> None:
    spoken, chance = language("english"), random.Random(5)
    made = [spoken.document(chance, 60) for _ in range(4)]
    copy = [spoken.text(replaced(d, 0.03, spoken, chance)) for d in made]
    texts = [spoken.text(made[0]), spoken.text(made[0]), copy[0], spoken.text(made[1]), copy[1], copy[0], copy[2]]
    preference = [0, 0, 0, 1, 2, 99, 99]
    assert pairs(search(tmp_path, texts, preference=preference, against=3)) == [(3, 4), (5, 2)]
    assert pairs(search(tmp_path, texts, preference=preference)) == [(0, 5), (1, 5), (2, 5), (3, 4)]


def test_keys_alone_and_keys_with_signatures(tmp_path: Path) -> None:
    keys = np.array([5, 7, 5, 2**64 - 1, 7, 5, 0, 2**64 - 1], np.uint64)
    found = near.find([], [3, 5], np.array([0, 1, 9, 0, 1, 9, 0, 0]), None, HOW, tmp_path, keys=keys)
    assert found.numbers.tolist() == [0, 4, 5, 7]
    assert found.kept.tolist() == [2, 1, 2, 3]
    texts = mixture(8)
    signed = pairs(search(tmp_path, texts))
    assert 7 not in dict(signed)
    assert 4 not in dict(signed)
    assert pairs(search(tmp_path, texts, keys=np.array([0, 1, 2, 3, 4, 5, 6, 4], np.uint64))) == [*signed, (7, 4)]


def test_the_biggest_groups(tmp_path: Path) -> None:
    found = near.Duplicates(
        np.array([1, 2, 3, 5, 6]), np.array([0, 0, 0, 4, 4]), np.array([1.0, 0.75, 0.875, 1.0, 1.0], "<f4")
    )
    assert near.groups(found, 1, 2) == [near.Group(0, 4, [(2, 0.75), (3, 0.875)])]
    assert [group.size for group in near.groups(found, 9)] == [4, 3]
    assert near.groups(near.Duplicates(*[np.empty(0, int)] * 3), 3) == []


def damaged(kind: str, path: Path, rows: np.ndarray) -> None:
    if kind == "swapped":
        np.save(path, rows.astype(">u4"))
    elif kind == "shape":
        np.save(path, rows[:, :64])
    elif kind == "rows":
        np.save(path, rows[:1])
    elif kind == "seed":
        np.save(path, signatures.signatures(["one text", "another"], Near(seed=9)))
    elif kind == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[: -200 if kind == "cut" else 0])


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("cut", "truncated"),
        ("empty", "truncated"),
        ("gone", "no such file"),
        ("swapped", "(2, 128) '>u4'; wanted 2 signatures of 128 '<u4'"),
        ("shape", "(2, 64) '<u4'"),
        ("rows", "(1, 128) '<u4'"),
        ("seed", "not the signature of document 0"),
    ],
)
def test_a_file_that_is_not_what_it_should_be_is_named(kind: str, said: str, tmp_path: Path) -> None:
    texts = ["one text", "another"]
    path = tmp_path / "0.npy"
    np.save(path, rows := signatures.signatures(texts, HOW))
    damaged(kind, path, rows)
    with pytest.raises(DataError) as caught:
        near.find([path], [2], None, Shelf(texts), HOW, tmp_path)
    assert str(caught.value).startswith(f"{path}: ")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "wrong", [{"threshold": 0}, {"threshold": 1.1}, {"shingle": 0}, {"permutations": 8}, {"seed": -1}]
)
def test_settings_that_cannot_be(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))}: found"):
        Near(**wrong)


def test_bytes_that_agree_by_chance_are_no_similarity(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = np.random.default_rng(5)
    judge = object.__new__(similar.PairComparison)
    judge.work = buckets.MatchingWork(Path(), HOW, None, 0, (), False, True)
    drawn = [chance.integers(0, 256, (4000, 128), np.uint8) for _ in range(2)]
    half = np.where(np.arange(128) < 64, drawn[0], drawn[1])
    monkeypatch.setattr(similar.PairComparison, "_bytes", lambda self, ranks: ranks)
    assert abs(judge._estimate(*drawn).mean()) < 0.0008  # uncorrected: 0.0039
    assert abs(judge._estimate(drawn[0], half).mean() - 0.5) < 0.0008
    assert (judge._estimate(drawn[0], drawn[0]) == 1).all()


def test_settings_reach_to_their_bounds() -> None:
    for fine in (
        {"threshold": 1.0},
        {"shingle": 1},
        {"shingle": 1000},
        {"permutations": 16},
        {"permutations": 4096},
        {"seed": 0},
        {"seed": 2**63},
    ):
        Near(**fine)  # type: ignore[arg-type]
    for wrong in ({"shingle": 1001}, {"permutations": 15}, {"permutations": 4097}, {"seed": 2**63 + 1}):
        with pytest.raises(ValueError, match=f"{next(iter(wrong))}: found"):
            Near(**wrong)
    assert Near(threshold=0.01).bands() == (128, 1)
    assert HOW.doubt() == pytest.approx(2 * (0.7 * 0.3 / 128) ** 0.5)


@pytest.mark.parametrize("before", [63, 64])
def test_of_a_large_bucket_the_others_are_compared_with_the_best_64(tmp_path: Path, before: int) -> None:
    """All agree in one band and nowhere else, but for the last two, which are alike and share no other band."""
    chance = np.random.default_rng(before)
    rows = chance.integers(0, signatures.EMPTY, (before + 2, 128), dtype=np.uint32)
    alike = np.arange(128) % 5 < 4
    rows[-1, alike] = rows[-2, alike]
    rows[:, :5] = rows[0, :5]
    np.save(tmp_path / "0.npy", rows)
    found = near.find([tmp_path / "0.npy"], [len(rows)], None, None, HOW, tmp_path)
    assert list(zip(found.numbers.tolist(), found.kept.tolist(), strict=True)) == ([(64, 63)] if before == 63 else [])


def test_who_is_dropped_follows_from_all_pairs_whenever_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if all were taken by rank; also where changes follow from changes for too long."""
    chance = random.Random(4)
    for waves in [64] * 60 + [0, 1, 2] * 20:
        monkeypatch.setattr(similar, "WAVES", waves)
        total = chance.randint(2, 40)
        found, all_pairs = similar.SimilarPairs(total), set[tuple[int, int]]()
        for _ in range(5):
            ranks = [chance.sample(range(total), 2) for _ in range(chance.choice([0, 3, 20]))]
            more = {(max(pair), min(pair)) for pair in ranks} - all_pairs
            all_pairs |= more
            worse, better = (np.array([pair[n] for pair in more], "<u4") for n in (0, 1))
            found.add([similar._joined(worse, better)], [worse / np.float32(64)])
            dropped = set[int]()
            for rank in range(total):
                dropped |= {rank} if any(w == rank and b not in dropped for w, b in all_pairs) else set()
            assert set(np.flatnonzero(found.dropped).tolist()) == dropped
            assert found.pairs.tolist() == sorted(w << 32 | b for w, b in all_pairs)
            assert (found.similarity * 64 == similar.split(found.pairs)[0]).all(), "each pair keeps its own"


def test_pairs_are_walked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not all of them again with every band: of 40,000 in 25 additions less than two each are taken apart."""
    taken, inner = list[int](), similar.split
    monkeypatch.setattr(similar, "split", lambda pairs: (taken.append(len(pairs)), inner(pairs))[1])
    found, chance = similar.SimilarPairs(1_000_000), np.random.default_rng(2)
    for n in range(25):
        worse = (40_000 * n + 1 + chance.permutation(39_999)[:1600]).astype("<u4")
        found.add([similar._joined(worse, worse // 40_000 * 40_000)], [np.ones(1600, "<f4")])
    assert len(found.pairs) == 40_000
    assert sum(taken) < 80_000


def derived(row: np.ndarray, band: int, at: int) -> np.ndarray:
    """A signature that differs in one number of every band but this one."""
    found = row.copy()
    found[[5 * n + at for n in range(25) if n != band]] += np.uint32(1)
    return found


def test_one_that_comes_back_is_compared_with_all(tmp_path: Path) -> None:
    """x is dropped for b, b for a, but only in the second turn, as it was dropped for c, and c for d, in the first.

    So x, which comes back in the second turn, meets y in a third: before, it was dropped where they share a band.
    """
    b = np.random.default_rng(6).integers(0, 2**31, 128, dtype=np.uint32)
    x, c, a = derived(b, 0, 0), derived(b, 2, 1), derived(b, 3, 2)
    y, d = derived(x, 1, 3), derived(c, 4, 4)
    np.save(tmp_path / "0.npy", np.stack([d, c, a, b, y, x]))
    found = near.find([tmp_path / "0.npy"], [6], None, None, HOW, tmp_path)
    assert list(zip(found.numbers.tolist(), found.kept.tolist(), strict=True)) == [(1, 0), (3, 2), (5, 4)]


def test_one_that_was_passed_over_for_another_that_goes_is_compared_with_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """w is like b and passed over at once; in the same band b goes: d goes for e, so that c is back, for which b goes.

    So w has to meet y. Two that are not alike meet once.
    """
    chance, asked = np.random.default_rng(7), list[tuple[int, int]]()
    b, u, v = chance.integers(0, 2**31, (3, 128), dtype=np.uint32)
    v[25:30] = u[25:30]
    c, w = derived(b, 0, 1), derived(b, 2, 4)
    d, y = derived(c, 1, 2), derived(w, 2, 0)
    np.save(tmp_path / "0.npy", np.stack([derived(d, 2, 3), d, c, b, y, w, u, v]))
    judged = similar.PairComparison.__call__

    def judge(self: similar.PairComparison, worse: np.ndarray, better: np.ndarray, **more: Any) -> Any:
        asked.extend(zip(worse.tolist(), better.tolist(), strict=True))
        return judged(self, worse, better, **more)

    monkeypatch.setattr(similar.PairComparison, "__call__", judge)
    found = near.find([tmp_path / "0.npy"], [8], None, None, HOW, tmp_path)
    assert list(zip(found.numbers.tolist(), found.kept.tolist(), strict=True)) == [(1, 0), (3, 2), (5, 4)]
    assert asked.count((7, 6)) == 1


def planned(total: int, in_file: int) -> tuple[int, int]:
    """Run files, and how often one is opened to search so many documents."""
    runs = len(buckets.runs_of([Path()] * (total // in_file), [in_file] * (total // in_file)))
    return runs, 27 * len(buckets.parts_of_keys(total)) * 3 * runs


def test_files_are_opened_as_often_as_documents_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to 10^9 in files of 10,000, and as many as there can be."""
    assert planned(10**6, 10_000) == (8, 27 * 16 * 3 * 8)
    for total in (10**8, 10**9, 4 * 10**9):
        runs, opens = planned(total, 10_000)
        assert 120 <= runs <= 128
        assert opens < 0.006 * total
    monkeypatch.setattr(buckets, "RUN", 1)
    assert len(buckets.runs_of([Path()] * 129, [1] * 129)) == 65
    monkeypatch.undo()
    assert planned(10**9, 10_000)[1] < 5_000_000, "with each 131,072 documents a run it was 295 million"


@pytest.mark.parametrize("documents", [32, 96])
def test_what_a_task_opens_and_compares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, documents: int) -> None:
    """Whatever the number of documents is: as many files, entries and pairs."""
    monkeypatch.setattr(buckets, "RUN", 4)
    monkeypatch.setattr(buckets, "RUNS", 6)
    monkeypatch.setattr(buckets, "PART", 16)
    opened, entries, compared = Counter[str](), list[int](), list[int]()
    inner, judged = buckets.MatchingWork.open, similar.PairComparison.__call__
    monkeypatch.setattr(
        buckets.MatchingWork, "open", lambda work, name: (opened.update([name.partition("-")[0]]), inner(work, name))[1]
    )
    monkeypatch.setattr(buckets, "_entries", lambda *task, inner=buckets._entries: note(entries, inner(*task)))
    monkeypatch.setattr(
        similar.PairComparison,
        "__call__",
        lambda judge, worse, *told, **more: (compared.append(len(worse)), judged(judge, worse, *told, **more))[1],
    )
    texts = mixture(documents)
    search(tmp_path, texts, cut=2)
    tasks = len(entries)
    assert tasks >= 26 * (documents // 16)
    assert (opened["run"], opened["ranks"]) == (6 * tasks, 6 * tasks)
    assert opened["bytes"] <= 6 * tasks
    assert max(entries) <= 3 * 16
    assert sum(compared) <= 2 * documents


def note(sizes: list[int], found: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    sizes.append(len(found[0]))
    return found


@pytest.mark.parametrize(("estimate", "close"), [(0.6, False), (0.62, True), (0.78, True), (0.79, False)])
@pytest.mark.parametrize("tried", [0, 3, 4])
def test_what_is_too_close_to_call_is_read_until_four_were_found_apart(
    monkeypatch: pytest.MonkeyPatch, estimate: float, close: bool, tried: int
) -> None:
    """Document 9 was found apart from so many others; no pair is read twice."""
    judge, asked = object.__new__(similar.PairComparison), list[int]()
    judge.work = buckets.MatchingWork(Path(), HOW, str, 0, (), False, True)
    judge.unlike = []
    pair = lambda worse, better: similar._joined(np.array([worse], "<u4"), np.array([better], "<u4"))  # noqa: E731
    others = [*(pair(9, n) for n in range(tried)), pair(8, 7)]
    judge.apart = np.sort(np.concatenate(others))
    monkeypatch.setattr(
        similar.PairComparison, "_estimate", lambda self, worse, better: np.full(len(worse), estimate, "<f4")
    )
    monkeypatch.setattr(
        similar.PairComparison,
        "_exact",
        lambda self, worse, better: (asked.extend(worse.tolist()), [0.69] * len(worse))[1],
    )
    like, similarity = judge(np.array([9, 8], "<u4"), np.array([50, 7], "<u4"), exactly=True)
    assert asked == ([9] if close and tried < 4 else [])
    assert like.tolist() == [estimate == 0.79] * 2
    assert similarity[0] == pytest.approx(0.69 if asked else estimate)
    assert judge.unlike == ([pair(9, 50)[0]] if asked else [])
    like, _ = judge(np.array([9], "<u4"), np.array([50], "<u4"), exactly=False)
    assert (like.tolist(), len(asked)) == ([estimate == 0.79], int(close and tried < 4))


@pytest.mark.parametrize("name", ["VERSION", "RUN", "RUNS", "PART", "PIVOTS"])
def test_a_search_by_other_bounds_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    left = near._scratch(tmp_path, ["what"]) / "0-0.npz"
    left.touch()
    near._scratch(tmp_path, ["what"])
    assert left.exists()
    monkeypatch.setattr(near, name, 7)
    near._scratch(tmp_path, ["what"])
    assert not left.exists()
