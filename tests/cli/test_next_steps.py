"""What is printed as the next step works as it stands."""

from __future__ import annotations

import shlex
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from ordsmed.base import menu
from ordsmed.cli import main, verb
from ordsmed.cli.next_steps import MOST, SERVING, TEXT, next_steps


def words_of(folder: Path) -> list[list[str]]:
    """The next steps, each read as its verb reads it."""
    steps = [shlex.split(step) for step in next_steps(folder)]
    assert 0 < len(steps) <= MOST
    for program, *words in steps:
        assert program == "ordsmed"
        name = verb.named(words)
        verb.find(name).parser().read(words[len(name.split()) :])
    return [words for _, *words in steps]


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, in which the commands leave what they make."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_corpus_is_counted_cut_and_encoded(tiny_run: Any, elsewhere: Path) -> None:
    corpus = tiny_run.folder / "corpus"
    counted, learned, encoded = words_of(corpus)
    main(learned)
    assert words_of(Path("work/tokenizer/corpus-wordpiece")) == [
        [
            "encode",
            "folder-wordpiece",
            f"corpus={corpus}",
            "tokenizer=work/tokenizer/corpus-wordpiece",
            "out=work/encode/corpus-wordpiece",
        ]
    ]
    main(encoded)
    assert words_of(Path("work/encode/corpus-wordpiece"))[0] == [
        "pretrain",
        "tiny/bert",
        "data=work/encode/corpus-wordpiece",
        "out=work/pretrain/corpus-wordpiece",
    ]
    assert counted == ["corpus", "stats", str(corpus)]


def test_each_corpus_of_a_tokenizer_is_encoded(tiny_run: Any, elsewhere: Path) -> None:
    """Each by itself, with its own folder."""
    corpus = tiny_run.folder / "corpus"
    shutil.copytree(corpus, elsewhere / "second")
    main(["tokenizer", "mixture", f'corpus=["{corpus}","second"]', "tokenizer.size=300", "out=both"])
    assert words_of(Path("both")) == [
        ["encode", "folder-bytebpe", f"corpus={name}", "tokenizer=both", f"out=work/encode/both-{Path(name).name}"]
        for name in (corpus, "second")
    ]


@pytest.mark.parametrize(("model", "asks"), [("bert", "fill"), ("gpt2", "generate")])
def test_a_pretrained_model_is_asked_as_its_kind_is(
    tiny_run: Any, elsewhere: Path, capsys: pytest.CaptureFixture[str], model: str, asks: str
) -> None:
    folder = getattr(tiny_run, model)
    (verb_name, run, text), shown, recipes, export, *served = words_of(folder)
    assert (verb_name, run) == (asks, str(folder))
    capsys.readouterr()
    for words in ([verb_name, run, text], shown, recipes):
        main(words)
        assert capsys.readouterr().out, words
    assert export == ["export", str(folder), f"{folder.name}-exported"]
    assert served == ([["serve", str(folder)]] if all(map(find_spec, SERVING)) else [])
    if model == "bert":
        main(export)
        program, flag, code = shlex.split(capsys.readouterr().out.splitlines()[-1])
        assert (program, flag) == ("python3", "-c")
        compile(code, "step", "exec")
        assert f"from_pretrained('{folder.name}-exported')" in code


def test_stores_lead_to_a_small_recipe_that_reads_them(tiny_run: Any, tiny_words: Path) -> None:
    assert words_of(tiny_words)[0][:2] == ["pretrain", "tiny/elmo"]
    assert words_of(tiny_run.folder / "encode-gpt2")[0][:2] == ["pretrain", "tiny/gpt2"]


def test_every_verb_that_asks_has_a_text() -> None:
    kinds = [menu.load("objectives", kind) for kind in menu.entries("objectives")]
    assert {name for kind in kinds for name in getattr(kind, "VERBS", ())} == TEXT.keys()


def test_of_a_folder_of_something_else_nothing_is_said(tmp_path: Path) -> None:
    assert next_steps(tmp_path) == next_steps(tmp_path / "none") == []
    (tmp_path / "status.json").write_text('{"verb": "pretrain"}')
    assert next_steps(tmp_path) == [], "it lacks its recipe"
