"""Megatron-LM's GPT-2 and BERT: of 2019, of 2020 and later, and Megatron Core's, split over any number of ranks.

    latest_checkpointed_iteration.txt    a step, or `release`
    iter_0001000/mp_rank_00/model_optim_rng.pt ...      (mp_rank_00_001: the second stage of a pipeline)

    2019                                  2020, after language_model.               here
    word_embeddings.weight                embedding.word_embeddings.weight          model.words.weight
    transformer.layers.N.attention...     transformer|encoder.layers.N....          model.blocks.N...
    bert.encoder.layer.N...               (BERT, norms before attention)            model.blocks.N...

    Megatron Core's: decoder|encoder.layers.N.self_attention.linear_qkv, linear_proj, pre_mlp_layernorm, mlp.linear_fc1,
    linear_fc2. In Transformer Engine's layers, a norm belongs to the next layer: linear_qkv.layer_norm_weight.

Query, key and value are one tensor. Its order depends on the version: 0 all queries first, 1 number by number, 2 and
later head by head, as here. Rows of the word table after the vocabulary are padding. Optimizer and random states are
not read.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from ordsmed.base import files
from ordsmed.base import settings as tables
from ordsmed.base.binary import pickle_reader
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.menu import Choice
from ordsmed.base.say import say
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.weights import foreign, renaming, weights
from ordsmed.weights.foreign import Imported
from ordsmed.weights.renaming import LazyTensors, TensorLayout
from ordsmed.weights.trained_model import Trained

TRACKER, FILE, RELEASE = "latest_checkpointed_iteration.txt", "model_optim_rng.pt", "release"
RANK = re.compile(r"mp_rank_(\d+)(?:_(\d+))?$")
WORDS, PLACES, TYPES = "word_embeddings.weight", "position_embeddings.weight", "tokentype_embeddings.weight"
FUSED = ".query_key_value."
# Tensors that are split by rows, or by columns, over the ranks of a network.
ROWS = re.compile(
    r"query_key_value\.|dense_h_to_4h\.|intermediate\.dense\.|word_embeddings\.|(lm_head|predictions)\.bias"
)
COLUMNS = re.compile(r"(attention\.dense|attention\.output\.dense|dense_4h_to_h|layer\.\d+\.output\.dense)\.weight")
BLOCK = {  # this library's -> Megatron's, in a block
    "attention_norm": "input_layernorm",
    "attention.gather": "attention.query_key_value",
    "attention.mix": "attention.dense",
    "norm": "post_attention_layernorm",
    "up": "mlp.dense_h_to_4h",
    "down": "mlp.dense_4h_to_h",
}
BLOCK_2019 = {
    "attention_norm": "attention.output.LayerNorm",
    "attention.gather": "attention.self.query_key_value",
    "attention.mix": "attention.output.dense",
    "norm": "output.LayerNorm",
    "up": "intermediate.dense",
    "down": "output.dense",
}
BESIDE = {
    "model.norm": "final_layernorm",
    "model.words": "word_embeddings",
    "model.places": "position_embeddings",
    "model.types": "tokentype_embeddings",
    "head.dense": "lm_head.dense",
    "head.norm": "lm_head.layernorm",
    "head": "lm_head",
    "pair.dense": "pooler.dense",
    "pair.out": "binary_head",
}
BESIDE_2019 = {
    "model.norm": "bert.embeddings.LayerNorm",
    "model.words": "bert.embeddings.word_embeddings",
    "model.places": "bert.embeddings.position_embeddings",
    "model.types": "bert.embeddings.token_type_embeddings",
    "head.dense": "cls.predictions.transform.dense",
    "head.norm": "cls.predictions.transform.LayerNorm",
    "head": "cls.predictions",
    "pair.dense": "bert.pooler.dense",
    "pair.out": "cls.seq_relationship",
}
CORE = (  # Megatron Core's -> names of 2020
    (r"attention\.linear_qkv\.layer_norm_", "input_layernorm."),
    (r"mlp\.linear_fc1\.layer_norm_", "post_attention_layernorm."),
    (r"attention\.linear_qkv\.", "attention.query_key_value."),
    (r"attention\.linear_proj\.", "attention.dense."),
    (r"\.pre_mlp_layernorm\.", ".post_attention_layernorm."),
    (r"mlp\.linear_fc1\.", "mlp.dense_h_to_4h."),
    (r"mlp\.linear_fc2\.", "mlp.dense_4h_to_h."),
    (r"^lm_head\.layer_norm\.", "lm_head.layernorm."),
    (r"^output_layer\.bias$", "lm_head.bias"),
    (r"^output_layer\.weight$", "word_embeddings_for_head.weight"),
)
UNLIKE = {  # settings of Megatron, and their values in a GPT-2 or BERT
    "normalization": "LayerNorm",
    "position_embedding_type": "learned_absolute",
    "swiglu": False,
    "group_query_attention": False,
    "untie_embeddings_and_output_weights": False,
    "num_experts": None,
    "apply_layernorm_1p": False,
    "apply_residual_connection_post_layernorm": False,
}
FLAGS = ("bias_gelu_fusion", "openai_gelu")  # training arguments: either one selects the tanh GELU
BERT_2019 = "bert.encoder.layer."
LISTS = (("vocab.txt",), ("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe"), ("tokenizer.json",))


@dataclass(frozen=True)
class MegatronFormat(Choice):
    """Read checkpoints of any version and number of ranks, and write those of 2019 and 2020."""

    ranks: int = 1
    """number of files that a network is split over (model parallel size)"""
    style: Literal["2020", "2019"] = "2020"
    """written layout: nested tables with a version (2020), or flat names (2019, the only one for the original BERT)"""
    multiple: int = 128
    """pad the written word table to a multiple of this times the ranks"""
    release: bool = True
    """write a release; false: a checkpoint with the step's number, as Megatron's training does"""

    wanted: ClassVar[str] = "a folder with Megatron's latest_checkpointed_iteration.txt and iter_*/mp_rank_*/*.pt"
    readers: ClassVar[str] = "release/mp_rank_*/model_optim_rng.pt and the vocabulary: Megatron-LM loads it (--load)"
    families: ClassVar[tuple[str, ...]] = ("gpt2", "megatron_bert", "bert")

    def __post_init__(self) -> None:
        for name in ("ranks", "multiple"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: found {getattr(self, name)}; wanted 1 or more")

    def recognises(self, path: Path) -> bool:
        if path.is_file():
            return path.name == FILE and RANK.search(path.parent.name) is not None
        return (path / TRACKER).is_file() or any(RANK.search(p.name) for p in path.glob("mp_rank_*"))

    def read(self, path: Path, overrides: Sequence[str] = ()) -> Imported:
        parts = _parts(path)
        first = parts[0][0]
        args = pickle_reader.plain(first.args)
        overridden = tables.override({}, overrides).get("model", {})
        heads = overridden.get("heads", args.get("num_attention_heads"))
        if not isinstance(heads, int) or heads < 1:
            raise RecipeError(first.path, "has no number of attention heads", "their number", "add model.heads=N")
        joined = _join_ranks(parts, heads)
        model, kind = _described(joined, args, first)
        table = {"model": model | {"heads": heads}, "objective": {"kind": kind}}
        networks = foreign.decoded(tables.override(table, overrides), first.path)
        tokenizer = _tokenizer(first.path)
        notes = renaming.padding_note(joined, _words(joined), tokenizer, first.path)
        if "activation" not in overridden:
            notes.append(
                f"{first.path}: {_reason(first, args, model)}; model.activation=... after `ordsmed import` changes it"
            )
        spell = _spell_2019 if model["kind"] == "bert" else _spell
        tensors = renaming.import_tensors(networks, tokenizer, joined, spell, first.path, alike=True)
        if any(piece.storage.dtype != torch.float32 for piece in first.pieces.values()):
            notes.append(f"{first.path}: 16 bits are read as float32")
        return Imported(networks, tokenizer, tensors, tuple(notes))

    def write(self, trained: Trained, folder: Path) -> None:
        model = trained.settings
        _writable(trained, self.ranks)
        style = "2019" if trained.kind == "bert" else self.style
        if style == "2019":
            _check_2019(trained)
        spell = _spell_2019 if trained.kind == "bert" else _spell
        tensors = dict(renaming.export_tensors(trained.objective, spell, alike=True))
        wide = self.multiple * self.ranks
        for name in [n for n in tensors if re.search(r"word_embeddings\.|(lm_head|predictions)\.bias", n)]:
            rows = tensors[name]
            tensors[name] = torch.cat([rows, rows.new_zeros(-len(rows) % wide, *rows.shape[1:])])
        args = argparse.Namespace(
            num_layers=model.layers,
            hidden_size=model.width,
            num_attention_heads=model.heads,
            ffn_hidden_size=model.inner,
            max_position_embeddings=model.positions,
            layernorm_epsilon=model.epsilon,
            make_vocab_size_divisible_by=wide // self.ranks,
            padded_vocab_size=len(tensors[_words(tensors)]),
            model_parallel_size=self.ranks,
            tensor_model_parallel_size=self.ranks,
            pipeline_model_parallel_size=1,
            hidden_dropout=model.dropout,
            attention_dropout=model.attention_dropout,
            openai_gelu=model.activation == "gelu_tanh",
            bias_gelu_fusion=False,
        )
        step = 0 if self.release else trained.step or 0
        named = RELEASE if self.release else f"iter_{step:07}"
        for rank in range(self.ranks):
            path = folder / named / f"mp_rank_{rank:02}"
            path.mkdir(parents=True)
            cut = {name: _rank_part(name, tensor, rank, self.ranks) for name, tensor in tensors.items()}
            if style == "2019":
                cut = {name: _reorder(name, t, model.heads // self.ranks, 0.0, back=True) for name, t in cut.items()}
                flat = {_name_2019(name): tensor for name, tensor in cut.items()}
                pickle_reader.write(path / FILE, {"iteration": step, "model": flat})
            else:
                pickle_reader.write(
                    path / FILE, {"iteration": step, "checkpoint_version": 3.0, "args": args, "model": _nested(cut)}
                )
        files.write_text(folder / TRACKER, RELEASE if self.release else str(step))
        if trained.tokenizer.kind == "wordpiece":
            files.write_text(folder / "vocab.txt", trained.tokenizer.listed())
        elif trained.tokenizer.byte_level:
            trained.tokenizer.save_byte_level(folder / "vocab.json", folder / "merges.txt")
        else:
            trained.tokenizer.save(folder)


@dataclass(frozen=True)
class RankFile:
    path: Path
    source: pickle_reader.Pickled
    pieces: dict[str, pickle_reader.Strided]
    version: float
    args: object
    stage: int
    core: bool  # was it written by Megatron Core?

    @staticmethod
    def of(path: Path, stage: int) -> RankFile:
        source = pickle_reader.Pickled(path)
        table = pickle_reader.attributes(source.value)
        if not isinstance(table.get("model"), dict):
            raise DataError(path, "has no table `model`", "a checkpoint of Megatron-LM")
        version = table.get("checkpoint_version", 0)
        if not isinstance(version, int | float):
            raise DataError(path, f"checkpoint_version: found {pickle_reader.brief(version)}", "a number")
        unreadable = [
            f"{key} {value}"
            for key, usual in UNLIKE.items()
            if (value := pickle_reader.plain(table.get("args")).get(key, usual)) != usual
        ]
        if unreadable:
            wanted = ", ".join(f"{key} {usual}" for key, usual in UNLIKE.items() if any(key in o for o in unreadable))
            raise DataError(path, f"is of an unknown network: {', '.join(unreadable)}", f"a GPT-2 or BERT: {wanted}")
        flat = source.flat(table["model"])
        pieces_by_name = {_plain(name): piece for name, piece in flat.items() if not name.endswith("_extra_state")}
        core = any(".linear_fc1." in name for name in flat)
        return RankFile(path, source, pieces_by_name, float(version), table.get("args"), stage, core)


def _parts(path: Path) -> list[list[RankFile]]:
    """Return the files of all ranks: for each pipeline stage, a list over the tensor-parallel ranks."""
    folder = path.parent.parent if path.is_file() else path
    if (folder / TRACKER).is_file():
        named = (folder / TRACKER).read_text(encoding="utf-8").strip()
        if named != RELEASE and not named.isdecimal():
            raise DataError(folder / TRACKER, f"found {named[:40]!r}", f"a step, or `{RELEASE}`")
        folder = folder / (named if named == RELEASE else f"iter_{int(named):07}")
    ranks = {(int(m[2] or 0), int(m[1])): p for p in folder.glob("mp_rank_*") if (m := RANK.search(p.name))}
    if not ranks and any(folder.glob("*.distcp")):
        remedy = "save it again in Megatron with --ckpt-format torch"
        raise DataError(folder, "is a distributed checkpoint (*.distcp)", f"mp_rank_*/{FILE}", remedy)
    stages, ways = (1 + max((key[n] for key in ranks), default=-1) for n in (0, 1))
    if not ranks:
        raise DataError(folder, "has no mp_rank_00", "a file of every rank", "download it as well")
    wanted = [(stage, way) for stage in range(stages) for way in range(ways)]
    names = [f"mp_rank_{way:02}" + (f"_{stage:03}" if stages > 1 else "") for stage, way in wanted]
    lacks = [
        name for key, name in zip(wanted, names, strict=True) if key not in ranks or not (ranks[key] / FILE).is_file()
    ]
    if lacks:
        raise DataError(folder, f"lacks {', '.join(lacks)}", f"{FILE} of every rank", "download them as well")
    parts = [[RankFile.of(ranks[stage, way] / FILE, stage) for way in range(ways)] for stage in range(stages)]
    args = pickle_reader.plain(parts[0][0].args)
    wide = args.get("tensor_model_parallel_size", args.get("model_parallel_size"))
    for number, count, name in (
        (wide, ways, "mp_rank_{:02}"),
        (args.get("pipeline_model_parallel_size"), stages, "mp_rank_00_{:03}"),
    ):
        if isinstance(number, int) and number != count:
            lacks = [name.format(n) for n in range(count, number)]
            problem = f"has {count} of {number} ranks{f', without {weights.some(lacks)}' if lacks else ''}"
            raise DataError(folder, problem, "a file of every rank", "download the others")
    return parts


def _plain(name: str) -> str:
    """Return the name that a tensor had in Megatron in 2020.

    The prefixes of wrapper modules and of enclosing dictionaries are removed. Names of Megatron Core are translated.
    """
    name = re.sub(r"^(module\.|model\.)+", "", name)
    name = re.sub(r"^language_model\.", "", name)
    name = re.sub(r"^embedding\.", "", name)
    name = re.sub(r"^(transformer|encoder|decoder)\.(?=layers\.|final_layernorm)", "", name)
    name = name.replace(".self_attention.", ".attention.")
    for pattern, new in CORE:
        name = re.sub(pattern, new, name)
    return name


def _join_ranks(parts: list[list[RankFile]], heads: int) -> LazyTensors:
    """Return the tensors of all ranks and stages joined into one network, with query, key and value head by head."""
    sources: dict[str, tuple[list[RankFile], str]] = {}
    layers = 0
    for ranks in parts:
        names = [
            name for name in ranks[0].pieces if not name.startswith("word_embeddings_for_head.")
        ]  # a copy of the word table
        for name in names:
            inner = re.match(r"layers\.(\d+)\.(.*)", name)
            sources[f"layers.{int(inner[1]) + layers}.{inner[2]}" if inner else name] = (ranks, name)
        layers += renaming.layers(names, "layers.N.")

    def read(name: str) -> Tensor:
        ranks, there = sources[name]
        cut = [_tensor_of(part, there) for part in ranks]
        heads_a_rank = heads // len(ranks)
        cut = [_reorder(there, tensor, heads_a_rank, ranks[0].version) for tensor in cut]
        axis = _axis(there)
        return cut[0] if axis is None or len(cut) == 1 else torch.cat(cut, axis)

    shapes = {name: _shape(ranks, there, heads) for name, (ranks, there) in sources.items()}
    return LazyTensors(shapes, read)


def _tensor_of(part: RankFile, name: str) -> Tensor:
    if name not in part.pieces:
        raise DataError(part.path, f"lacks {name}", "the tensor of the first rank")
    return part.source.tensor(part.pieces[name])


def _shape(ranks: list[RankFile], name: str, heads: int) -> tuple[int, ...]:
    axis = _axis(name)
    shapes = [part.pieces[name].shape for part in ranks if name in part.pieces]
    if FUSED in name and shapes[0][0] * len(ranks) % (3 * heads):
        raise RecipeError(
            ranks[0].path, f"{name} {list(shapes[0])} does not fit {heads} heads", "a matching model.heads"
        )
    if axis is None or len(ranks) == 1:
        return shapes[0]
    return tuple(sum(shape[n] for shape in shapes) if n == axis else size for n, size in enumerate(shapes[0]))


def _axis(name: str) -> int | None:
    """Return the dimension along which a tensor is split over ranks; None if it is not split."""
    return 0 if ROWS.search(name) else 1 if COLUMNS.search(name) else None


def _rank_part(name: str, tensor: Tensor, rank: int, ranks: int) -> Tensor:
    axis = _axis(name)
    return tensor if axis is None else tensor.chunk(ranks, axis)[rank].contiguous().clone()


def _reorder(name: str, tensor: Tensor, heads: int, version: float, *, back: bool = False) -> Tensor:
    """Reorder a rank's query, key and value from the layout of a version to head by head; `back`: the inverse."""
    if FUSED not in name or version >= 2:
        return tensor
    if version < 1:  # [3, heads, numbers]
        shape = (heads, 3) if back else (3, heads)
        return tensor.unflatten(0, (*shape, -1)).transpose(0, 1).flatten(0, 2).contiguous()
    return tensor.unflatten(0, (heads, -1, 3)).transpose(1, 2).flatten(0, 2)  # [heads, numbers, 3]


def _spell(_: str, name: str) -> tuple[str, TensorLayout]:
    return _rename(name, BLOCK, BESIDE, "layers."), "alike"


def _spell_2019(_: str, name: str) -> tuple[str, TensorLayout]:
    return _rename(name, BLOCK_2019, BESIDE_2019, BERT_2019), "alike"


def _rename(name: str, block: dict[str, str], outside: dict[str, str], layers: str) -> str:
    module, _, end = name.rpartition(".")
    if match := re.match(r"model\.blocks\.(\d+)\.(.*)", module):
        return f"{layers}{match[1]}.{block[match[2]]}.{end}"
    return f"{outside[module]}.{end}"


def _name_2019(name: str) -> str:
    return f"transformer.{name}" if name.startswith(("layers.", "final_layernorm.")) else name


def _nested(tensors: dict[str, Tensor]) -> dict[str, Any]:
    """Return the tensors in nested tables, as Megatron has saved them since 2020."""
    model: dict[str, Any] = {"language_model": {"embedding": {}, "transformer": {}}}
    for name, tensor in tensors.items():
        first, _, rest = name.partition(".")
        if first in ("lm_head", "binary_head"):
            model.setdefault(first, {})[rest] = tensor
        elif first.endswith("_embeddings"):
            model["language_model"]["embedding"].setdefault(first, {})[rest] = tensor
        else:
            where = "pooler" if first == "pooler" else "transformer"
            model["language_model"].setdefault(where, {})[rest if first == "pooler" else name] = tensor
    return model


def _words(names: Any) -> str:
    return f"bert.embeddings.{WORDS}" if f"bert.embeddings.{WORDS}" in names else WORDS


def _described(tensors: LazyTensors, args: dict[str, Any], first: RankFile) -> tuple[tables.Table, str]:
    old = _words(tensors) != WORDS
    layers, before = (BERT_2019, "bert.embeddings.") if old else ("layers.", "")
    inner = f"{layers}0.{'intermediate.dense' if old else 'mlp.dense_h_to_4h'}.weight"
    types = "token_type_embeddings.weight" if old else TYPES
    names = [f"{before}{WORDS}", f"{before}{PLACES}", inner]
    if lacks := [name for name in names if name not in tensors]:
        known = f"{len(tensors):,} tensors, such as {', '.join(list(tensors)[:3])}"
        raise DataError(first.path, f"has {known}, but no {', '.join(lacks)}", "Megatron's GPT-2 or BERT")
    model: tables.Table = {
        "width": tensors.shapes[names[1]][1],
        "positions": tensors.shapes[names[1]][0],
        "inner": tensors.shapes[inner][0],
        "layers": renaming.layers(tensors, f"{layers}N."),
        "epsilon": 1e-5,
    }
    read = {
        "hidden_dropout": "dropout",
        "attention_dropout": "attention_dropout",
        "layernorm_epsilon": "epsilon",
        "norm_epsilon": "epsilon",
    }
    model |= {setting: args[key] for key, setting in read.items() if isinstance(args.get(key), float)}
    model |= {"activation": _activation(args, core=first.core, old=old)[0]}
    if not old and not any(name.startswith("lm_head.") for name in tensors):
        return {"kind": "gpt2"} | model, "clm"
    model |= {
        "kind": "bert" if old else "megatron_bert",
        "types": tensors.shapes[before + types][0] if before + types in tensors else 0,
    }
    pairs = any(name.startswith(("binary_head.", "cls.seq_relationship.")) for name in tensors)
    return model, "mlm_nsp" if pairs else "mlm"


def _activation(args: dict[str, Any], *, core: bool, old: bool) -> tuple[str, str]:
    """Return the activation that Megatron computes for such files, and why. Megatron Core ignores openai_gelu."""
    flags = {name: bool(args[name]) for name in (FLAGS[:1] if core else FLAGS) if name in args}
    if args.get("squared_relu"):
        return "relu2", "as squared_relu says"
    if old:
        return "gelu", "which Megatron's BERT of 2019 computes"
    if not flags and not core:
        return "gelu_tanh", f"which Megatron computes of files without {' and '.join(FLAGS)}, until April 2020"
    on = [name for name, value in flags.items() if value]
    return ("gelu_tanh", f"as {on[0]} says") if on else ("gelu", f"without {' and '.join(flags) or FLAGS[0]}")


def _reason(first: RankFile, args: dict[str, Any], model: tables.Table) -> str:
    """Return a note on the assumed activation and epsilon, and on a BERT whose head had another GELU."""
    name, problem = _activation(args, core=first.core, old=model["kind"] == "bert")
    reason = f"activation {name}, {problem}"
    if not args:
        reason += f"; epsilon {model['epsilon']}, because the file has none"
    if model["kind"] == "megatron_bert" and name == "gelu_tanh" and args.get(FLAGS[0]) and not args.get(FLAGS[1]):
        reason += "; its masked-LM head was trained with the exact GELU, so its scores differ by up to 1e-3 here"
    return reason


def _tokenizer(file: Path) -> Tokenizer:
    for folder in file.parents[1:4]:
        for names in LISTS:
            if all((folder / name).is_file() for name in names):
                return Tokenizer.load([folder / name for name in names])
    remedy = f"put vocab.txt (BERT), or vocab.json and merges.txt (GPT-2), next to {TRACKER}"
    raise DataError(file.parents[1], "no vocabulary next to it or above it", "the vocabulary of its ids", remedy)


def _check_2019(trained: Trained) -> None:
    """Raise RecipeError if Megatron of 2019 computes something else; say which sizes its scripts need."""
    settings = trained.settings
    if trained.kind == "megatron_bert":
        raise RecipeError("--set", "found style 2019 for a BERT with its norms before attention", "style=2020")
    bert, computed = trained.kind == "bert", (settings.activation, settings.epsilon, settings.inner)
    wanted = ("gelu", settings.epsilon, settings.inner) if bert else ("gelu_tanh", 1e-5, 4 * settings.width)
    if computed != wanted:
        remedy = "`ordsmed export` without --to keeps it unchanged" if bert else "add style=2020"
        computed_as, wanted_as = (f"{a}, epsilon {e}, {n:,} inside" for a, e, n in (computed, wanted))
        raise RecipeError(
            trained.folder, f"has {computed_as}", f"the settings of Megatron of 2019: {wanted_as}", remedy
        )
    flags = {
        "num-layers": settings.layers,
        "hidden-size": settings.width,
        "num-attention-heads": settings.heads,
        "max-position-embeddings": settings.positions,
    }
    flags |= {"intermediate-size": settings.inner, "layernorm-epsilon": settings.epsilon} if bert else {}
    say(
        f"files of 2019 have no sizes; Megatron's scripts need {' '.join(f'--{name} {n}' for name, n in flags.items())}"
    )


def _writable(trained: Trained, ranks: int) -> None:
    """Raise RecipeError if Megatron cannot compute such a network or split it over `ranks`."""
    settings, heads = trained.settings, [role for role in trained.objective.networks()[""].modules if role != "model"]
    if heads not in ([], ["head"], ["head", "pair"]) or not settings.tied:
        problem = f"has the heads {', '.join(heads)}, or an untied output layer"
        raise RecipeError(trained.folder, problem, "a tied head of clm, mlm or mlm_nsp")
    if settings.activation not in ("gelu", "gelu_tanh"):
        raise RecipeError(trained.folder, f"has {settings.activation}", "gelu or gelu_tanh")
    if settings.heads % ranks or settings.inner % ranks:
        problem = f"found ranks {ranks}, with {settings.heads} heads and {settings.inner} inside"
        raise RecipeError("--set", problem, "a divisor of both")
