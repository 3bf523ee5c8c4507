"""fairseq's RoBERTa: model.pt, dict.txt (its ids of GPT-2's tokens), and GPT-2's encoder.json and vocab.bpe.

    after encoder.sentence_encoder.              here
    embed_tokens, embed_positions                model.words, model.places
    emb_layer_norm | layernorm_embedding         model.norm
    layers.N.self_attn.in_proj_weight            model.blocks.N.attention.gather, head by head
        | q_proj, k_proj, v_proj
    layers.N.fc1, fc2, final_layer_norm          up, down, norm

Old files have `decoder.` instead of `encoder.`. Of the heads of a fine-tuning, classification_heads.NAME, the one that
its settings name is read, or the only one. Pickles are read without running code (base/binary/pickle_reader.py).
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch

from ordsmed.base import files
from ordsmed.base import settings as tables
from ordsmed.base.binary import pickle_reader
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.menu import Choice
from ordsmed.base.say import say
from ordsmed.learn.head_transfer import unscaled
from ordsmed.nn.model import own_tensors
from ordsmed.text import vocabulary
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.weights import foreign, renaming
from ordsmed.weights.foreign import Imported
from ordsmed.weights.renaming import LazyTensors, TensorLayout
from ordsmed.weights.trained_model import Trained

MODEL, LISTING, PIECES, MERGES = "model.pt", "dict.txt", "encoder.json", "vocab.bpe"
BODY, SCORES = "encoder.sentence_encoder.", "encoder.lm_head."
WORDS = f"{BODY}embed_tokens.weight"
TYPES = "roberta.embeddings.token_type_embeddings.weight"  # fairseq has no such table
OLD = ((r"^decoder\.", "encoder."), (r"\.emb_layer_norm\.", ".layernorm_embedding."))
HEADS = r"classification_heads\."
IDLE = re.compile(  # the last ones are copies that fairseq 0.12 keeps for a second implementation
    r"sentence_encoder\.version$|\._float_tensor$|^encoder\.lm_head\.weight$|"
    r"\.layers\.\d+\.(in_proj|out_proj|fc1|fc2)_(weight|bias)$"
)
NAMES = (  # Hugging Face's -> fairseq's
    (r"^roberta\.embeddings\.word_embeddings", f"{BODY}embed_tokens"),
    (r"^roberta\.embeddings\.position_embeddings", f"{BODY}embed_positions"),
    (r"^roberta\.embeddings\.LayerNorm", f"{BODY}layernorm_embedding"),
    (r"^roberta\.encoder\.layer\.", f"{BODY}layers."),
    (r"attention\.self\.(query|key|value)", lambda match: f"self_attn.{match[1][0]}_proj"),
    (r"attention\.output\.dense", "self_attn.out_proj"),
    (r"attention\.output\.LayerNorm", "self_attn_layer_norm"),
    (r"intermediate\.dense", "fc1"),
    (r"output\.dense", "fc2"),
    (r"output\.LayerNorm", "final_layer_norm"),
    (r"^lm_head\.", SCORES),
)


@dataclass(frozen=True)
class FairseqRoberta(Choice):
    """Read and write RoBERTa with its masked-LM head or a classification head."""

    name: str = "sentence_classification_head"
    """name of the classification head in the written file"""
    old: bool = False
    """write the names of 2019, `decoder.` and `emb_layer_norm`"""
    fused: bool = False
    """write query, key and value as one tensor, `in_proj`"""

    wanted: ClassVar[str] = "a folder with fairseq's model.pt, dict.txt, encoder.json and vocab.bpe"
    readers: ClassVar[str] = "model.pt, dict.txt, encoder.json, vocab.bpe: fairseq's RobertaModel.from_pretrained"
    families: ClassVar[tuple[str, ...]] = ("roberta",)

    def recognises(self, path: Path) -> bool:
        folder = path if path.is_dir() else path.parent
        return (folder / LISTING).is_file() and _file(path) is not None

    def read(self, path: Path, overrides: Sequence[str] = ()) -> Imported:
        file = _file(path)
        assert file is not None
        source = pickle_reader.Pickled(file)
        table = pickle_reader.attributes(source.value)
        if not isinstance(table.get("model"), dict):
            raise DataError(file, "has no table `model`", "a checkpoint of fairseq's RoBERTa")
        stored, notes = _modern(source, table["model"], file)
        described = _described(stored, table, file)
        if "num_attention_heads" not in described:
            if not any(word.startswith("model.heads=") for word in overrides):
                raise RecipeError(file, "has no number of attention heads", "their number", "add model.heads=N")
            described["num_attention_heads"] = 1
        network = foreign.meant("roberta", described, file)
        objective_kind = tables.override({}, overrides).get("objective")  # if set, read the masked-LM head
        head, learned = _head_tables(
            stored, _arguments(table), network.longest(), notes, words=objective_kind is not None
        )
        idle = re.compile(rf"{HEADS}(?!{re.escape(head)}\.)|{re.escape(SCORES)}" if head else HEADS)
        stored = stored.renamed(lambda name: None if idle.match(name) else name)
        recipe = {"model": tables.plain(network) | {"types": 0}, **learned}
        networks = foreign.decoded(tables.override(recipe, overrides), file)
        tokenizer = _tokenizer(file.parent)
        padding = renaming.padding_note(stored, WORDS, tokenizer, file)
        tensors = renaming.import_tensors(networks, tokenizer, stored, speller(head), file)
        return Imported(networks, tokenizer, tensors, (*padding, *(f"{file}: {note}" for note in notes)))

    def write(self, trained: Any, folder: Path) -> None:
        network, tokenizer = trained.objective.networks()[""], trained.tokenizer
        model = network.settings
        roles = (tokenizer.start, tokenizer.pad, tokenizer.stop, tokenizer.unknown, tokenizer.mask)
        heads = [role for role in network.modules if role != "model"]
        if heads not in (["head"], ["classify"]):
            wrong = f"has the heads {', '.join(heads) or 'none'}"
            raise RecipeError(trained.folder, wrong, "the masked-LM head (mlm) or a classification head")
        tied = model.tied or heads == ["classify"]
        if (max(model.types, 1), model.epsilon, tied) != (1, 1e-5, True) or model.activation not in ("gelu", "relu"):
            wrong = f"has types {model.types}, epsilon {model.epsilon}, tied {model.tied}, {model.activation}"
            raise RecipeError(trained.folder, wrong, "the settings of fairseq's RoBERTa: 0 or 1, 1e-5, true, gelu")
        if roles != (0, 1, 2, 3, tokenizer.vocabulary - 1) or not tokenizer.byte_level:
            remedy = 'learn one with kind = "bytebpe" and order = "roberta"'
            raise RecipeError(trained.folder, "numbers its signs otherwise than fairseq does", "", remedy)
        instead = unscaled(trained.objective, trained.learned) if heads == ["classify"] else {}
        instead = {**instead, **_without_types(trained)}
        tensors = dict(renaming.export_tensors(trained.objective, speller(self.name), instead=instead))
        tensors.pop(TYPES, None)
        if heads == ["classify"]:
            tensors |= {
                name: torch.zeros(shape) for name, shape in _head_shapes(model.width, tokenizer.vocabulary).items()
            }
        tensors |= {f"{SCORES}weight": tensors[WORDS], f"{BODY}version": torch.tensor([3.0])}
        args = argparse.Namespace(
            arch="roberta_base",
            encoder_layers=model.layers,
            encoder_embed_dim=model.width,
            encoder_ffn_embed_dim=model.inner,
            encoder_attention_heads=model.heads,
            activation_fn=model.activation,
            dropout=model.dropout,
            attention_dropout=model.attention_dropout,
            max_positions=model.positions,
            tokens_per_sample=model.positions,
            pooler_activation_fn="tanh",
            pooler_dropout=0.0,
            activation_dropout=0.0,
            **_training_arguments(network, heads, self.name),
        )
        pickle_reader.write(folder / MODEL, {"args": args, "model": self._with_chosen_names(tensors)})
        pieces = [tokenizer.piece(number) for number in range(len(vocabulary.ROBERTA), tokenizer.vocabulary - 1)]
        real = [piece for piece in pieces if not piece.startswith("madeupword")]
        numbers = {piece: number for number, piece in enumerate(real)}
        files.write_json(folder / PIECES, numbers)
        files.write_text(folder / MERGES, "#version: 0.2\n" + "".join(f"{pair}\n" for pair in tokenizer.merges()))
        files.write_text(folder / LISTING, "".join(f"{numbers.get(piece, piece)} 1\n" for piece in pieces))

    def _with_chosen_names(self, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return the tensors under the names that the settings `old` and `fused` choose."""
        if self.fused:
            for first in [name for name in tensors if ".self_attn.q_proj." in name]:
                parts = [tensors.pop(first.replace("q_proj", f"{part}_proj")) for part in "qkv"]
                tensors[first.replace("q_proj.", "in_proj_")] = torch.cat(parts)
        if not self.old:
            return tensors
        return {
            re.sub("^encoder", "decoder", name).replace(".layernorm_embedding.", ".emb_layer_norm."): tensor
            for name, tensor in tensors.items()
        }


def _without_types(trained: Trained) -> dict[str, torch.Tensor]:
    """Return the position table with the only row of token types added: every token gets both."""
    tensors = own_tensors(trained.objective)
    row = tensors.get("model.types.weight")
    if row is None or not row.any():
        return {}
    say("its only token type is added to the position embeddings, because fairseq has no token types")
    return {"model.places.weight": tensors["model.places.weight"] + row[0]}


def _training_arguments(network: Any, heads: list[str], name: str) -> dict[str, Any]:
    if heads == ["head"]:
        return {"task": "masked_lm"}
    if network.labels:
        say(f"its classes have numbers there: {', '.join(f'{n} {name}' for n, name in enumerate(network.labels))}")
    rows = len(network.labels) or 1
    named = {"classification_head_name": name, "num_classes": rows, "regression_target": network.number}
    return {"task": "sentence_prediction", **named}


def _head_shapes(width: int, rows: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the masked-LM head, which fairseq also requires with a classification head."""
    parts = {"dense.weight": (width, width), "dense.bias": (width,), "layer_norm.weight": (width,)}
    return {
        f"{SCORES}{name}": shape for name, shape in (parts | {"layer_norm.bias": (width,), "bias": (rows,)}).items()
    }


def speller(head: str = "") -> renaming.Spell:
    """Return the function from Hugging Face's names to fairseq's; `head` is the name of the classification head."""

    def spell(_: str, name: str) -> tuple[str, TensorLayout]:
        name = re.sub(r"^classifier\.", f"classification_heads.{head}.", name)
        for pattern, new in NAMES:
            name = re.sub(pattern, new, name)
        return name, "alike"

    return spell


def _file(path: Path) -> Path | None:
    if path.is_file():
        return path if path.suffix == ".pt" and pickle_reader.is_pickled(path) else None
    paths = [path / MODEL] if (path / MODEL).is_file() else sorted(path.glob("*.pt"))
    return paths[0] if len(paths) == 1 and pickle_reader.is_pickled(paths[0]) else None


def _modern(source: pickle_reader.Pickled, table: object, file: Path) -> tuple[LazyTensors, list[str]]:
    """Return the tensors under current names, with query, key and value split and unused tensors dropped, and notes."""
    pieces = source.flat(table)
    tensors = LazyTensors(
        {name: piece.shape for name, piece in pieces.items()}, lambda name: source.tensor(pieces[name])
    )

    def rename(name: str) -> str:
        for pattern, new in OLD:
            name = re.sub(pattern, new, name)
        return name

    tensors = tensors.renamed(rename)
    if f"{SCORES}weight" in tensors and WORDS in tensors and not tensors[f"{SCORES}weight"].equal(tensors[WORDS]):
        raise DataError(file, f"{SCORES}weight differs from {WORDS}", "words scored with the embedding matrix")
    notes: list[str] = []
    fused = {name: name.replace("in_proj_", "{}_proj.") for name in tensors if ".self_attn.in_proj_" in name}
    thirds = {new.format(part): (name, n) for name, new in fused.items() for n, part in enumerate("qkv")}
    left = tensors.renamed(lambda name: None if name in fused or IDLE.search(name) else name)
    shapes = {name: (tensors.shapes[of][0] // 3, *tensors.shapes[of][1:]) for name, (of, _) in thirds.items()}

    def read(name: str) -> torch.Tensor:
        of, n = thirds.get(name, (name, 0))
        return tensors[of].chunk(3)[n] if name in thirds else left[name]

    return LazyTensors({**left.shapes, **shapes}, read), notes


def _arguments(table: dict[str, Any]) -> dict[str, Any]:
    """Return the training arguments: a Namespace, or since 2020 a table with one for the model."""
    model = pickle_reader.plain(pickle_reader.attributes(table.get("cfg")).get("model"))
    return pickle_reader.plain(table.get("args")) or model


def _head_tables(
    tensors: LazyTensors, args: dict[str, Any], longest: int, notes: list[str], *, words: bool
) -> tuple[str, tables.Table]:
    """Return the name of the classification head to read, and the recipe's tables of what was learned.

    The name is empty for the masked-LM head, which `words` requests.
    """
    heads = sorted({name.split(".")[1] for name in tensors if re.match(HEADS, name)})
    named = args.get("classification_head_name")
    head = "" if words else str(named) if named in heads else heads[0] if len(heads) == 1 else ""
    if left := [name for name in heads if name != head]:
        notes.append(f"classification heads that are not read: {', '.join(left)}")
    rows = tensors.shapes.get(f"classification_heads.{head}.out_proj.weight", (0,))[0]
    if not head:
        return "", {"objective": {"kind": "mlm"}}
    number = rows == 1 or bool(args.get("regression_target"))
    labels = () if number else tuple(f"LABEL_{n}" for n in range(rows))
    kind, table = foreign.task_with("classify", labels, number, longest)
    if labels:
        notes.append(f"the classes of {head} have no names: {', '.join(labels)}; name them with task.labels=[...]")
    if any(name.startswith(SCORES) for name in tensors):
        notes.append("the classification head is read, the masked-LM head is not; `objective.kind=mlm` reads it")
    return head, {"task": {"kind": kind, **table}}


def _described(tensors: LazyTensors, table: dict[str, Any], file: Path) -> dict[str, Any]:
    args = _arguments(table)
    names = [WORDS, f"{BODY}embed_positions.weight", f"{BODY}layers.0.fc1.weight"]
    if lacks := [name for name in names if name not in tensors]:
        raise DataError(file, f"lacks {' and '.join(lacks)}", "a checkpoint of fairseq's RoBERTa")
    (rows, width), (places, _), (inner, _) = (tensors.shapes[name] for name in names)
    described = {
        "vocab_size": rows,
        "hidden_size": width,
        "intermediate_size": inner,
        "max_position_embeddings": places,
        "num_hidden_layers": renaming.layers(tensors, f"{BODY}layers.N."),
        "type_vocab_size": 1,
        "layer_norm_eps": 1e-5,
        "hidden_act": args.get("activation_fn", "gelu"),
    }
    if isinstance(args.get("encoder_attention_heads"), int):
        described["num_attention_heads"] = args["encoder_attention_heads"]
    known = {"dropout": "hidden_dropout_prob", "attention_dropout": "attention_probs_dropout_prob"}
    return described | {setting: args[name] for name, setting in known.items() if isinstance(args.get(name), float)}


def _tokenizer(folder: Path) -> Tokenizer:
    if lacks := [name for name in (LISTING, PIECES, MERGES) if not (folder / name).is_file()]:
        remedy = "put GPT-2's two files there: dict.txt has only other ids for their tokens"
        raise DataError(folder, f"has no {' and no '.join(lacks)}", "the vocabulary of its ids", remedy)
    return Tokenizer.load([folder / PIECES, folder / MERGES, folder / LISTING])
