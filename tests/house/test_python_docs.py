"""The code of docs/python.md and of its notebook runs, in order, with recipes that take seconds."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGE, NOTEBOOK = ROOT / "docs/python.md", ROOT / "docs/python.ipynb"
CELLS = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]


@pytest.fixture(params=["an empty folder", "after README"])
def beside_recipes(request: Any, tiny_run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with quick recipes under the page's names, and what README's commands leave, or nothing else."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ordsmed.train.runner.measured_peak", lambda *_: 1e11)
    Path("tiny").mkdir()
    for name in ("bert", "gpt2"):
        text = (tiny_run.folder / f"pretrain-{name}.toml").read_text()
        Path(f"tiny/{name}").write_text(re.sub(r"^out = .*\n", "", text, flags=re.MULTILINE))
    for name in ("words", "sentences", "questions"):  # whose words a tokenizer of 40 pieces does not know
        text = (ROOT / f"src/ordsmed/recipes/tiny/{name}.toml").read_text()
        Path(f"tiny/{name}").write_text(f"max_unknown = 1.0\n{text}")
    if request.param == "after README":
        for name in ("work/pretrain/tiny-bert", "work/short", "work/quickstart/model"):
            shutil.copytree(tiny_run.bert, name)
    return tmp_path


@pytest.mark.long
def test_the_code_of_the_page_runs_and_runs_again(beside_recipes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) >= 5
    for _ in range(2):
        names: dict[str, Any] = {}
        for block in blocks:
            block = block.replace("steps=100", "steps=4").replace("seeds=[1, 2, 3]", "seeds=[1, 2]")
            exec(compile(block, str(PAGE), "exec"), names)
        told = capsys.readouterr().out
        assert "fill, generate, score, embed>" in told
        assert "cannot answer: it is a bert that learned mlm" in told
    assert names["run"].scores["step"] > 0
    assert len(names["three"].trials) == 2
    assert Path("work/python/vectors.npz").exists()
    assert Path("work/python/predictions/scores.json").exists()
    assert len(list(Path("work/python/gpt2/scores").glob("perplexity-texts-*.json"))) == 1


def test_the_cells_of_the_notebook_run(beside_recipes: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
