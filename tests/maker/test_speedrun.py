"""`speedrun`: steps come out of a budget, a sample out of the texts, an entry out of both; bad input is said."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import ordsmed
from maker.test_texts import prose
from ordsmed.base import run, settings, snapshots
from ordsmed.base.errors import DataError, RecipeError, RunError
from ordsmed.cli import main
from ordsmed.data.word_counts import BABYLM
from ordsmed.learn import masking
from ordsmed.maker.speedrun import board, budget, entry, reproduction, scaling, scores
from ordsmed.maker.speedrun import plan as planning
from ordsmed.maker.speedrun.speedrun import Speedrun
from ordsmed.maker.speedrun.track import SpeedrunRequest, track, tracks
from ordsmed.train.pretrain.recipe import Pretraining

NETWORK = """
data = "none"
save = 0.5
layout.precision = "fp32"
layout.threads = 1
[model]
kind = "{kind}"
width = 16
layers = 1
heads = 1
positions = 32
[objective]
kind = "{objective}"
[[phase]]
steps = 30
length = 16
batch = 8
learning_rate = 1e-2
warmup = 3
[[phase]]
steps = 10
length = 32
batch = 4
learning_rate = 1e-3
"""
TRACK = """
flops = 8e8
words = 3_000
passes = 10
validation = 0.1
seeds = [1, 2]
scored = 20
revisions_at_words = [1_000, 3_000, 1_000_000]
[tokenizer]
kind = "bytebpe"
size = 300
order = "roberta"
[recipes]
masked = "masked.toml"
causal = "causal.toml"
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("track.toml").write_text(TRACK)
    Path("masked.toml").write_text(NETWORK.format(kind="modern", objective="mlm"))
    Path("causal.toml").write_text(NETWORK.format(kind="gpt2", objective="clm"))
    Path("texts").mkdir()
    for number in range(12):
        Path(f"texts/{number}.txt").write_text(prose(10, seed=number))


def request(**changes: Any) -> SpeedrunRequest:
    return SpeedrunRequest(**{"track": "track.toml", "texts": ("texts",), "out": "out", **changes})


def budgeted(flops: float, name: str = "masked.toml") -> budget.Budgeted:
    tokenizer = budget.expected_tokenizer(track("track.toml").tokenizer)
    return budget.budgeted(settings.read(Path(name)), name, "data", tokenizer, flops)


def test_shipped_tracks_and_their_recipes_are_whole() -> None:
    assert set(tracks()) == {"cpu", "gpu", "babylm-10m", "babylm-100m"}
    for name in tracks():
        rule = track(name)
        for recipe in rule.recipes.values():
            table = run.read_table(run.find_recipe(recipe, "pretrain"), "pretrain")
            planned = budget.budgeted(table, recipe, "data", budget.expected_tokenizer(rule.tokenizer), rule.flops)
            assert 0.999 * rule.flops < planned.flops <= rule.flops
            assert planned.passes(1.33 * rule.words) <= rule.passes


@pytest.mark.parametrize("name", ["masked.toml", "causal.toml"])
def test_steps_fill_the_budget_in_the_proportions_of_the_recipe(name: str) -> None:
    planned = budgeted(2e9, name)
    first, second = planned.recipe.phase
    assert 0.98 * 2e9 < planned.flops <= 2e9
    assert 2.5 < first.steps / second.steps < 3.5
    assert first.warmup == pytest.approx(first.steps / 10, abs=1)
    assert planned.tokens == first.steps * 16 * 8 + second.steps * 32 * 4
    doubled = budgeted(4e9, name)
    assert doubled.tokens == pytest.approx(2 * planned.tokens, rel=0.01)


def test_a_recipe_that_fills_its_budget_stays_as_it_is() -> None:
    """By which an entry is made anew with the very same steps."""
    for flops in (1e9, 1.37e9, 2e9, 3.1e9):
        planned = budgeted(flops)
        tokenizer = budget.expected_tokenizer(track("track.toml").tokenizer)
        again = budget.budgeted(settings.plain(planned.recipe), "", "data", tokenizer, flops)
        assert again.recipe.phase == planned.recipe.phase


def test_operations_are_three_times_those_forward_with_the_head_where_it_scores() -> None:
    planned = budgeted(2e9)
    recipe = settings.decode(Pretraining, {**settings.read(Path("masked.toml")), "data": "data"}, "")
    body = [phase.length * recipe.model.flops(phase.length) for phase in recipe.phase]
    scored = [masking.slots(0.15, phase.length) for phase in recipe.phase]
    steps = [phase.steps for phase in planned.recipe.phase]
    rows = [8, 4]
    wanted = sum(
        3 * count * many * (each + places * recipe.model.head_flops(300))
        for count, many, each, places in zip(steps, rows, body, scored, strict=True)
    )
    assert planned.flops == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"texts": ()}, "texts: found none"),
        ({"budgets": (0.0,)}, "--budget: found 0; wanted numbers above 0"),
        ({"budgets": (1.0, 1.0)}, "--budget: found the same number twice"),
        ({"kind": "mask"}, "--kind: found mask; wanted one of masked, causal; .*masked"),
        ({"kind": "masked", "recipe": "masked.toml"}, "--recipe: found with --kind masked"),
        ({"blimp": "none"}, "--blimp: none does not exist"),
        ({"seeds": (1, 1)}, "--seeds: found 1, 1; wanted different numbers, 0 or more"),
        ({"seeds": (-1,)}, "--seeds: found -1; wanted different numbers"),
        ({"workers": -1}, "--workers: found -1; wanted 1 or more"),
    ],
)
def test_what_cannot_be_is_said(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(RecipeError, match=problem):
        request(**changes)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"budgets": (1e-5,)}, "--budget: 8 kFLOP are less than a step of each phase"),
        ({"changes": ("seed=3",)}, "seed: found among changes of the recipe"),
        ({"changes": ("layout.precision=fp16",)}, "layout.precision: found fp16, for which this CPU has no units"),
        (
            {"changes": ("phase=[{length=16,batch=8,learning_rate=1,epochs=2}]",)},
            r"phase\[1\].epochs: found; wanted steps",
        ),
    ],
)
def test_a_plan_that_cannot_be_is_refused(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(RecipeError, match=problem):
        planning.plan(request(**changes))


def test_bf16_is_refused_of_a_cpu_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = request(changes=("layout.precision=bf16", "layout.device=cpu"))
    for name in planning.UNITS.values():
        monkeypatch.setattr(planning.torch.cpu, name, lambda: True)
    planning.plan(asked)
    for name in planning.UNITS.values():
        monkeypatch.setattr(planning.torch.cpu, name, lambda: False)
    with pytest.raises(
        RecipeError, match=r"layout.precision: found bf16, for which this CPU has no units; wanted fp32"
    ):
        planning.plan(asked)


def test_a_text_too_small_for_the_budget_is_refused_unless_asked() -> None:
    with pytest.raises(
        RecipeError, match=r"words to learn from, which the budget reads \d+.\d times; wanted at most 10"
    ):
        planning.plan(request(budgets=(20.0,)))
    plan = planning.plan(request(budgets=(20.0,), yes=True))
    assert plan.runs[20.0].passes(plan.words) > 15


def test_words_change_the_track_or_its_recipe() -> None:
    changed = request(changes=("tokenizer.size=280", "phase[1].learning_rate=1e-3"))
    assert changed.rule.tokenizer.size == 280
    assert changed.learned["phase"][0]["learning_rate"] == 1e-3
    assert "tokenizer" not in changed.learned


@pytest.mark.parametrize("name", ["babylm-10m", "babylm-100m"])
def test_tracks_of_babylm_keep_weights_by_words(name: str) -> None:
    learned = settings.decode(Pretraining, {**request(track=name).learned, "data": "data"}, name)
    assert learned.revision_words == BABYLM
    assert BABYLM[:2] + BABYLM[9:11] == (1_000_000, 2_000_000, 10_000_000, 20_000_000)
    assert len(BABYLM) == 28


def test_weights_are_kept_as_the_track_says_or_the_recipe() -> None:
    assert request().learned["revisions_at_words"] == [1_000, 3_000, 1_000_000]
    assert "revisions_at_words" not in request(changes=("revisions_at_words=[]",)).learned
    assert request(changes=("revisions_at_words=[7]",)).learned["revisions_at_words"] == [7]
    Path("own.toml").write_text("revisions_at_words = [9]\n" + Path("masked.toml").read_text())
    assert request(recipe="own.toml").learned["revisions_at_words"] == [9]
    assert "revisions_at_words" not in request(track="gpu").learned


def test_a_text_too_large_is_sampled_and_told() -> None:
    lines = planning.plan(request()).lines()
    assert any("words are left out: 3,000 at most" in line for line in lines)
    assert any("about 3,000 words to learn from, 10% of as many held out" in line for line in lines)


def facts_of(**changes: Any) -> dict[str, Any]:
    known = {"budget": 1, "passes": 3.0, "seeds": [1, 2, 3], "ordsmed": "0.2.0+g1234567", "track": "cpu"}
    return {**known, "rules": settings.plain(track("cpu")), **changes}


@pytest.mark.parametrize(
    ("changes", "reasons"),
    [
        ({}, []),
        ({"track": "cpu.toml"}, ["rules of its own"]),
        ({"rules": settings.plain(track("cpu", ["words=9_000"]))}, ["rules of its own"]),
        ({"rules": settings.plain(track("cpu", ["revisions_at_words=[5]"]))}, []),
        ({"budget": 0.1}, ["0.1 times the budget"]),
        ({"passes": 11.0}, ["11.0 passes over the text, more than 10"]),
        ({"seeds": [1]}, ["1 seed, fewer than 3"]),
        ({"ordsmed": "0.2.0"}, ["the commit of the code is not known"]),
        ({"ordsmed": "0.2.0+g12345678+changes"}, ["files of the code differ from its commit"]),
    ],
)
def test_what_is_no_entry_says_why(changes: dict[str, Any], reasons: Sequence[str]) -> None:
    assert entry.why_none(facts_of(**changes)) == reasons


@pytest.mark.long
@pytest.mark.parametrize("kind", ["masked", "causal"])
def test_one_command_leaves_an_entry(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("pairs.jsonl").write_text(
        "".join(
            json.dumps({"sentence_good": f"The {word}.", "sentence_bad": f"The the {word}."}) + "\n"
            for word in ("river", "bridge", "village")
        )
    )
    words = ["speedrun", "track.toml", "texts", "out", "--kind", kind, "--blimp", "pairs.jsonl", "--workers", "2"]
    main(words)
    made = entry.read(Path("out"))
    score = "pseudo_bits_per_byte" if kind == "masked" else "bits_per_byte"
    assert made["score"] == score
    assert set(made["over"]) >= {score, "validation", "blimp"}
    assert ("masked_loss" in made["over"]) == (kind == "masked")
    assert made["seeds"] == [1, 2]
    values = [row["scores"][score] for row in made["runs"]]
    assert made["over"][score]["mean"] == pytest.approx(sum(values) / 2)
    assert made["over"][score]["deviation"] == pytest.approx(abs(values[0] - values[1]) / 2**0.5)
    assert made["flops"] <= 8e8
    assert made["sample"]["train"]["words"] <= 3_000
    assert made["sample"]["beyond"]["words"] > 0
    reached = [label for label, _ in snapshots.reached(Path("out/budget-1/seed-1/checkpoints"))]
    assert reached == ["chck_1000", "chck_3000"], "what lies beyond the run is left out"
    main(["export", "out/budget-1/seed-1", "entry", "--to", "babylm"])
    assert {path.parent.name for path in Path("entry").glob("*/config.json")} == {"main", *reached}
    assert made["words"] == pytest.approx(made["passes"] * made["sample"]["train"]["words"], abs=2)
    assert made["recipe"]["phase"][0]["steps"] == made["runs"][0]["steps"] - made["recipe"]["phase"][1]["steps"]
    assert not {"out", "data", "seed"} & made["recipe"].keys()
    for row in made["runs"]:
        assert row["weights"] == scores.file_mark(Path(f"out/budget-1/seed-{row['seed']}/weights/model.safetensors"))
    assert made["runs"][0]["weights"] != made["runs"][1]["weights"]
    assert str(Path.cwd()) not in Path("out/entry.json").read_text()
    assert Path("out/report.html").stat().st_size > 10_000
    said, noted = capsys.readouterr()
    assert "documents with" in noted
    assert "minutes in all" in said
    weights = {path: path.stat().st_mtime_ns for path in Path("out").rglob("*.safetensors")}
    main(words)
    assert {path: path.stat().st_mtime_ns for path in weights} == weights
    with pytest.raises(SystemExit):
        main([*words, "phase.learning_rate=1e-3"])
    assert "was begun with changes none; found phase.learning_rate=1e-3" in capsys.readouterr()[1]


RUN = {"seed": 1, "steps": 40, "weights": "aa", "scores": {"bits_per_byte": 2.0, "blimp": 60.0}}
MACHINE = {"processor": "A", "cores": 2, "gpu": "", "torch": "2.13", "threads": 2}


def whole_entry(**changes: Any) -> dict[str, Any]:
    """As its file has it."""
    over = {"mean": 2.0, "deviation": 0.01}
    known = {
        "version": 1,
        "score": "bits_per_byte",
        "name": "small-causal",
        "runs": [RUN],
        "machine": MACHINE,
        "over": {"bits_per_byte": over, "blimp": {"mean": 60.0, "deviation": 1.0}},
        "flops": 1.5e14,
        "words": 5_000_000,
        "minutes": {"training": 12.0, "wall": 50.0, "cpu": 90.0},
        "date": "2026-11-27",
        "code": "c",
        "tokenizer": "t",
        "sample": {"sha256": "s", "train": {"words": 10}},
    }
    return {**facts_of(), **known, **changes}


def test_two_entries_that_differ_say_in_what() -> None:
    before = whole_entry()
    assert list(reproduction.differences(before, whole_entry(date="2027-01-01", machine={**MACHINE, "cores": 8}))) == []
    run_of = {**RUN, "weights": "bb", "scores": {"bits_per_byte": 2.5}}
    over = {"bits_per_byte": {"mean": 2.5, "deviation": None}}
    now = whole_entry(runs=[run_of], over=over, tokenizer="u", sample={"sha256": "z", "train": {"words": 9}})
    assert list(reproduction.differences(before, now)) == [
        "the sample differs: other texts (10 words there, 9 words here)",
        "the tokenizer differs",
        "weights of seed 1 differ",
        "bits_per_byte differs: 2.0 there, 2.5 here",
    ]
    elsewhere = whole_entry(machine={**MACHINE, "torch": "2.9", "gpu": "H100"}, code="d", ordsmed="0.3.0")
    assert list(reproduction.reasons(before, elsewhere)) == [
        "gpu none (here H100)",
        "torch 2.13 (here 2.9)",
        "ordsmed 0.2.0+g1234567 (here 0.3.0)",
    ]


def test_the_board_has_the_best_first_and_nothing_that_is_no_entry() -> None:
    Path("records").mkdir()
    assert board.lines(Path("records")) == ["No entry yet."]
    best = {"bits_per_byte": {"mean": 1.9, "deviation": 0.02}}
    Path("records/a.json").write_text(json.dumps(whole_entry()))
    Path("records/b.json").write_text(json.dumps(whole_entry(over=best, name="mine")))
    lines = board.lines(Path("records"))
    assert lines[0] == "### cpu: bits_per_byte, 150 TFLOP"
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")][2:]
    assert [row[:4] for row in rows] == [
        ["1.9000 ± 0.0200", "", "[mine][b]", "1, 2, 3"],
        ["2.0000 ± 0.0100", "60.0 ± 1.0", "[small-causal][a]", "1, 2, 3"],
    ]
    assert rows[0][4:8] == ["5.0 M", "12.0", "A, 2 threads", "1234567"]
    assert [line for line in lines if line.startswith("[")] == ["[b]: records/b.json", "[a]: records/a.json"]
    Path("records/c.json").write_text(json.dumps(whole_entry(passes=12.0)))
    with pytest.raises(DataError, match=r"c.json: is no entry: 12.0 passes over the text, more than 10"):
        board.lines(Path("records"))


def test_the_page_has_the_entries_that_lie_beside_it() -> None:
    """The end of it is what `ordsmed speedrun --board docs/speedrun` prints."""
    docs = Path(__file__).parents[2] / "docs"
    wanted = "\n".join(board.lines(docs / "speedrun")).rstrip() + "\n"
    assert (docs / "speedrun.md").read_text(encoding="utf-8").endswith(f"## Records\n\n{wanted}")


def test_a_line_through_a_power_law_is_found() -> None:
    law = scaling.PowerLaw.of([(x, 3.0 * x**-0.05) for x in (1e12, 4e12, 3e13, 1e14)])
    assert law.b == pytest.approx(-0.05)
    assert law.error == pytest.approx(0.0, abs=1e-9)
    assert law.at(1e15)[0] == pytest.approx(3.0 * 1e15**-0.05)
    law = scaling.PowerLaw.of([(1e12, 2.0), (1e13, 1.9), (1e14, 1.7), (1e15, 1.65)])
    mean, low, high = law.at(1e16)
    assert low < mean < high
    assert (high / low) > (law.at(1e13)[2] / law.at(1e13)[1]), "less is known farther away"
    assert law.error == pytest.approx(0.00458, abs=1e-5)
    assert law.floor == 0
    assert scaling.PowerLaw.of([(1e12, 2.0), (1e13, 1.9)]).error is None


def test_a_floor_is_found_where_there_is_one() -> None:
    budgets = [1.5e14 * 2**power for power in range(-3, 2)]
    curve = lambda x: 1.45 + 0.2 * (x / 1.5e14) ** -0.4  # noqa: E731
    law = scaling.PowerLaw.of([(x, curve(x)) for x in budgets])
    assert (law.floor, law.b) == (pytest.approx(1.45, abs=1e-4), pytest.approx(-0.4, abs=1e-3))
    assert law.at(1e15)[0] == pytest.approx(curve(1e15), abs=1e-4)
    scattered = [(x, curve(x) * factor) for x, factor in zip(budgets, (1, 1.001, 0.999, 1.001, 1), strict=True)]
    law = scaling.PowerLaw.of(scattered)
    assert law.at(1e15) == pytest.approx((1.54392, 1.52448, 1.56362), abs=1e-5)
    assert (law.count, law.error) == (5, pytest.approx(0.0216, abs=1e-4))
    assert "loss above 1.4" in scaling._lines("loss", budgets[-1], law)[0]
    assert scaling.PowerLaw.of(scattered[:4]).floor == 0, "four that scatter do not tell it from a straight line"
    assert scaling.PowerLaw.of([(x, curve(x)) for x in budgets[:4]]).floor == pytest.approx(1.45, abs=1e-3)
    assert scaling.PowerLaw.of([(x, 3 - curve(x)) for x in budgets]).floor == 0, "what rises falls to no floor"
    assert scaling.PowerLaw.of([(x, curve(x) - 1.5) for x in budgets[:4]]).floor == 0, "none is below 0"


def test_budgets_of_equally_many_steps_make_no_curve(tmp_path: Path) -> None:
    assert scaling.leave(tmp_path, [{"flops": 8e8}, {"flops": 8e8}]) == [
        "all budgets come to as many steps: there is no curve"
    ]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["cpu", "texts"], "speedrun: found only cpu texts; wanted TRACK TEXTS OUT"),
        (["--check", "none.json"], "none.json"),
        (["--check", "entry.json"], "--check: entry.json does not say its texts; wanted TEXTS OUT behind it"),
        (["--check", "entry.json", "texts"], "--check: found only texts after it; wanted TEXTS OUT"),
        (["--check", "old.json", "texts", "out"], "old.json: is no entry of version 1"),
        (["cpu", "--board", "records"], "--board: found with cpu; wanted only a folder of entries"),
        (["--board", "none"], "--board: none is not a folder; wanted a folder of entries"),
        (["cup", "texts", "out"], "cup"),
    ],
)
def test_words_that_mean_nothing_are_said(words: list[str], problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("entry.json").write_text(json.dumps(whole_entry()))
    Path("old.json").write_text("{}")
    with pytest.raises(SystemExit):
        main(["speedrun", *words])
    assert problem in capsys.readouterr()[1]
    assert not Path("out").exists()


@pytest.mark.long
def test_an_entry_is_made_again_to_the_bit_and_what_differs_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    made = ordsmed.speedrun("track.toml", "texts", "out", kind="causal", workers=2)
    assert made.entry == entry.read(made.folder)
    values = [row["scores"]["bits_per_byte"] for row in made.entry["runs"]]
    assert made.mean == made.scores["bits_per_byte"] == pytest.approx(sum(values) / 2)
    assert made.deviation == pytest.approx(abs(values[0] - values[1]) / 2**0.5)
    Path("more").mkdir()
    for number, path in enumerate(sorted(Path("texts").iterdir())):
        path.rename(f"more/{20 - number}.txt")  # in another order
    with pytest.raises(SystemExit):
        main(["speedrun", "--check", "out"])
    assert "texts" in capsys.readouterr()[1]
    main(["speedrun", "--check", "out/entry.json", "more", "again"])
    assert (
        "equal to the bit: sample, tokenizer, weights of 2 seeds, validation, bits_per_byte" in capsys.readouterr()[0]
    )
    Path("more/9.txt").unlink()
    with pytest.raises(RunError) as differs:
        ordsmed.speedrun_check("out/entry.json", "more", "other")
    said = str(differs.value)
    assert "the sample differs: other texts" in said
    assert "weights of seeds 1, 2 differ" in said
    assert "machine, versions and code are the same" in said


def test_what_came_of_it_is_that_of_the_largest_budget() -> None:
    small = whole_entry(budget=0.5, over={"bits_per_byte": {"mean": 2.5, "deviation": None}}, no_entry=["<half>"])
    made = Speedrun(Path("out"), [whole_entry(no_entry=[]), small], ["a line"])
    assert made.entry["budget"] == 1
    assert made.scores == {"bits_per_byte": 2.0, "blimp": 60.0}
    assert (made.mean, made.deviation) == (2.0, 0.01)
    assert "2.5000" in made._repr_html_()
    assert "&lt;half&gt;" in made._repr_html_()
    assert Speedrun(Path("out"), [small], []).deviation is None


def test_arguments_of_python_are_those_of_the_verb(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[Any]()
    module = "ordsmed.maker.speedrun"
    monkeypatch.setattr(f"{module}.speedrun.perform", lambda request, anew=False: asked.append((request, anew)))
    ordsmed.speedrun("track.toml", "texts", Path("out"), "words=2_000", kind="causal", seeds=3, anew=True)
    ordsmed.speedrun(
        Path("track.toml"),
        [Path("texts"), "more"],
        "out",
        recipe=Path("masked.toml"),
        budget=[0.5, 1],
        seeds=range(1, 3),
        blimp=Path("texts"),
        workers=2,
        yes=True,
    )
    how = {"recipe": "masked.toml", "budgets": (0.5, 1.0), "seeds": (1, 2), "blimp": "texts", "workers": 2, "yes": True}
    assert asked == [
        (request(changes=("words=2_000",), kind="causal", seeds=(3,)), True),
        (request(texts=("texts", "more"), **how), False),
    ]
    with pytest.raises(RecipeError, match="--kind: found mask"):
        ordsmed.speedrun("track.toml", "texts", "out", kind="mask")
    with pytest.raises(RecipeError, match="--check: found texts alone; wanted texts and out"):
        ordsmed.speedrun_check("out", "texts")
    monkeypatch.setattr(f"{module}.reproduction.check", lambda *given: [*map(str, given)])
    assert ordsmed.speedrun_check("out", "texts", "again") == ["out", "('texts',)", "again", ""]


@pytest.mark.long
def test_several_budgets_leave_a_curve(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["speedrun", "track.toml", "texts", "out", "--seeds", "1", "--workers", "1", "--kind", "causal"]
    main([*words, "--budget", "0.25,0.5,1"])
    said = capsys.readouterr()[0]
    assert "bits_per_byte goes with operations to the power of" in said
    assert re.search(r"at 6\.\d+ GFLOP, if the line holds: [\d.]+ \([\d.]+ to [\d.]+\)", said)
    assert Path("out/scaling-bits_per_byte.svg").read_text().count("<circle") == 6
    kept = json.loads(Path("out/scaling.json").read_text())["bits_per_byte"]
    assert [point[0] for point in kept["points"]] == pytest.approx([2e8, 4e8, 8e8], rel=0.05)
    assert "0.25 times the budget" in entry.read(Path("out/budget-0.25.json"))["no_entry"]


@pytest.mark.long
def test_a_stopped_one_goes_on_and_its_time_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["speedrun", "track.toml", "texts", "out", "--seeds", "1", "--kind", "causal"]
    monkeypatch.setenv("ORDSMED_STOP_AT", "20")
    with pytest.raises(SystemExit):
        main(words)
    before = run.Run(Path("out")).status
    assert before["state"] == "running"
    assert before["seconds"] > 0
    assert not Path("out/entry.json").exists()
    monkeypatch.delenv("ORDSMED_STOP_AT")
    main(words)
    result = entry.read(Path("out"))
    assert run.Run(Path("out")).status["seconds"] > before["seconds"]
    assert result["minutes"]["wall"] * 60 > before["seconds"]
    main(["speedrun", "track.toml", "texts", "whole", "--seeds", "1", "--kind", "causal"])
    assert entry.read(Path("whole"))["runs"][0]["weights"] == result["runs"][0]["weights"]
