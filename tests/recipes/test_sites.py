"""Shipped sites: each decodes, says what it is, and tells what a recipe would do there, on any machine."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from ordsmed.base import menu, settings
from ordsmed.base.errors import RecipeError
from ordsmed.base.launch import site as sites
from ordsmed.base.launch.gpus import GPUS
from ordsmed.base.launch.site import site_layout
from ordsmed.cli import main
from ordsmed.machines.sites.describe import unknown
from ordsmed.tell.show.show import layout, read
from ordsmed.train.mesh import precision
from ordsmed.train.mesh.layout import Layout
from ordsmed.train.pretrain.pretrain import pretrain
from ordsmed.train.pretrain.recipe import Pretraining

SITES = {path.stem: path for path in sorted((menu.PACKAGE_ROOT / "sites").glob("*.toml"))}
NAMED = (
    "saga",
    "olivia",
    "betzy",
    "puhti",
    "roihu",
    "mahti",
    "lumi",
    "ex3",
    "power9",
    "jean-zay",
    "jupiter",
    "juwels-booster",
    "leonardo",
    "marenostrum5",
    "snellius",
    "vega",
    "laptop",
    "a100",
)
PLACES = [f"{name}:{one.name}" for name in SITES for one in sites.Site.read(name).partition if one.gpu != "none"]


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
    assert re.match(r"# \S.{15,}\ntitle = ", SITES[site].read_text(encoding="utf-8"))


@pytest.mark.parametrize("place", PLACES)
def test_its_gpus_can_do_what_it_asks_for(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = GPUS[sites.Destination.find(place).partition.gpu]
    number = (9, 0) if gpu.amd else tuple(map(int, gpu.capability.split(".")))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _=None: number)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _=None: place)
    monkeypatch.setattr(torch.version, "hip", "6.2" if gpu.amd else None)
    asked = settings.decode(Layout, site_layout(place), place)
    line = precision.set_up(asked, torch.device("cuda"))
    assert line.startswith(f"precision: {'bf16' if number >= (8, 0) else 'fp16' if number >= (7, 0) else 'fp32'}")


@pytest.mark.parametrize("site", [name for name in SITES if sites.Site.read(name).partition])
def test_every_fact_has_a_source_and_a_date(site: str) -> None:
    known = sites.Site.read(site)
    assert known.source
    assert known.checked
    if known.scheduler == "slurm" and known.state == "running":
        assert known.without_gpus or "a partition without GPUs" in unknown(known)
    assert not known.successor or known.successor in SITES
    assert (known.state in ("retired", "stopping")) == bool(known.until)


def test_a_partition_is_named_behind_the_site(tmp_path: Path) -> None:
    """Each has the precision of its GPU, and tokens as its memory holds."""
    assert site_layout("saga") == site_layout("saga:accel") == {"device": "cuda", "precision": "fp32", "tokens": 12288}
    assert site_layout("saga:a100") == {"device": "cuda", "precision": "bf16", "tokens": 65536}
    assert site_layout("ex3:dgx2q")["precision"] == "fp16"
    (tmp_path / "mine.toml").write_bytes(SITES["ex3"].read_bytes())
    assert site_layout(f"{tmp_path}/mine.toml:mi210q") == site_layout("ex3:mi210q")
    with pytest.raises(RecipeError, match="--site: found partition a10; did you mean `a100`"):
        site_layout("saga:a10")
    with pytest.raises(RecipeError, match="--site: found sagga; did you mean `saga`"):
        site_layout("sagga:a100")


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
    with pytest.raises(RecipeError, match=r"mine.toml: model: unknown setting"):
        site_layout(str(tmp_path / "mine.toml"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_training_on_gpus_that_are_not_there_is_refused() -> None:
    """Only telling may be done elsewhere."""
    assert layout("bert-base", site="saga")
    with pytest.raises(RecipeError, match=r"layout\.device: found cuda, but torch sees no GPU"):
        pretrain("bert-base", site="saga")
