"""How much text a run was trained on: tokens as counted, words estimated from its data."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from kit.language_models import made
from ordsmed.weights.text_amount import seen


def run_of(folder: Path, step: int | None, **data: Any) -> Any:
    """A model of a run that learned from two sources, three tokens of one for each of the other."""
    lines = [{"step": n, "tokens": 100, "loss": 1.0} for n in (1, 2, 3)]
    lines.insert(2, {"step": 2, "validation": 1.0})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"step": 4, "tok')
    (folder / "data.json").write_text(json.dumps(data))
    return replace(made("gpt2", folder), recipe={"data": {"a": 3, "b": 1}, "phase": [{}]}, step=step)


def test_tokens_and_words_up_to_a_step(tmp_path: Path) -> None:
    one, other = {"train": {"tokens": 1000, "words": 500}}, {"train": {"tokens": 1000, "words": 100}}
    trained = run_of(tmp_path, 2, a=one, b=other)
    assert seen(trained) == {"tokens": 200, "words": 200 * 0.75 * 0.5 + 200 * 0.25 * 0.1}
    assert seen(replace(trained, step=0)) == {"tokens": 0, "words": 0}
    assert seen(replace(trained, step=9))["tokens"] == 300
    assert seen(run_of(tmp_path, 2, a=one, b={"train": {"tokens": 1000}})) == {"tokens": 200}
    assert seen(replace(trained, recipe=None)) == {}
    (tmp_path / "metrics.jsonl").unlink()
    assert seen(trained) == {}
