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
from ordsmed.base.errors import RecipeError
from ordsmed.data.store import Store
from ordsmed.measure.evaluation.evaluate import Means, evaluate
from ordsmed.measure.likelihood import ways
from ordsmed.measure.probes.babylm import BabyLmSuite
from ordsmed.measure.probes.minimal_pairs import MinimalPairs
from ordsmed.train.pretrain.pretrain import pretrain
from ordsmed.weights.export import export
from ordsmed.weights.formats.babylm import BabyLm
from ordsmed.weights.trained import open_model

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.long]
TEXT = "w1 w2 w3 w2 w7"


@pytest.fixture
def run(recipe: Callable[..., Path], store: Path, tmp_path: Path) -> Path:
    """A hybrid that both kept weights by words and goes two ways."""
    shutil.copytree(store, tmp_path / "counted")
    np.save(tmp_path / "counted/train.words.npy", np.asarray(Store.open(store / "train").lengths, np.int32))
    how: dict[str, Any] = {"data": str(tmp_path / "counted"), "revisions_at_words": [500, 1000], "save": 100}
    return pretrain(str(recipe("both", "modern", "hybrid", steps=6, validate=100, **how)))


def theirs(folder: Path, name: str, revision: str, way: str) -> float:
    """The sum that the evaluation compares, from a model that is found by its name, without a network."""
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer

    how: dict[str, Any] = {"revision": revision, "cache_dir": str(folder / "hub"), "local_files_only": True}
    cutter = AutoTokenizer.from_pretrained(name, **how)
    model = (AutoModelForCausalLM if way == "causal" else AutoModelForMaskedLM).from_pretrained(name, **how).eval()
    asked = cutter(TEXT, return_offsets_mapping=True)
    ids, total = asked["input_ids"], 0.0
    for at in [n for n, (_, end) in enumerate(asked["offset_mapping"]) if end]:
        shown = list(ids)
        if way == "masked":
            shown[at] = cutter.mask_token_id
        with torch.no_grad():
            logs = model(torch.tensor([shown])).logits[0].log_softmax(-1)
        total += float(logs[at - 1, ids[at]])
    return total


def test_revisions_are_found_by_name_and_score_as_here(run: Path, tmp_path: Path) -> None:
    out = export(run, tmp_path / "out", to="babylm", overrides=["name=mine"])
    labels = {"main", "chck_500", "chck_1000"}
    assert {path.parent.name for path in out.glob("*/config.json")} == labels
    assert {path.parent.name for path in out.glob("causal/*/config.json")} == labels
    (tmp_path / "pairs.jsonl").write_text(json.dumps({"good": TEXT, "bad": "w1"}) + "\n")
    steps = {json.loads(p.read_text())["reached"][0]: int(p.parent.name[5:])
             for p in run.glob("checkpoints/*/state.json") if json.loads(p.read_text())["reached"]}  # fmt: skip
    sums = []
    for revision, step in {**steps, "main": None}.items():
        for name, way in (("mine", "masked"), ("mine-causal", "causal")):
            trained = open_model(run, step)
            probe, scorer = MinimalPairs((str(tmp_path / "pairs.jsonl"),), scoring="babylm"), ways.scorer(trained, way)
            [example] = probe.examples(scorer)
            sums.append(theirs(out, name, revision, way))
            assert probe.record(example, scorer.scores(list(example.items)))[2] == pytest.approx(sums[-1], abs=1e-4)
    assert len(set(sums)) == 6
    card = (out / "README.md").read_text()
    assert "--model_path_or_name mine --revision_name main --backend mntp" in card
    assert "--model_path_or_name mine-causal --revision_name main --backend causal" in card
    moved = out.rename(tmp_path / "moved")
    assert theirs(moved, "mine", "main", "masked") == sums[-2]


def test_a_run_is_asked_at_its_revisions(run: Path, tmp_path: Path) -> None:
    """The whole folder, both ways: AoA over the weights by words; the same again is what is kept."""
    pytest.importorskip("scipy", reason="fits are scipy's")
    folder = folder_made(tmp_path / "full_eval", words=80)
    found = {}
    for way in ("masked", "causal"):
        probe = [BabyLmSuite((str(folder),), way=way)]
        [result] = found[way] = evaluate([str(run)], probe, means=Means(most_unknown=1.0))
        assert result.finding.facts["aoa"] == 0.0
        assert "AoA over 2 revisions: 0 words of which both ages are known" in result.finding.how
        revisions = [json.loads(path.read_text()) for path in (run / "scores").glob("babylm-*.json")]
        own = [row for row in revisions if row["settings"]["part"] == "aoa" and row["way"] == way]
        assert sorted(row["seen"]["words"] >= 500 for row in own) == [True, True]
        assert all(isinstance(row["aoa_surprisal"], float) for row in own)
        [again] = evaluate([str(run)], probe, means=Means(most_unknown=1.0))
        assert again.plain() == result.plain()
    assert found["masked"][0].records != found["causal"][0].records
    [early] = evaluate([str(run)], [BabyLmSuite((str(folder),))], step=0, means=Means(most_unknown=1.0))
    assert "aoa" not in early.finding.facts


def test_what_has_no_revisions_is_refused_or_told(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = export(run, tmp_path / "hub")
    with pytest.raises(RecipeError, match="is no run, so it has no revisions; wanted the folder of a pretraining"):
        export(out, tmp_path / "again", to="babylm")
    with pytest.raises(ValueError, match="name: found a/b; wanted a name without"):
        BabyLm(name="a/b")
    early = export(run, tmp_path / "early", 0, to="babylm")
    assert [path.name for path in (early / "hub/models--both/snapshots").iterdir()] == ["main"]
    assert "kept no weights by words up to step 0" in capsys.readouterr().err
