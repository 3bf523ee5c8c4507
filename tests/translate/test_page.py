"""The page of other codes' flags is what the code says; every dialect is whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ordsmed.base.arguments import UsageError
from ordsmed.base.ranks import Place
from ordsmed.translate import page, program
from ordsmed.translate.program import Call, Flag, Program

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("code", program.names())
def test_the_page_is_made_from_the_code(code: str) -> None:
    lines = "\n".join(page.markdown(code)).rstrip()
    written = (DOCS / "coming-from" / f"{code}.md").read_text(encoding="utf-8")
    assert written.endswith(f"\n\n{lines}\n"), "its end is what page.markdown gives"
    assert "| you had | you have |" in written
    assert f"(coming-from/{code}.md)" in (DOCS / "coming-from.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("code", program.names())
def test_flags_are_told_once_each(code: str) -> None:
    for one in program.programs(code).values():
        names = [flag.key for flag in one.flags]
        assert len(set(names)) == len(names), one.name
        assert len(page.flags(one)) == len(names) + 2


@pytest.mark.parametrize("of", [{}, {"goes": "a", "nothing": "b"}, {"refused": "a", "goes": "b"}])
def test_a_flag_says_one_thing(of: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="says where it goes, why nowhere, or what to do instead"):
        Flag("--x", **of)


def test_words_by_place_and_by_the_environment() -> None:
    flags = (Flag("rate", float, "phase.rate", required=True), Flag("kind", "bert", "model.kind"),
             Flag("LAYERS", 2, "model.layers"), Flag("--deep", False, "model.deep"))  # fmt: skip
    one = Program("x.py", "x", flags, lambda values, call: None, "pretrain")

    def call(*words: str, **environment: str) -> Call:
        return one.translated(one.read(words, Place(), environment))

    assert call("0.1", LAYERS="3").recipes == {
        "pretrain": {"phase": [{"rate": 0.1}], "model": {"kind": "bert", "layers": 3, "deep": False}}
    }
    assert call("1e-1", "gpt2", "--deep").recipes["pretrain"]["model"] == {"kind": "gpt2", "layers": 2, "deep": True}
    with pytest.raises(UsageError, match=r"x.py: no rate"):
        call()
    with pytest.raises(UsageError, match="LAYERS: found many"):
        call("0.1", LAYERS="many")


def test_numbers_as_people_write_them() -> None:
    one = Program("x.py", "x", (Flag("--steps", 1, "a"), Flag("--on", True, "b", valued=True)), lambda *_: None, "v")

    def read(*words: str) -> dict[str, Any]:
        return dict(one.read(words, Place(), {}).of)

    assert read("--steps", "1e4") == {"steps": 10_000, "on": True}
    assert read("--on", "False") == {"steps": 1, "on": False}
    for word in ("1.5", "x", "inf"):
        with pytest.raises(UsageError, match=f"--steps: found {word}; wanted a whole number"):
            read("--steps", word)
