"""Hybrids: exported as classes of others that give the same numbers, opened again, tuned and embedded both ways."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from kit.families import close, shaken
from kit.makers import make_store
from kit.task_files import task_files
from ordsmed.base import files
from ordsmed.base.errors import RecipeError
from ordsmed.learn.objectives import hybrid
from ordsmed.nn.models import gpt2, modern
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.train.finetune.finetune import finetune
from ordsmed.use.fill import fill
from ordsmed.use.generate import generate
from ordsmed.use.generation.options import SamplingOptions
from ordsmed.use.readers import TransformerReader
from ordsmed.weights import card
from ordsmed.weights.export import export
from ordsmed.weights.formats import huggingface
from ordsmed.weights.trained_model import Trained, open_model

FAMILIES = {
    "modern": modern.ModernBert(width=32, layers=4, heads=2, positions=40, window=6, initializer_std=0.2),
    "gpt2": gpt2.Gpt2(width=32, layers=2, heads=2, positions=40),
}
TEXT = "w1 [MASK] w3 w4 [MASK] w6 w7 w8 w9 w10 w11"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer.load(make_store(tmp_path_factory.mktemp("hybrids") / "store") / "tokenizer")


def model_of(family: str, tokenizer: Tokenizer, folder: Path) -> Trained:
    torch.manual_seed(5)
    learned = hybrid.Hybrid(mask_prob=0.3)
    objective = shaken(learned.build(FAMILIES[family], tokenizer))
    return Trained(objective, tokenizer, FAMILIES[family], folder, learned=learned)


@pytest.fixture(params=FAMILIES)
def exported(request: pytest.FixtureRequest, tokenizer: Tokenizer, tmp_path: Path) -> Iterator[tuple[Trained, Path]]:
    """A hybrid, and the folders that are written of it."""
    trained = model_of(request.param, tokenizer, tmp_path / "run")
    (tmp_path / "out").mkdir()
    huggingface.HuggingFace().write(trained, tmp_path / "out")
    return trained, tmp_path / "out"


def test_their_classes_give_the_same_scores(exported: tuple[Trained, Path]) -> None:
    import transformers as t

    trained, out = exported
    causal = out if trained.causal else out / "causal"
    tokenizer, objective = trained.tokenizer, trained.objective
    ids = torch.randint(6, tokenizer.vocabulary, (3, 30), generator=torch.Generator().manual_seed(1))
    rows, places = torch.ones_like(ids), torch.arange(30).expand(3, -1)
    goes_on, report = t.AutoModelForCausalLM.from_pretrained(causal, output_loading_info=True)
    assert not any(report.values())
    with torch.no_grad():
        ours = objective.head(objective.model(ids, places, rows, causal=torch.ones(3, dtype=torch.bool)))
        assert close(goes_on.eval()(ids).logits, ours, 1e-5)
    assert files.read_table(causal / "config.json")["ordsmed"]["kind"] == "hybrid"
    if trained.causal:
        assert not (out / "causal").exists()
        return
    assert type(goes_on).__name__ == "ModernBertDecoderForCausalLM"
    fills, report = t.AutoModelForMaskedLM.from_pretrained(out, output_loading_info=True)
    assert not any(report.values())
    with torch.no_grad():
        ours = objective.head(objective.model(ids, places, rows, causal=torch.zeros(3, dtype=torch.bool)))
        assert close(fills.eval()(ids).logits, ours, 1e-5)
        end = [tokenizer.end]
        asked = [*end, *tokenizer.encode(TEXT), *end]
        gaps = [place for place, number in enumerate(asked) if number == tokenizer.mask]
        shares = fills(torch.tensor([asked])).logits[0].softmax(-1)
    for guesses, gap in zip(fill(trained, TEXT, 4).masks, gaps, strict=True):
        assert [guess.probability for guess in guesses] == pytest.approx(
            shares[gap - 1].topk(4).values.tolist(), rel=1e-4
        )


def test_their_folders_open_again_as_hybrids(exported: tuple[Trained, Path]) -> None:
    trained, out = exported
    way = SamplingOptions(12, temperature=0)
    for folder in (out, *([] if trained.causal else [out / "causal"])):
        again = open_model(folder)
        assert again.objective.shifted
        assert again.learned == trained.learned
        assert fill(again, TEXT, 3) == fill(trained, TEXT, 3)
        assert generate(again, "w1 w2", way) == generate(trained, "w1 w2", way)


def test_the_card_tells_what_each_folder_holds(
    exported: tuple[Trained, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    trained, out = exported
    told, inner = card.write(trained, str(out)), card.inner(trained, "out")
    assert "continues texts, reading them from left to right, and fills masked tokens" in told
    if trained.causal:
        assert inner == {}
        assert "No class of transformers fills its masks; `ordsmed fill` and `ordsmed embed` do." in told
        return
    assert "for the next token. The folder above fills masked tokens." in inner["causal"]
    code = told.split("```python\n")[2].split("```")[0].replace("This is a", "w1 w2")
    (out.parent / "asks.py").write_text(code)
    runpy.run_path(str(out.parent / "asks.py"))
    assert capsys.readouterr().out.strip() == fill(trained, "w1 w2 [MASK].", 1).masks[0][0].text


def test_export_writes_a_card_for_each(tokenizer: Tokenizer, tmp_path: Path) -> None:
    trained = model_of("modern", tokenizer, tmp_path / "run")
    (tmp_path / "hub").mkdir()
    huggingface.HuggingFace().write(trained, tmp_path / "hub")
    out = export(tmp_path / "hub", tmp_path / "out")
    assert {path.name for path in (out / "causal").iterdir()} >= {"README.md", "config.json", "generation_config.json"}
    assert not (out / "generation_config.json").exists()


@pytest.mark.parametrize("family", FAMILIES)
def test_vectors_see_both_sides(family: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    trained = model_of(family, tokenizer, tmp_path)
    one, other = TransformerReader(trained, [trained.settings.layers]).read(["w1 w2 w3", "w1 w2 w9"])
    assert np.abs(one.vectors[0, 0] - other.vectors[0, 0]).max() > 1e-3


@pytest.mark.long
@pytest.mark.parametrize(("family", "inner"), [("gpt2", ""), ("modern", ""), ("modern", "causal")])
def test_a_task_sees_both_sides(family: str, inner: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ordsmed.train.runner.measured_peak", lambda *_: 1e12)
    data = task_files(tmp_path / "data")
    trained = model_of(family, Tokenizer.load(data / "vocab.txt"), tmp_path / "run")
    (tmp_path / "hub").mkdir()
    huggingface.HuggingFace().write(trained, tmp_path / "hub")
    words = [
        f"init={tmp_path / 'hub' / inner}",
        "steps=3",
        "batch=8",
        "learning_rate=1e-3",
        "features=",
        "layout.threads=1",
        "task.kind=tag",
        f"task.train={data}/train.conll",
        "task.length=24",
        'layout.device="cpu"',
        f"out={tmp_path / 'tagged'}",
    ]
    (tmp_path / "recipe.toml").write_text("[task]\nkind = 'tag'\n")
    tagged = open_model(finetune(str(tmp_path / "recipe.toml"), words))
    assert not tagged.causal
    ids = torch.tensor([[2, 7, 8, 9], [2, 7, 8, 10]])
    with torch.no_grad():
        states = tagged.objective.model(ids, torch.arange(4).expand(2, -1))
    assert not torch.equal(states[0, 1], states[1, 1])
    if family == "gpt2":
        with pytest.raises(
            RecipeError,
            match="is a gpt2 with bidirectional attention, which no class of transformers is; `ordsmed predict`",
        ):
            export(tagged.folder, tmp_path / "out")
    else:
        assert files.read_table(export(tagged.folder, tmp_path / "out") / "config.json")["architectures"] == [
            "ModernBertForTokenClassification"
        ]
