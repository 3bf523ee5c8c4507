"""Head transfer: reuse a fine-tuned head for a task of the same kind, label by label.

head for (contradiction, entailment, neutral)  ->  keep  ->  head for (entailment, not_entailment): entailment's row
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ordsmed.learn.task import Task

Scale = tuple[float, float]
UNIT: Scale = (0.0, 1.0)
MANY = 8  # most label names in a message


@dataclass(frozen=True)
class KeptHead:
    names: frozenset[str] = frozenset()
    note: str = ""
    labels: tuple[str, ...] = ()  # labels whose rows were copied


def keep(task: Task, learned: Task, scales: tuple[Scale, Scale] | None = None) -> KeptHead:
    """Copy the head of `learned`, and the layers under it (`top`), into `task` if both heads are of the same kind.

    Labels are matched by name: rows of shared labels are copied, other labels keep their random weights. A head that
    predicts numbers on the first of two `scales` is rescaled to predict the same numbers on the second. If the heads do
    not fit, nothing is copied and the note gives the reason.
    """
    role, learned_role = head_of(task), head_of(learned)
    if not (role and learned_role):
        return KeptHead()
    if (role, task.number) != (learned_role, learned.number):
        return KeptHead(note=f"its head, for {'a number' if learned.number else learned_role}, is of another kind")
    tensors, learned_tensors = task.networks()[""].tensors(), learned.networks()[""].tensors()
    if _shapes(tensors, "top.") != _shapes(learned_tensors, "top."):
        return KeptHead(note="what stands under its head (task.top) is another")
    rows = _rows(task.labels, learned.labels)
    if task.labels and not rows:
        return KeptHead(note=f"none of its labels ({_listed(learned.labels)}) is one of these ({_listed(task.labels)})")
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
            return KeptHead(note="its head has no bias, so it tells no numbers of another scale")
        kept |= rescaled({name: kept[name] for name in last if name in kept}, *scales)
    if [name for name in missing if not name.startswith("joint.none.")]:  # SQuAD 1.1 heads have no "no answer"
        return KeptHead(note=f"its {role} head is of another shape")
    with torch.no_grad():
        for name, tensor in kept.items():
            tensors[name].copy_(tensor)
    names = tuple(task.labels[number] for number in rows)
    return KeptHead(frozenset(kept), _note(role, task, names, bool(missing)), names)


def head_of(task: Task) -> str:
    """Return the role of a task's head: classify, tag, span or joint; "" if it has only a pretraining head or none."""
    return next((role for role in task.networks()[""].modules if role not in ("model", "head", "top")), "")


def rescaled(last: Mapping[str, Tensor], learned: Scale, meant: Scale) -> dict[str, Tensor]:
    """Return the last layer of a head for numbers, trained on one scale, rescaled to predict the same on another."""
    ratio = (learned[1] - learned[0]) / (meant[1] - meant[0])
    shift = (learned[0] - meant[0]) / (meant[1] - meant[0])
    return {name: tensor * ratio + (shift if name.endswith("bias") else 0.0) for name, tensor in last.items()}


def told_scale(objective: nn.Module, learned: object) -> Scale | None:
    """Return the scale that a head for numbers was trained on, if its last layer should and can be rescaled.

    Otherwise return None. A last layer without a bias can only be rescaled if the scale starts at 0.
    """
    scale = getattr(learned, "scale", None) if getattr(objective, "number", False) else None
    if scale in (None, UNIT) or (scale[0] and objective.get_submodule("classify.out").bias is None):
        return None
    return (float(scale[0]), float(scale[1]))


def meant(objective: Task, learned: object) -> dict[str, Tensor]:
    """Return the last layer of a head for numbers, rescaled to predict unscaled numbers; {} for any other head."""
    if not (scale := told_scale(objective, learned)):
        return {}
    tensors = objective.networks()[""].tensors()
    return rescaled({n: tensor.detach() for n, tensor in tensors.items() if n.startswith("classify.out.")}, scale, UNIT)


def _note(role: str, task: Task, kept: Sequence[str], partly: bool) -> str:
    if not task.labels:
        head = "head for a number" if task.number else f"{role} head"
        return f"and its {head}" + (", which learns anew to refuse" if partly else "")
    fresh = [label for label in task.labels if label not in kept]
    if not fresh:
        return f"and its {role} head with all {len(kept)} labels"
    return (
        f"and its {role} head with {len(kept)} of {len(task.labels)} labels ({_listed(kept)}); fresh: {_listed(fresh)}"
    )


def _rows(labels: Sequence[str], learned: Sequence[str]) -> dict[int, int]:
    """Map the number of each shared label to its number in `learned`, ignoring case if names stay unique."""
    exact = {label: number for number, label in enumerate(learned)}
    plain = _once(learned)
    unique = _once(labels)
    rows = {
        number: exact.get(label, plain.get(_plain(label)) if _plain(label) in unique else None)
        for number, label in enumerate(labels)
    }
    return {number: row for number, row in rows.items() if row is not None}


def _once(labels: Sequence[str]) -> dict[str, int]:
    plain = [_plain(label) for label in labels]
    return {name: number for number, name in enumerate(plain) if plain.count(name) == 1}


def _plain(label: str) -> str:
    """Ignore case and the LABEL_ prefix, which transformers gives to classes without a name."""
    return label.removeprefix("LABEL_").casefold()


def _shapes(tensors: dict[str, Tensor], begin: str) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in tensors.items() if name.startswith(begin)}


def _listed(labels: Sequence[str]) -> str:
    return ", ".join([*labels[:MANY], *(["..."] if len(labels) > MANY else [])])
