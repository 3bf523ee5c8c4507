"""From a folder of text to a model by functions: what the verbs make, and what a notebook shows of it."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import ordsmed
from ordsmed import cli
from ordsmed.base import files

NASTY = "<b>&\"'"


class Cells(HTMLParser):
    """The cells of tables, in rows, and the tags there are."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.tags: set[str] = set()
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        if self.rows and self.rows[-1]:
            self.rows[-1][-1] += data


def shown(thing: Any) -> dict[str, str]:
    return {row[0]: row[1] for row in Cells(thing._repr_html_()).rows if len(row) == 2}


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    documents = (f"The value of {n} is old.\nIt is the {n} that it was." for n in range(60))
    files.write_text(tmp_path / "texts.txt", "\n\n".join(documents))
    return tmp_path


def test_each_step_takes_what_the_one_before_made(texts: Path) -> None:
    corpus = ordsmed.corpus("folder", source={"path": "texts.txt"}, language="nb", title=NASTY, out="c")
    assert corpus.facts["train"]["documents"] + corpus.facts["validation"]["documents"] == 60
    assert (corpus.path, str(corpus).splitlines()[0]) == (Path("c"), "c: done; c/report.md describes it")
    pieces = ordsmed.tokenizer("folder-wordpiece", corpus=corpus, tokenizer={"size": 60}, out="t")
    assert pieces.facts["vocabulary"] == 60
    store = ordsmed.encode("folder-wordpiece", overrides=["out=e"], corpus=corpus, tokenizer=pieces)
    assert store.facts["train"]["words"] == corpus.facts["train"]["words"]
    assert files.read_table(Path("e/status.json"))["vocabulary"] == 60
    assert (shown(corpus)["language"], shown(corpus)["title"], shown(store)["path"]) == ("nb", NASTY, "e")
    assert "b" not in Cells(corpus._repr_html_()).tags


def test_they_make_what_the_verbs_make_and_say_the_same(texts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = ordsmed.corpus("folder", source={"path": "texts.txt"}, out="c")
    capsys.readouterr()
    cli.main(["corpus", "folder", "source.path=texts.txt", "out=c"])
    out = capsys.readouterr().out
    assert out.splitlines()[: len(made.lines)] == list(made.lines)
    pieces = ordsmed.tokenizer("folder-wordpiece", corpus="c", tokenizer={"size": 50}, out="t")
    assert f"  vocabulary: {pieces.facts['vocabulary']}" in pieces.lines
    again = ordsmed.corpus("folder", source={"path": "texts.txt"}, out="c", anew=True)
    assert again.facts["train"] == made.facts["train"]
    with pytest.raises(ordsmed.RecipeError, match=r"^c: was made from another recipe; .*--anew"):
        ordsmed.corpus("folder", source={"path": "texts.txt"}, out="c", shortest=30)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: ordsmed.corpus("nowhere"), "`nowhere`: no recipe of `corpus` and no file"),
        (lambda: ordsmed.corpus("folder", sorce=1), "folder: sorce: unknown setting"),
        (lambda: ordsmed.encode("folder-wordpiece", overrides="out=e"), "encode: overrides: found the text 'out=e'"),
        (lambda: ordsmed.tokenizer("folder-wordpiece", corpus=3), "folder-wordpiece: corpus: found 3; wanted a text"),
        (lambda: ordsmed.export("nowhere", "hub"), "nowhere: no such folder"),
        (lambda: ordsmed.export("x", "hub", language="Norwegian"), "found Norwegian; wanted a code of ISO 639"),
        (lambda: ordsmed.report(["nowhere"]), "nowhere: no such folder"),
        (lambda: ordsmed.report("c", out="x", json="x"), "x: is the output of two formats"),
        (lambda: ordsmed.evaluate(["a", "b"], "f"), "evaluate: several models, all steps, `out` and `anew`"),
        (lambda: ordsmed.evaluate("a", "f", probe="perplexit"), "--probe: found perplexit"),
        (lambda: ordsmed.compare("a.toml", "nowhere"), "a.toml: no such file"),
    ],
)
def test_mistakes_are_one_line(call: Any, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ordsmed.OrdsmedError) as error:
        call()
    assert told in str(error.value)
    assert "\n" not in str(error.value)


def test_a_model_is_exported_and_reported(tiny_run: Any, tmp_path: Path) -> None:
    run = ordsmed.TrainingRun(tiny_run.bert)
    hub = ordsmed.export(run, tmp_path / "hub", title="Mine", language="nb", licence="CC0-1.0")
    card = (hub.path / "README.md").read_text()
    assert all(line in card for line in ('license: "cc0-1.0"', '- "nb"', "# Mine"))
    assert shown(hub)["bytes model.safetensors"] == f"{(hub.path / 'model.safetensors').stat().st_size:,}"
    every = ordsmed.export(run, tmp_path / "all", step="all")
    assert every.facts["folders"] == [f"step-{step}" for step in run.steps]
    page = ordsmed.report(run, out=tmp_path / "p.html", json=tmp_path / "p.json", title=NASTY, author=NASTY)
    assert json.loads((tmp_path / "p.json").read_text()) == json.loads(json.dumps(page.facts))
    assert (page.path, page.facts["made"]["title"]) == (tmp_path / "p.html", NASTY)
    assert NASTY not in page.path.read_text()


def test_models_are_asked_and_compared(tiny_run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("texts.txt").write_text("it is old\n\nthe value of it\n\nit was the old value\n")
    how: dict[str, Any] = {"probe": "perplexity", "device": "cpu", "window": 16, "out": "scores"}
    alone = ordsmed.evaluate(tiny_run.gpt2, "texts.txt", **how)
    by_model = ordsmed.open(tiny_run.gpt2, device="cpu").evaluate(
        "texts.txt", probe="perplexity", window=16, out="scores"
    )
    assert alone.scores == by_model.scores
    both = ordsmed.evaluate([tiny_run.gpt2, tiny_run.gpt2], "texts.txt", step=0, **how)
    assert [result["step"] for result in both.scores["results"]] == [0, 0]
    other = tmp_path / "other"
    ordsmed.export(tiny_run.gpt2, other)
    compared = ordsmed.compare(tiny_run.gpt2, other, "texts.txt", probe="perplexity", window=16, out="scores")
    [comparison] = compared.facts["comparisons"]
    assert (comparison["difference"], comparison["examples"]) == (0, 3)
    assert files.read_table(compared.path)["comparisons"] == compared.facts["comparisons"]
    rows = Cells(alone._repr_html_()).rows
    assert rows[0] == ["model", "score", "result", "± error", "guessing"]
    assert rows[1][1:3] == ["perplexity", f"{alone.scores['perplexity']:.4g}"]
    with pytest.raises(ordsmed.RecipeError, match="is a model, but no probe is named"):
        ordsmed.compare(tiny_run.gpt2, other)


def test_two_recipes_are_compared_as_stability_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    calls: list[Any] = []

    def compare(*args: Any) -> dict[str, Any]:
        calls.append(args)
        return {"folder": "work/both", "over": None, "metric": "loss", "seeds_wanting": 0}

    monkeypatch.setattr("ordsmed.api.measuring.compare_recipes", compare)
    made = ordsmed.compare("tiny/bert", "tiny/gpt2", seeds=[1, 2], model={"width": 8}, overrides=["log=1"], out="o")
    [(first, second, words, how)] = calls
    assert (first, second, words) == ("tiny/bert", "tiny/gpt2", ["log=1", "model.width=8", "out=o"])
    assert (how.seeds, how.anew) == ((1, 2), False)
    assert made.path == Path("work/both")
    assert made.lines[0].startswith("no difference shown")


def test_what_a_notebook_shows_of_a_run_and_of_a_model(tiny_run: Any, tmp_path: Path) -> None:
    run = ordsmed.TrainingRun(tiny_run.bert)
    page = Cells(run._repr_html_())
    assert {"svg", "table"} <= page.tags
    assert shown(run)["state"] == "done"
    assert shown(run)["validation"] == str(run.scores["validation"])
    assert shown(run.open(device="cpu"))["family"] == "bert"
    empty = tmp_path / NASTY.replace("/", "")
    empty.mkdir()
    assert Cells(ordsmed.TrainingRun(empty)._repr_html_()).rows == [["folder", str(empty)], ["state", ""]]
    assert "b" not in Cells(ordsmed.TrainingRun(empty)._repr_html_()).tags
