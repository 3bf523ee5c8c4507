"""You know it as: every word leads somewhere, and what is said to be here is here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ordsmed.base import menu
from ordsmed.base.errors import RecipeError
from ordsmed.base.run import find_recipe
from ordsmed.cli import flags, main, verb, words

CODE = [(names, code) for names, here in words.table().items() for code in re.findall(r"`([^`]+)`", here)]
MENU_OF = {"objective": "objectives", "optimizer": "optimizers", "model": "models", "task": "tasks"}
OUTSIDE = {"torchrun", "average/", "tensorboard", "share_of_peak", "tokens_per_second", "key.path=value"}
SETTINGS = {
    line.partition("=")[0] for name in ("pretrain", "finetune", "corpus", "encode") for line in flags.settings_of(name)
}


def is_here(code: str) -> bool:
    """Is there such a command, flag, setting or entry of a menu?"""
    if code.startswith("ordsmed "):
        return command(code.split()[1:])
    if code.startswith("--"):
        return any(code.split()[0] in one.parser().flags() for one in verb.every())
    key, _, value = code.strip("[]").partition(" = ")
    if key == "kind":
        return any(value.strip('"') in menu.entries(name) for name in menu.MENUS)
    first, _, rest = key.partition(".")
    inner = (
        {line.name for stem in entries(first) for line in menu.lines(f"ordsmed.{of(first)}.{stem}")} if rest else set()
    )
    return key in SETTINGS or rest in inner or any(name.startswith(f"{key}.") for name in SETTINGS) or key == "like"


def of(setting: str) -> str:
    return menu.folders_of(MENU_OF[setting])[0].relative_to(menu.PACKAGE_ROOT).as_posix().replace("/", ".")


def entries(setting: str) -> list[str]:
    return list(menu.entries(MENU_OF[setting])) if setting in MENU_OF else []


def command(parts: list[str]) -> bool:
    name = verb.named(parts)
    if name not in verb.names() or not set(part for part in parts if part.startswith("--")) <= set(
        verb.find(name).parser().flags()
    ):
        return False
    if name == "menus" and len(parts) > 1:
        return parts[1] in menu.MENUS
    try:
        return name != "finetune" or len(parts) == 1 or find_recipe(parts[1], name).is_file()
    except RecipeError:
        return False


@pytest.mark.parametrize(("names", "code"), CODE)
def test_what_is_said_to_be_here_is_here(names: str, code: str) -> None:
    assert code in OUTSIDE or code.startswith(("{", "ordsmed.")) or is_here(code), names


def test_what_is_nowhere_is_not_here() -> None:
    assert not any(
        map(is_here, ("--nowhere", "ordsmed nothing", "layout.pipeline", "objective.nothing", 'kind = "t5"'))
    )
    assert not any(map(is_here, ("ordsmed menus trackers", "ordsmed finetune nothing", "ordsmed embed --to x")))


FOUND = {
    "EMA": "`average",
    "lora": "`adapters",
    "mixtures": "`data =",
    "grid search": "`grid",
    "optuna": "missing",
    "distillation": "`objective.teacher",
    "packing": "`phase.pack",
    "mfu": "`share_of_peak",
    "resume": "same command",
    "gradient accumulation": "`layout.micro",
    "hub": "`init",
    "warmup": "`phase.warmup",
    "FSDP": "`layout.shard",
    "tensor parallel": "`layout.tensor",
    "mixed-precision": "`layout.precision",
    "max_grad_norm": "`clip`",
    "early stopping": "`patience",
    "checkpoint averaging": "`average",
    "label smoothing": "missing",
}


@pytest.mark.parametrize(("text", "there"), FOUND.items())
def test_a_word_is_found(capsys: pytest.CaptureFixture[str], text: str, there: str) -> None:
    main(["help", *text.split()])
    assert there in capsys.readouterr().out


def test_every_word_is_found_by_its_own_name_alone() -> None:
    for text in words.names():
        for names, _ in words.lookup(text):
            assert text.removesuffix("s") in [name.removesuffix("s") for name in names.split(", ")]
    assert len(words.names()) == len(set(words.names())) > 150


def test_words_of_the_glossary_are_found() -> None:
    """As docs/glossary.md has them; those of a menu lead to its choices too."""
    lines = (Path(__file__).parents[2] / "docs/glossary.md").read_text(encoding="utf-8").splitlines()
    rows = [line.strip("| ").split(" | ", 1) for line in lines if line.startswith("| ")][1:]
    assert [(names, meaning) for names, meaning in rows] == list(words.glossary().items())
    for names in words.glossary():
        for name in names.split(", "):
            assert names in [row[0] for row in words.lookup(name)]


@pytest.mark.parametrize("word", ["probe", "objective", "cleaner", "cleaners", "model"])
def test_a_menu_is_found_by_its_name(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["help", word])
    assert f"`ordsmed menus {word.removesuffix('s')}s` lists its choices" in capsys.readouterr().out


def test_all_words_are_listed_and_others_refused(capsys: pytest.CaptureFixture[str]) -> None:
    main(["help", "words"])
    printed = capsys.readouterr().out
    assert all(names.split(", ")[0] in printed for names, _ in words.rows())
    with pytest.raises(SystemExit):
        main(["help", "run_squad.shh"])
    assert "no such verb or word" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["help", "distilation"])
    message = " ".join(capsys.readouterr().err.split())
    assert "`distilation`: no such verb or word; " in message
    assert "did you mean `distillation`?" in message
    assert words.lookup("...") == words.lookup("") == []


@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("hidden_size", "hidden_size: the setting `model.width` of pretrain, finetune, bench"),
        ("num-train-epochs", "num-train-epochs: the setting `epochs` of finetune"),
        ("max_position_embeddings", "max_position_embeddings: the setting `model.positions` of"),
    ],
)
def test_names_of_other_codes_lead_to_settings(word: str, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["help", word])
    assert line in capsys.readouterr().out


@pytest.mark.parametrize("word", ["deep-init", "fp32-embedding", "cache-dir", "lazy-loader", "lazy loader"])
def test_flags_of_other_codes_are_found_by_help_as_by_find(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["as", "--find", word.replace(" ", "-")])
    wanted = capsys.readouterr().out
    main(["help", *word.split()])
    assert capsys.readouterr().out == wanted
    assert f"--{word.replace(' ', '-')}" in wanted


def test_every_setting_of_other_codes_is_found_by_help() -> None:
    known = {other for one in verb.every() if one.recipe for other, _, _ in menu.names_in_other_codes(*one.recipe)}
    assert len(known) > 80
