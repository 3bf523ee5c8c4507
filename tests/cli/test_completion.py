"""Completion: what a shell offers is what the verbs take, and the three scripts run in their shells."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from ordsmed.base import menu, run
from ordsmed.base.arguments import FILES
from ordsmed.cli import completion, verb

BASH = """source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_ordsmed; [[ ${#COMPREPLY[@]} == 0 ]] || printf '%s\\n' "${COMPREPLY[@]}"
"""
ZSH = """compdef() { defined="$*" }
compset() { [[ $2 == '*=' ]] && typed=${typed#*=} }
_files() { print -rl -- ${typed}*(N) }
_describe() { print -rl -- ${${(M)${(P)4}:#${typed}*}%%:*} }
source $1; [[ $defined == "_ordsmed ordsmed" ]] || exit 3
shift; words=("$@") CURRENT=$# typed=${@[-1]}
_ordsmed
"""  # with stubs for what only stands in a terminal


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A script a shell."""
    folder = tmp_path_factory.mktemp("scripts")
    for shell in completion.SHELLS:
        (folder / f"completion.{shell}").write_text(completion.script(shell), encoding="utf-8")
    return folder


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a few files in it, in which one types."""
    monkeypatch.chdir(tmp_path)
    Path("work/pretrain/mine").mkdir(parents=True)
    Path("a folder").mkdir()
    Path("mine.toml").write_text("")
    for name in (".mine.lock", ".mine.holder", "mine.lock"):
        Path("work/pretrain", name).write_text("")
    return tmp_path


def called(shell: str, *words: str) -> list[str]:
    found = shutil.which(shell)
    if not found:
        pytest.skip(f"no {shell} here")
    done = subprocess.run([found, *words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return [line for line in done.stdout.splitlines() if line]


def test_flags_recipes_and_settings_are_those_of_the_verbs() -> None:
    offers = completion.offers()
    for one in verb.every():
        parser = one.parser()
        assert set(parser.flags()) <= set(offers[f"{one.name} -"])
        valued = {key.split()[-1] for key in offers if key.startswith(f"{one.name} --")}
        assert valued == {
            w for a in parser._actions for w in a.option_strings if a.nargs is None and w.startswith("--")
        }
        if one.recipe:
            named = (menu.PACKAGE_ROOT / "recipes" / one.name).is_dir()
            assert set(run.recipe_names(one.name) if named else ["tiny/search"]) <= set(offers[f"{one.name} 1"])
            assert {f"{line.name}=" for line in menu.lines(*one.recipe)} <= set(offers[f"{one.name} +"])
    assert {one.name.split()[0] for one in verb.every()} == set(offers[""])
    assert "tiny/bert" in offers["pretrain 1"]
    assert "tiny/words" in offers["finetune 1"]
    assert not {"tiny/bert", "bert-base"} & set(offers["finetune 1"])
    assert not {"tiny/words", "pretrain/bert-base"} & set(offers["pretrain 1"])
    assert offers["pretrain +"]["phase.schedule.kind="].startswith("linear to `end`; polynomial")
    assert offers["embed --dtype"] == {"float32": "", "float16": ""}
    assert offers["export --step"] == {"all": ""}
    assert offers["pretrain --devices"] == offers["fill --best"] == {}
    assert offers["pretrain --site"].keys() >= {"laptop", FILES}
    assert offers["corpus 1"]["shards"] == verb.find("corpus shards").headline
    assert FILES in offers["corpus 1"]
    assert offers["finetune -"]["--anew"].startswith("make it again")
    assert offers["embed 2"] == offers["pretrain --deadline"] == {FILES: ""}


TYPED = [
    ("ordsmed pretr", ["pretrain"]),
    ("ordsmed corpus st", ["stats", "stdlib"]),
    ("ordsmed corpus stats --t", ["--tokenizer"]),
    ("ordsmed pretrain tiny/mod", ["tiny/modern"]),
    ("ordsmed pretrain --dr", ["--dry-run"]),
    ("ordsmed pretrain --layout a", ["auto"]),
    ("ordsmed pretrain --devices 2 tiny/bert see", ["seed=", "seeds="]),
    ("ordsmed pretrain --layout auto tiny/gp", ["tiny/gpt2"]),
    ("ordsmed pretrain tiny/bert phase.schedule.sh", ["phase.schedule.shape="]),
    ("ordsmed embed --anew run in.txt out.npz --of s", ["sentences"]),
    ("ordsmed menus objectives mlm_", ["mlm_nsp"]),
    ("ordsmed completion z", ["zsh"]),
    ("ordsmed export run out --to google_e", ["google_electra"]),
    ("ordsmed evaluate run --way ma", ["masked"]),
    ("ordsmed nonsense a", []),
]
IN_FILES = [
    ("ordsmed pretrain min", "mine.toml"),
    ("ordsmed corpus stats wo", "work/"),
    ("ordsmed show work/pretrain/mi", "work/pretrain/mine/"),
    ("ordsmed show work/pretrain/", "work/pretrain/mine/"),
    ("ordsmed corpus stats work --tokenizer mine.t", "mine.toml"),
]


@pytest.mark.parametrize(("line", "offered"), TYPED)
def test_bash_completes(scripts: Path, home: Path, line: str, offered: list[str]) -> None:
    assert sorted(called("bash", "-c", BASH, "-", f"{scripts}/completion.bash", *line.split())) == offered


@pytest.mark.parametrize(("line", "path"), [*IN_FILES, ("ordsmed pretrain tiny/bert out = wo", "work/")])
def test_bash_completes_files(scripts: Path, home: Path, line: str, path: str) -> None:
    assert called("bash", "-c", BASH, "-", f"{scripts}/completion.bash", *line.split()) == [path]


def test_bash_takes_words_apart_and_quotes(scripts: Path, home: Path) -> None:
    script = f"{scripts}/completion.bash"
    assert called("bash", "-c", BASH, "-", script, "ordsmed", "pretrain", "--layout", "=", "au") == ["auto"]
    whole = f"COMP_WORDBREAKS=' '; {BASH}"  # as some have it: = is part of a word
    assert called("bash", "-c", whole, "-", script, "ordsmed", "pretrain", "--layout=au") == ["--layout=auto"]
    assert called("bash", "-c", BASH, "-", script, "ordsmed", "corpus", "stats", "a") == [r"a\ folder/"]
    assert "complete -F _ordsmed ordsmed" in called("bash", "-c", 'source "$1"; complete -p ordsmed', "-", script)


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_a_shell_accepts_the_script(scripts: Path, shell: str) -> None:
    assert called(shell, "-n", f"{scripts}/completion.{shell}") == []


@pytest.mark.parametrize(("line", "offered"), TYPED)
def test_zsh_completes(scripts: Path, home: Path, line: str, offered: list[str]) -> None:
    assert sorted(called("zsh", "-f", "-c", ZSH, "-", f"{scripts}/completion.zsh", *line.split())) == offered


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        *TYPED,
        *((line, [path]) for line, path in IN_FILES),
        ("ordsmed pretrain tiny/bert out=wo", ["out=work/"]),
        ("ordsmed pretrain --layout=au", ["--layout=auto"]),
    ],
)
def test_fish_completes(scripts: Path, home: Path, line: str, offered: list[str]) -> None:
    script = f"source {shlex.quote(f'{scripts}/completion.fish')}; complete -C {shlex.quote(line)}"
    found = [one.split("\t")[0] for one in called("fish", "--no-config", "-c", script)]
    assert sorted(found) == offered


def test_help_with_signs_of_a_shell_is_only_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Quotes, dollars and back-ticks run nothing."""
    hostile = "it's `touch made` $(touch made) \"x\" \\' *"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(completion, "offers", lambda: {"": {"word": hostile}})
    Path("script").write_text(completion.script("bash"), encoding="utf-8")
    assert called("bash", "-c", "source ./script; __ordsmed_offers ''") == [f"word\t{hostile}"]
    assert os.listdir() == ["script"]
    if shutil.which("fish"):
        Path("script").write_text(completion.script("fish"), encoding="utf-8")
        assert called("fish", "--no-config", "-c", "source ./script; __ordsmed_offers ''") == [f"word\t{hostile}"]
