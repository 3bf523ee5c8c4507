"""Scaling: the definitions give what others reported by them; measurements become series; what is none is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kit.measurements import measurement
from ordsmed.base import measurements
from ordsmed.base.errors import OrdsmedError
from ordsmed.cli import main
from ordsmed.machines.cluster import claims, scaling
from ordsmed.machines.cluster.scaling import Point, Series

STRONG = """
[[series]]
name = "mine"
kind = "strong"
point = [{ devices = 2, seconds = 100 }, { devices = 4, seconds = 60 }, { devices = 8, seconds = 40 }]
"""


def test_published_speedups_come_out_of_published_rates() -> None:
    """To the last digit that was printed."""
    reported = [(series, one) for series in claims.series() for one in series.point if one.reported]
    assert len(reported) == 9
    for series, one in reported:
        digits = len(str(one.reported).partition(".")[2])
        assert round(series.speedup(one), digits) == one.reported, series.name


def test_megatron_s_shares_come_out() -> None:
    """60% and 74% of 512 times what one GPU does; the paper's 15.1 PFLOP/s are its 76%."""
    large = [series for series in claims.series() if "8.3 G parameters" in series.name]
    assert [f"{series.efficiency(series.point[-1]):.0%}" for series in large] == ["60%", "74%", "76%"]
    assert large[1].speedup(large[1].point[-1]) == pytest.approx(0.74 * 512, rel=1e-3)


def test_strong_scaling_by_its_definition() -> None:
    """Twice the devices in 0.6 of the time: a fifth does not gain; Amdahl's law gives the same at four times."""
    whole = Series("x", "strong", point=(Point(2, seconds=100), Point(4, seconds=60), Point(8, seconds=40)))
    assert [whole.speedup(one) for one in whole.point] == pytest.approx([1, 100 / 60, 2.5])
    assert [whole.efficiency(one) for one in whole.point] == pytest.approx([1, 100 / 120, 2.5 / 4])
    assert [whole.serial(one) for one in whole.point[1:]] == pytest.approx([0.2, 0.2])
    assert whole.serial(whole.point[0]) is None


def test_a_file_is_told_and_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.toml").write_text(STRONG)
    main(["estimate", "--scaling", str(tmp_path / "mine.toml")])
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "mine: strong scaling"
    assert shown[-1].split() == ["8", "40", "-", "2.50", "-", "62.5%,", "20.00%", "serial"]
    main(["estimate", "--scaling", str(tmp_path / "mine.toml"), "--json"])
    assert json.loads(capsys.readouterr().out)[0]["point"][1]["efficiency"] == pytest.approx(100 / 120)


def test_measurements_on_more_devices_are_series(tmp_path: Path) -> None:
    """The same batch on more processes is strong scaling, the same share of each weak."""
    path = tmp_path / "m.jsonl"
    one = measurement(batch=32, processes=1, sequences_per_second=10.0)
    strong = measurement(batch=32, processes=4, sequences_per_second=30.0)
    weak = measurement(batch=128, processes=4, sequences_per_second=36.0)
    measurements.add(path, [one, strong, weak, measurement(batch=7, processes=2, width=48)])
    found = {series.kind: series for series in scaling.read(path)}
    assert len(scaling.read(path)) == 2
    assert found["strong"].efficiency(found["strong"].point[1]) == pytest.approx(0.75)
    assert found["weak"].efficiency(found["weak"].point[1]) == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "series: missing; wanted one or more"),
        (STRONG.replace('"strong"', '"weak"'), "found seconds of weak scaling, whose work grows; wanted rates"),
        (STRONG.replace("devices = 4", "devices = 0"), "devices: found 0; wanted 1 or more"),
        (STRONG.replace("seconds = 60", "rate = 60"), "found rates and seconds; wanted one of them in all"),
        (STRONG.replace("seconds = 60", "second = 60"), "unknown setting"),
        (STRONG.split(", {")[0] + "]", "point: found 1; wanted two or more"),
    ],
)
def test_what_is_no_series_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "bad.toml").write_text(text)
    with pytest.raises(OrdsmedError, match=complaint):
        scaling.read(tmp_path / "bad.toml")


def test_measurements_of_one_number_of_devices_scale_nothing(tmp_path: Path) -> None:
    measurements.add(tmp_path / "m.jsonl", [measurement(), measurement()])
    with pytest.raises(OrdsmedError, match="has no training that was measured on different numbers of devices"):
        scaling.read(tmp_path / "m.jsonl")
