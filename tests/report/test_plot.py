"""Figures: what is shown of curves, and what is cut off and told."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from kit.planted_runs import falling, plant
from ordsmed.report import content, page, plot
from ordsmed.report.plot import PlotCurve, PlotPoint


def curve(name: str, *losses: float) -> PlotCurve:
    return PlotCurve(name, [PlotPoint(float(step), loss, loss, loss) for step, loss in enumerate(losses, 1)])


def test_what_leaps_away_does_not_flatten_the_rest() -> None:
    good = [curve("a", *falling(60)), curve("b", *falling(60, end=3.2))]
    shown = plot.reach(good)
    assert shown[1] < 9.5
    assert plot.leaps(good) == []
    wild = curve("wild", *(3.0 + 300 * step for step in range(60)))
    assert plot.reach([*good, wild]) == pytest.approx(shown, rel=0.02)
    assert plot.leaps([*good, wild]) == [("wild", 3.0 + 300 * 59)]


def test_a_spike_of_one_run_is_cut_off() -> None:
    losses = falling(60)
    losses[30] = 4e6
    assert plot.reach([curve("a", *losses)])[1] < 9.5
    assert plot.leaps([curve("a", *losses)]) == [("a", 4e6)]


def test_curves_of_like_height_are_shown_whole() -> None:
    """Also where one learns nothing, and where all are flat."""
    low, high = plot.reach([curve("a", *falling(60, end=2.0)), curve("b", *falling(60)), curve("flat", *[11.0] * 60)])
    assert (low < 2.1, high > 11.0) == (True, True)
    assert plot.reach([curve("a", 3.0, 3.0, 3.0)]) == pytest.approx((2.97, 3.03))


def test_bands_are_shown_whole_where_that_is_asked() -> None:
    curves = [PlotCurve("a", [PlotPoint(1.0, 40.0, 66.0, 92.0), PlotPoint(2.0, 41.0, 67.0, 93.0)])]
    assert plot.reach(curves, bands=True)[1] > 93.0
    assert plot.reach(curves)[1] < 80.0


def test_a_page_tells_what_is_cut_off(tmp_path: Path) -> None:
    plant(tmp_path / "a", falling(60))
    plant(tmp_path / "wild", [3.0 + 300 * step for step in range(60)], recipe={"data": "other"})
    assert "Cut off at the top: wild, which comes to 17,703." in page.page(content.content([str(tmp_path)]))


def test_a_run_whose_losses_are_numbers_at_its_beginning_alone_has_a_page(tmp_path: Path) -> None:
    plant(tmp_path / "run", [3.0, *[math.nan] * 60])
    text = page.page(content.content([str(tmp_path)]))
    assert "the loss of 60 of 61 steps is no finite number, first at step 2" in text
    assert 'class="line c0"' in text
