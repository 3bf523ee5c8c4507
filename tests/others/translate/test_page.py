"""The pages of flags are generated from the code; every dialect is complete."""

from __future__ import annotations

import contextlib
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from ordsmed import cli
from ordsmed.base import menu
from ordsmed.base.arguments import UsageError
from ordsmed.base.ranks import ProcessInfo
from ordsmed.cli.verbs import version
from ordsmed.others.translate import page, perform, program
from ordsmed.others.translate.program import Call, Flag, Program, Values

DOCS = Path(__file__).parents[3] / "docs"


@pytest.mark.parametrize("code", program.names())
def test_the_page_is_made_from_the_code(code: str) -> None:
    lines = "\n".join(page.markdown(code)).rstrip()
    written = (DOCS / "coming-from" / f"{code}.md").read_text(encoding="utf-8")
    assert written.endswith(f"\n\n{lines}\n"), "it must end with the output of page.markdown"
    assert "| you had | you have |" in written
    assert f"(coming-from/{code}.md)" in (DOCS / "coming-from.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("code", program.names())
def test_flags_are_told_once_each(code: str) -> None:
    for one in program.programs(code).values():
        names = [flag.key for flag in one.flags]
        assert len(set(names)) == len(names), one.name
        assert len(page.flags(one)) == len(names) + 2


def test_a_flag_is_found_whosever_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """Search by a part of the name, with any dashes; equal flags of a code share a line."""
    for words in (["--find", "train_batch"], ["google", "--find", "--train-Batch"]):
        cli.main(["as", *words])
        lines = [re.split("  +", line.strip()) for line in capsys.readouterr().out.splitlines()]
        assert lines[0] == ["code", "program", "flag", "default there", "here"]
        rows = [line for line in lines if line[0] == "google"]
        assert ["google", "run_pretraining.py", "--train_batch_size", "32", "phase.batch"] in rows
        assert ["google", "run_classifier.py, run_squad.py", "--train_batch_size", "32", "batch"] in rows
        assert {line[0] for line in lines[1:]} >= ({"google"} if len(words) == 3 else {"google", "nvidia"})
    as_written = page.find("optimization.max_update=[5]", ["fairseq"])
    assert as_written == page.find("--max-update=5", ["fairseq"]) == page.find("max_update", ["fairseq"])
    with pytest.raises(
        UsageError, match=r"no flag of google contains `train-batch-sise`; did you mean `train_batch_size`"
    ):
        page.find("train-batch-sise", ["google"])
    for code in program.names():
        for one in program.programs(code).values():
            for flag in one.flags:
                assert any(flag.name in line for line in page.find(flag.name, [code]))


def test_codes_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["as"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:-1]] == program.names()


def test_one_of_several_processes_tells(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Notes and recipes are printed by one process."""
    monkeypatch.chdir(tmp_path)
    for rank in (0, 1):
        values = program.Values(program.RecordedValues({}), frozenset(), ProcessInfo(rank, 2))
        assert perform.prepare(Program("x.py", "", (), lambda *_: None), values, Call("v", notes=["n"])) == ["v"]
        assert capsys.readouterr().err == ("n\nordsmed v\n" if rank == 0 else "")


def test_what_their_scripts_look_for_is_written_where_processes_were_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that starts processes raises SystemExit with their status; `after` runs if it is 0."""
    done: list[str] = []
    one = Program("x.py", "x", (), lambda values, call: call.after.append(lambda: done.append("x")), "version")
    monkeypatch.setattr(program, "programs", lambda code: {"x.py": one})
    for status in (None, 0, 3):
        monkeypatch.setattr(version, "run", lambda asked, status=status: sys.exit(status))
        with contextlib.suppress(SystemExit):
            cli.main(["as", "google", "x.py"])
    assert done == ["x", "x"]


@pytest.mark.parametrize("of", [{}, {"goes": "a", "nothing": "b"}, {"refused": "a", "goes": "b"}])
def test_a_flag_says_one_thing(of: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="needs exactly one of `goes`, `nothing` and `refused`"):
        Flag("--x", **of)


@pytest.mark.parametrize("code", program.names())
def test_programs_without_a_translation_lead_on(code: str) -> None:
    others = getattr(menu.import_choice(program.MENU, code), "INSTEAD", {})
    assert not set(others) & set(program.programs(code))
    for name, instead in others.items():
        with pytest.raises(UsageError, match=re.escape(f"`{name}`: has no translation; {instead}")):
            program.find(code, name)


def test_a_program_by_its_folder_or_without_its_ending_leads_on_too() -> None:
    for name in ("language-modeling/run_plm.py", "run_plm"):
        with pytest.raises(UsageError, match="permutation language modeling"):
            program.find("huggingface", name)


def test_words_by_place_and_by_the_environment() -> None:
    flags = (
        Flag("rate", float, "phase.learning_rate", required=True),
        Flag("kind", "bert", "model.kind"),
        Flag("LAYERS", 2, "model.layers"),
        Flag("--deep", False, "model.deep"),
    )
    one = Program("x.py", "x", flags, lambda values, call: None, "pretrain")

    def call(*words: str, **environment: str) -> Call:
        return one.translated(one.read(words, ProcessInfo(), environment))

    assert call("0.1", LAYERS="3").recipes == {
        "pretrain": {
            "phase": [{"learning_rate": 0.1}],
            "model": {"kind": "bert", "layers": 3, "deep": False},
            "layout": {"precision": "fp32"},
            "keep_best": False,
        }
    }
    assert call("1e-1", "gpt2", "--deep").recipes["pretrain"]["model"] == {"kind": "gpt2", "layers": 2, "deep": True}
    with pytest.raises(UsageError, match=r"x.py: no rate"):
        call()
    with pytest.raises(UsageError, match="LAYERS: found many"):
        call("0.1", LAYERS="many")


def test_theirs_are_in_fp32_and_leave_the_last_weights_unless_they_say_else() -> None:
    """Only commands that train have a default precision."""

    def half(values: Values, call: Call) -> None:
        if values.amp:
            call.put("layout.precision", "fp16")
        call.put("seed", 1)
        call.then.append(Call("finetune", {"finetune": {"layout": {"threads": 1}}}))
        call.then.append(Call("predict", {"predict": {}}))

    def recipes(verb: str, *words: str) -> list[dict[str, Any]]:
        one = Program("x.py", "x", (Flag("--amp", False, "layout.precision", joint=True),), half, verb)
        call = one.translated(one.read(words, ProcessInfo(), {}))
        return [each.recipes[each.verb] for each in (call, *call.then)]

    after = [{"layout": {"threads": 1, "precision": "fp32"}}, {}]
    assert recipes("pretrain") == [{"seed": 1, "layout": {"precision": "fp32"}, "keep_best": False}, *after]
    assert recipes("pretrain", "--amp") == [{"seed": 1, "layout": {"precision": "fp16"}, "keep_best": False}, *after]
    assert recipes("encode") == [{"seed": 1}, *after]


def test_numbers_as_people_write_them() -> None:
    one = Program("x.py", "x", (Flag("--steps", 1, "a"), Flag("--on", True, "b", valued=True)), lambda *_: None, "v")

    def read(*words: str) -> dict[str, Any]:
        return dict(one.read(words, ProcessInfo(), {}).of)

    assert read("--steps", "1e4") == {"steps": 10_000, "on": True}
    assert read("--on", "False") == {"steps": 1, "on": False}
    for word in ("1.5", "x", "inf"):
        with pytest.raises(UsageError, match=f"--steps: found {word}; wanted a whole number"):
            read("--steps", word)
