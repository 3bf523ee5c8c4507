"""Advertisements and machine lists planted among pages, found by a linear judge that saw other makers of them.

    python tests/measure/planted.py DATA [--pages 12000] [--share 0.1] [--threads 2]

DATA has corpus/ (novels, reviews in English and Norwegian). Every maker of an advertisement or list belongs to one of
three parts with its phrases and goods: to learn from, to choose the threshold on, to report on; so do the pages. Then
the speed of the filter: MB/s of processor time, and with several processes side by side.
"""

from __future__ import annotations

import argparse
import lzma
import multiprocessing
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from ordsmed.corpus import linear
from ordsmed.corpus.linear import Linear

Rows = list[tuple[str, int]]
PARTS = 3  # to learn from, to choose on, to report on
GOODS = """\
sofa bed|mattress|desk lamp|running shoes|winter jacket|coffee maker|blender|vacuum cleaner|headphones|
phone case|laptop bag|garden chair|grill|power drill|bike helmet|yoga mat|protein powder|vitamin drops|
face cream|perfume|hair dryer|watch strap|car battery|floor mats|tire set|wall paint|carpet|curtains|
bath towels|dinner set|steak knives|wine rack|camping tent|fishing rod|golf clubs|guitar strings|
keyboard stand|printer ink|memory card|router|webcam|baby stroller|toy train|puzzle|dog food|cat litter|
fish tank|travel insurance|credit card|home loan|web hosting|language course|sofaseng|madrass|joggesko|
vinterjakke|kaffetrakter|støvsuger|hodetelefoner|hagestol|boremaskin|sykkelhjelm|ansiktskrem|bilbatteri|
vinterdekk|gardiner|håndklær|campingtelt|fiskestang|hundemat|reiseforsikring|forbrukslån|strømavtale""".replace(
    "\n", ""
).split("|")
BRANDS = "Nordix Velura Kestro Almivo Brandal Tervox Quintra Solvane Miradon Hexley Optira Zentia Lumora Fjordal"
PHRASES = """\
Buy {g} now and save {p}%!|Free shipping on every {g} over ${n}.|Only {n} left in stock - order today|
Shop {b} {g} at the lowest price|Limited offer: {g} from ${n}.99|Add to cart and get {p}% off your first {g}|
{b} - the best {g} for less|Call 0800-{n}-{p} for a free quote|Sign up for our newsletter and win a {g}|
Was ${n}, now ${p}! Hurry, the {g} sale ends Sunday|Trusted by {n}00 customers. Read reviews of {b} {g}|
Compare {g} prices from {p} stores|Kjøp {g} nå og spar {p} %!|Gratis frakt på {g} over {n} kr|
Tilbud: {g} fra {b}, kun {n},-|Bestill i dag, få {p} % rabatt på {g}|
Get your {g} delivered tomorrow. 30-day money back guarantee|New season {g}: up to {p}% discount at {b}|
Pay later with {b}. No interest on {g} for {p} months|Bundle deal! Two {g}s for ${n}|
Exclusive {b} members price: ${n} for this {g}|Click here to claim your {g} coupon code SAVE{p}|
Best seller! Rated 4.{p} of 5 by buyers of {g}|In stock: {b} {g}, ships within {p} hours|
Meld deg på nyhetsbrevet og vinn {g}|{b} har {g} på lager, rask levering|
Lavpris på {g}! Nå bare {n} kr (før {p}99 kr)|Handle {g} på nett hos {b}|Why pay more? {b} {g} only ${n}|
Request a free {g} sample today!|Our {g} experts are open 24/7, chat now|Save big on {g}: use voucher {b}{p}""".replace(
    "\n", ""
).split("|")


def advert(chance: random.Random, part: int) -> str:
    goods, brands, phrases = (words[part::PARTS] for words in (GOODS, BRANDS.split(), PHRASES))
    lines = [
        chance.choice(phrases).format(
            g=chance.choice(goods), b=chance.choice(brands), n=chance.randint(9, 990), p=chance.randint(5, 95)
        )
        for _ in range(chance.randint(4, 30))
    ]
    return chance.choice(["\n", " ", "\n\n"]).join(lines)


def _code(chance: random.Random, size: int) -> str:
    return "".join(chance.choice("ABCDEFGHJKLMNPRSTUVWXYZ0123456789") for _ in range(size))


def _byte(chance: random.Random) -> int:
    return chance.randint(0, 255)


def _day(c: random.Random) -> str:
    return f"2026-{c.randint(1, 12):02}-{c.randint(1, 28):02} {c.randint(0, 23):02}:{c.randint(0, 59):02}"


def _word(chance: random.Random) -> str:
    return "".join(chance.choice("bdfgklmnprst") + chance.choice("aeiou") for _ in range(chance.randint(1, 4)))


LISTS: list[Callable[[random.Random], str]] = [
    lambda c: f"{_code(c, 8)}\t{c.randint(1, 999)}\t{c.random() * 100:.2f}",
    lambda c: f"{_day(c)} INFO {_word(c)}={c.randint(0, 9999)}",
    lambda c: f"/{_word(c)}/{_word(c)}-{_word(c)}/{c.randint(1, 9999)}.html",
    lambda c: f"{_word(c).title()} ({c.randint(1, 500)})",
    lambda c: f"{c.randint(1, 99)}. {_word(c).title()} {_word(c).title()} - {c.randint(1, 9)}:{c.randint(10, 59)}",
    lambda c: f"+47 {c.randint(100, 999)} {c.randint(10, 99)} {c.randint(100, 999)} {_word(c).title()}",
    lambda c: " | ".join(_word(c) for _ in range(6)),
    lambda c: f"{_word(c)}.{_word(c)}({_word(c)}, {c.randint(0, 255)});",
    lambda c: f"{_byte(c)}.{_byte(c)}.{_byte(c)}.{_byte(c)} - GET {c.choice([200, 404])}",
    lambda c: f"#{_word(c)} #{_word(c)} #{_word(c)} @{_word(c)}{c.randint(1, 99)}",
    lambda c: f"{_code(c, 3)} {c.random() * 300:.2f} {c.choice('+-')}{c.random() * 5:.2f}%",
    lambda c: f"Size {c.randint(30, 50)} | Color {_word(c)} | SKU {_code(c, 6)} | Qty {c.randint(1, 9)}",
]


def machine_list(chance: random.Random, part: int) -> str:
    line = chance.choice(LISTS[part::PARTS])
    return "\n".join(line(chance) for _ in range(chance.randint(15, 80)))


def pages(data: Path) -> Iterator[str]:
    """Prose: chapters in pieces of some thousand characters, reviews."""
    chance = random.Random(0)
    with lzma.open(data / "corpus/english-novels-100.txt.xz", "rt", encoding="utf-8") as file:
        text = file.read(30_000_000)
    at = 0
    while at < len(text):
        size = chance.randint(500, 6000)
        yield text[at : at + size]
        at += size
    with lzma.open(data / "corpus/imdb-reviews-50k.tsv.xz", "rt", encoding="utf-8") as file:
        yield from (line.rstrip("\n").split("\t", 2)[2] for line in file)
    with lzma.open(data / "corpus/norec-train.no.txt.xz", "rt", encoding="utf-8") as file:
        yield from file.read().split("\n\n")


def planted(data: Path, count: int, share: float) -> list[Rows]:
    """Three parts of pages, with such a share of planted ones: 1."""
    prose, found = list(pages(data)), list[Rows]()
    random.Random(1).shuffle(prose)
    for part in range(PARTS):
        chance = random.Random(f"planted {part}")
        bad = [(chance.choice([advert, machine_list])(chance, part), 1) for _ in range(round(share * count))]
        rows = [(text, 0) for text in prose[part * count : (part + 1) * count - len(bad)]] + bad
        chance.shuffle(rows)
        found.append(rows)
    return found


def _scores(model: Linear, rows: Rows) -> np.ndarray:
    return np.array([model.probabilities(text)[1] for text, _ in rows])


def _found(scores: np.ndarray, gold: np.ndarray, threshold: float) -> tuple[float, float]:
    said = scores >= threshold
    right = (said & gold).sum()
    return right / max(said.sum(), 1), right / gold.sum()


def _shown(scores: np.ndarray, gold: np.ndarray, threshold: float) -> str:
    return ", ".join(f"{share:.1%}" for share in _found(scores, gold, threshold))


def seconds(model: Linear, rows: Rows) -> float:
    began = time.process_time()
    for text, _ in rows:
        model.probabilities(text)
    return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--pages", type=int, default=12_000)
    parser.add_argument("--share", type=float, default=0.1)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    learned, chosen, reported = planted(args.data, args.pages, args.share)
    began = time.process_time()
    model = linear.learn(
        [t for t, _ in learned], [g for _, g in learned], ("page", "planted"), bits=20, epochs=5, seed=0
    )
    print(f"learned from {len(learned):,} pages in {time.process_time() - began:.1f} s of processor time")
    scores, gold = _scores(model, chosen), np.array([g for _, g in chosen]) == 1
    threshold = max(np.unique(scores), key=lambda t: min(_found(scores, gold, t)))
    print(f"chosen: {threshold:.4f}, precision and recall {_shown(scores, gold, threshold)}")
    scores, gold = _scores(model, reported), np.array([g for _, g in reported]) == 1
    for t in (threshold, 0.5):
        print(f"reported at {t:.4f}: precision and recall {_shown(scores, gold, t)}")
    for maker in (advert, machine_list):
        chance = random.Random(7)
        made = _scores(model, [(maker(chance, 2), 1) for _ in range(500)])
        print(f"  {maker.__name__}: {(made >= threshold).mean():.1%} found")
    size = sum(len(text.encode()) for text, _ in reported) / 1e6
    one = seconds(model, reported)
    context = multiprocessing.get_context("fork")
    with context.Pool(args.threads) as pool:
        each = pool.starmap(seconds, [(model, reported)] * args.threads)
    print(
        f"{size:.1f} MB in pages of {1e6 * size / len(reported):,.0f} bytes: {size / one:.0f} MB/s of one process, "
        f"{args.threads} side by side {sum(size / s for s in each):.0f} MB/s of their processor time"
    )


if __name__ == "__main__":
    main()
