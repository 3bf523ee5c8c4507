"""Evaluation of models by probes: the command, its files, resuming after a kill, and errors."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from kit.language_models import SENTENCES, elmo_made, hub_folder, pairs_file
from kit.processes import run_born
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.cli import main
from ordsmed.data.encode import read_store
from ordsmed.measure.evaluation import evaluate as evaluates
from ordsmed.measure.evaluation import results
from ordsmed.measure.evaluation.evaluate import ComputeOptions, evaluate
from ordsmed.measure.evaluation.recipe import named
from ordsmed.measure.evaluation.score_cache import ScoreCache
from ordsmed.measure.probes import bits, minimal_pairs, perplexity, perplexity_bound, pseudo_perplexity
from ordsmed.nn.packed_layers import lacks_int8
from ordsmed.train.mesh.layout import Layout

WITH_INT8 = pytest.mark.skipif(bool(lacks_int8(torch.device("cpu"))), reason="no exact products of 8 bits here")
CPU = ComputeOptions(device="cpu", threads=1)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return hub_folder("gpt2", tmp_path / "gpt2")


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    both = [(one, other) for one in SENTENCES for other in SENTENCES if one < other]
    return pairs_file(tmp_path / "pairs.jsonl", both)


def asked(model: Path, *files: Path, **how: Any) -> Any:
    probe = minimal_pairs.MinimalPairs(files=tuple(map(str, files)), **how)
    [found] = evaluate([str(model)], [probe], means=CPU)
    return found


def test_one_line_of_json(model: Path, pairs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file holds both scores of every pair; the results are next to the model."""
    each = tmp_path / "each.jsonl"
    main(
        [
            "evaluate",
            str(model),
            "--probe",
            "minimal_pairs",
            str(pairs),
            "--json",
            "--each",
            str(each),
            "--device",
            "cpu",
            "--threads",
            "1",
        ]
    )
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    found, rows = json.loads(out), [json.loads(line) for line in each.read_text().splitlines()]
    assert found["pairs"] == len(rows) == 36
    assert found["ties"] == 0
    assert found["right"] == sum(row["good"] > row["bad"] for row in rows) == sum(row["right"] for row in rows)
    assert found["accuracy"] == pytest.approx(100 * found["right"] / 36)
    assert [found[key] for key in ("probe", "way", "files")] == ["minimal_pairs", "causal", [str(pairs)]]
    [path] = (model / "scores").glob("*.json")
    assert json.loads(path.read_text())["accuracy"] == found["accuracy"]
    assert "| minimal_pairs (causal) | pairs.jsonl | accuracy |" in (model / "scores" / "scores.md").read_text()


def test_several_models_and_probes(
    model: Path, pairs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A table with a row per probe; settings may be given among the files."""
    other = hub_folder("bert", tmp_path / "bert")
    probe = ["--probe", "minimal_pairs", str(pairs)]
    main(["evaluate", str(model), str(other), *probe, *probe, "per=token", "--device", "cpu", "--threads", "1"])
    rows = [line for line in capsys.readouterr().out.splitlines() if "accuracy" in line and line[2] in "gb"]
    assert [row.split("|")[1].strip() for row in rows] == ["gpt2", "gpt2", "bert", "bert"]
    assert len({row.split("|")[5] for row in rows[:2]} | {row.split("|")[5] for row in rows[2:]}) > 1
    assert len(list((other / "scores").glob("*.json"))) == 2


class Killed(BaseException):
    pass


def test_who_was_killed_goes_on(
    model: Path, pairs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Behind what is kept, which is not computed again; a line that was cut off is. The result is the same."""
    whole = asked(model, pairs)
    for path in (model / "scores" / "parts").iterdir():
        path.unlink()
    monkeypatch.setattr(evaluates, "COST", 50)
    add, made = ScoreCache.add, list[int]()

    def until(self: ScoreCache, number: int, records: Any) -> None:
        if number == 3:
            raise Killed
        made.append(number)
        add(self, number, records)

    monkeypatch.setattr(ScoreCache, "add", until)
    with pytest.raises(Killed):
        asked(model, pairs)
    monkeypatch.setattr(ScoreCache, "add", lambda self, number, rows: (made.append(number), add(self, number, rows)))
    [path] = (model / "scores" / "parts").iterdir()
    path.write_bytes(path.read_bytes()[:-20])  # the third line is cut off
    capsys.readouterr()
    again = asked(model, pairs)
    assert made[:3] == [0, 1, 2]
    assert made[3:5] == [2, 3]
    assert sorted(set(made)) == list(range(max(made) + 1))
    assert "resumes after" in capsys.readouterr().err
    assert again.finding.facts == whole.finding.facts
    for one, other in zip(again.records, whole.records, strict=True):
        assert (one.group, one.place) == (other.group, other.place)
        assert one.scores == pytest.approx(other.scores, abs=1e-5)
    made.clear()
    assert asked(model, pairs).records == again.records
    assert made == [], "all is kept"


def test_what_changes_a_score_changes_its_key(model: Path, pairs: Path, tmp_path: Path) -> None:
    first = asked(model, pairs)
    assert asked(model, pairs).key == first.key
    assert asked(hub_folder("gpt2", tmp_path / "moved"), pairs).key == first.key, "where it stands is nothing"
    others = [
        asked(model, pairs, per="token"),
        asked(hub_folder("gpt2", tmp_path / "b", seed=4), pairs),
        asked(hub_folder("bert", tmp_path / "c"), pairs),
    ]
    moved = asked(model, pairs.rename(tmp_path / "other.jsonl"))
    assert moved.probe.as_line(moved.records[0])["file"] == str(tmp_path / "other.jsonl"), "not where it stood before"
    assert moved.records[0].group == "other"
    pairs_file(pairs, [(SENTENCES[0], SENTENCES[1])])
    others.append(asked(model, pairs))
    assert len({first.key, *(other.key for other in others)}) == 5


def test_a_folder_that_may_only_be_read(
    model: Path,
    pairs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    read_only: Any,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Results are put elsewhere, and where is said."""
    monkeypatch.chdir(tmp_path)
    read_only(model)
    found = asked(model, pairs)
    assert "is read-only; writing its results to work/evaluate/gpt2/scores" in capsys.readouterr().err
    assert found.path.exists()
    assert not (model / "scores").exists()
    assert stat.S_ISREG(found.path.stat().st_mode)


def test_nothing_is_left_of_what_is_refused(model: Path, pairs: Path, tmp_path: Path) -> None:
    """All files are looked through before anything is scored."""
    bad = tmp_path / "bad.jsonl"
    bad.write_text(pairs.read_text() + "{}\n")
    with pytest.raises(DataError, match=r"bad\.jsonl:37: holds no pair"):
        asked(model, bad)
    assert not (model / "scores").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--probe", "minimal_pair", "x"], "--probe: found minimal_pair; wanted .*did you mean `minimal_pairs`"),
        (["--probe", "minimal_pairs"], "--probe minimal_pairs: names no file"),
        (["--probe", "minimal_pairs", "absent.jsonl"], "absent.jsonl: .*no such"),
        (["--probe", "minimal_pairs", "x", "way=masked"], "is a gpt2, which cannot be read the way `masked`"),
        (["--probe", "minimal_pairs", "x", "per=word"], "per"),
        (["--probe", "minimal_pairs", "x", "--step", "3"], "--step"),
        (["--probe", "minimal_pairs", "x", "--step", "all"], "--step: found all, but .* is not a pretraining run"),
        (["--probe", "minimal_pairs", "x", "--layout", "1x2x1"], "--layout: found 1x2x1; wanted no shards"),
        (["--each", "y"], "--each: needs a probe, but none is named"),
        (["--probe", "minimal_pairs", "x", "--each", "y", "--step", "all"], "--each: found with all steps; wanted one"),
        (["--probe", "minimal_pairs", "x", "--each", "."], "--each: . is a folder; wanted a file to write"),
        (["--probe", "minimal_pairs", "x", "--each", "x/y/z"], "--each: x is not a folder; wanted a folder"),
        (["--probe", "minimal_pairs", "x", "--out", "x"], "--out: x is not a folder; wanted a folder"),
    ],
)
def test_what_cannot_be_asked(
    words: list[str],
    said: str,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    import re

    monkeypatch.chdir(tmp_path)
    pairs_file(tmp_path / "x", [("a cat", "a dog")])
    with pytest.raises(SystemExit):
        main(["evaluate", str(model), *words, "--device", "cpu"])
    error = capsys.readouterr().err
    assert re.search(said, error), error
    assert error.count("\n") == 1


def test_equal_sentences_are_told_in_a_line(
    model: Path, pairs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also of scores that were kept."""
    same = pairs_file(tmp_path / "same.jsonl", [("it ran", "it ran"), ("it ran", "a dog ran")])
    said = "equal sentences, which are never right: 1 of 2 pairs of same.jsonl"
    words = f"evaluate {model} --probe minimal_pairs {pairs} {same} --device cpu --threads 1".split()
    for _ in range(2):
        main([*words, "--json"])
        found = json.loads(capsys.readouterr().out)
        assert [found[key] for key in ("pairs", "ties", "how")] == [38, 1, said]
    main(words)
    assert capsys.readouterr().out.count(said) == 1


def test_an_elmo_is_not_split(tmp_path: Path, pairs: Path) -> None:
    elmo, probe = elmo_made(tmp_path / "elmo"), minimal_pairs.MinimalPairs(files=(str(pairs),))
    setup = evaluates.Setup(elmo.ranks, Layout(tensor=2), CPU, str(tmp_path / "out"))
    probe_key = evaluates._findings(elmo, "elmo", [probe], setup)
    with pytest.raises(
        RecipeError, match="--layout: found 2 as its last number, but the layers of elmo cannot be split; wanted 1"
    ):
        next(probe_key)


def test_a_folder_that_is_no_model(pairs: Path, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="neither a run nor a model of a known format"):
        asked(tmp_path, pairs)


def test_numbers_that_json_has_not() -> None:
    assert results.finite({"a": [float("nan"), 1.5], "b": {"c": float("inf")}}) == {"a": [None, 1.5], "b": {"c": None}}


def test_steps_of_a_run(tiny_run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All checkpoints are evaluated and drawn over steps; `show` and the card of a step report the scores."""
    import shutil

    from ordsmed.tell.show import state
    from ordsmed.weights import card
    from ordsmed.weights.trained_model import open_model

    run = tmp_path / "run"
    shutil.copytree(tiny_run.gpt2, run)
    path = pairs_file(
        tmp_path / "pairs.jsonl", [("The old smith mends the iron gate.", "gate iron the mends smith old")]
    )
    probe = minimal_pairs.MinimalPairs(files=(str(path),))
    found = evaluate([str(run)], [probe], means=CPU, step="all")
    assert [one.step for one in found] == [0, 8, 12]
    assert len({one.key for one in found}) == 3
    steps, words = sorted((run / "scores").glob("*.svg"), key=lambda path: len(path.name))
    assert "step of pretraining; bars: standard error" in steps.read_text()
    assert words.name == f"{steps.stem}-words.svg"
    assert "words seen; bars: standard error" in words.read_text()
    assert [one.seen["tokens"] for one in found] == [0, 8 * 4 * 32, 8 * 4 * 32 + 4 * 4 * 64]
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    counted = {0: 0, **{line["step"]: line["words"] for line in lines if "words" in line}}
    assert [one.seen["words"] for one in found] == [counted[one.step] for one in found]
    encoded = json.loads((run / "data.json").read_text()).popitem()[1]["train"]
    assert counted[12] == pytest.approx(found[-1].seen["tokens"] * encoded["words"] / encoded["tokens"], rel=0.1)
    assert capsys.readouterr().err.count("drawn over") == 2
    evaluate([str(run)], [probe], means=CPU, step="all")
    assert "drawn over" not in capsys.readouterr().err, "it stands as it is"
    told = [line for line in state.lines(run) if line.startswith("minimal_pairs")]
    assert told[-1].startswith("minimal_pairs (causal) of pairs.jsonl at step 12: accuracy ")
    assert told[-1].endswith("(guessing 50.00)")
    assert len(told) == 3
    text = card.write(open_model(run, 8), "x")
    assert text.count("| minimal_pairs (causal) | pairs.jsonl | accuracy |") == 1
    assert "## Probes" not in card.write(open_model(tiny_run.gpt2), "x")


def test_a_result_replaces_the_one_of_other_contents(model: Path, pairs: Path, tmp_path: Path) -> None:
    """Its row would look like the other one's."""
    asked(model, pairs)
    pairs_file(pairs, [(SENTENCES[0], SENTENCES[1])])
    asked(model, pairs)
    asked(model, pairs, per="token")
    kept = [json.loads(path.read_text()) for path in (model / "scores").glob("*.json")]
    assert sorted((one["settings"]["per"], one["pairs"]) for one in kept) == [("sentence", 1), ("token", 1)]


def test_the_splits_of_an_encode(tiny_run: Any, tmp_path: Path) -> None:
    """What is held out, or with its name what was learned from; the result is named by the folder."""
    store = tiny_run.folder / "encode-gpt2"
    scored = []
    for name in (str(store), f"{store}/validation", f"{store}/train"):
        [one] = evaluate([str(tiny_run.gpt2)], [perplexity.Perplexity(files=(name,))], means=CPU, out=str(tmp_path))
        assert one.files == [name]
        scored.append(one.finding.facts["scored"])
    assert scored[0] == scored[1] < scored[2] / 2
    with pytest.raises(
        DataError, match="is a folder written by `encode`; wanted texts; `--probe perplexity` reads it, as its only"
    ):
        evaluate([str(tiny_run.gpt2)], [bits.Bits(files=(str(store),))], means=CPU, out=str(tmp_path))


@pytest.mark.parametrize("probe", [pseudo_perplexity.PseudoPerplexity, perplexity_bound.PerplexityBound])
def test_masks_are_filled_in_the_texts_of_an_encode(tiny_run: Any, tmp_path: Path, probe: Any) -> None:
    """Document by document, as of its texts; what is not known of a store are words and bytes."""
    store = tiny_run.folder / "encode-bert"
    [stored] = evaluate([str(tiny_run.bert)], [probe(files=(str(store),))], means=CPU, out=str(tmp_path))
    held_out = read_store(str(store)).validation
    assert held_out is not None
    assert stored.finding.facts["scored"] == held_out.token_count
    tokenizer = read_store(str(store)).tokenizer
    texts = [tokenizer.pipeline.decode(held_out.document(n).tolist()) for n in range(held_out.document_count)]
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    [plain] = evaluate(
        [str(tiny_run.bert)], [probe(files=(str(tmp_path / "texts.jsonl"),))], means=CPU, out=str(tmp_path)
    )
    name = next(iter(plain.finding.facts))
    assert stored.finding.facts[name] == pytest.approx(plain.finding.facts[name], rel=1e-4)
    assert not any("word" in name or "byte" in name for name in stored.finding.facts)
    with pytest.raises(DataError, match=r"was encoded with tokenizer .*; wanted .*, the model's"):
        evaluate(
            [str(tiny_run.bert)], [probe(files=(str(tiny_run.folder / "encode-gpt2"),))], means=CPU, out=str(tmp_path)
        )


def test_texts_that_a_model_does_not_know_are_refused(
    tiny_run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rus.txt").write_text("тритоны бежали вверх\n")
    words = [
        "evaluate",
        str(tiny_run.bert),
        "--probe",
        "pseudo_perplexity",
        str(tmp_path / "rus.txt"),
        "--device",
        "cpu",
    ]
    with pytest.raises(SystemExit):
        main([*words, "--out", str(tmp_path / "out")])
    refused = " ".join(capsys.readouterr().err.split())
    assert "rus.txt: 100.0% of its tokens are unknown to the tokenizer (" in refused
    assert refused.endswith("`--max-unknown 1` allows it")
    main([*words, "--out", str(tmp_path / "out"), "--max-unknown", "1"])
    assert "100.0% of its tokens are unknown" in " ".join(capsys.readouterr().err.split())


def test_flags_go_to_the_probes_that_know_them() -> None:
    drawn, other = named([["perplexity", "x"], ["minimal_pairs", "y"]], iterations=5, batch=2, way="causal")
    assert (drawn.iterations, drawn.batch, drawn.way) == (5, 2, "causal")
    assert other == minimal_pairs.MinimalPairs(files=("y",), way="causal")
    with pytest.raises(RecipeError, match="--iterations: is not an option of any named probe; wanted `perplexity`"):
        named([["minimal_pairs", "y"]], iterations=5)


OWN = """
from dataclasses import dataclass
from ordsmed.base.menu import Choice
from ordsmed.measure.likelihood.choosing import ChoiceProbe, ChoiceQuestion, scores_by_choice
from ordsmed.measure.likelihood.probe import paths_of

@dataclass(frozen=True)
class Longer(ChoiceProbe, Choice):
    files: tuple[str, ...] = ()
    way: str = ""

    def questions(self):
        for path in paths_of(self.files):
            for number, line in enumerate(path.read_text().splitlines(), 1):
                place = f"{path}:{number}"
                yield ChoiceQuestion(place, [("", line), ("", f"{line} {line}")], ["", place])

    def record(self, example, scores):
        return [*example.about[2:], *(score.total for score in scores_by_choice(example, scores))]

    def marks(self, record):
        return {"accuracy": record[2] > record[3]}

    def guess(self, record):
        return 0.5

    def as_line(self, record):
        return {"place": record[1]}
"""


def test_a_probe_of_somebodys_own(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is found by the name of its module; a missing method is a one-line error."""
    (tmp_path / "a_lab").mkdir()
    (tmp_path / "a_lab" / "longer.py").write_text(OWN)
    (tmp_path / "a_lab" / "lacking.py").write_text(OWN.replace("def record", "def recorded"))
    (tmp_path / "texts").write_text("the newt swam\nit ran\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    words = ["evaluate", str(model), "--device", "cpu", "--threads", "1", "--json", "--probe"]
    main([*words, "a_lab.longer", str(tmp_path / "texts")])
    found = json.loads(capsys.readouterr().out)
    assert (found["probe"], found["examples"], found["accuracy"]) == ("a_lab.longer", 2, 100.0)
    for name, said in (("lacking", "Longer has no `record`; wanted `record(example, scores)`"), ("none", "No module")):
        with pytest.raises(RecipeError, match=said.replace("(", r"\(").replace(")", r"\)")):
            named([[f"a_lab.{name}", "x"]])


def test_runs_are_drawn_apart(tmp_path: Path) -> None:
    """Several models have results in one folder."""
    for model, value in (("a", 50.0), ("b", 75.0)):
        for step in (1, 2):
            one = {
                "accuracy": value,
                "errors": {},
                "guessing": {},
                "model": model,
                "step": step,
                "files": ["x"],
                "probe": "minimal_pairs",
                "way": "causal",
                "settings": {},
                "key": f"{model}{step}",
            }
            (tmp_path / f"minimal_pairs-{model}{step}.json").write_text(json.dumps(one))
    (tmp_path / "minimal_pairs-c1.json").write_text(json.dumps({**one, "model": "c"}))
    (tmp_path / "minimal_pairs-c2.json").write_text(json.dumps({**one, "model": "c", "key": "other"}))
    assert len(results.draw(tmp_path)) == 2, "one step of c is no course"


def test_several_models_in_one_picture(
    tiny_run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over words if all models know how many they have seen, otherwise over tokens; in the requested folder."""
    monkeypatch.chdir(tmp_path)
    path = pairs_file(tmp_path / "pairs.jsonl", [("the old smith mends it", "it mends smith old the")])
    probe = minimal_pairs.MinimalPairs(files=(str(path),))
    both = [str(tiny_run.gpt2), str(tiny_run.bert)]
    evaluate(both, [probe], means=CPU, step="all", out="out")
    said = [line.split(": drawn over ") for line in capsys.readouterr().err.splitlines() if "drawn over" in line]
    assert [over for _, over in said] == [*["steps", "words seen"] * 2, "words seen"]
    text = Path(said[-1][0]).read_text()
    assert all(name in text for name in ("model gpt2", "model bert", "words seen; bars"))
    assert text.count("<circle") == 6
    results_of = evaluate(both, [probe], means=CPU, step="all", out="out")
    one = replace(results_of[0], seen={"tokens": 5})
    [(drawn, over)] = results.draw_models([one, *results_of[1:]], None)
    assert (str(drawn.parent), over) == ("work/evaluate", "tokens seen")
    assert results.draw_models([replace(one, seen={}), *results_of[1:]], None) == []
    assert results.draw_models(results_of[:3], None) == [], "one model"
    assert results.draw_models([results_of[0], results_of[3]], None) == [], "one step of each is no course"


@pytest.mark.parametrize("precision", ["bf16", pytest.param("int8", marks=WITH_INT8)])
def test_in_16_and_8_bits(model: Path, pairs: Path, precision: str) -> None:
    """About the same; kept by a key of its own."""
    whole, probe = asked(model, pairs), minimal_pairs.MinimalPairs(files=(str(pairs),))
    [half] = evaluate([str(model)], [probe], means=ComputeOptions("cpu", 1, precision=precision))
    assert half.key != whole.key
    assert [one.plain()["precision"] for one in (whole, half)] == ["fp32", precision]
    text = (model / "scores" / "scores.md").read_text()
    assert (
        text.count(f"| minimal_pairs (causal, {precision}) | pairs.jsonl |")
        == text.count("minimal_pairs (causal) ")
        == 1
    )
    scores = [[record.scores[0] for record in one.records] for one in (whole, half)]
    assert scores[0] != scores[1]
    assert scores[0] == pytest.approx(scores[1], rel=0.05)
    with pytest.raises(RecipeError, match="--precision: found fp8; wanted fp32 or bf16 or fp16"):
        evaluate([str(model)], [probe], means=ComputeOptions("cpu", 1, precision="fp8"))


def test_a_recipe(model: Path, pairs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = tmp_path / "mine.toml"
    recipe.write_text(f'models = ["{model}"]\n[[probe]]\nkind = "minimal_pairs"\nfiles = ["{pairs}"]\nper = "token"\n')
    main(["evaluate", str(recipe), f"out={tmp_path / 'out'}", "--json", "--device", "cpu", "--threads", "1"])
    assert json.loads(capsys.readouterr().out)["settings"] == {"per": "token"}
    assert len(list((tmp_path / "out").glob("*.json"))) == 1
    assert not (model / "scores").exists()


@pytest.mark.long
@pytest.mark.parametrize("layout", [[], ["--layout", "1x1x2"]])
def test_on_two_processes(layout: list[str], pairs: Path, tmp_path: Path, nursery: Any) -> None:
    """Copies share chunks out, tensor ranks share layers and the vocabulary: the same numbers."""
    model = hub_folder("gpt2", tmp_path / "gpt2")
    whole = asked(model, pairs)
    text = tmp_path / "x"
    text.write_text("the newt sat on it . " * 40)
    words = ["--probe", "minimal_pairs", str(pairs), "--probe", "wikitext", str(text), "overlap=5"]
    command = ["evaluate", str(model), *words, "--json", "--device", "cpu", "--anew"]
    alone, two = (
        json.loads(run_born(nursery, tmp_path, *command, *more).stdout)["results"]
        for more in ([], ["--devices", "2", *layout])
    )
    assert two[0]["accuracy"] == alone[0]["accuracy"] == whole.finding.facts["accuracy"]
    for key in ("perplexity", "adjusted_perplexity", "bits_per_byte", "scored"):
        assert two[1][key] == pytest.approx(alone[1][key], rel=1e-5)
    if not layout:
        text.write_bytes(b"the \xff newt")
        done = run_born(nursery, tmp_path, *command, "--devices", "2")
        [line] = [line for line in done.stderr.splitlines() if line.startswith("ordsmed:")]
        assert line.endswith("byte 4: invalid UTF-8 (0xff: invalid start byte); wanted text in UTF-8; convert the file")
        assert done.returncode != 0
