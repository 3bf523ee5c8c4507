"""Graphs of ONNX say in ONNX Runtime what the network says in torch, at any length and batch; the rest is refused."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer as Pipeline

from kit.language_models import elmo_made, made
from kit.task_files import LABELS, task_files
from ordsmed.base.errors import RecipeError
from ordsmed.cli.next_steps import next_steps
from ordsmed.learn.tasks import classify, pairs, squad, tag
from ordsmed.learn.upper_layers import Top
from ordsmed.nn.models import bert
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.use.embed import Form, embedded
from ordsmed.weights.export import export
from ordsmed.weights.formats import huggingface, onnx, sentence_transformers
from ordsmed.weights.trained_model import Trained

SHAPE: dict[str, Any] = {"width": 16, "layers": 1, "heads": 2, "inner": 16, "positions": 40}


def session(folder: Path, graph: str = onnx.GRAPH) -> Any:
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install -e .[onnx]")
    return runtime.InferenceSession(str(folder / graph))


@pytest.mark.long
@pytest.mark.parametrize("family", ["bert", "modern", "hybrid"])
def test_a_graph_says_what_the_network_says(family: str, tmp_path: Path) -> None:
    trained = made(family, tmp_path / "run")
    (tmp_path / "out").mkdir()
    form = onnx.Onnx(output="states" if family == "modern" else "scores")
    form.check(trained)
    form.write(trained, tmp_path / "out")
    graph, network = session(tmp_path / "out"), onnx.GraphNetwork(trained, form.output)
    facts = json.loads((tmp_path / "out/onnx.json").read_text())
    assert facts["inputs"] == [entry.name for entry in graph.get_inputs()]
    assert facts["outputs"] == [entry.name for entry in graph.get_outputs()]
    assert ("causal" in facts["inputs"]) == (family == "hybrid")
    assert 0 < facts["difference"] < 1e-4
    for batch, length in ((1, 1), (3, 9), (5, trained.settings.longest())):
        rows = network.rows(batch, length, seed=length)
        tokens, inside = rows["input_ids"], rows["attention_mask"].bool()
        more = {"causal": rows["causal"]} if "causal" in rows else {}
        more |= {"types": rows["token_type_ids"]} if "token_type_ids" in rows else {}
        parts = trained.objective.networks()[""].modules
        with torch.no_grad():  # not by the class that is exported
            states = parts["model"](tokens, torch.arange(length).expand(batch, -1), inside.int(), **more)
            wanted = states if family == "modern" else parts["head"](states)
        [found] = graph.run(None, {name: tensor.numpy() for name, tensor in rows.items()})
        assert found[inside.numpy()] == pytest.approx(wanted[inside].numpy(), abs=1e-4)


def of_task(task: Any, folder: Path) -> Trained:
    files = task_files(folder / "data", train=4, dev=4)
    tokenizer = Tokenizer.load(files / "vocab.txt")
    torch.manual_seed(1)
    settings = bert.Bert(**SHAPE)
    return Trained(task.build(settings, tokenizer).eval(), tokenizer, settings, folder, learned=task)


TASKS = {
    "classify": (classify.Classify(labels=LABELS, length=32), ["logits"]),
    "mean": (classify.Classify(labels=LABELS, length=32, pool="mean"), ["logits"]),
    "last": (classify.Classify(labels=LABELS, length=32, pool="last"), ["logits"]),
    "max": (classify.Classify(labels=LABELS, length=32, pool="max"), ["logits"]),
    "tag": (tag.Tag(labels=("B", "O"), length=32), ["logits"]),
    "span": (squad.Squad(version="1.1", length=32), ["start_logits", "end_logits"]),
}


@pytest.mark.parametrize("name", TASKS)
def test_heads_of_tasks_are_given_each_row_without_its_padding(name: str, tmp_path: Path) -> None:
    task, outputs = TASKS[name]
    network = onnx.GraphNetwork(of_task(task, tmp_path), "scores")
    assert network.outputs == outputs
    rows = network.rows(4, 20, seed=3)
    with torch.no_grad():
        together = network(**rows)
        for number, size in enumerate(rows["attention_mask"].sum(1)):
            alone = network(**{key: tensor[number : number + 1, :size] for key, tensor in rows.items()})
            for whole, one in zip(together, alone, strict=True):
                found = whole[number] if one.shape[1:] == whole.shape[1:] else whole[number, :size]
                assert found.numpy() == pytest.approx(one[0].numpy(), abs=1e-5)


VECTORS = {
    "mean": pairs.TextPairs(length=32),
    "first, any length": pairs.TextPairs(length=32, pool="first", normalize=False),
    "last": pairs.TextPairs(length=32, pool="last"),
    "sparse": pairs.TextPairs(length=32, head="sparse"),
    "not learned": classify.Classify(labels=LABELS, length=32),
}


@pytest.mark.parametrize("name", VECTORS)
def test_vectors_of_texts_are_those_of_embed(name: str, tmp_path: Path) -> None:
    trained, texts = of_task(VECTORS[name], tmp_path), ["w1 w2 w3", "w9", "w4 w5 w80 w90 w2"]
    form = onnx.Onnx(output="vectors")
    form.check(trained)
    network = onnx.GraphNetwork(trained, form.output)
    encodings = trained.tokenizer.pipeline.encode_batch(texts)
    longest = max(map(len, encodings))
    rows = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
    padded = {
        key: torch.tensor([[*getattr(row, part), *[0] * (longest - len(row))] for row in encodings])
        for key, part in rows.items()
    }
    with torch.no_grad():
        [found] = network(**padded)
    wanted = np.stack([each.vectors for each in embedded(trained, texts, Form(of="sentences"))])
    if name == "not learned":
        wanted /= np.linalg.norm(wanted, axis=1, keepdims=True)
    assert network.outputs == ["sentence_embedding"]
    assert found.numpy() == pytest.approx(wanted, abs=1e-5)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "output", "pipeline"),
    [
        ("first, any length", "vectors", "sentence-similarity"),
        ("first, any length", "states", "feature-extraction"),
        ("not learned", "vectors", "sentence-similarity"),
        ("not learned", "scores", "text-classification"),
    ],
)
def test_the_card_names_the_pipeline_of_the_graph(name: str, output: Any, pipeline: str, tmp_path: Path) -> None:
    task = VECTORS[name]
    task = replace(task, query="query: ") if isinstance(task, pairs.TextPairs) else task
    trained, form = of_task(task, tmp_path), onnx.Onnx(output=output)
    (out := tmp_path / "out").mkdir()
    form.write(trained, out)
    facts, usage = json.loads((out / "onnx.json").read_text()), form.usage("out", out, trained)
    assert (usage.pipeline, 0 < facts["difference"] < 1e-4) == (pipeline, True)
    network = onnx.GraphNetwork(trained, output)
    rows = network.rows(5, 16, seed=2)  # as long as the vectors are wide
    [found] = session(out).run(None, {key: tensor.numpy() for key, tensor in rows.items()})
    with torch.no_grad():
        wanted = network(**rows)[0].numpy()
    inside = rows["attention_mask"].bool().numpy() if output == "states" else slice(None)
    assert found[inside] == pytest.approx(wanted[inside], abs=1e-4)
    assert ("Write `query: ` before a query." in usage.how) == ((name, output) == ("first, any length", "vectors"))
    assert facts["longest"] == (32 if name != "not learned" and output == "vectors" else 40)


@pytest.mark.long
def test_eight_bits_are_written_beside_and_the_card_tells_their_difference(
    tiny_run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = export(tiny_run.bert, tmp_path / "out", to="onnx", overrides=["int8=true"])
    facts = json.loads((out / "onnx.json").read_text())
    assert (out / onnx.INT8).stat().st_size < 0.6 * (out / onnx.GRAPH).stat().st_size
    assert facts["int8"]["difference"] > facts["difference"]
    card = (out / "README.md").read_text()
    assert "library_name: onnx" in card
    assert "pipeline_tag: fill-mask" in card
    assert f"{facts['int8']['same_first_choice']:.1%} of positions" in card
    [code] = [part.partition("```")[0] for part in card.split("```python\n")[1:]]
    names: dict[str, Any] = {}
    exec(code.replace("'out", f"'{out}"), names)
    assert names["outputs"][0].ndim == 3
    assert np.isfinite(names["outputs"][0]).all()
    [line] = next_steps(out)
    exec(shlex.split(line)[2])  # as it is pasted
    assert capsys.readouterr().out.endswith(f"{facts['outputs']}\n")
    quantized = session(out, onnx.INT8)
    assert len(quantized.get_outputs()) == 1


def test_what_no_graph_has_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="is an elmo, a recurrent network"):
        onnx.Onnx().check(elmo_made(tmp_path / "elmo"))
    mixed = of_task(classify.Classify(labels=LABELS, length=32, top=Top(mix=True)), tmp_path)
    with pytest.raises(RecipeError, match="mix of layers or an LSTM below its head"):
        onnx.Onnx().check(mixed)
    joint = of_task(squad.Squad(version="2.0", head="joint", length=32), tmp_path / "joint")
    with pytest.raises(RecipeError, match="has a joint head, which a graph cannot hold"):
        onnx.Onnx().check(joint)
    tokens = of_task(pairs.TextPairs(length=32, head="multi-vector"), tmp_path / "tokens")
    with pytest.raises(RecipeError, match="has no vectors of texts"):
        onnx.Onnx(output="vectors").check(tokens)
    with pytest.raises(ValueError, match="opset: found 11; wanted 18 or more"):
        onnx.Onnx(opset=11)


def test_without_the_libraries_a_line_says_what_to_install(
    tiny_run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx, "find_spec", lambda name: None if name == "onnxruntime" else object())
    with pytest.raises(RecipeError, match=r"onnxruntime is not installed; pip install 'ordsmed\[onnx\]'"):
        export(tiny_run.bert, tmp_path / "out", to="onnx")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("family", ["gpt2", "bert"])
def test_folders_for_other_programs_encode_alike(family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A causal model's tokenizer puts the sign before each text in all of them, and names it."""
    trained = made(family, tmp_path / "run")
    monkeypatch.setattr(onnx, "_draw", lambda *_: None)
    monkeypatch.setattr(onnx, "compared", lambda *_: (0.0, 1.0))
    read = []
    for form in (huggingface.HuggingFace(), onnx.Onnx(), sentence_transformers.SentenceTransformers()):
        folder = tmp_path / type(form).__name__
        folder.mkdir()
        form.write(trained, folder)
        described = json.loads((folder / "tokenizer_config.json").read_text())
        pipeline = Pipeline.from_file(str(folder / "tokenizer.json"))
        ids = [pipeline.encode("the newt").ids, pipeline.encode("the", "newt").ids]
        read.append((ids, *(described.get(key) for key in ("bos_token", "eos_token", "add_bos_token"))))
    assert read[1:] == read[:1] * 2
    if family == "gpt2":
        assert read[0][0][0] == [trained.opening, *trained.tokenizer.encode("the newt")]
