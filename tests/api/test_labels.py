"""`ordsmed classify` and `ordsmed tag`: texts as words, lines of files or standard input, as Python answers them."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

import ordsmed
from kit.served import running
from kit.task_files import task_files
from kit.task_models import task_models
from ordsmed import cli
from ordsmed.weights import export

TEXTS = ["w1 w2 w70", "w99 w98"]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return task_models(task_files(tmp_path_factory.mktemp("typed")))


@pytest.fixture
def typed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    def ask(*words: object, stdin: str = "") -> list[str]:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        cli.main([*map(str, words), *([] if "http" in str(words[1]) else ["--device", "cpu"])])
        return capsys.readouterr().out.splitlines()

    return ask


def test_texts_come_as_words_files_and_standard_input(models: dict[str, Path], typed: Any, tmp_path: Path) -> None:
    """All ways give what Python gives; empty lines are skipped."""
    path = tmp_path / "texts.txt"
    path.write_text("\n\n".join(TEXTS) + "\n")
    model = ordsmed.open(models["classify"], device="cpu")
    wanted = [(said.text, said.label, pytest.approx(said.probability, abs=1e-5)) for said in model.classify(TEXTS)]
    run = ("classify", models["classify"], "--json")
    lines = [typed(*run, *TEXTS), typed(*run, path), typed(*run, "--file", path)]
    lines += [typed(*run, *words, stdin=path.read_text()) for words in (["-"], [], ["--file", "-"])]
    for answered in lines:
        facts = list(map(json.loads, answered))
        assert [(f["text"], f["label"], f["probability"]) for f in facts] == wanted
    text, shares = typed("classify", models["classify"], TEXTS[0], "--best", 1)
    assert (text, shares.split()[0]) == (TEXTS[0], wanted[0][1])
    assert shares.count("%") == 1


def test_pairs_and_numbers(models: dict[str, Path], typed: Any) -> None:
    said = ordsmed.open(models["pairs"], device="cpu").classify("w1", "w3")
    rows = [
        *typed("classify", models["pairs"], "w1", "w3", "--json"),
        *typed("classify", models["pairs"], "-", "--json", stdin="w1\tw3\n"),
    ]
    for facts in map(json.loads, rows):
        assert (facts["text"], facts["second"], facts["label"]) == ("w1", "w3", said.label)
    assert typed("classify", models["pairs"], "w1", "w3")[:2] == ["w1", "w3"]
    number = ordsmed.open(models["number"], device="cpu").classify("w1").number
    assert float(typed("classify", models["number"], "w1")[1]) == pytest.approx(number, abs=1e-4)


def test_words_are_tagged(models: dict[str, Path], typed: Any) -> None:
    said = ordsmed.open(models["tag"], device="cpu").tag(TEXTS)
    facts = [json.loads(line) for line in typed("tag", models["tag"], "--json", stdin="\n".join(TEXTS))]
    assert [(f["text"], f["words"], f["tags"]) for f in facts] == [
        (text, [*tagged.words], [*tagged.tags]) for text, tagged in zip(TEXTS, said, strict=True)
    ]
    text, *rows = typed("tag", models["tag"], TEXTS[0])
    assert (text, [row.split()[:2] for row in rows]) == (
        TEXTS[0],
        [*map(list, zip(said[0].words, said[0].tags, strict=True))],
    )


def test_an_exported_folder_and_a_server_answer_alike(
    models: dict[str, Path], typed: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    export.export(models["pairs"], tmp_path / "hub")
    wanted = typed("classify", models["pairs"], "w1", "w3")
    assert typed("classify", tmp_path / "hub", "w1", "w3") == wanted
    with running({"pairs": models["pairs"], "tag": models["tag"]}) as server:
        assert typed("classify", f"{server.url}/pairs", "w1", "w3") == wanted
        assert len(typed("tag", f"{server.url}/tag", "w1 w2")) == 3
        with pytest.raises(SystemExit):
            typed("classify", f"{server.url}/tag", "w1")
        assert "model tag cannot classify: it is a bert; it can tag, embed" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("model", "words", "stdin", "wrong"),
    [
        ("tag", ["classify", "w1"], "", "cannot classify: .* learned tag; .* this one can tag, embed: `ordsmed tag "),
        ("answer", ["tag", "w1"], "", "cannot tag: .* learned squad; .* `ordsmed answer "),
        ("pairs", ["classify", "w1"], "", "found 'w1'; wanted text<TAB>second text"),
        ("pairs", ["classify", "w1", " "], "", "found an empty text; wanted a text"),
        ("pairs", ["classify", "-"], "w1\tw2\nw3\n", "standard input:2: found 'w3'; wanted text<TAB>second"),
        ("classify", ["classify", "-"], "w1\tlow\n", "input:1: found a TAB in .*; `ordsmed predict` reads tables"),
        ("classify", ["classify", "-"], "\n", "standard input: is empty; wanted a text a line"),
        ("classify", ["classify", ""], "", "found an empty text"),
        ("classify", ["classify", "w1", "--file", "f"], "", "found --file next to a text"),
        ("classify", ["classify", "--file", "no.txt"], "", "no.txt: no such file"),
        ("classify", ["classify", "w\udcff"], "", "invalid UTF-8"),
    ],
)
def test_what_cannot_be_labelled_is_refused(
    models: dict[str, Path],
    typed: Any,
    capsys: pytest.CaptureFixture[str],
    model: str,
    words: list[str],
    stdin: str,
    wrong: str,
) -> None:
    with pytest.raises(SystemExit):
        typed(words[0], models[model], *words[1:], stdin=stdin)
    assert re.search(wrong, " ".join(capsys.readouterr().err.split()))
