"""Folders as other frameworks leave them: real TensorFlow checkpoints with vocabularies, torch's files made here."""

from __future__ import annotations

import argparse
import collections
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

REAL = Path(__file__).parents[1] / "base" / "binary" / "tensorflow"  # made by tests/measure/tensorflow_files.py
TORCH = REAL.with_name("torch")  # by fairseq and megatron-core themselves: tests/measure/torch_files.py
SIGNS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = 40


def wordpieces(folder: Path, count: int = WORDS) -> Path:
    """vocab.txt."""
    folder.mkdir(parents=True, exist_ok=True)
    pieces = [*SIGNS, *(f"w{n}" for n in range(count - len(SIGNS)))]
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n")
    return folder


def byte_pieces(folder: Path, count: int = WORDS) -> Path:
    """encoder.json and vocab.bpe: letters, two merges, signs that no text has, the end."""
    folder.mkdir(parents=True, exist_ok=True)
    letters = [*"abcdefghijklmnopqrstuvwxyz", "Ġ", "ab", "abc"]
    pieces = [*letters, *(f"¤{n}" for n in range(count - len(letters) - 1)), "<|endoftext|>"]
    (folder / "encoder.json").write_text(json.dumps({piece: n for n, piece in enumerate(pieces)}))
    (folder / "vocab.bpe").write_text("#version: 0.2\na b\nab c\n")
    return folder


def google_bert(folder: Path) -> Path:
    """A BERT of 2 layers of width 8 with both heads, an optimizer's slots and the step."""
    wordpieces(folder)
    for path in REAL.glob("bert_*"):
        shutil.copy(path, folder)
    return folder


def electra(folder: Path, kind: str = "electra") -> Path:
    """An ELECTRA of one layer of width 8 and its generator of width 4; `kind`: "electra" is Google's, or "nvidia"."""
    wordpieces(folder)
    for path in (REAL / kind).iterdir():
        shutil.copy(path, folder)
    return folder


def openai_gpt2(folder: Path) -> Path:
    """A GPT-2 of 2 layers of width 8."""
    byte_pieces(folder)
    for path in (REAL / "gpt2").iterdir():
        shutil.copy(path, folder)
    sizes = {"n_vocab": WORDS, "n_ctx": 12, "n_embd": 8, "n_head": 2, "n_layer": 2}
    (folder / "hparams.json").write_text(json.dumps(sizes))
    return folder


def transformers_network(kind: str, folder: Path, **sizes: int) -> tuple[Any, dict[str, Tensor]]:
    """A tiny network of transformers with every number random, saved; the network and its tensors."""
    import transformers

    configs = {
        "gpt2": {"n_positions": 12, "n_embd": 8, "n_head": 2, "n_layer": 2, "bos_token_id": 39, "eos_token_id": 39},
        "roberta": {
            **ENCODER,
            "max_position_embeddings": 14,
            "type_vocab_size": 1,
            "pad_token_id": 1,
            "layer_norm_eps": 1e-5,
        },
        "bert": ENCODER | {"layer_norm_eps": 1e-5},
        "megatron_bert": ENCODER | {"layer_norm_eps": 1e-5},
    }
    config, network = CLASSES[kind]
    settings = getattr(transformers, config)(vocab_size=WORDS, **(configs[kind] | sizes))
    made = getattr(transformers, network)(settings).eval()
    chance = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=chance) * 0.4)
        for name, parameter in made.named_parameters():
            if "token_type" in name and kind == "roberta":
                parameter.zero_()
    made.save_pretrained(folder)
    return made, {name: tensor.detach().clone() for name, tensor in made.state_dict().items()}


ENCODER = {
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 12,
    "type_vocab_size": 2,
}
CLASSES = {
    "gpt2": ("GPT2Config", "GPT2LMHeadModel"),
    "roberta": ("RobertaConfig", "RobertaForMaskedLM"),
    "bert": ("BertConfig", "BertForPreTraining"),
    "megatron_bert": ("MegatronBertConfig", "MegatronBertForPreTraining"),
}


def fairseq_roberta(folder: Path, theirs: dict[str, Tensor], *, old: bool = False, fused: bool = False) -> Path:
    """model.pt as fairseq saves it (facts: its names and Hugging Face's), and a vocabulary numbered by frequency."""
    inner = "encoder.sentence_encoder"
    names = {
        "embeddings.word_embeddings": "embed_tokens",
        "embeddings.position_embeddings": "embed_positions",
        "embeddings.LayerNorm": "emb_layer_norm" if old else "layernorm_embedding",
        "attention.self.query": "self_attn.q_proj",
        "attention.self.key": "self_attn.k_proj",
        "attention.self.value": "self_attn.v_proj",
        "attention.output.dense": "self_attn.out_proj",
        "attention.output.LayerNorm": "self_attn_layer_norm",
        "intermediate.dense": "fc1",
        "output.dense": "fc2",
        "output.LayerNorm": "final_layer_norm",
        "encoder.layer.": "layers.",
    }
    model = {f"{inner}.version": torch.ones(1)}
    for name, tensor in theirs.items():
        if name in ("lm_head.decoder.weight", "lm_head.decoder.bias") or "token_type" in name or "_ids" in name:
            continue
        for here, there in names.items():
            name = name.replace(here, there)
        model[name.replace("roberta.", f"{inner}.") if name.startswith("roberta.") else f"encoder.{name}"] = tensor
    model["encoder.lm_head.weight"] = model[f"{inner}.embed_tokens.weight"]
    if fused:
        for n in range(2):
            for end in ("weight", "bias"):
                parts = [model.pop(f"{inner}.layers.{n}.self_attn.{part}_proj.{end}") for part in "qkv"]
                model[f"{inner}.layers.{n}.self_attn.in_proj_{end}"] = torch.cat(parts)
    if old:
        model = {name.replace("encoder.", "decoder.", 1): tensor for name, tensor in model.items()}
    folder.mkdir(parents=True)
    told = argparse.Namespace(arch="roberta_base", encoder_attention_heads=2, activation_fn="gelu", dropout=0.2)
    about = {"args": told} if old else {"args": None, "cfg": {"model": told}}
    torch.save({**about, "model": model}, folder / "model.pt")
    byte_pieces(folder, WORDS - 7)  # four signs, <mask>, two that make up the number
    order = [*range(20, WORDS - 7), *range(20)]
    lines = [f"{number} {1000 - n}" for n, number in enumerate(order)] + ["madeupword0000 0", "madeupword0001 0"]
    (folder / "dict.txt").write_text("\n".join(lines) + "\n")
    return folder


def megatron(
    folder: Path,
    theirs: dict[str, Tensor],
    kind: str,
    *,
    version: float = 3.0,
    ranks: int = 1,
    stages: int = 1,
    old: bool = False,
    padding: int = 24,
    half: bool = False,
) -> Path:
    """What Megatron saves of a network of transformers; `old`: the flat names of 2019, and no sizes."""
    turned = re.compile(r"(attn|mlp)\.c_\w+\.weight")
    whole = {
        _megatrons(name, kind, old): (tensor.T if turned.search(name) else tensor).half().float()
        for name, tensor in theirs.items()
        if _megatrons(name, kind, old)
    }
    for name in [n for n in whole if n.endswith("query.weight") or n.endswith("query.bias")]:
        parts = [whole.pop(name.replace("query", part)) for part in ("query", "key", "value")]
        whole[
            name.replace("self.query", "self.query_key_value") if old else name.replace("query", "query_key_value")
        ] = torch.cat(parts)
    rows = [name for name in whole if "word_embeddings" in name or name.endswith(("lm_head.bias", "predictions.bias"))]
    for name in rows:
        more = torch.randn(padding, *whole[name].shape[1:], generator=torch.Generator().manual_seed(1))
        whole[name] = torch.cat([whole[name], more])
    args = argparse.Namespace(
        num_attention_heads=2,
        hidden_dropout=0.1,
        attention_dropout=0.1,
        params_dtype=torch.half,
        openai_gelu=kind == "gpt2",
        bias_gelu_fusion=False,
        layernorm_epsilon=1e-5,
        model_parallel_size=ranks,
    )
    (folder / "iter_0000100").mkdir(parents=True)
    (folder / "latest_checkpointed_iteration.txt").write_text("100")
    for stage in range(stages):
        for rank in range(ranks):
            cut = {name: _cut(name, t, rank, ranks, version) for name, t in whole.items()}
            cut = {name: t.half() for name, t in cut.items()} if half else cut
            held = cut if stages == 1 else _staged(cut, stage, stages)
            place = folder / "iter_0000100" / (f"mp_rank_{rank:02}" + (f"_{stage:03}" if stages > 1 else ""))
            place.mkdir()
            told = {"iteration": 100, "model": held if old else _tables(held), "rng_state": torch.get_rng_state()}
            told |= {} if old else {"args": args, "checkpoint_version": version}
            torch.save(told, place / "model_optim_rng.pt", _use_new_zipfile_serialization=not old)
    if kind == "gpt2":
        byte_pieces(folder)
    return folder if kind == "gpt2" else wordpieces(folder)


def _megatrons(name: str, kind: str, old: bool) -> str | None:
    """Megatron's name of a tensor of transformers'; None: it is there twice, or a buffer."""
    if "decoder" in name or name == "lm_head.weight" or "_ids" in name or name.endswith((".attn.bias", "masked_bias")):
        return None
    if kind == "bert":  # of 2019: as transformers
        return name
    pairs = (
        {
            "transformer.h.": "transformer.layers.",
            "ln_1": "input_layernorm",
            "attn.c_attn": "attention.query_key_value",
            "attn.c_proj": "attention.dense",
            "ln_2": "post_attention_layernorm",
            "mlp.c_fc": "mlp.dense_h_to_4h",
            "mlp.c_proj": "mlp.dense_4h_to_h",
            "transformer.ln_f": "transformer.final_layernorm",
            "transformer.wte": "word_embeddings",
            "transformer.wpe": "position_embeddings",
        }
        if kind == "gpt2"
        else {
            "bert.encoder.layer.": "transformer.layers.",
            "bert.encoder.ln": "transformer.final_layernorm",
            "attention.ln": "input_layernorm",
            "attention.self.": "attention.",
            "attention.output.dense": "attention.dense",
            "intermediate.dense": "mlp.dense_h_to_4h",
            "output.dense": "mlp.dense_4h_to_h",
            "bert.embeddings.token_type": "tokentype",
            "bert.embeddings.": "",
            "bert.pooler": "pooler",
            "cls.predictions.transform.dense": "lm_head.dense",
            "cls.predictions.transform.LayerNorm": "lm_head.layernorm",
            "cls.predictions": "lm_head",
            "cls.seq_relationship": "binary_head",
        }
    )
    for here, there in pairs.items():
        name = name.replace(here, there)
    return re.sub(r"(layers\.\d+)\.ln\.", r"\1.post_attention_layernorm.", name)


def _cut(name: str, tensor: Tensor, rank: int, ranks: int, version: float) -> Tensor:
    """The part of one rank, by Megatron's rules."""
    if "query_key_value" in name:
        own = tensor.reshape(3, ranks, 1 if ranks == 2 else 2, 4, *tensor.shape[1:])[:, rank]  # [3, heads, numbers]
        if version >= 2:
            own = own.transpose(0, 1)  # [heads, 3, numbers]
        elif version >= 1:
            own = own.movedim(0, 2)  # [heads, numbers, 3]
        return own.reshape(-1, *tensor.shape[1:]).clone()
    if re.search(r"word_embeddings|dense_h_to_4h|intermediate|lm_head\.bias|predictions\.bias", name):
        return tensor.chunk(ranks)[rank].clone()
    if re.search(r"(attention\.dense|dense_4h_to_h|output\.dense)\.weight", name):
        return tensor.chunk(ranks, 1)[rank].clone()
    return tensor.clone()


def _staged(cut: dict[str, Tensor], stage: int, stages: int) -> dict[str, Tensor]:
    """A layer a stage; the first has the embeddings, the last the rest."""
    held = {}
    for name, tensor in cut.items():
        layer = re.search(r"layers\.(\d+)\.", name)
        if layer and int(layer[1]) == stage:
            held[name.replace(f"layers.{stage}.", "layers.0.")] = tensor
        elif not layer and stage == (0 if "embeddings" in name else stages - 1):
            held[name] = tensor
    if stage == stages - 1:
        held["word_embeddings_for_head.weight"] = cut["word_embeddings.weight"]
    return held


def _tables(held: dict[str, Tensor]) -> dict[str, Any]:
    """Tables within tables, as since 2020; the newest say encoder and self_attention."""
    model: dict[str, Any] = {}
    for name, tensor in held.items():
        first, _, rest = name.partition(".")
        if first in ("lm_head", "binary_head", "word_embeddings_for_head"):
            model.setdefault(first, {})[rest] = tensor
            continue
        inner = model.setdefault("language_model", {})
        if first == "transformer":
            inner.setdefault("encoder", {})[
                rest.replace("attention.", "self_attention.", 1) if ".attention." in rest else rest
            ] = tensor
        elif first == "pooler":
            inner.setdefault("pooler", {})[rest] = tensor
        else:
            inner.setdefault("embedding", {}).setdefault(first, {})[rest] = tensor
    return {"language_model": model.pop("language_model", {}), **model}


class Unknown:
    """A class that no reader has."""

    def __init__(self) -> None:
        self.scale = 2.0


def everything() -> dict[str, Any]:
    """Of all that a file of torch.save may hold something."""
    table = torch.arange(12.0).reshape(3, 4)
    return {
        "args": argparse.Namespace(heads=2, dtype=torch.float16, sizes=[1, (2, 3)]),
        "model": collections.OrderedDict(
            a=table, turned=table.T, part=table[1:, 2:], half=table.half(), none=table[:0]
        ),
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "numbers": (torch.ones(3, dtype=torch.bfloat16), torch.tensor([1, 2]), torch.tensor(True)),
        "optimizer": torch.optim.Adam([torch.nn.Parameter(torch.ones(2))]).state_dict(),
        "chance": np.random.default_rng(0).bit_generator.state,
        "array": np.arange(3),
        "unknown": Unknown(),
        "values": [None, True, 1 << 70, -5, 2.5, "ø", (), (1,), (1, 2, 3, 4), b"bytes", {1, 2}],
    }
