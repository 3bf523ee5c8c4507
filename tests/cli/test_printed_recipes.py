"""`ordsmed recipes NAME > mine.toml`, then `ordsmed VERB mine.toml`: the same recipe, from any folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from ordsmed.base import run
from ordsmed.cli import flags, main, verb

VERB_OF = {  # every built-in recipe -> the verb that takes it
    name if name in run.recipe_names() else f"{taker.name}/{name}": taker.name
    for taker in verb.every()
    if taker.recipe
    for name in flags.recipes_for(taker.name)
}


def test_every_recipe_has_a_verb() -> None:
    assert VERB_OF.keys() == set(run.recipe_names())


@pytest.mark.parametrize(("name", "taker"), VERB_OF.items())
def test_a_printed_recipe_is_the_same_from_any_folder(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, taker: str
) -> None:
    monkeypatch.chdir(tmp_path)
    main(["recipes", name])
    Path("mine.toml").write_text(capsys.readouterr().out)
    assert run.read_table(Path("mine.toml"), taker) == run.read_table(run.find_recipe(name, taker), taker)
    assert run.title("mine.toml") == "mine"
