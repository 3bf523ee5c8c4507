"""What is made before and after a training: the verbs of these names as functions, which the verbs call as well.

texts = ordsmed.corpus("folder", source={"path": "my-texts"}, out="work/corpus/mine")
pieces = ordsmed.tokenizer("folder-wordpiece", corpus=texts, out="work/tokenizer/mine")
store = ordsmed.encode("folder-wordpiece", corpus=texts, tokenizer=pieces, out="work/encode/mine")
run = ordsmed.pretrain("tiny/bert", data=store, out="work/pretrain/mine")
ordsmed.export(run, "work/hub"); ordsmed.report(run, out="page.html")
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from ordsmed.api.made import HIDDEN, Made
from ordsmed.base import files, run, settings
from ordsmed.base.run import Run
from ordsmed.base.say import in_words

Place = str | os.PathLike[str]


def corpus(recipe: Place, *, overrides: Sequence[str] = (), anew: bool = False, **changes: object) -> Made:
    """Clean text, drop duplicates, split it into sentences, and hold some documents out.

    Keywords change settings of the recipe (a built-in one by name, or a TOML file); tables are dicts or dotted keys;
    `overrides` are the command line's words. What stands and fits is reused; `anew`: set the present folder aside, as
    `NAME.old-1`, and make it again.

        texts = ordsmed.corpus("folder", source={"path": "my-texts"}, language="nb", out="work/corpus/mine")
        texts.facts["train"]["words"]
    """
    from ordsmed.corpus.pipeline import Corpus

    return _called(Corpus, recipe, overrides, anew, changes)


def tokenizer(recipe: Place, *, overrides: Sequence[str] = (), anew: bool = False, **changes: object) -> Made:
    """Train a tokenizer on a corpus, or take over one you have; arguments as those of `ordsmed.corpus`.

    pieces = ordsmed.tokenizer("folder-wordpiece", corpus=texts, tokenizer={"size": 8000}, out="work/tokenizer/mine")
    """
    from ordsmed.data.tokenizer_training import TokenizerTraining

    return _called(TokenizerTraining, recipe, overrides, anew, changes)


def encode(recipe: Place, *, overrides: Sequence[str] = (), anew: bool = False, **changes: object) -> Made:
    """Turn a corpus into token ids on disk; arguments as those of `ordsmed.corpus`.

    store = ordsmed.encode("folder-wordpiece", corpus=texts, tokenizer=pieces, out="work/encode/mine")
    ordsmed.pretrain("tiny/bert", data=store)
    """
    from ordsmed.data.encode import Encoding

    return _called(Encoding, recipe, overrides, anew, changes)


def _called(
    kind: type[Any], recipe: Place, overrides: Sequence[str], anew: bool, changes: Mapping[str, object]
) -> Made:
    """With keywords as words."""
    from ordsmed.api.keywords import words_of

    with files.in_a_line():
        name = os.fspath(recipe)
        return make(kind, name, words_of(kind, name, overrides, changes), anew=anew)


def make(kind: type[Any], name: str, overrides: Sequence[str] = (), *, anew: bool = False) -> Made:
    """The folder that a recipe makes, with the facts of its status."""
    folder = run.obtain(kind, name, overrides, anew=anew)
    facts = {key: value for key, value in Run(folder).status.items() if key not in HIDDEN}
    if (folder / "report.md").exists():
        lines = [f"{folder}: done; {folder}/report.md tells what it is made of"]
    else:
        lines = [f"{folder}: done", *(f"  {key}: {in_words(value)}" for key, value in facts.items())]
    return Made(folder, facts, lines)


@files.in_a_line()
def export(
    model: Place,
    out: Place,
    *,
    step: int | Literal["all"] | None = None,
    to: str | None = None,
    title: str = "",
    language: str = "",
    licence: str | None = None,
    overrides: Sequence[str] = (),
    anew: bool = False,
    **changes: object,
) -> Made:
    """Write a folder that others load (transformers; an ELMo: simple_elmo, AllenNLP), with a model card.

    `step`: of this checkpoint, 0 included ("all": a folder each); `to`: a format (`ordsmed menus formats`), whose
    settings keywords and `overrides` change; `title`, `language`, `licence`: of the model, for its card; `anew`: set
    `out` aside.

        ordsmed.export("work/pretrain/tiny-bert", "work/hub", licence="CC0-1.0").path
    """
    from ordsmed.text.language import check_code
    from ordsmed.weights import export as exports

    name, target, words = os.fspath(model), Path(out), [*overrides, *settings.words(changes)]
    check_code("language", language)
    about: dict[str, Any] = {"title": title, "language": language, "licence": licence}
    if step == "all":
        folders = exports.export_all(name, target, anew=anew, to=to, overrides=words, **about)
        return Made(target, {"folders": [path.name for path in folders]}, [f"{path}: written" for path in folders])
    path = exports.export(name, target, step, anew=anew, to=to, overrides=words, **about)
    sizes = {file.name: file.stat().st_size for file in sorted(path.iterdir()) if file.is_file()}
    facts = {**files.read_table(path / exports.MARK), "bytes": sizes}
    return Made(path, facts, [f"{path}: written; {exports.readers(path)}"])


@files.in_a_line()
def report(
    runs: Place | Sequence[Place],
    *,
    out: Place | None = None,
    markdown: Place | None = None,
    json: Place | None = None,
    watts: float = 0.0,
    title: str = "",
    author: str = "",
) -> Made:
    """One page about runs: what came of them, losses, scores, what the model says, recipes, cost.

    `runs`: folders of runs, or folders that hold some; `out`: the page (report.html); `markdown`, `json`: written in
    these forms; `watts`: what a device burns, for the energy. `facts` are all numbers of the page.

        ordsmed.report("work/pretrain/tiny-bert", out="page.html", title="My first BERT").lines
    """
    from ordsmed.tell.report import report as reports

    forms = {"out": out, "markdown": markdown, "json": json}
    paths = {form: os.fspath(place) for form, place in forms.items() if place is not None}
    written = reports.write(listed(runs), **paths, watts=watts, title=title, author=author)
    return Made(written.paths[0], written.facts, written.lines)


def listed(paths: Place | Sequence[Place]) -> list[str]:
    """One path, or several."""
    return [os.fspath(place) for place in ([paths] if isinstance(paths, str | os.PathLike) else paths)]
