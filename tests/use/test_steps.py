"""Every step of a run as a folder: saved revisions, step 0 recomputed, and folders of each model family."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from kit.makers import make_store
from ordsmed.api.model import open
from ordsmed.base import files, snapshots
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.run import Run
from ordsmed.nn.model import own_tensors
from ordsmed.train.pretrain.pretrain import pretrain
from ordsmed.use.fill import Filled
from ordsmed.weights import weights
from ordsmed.weights.export import export, export_all
from ordsmed.weights.origin import Origin
from ordsmed.weights.trained_model import open_model

pytestmark = pytest.mark.long

Write = Callable[..., Path]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("steps") / "store")


@pytest.fixture
def recipe(store: Path, tmp_path: Path) -> Write:
    def write(model: str, objective: str, name: str = "run", top: str = "", phase: str = "") -> Path:
        path = tmp_path / f"{name}.toml"
        path.write_text(
            f'data = "{store}"\nout = "{tmp_path / name}"\nsave = 4\nkeep = 1\nvalidation_rows = 8\n{top}\n[layout]\n'
            f'device = "cpu"\nthreads = 1\n[model]\n{model}\nwidth = 32\nlayers = 2\nheads = 2\npositions = 64\n'
            f"[objective]\n{objective}\n[[phase]]\nsteps = 10\nlength = 32\nbatch = 4\nrate = 1e-3\n{phase}\n"
        )
        return path

    return write


BERT, ELECTRA = (
    ('kind = "bert"', 'kind = "mlm"'),
    ('kind = "electra"\nembedding = 16', 'kind = "rtd"\ngenerator = { width = 16 }'),
)


def guesses(folder: Path | str) -> Filled:
    """What a model says of a mask."""
    return open(folder, device="cpu").fill("w1 [MASK] w3")


def tensors(path: Path, step: int | None = None) -> dict[str, torch.Tensor]:
    return {k: v.detach().clone() for k, v in own_tensors(open_model(path, step).objective).items()}


def test_revisions_are_kept_without_moments_and_all_are_exported(recipe: Write, tmp_path: Path) -> None:
    import transformers

    folder = pretrain(str(recipe(*BERT, top='revisions = "powers"')))
    assert Origin.of(folder).steps() == [0, 1, 2, 4, 8, 10]
    for step in (1, 2, 4):
        names = sorted(p.name for p in snapshots.path_of(folder / "checkpoints", step).iterdir())
        assert names == ["model.safetensors", "state.json"]
    assert [p.name for p in export_all(folder, tmp_path / "all")] == [f"step-{s}" for s in (0, 1, 2, 4, 8, 10)]
    ours = tensors(folder, 2)["model.words.weight"]
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "all" / "step-2")
    assert torch.equal(theirs.get_input_embeddings().weight, ours)
    assert not torch.equal(ours, tensors(folder, 4)["model.words.weight"])
    with pytest.raises(RecipeError, match=r"found 3, but .* has no checkpoint of it; wanted one of 0, 1, 2, 4, 8, 10"):
        export(folder, tmp_path / "x", 3)


def test_a_run_goes_on_past_its_revisions(recipe: Write) -> None:
    path = recipe(*BERT, top="revisions = [1, 2]")
    folder = pretrain(str(path))
    for step in (8, 10):
        for left in snapshots.path_of(folder / "checkpoints", step).glob("*"):
            left.unlink()
        if snapshots.path_of(folder / "checkpoints", step).exists():
            snapshots.path_of(folder / "checkpoints", step).rmdir()
    assert snapshots.steps(folder / "checkpoints") == [1, 2]
    assert snapshots.latest(folder / "checkpoints", place=folder) is None


@pytest.mark.parametrize("kinds", [BERT, ELECTRA], ids=["bert", "electra"])
def test_step_0_is_what_the_run_began_with(recipe: Write, tmp_path: Path, kinds: tuple[str, str]) -> None:
    folder = pretrain(str(recipe(*kinds, top="seed = 3")))
    start = tensors(folder, 0)
    assert weights.digest(start) == Run(folder).status["began_with"]
    end = tensors(folder)
    assert not torch.equal(start["model.words.weight"], end["model.words.weight"])
    Run(folder).set(began_with="00000000")
    with pytest.raises(DataError, match=r"step 0: weights .*wanted 00000000.*same version of torch"):
        export(folder, tmp_path / "zero", 0)


def test_step_0_of_a_run_that_started_from_another(recipe: Write, tmp_path: Path) -> None:
    first = pretrain(str(recipe(*ELECTRA, name="first")))
    out = export(first, tmp_path / "hub")
    path = recipe(*ELECTRA, name="second", top=f'init = "{out}"')
    second = pretrain(str(path))
    start, before = tensors(second, 0), tensors(first)
    assert all(torch.equal(v, start[k]) for k, v in before.items())


def test_an_electra_is_two_folders_and_comes_back(recipe: Write, tmp_path: Path) -> None:
    import transformers as t

    folder = pretrain(str(recipe(*ELECTRA)))
    out = export(folder, tmp_path / "electra")
    ours = open_model(folder).objective
    disc, report = t.ElectraForPreTraining.from_pretrained(out, output_loading_info=True)
    assert not any(report.values())
    gen, report = t.AutoModelForMaskedLM.from_pretrained(out / "generator", output_loading_info=True)
    assert not any(report.values())
    ids = torch.randint(6, 100, (2, 9))
    positions = torch.arange(9).repeat(2, 1)
    with torch.no_grad():
        assert torch.allclose(disc(ids).logits, ours.detect(ours.model(ids, positions)), atol=1e-5)
        assert torch.allclose(gen(ids).logits, ours.head(ours.generator(ids, positions)), atol=1e-5)
    assert (
        t.AutoTokenizer.from_pretrained(out / "generator").vocab_size == t.AutoTokenizer.from_pretrained(out).vocab_size
    )
    assert "ElectraForPreTraining" in (out / "README.md").read_text()
    assert guesses(folder) == guesses(out / "generator")
    with pytest.raises(RecipeError, match="has no head that predicts tokens"):
        guesses(out)
    stored = weights.read(out / "generator" / "model.safetensors")
    name = "electra.embeddings.word_embeddings.weight"
    weights.write(out / "generator" / "model.safetensors", {**stored, name: stored[name] + 1})
    with pytest.raises(DataError, match=r"its model.words.weight differs from that of the network that shares it"):
        pretrain(str(recipe(*ELECTRA, name="apart", top=f'init = "{out}"')))
    again = export(out, tmp_path / "again")
    assert files.read_json(again / "config.json") == files.read_json(out / "config.json")
    (out / "generator" / "config.json").unlink()
    with pytest.raises(DataError, match=r"has no generator next to it; wanted .*generator"):
        pretrain(str(recipe(*ELECTRA, name="third", top=f'init = "{out}"')))


def test_pairs_and_hybrids_are_exported(recipe: Write, tmp_path: Path) -> None:
    import transformers as t

    pairs = pretrain(str(recipe('kind = "bert"', 'kind = "mlm_nsp"', name="pairs", phase="pack = false")))
    model, report = t.BertForPreTraining.from_pretrained(export(pairs, tmp_path / "a"), output_loading_info=True)
    assert not any(report.values())
    assert torch.equal(model.cls.seq_relationship.weight, open_model(pairs).objective.pair.out.weight)
    assert len(guesses(pairs).masks) == 1
    hybrid = pretrain(str(recipe('kind = "gpt2"', 'kind = "hybrid"', name="hybrid")))
    _, report = t.AutoModelForCausalLM.from_pretrained(export(hybrid, tmp_path / "b"), output_loading_info=True)
    assert not any(report.values())
    assert len(guesses(hybrid).masks) == 1
    runs = [open(place, device="cpu") for place in (hybrid, tmp_path / "b")]
    assert len({run.generate("w1 w2", tokens=4, temperature=0) for run in runs}) == 1
    assert open(pairs, device="cpu").generate("w1", tokens=3).tokens == 3


def test_another_vocabulary_is_refused(recipe: Write, store: Path, tmp_path: Path) -> None:
    out = export(pretrain(str(recipe(*BERT))), tmp_path / "hub")
    text = (out / "vocab.txt").read_text().splitlines()
    text[20], text[21] = text[21], text[20]
    (out / "tokenizer.json").unlink()
    (out / "vocab.txt").write_text("\n".join(text) + "\n")
    with pytest.raises(RecipeError, match=r"init: .* gives 2 tokens other ids than the data, such as `w14`"):
        pretrain(str(recipe(*BERT, name="other", top=f'init = "{out}"')))


def test_names_lead_to_folders(recipe: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = export(pretrain(str(recipe(*BERT))), tmp_path / "hub" / "some" / "bert")
    (tmp_path / "models.toml").write_text(f'mirror = "{tmp_path / "hub"}"\n')
    monkeypatch.setenv("ORDSMED_MODELS", str(tmp_path / "models.toml"))
    assert len(guesses("some/bert").masks) == 1
    started = pretrain(str(recipe(*BERT, name="named", top='init = "some/bert"')))
    assert torch.equal(tensors(started, 0)["model.words.weight"], tensors(out)["model.words.weight"])
    with pytest.raises(RecipeError, match=r"init: found some/bort, no such folder.*models.toml has no such name"):
        pretrain(str(recipe('kind = "bert"', 'kind = "mlm"', name="nowhere", top='init = "some/bort"')))


def test_a_pickle_with_code_in_it_is_refused_unread(recipe: Write, tmp_path: Path) -> None:
    out = export(pretrain(str(recipe(*BERT))), tmp_path / "hub")
    (out / "model.safetensors").unlink()

    class Trap:
        def __reduce__(self):  # type: ignore[no-untyped-def]
            return Path.touch, (tmp_path / "sprung",)

    torch.save({"bert.embeddings.word_embeddings.weight": Trap()}, out / "pytorch_model.bin")
    with pytest.raises(DataError, match=r"cannot be read.*wanted plain tensors"):
        pretrain(str(recipe(*BERT, name="trap", top=f'init = "{out}"')))
    assert not (tmp_path / "sprung").exists()
