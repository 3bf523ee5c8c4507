"""Shipped sites: each decodes, says what it is, and tells what a recipe would do there, on any machine."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from ordsmed.base import menu, settings
from ordsmed.base.errors import RecipeError
from ordsmed.cli import main
from ordsmed.mesh import precision
from ordsmed.mesh.layout import Layout, site_layout
from ordsmed.pretrain.pretrain import pretrain
from ordsmed.pretrain.recipe import Pretraining
from ordsmed.show.show import layout, read

SITES = {path.stem: path for path in sorted((menu.HOUSE / "sites").glob("*.toml"))}
NAMED = ("a100", "ex3", "h100", "laptop", "lumi", "power9", "puhti", "saga")
GPUS = {"saga": (6, 0), "puhti": (7, 0), "power9": (7, 0), "a100": (8, 0), "h100": (9, 0), "lumi": (9, 0)}


def test_they_are_there() -> None:
    assert set(NAMED) <= SITES.keys()


@pytest.mark.parametrize("site", SITES)
def test_every_site_decodes_as_a_layout(site: str) -> None:
    found = settings.decode(Layout, site_layout(site), site)
    assert isinstance(found, Layout)
    assert found.device in ("cpu", "cuda"), "a machine is known: nothing is guessed"
    assert found == settings.decode(Layout, site_layout(str(SITES[site])), site), "by name and by path alike"


@pytest.mark.parametrize("site", SITES)
def test_the_first_line_tells_what_it_is(site: str) -> None:
    assert re.match(r"# \S.{15,}\n\[layout\]\n", SITES[site].read_text(encoding="utf-8"))


@pytest.mark.parametrize("site", GPUS)
def test_its_gpus_can_do_what_it_asks_for(site: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _=None: GPUS[site])
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _=None: site)
    monkeypatch.setattr(torch.version, "hip", "6.2" if site == "lumi" else None)
    asked = settings.decode(Layout, site_layout(site), site)
    said = precision.set_up(asked, torch.device("cuda"))
    assert said.startswith("precision: bf16" if GPUS[site] >= (8, 0) else "precision: fp16")


def test_the_mixed_site_takes_what_both_of_its_gpus_have() -> None:
    assert site_layout("ex3")["precision"] == "fp16"


@pytest.mark.parametrize("devices", [1, 4])
@pytest.mark.parametrize("site", SITES)
def test_what_a_recipe_would_do_there(site: str, devices: int) -> None:
    """On a login node too, which has no GPU."""
    lines = layout("bert-base", site=site, devices=devices)
    assert lines[0].startswith(f"layout: {devices} x 1 x 1 ")
    assert any(f"x devices {devices}" in line for line in lines)
    assert lines[-1].startswith("memory a rank: weights ")


def test_the_science_stays_the_recipes(tmp_path: Path) -> None:
    """A site changes [layout] alone."""
    plain, _ = read("pretrain/bert-base")
    for site in SITES:
        there, _ = read("pretrain/bert-base", site=site)
        assert isinstance(there, Pretraining)
        assert settings.plain(there) | {"layout": None} == settings.plain(plain) | {"layout": None}


def test_the_command_line_takes_a_site(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["show", "bert-base", "--layout", "--site"]
    main([*words, "saga", "--devices", "4"])
    done = capsys.readouterr()
    assert done.err == ""
    assert "layout: 4 x 1 x 1" in done.out
    with pytest.raises(SystemExit) as end:
        main([*words, "saag"])
    assert end.value.code == 1
    done = capsys.readouterr()
    assert done.err.startswith("ordsmed: --site: found saag")
    assert "saga" in done.err


def test_an_unknown_site_is_refused_by_the_near_name() -> None:
    with pytest.raises(RecipeError, match=r"--site: found puthi.*puhti"):
        site_layout("puthi")


def test_a_file_without_a_layout_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("[model]\nkind = 'bert'\n")
    with pytest.raises(RecipeError, match=r"mine.toml: has no \[layout\]"):
        site_layout(str(tmp_path / "mine.toml"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_training_on_gpus_that_are_not_there_is_refused() -> None:
    """Only telling may be done elsewhere."""
    assert layout("bert-base", site="saga")
    with pytest.raises(RecipeError, match=r"layout\.device: found cuda, but torch sees no GPU"):
        pretrain("bert-base", site="saga")
