"""Files that do not belong to a task raise a one-line error, and nothing is predicted or scored."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kit.makers import SPECIAL
from ordsmed.base.errors import DataError, OrdsmedError
from ordsmed.data.pieces import TextReader
from ordsmed.learn.tasks import classify, squad, tag
from ordsmed.text.tokenizer import Tokenizer

Read = Callable[[Any, str], Any]
TOLD = {"id": "1", "question": "what falls ?", "answers": [{"text": "rain", "answer_start": 0}]}
ASKED = {"context": "rain falls", **TOLD}
NEST = {"data": [{"title": "a", "paragraphs": [{"context": "rain falls", "qas": [TOLD]}]}]}
ROWS = [{"text": "rain falls in the night", "label": "fine"}, {"text": "a night of rain", "label": "bad"}] * 3
WORDS = "rain\tB-X\nfalls\tO\n\na\tO\nnight\tB-X\n"
CONLLU = (
    "".join(f"{n}\t{w}\t{w}\tNOUN\t_\t_\t0\troot\t_\tname=B-X\n" for n, w in enumerate(("rain", "falls"), 1)) + "\n"
)
FILES: dict[str, str] = {
    "nest.json": json.dumps(NEST),
    "nest-lines.json": json.dumps(NEST, indent=1),
    "flat.json": json.dumps([ASKED], indent=1),
    "flat.jsonl": json.dumps(ASKED) + "\n",
    "table.tsv": "text\tlabel\n" + "".join(f"{r['text']}\t{r['label']}\n" for r in ROWS),
    "table.csv": "text,label\n" + "".join(f"{r['text']},{r['label']}\n" for r in ROWS),
    "table.json": json.dumps(ROWS),
    "table.jsonl": "".join(json.dumps(r) + "\n" for r in ROWS),
    "other.tsv": "text\tlabel\n" + "".join(f"{r['text']}\tentailment\n" for r in ROWS),
    "words.conll": WORDS,
    "words.tsv": WORDS,
    "words.conllu": CONLLU,
    "other.conll": WORDS.replace("B-X", "VERB").replace("O", "NOUN"),
    "prose.txt": "Rain falls.\nIt is wet, for rain falls in the night.\n",
    "empty.json": "",
    "empty.tsv": "",
    "empty.conll": "",
    "blank.conll": "\n\n",
}
TASKS: dict[str, tuple[Any, set[str]]] = {  # what each reads
    "squad": (squad.Squad(length=16), {"nest.json", "nest-lines.json", "flat.json", "flat.jsonl"}),
    "classify": (
        classify.Classify(labels=("bad", "fine"), length=16),
        {"table.tsv", "table.csv", "table.json", "table.jsonl"},
    ),
    "numbered": (
        classify.Classify(labels=("bad", "fine"), length=16, text=1, label=2, header=False),
        {"table.json", "table.jsonl", "table.tsv", "table.csv"},
    ),
    "spans": (tag.Tag(labels=("B-X", "I-X", "O"), length=16), {"words.conll", "words.tsv"}),
    "spans of conllu": (  # columns that lack it are words to be tagged
        tag.Tag(labels=("B-X", "I-X", "O"), column="misc:name", length=16),
        {"words.conllu", "words.conll", "words.tsv", "other.conll"},
    ),
    "words": (tag.Tag(labels=("NOUN", "VERB"), length=16), {"other.conll"}),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("files")
    for name, content in FILES.items():
        (place / name).write_text(content)
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table({"question": ["what ?"], "id": ["1"]}), place / "asked.parquet")
    (place / "vocab.txt").write_text("\n".join([*SPECIAL, "rain", "falls", "night"]) + "\n")
    return place


@pytest.fixture(scope="module")
def read(folder: Path) -> Read:
    """As `predict` and `evaluate` do before the network is asked."""
    own = TextReader(Tokenizer.load(folder / "vocab.txt"), types=True, causal=False)

    def act(settings: Any, name: str) -> Any:
        return settings.features(settings.records((str(folder / name),)), own)

    return act


@pytest.mark.parametrize("name", [*FILES, "asked.parquet"])
@pytest.mark.parametrize("kind", TASKS)
def test_each_task_reads_its_own_files_alone(read: Read, folder: Path, kind: str, name: str) -> None:
    settings, its = TASKS[kind]
    if name in its:
        assert len(read(settings, name))
        return
    with pytest.raises(OrdsmedError) as caught:
        read(settings, name)
    assert "\n" not in str(caught.value)
    assert str(folder / name) in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "name", "said"),
    [
        ("spans", "nest.json", r"JSON; wanted a word and its tag per line"),
        ("spans", "table.csv", r"\.csv: commas .*; wanted a word and its tag per line"),
        ("spans", "other.conll", r"other\.conll:1: the tag VERB; wanted O, .*task\.column"),
        ("words", "table.tsv", r"6 of 7 words .* several words, as `rain falls in the night`; wanted a word and"),
        ("words", "words.conll", r"none of its 4 tags is known to .*O \(2\).*; wanted tags such as NOUN, VERB; name"),
        ("classify", "other.tsv", r"none of its 6 labels is known to .*`entailment`; wanted bad, fine; .*task\.label"),
        ("classify", "nest.json", r"a list under `data`, as SQuAD's questions; wanted one object per row"),
    ],
)
def test_what_is_said_of_them(read: Read, kind: str, name: str, said: str) -> None:
    with pytest.raises(DataError, match=said):
        read(TASKS[kind][0], name)


def test_words_that_look_like_json_are_words(read: Read, folder: Path) -> None:
    (folder / "brackets.conll").write_text("[\tO\n1\tB-X\n]\tO\n")
    (folder / "bare.conll").write_text("[\n1\n]\n")
    assert len(read(TASKS["spans"][0], "brackets.conll"))
    assert len(read(TASKS["spans"][0], "bare.conll"))


def test_predictions_of_another_task_are_not_scored(folder: Path, tmp_path: Path) -> None:
    settings = classify.Classify(labels=("bad", "fine"))
    records = settings.records((str(folder / "table.tsv"),))
    (tmp_path / "said.txt").write_text("entailment\n" * 6)
    with pytest.raises(
        DataError, match=r"none of the 6 predictions is a known label; .*`entailment`; wanted bad, fine"
    ):
        settings.read(tmp_path / "said.txt", records)
