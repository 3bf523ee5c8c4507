"""The files of a network as transformers has them (config.json, tensors, tokenizer), for formats built on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from ordsmed.base import files
from ordsmed.data.pieces import TextReader
from ordsmed.learn.head_transfer import UNIT, Scale, rescaled
from ordsmed.learn.objective import Network
from ordsmed.learn.task import reader
from ordsmed.nn.model import TASK_CLASSES, ModelSettings
from ordsmed.text.tokenizer import FRAMED, Tokenizer
from ordsmed.weights import weights

SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


def config(network: Network, tokenizer: Tokenizer) -> dict[str, Any]:
    settings = network.settings
    heads = " ".join(role for role in network.modules if role != "model")
    return {
        "architectures": [settings.architectures[heads]],
        "model_type": settings.model_type,
        **settings.hugging_face(tokenizer.vocabulary, tokenizer),
        "dtype": "float32",
        **(_task(heads, network, tokenizer) if heads in TASK_CLASSES else {}),
    }


def _task(kind: str, network: Network, tokenizer: Tokenizer) -> dict[str, Any]:
    """Return the config.json keys of a class with a task head: labels, and the padding token that GPT-2 needs."""
    labels = network.labels or (("LABEL_0",) if network.number else ())
    config: dict[str, Any] = {} if tokenizer.pad is None else {"pad_token_id": tokenizer.pad}
    if labels:
        config |= {"id2label": {str(n): label for n, label in enumerate(labels)}, "num_labels": len(labels)}
        config |= {"label2id": {label: n for n, label in enumerate(labels)}}
    if kind == "classify":
        config |= {"problem_type": "regression" if network.number else "single_label_classification"}
    return config


def tensors(network: Network, scale: Scale | None = None) -> weights.Tensors:
    """Return the weights in fp32 under Hugging Face's names, each once.

    With `scale`, a regression head is rescaled to output numbers on that scale.
    """
    by_name = {name: tensor.detach().to(torch.float32) for name, tensor in network.tensors().items()}
    return weights.to_foreign(by_name | (rescaled_head(by_name, scale) if scale else {}), network.settings.names())


def rescaled_head(tensors: weights.Tensors, scale: Scale, *, back: bool = False) -> weights.Tensors:
    """Return the last layer of a regression head, rescaled from [0, 1] to `scale`; with `back`, the inverse."""
    last = {name: tensor for name, tensor in tensors.items() if name.startswith("classify.out.")}
    return rescaled(last, UNIT, scale) if back else rescaled(last, scale, UNIT)


def write_tokenizer(
    tokenizer: Tokenizer,
    family: ModelSettings,
    folder: Path,
    *,
    continues: bool = False,
    start: bool = True,
    opening: int | None = None,
) -> None:
    """Write the tokenizer's files, with the network's maximum length, and token types if it has them.

    If the model `continues` texts, they also name the token that begins a text: `opening`, or the document separator.
    """
    tokenizer.save(folder)
    described = files.read_table(folder / "tokenizer_config.json")
    described["model_max_length"] = family.longest()
    hf_tokenizer = reader(tokenizer, family)
    types = ["token_type_ids"] if hf_tokenizer.types else []
    described["model_input_names"] = ["input_ids", *types, "attention_mask"]
    if continues:
        described |= _begin_texts(tokenizer, folder, start=start, opening=opening)
    files.write_json(folder / "tokenizer_config.json", described)
    files.write_json(folder / "special_tokens_map.json", {k: described[k] for k in SPECIAL if described.get(k)})
    if types and not any(tokenizer.pipeline.encode("a", "a").type_ids):
        with files.survive_disk(folder):
            _typed(hf_tokenizer).save(str(folder / "tokenizer.json"))


def _begin_texts(tokenizer: Tokenizer, folder: Path, *, start: bool, opening: int | None) -> dict[str, Any]:
    """Return the tokenizer_config.json keys of a causal model: the tokens that begin and end a text.

    With `start`, the saved tokenizer also puts the first of them before each text. The original post-processor is kept
    in the table: this library opens the folder with the original tokenizer.
    """
    if tokenizer.separator is None:
        return {}
    sign, begins = tokenizer.piece(tokenizer.separator), start and tokenizer.begins_texts
    first = sign if opening is None else tokenizer.piece(opening)
    if begins:
        with files.survive_disk(folder):
            _with_start(tokenizer, first).save(str(folder / "tokenizer.json"))
    kept = {FRAMED: tokenizer.about["post_processor"]} if begins else {}
    return {"bos_token": first, "eos_token": sign, "add_bos_token": begins, **kept}


def frame_texts(tokenizer: Tokenizer, folder: Path) -> None:
    """Make the tokenizer saved in a folder put the document separator before and after each text.

    A hybrid is trained on such rows. The original post-processor is kept in tokenizer_config.json, so that this library
    opens the folder with the original tokenizer.
    """
    if tokenizer.separator is None:
        return
    sign, path = tokenizer.piece(tokenizer.separator), folder / "tokenizer_config.json"
    with files.survive_disk(folder):
        _with_start(tokenizer, sign, behind=True).save(str(folder / "tokenizer.json"))
    kept = {FRAMED: tokenizer.about["post_processor"], "bos_token": sign, "eos_token": sign}
    files.write_json(path, files.read_table(path) | kept)


def _with_start(tokenizer: Tokenizer, sign: str, *, behind: bool = False) -> Any:
    """Return the tokenizer's pipeline with `sign` before each text, and after it if `behind`, and nothing else."""
    from tokenizers import Tokenizer as Pipeline
    from tokenizers import processors

    pipeline = Pipeline.from_str(tokenizer.pipeline.to_str())
    ends = [(sign, tokenizer.pipeline.token_to_id(sign))]
    after = [sign] if behind else []
    single, pair = [sign, "$A", *after], [sign, "$A", *after, "$B", *after]
    begun = processors.TemplateProcessing(single=single, pair=pair, special_tokens=ends)
    byte_level = (tokenizer.about["post_processor"] or {}).get("type") == "ByteLevel"  # computes the offsets of tokens
    pipeline.post_processor = processors.Sequence([pipeline.post_processor, begun]) if byte_level else begun
    return pipeline


def _typed(text_reader: TextReader) -> Any:
    """Return a copy of the tokenizer's pipeline that gives the second text of a pair token type 1.

    It is used if the network has token types, but the original pipeline (RoBERTa's) gives type 0 to both texts.
    """
    from tokenizers import Tokenizer as Pipeline
    from tokenizers import processors

    pipeline = Pipeline.from_str(text_reader.tokenizer.pipeline.to_str())
    signs = {
        n: text_reader.tokenizer.piece(n)
        for n in (*text_reader.frame.before, *text_reader.frame.between, *text_reader.frame.after)
    }
    before, between, after = (
        [signs[n] for n in part]
        for part in (text_reader.frame.before, text_reader.frame.between, text_reader.frame.after)
    )
    pair = [*before, "$A", *between, "$B:1", *(f"{sign}:1" for sign in after)]
    ends = [(piece, n) for n, piece in signs.items()]
    framed = processors.TemplateProcessing(single=[*before, "$A", *after], pair=pair, special_tokens=ends)
    pipeline.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=True), framed])
    return pipeline
