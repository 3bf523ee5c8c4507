"""The verbs before and after a training as Python functions, which the commands call as well.

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

from ordsmed.api.verb_result import HIDDEN, Made
from ordsmed.base import files, menu, run, settings
from ordsmed.base.run import Run
from ordsmed.base.say import in_words

Place = str | os.PathLike[str]


def corpus(recipe: Place, *, overrides: Sequence[str] = (), anew: bool = False, **changes: object) -> Made:
    """Make a corpus: clean texts, remove duplicates, split them into sentences, and hold out some documents.

    Keywords change settings of the recipe (a built-in name or a TOML file); tables are dicts or dotted keys, and
    `overrides` are words of the command line. Finished work with the same settings is reused. `anew` moves the present
    folder aside, as `NAME.old-1`, and makes it again.

        texts = ordsmed.corpus("folder", source={"path": "my-texts"}, language="nb", out="work/corpus/mine")
        texts.facts["train"]["words"]
    """
    return _called("corpus", recipe, overrides, anew, changes)


def tokenizer(recipe: Place, *, overrides: Sequence[str] = (), anew: bool = False, **changes: object) -> Made:
    """Train a tokenizer on a corpus, or import one. The arguments are those of `ordsmed.corpus`.

    pieces = ordsmed.tokenizer("folder-wordpiece", corpus=texts, tokenizer={"size": 8000}, out="work/tokenizer/mine")
    """
    return _called("tokenizer", recipe, overrides, anew, changes)


def encode(recipe: Place, *, overrides: Sequence[str] = (), anew: bool = False, **changes: object) -> Made:
    """Encode a corpus as token ids on disk. The arguments are those of `ordsmed.corpus`.

    store = ordsmed.encode("folder-wordpiece", corpus=texts, tokenizer=pieces, out="work/encode/mine")
    ordsmed.pretrain("tiny/bert", data=store)
    """
    return _called("encode", recipe, overrides, anew, changes)


def _called(verb: str, recipe: Place, overrides: Sequence[str], anew: bool, changes: Mapping[str, object]) -> Made:
    from ordsmed.api.keywords import words_of

    with files.errors_in_one_line():
        name, kind = os.fspath(recipe), menu.recipe_class(verb)
        return make(kind, name, words_of(kind, name, overrides, changes), anew=anew)


def make(kind: type[Any], name: str, overrides: Sequence[str] = (), *, anew: bool = False) -> Made:
    """Run the verb of a recipe, and return its folder with the facts of its status."""
    folder = run.obtain(kind, name, overrides, anew=anew)
    facts = {key: value for key, value in Run(folder).status.items() if key not in HIDDEN}
    if (folder / "report.md").exists():
        lines = [f"{folder}: done; {folder}/report.md describes it"]
    else:
        lines = [f"{folder}: done", *(f"  {key}: {in_words(value)}" for key, value in facts.items())]
    return Made(folder, facts, lines)


@files.errors_in_one_line()
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
    """Write a folder for other programs (transformers; for an ELMo simple_elmo, AllenNLP), with a model card.

    `step` selects a checkpoint, including 0 ("all": a folder per checkpoint). `to` is a format (`ordsmed menus
    formats`), whose settings keywords and `overrides` change. `title`, `language` and `licence` are for the model card.
    `anew` moves `out` aside.

        ordsmed.export("work/pretrain/tiny-bert", "work/hub", licence="CC0-1.0").path
    """
    from ordsmed.weights import export as exports

    name, target, words = os.fspath(model), Path(out), [*overrides, *settings.words(changes)]
    about: dict[str, Any] = {"title": title, "language": language, "licence": licence}
    if step == "all":
        folders = exports.export_all(name, target, anew=anew, to=to, overrides=words, **about)
        return Made(target, {"folders": [path.name for path in folders]}, [f"{path}: written" for path in folders])
    path = exports.export(name, target, step, anew=anew, to=to, overrides=words, **about)
    sizes = {file.name: file.stat().st_size for file in sorted(path.iterdir()) if file.is_file()}
    facts = {**files.read_table(path / exports.MARK), "bytes": sizes}
    return Made(path, facts, [f"{path}: written; {exports.readers(path)}"])


@files.errors_in_one_line()
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
    """Write one page about runs: results, losses, scores, samples of the models' output, recipes and cost.

    `runs` are folders of runs, or folders that contain some. `out` is the page (report.html); `markdown` and `json`
    name files in these formats. `watts` is the power of a device, for the energy. `facts` has all numbers of the page.

        ordsmed.report("work/pretrain/tiny-bert", out="page.html", title="My first BERT").lines
    """
    from ordsmed.tell.report import report as reports

    forms = {"out": out, "markdown": markdown, "json": json}
    paths = {form: os.fspath(location) for form, location in forms.items() if location is not None}
    written = reports.write(listed(runs), **paths, watts=watts, title=title, author=author)
    return Made(written.paths[0], written.facts, written.lines)


def listed(paths: Place | Sequence[Place]) -> list[str]:
    return [os.fspath(location) for location in ([paths] if isinstance(paths, str | os.PathLike) else paths)]
