"""Files of weights: safetensors with this library's names, and conversion from and to Hugging Face's names.

Fused rows of query, key and value are stored head by head here, [H, 3, d, D]. Hugging Face has three tensors, or one
[3, H, d, D] (GPT-2, transposed).
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ordsmed.base import files
from ordsmed.base.binary.pickle_reader import Pickled, Strided, Stub
from ordsmed.base.errors import DataError, RunError
from ordsmed.base.say import say
from ordsmed.nn.model import Names, own_tensors

Tensors = dict[str, Tensor]


def write(path: Path, tensors: Mapping[str, Tensor], **facts: str) -> None:
    """Write a safetensors file with `facts` as metadata. The file is on disk when this returns."""
    from safetensors.torch import save_file

    with files.survive_disk(path):
        save_file({k: v.detach().contiguous() for k, v in tensors.items()}, path, metadata={"format": "pt", **facts})
        path.chmod(0o644)
        files.sync(path)


def check_format() -> None:
    """Write a tensor and read it back, in memory: raise an error if checkpoints cannot be written or read here."""
    try:
        from safetensors import SafetensorError, safe_open  # noqa: F401 (a checkpoint is read by them)
        from safetensors.torch import load, load_file, save, save_file  # noqa: F401

        wanted = torch.arange(3.0)
        if not load(save({"tensor": wanted}))["tensor"].equal(wanted):
            raise ValueError("the tensor that was read differs from the one written")
    except Exception as error:  # its type depends on what is broken
        reason = (str(error).splitlines() or [""])[0] or type(error).__name__
        remedy = "install it again: `pip install --force-reinstall --no-deps safetensors`"
        raise RunError("safetensors", f"cannot write checkpoints: {reason}", "", remedy) from error


def write_each(path: Path, shapes: Mapping[str, tuple[int, ...]], tensors: Mapping[str, Tensor]) -> None:
    """Write a safetensors file in fp32 with only one tensor in memory at a time."""
    table: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, shape in shapes.items():
        end = at + 4 * math.prod(shape)
        table[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [at, end]}
        at = end
    head = json.dumps(table, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    with files.survive_disk(path):
        with path.open("wb") as file:
            file.write(len(head).to_bytes(8, "little") + head)
            for name, shape in shapes.items():
                tensor = tensors[name]
                assert (tuple(tensor.shape), tensor.dtype) == (shape, torch.float32), name
                file.write(tensor.detach().contiguous().numpy().data)
        path.chmod(0o644)
        files.sync(path)


def read(path: Path, device: str = "cpu") -> Tensors:
    """Read a safetensors file. Raise DataError if it is damaged."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path, device=device)
    except (SafetensorError, OSError) as error:
        raise DataError(path, f"cannot be read: {error}", "a complete safetensors file") from None


def shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the tensors in a safetensors file, by reading only its header."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise DataError(path, f"cannot be read: {error}", "a complete safetensors file") from None


def read_foreign(folder: Path) -> Tensors:
    """Read all tensors of a Hugging Face folder. Pickled files may contain nothing but plain tensors."""
    tensors: Tensors = {}
    for path in foreign_files(folder):
        tensors |= read(path) if path.suffix == ".safetensors" else _unpickled(path)
    return tensors


def foreign_files(folder: Path) -> list[Path]:
    for name in ("model.safetensors", "pytorch_model.bin"):
        index = folder / f"{name}.index.json"
        if index.exists():
            return _parts(index)
        if (folder / name).exists():
            return [folder / name]
    raise DataError(folder, "has no weights", "model.safetensors or pytorch_model.bin, complete or in parts")


def foreign_names(folder: Path) -> set[str]:
    return set(foreign_shapes(folder))


def foreign_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    known: dict[str, tuple[int, ...]] = {}
    for path in foreign_files(folder):
        packed = path.suffix == ".safetensors"
        known |= shapes(path) if packed else {name: tuple(tensor.shape) for name, tensor in _unpickled(path).items()}
    return known


def _parts(index: Path) -> list[Path]:
    listed = files.read_json(index)
    mapping = listed.get("weight_map") if isinstance(listed, dict) else None
    if not isinstance(mapping, dict) or not mapping:
        raise DataError(index, "has no weight_map", "a table of tensors and their files")
    for name, part in mapping.items():
        if not isinstance(part, str) or Path(part).name != part:
            raise DataError(index, f"weight_map.{name}: found {part!r}", "the name of a file next to it")
    parts = [index.parent / part for part in sorted(set(mapping.values()))]
    if absent := [part for part in parts if not part.is_file()]:
        raise DataError(absent[0], "no such file", f"a file that {index.name} lists", "download the folder again")
    return parts


def _unpickled(path: Path) -> Tensors:
    """Read plain tensors from a file of torch.save. Raise DataError if it is damaged or holds anything else."""
    try:
        file = Pickled(path)
        table = file.value if isinstance(file.value, dict) else {"": file.value}
        if unreadable := [(name, value) for name, value in table.items() if not isinstance(value, Strided)]:
            raise DataError(path, f"cannot be read: {_reason(*unreadable[0])}")
        return {f"{name}": file.tensor(piece) for name, piece in table.items() if isinstance(piece, Strided)}
    except DataError as error:
        remedy = "use a copy saved as safetensors"
        raise DataError(error.place, error.found, "plain tensors", remedy) from None


def _reason(name: object, value: object) -> str:
    if not isinstance(value, Stub):
        return "it has more than tensors by name"
    lacking = value.name.startswith("torch._utils._rebuild_")
    return f"{name} is sparse or has no numbers" if lacking else f"it asks to run `{value.name}`"


def to_foreign(named: Mapping[str, Tensor], names: Names) -> Tensors:
    tensors: Tensors = {}
    for name, tensor in named.items():
        hf_name = names.table[name]
        for part, hf_part in zip(
            (hf_name,) if isinstance(hf_name, str) else hf_name, foreign_layout(name, tensor, names), strict=True
        ):
            tensors[part] = hf_part.contiguous()
    tensors |= {name: tensors[like].clone() for name, like in names.copies.items() if like in tensors}
    return tensors | {name: torch.zeros(shape) for name, shape in names.zeros.items()}


def foreign_layout(name: str, tensor: Tensor, names: Names) -> list[Tensor]:
    """Convert a tensor to Hugging Face's layout: one tensor, or query, key and value."""
    if isinstance(names.table[name], tuple):
        return split_heads(tensor, names.heads)
    if _is_fused(name, names):
        tensor = torch.cat(split_heads(tensor, names.heads))
    if _is_halved(name, names):
        tensor = tensor.unflatten(0, (names.halves, 2, -1)).transpose(0, 1).flatten(0, 2)
    return [tensor.T if _is_turned(name, tensor, names) else tensor]


def from_foreign(
    stored: Mapping[str, Tensor], wanted: Iterable[str], names: Names, location: object, *, heads: bool = True
) -> Tensors:
    """Convert Hugging Face's tensors to this library's names and layout.

    Missing or unexpected tensors, wrong shapes and NaN raise DataError. With `heads` False, tensors of heads may be
    missing, and unexpected ones are reported instead.
    """
    stored = dict(_modern(stored, names))
    wanted = list(wanted)
    known = {name for name in names.zeros if name in stored and not stored[name].any()}
    if any(name.startswith("head.") for name in wanted) or not heads:
        _untie(stored, names, location, heads=heads)
    tensors: Tensors = {}
    missing: list[str] = []
    wrong: list[str] = []
    for name in wanted:
        parts = names.table[name]
        parts = parts if isinstance(parts, tuple) else (parts,)
        known |= set(parts)
        absent = [part for part in parts if part not in stored]
        missing += absent if heads or name.startswith("model.") else []
        if absent:
            continue
        try:
            tensors[name] = native_layout(name, [stored[part] for part in parts], names)
        except RuntimeError:  # a size is not divisible by the number of heads or halves
            wrong += [f"{part} {list(stored[part].shape)}" for part in parts]
    left = _unexpected(stored, known, names)
    of_heads = {
        part for tensors, part in names.table.items() if isinstance(part, str) and not tensors.startswith("model.")
    }
    of_others = {n for n in left if n in of_heads or not n.startswith(names.prefix)} if not heads else set()
    spared = [n for n in left if n in of_others or n.endswith(names.others or ("\0",))]
    left = [n for n in left if n not in spared]
    if missing or left or wrong:
        problem = f"weights do not fit: missing {some(missing)}; unexpected {some(left)}; wrong shapes {some(wrong)}"
        raise DataError(location, problem, "exactly the tensors of this network")
    check_numbers({part: stored[part] for part in stored if part in known}, location)
    if spared:
        say(f"{location}: unused weights of heads that this model does not have: {', '.join(_layers(spared))}")
    return {k: v.contiguous() for k, v in tensors.items()}


def left_out(stored: Iterable[str], wanted: Iterable[str], names: Names) -> list[str]:
    """Return the layers in a Hugging Face folder that the network does not have."""
    parts = (names.table[name] for name in wanted)
    known = {name for part in parts for name in (part if isinstance(part, tuple) else (part,))}
    return _layers(_unexpected(_modern(dict.fromkeys(stored, torch.empty(0)), names), known.union(names.zeros), names))


def _unexpected(stored: Iterable[str], known: set[str], names: Names) -> list[str]:
    """Return the tensor names that are neither known nor copies of other tensors nor buffers."""
    idle = {*names.tied, *names.copies}
    return [n for n in stored if n not in known and n not in idle and not n.endswith(names.buffers or ("\0",))]


def _layers(tensors: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(name.rpartition(".")[0] for name in tensors))


def _untie(stored: Tensors, names: Names, location: object, *, heads: bool) -> None:
    """Fill in missing tensors from their tied copies. Raise DataError if both exist and differ."""
    for name, source in {**names.tied, **names.copies}.items():
        if name in stored and source not in stored:
            stored[source] = stored[name]
        elif heads and name in names.tied and name in stored and not stored[name].equal(stored[source]):
            problem = f"{name} differs from {source}, although config.json ties them (tie_word_embeddings)"
            raise DataError(location, problem, "the same numbers", 'or "tie_word_embeddings": false in config.json')


def check_numbers(tensors: Mapping[str, Tensor], location: object) -> None:
    """Raise DataError if a tensor is quantized, or holds NaN or numbers that are infinite in fp32."""
    for name, tensor in tensors.items():
        if not tensor.is_floating_point() or tensor.element_size() < 2:
            raise DataError(location, f"{name} has type {tensor.dtype}", "floating-point numbers, not quantized ones")
        if tensor.numel() and not torch.isfinite(torch.stack(tensor.aminmax()).float()).all():
            count = int((~torch.isfinite(tensor.float())).sum())
            large = " or infinite" if tensor.element_size() <= 4 else ", infinite or too large for fp32"
            problem = f"{name}: {count:,} of {tensor.numel():,} numbers are NaN{large}"
            raise DataError(location, problem, "finite weights", "use an earlier step, or the original files")


def native_layout(name: str, parts: list[Tensor], names: Names) -> Tensor:
    """Convert a Hugging Face tensor, or query, key and value, to this library's layout."""
    if len(parts) == 3:
        return join_heads(parts, names.heads)
    tensor = parts[0].T if _is_turned(name, parts[0], names) else parts[0]
    if _is_halved(name, names):
        tensor = tensor.unflatten(0, (2, names.halves, -1)).transpose(0, 1).flatten(0, 2)
    return join_heads(list(tensor.chunk(3)), names.heads) if _is_fused(name, names) else tensor


def split_heads(fused: Tensor, heads: int) -> list[Tensor]:
    """Split fused rows [H * 3 * d, ...] into query, key and value, each [H * d, ...]."""
    apart = fused.unflatten(0, (heads, 3, -1))
    return [apart[:, part].flatten(0, 1) for part in range(3)]


def join_heads(parts: list[Tensor], heads: int) -> Tensor:
    """Fuse query, key and value, each [H * d, ...], into rows [H * 3 * d, ...]."""
    return torch.stack([part.unflatten(0, (heads, -1)) for part in parts], 1).flatten(0, 2)


def beginnings(names: Iterable[str], begins: Mapping[str, str]) -> dict[str, str]:
    """Map a task network's tensors to the pretrained tensors they start from, without randomly initialized ones."""
    layers = {name: name.rpartition(".") for name in names}
    return {
        name: f"{begins.get(layer, layer)}.{end}"
        for name, (layer, _, end) in layers.items()
        if name.startswith(("model.", "head.")) or layer in begins
    }


def adopt(
    tensors: Mapping[str, Tensor], stored: Mapping[str, Tensor], begins: Mapping[str, str], location: object
) -> list[str]:
    """Load pretrained tensors into the network below a task head, and into parts of the head that start from them.

    Return the names of the tensors that keep their random weights.
    """
    sources = beginnings(tensors, begins)
    pairs = {name: source if source in stored else name for name, source in sources.items()}  # or the head itself
    begun = {name: stored[source] for name, source in pairs.items() if source in stored}
    fill({name: tensors[name] for name in tensors if name in begun or name.startswith("model.")}, begun, location)
    return [name for name in tensors if name not in begun]


def load_into(module: torch.nn.Module, tensors: Mapping[str, Tensor], location: object) -> None:
    fill(own_tensors(module), tensors, location)


def fill(targets: Mapping[str, Tensor], tensors: Mapping[str, Tensor], location: object) -> None:
    """Copy tensors into a network's. Raise DataError if a name or shape does not match, or numbers are not finite."""
    compare(tensors, targets, location)
    check_numbers(tensors, location)
    with torch.no_grad():
        for name, tensor in tensors.items():
            targets[name].copy_(tensor)


def compare(
    tensors: Mapping[str, Tensor], targets: Mapping[str, Tensor], location: object, *, padded: Collection[str] = ()
) -> None:
    """Raise DataError if names or shapes differ from the network's. Those in `padded` may have fewer rows."""

    def fits(name: str, tensor: Tensor) -> bool:
        wanted = targets[name].shape
        return tensor.shape == wanted or (name in padded and tensor.shape[1:] == wanted[1:] and len(tensor) < wanted[0])

    wrong = [
        f"{k} {list(v.shape)}, not {list(targets[k].shape)}"
        for k, v in tensors.items()
        if k in targets and not fits(k, v)
    ]
    missing, left = sorted(targets.keys() - tensors.keys()), sorted(tensors.keys() - targets.keys())
    if wrong or missing or left:
        problem = f"weights do not fit: missing {some(missing)}; unexpected {some(left)}; wrong shapes {some(wrong)}"
        raise DataError(location, problem, "weights of a network with the same settings")


def digest(tensors: Mapping[str, Tensor]) -> str:
    """Return a CRC-32 of all tensors' names and bytes. It is equal for equal weights."""
    crc = 0
    for name, tensor in sorted(tensors.items()):
        crc = zlib.crc32(name.encode(), crc)
        crc = zlib.crc32(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data, crc)
    return f"{crc:08x}"


def _modern(stored: Mapping[str, Tensor], names: Names) -> Tensors:
    """Update tensor names of old checkpoints: LayerNorm's gamma and beta, and names without the network's prefix."""
    renamed = {
        k.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias"): v
        for k, v in stored.items()
    }
    if any(k.startswith(names.prefix) for k in renamed):
        return renamed
    parts = (part if isinstance(part, tuple) else (part,) for part in names.table.values())
    known = {*names.tied, *names.copies, *(name for part in parts for name in part)}
    return {k if k in known else f"{names.prefix}{k}": v for k, v in renamed.items()}


def _is_fused(name: str, names: Names) -> bool:
    return names.fused and ".gather." in name


def _is_halved(name: str, names: Names) -> bool:
    return names.halves > 0 and name.endswith((".up.weight", ".up.bias"))


def _is_turned(name: str, tensor: Tensor, names: Names) -> bool:
    return names.transposed and tensor.ndim == 2 and ".blocks." in f".{name}"


def some(names: list[str]) -> str:
    if not names:
        return "none"
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
