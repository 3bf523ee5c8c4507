"""What each verb makes of its words: with none of its flags what its help promises, with all of them what they say."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import ANY

import pytest

from ordsmed import cli
from ordsmed.api.model import OpenModel
from ordsmed.base.arguments import UsageError
from ordsmed.base.ending import Stopped
from ordsmed.base.run import Run
from ordsmed.base.screen import markdown
from ordsmed.cli import flags, recipes
from ordsmed.cli import verb as verbs
from ordsmed.corpus.pairs import Pairing
from ordsmed.use.embed import Form
from ordsmed.use.predict import Evaluated, Predicted
from ordsmed.web.urls import Rules

LINES, BOTH = ["made"], Evaluated({"f1": 1.5}, ["made"])
PREDICTED = Predicted(Path("out"), {}, LINES)
ASKED = {"step": None, "device": "auto", "threads": None, "precision": "fp32"}
ASKED_ALL = {"step": 3, "device": "cpu", "threads": 2, "precision": "bf16"}
ASK = ["--step", "3", "--device", "cpu", "--threads", "2", "--precision", "bf16"]
FETCHED = {
    "out": "work/fetch",
    "mirror": None,
    "allow_missing": False,
    "private": False,
    "timeout": 20.0,
    "slowest": 1000,
    "attempts": 3,
}
PLAIN = {"anew": False, "title": "", "language": "", "licence": None, "to": None, "overrides": []}
SHARED = {"train": 256, "test": 0, "fraction": 0.1, "splits": "train", "anew": False}
ANSWERED = {"file": "", "best": 3, "as_json": False}
STDIN = object()


class Asked:
    """A model that is asked in this way alone."""

    def __init__(self, **how: Any) -> None:
        self.how, self.lines, self.text = how, LINES, "made"

    def check(self, method: str) -> None:
        assert method in ("fill", "generate")

    def fill(self, text: str, **how: Any) -> Any:
        assert (text in ("t", "u"), how) == (True, self.how)
        return self

    generate = fill


REHEARSED = (None, ["the plan"])

# the words, the deed, what it answers, what it is given
HANDED: list[tuple[str, str, Any, tuple[Any, ...], dict[str, Any]]] = [
    ("fetch", "web.fetch_tables.listing", LINES, (), {}),
    ("fetch a b", "web.fetch.fetch", LINES, (["a", "b"],), FETCHED),
    (
        "fetch a --out o --mirror m --allow-missing --private --timeout 1.5 --slowest 7 --attempts 9",
        "web.fetch.fetch",
        LINES,
        (["a"],),
        {
            "out": "o",
            "mirror": "m",
            "allow_missing": True,
            "private": True,
            "timeout": 1.5,
            "slowest": 7,
            "attempts": 9,
        },
    ),
    ("corpus r seed=1 --part 1/2", "corpus.pipeline.partly", LINES, ("r", ["seed=1"]), {"part": "1/2", "until": None}),
    ("corpus r --until read", "corpus.pipeline.partly", LINES, ("r", []), {"part": None, "until": "read"}),
    ("corpus stats f", "tell.show.stats.stats", LINES, ("f",), {"tokenizer": None, "wide": 0}),
    ("corpus stats f --tokenizer t", "tell.show.stats.stats", LINES, ("f",), {"tokenizer": "t", "wide": 0}),
    ("corpus shards a b out", "corpus.shards.shards", LINES, (["a", "b"], "out"), SHARED),
    (
        "corpus shards a out --train 3 --test 2 --fraction 0.5 --splits all --anew",
        "corpus.shards.shards",
        LINES,
        (["a"], "out"),
        {"train": 3, "test": 2, "fraction": 0.5, "splits": "all", "anew": True},
    ),
    ("corpus presplit a out", "corpus.presplit.presplit", LINES, ("a", "out"), {"anew": False}),
    (
        "corpus split a b out --dev 0.1 --seed 3",
        "corpus.jsonl_files.split",
        LINES,
        (["a", "b"], "out"),
        {"dev": 0.1, "test": 0.0, "seed": 3, "anew": False},
    ),
    ("corpus pairs a out", "corpus.pairs.write_pairs", LINES, (["a"], "out", Pairing()), {"anew": False}),
    (
        "corpus pairs a b out --kinds cloze=2 title --length 90 --min-words 4 --max-pairs 8 --near 0 --against t u"
        " --split test --seed 3 --anew",
        "corpus.pairs.write_pairs",
        LINES,
        (["a", "b"], "out", Pairing({"cloze": 2.0, "title": 1.0}, 90, 4, 8, 0.0, ("t", "u"), "test", 3)),
        {"anew": True},
    ),
    ("corpus presplit a out --anew", "corpus.presplit.presplit", LINES, ("a", "out"), {"anew": True}),
    (
        "corpus addresses a b out",
        "web.urls.write_list",
        LINES,
        (["a", "b"], "out", Rules()),
        {"private": False, "anew": False},
    ),
    (
        "corpus addresses a out --score 5 --over-18 --blacklist usual --pattern x --pattern y --private --anew",
        "web.urls.write_list",
        LINES,
        (["a"], "out", Rules(5, True, ["usual"], ["x", "y"])),
        {"private": True, "anew": True},
    ),
    ("evaluate r", "use.predict.evaluate", BOTH, (None, [], []), {"max_unknown": 0.1}),
    (
        "evaluate r f task.length=9 g=1",
        "use.predict.evaluate",
        BOTH,
        (None, ["f", "g=1"], ["task.length=9"]),
        {"max_unknown": 0.1},
    ),
    (
        "predict r f task.a=1 g out",
        "use.predict.predict",
        PREDICTED,
        (None, ["f", "g"], "out", ["task.a=1"]),
        {"anew": False, "scores": False},
    ),
    (
        "predict r f out --anew --scores",
        "use.predict.predict",
        PREDICTED,
        (None, ["f"], "out", []),
        {"anew": True, "scores": True},
    ),
    ("answer r q task.a=1 c", "use.answer.answer_lines", LINES, (None, ["q", "c"], STDIN, ["task.a=1"]), ANSWERED),
    (
        "answer r --file f --best 7 --json",
        "use.answer.answer_lines",
        LINES,
        (None, [], STDIN, []),
        {"file": "f", "best": 7, "as_json": True},
    ),
    ("score rte a task.x=1 b p", "use.score.score", {"made": 1}, ("rte", ["a", "b"], "p", ["task.x=1"]), {}),
    ("fill r t", "api.model.open", Asked(best=5), ("r",), {**ASKED, "device": "cpu"}),
    (
        "fill r t u --best 2 --step 0 --threads 3 --precision int8",
        "api.model.open",
        Asked(best=2),
        ("r",),
        {"step": 0, "device": "cpu", "threads": 3, "precision": "int8"},
    ),
    ("embed r in o.h5", "use.embed.embed", "made", (None, "in", "o.h5", Form()), {"anew": False}),
    (
        "embed r - o.h5 --anew --of sentences --layers 0,-1 --pieces first --pool first --dtype float16 "
        "--batch 3 --carry --cut",
        "use.embed.embed",
        "made",
        (None, STDIN, "o.h5", Form("sentences", "0,-1", "", "first", "first", "", "float16", 3, True, True)),
        {"anew": True},
    ),
    (
        "embed r in o.h5 --mix m.json",
        "use.embed.embed",
        "made",
        (None, "in", "o.h5", Form(mix="m.json")),
        {"anew": False},
    ),
    ("import a b", "weights.importing.take_over", LINES, ("a", "b", []), {"anew": False}),
    ("import a b model.x=1 --anew", "weights.importing.take_over", LINES, ("a", "b", ["model.x=1"]), {"anew": True}),
    ("export r o", "api.making.export", Asked(), ("r", "o"), {"step": None, **PLAIN}),
    (
        "export r o --step 7 --anew --licence MIT --to f --set a=1 --set b=2",
        "api.making.export",
        Asked(),
        ("r", "o"),
        {"step": 7, **PLAIN, "anew": True, "licence": "MIT", "to": "f", "overrides": ["a=1", "b=2"]},
    ),
    (
        "export r o --step all --licence MIT",
        "api.making.export",
        Asked(),
        ("r", "o"),
        {"step": "all", **PLAIN, "licence": "MIT"},
    ),
    (
        "show r",
        "tell.show.show.show",
        LINES,
        ("r", []),
        {"site": "", "devices": 0, "own_settings": False, "defaults": False},
    ),
    (
        "show r a=1 b=2 --settings --site s --devices 3",
        "tell.show.show.show",
        LINES,
        ("r", ["a=1", "b=2"]),
        {"site": "s", "devices": 3, "own_settings": True, "defaults": False},
    ),
    (
        "show r --all",
        "tell.show.show.show",
        LINES,
        ("r", []),
        {"site": "", "devices": 0, "own_settings": False, "defaults": True},
    ),
    ("show r s a=1", "tell.show.show.difference", LINES, ("r", "s", ["a=1"]), {}),
    ("show r --step 4", "tell.show.show.documents", LINES, ("r", 4), {}),
    ("show r a=1 --layout", "tell.show.show.layout", LINES, ("r", ["a=1"]), {"layout": "", "site": "", "devices": 0}),
    (
        "show r --layout 1x2x1 --devices 2 --site s",
        "tell.show.show.layout",
        LINES,
        ("r", []),
        {"layout": "1x2x1", "site": "s", "devices": 2},
    ),
    (
        "pretrain r a=1 --dry-run",
        "train.pretrain.pretrain.rehearse",
        REHEARSED,
        ("r", ["a=1"]),
        {"devices": 0, "deadline": None, "anew": False, "layout": "", "site": ""},
    ),
    (
        "pretrain r --dry-run --anew --deadline 2m --layout auto",
        "train.pretrain.pretrain.rehearse",
        REHEARSED,
        ("r", []),
        {"devices": 0, "deadline": 120.0, "anew": True, "layout": "auto", "site": ""},
    ),
    (
        "finetune r --dry-run --devices 2 --layout 1x2x1 --site s --threads 3 --part 1/2",
        "train.finetune.finetune.rehearse",
        REHEARSED,
        ("r", ["layout.threads=3"]),
        {"devices": 2, "deadline": None, "anew": False, "layout": "1x2x1", "site": "s", "part": "1/2"},
    ),
    ("bench r a=1", "measure.bench.bench.bench", LINES, ("r", ["a=1"]), {"json_line": False, "left": ANY}),
    ("bench r --json", "measure.bench.bench.bench", LINES, ("r", []), {"json_line": True, "left": ANY}),
    ("quickstart", "maker.make.make", Asked(), ("stdlib", "work/quickstart"), {"hours": 0.05}),
]


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Puts something in the place of a deed: what it was given, and on how many occasions."""

    def of(deed: str, answers: Any) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
        calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

        def stand_in(*args: Any, **how: Any) -> Any:
            calls.append((args, how))
            if isinstance(answers, BaseException):
                raise answers
            return answers

        monkeypatch.setattr(f"ordsmed.{deed}", stand_in)
        return calls

    monkeypatch.delenv("COLUMNS", raising=False)
    return of


@pytest.mark.parametrize(("words", "deed", "answers", "args", "how"), HANDED, ids=[case[0] for case in HANDED])
def test_what_a_deed_is_given(
    given: Any,
    capsys: pytest.CaptureFixture[str],
    words: str,
    deed: str,
    answers: Any,
    args: tuple[Any, ...],
    how: dict[str, Any],
) -> None:
    given("api.model.open", OpenModel(None))  # type: ignore[arg-type]
    given("use.embed.prepared", None)
    calls = given(deed, answers)
    given("weights.export.readers", "and read")
    given("tell.show.show.rehearsed", LINES)
    cli.main(words.split())
    stdin = sys.stdin.buffer
    assert calls == [(tuple(stdin if arg is STDIN else arg for arg in args), how)]
    if answers is not None:
        assert "made" in capsys.readouterr().out


@pytest.mark.parametrize("words", ["evaluate r f", "predict r f out", "answer r q c", "embed r in o.h5"])
def test_how_a_model_is_opened(given: Any, words: str) -> None:
    opened = given("api.model.open", OpenModel(None))  # type: ignore[arg-type]
    for deed, answers in (
        ("predict.evaluate", BOTH),
        ("predict.predict", PREDICTED),
        ("answer.answer_lines", LINES),
        ("embed.embed", "made"),
        ("embed.prepared", None),
    ):
        given(f"apply.{deed}", answers)
    cli.main(words.split())
    cli.main([*words.split(), *ASK])
    assert opened == [(("r",), how) for how in (ASKED, ASKED_ALL)]


@pytest.mark.parametrize("verb", ["pretrain", "finetune"])
def test_what_a_training_is_given(
    given: Any, verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    usual: dict[str, Any] = {"deadline": None, "anew": False, "layout": "", "site": ""}
    calls = given(f"api.training.{verb}", SimpleNamespace(folder=Path("made")))
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    cli.main([verb, "r", "seed=1"])
    cli.main([verb, "r", "--deadline", "90m", "--anew", "--layout", "auto", "--site", "s", "--threads", "3"])
    full = {"deadline": 5400.0, "anew": True, "layout": "auto", "site": "s"}
    overrides = ({"overrides": ["seed=1"]}, {"overrides": ["layout.threads=3"]})
    assert calls == [(("r",), usual | overrides[0]), (("r",), full | overrides[1])]
    assert capsys.readouterr().out == "", "another process tells it"
    given(f"api.training.{verb}", Stopped(4, 15))
    with pytest.raises(SystemExit) as ended:
        cli.main([verb, "r"])
    assert ended.value.code == 143


@pytest.mark.parametrize(
    ("words", "place"),
    [
        (["quickstart"], "maker.make.make"),
        (["bench", "r"], "measure.bench.bench.bench"),
        (["stability", "r"], "tell.stability.stability.stability"),
    ],
)
def test_a_run_that_was_stopped_on_the_way_ends_the_verb_without_a_stack(
    given: Any, words: list[str], place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given(place, Stopped(4, 2))
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    assert ended.value.code == 130
    assert capsys.readouterr() == ("", ""), "the run has said how to go on"


@pytest.mark.parametrize("verb", ["pretrain", "finetune"])
def test_several_processes_are_started_by_the_first(given: Any, verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They get the words without the flags that are the first one's; those that it started train."""
    monkeypatch.delenv("RANK", raising=False)
    started = given("base.launch.local.start", 7)
    done = given(f"api.training.{verb}", SimpleNamespace(folder=Path("made")))
    with pytest.raises(SystemExit) as ended:
        cli.main([verb, "r", "--devices", "2", "--anew", "--restarts=3", "seed=1"])
    assert (ended.value.code, done) == (7, [])
    assert started == [(([verb, "r", "--anew", "seed=1"], 2), {"restarts": 3})]
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    cli.main([verb, "r", "--devices", "2"])
    assert (len(started), len(done)) == (1, 1)


def test_a_training_that_is_done_leads_on(
    given: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first of several processes says it."""
    given("train.pretrain.pretrain.pretrain", Path("a b"))
    given("train.finetune.finetune.finetune", Path("tuned"))
    ended = given("train.finetune.summary.summary_lines", ["told"])
    cli.main(["pretrain", "r"])
    assert capsys.readouterr().out == "a b: done; a b/loss.svg is its learning curve\n"
    cli.main(["finetune", "r"])
    assert (capsys.readouterr().out, ended) == ("told\n", [((Path("tuned"),), {})])
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    for verb in ("pretrain", "finetune"):
        cli.main([verb, "r"])
    assert capsys.readouterr().out == ""


def test_numbers_as_json(given: Any, capsys: pytest.CaptureFixture[str]) -> None:
    given("api.model.open", OpenModel(None))  # type: ignore[arg-type]
    given("use.predict.evaluate", BOTH)
    given("use.score.score", {"f1": 2.5, "exact": 1})
    cli.main(["evaluate", "r", "--json"])
    cli.main(["score", "rte", "a", "p", "--json"])
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [{"f1": 1.5}, {"f1": 2.5, "exact": 1}]
    cli.main(["evaluate", "r"])
    cli.main(["score", "rte", "a", "p"])
    assert capsys.readouterr().out == "made\nf1: 2.5\nexact: 1\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("corpus shards out", "corpus shards: found one folder, out; wanted FOLDER... OUT"),
        ("corpus pairs out", "corpus pairs: found one name, out; wanted CORPUS OUT, or FILE FILE OUT"),
        ("corpus pairs a out --kinds cloze=x", "--kinds: found cloze=x; wanted KIND=SHARE, such as cloze=0.5"),
        ("corpus addresses out", "corpus addresses: found one file, out; wanted FILE... OUT"),
        ("predict r out", "predict: found one path, out; wanted RUN FILE... OUT"),
        ("score rte p", "score: found one file, p; wanted TASK DATA... PREDICTIONS"),
        ("corpus r --anew --part 1/2", "--anew: found with --part or --until; wanted one of them; "),
        ("corpus r --anew --until read", "--anew: found with --part or --until; wanted one of them; "),
        ("show a b c", "`c`: one name too many; wanted two recipes or runs to compare"),
        ("corpus addresses a out --pattern (", "corpus addresses: "),
    ],
)
def test_words_that_lack_something(capsys: pytest.CaptureFixture[str], words: str, said: str) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(words.split())
    assert ended.value.code == 1
    assert capsys.readouterr().err.startswith(f"ordsmed: {said}")


@pytest.mark.parametrize("verb", ["corpus", "tokenizer", "encode"])
def test_what_is_made_is_told(given: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path, verb: str) -> None:
    """Facts of its state in words, without those that are its own business; of a corpus its report."""
    folder = tmp_path / "f"
    folder.mkdir()
    facts = {"verb": verb, "state": "done", "fingerprint": "x", "parts": 3, "size": {"a": 1, "b": {"c": 2}}, "n": 4}
    Run(folder).set(**facts)
    calls = given("base.run.obtain", folder)
    cli.main([verb, "r", "a=1", "--anew"])
    told = [line for line in capsys.readouterr().out.splitlines() if not line.startswith(("next:", "    ordsmed "))]
    assert told == [f"{folder}: done", "  size: a 1, b c 2", "  n: 4"]
    (((deed, *args), how),) = calls
    assert (deed.verb, args, how) == (verb, ["r", ["a=1"]], {"anew": True})
    (folder / "report.md").write_text("")
    cli.main([verb, "r"])
    assert calls[1][1] == {"anew": False}
    told = f"{folder}: done; {folder}/report.md describes it\n"
    assert capsys.readouterr().out.startswith(told)


def test_one_of_several_processes_tells_what_is_wrong(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, given: Any
) -> None:
    """What all find the first tells; what one alone finds it tells with its number."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank, said in (("0", "ordsmed: `stdlb`: "), ("1", "")):
        monkeypatch.setenv("RANK", rank)
        with pytest.raises(SystemExit) as ended:
            cli.main(["recipes", "stdlb"])
        assert ended.value.code == 1
        err = capsys.readouterr().err
        assert err.startswith(said) if said else err == ""
    given("train.pretrain.pretrain.pretrain", OSError(5, "Input/output error", "x"))
    with pytest.raises(SystemExit):
        cli.main(["pretrain", "r"])
    assert capsys.readouterr().err.startswith("ordsmed: rank 1: x: Input/output error")
    given("train.pretrain.pretrain.pretrain", KeyboardInterrupt())
    with pytest.raises(SystemExit) as ended:
        cli.main(["pretrain", "r"])
    assert (ended.value.code, capsys.readouterr().err) == (130, "")


def test_json_that_is_nested_too_deeply_is_one_line(given: Any, capsys: pytest.CaptureFixture[str]) -> None:
    given("tell.show.stats.stats", RecursionError("maximum recursion depth exceeded while decoding a JSON object"))
    with pytest.raises(SystemExit):
        cli.main(["corpus", "stats", "f"])
    assert "a JSON file: is nested too deeply" in capsys.readouterr().err
    given("tell.show.stats.stats", RecursionError("maximum recursion depth exceeded"))
    with pytest.raises(RecursionError):
        cli.main(["corpus", "stats", "f"])


def test_lines_are_as_wide_as_the_screen(
    given: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    for stream in (sys.stdout, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    rows = markdown(["name", "value"], [("first", "word " * 20), ("second", 2)], padded=True)
    given("tell.show.show.show", rows)
    cli.main(["show", "r"])
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].split() == ["|", "name", "|", "value", "|"]
    assert {len(line) for line in shown} == {40}, "rows are whole: cells are wrapped"
    calls = given("tell.show.stats.stats", ["word " * 20])
    cli.main(["corpus", "stats", "f"])
    assert calls[0][1]["wide"] == 40
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert max(map(len, lines)) <= 40
    with pytest.raises(SystemExit):
        cli.main(["help", "nothing-that-there-is-among-the-verbs"])
    assert max(map(len, capsys.readouterr().err.splitlines())) <= 60


def test_a_probe_is_written_with_its_files_and_settings(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["help", "evaluate"])
    assert "--probe NAME [FILE|key=value ...]" in " ".join(capsys.readouterr().out.split())
    with pytest.raises(UsageError, match=r"--probe has no value; wanted `--probe NAME FILE\|key=value`"):
        verbs.find("evaluate").parser().read(["r", "--probe"])


def test_a_flag_is_told_of_every_verb_that_knows_it() -> None:
    assert verbs.owners("--score") == "--score is a flag of `corpus addresses`"
    assert verbs.owners("--yes") == "--yes is a flag of `speedrun`, `pretrain`, `stability` and 2 others"
    assert verbs.owners("--scor") == verbs.owners("--anew") == verbs.owners("--zzzz") == ""
    assert flags.step_or_all("all") == "all"
    assert flags.step_or_all("7") == 7


def test_words_without_a_flag_and_its_number() -> None:
    assert recipes.without(["a", "--x", "3", "b", "--x=4", "--y", "c"], "--x") == ["a", "b", "--y", "c"]
    assert recipes.without(["--x", "1", "--y", "2", "z"], "--x", "--y") == ["z"]
    assert verbs.named(["corpus", "stats", "f"]) == "corpus stats"
    assert verbs.named(["corpus", "r"]) == "corpus"


LEAST = {
    "corpus shards a o --train": 1,
    "corpus shards a o --test": 0,
    "pretrain r --restarts": 0,
    "pretrain r --devices": 1,
    "show r --devices": 1,
    "fill r --step": 0,
    "fill r --best": 1,
    "evaluate r --step": 0,
    "answer r --best": 1,
    "generate r --tokens": 1,
    "generate r --samples": 1,
    "generate r --seed": 0,
    "embed r i o --batch": 1,
    "show r --step": 1,
    "fill r --threads": 1,
    "export r o --step": 0,
}


@pytest.mark.parametrize("words", LEAST)
def test_the_least_that_numbers_may_be(words: str) -> None:
    verb = verbs.named(words.split())
    rest, flag = words.split()[len(verb.split()) :], words.split()[-1].removeprefix("--")
    assert getattr(verbs.find(verb).parser().read([*rest, str(LEAST[words])]), flag) == LEAST[words]
    with pytest.raises(
        UsageError, match=f"^--{flag}: found {LEAST[words] - 1}; wanted a whole number, {LEAST[words]} "
    ):
        verbs.find(verb).parser().read([*rest, str(LEAST[words] - 1)])


@pytest.mark.parametrize("verb", verbs.names())
def test_the_help_of_a_verb_tells_its_words(capsys: pytest.CaptureFixture[str], verb: str) -> None:
    """Its settings too, where it has a recipe; a complaint does not look them up."""
    with pytest.raises(SystemExit, match=r"^0$"):
        cli.main([*verb.split(), "--help"])
    told = capsys.readouterr().out
    cli.main(["help", *verb.split()])
    assert capsys.readouterr().out == told
    assert told.startswith(f"usage: ordsmed {verb}")
    assert all(flag in told for flag in verbs.find(verb).parser().flags())
    assert ("settings of the recipe:" in told) == (verbs.find(verb).recipe is not None)
    assert not verbs.find(verb).parser().epilog


def test_groups_of_verbs_go_on_under_their_former_names(monkeypatch: pytest.MonkeyPatch) -> None:
    for former, group in (("judge", "evaluate"), ("look", "inspect"), ("use", "use")):
        monkeypatch.setattr("ordsmed.cli.verbs.version.PLACE", (former, 9))
        assert verbs.find("version").group == group
