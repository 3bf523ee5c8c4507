"""How many steps a moved vocabulary saves: a BERT of English reviews goes on in Norwegian, its pieces moved or fresh.

    python tests/measure/transplant.py work/transplant --reviews imdb-reviews-50k.tsv.xz \\
        --norwegian norec-train.no.txt.xz --steps 1000 300

Per seed two runs from the same body over the same rows: `transplant` and `fresh`. Told is the step at which the first
has the validation loss that the second ends with, between two validations by a straight line. It may be stopped at any
moment: the same command goes on. With --extend instead: the English tokenizer gets 2,000 pieces for Norwegian, and the
outputs of texts with and without new pieces are compared before the first step.
"""

from __future__ import annotations

import argparse
import itertools
import json
import lzma
from pathlib import Path

import numpy as np
import torch

import ordsmed
from ordsmed.base import run
from ordsmed.data.encode import Encoding
from ordsmed.data.tokenizer_training import TokenizerTraining, read_tokenizer
from ordsmed.weights.origin import Origin
from ordsmed.weights.trained_model import open_model

CORPUS = 'sentences = "none"\nvalidation = 0.03\n[source]\nkind = "jsonl"\npath = "{path}"\n'
PIECES = 'corpus = "{corpus}"\n[tokenizer]\nkind = "wordpiece"\nsize = {size}\n'
MORE = 'corpus = "{corpus}"\n[tokenizer]\nkind = "extended"\nbase = "{base}"\npieces = 2000\n'
ENCODED = 'corpus = "{corpus}"\ntokenizer = "{tokenizer}"\n'
RUN = """data = "{data}"
save = 100
keep = 1
validate = {validate}
validation_rows = 256
log = 100
{more}
[layout]
device = "cpu"
threads = 1
[objective]
kind = "mlm"
[[phase]]
steps = {steps}
length = 64
batch = 32
learning_rate = 1e-3
warmup = {warmup}
"""
MODEL = """[model]
kind = "bert"
width = 128
layers = 3
heads = 2
positions = 64
dropout = 0.0
attention_dropout = 0.0
"""


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("folder", type=Path)
    asked.add_argument("--reviews", type=Path, required=True, help="split, label and text of each, with tabs; .xz")
    asked.add_argument("--norwegian", type=Path, required=True, help="documents with a blank line between; .xz")
    asked.add_argument("--documents", type=int, default=3000)
    asked.add_argument("--size", type=int, default=4000, help="pieces of each vocabulary")
    asked.add_argument("--steps", type=int, nargs=2, default=(1000, 400), help="in English, and on")
    asked.add_argument("--seeds", type=int, nargs="+", default=(1, 2, 3))
    asked.add_argument("--extend", action="store_true")
    given = asked.parse_args()
    home = given.folder.absolute()
    home.mkdir(parents=True, exist_ok=True)
    with lzma.open(given.reviews, "rt", encoding="utf-8") as file:
        reviews = [line.rstrip("\n").split("\t")[-1] for line in itertools.islice(file, given.documents)]
    with lzma.open(given.norwegian, "rt", encoding="utf-8") as file:
        norwegian = file.read().split("\n\n")[: given.documents]
    english = prepared(home, "en", reviews, given.size)
    start = trained(home, "english", english, given.steps[0], MODEL)
    print(f"English: validation loss {validations(start)[-1][1]:.3f}")
    if given.extend:
        extended(home, start, prepared_corpus(home, "no", norwegian))
        return
    data = prepared(home, "no", norwegian, given.size)
    shares = []
    for seed in given.seeds:
        curves = {}
        for way in ("fresh", "transplant"):
            more = f'init = "{start}"\nvocabulary = "{way}"\nseed = {seed}'
            folder = trained(home, f"{way}-{seed}", data, given.steps[1], "", more)
            curves[way] = validations(folder)
        facts = json.loads((home / f"transplant-{seed}" / "status.json").read_text())["vocabulary"]
        last, goal = curves["fresh"][-1]
        shares.append(reached(curves["transplant"], goal) / last)
        print(
            f"seed {seed}: before the first step {facts['validation']:.3f},"
            f" random {facts['validation_of_random']:.3f}; fresh ends with {goal:.3f},"
            f" which is reached after {shares[-1]:.0%} of its {last} steps;"
            f" at the end {curves['transplant'][-1][1]:.3f}"
        )
    print(f"share of the steps: {np.mean(shares):.0%} on average, {max(shares):.0%} at most; pieces: {facts}")


def prepared_corpus(home: Path, name: str, texts: list[str]) -> Path:
    place = home / f"{name}.jsonl"
    if not place.exists():  # a corpus knows its files by their times
        place.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    (home / f"corpus-{name}.toml").write_text(f'out = "{home}/corpus-{name}"\n' + CORPUS.format(path=place))
    return home / f"corpus-{name}.toml"


def prepared(home: Path, name: str, texts: list[str], size: int) -> Path:
    """The recipe of its store."""
    corpus, tokenizer, encoded = (
        prepared_corpus(home, name, texts),
        home / f"tokenizer-{name}.toml",
        home / f"encode-{name}.toml",
    )
    tokenizer.write_text(f'out = "{home}/tokenizer-{name}"\n' + PIECES.format(corpus=corpus, size=size))
    encoded.write_text(f'out = "{home}/encode-{name}"\n' + ENCODED.format(corpus=corpus, tokenizer=tokenizer))
    return encoded


def trained(home: Path, name: str, data: Path, steps: int, model: str, more: str = "") -> Path:
    """A run, or what is left of it."""
    text = RUN.format(data=data, steps=steps, validate=steps // 20, warmup=steps // 20, more=more)
    (home / f"{name}.toml").write_text(f'out = "{home / name}"\n{text}{model}')
    folder: Path = ordsmed.pretrain(home / f"{name}.toml").folder
    return folder


def validations(folder: Path) -> list[tuple[int, float]]:
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [(line["step"], line["validation"]) for line in lines if "validation" in line]


def reached(curve: list[tuple[int, float]], goal: float) -> float:
    """The step at which a loss is reached for the first time."""
    for (before, high), (step, low) in itertools.pairwise([(0, float("inf")), *curve]):
        if low <= goal:
            share = 1.0 if high == float("inf") else (high - goal) / (high - low)
            return before + share * (step - before)
    return float("inf")


def extended(home: Path, start: Path, corpus: Path) -> None:
    """What a model tells of texts before its first step, with 2,000 pieces more and without."""
    base, more, data = home / "tokenizer-en", home / "tokenizer-more.toml", home / "encode-more.toml"
    more.write_text(f'out = "{home}/tokenizer-more"\n' + MORE.format(corpus=corpus, base=base))
    run.obtain(TokenizerTraining, str(more))
    data.write_text(f'out = "{home}/encode-more"\n' + ENCODED.format(corpus=corpus, tokenizer=more))
    run.obtain(Encoding, str(data))
    wanted = f'init = "{start}"\nvocabulary = "transplant"\nrevisions = 1'
    folder = trained(home, "more", data, 20, "", wanted)
    old, new = open_model(Origin.of(start).folder), open_model(folder, 0)
    small, large = read_tokenizer(str(base)), read_tokenizer(str(home / "tokenizer-more"))
    same = [0, 0.0, 0, 0]  # texts without new pieces, largest difference there; texts with, and how many of them differ
    for line in itertools.islice((home / "en.jsonl").open(), 1000):
        for text in json.loads(line)["text"].split(". ")[:3]:
            ids, was = large.encode(text, special=True)[:64], small.encode(text, special=True)[:64]
            if max(ids) < small.vocabulary:
                assert ids == was, text
                same[0], same[1] = same[0] + 1, max(same[1], difference(old, new, ids))
            else:
                same[2], same[3] = same[2] + 1, same[3] + (ids != was)
    print(
        f"{same[0]} English texts without new pieces: ids equal, scores of old pieces differ by {same[1]:.1e}"
        f" at most; {same[2]} with new pieces, of which {same[3]} have other ids"
    )


@torch.no_grad()
def difference(
    old: ordsmed.weights.trained_model.Trained, new: ordsmed.weights.trained_model.Trained, ids: list[int]
) -> float:
    """The largest between scores of the old pieces."""
    asked, places = torch.tensor([ids]), torch.arange(len(ids))[None]
    one, other = (m.objective.head(m.objective.model(asked, places)) for m in (old, new))
    return float((one - other[..., : one.shape[-1]]).abs().max())


if __name__ == "__main__":
    main()
