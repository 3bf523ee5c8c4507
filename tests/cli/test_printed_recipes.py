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


def listed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    main(["recipes", *words])
    return capsys.readouterr().out


def test_recipes_are_listed_by_what_they_are_for(capsys: pytest.CaptureFixture[str]) -> None:
    """In the order of the work; those of single machines are counted, and there with --all."""
    names = run.recipe_names()
    shown, everything = listed(capsys), listed(capsys, "--all")
    heads = [line.partition(":")[0] for line in everything.splitlines() if line[:1].isalpha()]
    assert heads[0] == "tiny"
    assert [head for head in heads if head in ("corpus", "encode", "pretrain", "bench")] == [
        "corpus",
        "encode",
        "pretrain",
        "bench",
    ]
    assert set(heads) == {name.split("/")[0] for name in names}
    words = [line.split()[0] for line in everything.splitlines() if line.startswith("  ")]
    assert {"tiny/bert", "electra-small"} <= set(words), "as a verb takes them"
    assert len([line for line in everything.splitlines() if line.startswith("  ")]) == len(names)
    hidden = [name for name in names if "-dgx" in name]
    assert f"\n{len(hidden)} recipes for single machines (DGX) hidden; `ordsmed recipes --all` lists all\n" in shown
    assert "-dgx" not in shown
    assert "-dgx" in everything
    assert "hidden" not in everything


def test_a_word_lists_those_that_have_it_and_a_name_prints_one(capsys: pytest.CaptureFixture[str]) -> None:
    tiny = [line.split()[0] for line in listed(capsys, "tiny").splitlines() if line.startswith("  ")]
    assert {"tiny/bert", "tiny/gpt2", "bert-tiny"} <= set(tiny)
    assert all("tiny" in name for name in tiny)
    assert "  tiny/bert " in listed(capsys, "bert"), "of tiny/bert a verb takes no `bert`"
    assert "-dgx" in listed(capsys, "dgx"), "the word means them"
    printed = listed(capsys, "pretrain/electra-small")
    assert printed.startswith("# ELECTRA-small")
    assert [listed(capsys, name) for name in ("electra-small",)] == [printed]
    assert listed(capsys, "bert-nsp") == listed(capsys, "tiny/bert-nsp"), "no other has this word"
    with pytest.raises(SystemExit, match="1"):
        main(["recipes", "no-such-recipe"])
