"""The code of docs/python.md and of its notebook runs, in order, on tiny runs that stand where it looks for them."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from kit.task_files import LABELS, task_files
from ordsmed.base import settings
from ordsmed.base.files import write_text
from ordsmed.base.folder import SETTINGS, WEIGHTS
from ordsmed.learn.objective import fresh
from ordsmed.learn.tasks import classify, squad, tag
from ordsmed.nn.model import own_tensors
from ordsmed.nn.models import bert
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.weights import weights
from ordsmed.weights.foreign import Networks

ROOT = Path(__file__).parents[2]
PAGE, NOTEBOOK = ROOT / "docs/python.md", ROOT / "docs/python.ipynb"
CELLS = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
WORDS = """
epochs = 1
batch = 16
rate = 1e-3
features = ""
[task]
kind = "tag"
train = "{data}/train.conll"
dev = "{data}/dev.conll"
length = 32
"""


@pytest.fixture
def at_work(tiny_run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place where what the page names stands: recipes of its names, runs, and small networks for each task."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ordsmed.train.session.measured_peak", lambda *_: 1e11)
    data = task_files(tmp_path / "data", train=24, dev=6)
    Path("texts.txt").write_text("it is old\nthe value of it\n")
    Path("tiny").mkdir()
    shutil.copy(tiny_run.folder / "pretrain-bert.toml", "tiny/bert")
    text = re.sub(r"^out = .*\n", "", Path("tiny/bert").read_text(), flags=re.MULTILINE)
    Path("tiny/bert").write_text(text)
    Path("tiny/words").write_text("most_unknown = 1.0\n" + WORDS.format(data=data))
    for name, run in (("bert", tiny_run.bert), ("gpt2", tiny_run.gpt2)):
        shutil.copytree(run, f"work/pretrain/tiny-{name}")
    tokenizer = Tokenizer.load(data / "vocab.txt")
    model = bert.Bert(width=16, layers=1, heads=2, inner=16, positions=64)
    tasks: dict[str, Any] = {
        "sentences": classify.Classify(labels=LABELS, length=40), "questions": squad.Squad(version="1.1", length=48),
        "words": tag.Tag(labels=("B-HIGH", "I-HIGH", "O"), file_scheme="IOB2", length=40),
    }  # fmt: skip
    for name, task in tasks.items():
        folder = Path(f"work/finetune/tiny-{name}")
        folder.mkdir(parents=True)
        weights.write(folder / WEIGHTS, own_tensors(fresh(task, model, tokenizer, 3)))
        write_text(folder / SETTINGS, settings.write(Networks(model=model, task=task)))
        tokenizer.save(folder / "tokenizer")
    return tmp_path


@pytest.mark.long
def test_the_code_of_the_page_runs(at_work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) >= 5
    names: dict[str, Any] = {}
    for block in blocks:
        block = block.replace("steps=100", "steps=4").replace("seeds=[1, 2, 3]", "seeds=[1, 2]")
        exec(compile(block, str(PAGE), "exec"), names)
    told = capsys.readouterr().out
    assert "fill, generate, score, embed>" in told
    assert "cannot answer: it is a bert that learned mlm" in told
    assert Path("work/short/recipe.toml").exists()
    assert names["run"].scores["step"] > 0
    assert len(names["three"].trials) == 2
    assert Path("work/vectors.npz").exists()
    assert Path("work/predictions/scores.json").exists()
    assert len(list(Path("work/pretrain/tiny-gpt2/scores").glob("perplexity-texts-*.json"))) == 1


def test_the_cells_of_the_notebook_run(at_work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    for cell in CELLS:
        if cell["cell_type"] == "code":
            code = "".join(cell["source"]).replace('"tiny/bert", out', '"tiny/bert", steps=4, out')
            exec(compile(code, str(NOTEBOOK), "exec"), names)
    assert "cannot answer: it is a bert that learned mlm" in capsys.readouterr().out
    assert names["run"].state == "done"
    assert len(names["losses"]) == 4


def test_the_notebook_shows_what_came_of_each_cell_and_no_place_of_a_machine() -> None:
    """Made again by `jupyter nbconvert --to notebook --execute --inplace docs/python.ipynb`."""
    cells = [cell for cell in CELLS if cell["cell_type"] == "code"]
    assert [cell["source"] for cell in cells if not cell["outputs"]] == []
    assert any("<svg" in "".join(output.get("data", {}).get("text/html", "")) for output in cells[1]["outputs"])
    assert not re.search(r"/(home|root|tmp|work/wt|usr)/|[A-Z]:\\\\", NOTEBOOK.read_text(encoding="utf-8"))
