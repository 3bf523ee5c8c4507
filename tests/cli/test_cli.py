"""The command: help from the settings, one line for every mistake, nothing made by looking."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from ordsmed import __version__, cli
from ordsmed.base import ending, menu, run, settings
from ordsmed.base.arguments import UsageError
from ordsmed.base.files import REMEDIES
from ordsmed.base.identity import identity
from ordsmed.cli import flags
from ordsmed.cli import verb as verbs


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test works in an empty folder."""
    monkeypatch.chdir(tmp_path)


class Told:
    """What a command said, and how it ended."""

    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err


@pytest.fixture
def ordsmed(capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs the command in this process."""

    def call(*words: str) -> Told:
        capsys.readouterr()
        status = 0
        try:
            cli.main(words)
        except SystemExit as stopped:
            status = int(stopped.code or 0)
        return Told(status, *capsys.readouterr())

    return call


def made() -> list[str]:
    return sorted(str(p) for p in Path().rglob("*"))


def test_top_help_names_every_verb(ordsmed: Any) -> None:
    told = ordsmed("--help")
    assert told.status == 0
    assert all(re.search(rf"^  {verb}  ", told.out, re.M) for verb in verbs.names())
    heads = re.findall(r"^(\w+):$", told.out, re.M)
    assert heads == list(verbs.GROUPS)
    for one in verbs.every():  # each under its group
        assert f"\n  {one.name}  " in re.split(rf"^{one.group}:$", told.out, flags=re.M)[1].split("\n\n")[0]
    assert told.out == ordsmed("help").out == ordsmed("-h").out
    assert ordsmed("--version").out == ordsmed("version").out


def test_the_version_names_its_commit_and_its_code(ordsmed: Any) -> None:
    code = identity()
    assert ordsmed("version").out == f"ordsmed {code}, code {code.digest}\n"
    facts = json.loads(ordsmed("version", "--json").out)
    assert facts["identity"].startswith(facts["version"])
    assert [facts[key] for key in ("version", "commit", "digest")] == [__version__, code.commit, code.digest]
    assert facts["torch"] == version("torch")


@pytest.mark.parametrize("wide", [40, 60])
def test_first_steps_fit_a_narrow_screen(wide: int, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setenv("COLUMNS", str(wide))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    cli.main([])
    told = capsys.readouterr().out.splitlines()
    assert "  ordsmed pretrain tiny/bert" in told
    assert max(map(len, told)) <= wide


def test_alone_it_tells_first_steps_and_verbs(ordsmed: Any) -> None:
    told = ordsmed()
    assert (told.status, told.err) == (0, "")
    groups = [line.split(maxsplit=1) for line in told.out.splitlines()[-len(verbs.GROUPS) :]]
    assert [group for group, _ in groups] == list(verbs.GROUPS)
    assert [name for _, names in groups for name in names.split(" · ")] == [one.name for one in verbs.every()]
    for line in told.out.split("First steps:\n")[1].split("\n\n")[0].splitlines():
        words = line.strip().split("  ")[0].split()
        assert words[0] == "ordsmed"
        verbs.find(words[1]).parser().read(words[2:])  # such a command there is


LAYOUT = {"layout": ("ordsmed.train.mesh.layout", "Layout")}
SCHEDULE = ("ordsmed.learn.schedules", "Schedule")
MORE = {"group": ("ordsmed.learn.groups", "Rule"), "trouble": ("ordsmed.train.guard", "Guard"), **LAYOUT}
TABLES = {  # verb -> tables within its recipe's settings, which help tells of
    "corpus": {
        "near": ("ordsmed.corpus.near", "Near"),
        "held_out": ("ordsmed.corpus.decontamination", "Decontaminate"),
        "given": ("ordsmed.corpus.pipeline", "GivenSplits"),
    },
    "pretrain": {
        "phase": ("ordsmed.learn.phases", "Phase"),
        "phase.schedule": SCHEDULE,
        **MORE,
        "objective.generator (rtd)": ("ordsmed.learn.objectives.rtd", "Generator"),
    },
    "finetune": {
        "schedule": SCHEDULE,
        "adapters": ("ordsmed.nn.adapters", "Adapters"),
        **MORE,
        "task.top": ("ordsmed.learn.upper_layers", "Top"),
    },
    "bench": LAYOUT,
}


@pytest.mark.parametrize("verb", verbs.names())
def test_help_of_a_verb(ordsmed: Any, verb: str) -> None:
    told = ordsmed(*verb.split(), "--help")
    assert told.status == 0
    assert told.out == ordsmed("help", *verb.split()).out
    one = verbs.find(verb)
    assert " ".join(one.doc.split()) in " ".join(told.out.split())
    if one.recipe:
        for line in menu.lines(*one.recipe):
            assert f"  {line.name} ({line.type}, " in told.out
            assert line.doc in " ".join(told.out.split())
    for key, place in TABLES.get(verb, {}).items():
        part = told.out.split(f"\n{key}:\n")[1].split("\n\n")[0]
        assert [s for s in re.findall(r"^  (\w+) \(", part, re.M)] == [line.name for line in menu.lines(*place)]


def test_menus(ordsmed: Any) -> None:
    told = ordsmed("menus")
    assert told.status == 0
    for name in menu.MENUS:
        for kind in menu.entries(name):
            assert re.search(rf"^  {kind} ", told.out, re.M)
    told = ordsmed("menus", "objectives").out
    assert "      mask_prob (float | table, 0.15)\n          share of a row's tokens that are predicted" in told
    assert "      unit ('token' | 'word' | 'span', 'token')\n" in told
    for kind in menu.entries("objectives"):
        for line in menu.lines(f"ordsmed.learn.objectives.{kind}"):
            assert f"{line.name} ({line.type}, {line.default})" in told
            assert line.doc in " ".join(told.split())
    one = ordsmed("menus", "models", "bert").out
    assert "  bert " in one
    assert "  gpt2 " not in one


def test_recipes(ordsmed: Any) -> None:
    told = ordsmed("recipes", "--all")
    listed = [line for line in told.out.splitlines() if line.startswith("  ")]
    alone = ("tiny/", "laptop/", "desk/", "continue/", "search/")  # what several verbs share a group of
    names = sorted(name if name.startswith(alone) else name.partition("/")[2] for name in run.recipe_names())
    assert sorted(line.split()[0] for line in listed) == names
    assert all(len(line.split()) > 3 for line in listed)
    text = (menu.PACKAGE_ROOT / "recipes" / "tiny" / "bert.toml").read_text(encoding="utf-8")
    assert ordsmed("recipes", "tiny/bert").out == text
    assert ordsmed("recipes", "electra-small").out == ordsmed("recipes", "pretrain/electra-small").out != ""
    several = ordsmed("recipes", "gpt2")
    assert "`gpt2`: found 4 recipes of this name; wanted one of desk/gpt2, evaluate/gpt2, laptop/gpt2" in several.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["pretrain", "bert-bse"], "`bert-bse`: no recipe of `pretrain` and no file; did you mean `bert-base`?"),
        (["corpus", "stat", "a"], "`stat`: no recipe of `corpus` and no file; did you mean `ordsmed corpus stats`?"),
        (
            ["corpus", "shard", "a", "b"],
            "`shard`: no recipe of `corpus` and no file; did you mean `ordsmed corpus shards`",
        ),
        (["pretrain", "tiny/brt"], "`tiny/brt`: no recipe of `pretrain` and no file; did you mean `tiny/bert`?"),
        (
            ["encode", "nowhere/x.toml"],
            "nowhere/x.toml: no such file; wanted a recipe or the folder of a finished `ordsmed encode`",
        ),
        (["recipes", "tiny/brt"], "`tiny/brt`: no recipe of `tiny` and no file; did you mean `tiny/bert`?"),
        (["menus", "model"], "`model`: no such menu; did you mean `models`?"),
        (["menus", "models", "brt"], "`brt`: is not in models; did you mean `bert`?"),
        (["show", "nothing"], "`nothing`: no built-in recipe and no file; "),
        (
            ["show", "."],
            ".: is not a folder of a finished `ordsmed` command; wanted a recipe or the folder of a finished",
        ),
        (["show", "tiny/bert", "tiny/gpt2", "tiny/bert"], "`tiny/bert`: one name too many; wanted two recipes or runs"),
        (["show", "tiny/bert", "--step", "3"], "tiny/bert: is not a run; wanted a folder written by `ordsmed"),
        (["pretrain", "tiny/bert", "--deadline", "soon"], "--deadline: 'soon' is not a time: wanted for example 3h"),
        (["pretrain", "tiny/bert", "--deadline", "0h"], "--deadline: '0h' is not a time: wanted for example 3h"),
        (["pretrain", "tiny/bert", "--dry-run", "lenght=128"], "tiny/bert: lenght: unknown setting; "),
        (
            ["pretrain", "tiny/bert", "--dry-run", "phase.lenght=128"],
            "tiny/bert: phase[1].lenght: unknown setting; did you mean `phase.length`?",
        ),
        (["pretrain", "tiny/bert", "--dry-run", "nonsense"], "`nonsense`: not an override; wanted key.path=value"),
        (
            ["pretrain", "tiny/bert", "--dry-run", "phase[2].length=256"],
            "tiny/bert: phase[2].length: found 256, more than the model's 128 positions",
        ),
        (
            ["pretrain", "tiny/bert", "--dry-run", "layout.micro=3"],
            "tiny/bert: phase[1].batch: found 64, not a multiple of micro 3 x 1 device = 3; use 63",
        ),
        (["show", "tiny/bert", "objective=clm"], "tiny/bert: objective.kind: clm with a bidirectional model; use mlm"),
        (["bench", "loader", "batch=0"], "loader: batch: found 0; wanted 1 or more"),
        (["fill", "nowhere", "a [MASK]"], "nowhere: no such folder; wanted a run's folder"),
        (["export", "nowhere", "out"], "nowhere: no such folder; wanted a run's folder"),
    ],
)
def test_a_mistake_is_one_line(ordsmed: Any, words: list[str], said: str) -> None:
    told = ordsmed(*words)
    assert told.status == 1
    assert told.out == ""
    assert told.err.startswith(f"ordsmed: {said}")
    assert told.err.count("\n") == 1
    assert made() == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["pretran", "x"], "`pretran`: no such verb; did you mean `pretrain`?"),
        (
            ["help", "pretran"],
            "`pretran`: no such verb or word; wanted one of `ordsmed help words`; did you mean `pretrain`?",
        ),
        (["--devices", "2"], "`--devices`: no such verb; wanted `ordsmed VERB`, followed by flags; "),
        (["generate", "r", "--tokns", "3"], "generate: --tokns: no such flag; did you mean `--tokens`?"),
        (["generate", "r", "--tokns=3"], "generate: --tokns=3: no such flag; did you mean `--tokens`?"),
        (["fill", "r", "--tokens", "3"], "fill: --tokens: no such flag; --tokens is a flag of `generate`"),
        (["fill", "r", "--tokns", "3"], "fill: --tokns: no such flag; see `ordsmed help fill`"),
        (["pretrain", "r", "--device", "2"], "pretrain: --device: no such flag; `layout.device=cuda` or"),
        (["pretrain", "r", "--anew=1"], "--anew: found 1; wanted no value"),
        (["pretrain", "r", "--dead", "3h"], "pretrain: --dead: no such flag; did you mean `--deadline`?"),
        (["pretrain", "r", "--batch", "3"], "pretrain: --batch: no such flag; a setting is written `phase.batch=...`"),
        (
            ["pretrain", "r", "--lr", "3"],
            "pretrain: --lr: no such flag; a setting is written `phase.learning_rate=...`",
        ),
        (
            ["pretrain", "r", "--batch-size", "3"],
            "pretrain: --batch-size: no such flag; a setting is written `phase.batch=...`",
        ),
        (["pretrain", "r", "--qqq"], "pretrain: --qqq: no such flag; see `ordsmed help pretrain`"),
        (["pretrain", "r", "--seed", "3"], "pretrain: --seed: no such flag; a setting is written `seed=...`"),
        (["pretrain", "r", "--devices"], "pretrain: --devices has no value; wanted `--devices N`; see `ordsmed help"),
        (["pretrain"], "pretrain: no RECIPE|RUN; wanted `ordsmed pretrain RECIPE|RUN [key.path=value ...]`; "),
        (["embed", "r"], "embed: no INPUT and no OUT; wanted `ordsmed embed RUN INPUT OUT`; "),
        (["export", "r", "b", "c"], "export: `c` is one argument too many; wanted `ordsmed export RUN FOLDER`"),
        (["pretrain", ""], "pretrain: an empty word; wanted `ordsmed pretrain RECIPE|RUN [key.path=value ...]`; "),
        (["fill", "r", "--step", "-3"], "--step: found -3; wanted a whole number, 0 or more"),
        (["generate", "r", "--tokens", "0"], "--tokens: found 0; wanted a whole number, 1 or more"),
        (["generate", "r", "--seed", "-1"], "--seed: found -1; wanted a whole number, 0 or more"),
        (["generate", "r", "--seed", "9" * 99], "--seed: found 99999"),
        (["generate", "r", "--temperature", "nan"], "--temperature: found nan; wanted a number"),
        (["generate", "r", "--temperature", "hot"], "--temperature: found hot; wanted a number"),
        (["fill", "r", "--best", "1.5"], "--best: found 1.5; wanted a whole number, 1 or more"),
        (["export", "r", "o", "--step", "last"], "--step: found last; wanted a whole number, 0 or more"),
        (["pretrain", "r", "--devices", "-1"], "--devices: found -1; wanted a whole number, 1 or more"),
        (["pretrain", "r", "--devices", "0"], "--devices: found 0; wanted a whole number, 1 or more"),
        (["pretrain", "r", "--restarts", "-1"], "--restarts: found -1; wanted a whole number, 0 or more"),
    ],
)
def test_wrong_words_are_one_line(ordsmed: Any, words: list[str], said: str) -> None:
    """Exit status 2; the near names of flags, those of other verbs and settings among them."""
    told = ordsmed(*words)
    assert (told.status, told.out, told.err.count("\n")) == (2, "", 1)
    assert told.err.startswith(f"ordsmed: {said}")
    assert made() == []


def test_words_behind_two_dashes_are_no_flags() -> None:
    asked = verbs.find("fill").parser().read(["run", "--best", "2", "--", "--what is [MASK]?", "-- [MASK]"])
    assert (asked.run, asked.best, asked.text) == ("run", 2, ["--what is [MASK]?", "-- [MASK]"])
    asked = verbs.find("corpus shards").parser().read(["a", "--train", "3", "b", "c"])
    assert (asked.folders, asked.train) == (["a", "b", "c"], 3)


def test_settings_of_a_task_stand_among_files() -> None:
    words = ["a.json", "task.length=9", "task.json", "b=2", "out"]
    assert flags.split_overrides(words) == (["a.json", "task.json", "b=2", "out"], ["task.length=9"])
    assert not verbs.find("pretrain").parser().epilog  # which takes a while to read


def test_mistakes_in_a_file_of_ones_own(ordsmed: Any) -> None:
    text = (menu.PACKAGE_ROOT / "recipes" / "tiny" / "bert.toml").read_text(encoding="utf-8")
    for change, said in (
        (
            lambda t: t.replace("length = 32", "lenght = 32"),
            "my.toml: phase[1].lenght: unknown setting; did you mean `phase.length`?",
        ),
        (
            lambda t: t.replace("length = 32", "length = 32.5"),
            "my.toml: phase[1].length: found 32.5; wanted a whole number",
        ),
        (lambda t: t.replace("length = 32", "length = "), "my.toml: not TOML: "),
        (
            lambda t: t.replace('kind = "bert"', ""),
            "my.toml: model.kind: missing; wanted one of: bert, electra, elmo, gpt2, ",
        ),
        (lambda t: "lenght = 128\n" + t, "my.toml: lenght: unknown setting; "),
        (
            lambda t: t.replace('data = "stdlib-wordpiece"', 'data = "no/such/folder"'),
            "`no/such/folder`: no recipe of `encode` and no file; ",
        ),
        (lambda t: "seed = 3\n", "my.toml: data: missing; wanted a text or a list of texts or a table of numbers"),
    ):
        Path("my.toml").write_text(change(text), encoding="utf-8")
        for words in (["pretrain", "my.toml", "--dry-run"], ["pretrain", "my.toml"]):
            told = ordsmed(*words)
            assert told.status == 1
            assert told.err.count("\n") == 1
            assert told.err.startswith(f"ordsmed: {said}"), words
    assert not Path("work/pretrain/my").exists()


def test_wrong_use_of_options(ordsmed: Any) -> None:
    for words in (
        ["pretrain"],
        ["pretrain", "tiny/bert", "--wrong"],
        ["bench", "loader", "--json", "--what"],
        ["export", "a", "b", "c"],
    ):
        told = ordsmed(*words)
        assert (told.status, told.out, told.err.count("\n")) == (2, "", 1)
        assert told.err.startswith(f"ordsmed: {words[0]}: ")


def test_overrides_stand_anywhere(ordsmed: Any) -> None:
    for words in (
        ["pretrain", "tiny/bert", "--dry-run", "seed=7", "phase.batch=2"],
        ["pretrain", "tiny/bert", "seed=7", "--dry-run", "phase.batch=2"],
        ["pretrain", "--dry-run", "tiny/bert", "seed=7", "phase.batch=2"],
        ["show", "tiny/bert", "seed=7", "phase.batch=2"],
    ):
        told = ordsmed(*words)
        assert told.status == 0, told.err
        assert "  seed = 7\n" in told.out
        assert told.out.count("  batch = 2\n") == 2


def test_words_behind_an_option_of_fill(ordsmed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from ordsmed.api import model
    from ordsmed.use.fill import Filled

    class Asked(model.OpenModel):
        def check(self, method: str) -> None:
            assert method == "fill"

        def fill(self, text: str, *, best: int) -> Filled:  # type: ignore[override]
            return Filled(f"{best} {text}", ())

    monkeypatch.setattr(model, "open", lambda *given, **more: Asked(None))  # type: ignore[arg-type]
    told = ordsmed("fill", "some/run", "--best", "3", "a [MASK]", "b [MASK]")
    assert (told.status, told.out) == (0, "3 a [MASK]\n3 b [MASK]\n")


def test_show_makes_nothing(ordsmed: Any) -> None:
    told = ordsmed("show", "tiny/bert")
    assert told.status == 0, told.err
    assert told.out.startswith("tiny/bert: pretrain\n")
    for part in (
        "  width = 128\n",
        "data: work/encode/stdlib-wordpiece does not exist yet; it will be made from stdlib-wordpiece",
        f"vocabulary {settings.read(run.find_recipe('stdlib-wordpiece', 'tokenizer'))['tokenizer']['size']:,}\n",
        "phase 1: 500 steps of 64 rows x 32 tokens; batch = micro 64 x accumulation 1 x devices 1",
        "in total: 520 steps, 1,064,960 tokens,",
        " GFLOP",
        "memory a rank: weights ",
    ):
        assert part in told.out, part
    assert ordsmed("pretrain", "tiny/bert", "--dry-run").out == told.out
    assert made() == []


def test_parameters_are_counted(ordsmed: Any) -> None:
    """BERT-base with a vocabulary of 30,522: 109 million without the pooler, and the head's dense, norm and bias."""
    width, inner, words = 768, 3072, 30_522
    block = 4 * (width * width + width) + 2 * width * inner + inner + width + 4 * width
    body = (words + 512 + 2) * width + 2 * width + 12 * block
    head = width * width + width + 2 * width + words
    Path("t.toml").write_text('corpus = "stdlib"\n[tokenizer]\nkind = "wordpiece"\nsize = 30522\n')
    Path("e.toml").write_text('corpus = "stdlib"\ntokenizer = "t.toml"\n')
    told = ordsmed("show", "pretrain/bert-base", "data=e.toml")
    assert f"network: {body + head:,} parameters, {body:,} without heads; vocabulary {words:,}\n" in told.out
    Path("vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh"]) + "\n")
    for text in ('[tokenizer]\nkind = "wordpiece"\nfile = "vocab.txt"\n', None):
        if text:
            Path("t.toml").write_text(text)
        else:
            Path("e.toml").write_text('corpus = "stdlib"\ntokenizer = "vocab.txt"\n')
        assert "vocabulary 13\n" in ordsmed("show", "tiny/bert", "data=e.toml").out


@pytest.mark.parametrize("name", run.recipe_names())
def test_every_recipe_is_shown(ordsmed: Any, name: str) -> None:
    told = ordsmed("show", name)
    if name.startswith("continue/"):  # of a model that is named first
        assert "init: found google-bert/bert-base-uncased, no such folder" in told.err
        return
    assert told.status == 0, told.err
    assert told.out.startswith(f"{name}: ")
    assert made() == []


def test_show_two(ordsmed: Any) -> None:
    told = ordsmed("show", "tiny/bert", "tiny/gpt2")
    assert told.status == 0
    lines = {line.split()[0]: " ".join(line.split()[1:]) for line in told.out.splitlines()[1:]}
    assert lines["model.kind"] == "bert | gpt2"
    assert lines["data"] == "stdlib-wordpiece | stdlib-bytebpe"
    assert lines["phase[2].length"] == "128 | -"
    assert "model.width" not in lines
    assert ordsmed("show", "tiny/bert", "tiny/bert").out == "tiny/bert and tiny/bert: the same settings\n"
    Path("my.toml").write_text(ordsmed("recipes", "tiny/bert").out)
    assert ordsmed("show", "tiny/bert", "my.toml").out == "tiny/bert and my.toml: the same settings\n"


def test_deeds_of_the_small_verbs(ordsmed: Any) -> None:
    """corpus, tokenizer and encode by recipes of one's own; the second time they stand."""
    Path("text.txt").write_text("".join(f"The smith number {n} mends a kettle. It is old.\n\n" for n in range(40)))
    Path("c.toml").write_text('validation = 0.1\n[source]\nkind = "text"\npath = "text.txt"\n')
    Path("t.toml").write_text('corpus = "c.toml"\n[tokenizer]\nkind = "wordpiece"\nsize = 90\n')
    Path("e.toml").write_text('corpus = "c.toml"\ntokenizer = "t.toml"\n')
    told = ordsmed("encode", "e.toml")
    assert told.status == 0, told.err
    assert told.out.startswith("work/encode/e: done\n")
    assert "  train: documents " in told.out
    assert "{" not in told.out
    for verb, name in (("corpus", "c"), ("tokenizer", "t")):
        assert ordsmed(verb, f"{name}.toml").out.startswith(f"work/{verb}/{name}: done")
        shown = ordsmed("show", f"work/{verb}/{name}")
        assert (shown.status, "state: done\n" in shown.out) == (0, True)
    assert f"data: {Path('work/encode/e')}, " in ordsmed("show", "tiny/bert", "data=e.toml").out
    told = ordsmed("corpus", "c.toml", "seed=1")
    assert told.status == 1
    assert "was made from another recipe" in told.err
    assert ordsmed("show", "c.toml", "work/corpus/c").out == "c.toml and work/corpus/c: the same settings\n"
    assert ordsmed("corpus", "c.toml", "seed=1", "--anew").status == 0
    told = ordsmed("tokenizer", "work/corpus/c")
    assert (told.status, told.err.count("\n")) == (1, 1)
    assert "is the folder of a `corpus`" in told.err
    told = ordsmed("show", "work/corpus/c", "seed=4")
    assert (
        told.err
        == "ordsmed: work/corpus/c: is a folder, but seed=4 is given; wanted a recipe to change, or no override\n"
    )


def test_bad_text_is_one_line(ordsmed: Any) -> None:
    Path("c.toml").write_text('[source]\nkind = "text"\npath = "text.txt"\n')
    for content, said in ((None, "text.txt"), (b"", "no documents at all"), (b"good\n\n\xff bad\n", "text.txt")):
        if content is not None:
            Path("text.txt").write_bytes(content)
        told = ordsmed("corpus", "c.toml", "--anew")
        assert (told.status, told.out) == (1, "")
        assert said in told.err
        assert told.err.splitlines()[-1].startswith("ordsmed: ")
        assert told.err.count("ordsmed: ") == 1
        assert len(told.err.splitlines()) <= 2


@pytest.mark.long
def test_as_a_process(tmp_path: Path) -> None:
    """`python -m ordsmed` ends with 1 and one line, without a traceback."""
    env = {**os.environ, "PYTHONPATH": str(Path(cli.__file__).parents[1])}
    words = [sys.executable, "-m", "ordsmed", "pretrain", "tiny/bert", "lenght=128"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=tmp_path, env=env)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith("ordsmed: tiny/bert: lenght: unknown setting; ")


def test_a_broken_pipe_is_no_traceback(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(Path(cli.__file__).parents[1])}
    pipe = f"{sys.executable} -m ordsmed recipes | head -c 1; {sys.executable} -m ordsmed menus objectives | true"
    done = subprocess.run(["bash", "-c", pipe], capture_output=True, text=True, check=False, cwd=tmp_path, env=env)
    assert "Traceback" not in done.stderr


def test_a_full_disk_and_ctrl_c(ordsmed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(asked: Any) -> None:
        raise OSError(28, "No space left on device", "work/x")

    def stopped(asked: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(menu.import_choice(verbs.MENU, "recipes"), "run", full)
    told = ordsmed("recipes")
    assert (told.status, told.err) == (1, f"ordsmed: work/x: No space left on device; {REMEDIES[28]}\n")
    monkeypatch.setattr(menu.import_choice(verbs.MENU, "recipes"), "run", stopped)
    told = ordsmed("recipes")
    assert (told.status, told.err) == (130, "ordsmed: stopped\n")


GOES_ON = {
    "as",
    "make",
    "quickstart",
    "fetch",
    "corpus",
    "tokenizer",
    "encode",
    "pretrain",
    "finetune",
    "evaluate",
    "stability",
    "bench",
    "index",
    "speedrun",
}
BEGINS_AGAIN = {
    "corpus addresses",
    "corpus judge",
    "corpus pairs",
    "corpus shards",
    "corpus presplit",
    "corpus split",
    "encode records",
    "predict",
    "embed",
    "import",
    "export",
}


def test_what_is_left_of_a_verb_that_is_stopped() -> None:
    left = {one.name: one.stopped for one in verbs.every()}
    assert {name for name, what in left.items() if what == ending.GOES_ON} == GOES_ON
    assert {name for name, what in left.items() if what == ending.BEGINS_AGAIN} == BEGINS_AGAIN


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("verb", sorted(GOES_ON | BEGINS_AGAIN))
def test_who_is_stopped_is_told_how_to_go_on(
    ordsmed: Any, monkeypatch: pytest.MonkeyPatch, verb: str, number: int
) -> None:
    """The command is one that a shell takes, folders with spaces and all, and does not delete what stands."""

    def stopped(asked: Any) -> None:
        os.kill(os.getpid(), number)
        time.sleep(5)

    stem = next(stem for stem in menu.entries(verbs.MENU) if verbs.name_of(stem) == verb)
    monkeypatch.setattr(menu.import_choice(verbs.MENU, stem), "run", stopped)
    free = [[], ["a b/c"], ["a b/c", "x=$HOME"], ["a b/c", "d", "e"]]
    for words in free:
        with contextlib.suppress(UsageError):
            verbs.find(verb).parser().read(words)
            break
    anew = ["--anew"] if "--anew" in verbs.find(verb).parser().flags() else []
    before, ctrl_c = signal.getsignal(signal.SIGTERM), signal.signal(signal.SIGINT, signal.default_int_handler)
    hung_up = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # which nohup leaves out
    try:
        told = ordsmed(*verb.split(), *words, *anew)
    finally:
        signal.signal(signal.SIGINT, ctrl_c)
        signal.signal(signal.SIGHUP, hung_up)
    assert (told.status, told.err.count("\n")) == (128 + number, 2)
    says, _, again = told.err.strip().partition(" with:\n  ")
    if verb in GOES_ON:
        assert says == "ordsmed: stopped; finished work is kept, resume"
        assert shlex.split(again) == ["ordsmed", *verb.split(), *words]
    else:
        assert says == "ordsmed: stopped; nothing was kept, start again"
        assert shlex.split(again) == ["ordsmed", *verb.split(), *words, *anew]
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_misfit_leads_on(ordsmed: Any) -> None:
    """The commands of a refusal work as they are, whatever the names are."""
    Path("te xt.txt").write_text("One text here. Two.\n\nAnother one.\n\nA third.\n")
    Path("my c.toml").write_text('validation = 0.1\n[source]\nkind = "text"\npath = "te xt.txt"\n')
    asked = ["my c.toml", "out=a folder"]
    told = ordsmed("corpus", *asked)
    assert "    ordsmed corpus stats 'a folder'" in told.out.splitlines()
    told = ordsmed("corpus", *asked, "seed=4")
    show, again = re.findall("`(ordsmed .*?)`", told.err)
    assert ordsmed(*shlex.split(show)[1:]).out.endswith("seed  0 | 4\n")
    assert shlex.split(again) == ["ordsmed", "corpus", *asked, "seed=4", "--anew"]
    assert ordsmed(*shlex.split(again)[1:]).status == 0


@pytest.mark.long
@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_which_documents_a_step_saw(ordsmed: Any, tiny_run: Any, kind: str) -> None:
    """The tokens it tells of are those of the rows the step was given."""
    import numpy as np

    from kit.makers import build
    from ordsmed.base.ranks import Ranks
    from ordsmed.train.pretrain.recipe import Pretraining

    folder = getattr(tiny_run, kind)
    for step, phase, inner in ((1, 1, 1), (8, 1, 8), (12, 2, 4)):
        told = ordsmed("show", str(folder), "--step", str(step))
        assert told.status == 0, told.err
        head, *lines = told.out.splitlines()
        assert head.startswith(
            f"{folder}: step {step} (phase {phase}, its step {inner}): 4 rows, {len(lines)} pieces of documents"
        )
        import torch

        job = build(run.read_recipe(Pretraining, folder), Ranks(torch.device("cpu")))
        rows = job.rows(phase - 1)
        spans = rows.spans(np.arange(4 * (inner - 1), 4 * inner))
        assert len(spans) == len(lines)
        for span, line in zip(spans, lines, strict=True):
            begin = span.start - int(job.data.encoded[0].train.document_starts[span.document])
            assert f"row {span.number}: " in line
            assert f" document {span.document} (" in line
            assert f"tokens {begin} to {begin + span.stop - span.start}: " in line
            (place,) = re.findall(r"document \d+ \((\S+\.jsonl):(\d+), id ", line)
            text = Path(place[0]).read_text(encoding="utf-8").splitlines()[int(place[1]) - 1]
            words = line.split(": ")[-1].split()[1:-1][:5]
            assert all(word.strip(".").lower() in text.lower() for word in words), (words, text)
    told = ordsmed("show", str(folder), "--step", "13")
    assert (told.status, told.err) == (1, "ordsmed: --step: found 13; wanted 1 to 12\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["corpus", "stats", "listed"], "listed/status.json: is not a JSON table; the file is damaged"),
        (["fill", "listed", "a [MASK]"], "listed/status.json: is not a JSON table; the file is damaged"),
        (["corpus", "folder", "source.path=a.txt", "out=/"], "/: is the root folder; wanted a folder in it"),
        (["corpus", "folder", "source.path=a.txt", "out=circle"], "circle: is a broken link; wanted"),
        (["corpus", "folder", "source.path=a.txt", "out=\udcff"], "`out`: found '\\udcff', which is not UTF-8; wanted"),
        (["corpus", "presplit", "listed", "/"], "listed/status.json: is not a JSON table; "),
        (["tokenizer", "t.toml"], "deep.json: is nested too deeply to be read; wanted tokenizer.json, vocab.txt"),
        (["recipes", "bytes.toml"], "bytes.toml: not TOML: 'utf-8' codec can't decode"),
        (["show", "a\nb"], "`a b`: no built-in recipe and no file"),
    ],
)
def test_garbage_is_one_line(ordsmed: Any, words: list[str], said: str) -> None:
    """Damaged files, places that are none, names with line ends in them."""
    Path("listed").mkdir()
    Path("listed/status.json").write_text("[1]")
    Path("deep.json").write_text("[" * 100_000)
    Path("t.toml").write_text('[tokenizer]\nkind = "wordpiece"\nfile = "deep.json"\n')
    Path("a.txt").write_text("One text.\n")
    Path("bytes.toml").write_bytes(bytes(range(256)))
    Path("circle").symlink_to("circle")
    told = ordsmed(*words)
    assert (told.status, told.out, told.err.count("\n")) == (1, "", 1)
    assert told.err.startswith(f"ordsmed: {said}")


def test_a_folder_may_be_the_one_one_stands_in(ordsmed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("a.txt").write_text("One text. Two.\n\nThree of them.\n")
    Path("inner").mkdir()
    monkeypatch.chdir("inner")
    assert ordsmed("corpus", "folder", "source.path=../a.txt", "out=.", "validation=0").status == 0
    assert ordsmed("corpus", "stats", ".").out.startswith("train: 2 documents")
    assert ordsmed("show", ".").status == 0
