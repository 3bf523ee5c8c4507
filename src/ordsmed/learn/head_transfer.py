"""Head transfer: reuse a fine-tuned head for a task of the same kind, label by label.

For example, a head for (contradiction, entailment, neutral) gives one for (entailment, not_entailment) the row of
"entailment".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ordsmed.learn.task import Task

Scale = tuple[float, float]
UNIT: Scale = (0.0, 1.0)
MAX_LISTED = 8  # label names in a message


@dataclass(frozen=True)
class TransferredHead:
    names: frozenset[str] = frozenset()  # of the copied tensors; empty if the heads do not fit
    note: str = ""  # what was copied, or why not
    labels: tuple[str, ...] = ()  # labels whose rows were copied


def transfer_head(task: Task, learned: Task, scales: tuple[Scale, Scale] | None = None) -> TransferredHead:
    """Copy the head of `learned`, and the layers under it (`top`), into `task` if both heads are of the same kind.

    Labels are matched by name: rows of shared labels are copied, other labels keep their random weights. A head for
    numbers, trained on the first of two `scales`, is rescaled to predict the same numbers on the second.
    """
    role, learned_role = head_of(task), head_of(learned)
    if not (role and learned_role):
        return TransferredHead()
    if (role, task.number) != (learned_role, learned.number):
        return TransferredHead(note=f"its {_described(learned_role, learned)} is of another kind")
    tensors, learned_tensors = task.networks()[""].tensors(), learned.networks()[""].tensors()
    if _shapes(tensors, "top.") != _shapes(learned_tensors, "top."):
        return TransferredHead(note="the layers under its head (task.top) differ")
    rows = _rows(task.labels, learned.labels)
    if task.labels and not rows:
        note = f"none of its labels ({_listed(learned.labels)}) is a label of this task ({_listed(task.labels)})"
        return TransferredHead(note=note)
    last = (f"{role}.out.weight", f"{role}.out.bias")
    kept = {}
    for name in [name for name in tensors if name.startswith((f"{role}.", "top.")) and name in learned_tensors]:
        if rows and name in last and tensors[name].shape[1:] == learned_tensors[name].shape[1:]:
            kept[name] = tensors[name].detach().clone()
            kept[name][list(rows)] = learned_tensors[name].detach()[list(rows.values())]
        elif tensors[name].shape == learned_tensors[name].shape:
            kept[name] = learned_tensors[name].detach()
    missing = [name for name in tensors if name.startswith(f"{role}.") and name not in kept]
    if scales and scales[0] != scales[1]:
        if scales[0][0] != scales[1][0] and last[1] not in kept:
            return TransferredHead(note="its head has no bias, so it cannot be rescaled to this task.scale")
        kept |= rescaled({name: kept[name] for name in last if name in kept}, *scales)
    if [name for name in missing if not name.startswith("joint.none.")]:  # SQuAD 1.1 heads have no "no answer"
        return TransferredHead(note=f"its {role} head has another shape")
    with torch.no_grad():
        for name, tensor in kept.items():
            tensors[name].copy_(tensor)
    names = tuple(task.labels[number] for number in rows)
    return TransferredHead(frozenset(kept), _note(role, task, names, bool(missing)), names)


def head_of(task: Task) -> str:
    """Return the role of a task's head: classify, tag, span or joint; "" if it has only a pretraining head or none."""
    return next((role for role in task.networks()[""].modules if role not in ("model", "head", "top")), "")


def rescaled(last: Mapping[str, Tensor], learned: Scale, target: Scale) -> dict[str, Tensor]:
    """Return the last layer of a head for numbers, trained on one scale, rescaled to predict the same on another."""
    ratio = (learned[1] - learned[0]) / (target[1] - target[0])
    shift = (learned[0] - target[0]) / (target[1] - target[0])
    return {name: tensor * ratio + (shift if name.endswith("bias") else 0.0) for name, tensor in last.items()}


def rescalable(objective: nn.Module, learned: object) -> Scale | None:
    """Return the scale that a head for numbers was trained on, if an export should and can undo it, else None.

    A last layer without a bias can only be rescaled if the scale starts at 0.
    """
    scale = getattr(learned, "scale", None) if getattr(objective, "number", False) else None
    if scale in (None, UNIT) or (scale[0] and objective.get_submodule("classify.out").bias is None):
        return None
    return (float(scale[0]), float(scale[1]))


def unscaled(objective: Task, learned: object) -> dict[str, Tensor]:
    """Return the last layer of a head for numbers, rescaled to predict unscaled numbers; {} for any other head."""
    if not (scale := rescalable(objective, learned)):
        return {}
    tensors = objective.networks()[""].tensors()
    return rescaled({n: tensor.detach() for n, tensor in tensors.items() if n.startswith("classify.out.")}, scale, UNIT)


def _note(role: str, task: Task, kept: Sequence[str], partly: bool) -> str:
    if not task.labels:
        return f"and its {_described(role, task)}" + (", with a random score for no answer" if partly else "")
    fresh = [label for label in task.labels if label not in kept]
    if not fresh:
        return f"and its {role} head with all {len(kept)} labels"
    return (
        f"and its {role} head with {len(kept)} of {len(task.labels)} labels ({_listed(kept)}); fresh: {_listed(fresh)}"
    )


def _described(role: str, task: Task) -> str:
    return "head for a number" if task.number else f"{role} head"


def _rows(labels: Sequence[str], learned: Sequence[str]) -> dict[int, int]:
    """Map the number of each shared label to its number in `learned`, ignoring case if names stay unique."""
    exact = {label: number for number, label in enumerate(learned)}
    plain, unique = _unique(learned), _unique(labels)
    rows = {
        number: exact.get(label, plain.get(_plain(label)) if _plain(label) in unique else None)
        for number, label in enumerate(labels)
    }
    return {number: row for number, row in rows.items() if row is not None}


def _unique(labels: Sequence[str]) -> dict[str, int]:
    """Map each normalized name that only one label has to the number of the label."""
    plain = [_plain(label) for label in labels]
    return {name: number for number, name in enumerate(plain) if plain.count(name) == 1}


def _plain(label: str) -> str:
    """Drop case and the prefix LABEL_, with which transformers numbers classes that have no name."""
    return label.removeprefix("LABEL_").casefold()


def _shapes(tensors: dict[str, Tensor], begin: str) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in tensors.items() if name.startswith(begin)}


def _listed(labels: Sequence[str]) -> str:
    return ", ".join([*labels[:MAX_LISTED], *(["..."] if len(labels) > MAX_LISTED else [])])
