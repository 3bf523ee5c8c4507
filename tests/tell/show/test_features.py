"""What families can have is what the code takes; the pages of families say the same."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from ordsmed.base import menu
from ordsmed.cli import main
from ordsmed.nn.models import bert
from ordsmed.tell.show import features

DOCS = Path(__file__).parents[3] / "docs"
MASKED = {"bert", "electra", "megatron_bert", "modern", "roberta"}
LEARNED = {  # by hand: family -> the setting it needs
    "bilm": {"elmo": ""},
    "clm": {"gpt2": "", "modern": "causal = true"},
    "diffusion": {**dict.fromkeys(MASKED, ""), "gpt2": "causal = false"},
    "hybrid": {"gpt2": "", "modern": ""},
    "mlm": {**dict.fromkeys(MASKED, ""), "gpt2": "causal = false"},
    "mlm_nsp": {"bert": "", "megatron_bert": ""},
    "rtd": {"electra": ""},
}


@pytest.fixture(scope="module")
def made() -> dict[str, features.Feature]:
    return {each.name: each for each in features.features()}


def test_objectives_are_those_that_each_learns(made: dict[str, features.Feature]) -> None:
    assert set(LEARNED) == set(menu.entries("objectives"))
    for kind, families in LEARNED.items():
        assert {name: cell.needs for name, cell in made[kind].cells.items() if cell.has} == families, kind


def test_what_lacks_says_why_as_a_recipe_would_be_refused(made: dict[str, features.Feature]) -> None:
    assert made["clm"].cells["bert"].detail == ("objective.kind: clm with a bidirectional model; use mlm")
    assert "elmo cannot be split" in made["split layers (tensor parallel)"].cells["elmo"].detail
    assert "cannot be compiled" in made["compile"].cells["elmo"].detail
    assert all(
        cell.detail
        for each in made.values()
        if each.group in ("learns", "layouts")
        for cell in each.cells.values()
        if not cell.has
    )


def test_files_and_recipes_are_those_there_are(made: dict[str, features.Feature]) -> None:
    assert made["huggingface"].cells["modern"].detail == "ModernBertForMaskedLM, ModernBertDecoderForCausalLM"
    assert [name for name, cell in made["megatron"].cells.items() if cell.has] == ["bert", "gpt2", "megatron_bert"]
    assert not made["huggingface"].cells["elmo"].has
    assert "electra-base-lamb" in made["pretraining"].cells["electra"].detail.split(", ")
    assert made["sizes"].cells["roberta"].detail == "base, large"
    assert not made["short texts share rows"].cells["elmo"].has


def test_the_matrix_follows_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    able = dataclasses.replace(bert.Bert.capabilities, tensor=False, pairs=False)
    monkeypatch.setattr(bert.Bert, "capabilities", able)
    made = {each.name: each.cells["bert"] for each in features.features()}
    assert not made["mlm_nsp"].has
    assert not made["split layers (tensor parallel)"].has
    assert made["mlm"].has


def test_whatever_else_goes_wrong_is_no_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise TypeError("broken")

    monkeypatch.setattr(bert.Bert, "token_head", broken)  # which objectives alone ask for
    with pytest.raises(TypeError, match="broken"):
        features.features()


def test_the_pages_say_the_same(made: dict[str, features.Feature]) -> None:
    """Update them with `ordsmed features [FAMILY] --markdown`."""
    rows = list(made.values())
    page = (DOCS / "families.md").read_text(encoding="utf-8")
    assert page.endswith("\n" + "\n".join(features.markdown(rows)).rstrip("\n") + "\n")
    for family in features.families():
        page = (DOCS / f"families/{family}.md").read_text(encoding="utf-8")
        assert page.endswith("\n\n" + "\n".join(features.markdown(rows, family)) + "\n"), family


def test_the_verb(capsys: pytest.CaptureFixture[str]) -> None:
    main(["features", "--json"])
    rows = json.loads(capsys.readouterr().out)
    assert {row["name"] for row in rows} >= {"mlm", "lamb", "compile", "precision bf16", "google_bert"}
    main(["features", "elmo"])
    told = capsys.readouterr().out
    assert 'use kind = "elmo"' not in told
    assert "wanted 1; use shard" in " ".join(told.split())
    main(["features", "elmo", "--json"])
    assert {family for row in json.loads(capsys.readouterr().out) for family in row["cells"]} == {"elmo"}
    with pytest.raises(SystemExit):
        main(["features", "--json", "--markdown"])
    assert "--markdown: not allowed with argument --json" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["features", "electro"])
    assert "did you mean `electra`" in capsys.readouterr().err
