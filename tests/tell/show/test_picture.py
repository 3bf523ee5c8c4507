"""Charts of runs: drawn for any measurements or not at all, with points where the axes say and without NaN."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from ordsmed.base import chart
from ordsmed.corpus import histogram
from ordsmed.learn.score.bands import bands
from ordsmed.measure.evaluation.results import learning_curves
from ordsmed.tell.show import picture

NAN, INF = math.nan, math.inf


def whole(text: str) -> bool:
    """Is every number of the picture one?"""
    return bool(text.startswith("<svg") and text.endswith("</svg>\n") and not re.search(r"\b(nan|inf)\b", text))


def metrics(folder: Path, losses: list[Any], judged: dict[int, Any]) -> Path:
    lines = [{"step": step, "phase": 1 + (step > 2), "loss": loss} for step, loss in enumerate(losses, 1)]
    lines += [{"step": step, "phase": 1, "validation": loss} for step, loss in judged.items()]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


@pytest.mark.parametrize(
    ("losses", "judged"),
    [
        ([3.0, 2.0, 1.0], {3: 1.5}),
        ([3.0, NAN, 1.0], {3: NAN}),
        ([3.0, 2.0, INF, NAN], {2: INF, 4: 2.0}),
        ([NAN, NAN, 2.0, 1.0], {}),  # a phase without a number
        ([-INF, 2.0, None, 1.0], {1: None}),
        ([2.0, 2.0], {}),
        ([1e20, 1e20], {1: 1e20}),
        ([1e308, 1.0, -1e308, 2.0], {}),
    ],
)
def test_a_course_is_drawn(tmp_path: Path, losses: list[Any], judged: dict[int, Any]) -> None:
    path = picture.draw(metrics(tmp_path, losses, judged), "x")
    assert path is not None
    assert whole(path.read_text())
    told = re.findall(r"• validation: (\S+)<", path.read_text())
    numbers = [loss for loss in judged.values() if loss is not None and math.isfinite(loss)]
    assert told == [f"{loss:.3f}" for loss in numbers[-1:]]


@pytest.mark.parametrize("losses", [[], [1.0], [NAN, NAN, INF], [NAN, 1.0]])
def test_nothing_to_draw(tmp_path: Path, losses: list[float]) -> None:
    assert picture.draw(metrics(tmp_path, losses, {}), "x") is None
    assert picture.draw(tmp_path / "nowhere", "x") is None


def trials(*scores: float, steps: bool = False, guessing: float = 50.0) -> dict[str, Any]:
    key = "step" if steps else "rate"
    rows = [
        {
            "setting": {key: place},
            "seeds": [1],
            "scores": {"f1": {"mean": score, "best": score, "deviation": NAN}},
            "guessing": {"f1": {"mean": guessing}},
            "best": False,
        }
        for place, score in enumerate(scores)
    ]
    made = [{"trial": "t", "setting": row["setting"], "scores": {"f1": row["scores"]["f1"]["mean"]}} for row in rows]
    return {"score": "f1", "settings": rows, "trials": made}


@pytest.mark.parametrize("steps", [False, True])
@pytest.mark.parametrize("scores", [(1.0, 2.0, 3.0), (NAN, 2.0, 3.0), (1.0, INF, 3.0), (1.0, NAN, NAN)])
def test_trials_are_drawn(tmp_path: Path, scores: tuple[float, ...], steps: bool) -> None:
    for guessing in (50.0, NAN):
        path = picture.draw_trials(tmp_path, "x", trials(*scores, steps=steps, guessing=guessing))
        assert path is not None
        assert whole(path.read_text())
    assert picture.draw_trials(tmp_path, "x", trials(NAN, INF, steps=steps)) is None
    assert picture.draw_trials(tmp_path, "x", trials(steps=steps)) is None


def test_histograms_of_nothing_are_drawn() -> None:
    none = histogram.count(np.zeros(0, np.int64))
    some = histogram.count(np.array([0, 1, 5]))
    for panels in ({}, {"a": {}}, {"a": {"train": none}}, {"a": {"train": some, "test": none}}):
        assert whole(histogram.svg(panels))


SVG = "{http://www.w3.org/2000/svg}"


class Read:
    """A picture's texts, dots and lines."""

    def __init__(self, text: str) -> None:
        root = ElementTree.fromstring(text)
        self.texts = {e.text or "": (float(e.get("x", 0)), float(e.get("y", 0))) for e in root.iter(f"{SVG}text")}
        self.dots = [(float(e.get("cx", 0)), float(e.get("cy", 0))) for e in root.iter(f"{SVG}circle")]
        curves = [e for e in root.iter(f"{SVG}path") if e.get("fill") == "none"]
        self.colours = [e.get("stroke") for e in curves]
        self.curves = [[tuple(map(float, p.split())) for p in e.get("d", "")[1:].split("L")] for e in curves]


def training(*losses: float, phase: int = 1, first: int = 1) -> list[dict[str, Any]]:
    return [{"step": first + n, "phase": phase, "loss": loss} for n, loss in enumerate(losses)]


def test_losses_stand_between_the_marks_of_the_axes() -> None:
    judged = [{"step": 3, "validation": 40.0}, {"step": 5, "validation": 20.0}]
    found = Read(picture.svg(training(60.0, 50.0, 40.0, 30.0, 20.0), judged, "tiny & more"))
    assert "tiny & more" in found.texts
    assert "• validation: 20.000" in found.texts
    level = {mark: found.texts[mark][1] - 4 for mark in ("20", "40", "60")}
    assert level["60"] < level["40"] < level["20"], "higher is higher"
    (thin, bold) = found.curves
    assert thin == bold
    assert [p[1] for p in bold[::2]] == pytest.approx([level["60"], level["40"], level["20"]], abs=0.2)
    across = [p[0] for p in bold]
    assert across[0] == chart.LEFT
    assert across[-1] == chart.WIDTH - chart.RIGHT
    assert across == sorted(across)
    assert found.texts["3"][0] == pytest.approx(across[2], abs=0.2)
    assert found.dots == [(across[2], bold[2][1]), (across[4], bold[4][1])]


def test_each_phase_has_its_colour_and_what_is_far_above_is_cut() -> None:
    lines = [*training(9e9, *[3.0] * 400), *training(*[2.0] * 300, phase=2, first=402)]
    found = Read(picture.svg(lines, [], "t"))
    assert found.colours == [chart.COLORS[0]] * 2 + [chart.COLORS[1]] * 2
    assert {"phase 1", "phase 2"} <= set(found.texts)
    assert found.texts["phase 1"][0] < found.texts["phase 2"][0]
    assert min(p[1] for p in found.curves[0]) == chart.TOP, "one spike does not flatten the rest"
    assert found.curves[1][-1][1] == chart.TOP
    assert found.curves[3][0][1] == chart.HEIGHT - chart.BOTTOM


def test_a_smooth_line_is_means_of_about_sixty_stretches() -> None:
    smooth = picture._smooth(training(*[float(n) for n in range(600)]))
    assert (len(smooth), smooth[0], smooth[-1]) == (60, (6, 4.5), (596, 594.5))
    assert picture._smooth(training(1.0, 2.0)) == [(1, 1.0), (2, 2.0)]
    assert len(picture._thin(training(*[1.0] * 4500))) == 1500
    assert len(picture._thin(training(*[1.0] * 1499))) == 1499


@pytest.mark.parametrize(
    ("low", "high", "wanted"),
    [
        (0, 10, [0, 2, 4, 6, 8, 10]),
        (0.9, 1.6, [1.0, 1.2, 1.4, 1.6]),
        (0, 1300, [0, 250, 500, 750, 1000, 1250]),
        (-3, 3, [-3, -2, -1, 0, 1, 2, 3]),
    ],
)
def test_marks_are_round_numbers(low: float, high: float, wanted: list[float]) -> None:
    assert chart.marks(low, high, 6) == wanted


def test_nothing_is_drawn_of_nothing(tmp_path: Path) -> None:
    assert picture.draw(tmp_path, "t") is None
    (tmp_path / "metrics.jsonl").write_text(json.dumps({"step": 1, "phase": 1, "loss": 2.0}) + "\n")
    assert picture.draw(tmp_path, "t") is None
    text = "".join(json.dumps(line) + "\n" for line in [*training(3.0, 2.0), {"step": 2, "validation": 2.5}])
    (tmp_path / "metrics.jsonl").write_text(text)
    assert picture.draw(tmp_path, "t") == tmp_path / "loss.svg"
    assert len(Read((tmp_path / "loss.svg").read_text()).dots) == 1
    assert picture.draw_trials(tmp_path, "t", {"score": "f1", "settings": [{"setting": {}, "scores": {}}]}) is None


def compared(setting: str, *means: tuple[Any, float, float]) -> dict[str, Any]:
    rows = [
        {
            "setting": {setting: value},
            "scores": {"f1": {"mean": mean, "best": mean + by, "deviation": by}},
            "guessing": {"f1": {"mean": 10.0}},
            "best": mean == max(m for _, m, _ in means),
        }
        for value, mean, by in means
    ]
    trials = [
        {"setting": {setting: value}, "scores": {"f1": mean + sign * by}}
        for value, mean, by in means
        for sign in (-1, 1)
    ]
    return {"score": "f1", "settings": rows, "trials": trials}


def test_trials_side_by_side(tmp_path: Path) -> None:
    """A row for each setting; dots at its trials, the bar as far as its deviation; the best in another colour."""
    picture.draw_trials(tmp_path, "t", compared("rate", (1e-5, 60.0, 2.0), (3e-5, 80.0, 5.0)))
    found = Read((tmp_path / "trials.svg").read_text())
    assert {"t: f1 (guessing 10.0)", "60.00 ± 2.00", "80.00 ± 5.00", "rate 1e-05"} <= set(found.texts)
    assert found.colours == [chart.COLORS[0], chart.COLORS[1]]
    marks = sorted((float(text), place[0]) for text, place in found.texts.items() if text.isdigit())
    (a, left), (b, right) = marks[0], marks[-1]
    x = lambda value: left + (value - a) / (b - a) * (right - left)  # noqa: E731
    assert [dot[0] for dot in found.dots] == pytest.approx([x(58), x(62), x(75), x(85)], abs=0.3)
    assert [[p[0] for p in curve] for curve in found.curves] == [
        pytest.approx([x(58), x(62)], abs=0.3),
        pytest.approx([x(75), x(85)], abs=0.3),
    ]
    assert found.dots[0][1] < found.dots[2][1], "in their order from above"


def test_trials_over_steps_of_pretraining(tmp_path: Path) -> None:
    """Over the logarithm of the step; step 0 is at the left, not joined to the line."""
    picture.draw_trials(
        tmp_path, "t", compared("step", (0, 20.0, 1.0), (10, 40.0, 1.0), (100, 60.0, 1.0), (1000, 70.0, 1.0))
    )
    found = Read((tmp_path / "trials.svg").read_text())
    (curve,) = found.curves
    assert len(curve) == 3
    assert curve[2][0] - curve[1][0] == pytest.approx(curve[1][0] - curve[0][0], abs=0.2)
    assert curve[0][1] > curve[1][1] > curve[2][1]
    assert [found.texts[mark][0] for mark in ("10", "100", "1,000")] == pytest.approx([p[0] for p in curve], abs=0.2)
    assert found.texts["0"][0] < curve[0][0]
    assert "guessing 10.0" in found.texts


@pytest.mark.parametrize("models", [("a",), ("a", "b")])
def test_scores_of_models_over_steps_or_words(tmp_path: Path, models: tuple[str, ...]) -> None:
    """Several are named; the axis says what is counted."""
    results = [
        {"step": 0, "seen": {"words": step}, "accuracy": 0.5 + step / 1000, "errors": {"accuracy": 0.1}, "guessing": {}}
        | ({"name": name} if len(models) > 1 else {})
        for name in models
        for step in (10, 100)
    ]
    found = Read(learning_curves("t", "accuracy", results, "words", "words seen"))
    assert {"t: accuracy", "words seen; bars: standard error"} <= set(found.texts)
    assert len(found.curves) == len(models)
    named = {name for name in ("model a", "model b") if name in found.texts}
    assert named == ({"model a", "model b"} if len(models) > 1 else set())
    guessing = [{**result, "guessing": {"accuracy": 0.55}} for result in results]
    text = learning_curves("t", "accuracy", guessing, "words", "x")
    level = Read(text).texts["guessing 0.6"][1] + 6
    assert f'<path d="M{chart.LEFT} {level:.1f}H{chart.WIDTH - chart.RIGHT}"' in text


def of_seeds(name: str, *courses: list[tuple[float, float]], broken: Any = ()) -> picture.BandGroup:
    return picture.BandGroup(name, bands(courses), bands([[course[-1]] for course in courses]), broken)


def areas(text: str) -> list[list[tuple[float, float]]]:
    """The corners of what is filled."""
    return [
        [tuple(map(float, place.split())) for place in path.split("L")] for path in re.findall(r'd="M([^"]*)Z"', text)
    ]  # type: ignore[misc]


def test_a_band_lies_where_the_seeds_do(tmp_path: Path) -> None:
    """Light from the least to the most, dark by the deviation; one seed's is as thin as a line."""
    group = of_seeds("a", [(1, 4.0), (9, 2.0)], [(1, 6.0), (9, 3.0)], [(1, 5.0), (9, 2.5)])
    path = picture.draw_bands(tmp_path / "x.svg", "seeds", [group], "loss 2.5 ± 0.5")
    assert path is not None
    assert whole(path.read_text())
    light, dark = areas(path.read_text())
    assert [x for x, _ in light] == [64.0, 740.0, 740.0, 64.0]
    tall = [lower - upper for (_, lower), (_, upper) in ((light[0], light[3]), (light[1], light[2]))]
    assert tall[0] == pytest.approx(2 * tall[1], abs=0.3), "from 4 to 6, then from 2 to 3"
    assert dark == light, "the deviation of three in a row is their distance"
    assert "loss 2.5 ± 0.5" in path.read_text()
    alone = picture.draw_bands(tmp_path / "y.svg", "one", [of_seeds("a", [(1, 4.0), (9, 2.0)])], "")
    assert alone is not None
    assert all(shape[0][1] == shape[3][1] for shape in areas(alone.read_text()))


def test_two_recipes_have_a_color_each_and_their_names(tmp_path: Path) -> None:
    groups = [of_seeds(name, [(1, 4.0), (2, level)]) for name, level in (("this <one>", 3.0), ("that", 2.0))]
    path = picture.draw_bands(tmp_path / "x.svg", "two", groups, "words " * 60)
    assert path is not None
    text = path.read_text()
    assert whole(text)
    assert "this &lt;one&gt;" in text
    assert all(f'fill="{colour}" opacity' in text for colour in chart.COLORS[:2])
    assert max(len(line) for line in re.findall(r">(words[^<]*)<", text)) <= picture.WIDEST


@pytest.mark.parametrize("broken", [[(1, 3.0), (2, 9.0), (3, NAN)], [(1, 3.0), (2, 1e300)], [(1, NAN)], []])
def test_who_diverged_is_dashed(tmp_path: Path, broken: list[tuple[float, float]]) -> None:
    path = picture.draw_bands(tmp_path / "x.svg", "x", [of_seeds("a", [(1, 4.0), (9, 2.0)], broken=[broken])], "")
    assert path is not None
    assert whole(path.read_text())
    assert ("stroke-dasharray" in path.read_text()) == any(abs(loss) < 1e30 for _, loss in broken)


def test_all_that_diverged_are_drawn_and_nothing_is_not(tmp_path: Path) -> None:
    group = picture.BandGroup("a", [], [], [[(1, 3.0), (2, 9.0)]])
    assert picture.draw_bands(tmp_path / "x.svg", "x", [group], "") is not None
    assert picture.draw_bands(tmp_path / "y.svg", "x", [picture.BandGroup("a", [], [], [[(1, NAN)]])], "") is None
    assert not (tmp_path / "y.svg").exists()
