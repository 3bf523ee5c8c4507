"""The plan: what is written is what would be done, and each wish of the request is met or refused."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from maker.test_texts import prose
from ordsmed.base import run, settings
from ordsmed.base.errors import RecipeError
from ordsmed.corpus.pipeline import Corpus
from ordsmed.data.encode import Encoding
from ordsmed.data.tokenizer_training import TokenizerTraining
from ordsmed.maker import networks
from ordsmed.maker import plan as planning
from ordsmed.maker import recipes as written
from ordsmed.maker.learning import Scope
from ordsmed.maker.networks import families
from ordsmed.maker.request import MakeRequest
from ordsmed.maker.texts import TextSurvey
from ordsmed.maker.trial import tokens_a_second
from ordsmed.train.pretrain.recipe import Pretraining

RECIPES: dict[str, Any] = {"corpus": Corpus, "tokenizer": TokenizerTraining, "data": Encoding, "model": Pretraining}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts that no test changes."""
    folder = tmp_path_factory.mktemp("texts")
    for number in range(4):
        (folder / f"{number}.txt").write_text(prose(200, seed=number))
    return folder


@pytest.fixture(scope="module")
def survey(folder: Path) -> TextSurvey:
    return planning.texts.survey(planning.texts.input_texts((str(folder),), "out"))


@pytest.fixture
def texts(folder: Path, survey: TextSurvey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A folder that is surveyed once for all tests."""
    (tmp_path / "out").mkdir()
    monkeypatch.setattr(planning.texts, "survey", lambda found: survey)
    monkeypatch.setattr(planning, "_speed", lambda device, processes: 1e11)
    monkeypatch.setattr(planning, "TRIALS", 0)
    return str(folder)


@pytest.mark.parametrize("kind", families())
def test_what_is_written_are_recipes_that_decode(texts: str, tmp_path: Path, kind: str) -> None:
    plan = planning.plan(MakeRequest((texts,), str(tmp_path / "out"), 0.1, families()[kind].purposes[0], kind))  # type: ignore[arg-type]
    for path in written.write(plan.recipes, Path(plan.request.out)):
        recipe = settings.decode(RECIPES[path.stem], settings.read(path), str(path))
        assert recipe.out == str(tmp_path / "out" / path.stem)
    model = settings.decode(Pretraining, settings.read(tmp_path / "out/model.toml"), "model.toml")
    assert model.phase[-1].length <= model.model.longest()


def test_files_that_are_there_stay(texts: str, tmp_path: Path) -> None:
    plan = planning.plan(MakeRequest((texts,), str(tmp_path / "out"), 0.1))
    (tmp_path / "out/model.toml").write_text("# changed\n")
    written.write(plan.recipes, Path(plan.request.out))
    assert (tmp_path / "out/model.toml").read_text() == "# changed\n"


def test_the_screen_says_what_is_planned(texts: str, tmp_path: Path) -> None:
    plan = planning.plan(MakeRequest((texts,), str(tmp_path / "out"), 0.1))
    screen = "\n".join(plan.lines())
    phase = plan.recipes["model"]["phase"][0]
    assert f"{phase['batch']} rows of {phase['length']} tokens" in screen
    assert f"{plan.recipes['tokenizer']['tokenizer']['size']:,} pieces" in screen
    assert "4 files" in screen
    assert len(plan.lines()) <= 12


def test_more_hours_mean_more_steps_or_a_larger_network(texts: str, tmp_path: Path) -> None:
    short, long = (planning.plan(MakeRequest((texts,), str(tmp_path / "out"), hours)) for hours in (0.05, 0.5))
    assert long.tokens * long.weights > short.tokens * short.weights


def test_little_text_ends_early_and_says_so(texts: str, tmp_path: Path) -> None:
    plan = planning.plan(MakeRequest((texts,), str(tmp_path / "out"), 200.0))
    assert any("passes over so little text" in note for note in plan.notes)
    assert plan.training < 0.5 * plan.seconds


@pytest.mark.parametrize("kind", ["gpt2", "modern", "electra"])
def test_little_text_is_read_with_patience_and_by_causal_models_with_dropout(
    texts: str, tmp_path: Path, kind: str
) -> None:
    purpose = families()[kind].purposes[0]
    plan = planning.plan(MakeRequest((texts,), str(tmp_path / "out"), 200.0, purpose, kind))  # type: ignore[arg-type]
    table = plan.recipes["model"]
    assert table["model"].get("dropout") == ({"gpt2": 0.1, "electra": 0.0}.get(kind))
    assert ("patience" in table) == (kind != "electra")  # whose losses cannot be compared
    assert not table.get("patience") or 1 / table["validate"] > 2 * table["patience"]


def test_of_much_text_a_portion_is_read(
    texts: str, survey: TextSurvey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = replace(survey, characters=1e11, words=1.6e10, documents=1e8, seconds=1.0)
    monkeypatch.setattr(planning.texts, "survey", lambda found: large)
    plan = planning.plan(MakeRequest((texts,), str(tmp_path / "out"), 1.0))
    assert 0 < plan.recipes["corpus"]["portion"] < 0.05
    assert any("of the text is read" in note for note in plan.notes)


class Reached(Exception):
    """The plan came as far as the choice of a network."""


@pytest.mark.parametrize("purpose", ["fill", "search"])
def test_training_gets_the_time_that_nothing_else_needs(
    texts: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, purpose: Any
) -> None:
    """As much as is left when preparing took longer than planned, and a tenth of the hours at least."""
    asked, seconds = MakeRequest((texts,), str(tmp_path / "out"), 10.0, purpose), list[float]()

    def choose(request: MakeRequest, scope: Scope) -> None:
        seconds.append(scope.seconds)
        raise Reached

    monkeypatch.setattr(planning, "fresh", choose)
    for used in (0.0, 3_600.0, 30_000.0, 50_000.0):
        with pytest.raises(Reached):
            planning.plan(asked, used=used)
    left = 36_000 - asked.time.after_training()
    assert seconds == pytest.approx([left, left - 3_600, max(left - 30_000, 3_600), 3_600], abs=60)


@pytest.mark.parametrize(
    ("characters", "part"), [(40_000, 500), (1_000_000, 2_500), (3_000_000, 7_500), (9_000_000, 8_000)]
)
def test_few_documents_are_cut_into_parts_of_which_twenty_are_held_out(
    texts: str, survey: TextSurvey, tmp_path: Path, characters: float, part: int
) -> None:
    asked, held_out = MakeRequest((texts,), str(tmp_path / "out"), 1.0), 0.05
    inputs, known = (
        planning.texts.input_texts(asked.texts, asked.out),
        replace(survey, characters=characters, words=1e5),
    )
    for documents, longest in ((1, part), (20 / held_out - 1, part), (20 / held_out, None)):
        table = written._corpus(asked, inputs, replace(known, documents=documents), 1.0)
        assert (table["validation"], table.get("longest")) == (held_out, longest)


@pytest.mark.parametrize(("timed", "width"), [(2e3, 64), (1e6, 128)])
def test_the_network_goes_by_timed_steps(
    texts: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, timed: float, width: int
) -> None:
    """The peak of products promises more than steps of a small network reach, with AMX many times."""
    asked: list[tuple[int, int]] = []

    def trial(network: Any, recipe: Any, vocabulary: int, threads: int) -> float:
        asked.append((network["width"], threads))
        return timed

    monkeypatch.setattr(planning, "TRIALS", 3)
    monkeypatch.setattr(planning, "tokens_a_second", trial)
    monkeypatch.setattr(planning, "threads_here", lambda processes: 4)
    plan = planning.plan(MakeRequest((texts,), str(tmp_path / "out"), 0.1, devices=2))
    assert asked[-1] == (plan.recipes["model"]["model"]["width"], 2)
    assert plan.training == pytest.approx(plan.tokens / (2 * timed))
    assert plan.recipes["model"]["model"]["width"] == width


@pytest.mark.parametrize("kind", families())
def test_steps_of_every_kind_are_timed(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    family = families()[kind]
    network = networks.network_sizes(family, 500, 32)[0]
    recipe = {"phase": [{"length": 32, "batch": 4}], "objective": family.objective, "optimizer": family.optimizer}
    assert tokens_a_second(settings.plain(network.model), recipe, 500, 1) > 0
    assert not list(tmp_path.iterdir())


def test_few_documents_are_cut_so_that_some_is_held_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "_speed", lambda device, processes: 1e11)
    monkeypatch.setattr(planning, "TRIALS", 0)
    (tmp_path / "out").mkdir()
    draw = random.Random(0)
    lines = prose(1_200, apart="\n", of=1).split("\n")
    draw.shuffle(lines)
    (tmp_path / "novel.txt").write_text("\n".join(lines))
    plan = planning.plan(MakeRequest((str(tmp_path / "novel.txt"),), str(tmp_path / "out"), 0.1))
    written.write(plan.recipes, Path(plan.request.out))
    folder = run.obtain(Corpus, str(tmp_path / "out/corpus.toml"))
    status = run.Run(folder).status
    assert status["train"]["documents"] >= 20
    assert status["validation"]["documents"] >= 1


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"hours": 0.001}, "--hours: found 0.001; wanted 0.02"),
        ({"hours": 10_000.0}, "--hours: found 10000; wanted"),
        ({"kind": "t5"}, "--kind: found t5; wanted one of modern bert"),
        ({"kind": "gpt2", "purpose": "fill"}, "--kind: gpt2 with --for fill; wanted one of .*; gpt2 is for write"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(RecipeError, match=complaint):
        MakeRequest(("a",), "out", **changes)


@pytest.mark.parametrize(
    ("kind", "purpose"), [("", "fill"), ("gpt2", "write"), ("hybrid", "both"), ("elmo", "embed"), ("bert", "fill")]
)
def test_a_kind_alone_is_made_for_what_it_is_for(kind: str, purpose: str) -> None:
    assert MakeRequest(("a",), "out", kind=kind).purpose == purpose


def test_a_script_of_many_characters_gets_a_piece_for_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "_speed", lambda device, processes: 1e11)
    monkeypatch.setattr(planning, "TRIALS", 0)
    (tmp_path / "out").mkdir()
    draw = random.Random(0)
    lines = ["".join(chr(0x4E00 + draw.randrange(3_000)) for _ in range(30)) + "。" for _ in range(3_000)]
    (tmp_path / "a.txt").write_text("\n\n".join(map("\n".join, zip(lines[::3], lines[1::3], lines[2::3], strict=True))))
    plan = planning.plan(MakeRequest((str(tmp_path / "a.txt"),), str(tmp_path / "out"), 0.1))
    assert plan.recipes["tokenizer"]["tokenizer"]["alphabet"] > 3_000
    written.write(plan.recipes, tmp_path / "out")
    folder = run.obtain(Encoding, str(tmp_path / "out/data.toml"))
    assert run.Run(folder).status["train"]["unknown"] < 0.001
    folder = run.obtain(Corpus, str(tmp_path / "out/corpus.toml"))
    plan = planning.plan(MakeRequest((str(folder),), str(tmp_path / "second"), 0.1))
    assert plan.recipes["tokenizer"]["tokenizer"]["alphabet"] > 2_900  # of a corpus that stands, too


@pytest.mark.parametrize(
    ("model", "purpose", "told"),
    [
        (
            "bert",
            "write",
            "the bert of .* reads the words on both sides: it is trained to fill gaps and writes by fill",
        ),
        ("bert", "both", "the bert of .* reads the words on both sides"),
        ("bert", "fill", ""),
        ("gpt2", "fill", "the gpt2 of .* fills no gaps: it is trained on as what it is; to fill gaps leave --from out"),
        ("gpt2", "write", ""),
    ],
)
def test_what_a_model_to_start_from_cannot_do_is_noted(
    tiny_run: Any, texts: str, tmp_path: Path, model: str, purpose: Any, told: str
) -> None:
    wish = MakeRequest((texts,), str(tmp_path / "new"), 0.1, purpose, "", str(getattr(tiny_run, model)))
    fits, *notes = planning.plan(wish).notes
    assert fits.startswith("its vocabulary ")
    assert re.match(told, notes[0]) if told else not any("--from" in note for note in notes)
