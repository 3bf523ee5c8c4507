"""Writes tests/base/binary/torch/ with fairseq and megatron-core themselves: tiny checkpoints, and outputs.

    pip download --no-deps fairseq==0.12.2 megatron-core; unpack both beside each other into SOURCES
    pip install --no-deps --target SOURCES omegaconf antlr4-python3-runtime==4.9.3 hydra-core packaging pyyaml regex \\
        bitarray sacrebleu portalocker tabulate colorama lxml einops
    python tests/measure/torch_files.py SOURCES fairseq; python tests/measure/torch_files.py SOURCES megatron

fairseq is older than Python 3.11: its dataclasses have defaults that may be changed, which are made factories here, and
`hydra_init()` at the end of its __init__.py, which cannot have those, is to be taken out by hand.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

OUT = Path(__file__).parents[1] / "base" / "binary" / "torch"
TOKENS = torch.arange(4, 22).reshape(2, 9)
VOCABULARY, POSITIONS = 40, 12


def draw(network: Any, seed: int) -> None:
    """Random numbers everywhere, norms and offsets included."""
    chance = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=chance) * 0.4)


def of_today() -> None:
    """fairseq's dataclasses on a Python that refuses their defaults."""
    real = dataclasses._get_field  # type: ignore[attr-defined]

    def field(cls: Any, name: str, kind: Any, keyword: Any) -> Any:
        default = getattr(cls, name, dataclasses.MISSING)
        default = default.default if isinstance(default, dataclasses.Field) else default
        theirs = cls.__module__.startswith("fairseq") and dataclasses.is_dataclass(default)
        if theirs and not isinstance(default, type):
            setattr(cls, name, dataclasses.field(default_factory=type(default)))
        return real(cls, name, kind, keyword)

    dataclasses._get_field = field  # type: ignore[attr-defined]


def fairseq() -> None:
    from fairseq.data import Dictionary
    from fairseq.models.roberta.model import RobertaModel, base_architecture

    dictionary = Dictionary()
    for number in [*range(20, 33), *range(20)]:
        dictionary.add_symbol(f"{number}", n=100 - number)
    for n in range(2):
        dictionary.add_symbol(f"madeupword{n:04}", n=0)
    lines = [f"{word} {count}\n" for word, count in zip(dictionary.symbols[4:], dictionary.count[4:], strict=True)]
    dictionary.add_symbol("<mask>")
    args = argparse.Namespace(
        encoder_layers=2,
        encoder_embed_dim=8,
        encoder_ffn_embed_dim=16,
        encoder_attention_heads=2,
        dropout=0.1,
        max_positions=POSITIONS,
        tokens_per_sample=POSITIONS,
        classification_head_name="sentence_classification_head",
    )
    base_architecture(args)
    task = argparse.Namespace(source_dictionary=dictionary, dictionary=dictionary)
    network = RobertaModel.build_model(args, task).eval()
    says = {"tokens": TOKENS.numpy()}
    for kind in ("pretrained", "classes"):
        if kind == "classes":
            network.register_classification_head("sentence_classification_head", num_classes=3)
        draw(network, 3)
        folder = OUT / f"fairseq_{kind}"
        folder.mkdir(parents=True, exist_ok=True)
        head = {"classification_head_name": args.classification_head_name} if kind == "classes" else {}
        said = network.eval()(TOKENS, features_only=kind == "classes", **head)[0]
        says[f"fairseq_{kind}"] = said.detach().numpy()
        state = {
            "args": None,
            "cfg": {"model": args, "common": {"seed": 1}},
            "model": network.state_dict(),
            "criterion": None,
            "optimizer_history": [{"num_updates": 7}],
            "extra_state": {"epoch": 1},
        }
        torch.save(state, folder / "model.pt")
        (folder / "dict.txt").write_text("".join(lines))
    np.savez_compressed(OUT / "fairseq.npz", **says)


def megatron() -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29611", RANK="0", WORLD_SIZE="1")
    torch.distributed.init_process_group("gloo", rank=0, world_size=1)
    from megatron.core import parallel_state
    from megatron.core.models.bert.bert_layer_specs import bert_layer_local_spec
    from megatron.core.models.bert.bert_model import BertModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.tensor_parallel.random import CudaRNGStatesTracker
    from megatron.core.transformer.transformer_config import TransformerConfig

    torch.cuda.current_device = lambda: "cpu"  # its buffers ask for one  # type: ignore[assignment,return-value]
    CudaRNGStatesTracker.fork = lambda self, name="": contextlib.nullcontext()  # nothing is dropped
    parallel_state.initialize_model_parallel(1, 1)
    config = TransformerConfig(
        num_layers=2,
        hidden_size=8,
        num_attention_heads=2,
        ffn_hidden_size=32,
        use_cpu_initialization=True,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        bias_activation_fusion=False,
        masked_softmax_fusion=False,
        persist_layer_norm=False,
        apply_rope_fusion=False,
        bias_dropout_fusion=False,
    )
    rows, both = VOCABULARY + 8, {"share_embeddings_and_output_weights": True}
    args = argparse.Namespace(
        num_layers=2,
        hidden_size=8,
        num_attention_heads=2,
        ffn_hidden_size=32,
        max_position_embeddings=POSITIONS,
        layernorm_epsilon=1e-5,
        padded_vocab_size=rows,
        tensor_model_parallel_size=1,
        pipeline_model_parallel_size=1,
        hidden_dropout=0.1,
        attention_dropout=0.1,
        params_dtype=torch.float32,
        openai_gelu=False,
        bias_gelu_fusion=False,
        normalization="LayerNorm",
        position_embedding_type="learned_absolute",
        swiglu=False,
        use_mcore_models=True,
        add_position_embedding=True,
        untie_embeddings_and_output_weights=False,
        group_query_attention=False,
    )
    mask = torch.tril(torch.ones(1, 1, 9, 9)) < 0.5
    places = torch.arange(9).expand(2, 9)
    gpt = GPTModel(
        config, get_gpt_layer_local_spec(), rows, POSITIONS, position_embedding_type="learned_absolute", **both
    )
    bert = BertModel(config, 2, bert_layer_local_spec, rows, POSITIONS, **both)
    types = (torch.arange(9) > 4).long().expand(2, 9)
    says: dict[str, Any] = {"tokens": TOKENS.numpy(), "types": types.numpy()}
    for kind, network in (("gpt2", gpt), ("bert", bert)):
        draw(network, 4)
        network.eval()
        folder = OUT / f"megatron_core_{kind}"
        place = folder / "iter_0000007" / "mp_rank_00"
        place.mkdir(parents=True, exist_ok=True)
        state = {
            "args": args,
            "checkpoint_version": 3.0,
            "iteration": 7,
            "model": network.state_dict(),
            "rng_state": [{"random_rng_state": None}],
            "num_floating_point_operations_so_far": 0,
        }
        torch.save(state, place / "model_optim_rng.pt")
        (folder / "latest_checkpointed_iteration.txt").write_text("7")
        if kind == "gpt2":
            says["gpt2"] = network(TOKENS, places, mask).detach().numpy()
        else:
            words, pair = network(TOKENS, torch.ones(2, 9), tokentype_ids=types)
            says |= {"bert.words": words.detach().numpy(), "bert.pair": pair.detach().numpy()}
    np.savez_compressed(OUT / "megatron_core.npz", **says)


if __name__ == "__main__":
    sys.path[:0] = [sys.argv[1], str(Path(sys.argv[1]) / "fairseq-0.12.2")]
    OUT.mkdir(parents=True, exist_ok=True)
    if sys.argv[2] == "fairseq":
        of_today()
    {"fairseq": fairseq, "megatron": megatron}[sys.argv[2]]()
