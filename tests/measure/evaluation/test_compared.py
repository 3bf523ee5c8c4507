"""Several models that are asked the same are compared, pair by pair."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kit.language_models import SENTENCES, hub_folder, pairs_file
from ordsmed.base.errors import RecipeError
from ordsmed.cli import main
from ordsmed.learn.score.paired_tests import clustered, sign_test
from ordsmed.measure.evaluation import comparison
from ordsmed.measure.evaluation.evaluate import ComputeOptions, check, evaluate
from ordsmed.measure.likelihood.probe import PairedExample
from ordsmed.measure.probes import bits, cloze, minimal_pairs, perplexity

CPU = ComputeOptions(device="cpu", threads=1)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("models")
    made = [hub_folder("gpt2", folder / "one"), hub_folder("gpt2", folder / "other", seed=5)]
    return [str(one) for one in (*made, hub_folder("bert", folder / "bert"))]


@pytest.fixture
def paradigms(tmp_path: Path) -> list[str]:
    """Three files, each a paradigm."""
    pairs = [(one, other) for one in SENTENCES for other in SENTENCES if one < other]
    return [str(pairs_file(tmp_path / f"{name}.jsonl", pairs[n::3])) for n, name in enumerate(("who", "what", "where"))]


def asked(models: list[str], probe: Any, out: Path) -> Any:
    return evaluate(models, [probe], means=CPU, out=str(out))


def right(result: Any) -> dict[str, list[bool]]:
    told: dict[str, list[bool]] = {}
    for record in result.records:
        told.setdefault(record.group, []).append(minimal_pairs._right(record.scores) == 1)
    return told


def test_differences_by_hand(models: list[str], paradigms: list[str], tmp_path: Path) -> None:
    """Overall with errors over paradigms, of a paradigm by McNemar's test; each model less the first."""
    results = asked(models, minimal_pairs.MinimalPairs(files=tuple(paradigms)), tmp_path)
    first, *others = map(right, results)
    found = comparison.compare(results)
    assert [(one.first, one.second) for one in found] == [("one", "other"), ("one", "bert")]
    for one, second in zip(found, others, strict=True):
        differences = {name: np.subtract(second[name], first[name], dtype=float) * 100 for name in first}
        flat = np.concatenate([*differences.values()])
        assert one.over.mean == pytest.approx(flat.mean())
        sums = [(part - flat.mean()).sum() for part in differences.values()]
        assert one.over.error == pytest.approx(math.sqrt(np.square(sums).sum() * 3 / 2) / len(flat))
        assert (one.examples, one.over.groups) == (36, 3)
        for each in one.paradigms:
            more, less = (int((differences[each.name] * sign > 0).sum()) for sign in (1, -1))
            assert (each.more, each.less, each.p) == (more, less, sign_test(more, less))
            assert each.difference == pytest.approx(differences[each.name].mean())
            assert each.first == pytest.approx(100 * np.mean(first[each.name]))
    assert any(each.more or each.less for one in found for each in one.paradigms)


def test_the_error_of_one_model_knows_of_paradigms(models: list[str], paradigms: list[str], tmp_path: Path) -> None:
    """The mean over paradigms has an error, too; pairs of a single paradigm are independent."""
    [result] = asked(models[:1], minimal_pairs.MinimalPairs(files=tuple(paradigms)), tmp_path)
    told = right(result)
    values = [100.0 * one for marks in told.values() for one in marks]
    names = [name for name, marks in told.items() for _ in marks]
    assert result.finding.errors["accuracy"] == pytest.approx(clustered(values, [1.0] * 36, names).error)
    means = [100 * np.mean(marks) for marks in told.values()]
    assert result.finding.facts["paradigm_mean"] == pytest.approx(np.mean(means))
    assert result.finding.errors["paradigm_mean"] == pytest.approx(np.std(means, ddof=1) / math.sqrt(3))
    [single] = asked(models[:1], minimal_pairs.MinimalPairs(files=(paradigms[0],)), tmp_path)
    p = single.finding.facts["accuracy"] / 100
    assert single.finding.errors["accuracy"] == pytest.approx(100 * math.sqrt(p * (1 - p) / 11))
    assert "paradigm_mean" not in single.finding.errors


def test_the_command_prints_one_table(
    models: list[str], paradigms: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Writes it as JSON, and the scores of every pair under the names of the models."""
    models = models[::2]
    words = [
        "evaluate",
        *models,
        "--probe",
        "minimal_pairs",
        *paradigms,
        "--out",
        str(tmp_path / "out"),
        "--device",
        "cpu",
        "--threads",
        "1",
    ]
    main([*words, "--each", str(tmp_path / "each.jsonl")])
    out = capsys.readouterr().out
    [row] = [
        line
        for line in out.splitlines()
        if line.startswith("| minimal_pairs") and "| one " in line and "| bert " in line
    ]
    assert [cell.strip() for cell in row.split("|")][3:6] == ["accuracy", "bert", "one"]
    assert "bert less one, accuracy: 0 of 3 groups differ" in out
    [path] = (tmp_path / "out").glob("comparison-*.json")
    assert f"{path}: written" in out
    rows = [json.loads(line) for line in (tmp_path / "each.jsonl").read_text().splitlines()]
    assert [row["model"] for row in rows] == [models[0]] * 36 + [models[1]] * 36
    main([*words, "--json"])
    told = json.loads(capsys.readouterr().out)
    [found] = told["comparisons"]
    assert json.loads(path.read_text()) == {"comparisons": [found]}
    both = [one["accuracy"] for one in told["results"]]
    assert found["difference"] == pytest.approx(both[1] - both[0])
    assert found["interval"][0] < found["difference"] < found["interval"][1]
    counts = [sum(row["right"] for row in rows if row["model"] == model) for model in models]
    assert found["difference"] == pytest.approx(100 * (counts[1] - counts[0]) / 36)


def test_one_model_alone_is_compared_with_nobody(models: list[str], paradigms: list[str], tmp_path: Path) -> None:
    """Nor with itself."""
    probe = minimal_pairs.MinimalPairs(files=tuple(paradigms))
    for probe_key in (models[:1], models[:1] * 2):
        assert comparison.compare(asked(probe_key, probe, tmp_path)) == []
    assert comparison.table([]) == []
    lab = SimpleNamespace()  # a user's probe without `compared`
    assert comparison.compare([replace(one, probe=lab) for one in asked(models[:2], probe, tmp_path)]) == []
    with pytest.raises(RecipeError, match="--each: found with several probes"):
        check(models, [probe, probe], "each.jsonl")


def test_each_paradigm_and_all_of_them() -> None:
    """Six that the second alone has right: 2 / 2^6; of two such tests it is twice as much."""
    pairs = [(PairedExample(str(n), "a", {"x": 0.0}), PairedExample(str(n), "a", {"x": 100.0})) for n in range(6)]
    pairs += [
        (PairedExample(str(n), "b", {"x": 100.0 * (n > 6)}), PairedExample(str(n), "b", {"x": 100.0 * (n < 7)}))
        for n in (6, 7)
    ]
    one, other = comparison._paradigms(pairs, "x")
    assert (one.name, one.more, one.less, one.p, one.p_of_all) == ("a", 6, 0, 2 / 64, 4 / 64)
    assert (other.name, other.more, other.less, other.p, other.p_of_all) == ("b", 1, 1, 1.0, 1.0)


def test_last_words_and_windows_are_compared(
    models: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Passages are independent; windows are compared by nats per token, if the tokenizers are the same."""
    passages, text = tmp_path / "x.jsonl", tmp_path / "x.txt"
    passages.write_text("".join(json.dumps({"text": f"{one} newt"}) + "\n" for one in SENTENCES))
    text.write_text("\n".join(SENTENCES * 9))
    results = asked(models[:2], cloze.Cloze(files=(str(passages),)), tmp_path)
    found = {one.score: one for one in comparison.compare(results)}
    first, second = (one.finding.facts for one in results)
    assert {*found} == {"last_token", "word"}
    for score, one in found.items():
        assert one.over.mean == pytest.approx(second[score] - first[score])
        assert (one.over.groups, one.paradigms) == (9, [])
    results = asked(models[:2], bits.Bits(files=(str(text),)), tmp_path)
    [one] = comparison.compare(results)
    logs = [math.log(2) * one.finding.facts["bits_per_byte"] * len(text.read_bytes()) for one in results]
    scored = results[0].finding.facts["scored"]
    unknown = [one.finding.facts.get("unknown_tokens", 0) for one in results]
    assert unknown == [0, 0]
    assert one.over.mean == pytest.approx((logs[1] - logs[0]) / scored)
    results[1].records[0] = replace(results[1].records[0], targets=results[1].records[0].targets + 1)
    assert comparison.compare(results) == []
    assert "splits bits-x into other windows than" in capsys.readouterr().err


def test_windows_that_are_drawn_are_pairs_where_texts_are_cut_alike(
    models: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Equal numbers of windows and tokens are not enough: other pieces are other texts."""
    text = tmp_path / "x.jsonl"
    text.write_text("".join(json.dumps({"text": one}) + "\n" for one in SENTENCES * 9))
    other = tmp_path / "strange"
    shutil.copytree(models[1], other)
    table = json.loads((other / "tokenizer.json").read_text())
    known = table["model"]["vocab"]
    known["the"], known["cat"] = known["cat"], known["the"]
    (other / "tokenizer.json").write_text(json.dumps(table))
    probe = perplexity.Perplexity(files=(str(text),), window=8, iterations=1, batch=3)
    first, second, third = asked([*models[:2], str(other)], probe, tmp_path)
    assert [[one.key for one in each.probe.compared(each.records)] for each in (first, third)] == [
        [f"{n}:8" for n in range(3)]
    ] * 2
    [found] = comparison.compare([first, second, third])
    assert found.second == "other"
    assert "splits perplexity-x into other tokens than" in capsys.readouterr().err
