"""Google's BERT: bert_config.json, vocab.txt, and a TensorFlow checkpoint, with pretraining or task heads or none.

Tensor names of TensorFlow 1 and 2 are in weights/google.py. Google's `gelu` is the tanh form, which others call
gelu_new. Optimizer state is not read. The classes of run_classifier's head have numbers, no names. For run_squad, an
unused pooler is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from ordsmed.base import files
from ordsmed.base import settings as tables
from ordsmed.base.binary import bundle
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.menu import Choice
from ordsmed.base.say import say
from ordsmed.learn.head_transfer import unscaled
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.weights import foreign, google, renaming
from ordsmed.weights.foreign import Imported
from ordsmed.weights.renaming import LazyTensors

CONFIG, PREFIX, VOCABULARY = "bert_config.json", "bert_model.ckpt", "vocab.txt"
WORDS = "bert/embeddings/word_embeddings"
HEADS = ("cls/predictions/", "cls/seq_relationship/")
CLASSES, SPAN = "output_weights", "cls/squad/output_weights"  # of run_classifier.py, of run_squad.py
POOLER = "bert/pooler/"  # used only by heads that read a complete text
WRITTEN = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "max_position_embeddings",
    "type_vocab_size",
    "initializer_range",
)


@dataclass(frozen=True)
class GoogleBert(Choice):
    """Read and write BERT with its pretraining heads, a classifier, or a SQuAD head; read it without heads."""

    wanted: ClassVar[str] = "a folder with bert_config.json, vocab.txt and a TensorFlow checkpoint (*.index, *.data-*)"
    readers: ClassVar[str] = "bert_config.json, bert_model.ckpt, vocab.txt: google-research/bert and TensorFlow open it"
    families: ClassVar[tuple[str, ...]] = ("bert",)

    def recognises(self, path: Path) -> bool:
        folder = path if path.is_dir() else path.parent
        prefix = bundle.find(path)
        return prefix is not None and ((folder / CONFIG).is_file() or WORDS in bundle.names(prefix))

    def read(self, path: Path, overrides: Sequence[str] = ()) -> Imported:
        folder = path if path.is_dir() else path.parent
        source = bundle.opened(path)
        stored = google.without_slots(google.with_tf1_names(LazyTensors(source.shapes(), source.read)))
        target = folder / CONFIG
        config = files.read_table(target)
        known = config.get("hidden_act")
        if known not in google.ACTIVATIONS:
            raise DataError(target, f"hidden_act: found {known}", " or ".join(google.ACTIVATIONS))
        network = foreign.meant("bert", config | {"hidden_act": google.ACTIVATIONS[known]}, target)
        learned, idle, notes = _head_tables(stored, network.longest(), path)
        stored = stored.renamed(lambda name: None if idle and re.match(idle, name) else name)
        table = {"model": tables.plain(network), **learned}
        networks = foreign.decoded(tables.override(table, overrides), folder / CONFIG)
        lists = sorted(folder.glob("*vocab*.txt"))
        if len(lists) != 1:
            wrong = f"holds {' and '.join(p.name for p in lists)}" if lists else "has no vocab.txt"
            raise DataError(folder, wrong, "a single vocabulary, that of its ids", "rename it to vocab.txt")
        tokenizer = Tokenizer.load(lists[0])
        padding_notes = renaming.padding_note(stored, WORDS, tokenizer, path)
        bare = "objective" in learned and not any(name.startswith(HEADS[0]) for name in stored)
        only = r"model\.|pair\.dense\." if bare else ""
        tensors = renaming.import_tensors(networks, tokenizer, stored, google.spelled, path, only=only)
        return Imported(networks, tokenizer, tensors, (*padding_notes, *(f"{path}: {note}" for note in notes)), bare)

    def write(self, trained: Any, folder: Path) -> None:
        network = trained.objective.networks()[""]
        if trained.tokenizer.kind != "wordpiece":
            raise RecipeError(trained.folder, f"has a {trained.tokenizer.kind} tokenizer", "wordpiece")
        heads = [role for role in network.modules if role != "model"]
        learned = heads in (["classify"], ["span"])
        if (heads not in (["head"], ["head", "pair"]) and not learned) or not (network.settings.tied or learned):
            wrong = f"has the heads {', '.join(heads) or 'none'}, {'' if network.settings.tied else 'not '}tied"
            wanted = "a tied pretraining head (mlm or mlm_nsp), or a head of a classifier or for SQuAD"
            raise RecipeError(trained.folder, wrong, wanted)
        described = network.settings.hugging_face(trained.tokenizer.vocabulary, trained.tokenizer)
        activations = {there: here for here, there in google.ACTIVATIONS.items()} | {"gelu": "gelu"}
        settings, activation = network.settings, described["hidden_act"]
        if activation not in activations or settings.epsilon != 1e-12 or not settings.types:
            wrong = f"has {settings.activation}, epsilon {settings.epsilon}, types {settings.types}"
            remedy = "`ordsmed export` without --to keeps it unchanged"
            raise RecipeError(
                trained.folder, wrong, "the settings of google-research/bert: gelu, 1e-12, 1 or more", remedy
            )
        if activation == "gelu":
            say("it uses the exact gelu: google-research/bert computes the tanh form, which differs by up to 1e-3")
        config = {"vocab_size": trained.tokenizer.vocabulary, "hidden_act": activations[activation]}
        files.write_json(folder / CONFIG, config | {key: described[key] for key in WRITTEN})
        bundle.write(folder / PREFIX, _tensors_to_write(trained, heads))
        files.write_text(folder / VOCABULARY, trained.tokenizer.listed())
        if network.labels:
            say(f"its classes have numbers there: {', '.join(f'{n} {name}' for n, name in enumerate(network.labels))}")


def _tensors_to_write(trained: Any, heads: list[str]) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors to write. run_squad.py also requires a pooler, which it does not use: it is zero."""
    instead = unscaled(trained.objective, trained.learned) if heads == ["classify"] else {}
    yield from renaming.export_tensors(trained.objective, google.spelled, instead=instead)
    if heads == ["span"]:
        width = trained.settings.width
        yield f"{POOLER}dense/kernel", torch.zeros(width, width)
        yield f"{POOLER}dense/bias", torch.zeros(width)


def _head_tables(tensors: LazyTensors, longest: int, path: Path) -> tuple[tables.Table, str, list[str]]:
    """Return the recipe's table of what a checkpoint learned, a pattern of unused tensors, and notes for the user."""
    masks, pairs = (any(name.startswith(scope) for name in tensors) for scope in HEADS)
    idle, notes = ("", [])
    if CLASSES in tensors or SPAN in tensors:
        labels = tuple(f"LABEL_{n}" for n in range(tensors.shapes[CLASSES][0])) if CLASSES in tensors else ()
        number = len(labels) == 1
        role = "classify" if labels else "span"
        kind, table = foreign.task_with(role, () if number else labels, number, longest)
        if len(labels) > 1:
            notes.append(f"its classes have no names: {', '.join(labels)}; name them with task.labels=[...]")
        if masks or pairs:
            notes.append("the pretraining heads are not read")
        return {"task": {"kind": kind, **table}}, "|".join([*HEADS, *([] if labels else [POOLER])]), notes
    if pairs and not masks:
        theirs_are = ", ".join(sorted({name.split("/")[0] for name in tensors}))
        raise DataError(
            path,
            f"has no masked-LM head (scopes: {theirs_are})",
            "cls/predictions/...",
            "use the checkpoint of the pretraining",
        )
    if masks and not pairs:
        idle, notes = POOLER, ["no head for pairs, so its pooler is not read"]
    if not masks:
        notes.append("a network without heads, converted to a Hugging Face folder for `embed` and `finetune init=...`")
    pooled = any(name.startswith(POOLER) for name in tensors)
    return {"objective": {"kind": "mlm_nsp" if pooled and not idle else "mlm"}}, idle, notes
