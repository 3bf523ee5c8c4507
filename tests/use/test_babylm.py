"""The folder that BabyLM's evaluation reads: revisions by words, found by path and by name, scored there as here."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kit.babylm_folder import made as folder_made
from kit.babylm_folder import write
from ordsmed.base.errors import RecipeError
from ordsmed.data.store import Store
from ordsmed.measure.babylm import reading
from ordsmed.measure.evaluation.evaluate import ComputeOptions, evaluate
from ordsmed.measure.likelihood import ways
from ordsmed.measure.probes.babylm import BabyLmSuite
from ordsmed.measure.probes.minimal_pairs import MinimalPairs
from ordsmed.train.pretrain.pretrain import pretrain
from ordsmed.weights.export import export
from ordsmed.weights.formats.babylm import BabyLm
from ordsmed.weights.trained_model import open_model

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.long]
TEXT = "w1 w2 w3 w2 w7"


@pytest.fixture
def run(recipe: Callable[..., Path], store: Path, tmp_path: Path) -> Path:
    """A hybrid that both kept weights by words and goes two ways."""
    shutil.copytree(store, tmp_path / "counted")
    np.save(tmp_path / "counted/train.words.npy", np.asarray(Store.open(store / "train").lengths, np.int32))
    how: dict[str, Any] = {"data": str(tmp_path / "counted"), "revisions_at_words": [500, 1000], "save": 100}
    return pretrain(str(recipe("both", "modern", "hybrid", steps=6, validate=100, **how)))


def opened(folder: Path, name: str, way: str, revision: str = "main") -> tuple[Any, Any]:
    """A model that is found by its name, without a network, and its tokenizer, as the evaluation loads them."""
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer

    how: dict[str, Any] = {"revision": revision, "cache_dir": str(folder / "hub"), "local_files_only": True}
    family = AutoModelForCausalLM if way == "causal" else AutoModelForMaskedLM
    return family.from_pretrained(name, **how).eval(), AutoTokenizer.from_pretrained(name, **how)


def logs_of(model: Any, ids: list[int], at: int) -> torch.Tensor:
    with torch.no_grad():
        return torch.as_tensor(model(torch.tensor([ids])).logits[0, at - 1].log_softmax(-1))


def sum_of(model: Any, cutter: Any, way: str, text: str, begin: int = 0) -> float:
    """What the evaluation compares: of the tokens that reach beyond a character, each of masks hidden by itself."""
    asked = cutter(text, return_offsets_mapping=True)
    ids, total = asked["input_ids"], 0.0
    for at in [n for n, (_, end) in enumerate(asked["offset_mapping"]) if end > begin]:
        shown = [cutter.mask_token_id if way == "masked" and n == at else token for n, token in enumerate(ids)]
        total += float(logs_of(model, shown, at)[ids[at]])
    return total


def theirs(folder: Path, name: str, revision: str, way: str) -> float:
    return sum_of(*opened(folder, name, way, revision), way, TEXT)


def test_revisions_are_found_by_name_and_score_as_here(run: Path, tmp_path: Path) -> None:
    out = export(run, tmp_path / "out", to="babylm", overrides=["name=mine"])
    labels = {"main", "chck_500", "chck_1000"}
    assert {path.parent.name for path in out.glob("*/config.json")} == labels
    assert {path.parent.name for path in out.glob("causal/*/config.json")} == labels
    (tmp_path / "pairs.jsonl").write_text(json.dumps({"good": TEXT, "bad": "w1"}) + "\n")
    steps = {
        json.loads(p.read_text())["reached"][0]: int(p.parent.name[5:])
        for p in run.glob("checkpoints/*/state.json")
        if json.loads(p.read_text())["reached"]
    }
    sums = []
    for revision, step in {**steps, "main": None}.items():
        for name, way in (("mine", "masked"), ("mine-causal", "causal")):
            trained = open_model(run, step)
            probe, scorer = MinimalPairs((str(tmp_path / "pairs.jsonl"),), scoring="babylm"), ways.scorer(trained, way)
            [example] = probe.examples(scorer)
            sums.append(theirs(out, name, revision, way))
            assert probe.record(example, scorer.scores(list(example.items))).to_list()[2] == pytest.approx(
                sums[-1], abs=1e-4
            )
    assert len(set(sums)) == 6
    card = (out / "README.md").read_text()
    assert "--model_path_or_name mine --revision_name main --backend mntp" in card
    assert "--model_path_or_name mine-causal --revision_name main --backend causal" in card
    moved = out.rename(tmp_path / "moved")
    assert theirs(moved, "mine", "main", "masked") == sums[-2]


@pytest.mark.parametrize("way", ["masked", "causal"])
def test_questions_and_words_score_as_in_transformers(run: Path, tmp_path: Path, way: str) -> None:
    out = export(run, tmp_path / "out", to="babylm", overrides=["name=mine"])
    model, cutter = opened(out, "mine" if way == "masked" else "mine-causal", way)
    trained = open_model(run)
    scorer = ways.scorer(trained, way)
    row = {"Context1": "w1 w2 w3", "Target1": "w2 w7", "Context2": "w5 w1", "Target2": "w4", "Domain": "d"}
    write(tmp_path / "ewok_filtered/d.jsonl", [row])
    [example] = BabyLmSuite((str(tmp_path / "ewok_filtered"),)).examples(scorer)
    for item, context in zip(scorer.scores(list(example.items)), ("w1 w2 w3", "w5 w1"), strict=True):
        total = sum_of(model, cutter, way, f"{context} w2 w7", len(context))
        assert item.total == pytest.approx(total, abs=1e-5)
    [item] = reading.items(scorer, "w1 w2", "w3")
    target = cutter("w3", add_special_tokens=False)["input_ids"][0]
    masks = cutter.mask_token * 3 if way == "masked" else ""
    ids = cutter(f"w1 w2{masks}")["input_ids"]
    at = ids.index(cutter.mask_token_id) if way == "masked" else len(ids)
    [scores] = scorer.scores([item])
    assert float(scores.logs[0]) == pytest.approx(float(logs_of(model, ids, at)[target]), abs=1e-5)


def test_a_run_is_asked_at_its_revisions(run: Path, tmp_path: Path) -> None:
    """The whole folder, both ways: AoA over the weights by words; the same again is what is kept."""
    pytest.importorskip("scipy", reason="fits are scipy's")
    folder = folder_made(tmp_path / "full_eval", words=80)
    found = {}
    for way in ("masked", "causal"):
        probe = [BabyLmSuite((str(folder),), way=way)]
        [result] = found[way] = evaluate([str(run)], probe, means=ComputeOptions(max_unknown=1.0))
        assert result.finding.facts["aoa"] == 0.0
        assert "AoA over 2 revisions: 0 words with both ages known" in result.finding.note
        revisions = [json.loads(path.read_text()) for path in (run / "scores").glob("babylm-*.json")]
        own = [row for row in revisions if row["settings"]["part"] == "aoa" and row["way"] == way]
        assert sorted(row["seen"]["words"] >= 500 for row in own) == [True, True]
        assert all(isinstance(row["aoa_surprisal"], float) for row in own)
        [again] = evaluate([str(run)], probe, means=ComputeOptions(max_unknown=1.0))
        assert again.plain() == result.plain()
    assert found["masked"][0].records != found["causal"][0].records
    [early] = evaluate([str(run)], [BabyLmSuite((str(folder),))], step=0, means=ComputeOptions(max_unknown=1.0))
    assert "aoa" not in early.finding.facts


def test_what_has_no_revisions_is_refused_or_told(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = export(run, tmp_path / "hub")
    with pytest.raises(RecipeError, match="is not a run, so it has no revisions; wanted the folder of a pretraining"):
        export(out, tmp_path / "again", to="babylm")
    with pytest.raises(ValueError, match="name: found a/b; wanted a name without"):
        BabyLm(name="a/b")
    early = export(run, tmp_path / "early", 0, to="babylm")
    assert [path.name for path in (early / "hub/models--both/snapshots").iterdir()] == ["main"]
    assert "saved no weights by words up to step 0" in capsys.readouterr().err
