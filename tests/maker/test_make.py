"""`make` as a whole: one command leaves a model that others open, goes on where it stopped, refuses another wish."""

from __future__ import annotations

import html
import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from maker.test_texts import prose
from ordsmed.api.searching import open_index
from ordsmed.base import run
from ordsmed.base.errors import RecipeError
from ordsmed.cli import main
from ordsmed.data.encode import Encoding
from ordsmed.maker import closing, hours, request, runner
from ordsmed.maker import make as making
from ordsmed.maker import plan as planning
from ordsmed.maker.runner import Clock
from ordsmed.train.fitting import TooShort


@pytest.fixture(autouse=True)
def short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some seconds are enough here."""
    monkeypatch.setattr(request, "SHORTEST_HOURS", 0.0)
    monkeypatch.setattr(hours, "CLOSING_SECONDS", 1.0)
    monkeypatch.setattr(planning, "_speed", lambda device, processes: 2e10)
    monkeypatch.setattr(planning, "TRIALS", 0)
    monkeypatch.chdir(tmp_path)
    Path("texts").mkdir()
    for number in range(30):
        Path(f"texts/{number}.txt").write_text(prose(10, seed=number))


@pytest.mark.long
@pytest.mark.parametrize(
    ("purpose", "kind"), [("fill", "bert"), ("write", ""), ("both", ""), ("embed", "elmo"), ("fill", "modern")]
)
def test_one_command_leaves_a_model_for_others(purpose: str, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["make", "texts", "out", "--hours", "0.004", "--for", purpose, *(["--kind", kind] if kind else [])])
    said, noted = capsys.readouterr()
    assert "plan:" in noted
    assert "below" in said or "above" in said
    assert "perplexity on" in said
    assert "try next:" in said
    facts = run.Run(Path("out")).status
    assert facts["state"] == "done"
    assert facts["validation"] > 0
    assert Path("out/report.html").stat().st_size > 10_000
    assert Path("out/hugging-face/README.md").exists()
    if purpose == "fill":
        assert len(facts["examples"]) >= 4
        assert all(word in said for word in ("[MASK]", "the text has:"))
        pipeline = pytest.importorskip("transformers").pipeline
        guesses = pipeline("fill-mask", model="out/hugging-face")(f"The river {'[MASK]'} water.")
        assert len(guesses) == 5
    if purpose == "write":
        pipeline = pytest.importorskip("transformers").pipeline
        assert pipeline("text-generation", model="out/hugging-face")("The river", max_new_tokens=3)


@pytest.mark.long
def test_the_card_says_what_was_given_and_shows_held_out_text() -> None:
    model_card = pytest.importorskip("huggingface_hub").ModelCard
    given = ["--title", "My novels", "--language", "en-GB", "--licence", "CC-BY-4.0"]
    command = ["make", "texts", "out", "--hours", "0.004", "--kind", "bert", *given]
    main(command)
    card = model_card.load("out/hugging-face/README.md")
    assert (card.data.language, card.data.license) == (["en-GB"], "cc-by-4.0")
    assert "\n# My novels\n" in card.text
    assert "| My novels | en-GB | CC-BY-4.0 | 100% |" in card.text
    held_out = Path("out/held-out.txt").read_text()
    [shown] = re.findall(r'print\(ask\("(.*)"\)\)', card.text)
    assert "[MASK]" in shown
    assert shown.split()[0] in held_out
    assert "<title>My novels</title>" in Path("out/report.html").read_text()
    with pytest.raises(SystemExit):
        main([*command[:-1], "MIT"])


def rehearse(asked: request.MakeRequest, *, anew: bool = False) -> Any:
    return runner.rehearse(making.MakeJob(asked), anew=anew)


def test_texts_are_called_as_their_folder_is() -> None:
    assert _title(["texts"]) == "texts"
    assert _title(["texts/1.txt"]) == "1"
    assert _title(["texts/1.txt", "texts/2.txt"]) == "out"
    assert _title(["stdlib"]) == "Documentation of Python's standard library"
    with pytest.raises(RecipeError, match=r"--language: found Norwegian; wanted a code .*; Norwegian is nb"):
        request.MakeRequest(("texts",), "out", language="Norwegian")
    table = rehearse(request.MakeRequest(("texts",), "out", licence="MIT", language="nb")).recipes["corpus"]
    assert (table["title"], table["licence"], table["language"]) == ("texts", "MIT", "nb")


def _title(texts: list[str]) -> str:
    return request.MakeRequest(tuple(texts), "out").texts_title


def test_a_folder_of_before_a_setting_was_added_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    known = {"texts": ["texts"], "out": "out", "hours": 1.0, "purpose": "fill", "kind": "", "start": ""}
    Path("out").mkdir()
    run.Run(Path("out")).set(verb="make", state="done", request=known)
    making.make("texts", "out")
    assert capsys.readouterr().err == "out: is finished, with --hours 1; more hours continue it\n"
    with pytest.raises(RecipeError, match="ordsmed export out/model out/hugging-face --licence MIT --anew"):
        making.make("texts", "out", licence="MIT")


@pytest.mark.parametrize(
    ("sentence", "shown"),
    [
        ("One river met the river at a river.", "One [MASK] met the river at a river."),
        ("Most of it was new.", "Most of [MASK] was new."),
        ("The cat's cat sat.", "The cat's [MASK] sat."),
        ("It's 1984.", None),
    ],
)
def test_one_word_of_an_example_is_masked(sentence: str, shown: str | None) -> None:
    """The first place where it is a word and a token by itself."""
    pieces = {" river", " it", " cat"}
    model = SimpleNamespace(
        trained=SimpleNamespace(tokenizer=SimpleNamespace(encode=lambda word: [1] if word in pieces else [1, 2])),
        fill=lambda text, best: SimpleNamespace(masks=[[SimpleNamespace(text="sea", probability=0.25)] * best]),
    )
    lines = closing._filled(model, sentence)  # type: ignore[arg-type]
    assert [line.strip() for line in lines[:1]] == ([shown] if shown else [])
    if shown:
        assert lines[1].split("   ")[2] == ", ".join(["sea 25%"] * closing.GUESSES)


def test_hours_that_leave_too_little_for_training_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stopped training prints how to resume `make`; an error of it stays the same."""

    def ending(error: Exception) -> None:
        def end(*_: object, **how: float) -> None:
            deadlines.append(how["deadline"])
            raise error

        monkeypatch.setattr(making.training, "pretrain", end)

    deadlines: list[float] = []
    asked = request.MakeRequest(("texts",), "out", 0.5)
    place = run.Run(Path("out"))
    Path("out/model").mkdir(parents=True)
    clock = Clock(place)
    clock.before = 600.0
    short = TooShort("--deadline", "found 1", "100")
    short.seconds = 900.0
    ending(short)
    with pytest.raises(
        RecipeError, match=r"^--hours: 0.5 are too few: 10 min are used, and training needs 15 min more"
    ):
        making.MakeJob(asked)._train(clock)
    left = 1_800 - 600 - asked.time.after_training()
    assert deadlines == pytest.approx([left], abs=5)
    ending(RecipeError("model.toml: rate", "found 2"))
    with pytest.raises(RecipeError, match=r"^model.toml: rate: found 2"):
        making.MakeJob(asked)._train(clock)


@pytest.mark.long
def test_it_goes_on_where_it_was_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    obtain = run.obtain

    def stopped(cls: type, name: str, *rest: object, **how: object) -> Path:
        if cls is Encoding:
            raise KeyboardInterrupt
        return obtain(cls, name, *rest, **how)  # type: ignore[type-var, arg-type]

    monkeypatch.setattr(making.run, "obtain", stopped)
    with pytest.raises(KeyboardInterrupt):
        making.make("texts", "out", hours=0.004, kind="bert")
    before = run.Run(Path("out")).status
    assert before["state"] == "running"
    assert before["seconds"] > 0
    corpus = Path("out/corpus/status.json").stat().st_mtime_ns
    monkeypatch.setattr(making.run, "obtain", obtain)
    with pytest.raises(
        RecipeError, match=r"was begun with --hours 0.004; found 0.001; the same or more hours continue"
    ):
        making.make("texts", "out", hours=0.001, kind="bert")
    with monkeypatch.context() as slow:
        slow.setattr(hours.Hours, "deadline", lambda *_: 0.01)
        wanted = r"^--hours: 0.004 are too few: .* used, .* needs .* more; wanted [\d.]+ or more; the same command with"
        with pytest.raises(RecipeError, match=wanted):
            making.make("texts", "out", hours=0.004, kind="bert")
    recipe = Path("out/model.toml")
    planned = recipe.read_text()
    recipe.write_text(f"seeds = [1, 2]\n{planned}")
    with pytest.raises(RecipeError, match=r"^--deadline: found with several trials; set `steps`"):
        making.make("texts", "out", hours=0.004, kind="bert")
    recipe.write_text(planned)
    made = making.make("texts", "out", hours=0.004, kind="bert")
    assert made.facts["seconds"] > before["seconds"]
    assert Path("out/corpus/status.json").stat().st_mtime_ns == corpus  # what was done is not done again
    assert made.open().fill("The [MASK] was.").masks
    steps = (Path("out/model/metrics.jsonl")).stat().st_mtime_ns
    assert making.make("texts", "out", hours=0.004, kind="bert").facts == made.facts  # nothing is made again
    assert (Path("out/model/metrics.jsonl")).stat().st_mtime_ns == steps


@pytest.mark.long
def test_a_model_goes_on_with_other_texts() -> None:
    first = making.make("texts", "first", hours=0.004, kind="bert")
    Path("others").mkdir()
    for number in range(30):
        Path(f"others/{number}.txt").write_text(prose(10, seed=number + 1_000).upper().replace("RIVER", "ÅREN"))
    second = making.make(["others", "texts"], "second", hours=0.004, start="first/model")
    model = json.loads((second.folder / "model/status.json").read_text())
    assert model["state"] == "done"
    assert 'init = "first/model"' in (second.folder / "model.toml").read_text()
    assert first.facts["state"] == "done"


@pytest.mark.long
def test_for_search_it_ends_in_an_index_and_folders_for_others(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.toml").write_text(
        'texts = ["nothing"]\nout = "out"\npurpose = "search"\nkind = "bert"\nlicence = "MIT"\n'
    )
    main(["make", "mine.toml", "texts=texts", "--hours", "0.006"])
    said = capsys.readouterr().out
    assert all(word in said for word in ("held-out questions", "words (BM25)", "both, reranked", "hits in all texts"))
    facts = run.Run(Path("out")).status
    assert facts["request"]["texts"] == ["texts"]
    assert facts["search"]["words (BM25)"]["recall@100"] > 30
    test = {json.loads(line)["anchor"] for line in Path("out/pairs/test.jsonl").read_text().splitlines()}
    learned = Path("out/pairs/cross.jsonl").read_text().splitlines()
    assert not test & {json.loads(line)["anchor"] for line in learned}
    used, page = facts["verdict"][-1], Path("out/report.html").read_text()
    assert used in said
    assert "reranker: " in said
    top = page[: page.index("<h2>")]
    assert f"{used[:1].upper()}{used[1:]}" in html.unescape(top)
    table = page[page.index("out: ways to search") : page.index("</table>")]
    assert [name for name in facts["search"] if f">{name}</td>" not in table] == []
    documents = run.Run(Path("out/corpus")).status
    index = open_index("out/index")
    assert index.weight == facts["weight"]
    assert ("reranker" in index.facts) == facts["reranked"]
    assert index.facts["documents"] == sum(documents[split]["documents"] for split in ("train", "validation", "test"))
    assert index.search("the river", 1, kind="dense")
    assert 'license: "mit"' in Path("out/sentence-transformers/README.md").read_text()
    assert Path("out/sentence-transformers/modules.json").exists()
    assert json.loads(Path("out/cross-encoder/config.json").read_text())["num_labels"] == 1
    main(["make", "mine.toml", "texts=texts", "--hours", "0.006"])
    assert "out: is finished" in capsys.readouterr().err


@pytest.mark.parametrize("name", [name for name in run.recipe_names() if request.is_recipe(name)])
def test_its_recipes_ask_for_what_there_is(name: str) -> None:
    made = request.of_recipe(name, ["hours=0.5"], kind="bert")
    assert (made.hours, made.kind, made.purpose) == (0.5, "bert", "search")
    with pytest.raises(RecipeError, match="did you mean `hours`"):
        request.of_recipe(name, ["hour=2"])


def test_a_name_alone_is_no_request(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["make", "texts"])
    assert "make: found texts alone; wanted TEXTS OUT, or a recipe of `make`" in capsys.readouterr().err


def test_a_dry_run_writes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    main(["make", "texts", "out", "--hours", "0.1", "--dry-run"])
    assert "plan:" in capsys.readouterr().out
    assert not Path("out").exists()
    main(["make", "texts", "out", "--hours", "0.1", "--dry-run", "--json"])
    assert json.loads(capsys.readouterr().out)["recipes"]["model"]["phase"]


def test_a_folder_of_something_else_is_refused() -> None:
    Path("out").mkdir()
    Path("out/letter.txt").write_text("dear")
    with pytest.raises(RecipeError, match="has files that were not made by `ordsmed`"):
        making.make("texts", "out")
    assert [path.name for path in Path("out").iterdir()] == ["letter.txt"]


def test_guessing_is_beside_the_loss() -> None:
    assert closing.against_guessing({"validation": 5.0, "unigram": 6.25}) == [
        "loss on held-out text 5.000; guessing by frequency 6.250: 20.0% below"
    ]
    assert closing.against_guessing({"validation": 6.5, "unigram": 6.25})[0].endswith(": 4.0% above")
    assert "not known" in closing.against_guessing({"validation": None, "unigram": None})[0]


@pytest.mark.parametrize("flags", [[], ["--anew"], ["--dry-run"], ["--anew", "--dry-run"]])
def test_a_run_of_another_verb_is_never_deleted(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    Path("out").mkdir()
    Path("out/status.json").write_text('{"verb": "pretrain", "state": "done"}')
    with pytest.raises(SystemExit):
        main(["make", "texts", "out", *flags])
    assert "out: is a folder of `pretrain`" in capsys.readouterr().err
    assert [path.name for path in Path("out").iterdir()] == ["status.json"]


def test_one_held_out_sentence_has_no_neighbor() -> None:
    embeds = SimpleNamespace(embed=lambda texts, **how: [SimpleNamespace(vectors=np.ones(4)) for _ in texts])
    assert closing._neighbors(embeds, ["alone"], ["alone"]) == []  # type: ignore[arg-type]
    assert len(closing._neighbors(embeds, ["one", "two"], ["one"])) == 2  # type: ignore[arg-type]


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a command does, in order, without doing it."""
    done: list[str] = []
    plan = planning.MakePlan(*[None] * 3, {"model": {"steps": 3}}, 60.0, *[None] * 8)  # type: ignore[arg-type]
    monkeypatch.setattr(planning.MakePlan, "lines", lambda self: ["  texts"])
    written = lambda place: done.append("extended") or {}  # noqa: E731
    longer = SimpleNamespace(lines=lambda: ["  more"], seconds=3_600.0, write=written)
    monkeypatch.setattr(planning, "plan", lambda asked: done.append("planned") or plan)
    monkeypatch.setattr(making.more_hours, "plan_more", lambda asked, place, used: done.append("longer") or longer)
    monkeypatch.setattr(making.MakeJob, "stages", lambda self, clock: done.append("performed") or [])
    return done


def test_a_command_plans_once_and_continues_with_the_same_or_more_hours(
    done: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    making.make("texts", "out", hours=0.5)
    place = run.Run(Path("out"))
    assert done == ["planned", "performed"]
    assert "plan:\n  texts\nmodel.toml in out: the plan as recipes" in capsys.readouterr().err
    assert place.status["planned"] == {"seconds": 60.0, "lines": ["  texts"]}
    assert place.status["written"] == {"model": making.files.checksum(Path("out/model.toml"))}
    place.set(state="running")  # it was killed
    making.make("texts", "out", hours=0.5, devices=2)
    assert place.status["request"]["devices"] == 2
    assert done[2:] == ["performed"]
    making.make("texts", "out", hours=1.0)
    assert done[3:] == ["longer", "extended", "performed"]
    assert (place.status["request"]["hours"], place.status["planned"]["seconds"]) == (1.0, 3_600.0)
    assert "plan:\n  more\n" in capsys.readouterr().err
    making.make("texts", "out", hours=1.0)
    making.make("texts", "out", hours=0.5)  # what is done has enough
    assert done[6:] == []
    assert capsys.readouterr().err.count("out: is finished, with --hours 1; more hours continue it\n") == 2
    making.make("texts", "out", hours=2.0)
    assert done[6:] == ["longer", "extended", "performed"]
    rehearse(request.MakeRequest(("texts",), "out", 3.0))
    assert done[9:] == ["longer"]
    rehearse(request.MakeRequest(("texts",), "out", 3.0), anew=True)
    making.make("texts", "out", hours=3.0, anew=True)
    assert done[10:] == ["planned", "planned", "performed"]
    assert len([*Path().glob("out*")]) == 2, "the one before is aside"


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"purpose": "write"}, r"out: was begun with --for fill; found write; name another OUT, or add --anew"),
        ({"texts": ["more"]}, r"out: was begun with TEXTS texts; found more; name another OUT"),
        ({"hours": 0.1}, r"--hours 0.5; found 0.1; the same or more hours continue it, or name another OUT$"),
        ({"title": "Mine"}, r"^--title: out was begun with another one; wanted the same command; once it is made, `"),
    ],
)
def test_another_request_in_the_same_folder_is_refused(
    done: list[str], changes: dict[str, Any], complaint: str
) -> None:
    Path("more").mkdir()
    making.make("texts", "out", hours=0.5)
    run.Run(Path("out")).set(state="running")
    with pytest.raises(RecipeError, match=complaint):
        making.make(**{"texts": "texts", "out": "out", "hours": 0.5, **changes})
    assert done == ["planned", "performed"]


def test_the_end_shows_scores_examples_and_commands(
    tiny_run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of a model that fills gaps; folders for others and the page are made elsewhere."""
    folder = Path("out")
    folder.mkdir()
    shutil.copytree(tiny_run.folder / "corpus", folder / "corpus")
    shutil.copytree(tiny_run.bert, folder / "model")
    written: list[Any] = []
    monkeypatch.setattr(closing, "export", lambda *places, **named: written.append(named) or places[1])
    monkeypatch.setattr(closing.report, "write", lambda folders, **named: written.append((folders, named)))
    monkeypatch.setattr(closing, "WORDS", (1, 100))
    asked = request.MakeRequest(("texts",), "out", 0.025, title="Mine", language="en", licence="MIT")
    facts = closing.close(asked, Clock(run.Run(folder)))
    assert written == [
        {"name": "out", "title": "Mine", "language": "en", "licence": "MIT"},
        (["out"], {"out": "out/report.html", "title": "Mine"}),
    ]
    status = run.Run(tiny_run.bert).status
    assert (facts["validation"], facts["unigram"]) == (status["validation"], status["unigram"])
    assert facts["lines"][0].startswith(f"loss on held-out text {status['validation']:.3f}; guessing by frequency")
    assert facts["scores"]["pseudo_perplexity"] > 1
    words = [line.strip() for line in facts["lines"]]
    assert any(line.startswith("pseudo-perplexity on ") for line in words)
    at = next(n for n, line in enumerate(words) if line.startswith("all of it took"))
    assert words[at - 1] == "out/hugging-face: for Hugging Face's transformers; out/report.html: the page"
    said = " ".join(words[at:])
    for command in (
        "ordsmed fill out ",
        "ordsmed show out",
        "ordsmed pretrain out/model.toml out=out/longer --deadline 90s",
    ):
        assert command in said
    assert "ordsmed generate" not in said


@pytest.mark.parametrize(
    ("purpose", "can", "commands"),
    [
        ("fill", ("fill", "generate", "embed"), ["fill", "show", "pretrain"]),
        ("both", ("fill", "generate", "embed"), ["fill", "generate", "show", "pretrain"]),
        ("write", ("generate", "embed"), ["generate", "show", "pretrain"]),
        ("embed", ("embed",), ["embed", "show", "pretrain"]),
    ],
)
def test_commands_to_try_next_are_those_that_the_model_can(purpose: str, can: Any, commands: list[str]) -> None:
    sentences = ["one two three four five", "six"]
    asked = request.MakeRequest(("texts",), "out", purpose=purpose)  # type: ignore[arg-type]
    lines = closing._next(SimpleNamespace(can=can), asked, sentences)  # type: ignore[arg-type]
    found = [line.split()[1] for line in lines if line.split()[0] == "ordsmed"]
    assert found == commands
    said = "\n".join(lines)
    assert ("'one two [MASK] five'" in said, "'one two three'" in said) == ("fill" in can, purpose in ("both", "write"))
