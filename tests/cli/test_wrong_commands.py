"""Command lines as newcomers type them: each ends with one line whose remedy is right."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from kit import remedies
from ordsmed.base.errors import near
from ordsmed.cli import main, verb

TABLE = Path(__file__).with_name("wrong_commands.txt").read_text(encoding="utf-8").splitlines()
ROWS = [(line.removeprefix("$ "), advice.strip()) for line, advice in zip(TABLE[::2], TABLE[1::2], strict=True)]


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with texts in `my-texts`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my-texts").mkdir()
    (tmp_path / "my-texts/a.txt").write_text("A quick fox.\n" * 9)
    return tmp_path


def answer(line: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What a command that fails prints last."""
    with pytest.raises(SystemExit) as end:
        main(shlex.split(line))
    assert end.value.code in (1, 2), line
    return capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(("line", "advice"), ROWS)
def test_the_advice_is_right(line: str, advice: str, texts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = answer(line, capsys)
    assert said.endswith(advice), said
    assert "--anew" not in said or "--anew" in line
    for right in re.findall("`([^` ]+)`", said.partition("did you mean")[2]):
        rest = " ".join(remedies.command_faults(f"ordsmed {mended(line, right)}"))
        assert not re.search("unknown setting|no such|is not in|no recipe|found", rest), (
            f"{right} does not help: {rest}"
        )


def mended(line: str, right: str) -> str:
    """A line with its misspelled word, or the key of its setting, replaced."""
    words = shlex.split(line)
    for number, word in enumerate(words):
        if near(word, [right]):
            return shlex.join([*words[:number], right, *words[number + 1 :]])
        if "=" in word:
            return shlex.join([*words[:number], f"{right}={word.partition('=')[2]}", *words[number + 1 :]])
    raise AssertionError(f"{right} is near no word of {line}")


def test_the_table_has_every_kind_of_verb() -> None:
    assert len(ROWS) >= 100
    assert {verb.find(name).group for name in verb.names() if any(row[0].startswith(name) for row in ROWS)} == set(
        verb.GROUPS
    )


@pytest.mark.parametrize(
    "line", ["make my-texts out --hours 90m", "make texts=my-texts out=out", "make my-texts out hours=2"]
)
def test_what_is_meant_clearly_is_done(line: str, texts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As far as the texts, which are too short to learn from."""
    assert "my-texts: holds about 27 words" in answer(line, capsys)


def test_words_of_other_tools_lead_to_what_exists() -> None:
    """Each answer of the table holds for at least one verb."""
    from ordsmed.base.other_names import _tables

    tables = _tables()
    for table in ("verbs", "recipes", "kinds", "options"):
        groups = [tables[table]] if table == "verbs" else tables[table].values()
        for text in [text for group in groups for text in group.values()]:
            assert list(remedies.faults("", text)) == [], text
    assert all(remedies.known(path) for path in tables["settings"].values())
    assert set(tables["options"]) - {"any", "training"} <= set(verb.names())


def test_what_is_wrong_with_a_remedy_is_found() -> None:
    for text in (
        "`ordsmed traim x`",
        "`ordsmed make TEXTS OUT --lang no`",
        "add --nothing",
        "`model.hiden=3`",
        "`ordsmed pretrain tiny/bert phase.lr=1`",
        "did you mean `--anew`?",
        "`ordsmed export RUN`",
        "`ordsmed finetune glue task.nme=rte`",
    ):
        assert list(remedies.faults("make", text)), text
