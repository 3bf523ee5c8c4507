"""Charts: the shown range of curves, and notes on curves that are cut off."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from kit.planted_runs import falling, plant
from ordsmed.tell.report import content, page, plot
from ordsmed.tell.report.plot import PlotCurve, PlotPoint


def curve(name: str, *losses: float) -> PlotCurve:
    return PlotCurve(name, [PlotPoint(float(step), loss, loss, loss) for step, loss in enumerate(losses, 1)])


def test_what_leaps_away_does_not_flatten_the_rest() -> None:
    good = [curve("a", *falling(60)), curve("b", *falling(60, end=3.2))]
    shown = plot.value_range(good)
    assert shown[1] < 9.5
    assert plot.cut_off(good) == []
    wild = curve("wild", *(3.0 + 300 * step for step in range(60)))
    assert plot.value_range([*good, wild]) == pytest.approx(shown, rel=0.02)
    assert plot.cut_off([*good, wild]) == [("wild", 3.0 + 300 * 59)]


def test_a_spike_of_one_run_is_cut_off() -> None:
    losses = falling(60)
    losses[30] = 4e6
    assert plot.value_range([curve("a", *losses)])[1] < 9.5
    assert plot.cut_off([curve("a", *losses)]) == [("a", 4e6)]


def test_curves_of_like_height_are_shown_whole() -> None:
    """Also where one learns nothing, and where all are flat."""
    low, high = plot.value_range(
        [curve("a", *falling(60, end=2.0)), curve("b", *falling(60)), curve("flat", *[11.0] * 60)]
    )
    assert (low < 2.1, high > 11.0) == (True, True)
    assert plot.value_range([curve("a", 3.0, 3.0, 3.0)]) == pytest.approx((2.97, 3.03))


def test_bands_are_shown_whole_where_that_is_asked() -> None:
    curves = [PlotCurve("a", [PlotPoint(1.0, 40.0, 66.0, 92.0), PlotPoint(2.0, 41.0, 67.0, 93.0)])]
    assert plot.value_range(curves, bands=True)[1] > 93.0
    assert plot.value_range(curves)[1] < 80.0


def test_a_page_tells_what_is_cut_off(tmp_path: Path) -> None:
    plant(tmp_path / "a", falling(60))
    plant(tmp_path / "wild", [3.0 + 300 * step for step in range(60)], recipe={"data": "other"})
    assert "Cut off at the top: wild, which reaches 17,703." in page.page(content.content([str(tmp_path)]))


def test_a_run_whose_losses_are_numbers_at_its_beginning_alone_has_a_page(tmp_path: Path) -> None:
    plant(tmp_path / "run", [3.0, *[math.nan] * 60])
    text = page.page(content.content([str(tmp_path)]))
    assert "the loss of 60 of 61 steps is not finite, first at step 2" in text
    assert 'class="line c0"' in text


@pytest.mark.parametrize(
    ("values", "marks"),
    [
        ([1.0, 1000.0], [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]),
        ([3.0, 60.0], [5, 10, 20, 50]),
        ([7.0], [10]),
        ([1.0, 20_000.0], [1, 10, 100, 1000, 10_000]),
        ([0.2, 30.0], [0.2, 0.5, 1, 2, 5, 10, 20]),
    ],
)
def test_marks_of_a_logarithm_are_round_numbers_from_end_to_end(values: list[float], marks: list[float]) -> None:
    """One, two and five; over many decades their beginnings alone."""
    axis = plot.axis_of("step", "step", values, logarithmic=True)
    assert [value for value, _ in axis.marks] == pytest.approx(marks)
    assert axis.low == min(values)


@pytest.mark.parametrize(
    ("key", "highest", "wanted"),
    [
        ("hours", 0.049, (1 / 3600, "seconds of steps")),
        ("hours", 0.05, (1 / 60, "minutes of steps")),
        ("hours", 2.0, (1.0, "hours of steps")),
        ("hours", 96.0, (1.0, "hours of steps")),
        ("hours", 96.1, (24.0, "days of steps")),
        ("step", 5e9, (1.0, "x")),
        ("tokens", 2e9, (1e9, "x (billions)")),
        ("tokens", 1.9e9, (1e6, "x (millions)")),
        ("tokens", 10.0, (1.0, "x")),
    ],
)
def test_an_axis_counts_in_what_its_end_is_called(key: str, highest: float, wanted: tuple[float, str]) -> None:
    assert plot.scaled(key, "x", highest) == wanted


def test_the_band_of_two_curves_has_their_mean_between() -> None:
    """Where both have come to, at the places of the one with more of them; the other's mean lies on its line."""
    one = [PlotPoint(x, y - 1, y, y + 1) for x, y in ((0, 8.0), (10, 4.0), (20, 2.0), (30, 1.0), (40, 0.0))]
    other = [PlotPoint(x, y, y, y) for x, y in ((5, 10.0), (25, 6.0), (35, 2.0))]
    found = plot.band([[*one, None], other, [None]])
    assert [(p.x, p.low, p.mean, p.high) for p in found if p] == [
        (10, 4.0, 6.5, 9.0),
        (20, 2.0, 4.5, 7.0),
        (30, 1.0, 2.5, 4.0),
    ]
    assert plot.band([[None], []]) == []
    assert [p.x for p in plot.band([one[:1], other[1:]]) if p] == [25], "they meet nowhere"


def test_neighbors_are_one_point_where_there_are_too_many() -> None:
    """With their lowest, mean and highest, at the last of them; where none is a number there is a gap."""
    rows = [[float(n), n - 0.5, float(n), n + 0.5] for n in range(1, 6)]
    rows += [[6.0, None, None, None], [7.0, None, None, None], [8.0, 7.5, 8.0, 8.5]]
    found = plot.bucketed(rows, 0, 4)
    assert [None if p is None else (p.x, p.low, p.mean, p.high) for p in found] == [
        (2, 0.5, 1.5, 2.5),
        (4, 2.5, 3.5, 4.5),
        (5, 4.5, 5.0, 5.5),
        (8, 7.5, 8.0, 8.5),
    ]
    assert [p is None for p in plot.bucketed(rows, 0, 8)] == [False] * 5 + [True, True, False]


@pytest.mark.parametrize(("values", "low"), [([0.05, 1.0], 0.0), ([0.2, 1.0], 0.2), ([-3.0, 1.0], -3.0)])
def test_an_axis_that_nearly_begins_at_0_begins_there(values: list[float], low: float) -> None:
    assert plot.axis_of("tokens", "tokens", values).low == low
