"""`masked_loss`: the same rows and places of every model with a tokenizer, scored as transformers scores them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from conftest import TinyRuns
from maker.test_texts import prose
from ordsmed.maker.speedrun import masked_loss as module
from ordsmed.maker.speedrun.masked_loss import masked_loss
from ordsmed.weights.export import export
from ordsmed.weights.trained_model import open_model


def corpus_of(folder: Path, texts: list[str]) -> Path:
    (folder / "validation").mkdir(parents=True)
    lines = (json.dumps({"text": text}) + "\n" for text in texts)
    (folder / "validation/00000.jsonl").write_text("".join(lines))
    return folder


@pytest.mark.filterwarnings("ignore")
def test_loss_is_that_of_transformers_alone(
    tiny_run: TinyRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the code that scores folders of others."""
    pytest.importorskip("transformers")
    from measure import quality_hf

    monkeypatch.setattr(module, "ROWS", 7)
    monkeypatch.setattr(module, "TOGETHER", 3)
    monkeypatch.setattr(quality_hf, "ROWS", 7)
    documents = [prose(6, seed=number) for number in range(7)]  # of more rows than are taken
    found = masked_loss(open_model(tiny_run.bert), corpus_of(tmp_path / "corpus", documents))
    folder = export(str(tiny_run.bert), tmp_path / "hub")
    halves = quality_hf.scores("masked", tmp_path / "corpus", str(folder), 64)
    assert found == pytest.approx(sum(halves.values()) / 2, abs=2e-4)
    assert abs(halves["first half"] - halves["second half"]) > 1e-3


def test_documents_too_short_leave_it_out(
    tiny_run: TinyRuns, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = corpus_of(tmp_path / "corpus", ["it is old.", "it is new."])
    assert masked_loss(open_model(tiny_run.bert), corpus) is None
    assert "no held-out document has 62 tokens; masked_loss is left out" in capsys.readouterr()[1]
