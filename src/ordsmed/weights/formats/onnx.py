"""ONNX: a network with its heads as one graph that ONNX Runtime and others run without torch and without this library.

    run -> model.onnx     input_ids, attention_mask [batch, length] (token_type_ids, causal) -> logits ...
                          (output=vectors: sentence_embedding [batch, width])
           onnx.json      inputs, outputs, opset, its largest differences from torch on random rows
           tokenizer.json, config.json    as transformers has them

torch's exporter makes the graph; batch size and length are dynamic.
"""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from ordsmed.base import files
from ordsmed.base.errors import RecipeError
from ordsmed.base.menu import Choice
from ordsmed.base.say import say
from ordsmed.learn.head_transfer import rescalable
from ordsmed.learn.task import Embedding, LateInteraction, Reranking, TextVectors, reader
from ordsmed.learn.usage import TEXT, Usage, in_python
from ordsmed.nn.model import Block, ModelSettings
from ordsmed.weights import hub_files
from ordsmed.weights.foreign import Imported
from ordsmed.weights.trained_model import Trained

STATES, VECTORS = "last_hidden_state", "sentence_embedding"  # names of outputs, as in optimum
PIPELINES = {STATES: "feature-extraction", VECTORS: "sentence-similarity"}
GRAPH, INT8, FACTS = "model.onnx", "model_int8.onnx", "onnx.json"
NEEDED = ("onnx", "onnxscript", "onnxruntime")
ROLES = ("head", "pair", "detect", "tag", "span", "classify")  # heads that a graph may have
WITHIN_ONE_FILE = 1 << 31  # bytes of a graph; larger weights go into a second file
PROBED = 8, 96  # random rows for the comparison, and their maximum length


@dataclass(frozen=True)
class Onnx(Choice):
    """Write-only, for every model family made of blocks and every head without a mix of layers."""

    wanted: ClassVar[str] = ""
    readers: ClassVar[str] = "ONNX Runtime runs model.onnx; transformers' AutoTokenizer loads the tokenizer"
    families: ClassVar[tuple[str, ...]] = ()
    OPENED: ClassVar[str] = (
        "import onnxruntime as o; print([x.name for x in o.InferenceSession({} + '/model.onnx').get_outputs()])"
    )

    output: Literal["scores", "states", "vectors"] = "scores"
    """scores of the heads, states of the last layer, or a vector for each text, pooled as learned or by the mean"""
    int8: bool = False
    """also write model_int8.onnx with weights in 8 bits, a quarter of the size, and report its differences"""
    opset: int = 18
    """version of the ONNX operator set"""

    def __post_init__(self) -> None:
        if self.opset < 18:
            raise ValueError(f"opset: found {self.opset}; wanted 18 or more")

    @staticmethod
    def ready(target: Path) -> None:
        if missing := [name for name in NEEDED if find_spec(name) is None]:
            raise RecipeError(target, f"{missing[0]} is not installed", "", "pip install 'ordsmed[onnx]'")

    def recognises(self, path: Path) -> bool:
        return False

    def read(self, path: Path, overrides: Sequence[str] = ()) -> Imported:
        raise RecipeError(path, "is not read in this format", "a folder with config.json")

    @staticmethod
    def takes(family: ModelSettings) -> bool:
        """Return whether a graph of variable length can represent the family: recurrent networks have none."""
        return not family.capabilities.state

    def check(self, trained: Trained) -> None:
        if not self.takes(trained.settings):
            problem = f"is an {trained.kind}, a recurrent network, which no graph of dynamic length can hold"
        elif getattr(trained.objective, "top", None) is not None:
            problem = "has a mix of layers or an LSTM below its head (task.top), which the graph cannot hold"
        elif self.output == "vectors" and isinstance(trained.objective, Reranking | LateInteraction):
            problem = "has no vectors of texts (output): it scores pairs, or gives each token a vector"
        elif odd := [role for role in _heads(trained) if role not in ROLES]:
            problem = f"has a {odd[0]} head, which a graph cannot hold"
        else:
            return
        raise RecipeError(trained.folder, problem, "", "`ordsmed predict`, `embed` and `serve` use it directly")

    def write(self, trained: Trained, folder: Path) -> None:
        network = GraphNetwork(trained, self.output)
        rows = network.rows(2, min(trained.settings.longest(), getattr(trained.settings, "window", 0) + 7), seed=0)
        _draw(network, rows, folder / GRAPH, self.opset, trained.settings.longest())
        facts = {"inputs": list(rows), "outputs": network.outputs, "opset": self.opset}
        facts |= {"longest": trained.settings.longest(), "difference": compared(network, folder / GRAPH)[0]}
        if self.int8:
            _quantize(folder)
            difference, alike = compared(network, folder / INT8)
            facts["int8"] = {"difference": difference, "same_first_choice": alike}
            same = f"; the best choice is the same at {alike:.1%} of positions" if network.heads else ""
            say(f"{INT8}: its numbers differ by at most {difference:.2g} on random rows{same}")
        if network.vectors:
            facts |= {"prompts": dict(network.vectors.prompts), "longest": network.vectors.length}
        files.write_json(folder / FACTS, facts)
        described = trained.objective.networks()[""]
        if " ".join(_heads(trained)) in trained.settings.architectures:
            files.write_json(folder / "config.json", hub_files.config(described, trained.tokenizer))
        hub_files.write_tokenizer(
            trained.tokenizer, trained.settings, folder, continues=trained.causal, opening=trained.opening
        )

    def usage(self, name: str, folder: Path, trained: Trained) -> Usage:
        facts = files.read_table(folder / FACTS)
        values = {"token_type_ids": 'np.array(row["token_type_ids"])', "causal": "np.array([False])"}
        extra = "".join(f", {key!r}: {value}" for key, value in values.items() if key in facts["inputs"])
        code = (
            "import numpy as np\nimport onnxruntime\nfrom transformers import AutoTokenizer\n\n"
            f"tokenizer = AutoTokenizer.from_pretrained({name!r})\n"
            f"session = onnxruntime.InferenceSession({f'{name}/{GRAPH}'!r})\n"
            f'row = tokenizer(["{TEXT}"])\n'
            'ids, mask = np.array(row["input_ids"]), np.array(row["attention_mask"])\n'
            f"outputs = session.run(None, {{'input_ids': ids, 'attention_mask': mask{extra}}})\n"
            "print(outputs[0].shape)\n"
        )
        rows, longest = PROBED
        parity = f"Over {rows} random rows of up to {longest} tokens its numbers differ from those of torch by at most "
        parity += f"{facts['difference']:.1g} (opset {facts['opset']})."
        if int8 := facts.get("int8"):
            alike = f"; the best choice is the same at {int8['same_first_choice']:.1%} of positions"
            parity += f" `{INT8}`: {int8['difference']:.2g}{alike if self.output == 'scores' else ''}."
        named = ", ".join(f"`{output}`" for output in facts["outputs"])
        does = f"gives {named} as an ONNX graph"
        pipeline, tags = PIPELINES.get(facts["outputs"][0], ""), ("onnx",)
        if not pipeline:  # the pipeline of its heads
            pipeline = trained.objective.usage(name, trained.tokenizer, trained.learned).pipeline
        if prompts := [f"`{text}` before a {kind}" for kind, text in facts.get("prompts", {}).items() if text]:
            parity = f"Write {' and '.join(prompts)}. {parity}"
        return Usage(pipeline, does, f"{in_python(name, code)}\n\n{parity}", library="onnx", tags=tags)


class GraphNetwork(nn.Module):
    """A network with its heads as it is exported: one example per row, with padding masked out."""

    def __init__(self, trained: Trained, output: Literal["scores", "states", "vectors"]) -> None:
        super().__init__()
        network = trained.objective.networks()[""]
        self.parts = copy.deepcopy(nn.ModuleDict(network.modules)).float().eval()
        if scale := rescalable(trained.objective, trained.learned):
            tensors = network.tensors()
            for name, value in hub_files.rescaled_head(tensors, scale).items():
                role, _, rest = name.partition(".")
                self.parts[role].get_parameter(rest).data.copy_(value)
        for module in self.modules():
            if isinstance(module, Block):
                module.compiled = True  # use attention masks, which can be exported
        self.heads = _heads(trained) if output == "scores" else []
        self.vectors = _vectors(trained) if output == "vectors" else None
        self.pool = getattr(trained.objective, "pool", "first")
        self.shifted, self.vocabulary = trained.objective.shifted, trained.tokenizer.vocabulary
        self.typed = bool(reader(trained.tokenizer, trained.settings).types)
        self.longest = trained.settings.longest()

    @property
    def outputs(self) -> list[str]:
        names = {"pair": ["pair_logits"], "span": ["start_logits", "end_logits"]}
        without = VECTORS if self.vectors else STATES
        return [name for role in self.heads for name in names.get(role, ["logits"])] or [without]

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        token_type_ids: Tensor | None = None,
        causal: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        positions = torch.arange(input_ids.shape[1], device=input_ids.device)[None].expand_as(input_ids)
        more = {} if token_type_ids is None else {"types": token_type_ids}
        more |= {} if causal is None else {"causal": causal}
        states = self.parts["model"](input_ids, positions, attention_mask.to(torch.int32), **more)
        if self.vectors:
            return (self._text_vectors(states, attention_mask, self.vectors),)
        if not self.heads:
            return (states,)
        outputs: list[Tensor] = []
        for role in self.heads:
            pooled = _pooled(states, attention_mask, self.pool) if role == "classify" else states
            scores = self.parts[role](pooled)
            outputs += scores.unbind(-1) if role == "span" else [scores]
        return tuple(outputs)

    def _text_vectors(self, states: Tensor, mask: Tensor, settings: TextVectors) -> Tensor:
        if settings.sparse:
            return _pooled(self.parts["head"](states), mask, "max").relu().log1p()
        vectors = _pooled(states, mask, settings.pool)
        return nn.functional.normalize(vectors, dim=-1) if settings.normalize else vectors

    def rows(self, count: int, length: int, seed: int) -> dict[str, Tensor]:
        """Return random inputs. Each row has a random length, and the first has the full length."""
        draw = torch.Generator().manual_seed(seed)
        ids = torch.randint(self.vocabulary, (count, length), generator=draw)
        lengths = torch.randint(1, length + 1, (count, 1), generator=draw).scatter(0, torch.zeros(1, 1).long(), length)
        rows = {"input_ids": ids, "attention_mask": (torch.arange(length) < lengths).long()}
        rows |= {"token_type_ids": (torch.arange(length) >= lengths // 2).long()} if self.typed else {}
        return rows | ({"causal": torch.arange(count) % 2 == 1} if self.shifted else {})


def _heads(trained: Trained) -> list[str]:
    return [role for role in trained.objective.networks()[""].modules if role not in ("model", "top")]


def _vectors(trained: Trained) -> TextVectors:
    """Return how texts become vectors: as the model learned it, else as sentence-transformers does by default."""
    if isinstance(trained.objective, Embedding):
        return trained.objective.vectors
    return TextVectors("mean", True, {}, trained.settings.longest())


def _pooled(states: Tensor, mask: Tensor, pool: str) -> Tensor:
    """Pool states [B, T, D] to [B, D], as a task does."""
    if pool == "first":
        return states[:, 0]
    if pool == "last":
        return states.take_along_dim((mask.sum(1) - 1)[:, None, None], 1)[:, 0]
    inside = mask.bool()[..., None]
    if pool == "mean":
        return (states * inside).sum(1) / mask.sum(1, keepdim=True)
    return states.masked_fill(~inside, -torch.inf).amax(1)


def _draw(network: GraphNetwork, rows: dict[str, Tensor], path: Path, opset: int, longest: int) -> None:
    """Export the graph with torch's exporter, without its warnings about missing operators."""
    batch, length = torch.export.Dim("batch"), torch.export.Dim("length", max=longest)
    shapes = {name: {0: batch} if name == "causal" else {0: batch, 1: length} for name in rows}
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings(), torch.inference_mode(False), torch.no_grad():
        warnings.simplefilter("ignore")
        names = {"input_names": list(rows), "output_names": network.outputs}
        options = {"dynamo": True, "dynamic_shapes": shapes, "opset_version": opset, "verbose": False}
        program = torch.onnx.export(network, kwargs=rows, **names, **options)  # type: ignore[arg-type]
    assert program is not None
    size = sum(tensor.nbytes for tensor in network.parameters())
    with files.survive_disk(path):
        program.save(path, external_data=size > 0.9 * WITHIN_ONE_FILE)


def _quantize(folder: Path) -> None:
    from onnxruntime.quantization import quantize_dynamic

    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)  # its advice on standard error is not for users
    try:
        with files.survive_disk(folder / INT8):
            quantize_dynamic(folder / GRAPH, folder / INT8)
    finally:
        root.setLevel(level)


def compared(network: GraphNetwork, path: Path) -> tuple[float, float]:
    """Return the largest difference from torch on random rows, and the share of positions with equal best choices."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options)
    count, longest = PROBED
    most, alike, positions = 0.0, 0, 0
    for seed in range(1, 4):
        rows = network.rows(count, max(1, min(longest, network.longest) * seed // 3), seed)
        with torch.no_grad():
            expected = [output.numpy() for output in network(**rows)]
        inside = rows["attention_mask"].bool().numpy()
        for here, there in zip(expected, session.run(None, {k: v.numpy() for k, v in rows.items()}), strict=True):
            of_tokens = here.ndim == 3 or "span" in network.heads
            chosen = inside if of_tokens else slice(None)
            most = max(most, float(np.abs(here[chosen] - there[chosen]).max()))
            same = _chosen(here[chosen]) == _chosen(there[chosen])
            alike, positions = alike + int(same.sum()), positions + same.size
    return most, alike / positions


def _chosen(scores: np.ndarray) -> np.ndarray:
    """Return the index of the best score at each position; for a single score, whether it is above 0."""
    return scores > 0 if scores.ndim == 1 else scores.argmax(-1)
