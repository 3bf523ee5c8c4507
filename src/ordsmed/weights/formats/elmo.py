"""ELMo's files for bilm-tf, AllenNLP and simple_elmo: options.json, weights as HDF5, a word list.

    in the files                                    here
    char_embed                [261, E]              model.letters.table
    CNN/W_cnn_i               [1, w, E, n]          model.letters.windows.i          [n, E, w]
    CNN_high_k/W_carry        [F, F]                model.letters.highways.k.both    [2F, F], the gate's rows first
    CNN_proj/W_proj           [F, P]                model.letters.project            [P, F]
    RNN_0|1/.../Cell{l}/LSTMCell/                   model.blocks.l.ahead|back
        W_0  [P + P, 4C], B  [4C]                       enter, carry  [4C, P], bias  [4C]
        W_P_0     [C, P]                                project   [P, C]

The gates are in the order i g f o in the files, and i f g o here. The constant that is added to the forget gate is in
neither bias.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from ordsmed.base import files, hdf5
from ordsmed.base import settings as tables
from ordsmed.base.binary import bundle
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.menu import Choice
from ordsmed.base.say import say
from ordsmed.nn.model import own_tensors
from ordsmed.nn.weight_shapes import unfilled
from ordsmed.text import vocabulary
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.weights import google, weights
from ordsmed.weights.foreign import Imported, Networks, decoded
from ordsmed.weights.trained_model import Trained

OPTIONS, WEIGHTS, LISTS = "options.json", "model.hdf5", ("vocab.txt", "vocab.txt.gz")
ENDINGS = (".hdf5", ".h5")
SOFTMAX = ("softmax/W", "softmax/b")
LETTERS_THERE = "lm/char_embed"  # a variable of every ELMo checkpoint
DUMPED = {  # parts of variable names -> of dataset names
    "/rnn/": "/RNN/",
    "/multi_rnn_cell/": "/MultiRNNCell/",
    "/cell_": "/Cell",
    "/lstm_cell/": "/LSTMCell/",
    "/projection/kernel": "/W_P_0",
    "LSTMCell/kernel": "LSTMCell/W_0",
    "LSTMCell/bias": "LSTMCell/B",
}
SYMBOLS = 261  # characters; for inference a row of zeros is added, and the options say one more
NEEDED = object()
LSTM = {  # key in options.json -> setting, and the value if it is missing
    "projection_dim": ("width", NEEDED),
    "dim": ("cells", NEEDED),
    "n_layers": ("layers", 1),
    "cell_clip": ("cell_clip", None),
    "proj_clip": ("projection_clip", None),
    "use_skip_connections": ("residual", False),
}
LETTERS = {
    "embedding": ("letter", NEEDED),
    "filters": ("filters", NEEDED),
    "n_highway": ("highways", None),
    "max_characters_per_token": ("longest_word", NEEDED),
    "activation": ("activation", NEEDED),
    "n_characters": ("symbols", NEEDED),
}
USUAL = {  # other keys of options.json, which describe the training
    "all_clip_norm_val",
    "batch_size",
    "bidirectional",
    "char_cnn",
    "dropout",
    "learning_rate",
    "lstm",
    "n_epochs",
    "n_negative_samples_batch",
    "n_tokens_vocab",
    "n_train_tokens",
    "sample_softmax",
    "share_embedding_softmax",
    "unroll_steps",
}


@dataclass(frozen=True)
class ElmoFormat(Choice):
    """Read and write ELMo's files. Only bilm-tf's checkpoints have the softmax over words; HDF5 files do not."""

    wanted: ClassVar[str] = "a folder with options.json and weights (*.hdf5, or bilm-tf's checkpoint), or the weights"
    readers: ClassVar[str] = "options.json, model.hdf5, vocab.txt: the files of bilm-tf, simple_elmo and AllenNLP"
    families: ClassVar[tuple[str, ...]] = ("elmo",)

    @staticmethod
    def ready(target: Path) -> None:
        """Raise an error if this machine cannot write HDF5 files."""
        hdf5.h5py(target)

    def recognises(self, path: Path) -> bool:
        if _is_checkpoint(path):
            return True
        folder = path if path.is_dir() else path.parent
        found_files = (
            any(any(folder.glob(f"*{ending}")) for ending in ENDINGS) if path.is_dir() else path.suffix in ENDINGS
        )
        return path.exists() and found_files and any(folder.glob(f"*{OPTIONS}"))

    def read(self, path: Path, overrides: Sequence[str] = ()) -> Imported:
        options, stored = _trained(path) if _is_checkpoint(path) else _files(path)
        table, notes = _table(options)
        networks = decoded(tables.override(table, overrides), options)
        stored_tensors, kinds = _checkpoint(path) if _is_checkpoint(path) else _read(stored)
        head = {name: stored_tensors.pop(name) for name in SOFTMAX if name in stored_tensors}
        notes += [f"{stored}: {kind} is read as float32" for kind in sorted(kinds - {"float32"})]
        _compare(stored_tensors, networks.model, stored, options)
        weights.check_numbers(stored_tensors, stored)
        tokenizer = _tokenizer(stored.parent)
        tensors = _native_tensors(stored_tensors, networks.model)
        if head:
            networks, more = _with_softmax(table, overrides, options, head, tokenizer)
            tensors |= more
            notes += [] if more else [f"{stored}: the softmax over words is dropped: the list of its words is missing"]
        return Imported(networks, tokenizer, tensors, tuple(notes))

    def write(self, trained: Trained, folder: Path) -> None:
        network = trained.objective.networks()[""]
        tensors = {name: tensor.detach().float().cpu() for name, tensor in network.tensors().items()}
        files.write_json(folder / OPTIONS, _options(trained.settings, trained.tokenizer.vocabulary))
        path = folder / WEIGHTS
        with files.survive_disk(path):
            with hdf5.writing(path) as file:
                for name, tensor in _elmo_tensors(tensors, trained.settings).items():
                    file.add(name, tensor.numpy())
            files.sync(path)
        files.write_text(folder / LISTS[0], trained.tokenizer.listed())
        if "head" in network.modules:
            say("the softmax over words is not exported: these files cannot hold it")
        for reason in unread(trained.settings):
            say(reason)
        if trained.tokenizer.lowercase:
            say("it was trained on lower-case words: give it such words")


def unread(model: Any) -> list[str]:
    """Return the reasons why other programs cannot read such a network, or compute something else."""
    ignored = []
    if not model.residual:
        ignored.append("AllenNLP's Elmo requires residual layers")
    if sum(count for _, count in model.filters) <= model.width or model.cells <= model.width:
        ignored.append("AllenNLP and simple_elmo require more filters and more cells than the width")
    if model.longest_word != 50:
        ignored.append(f"AllenNLP reads 50 characters per word, this network {model.longest_word}")
    return ignored


def _files(path: Path) -> tuple[Path, Path]:
    """Return the options file and the weights file. A folder may hold other HDF5 files as well."""
    folder = path if path.is_dir() else path.parent
    paths = [path] if path.is_file() else [p for p in sorted(folder.iterdir()) if p.suffix in ENDINGS]
    if len(paths) > 1 and folder / WEIGHTS in paths:
        paths = [folder / WEIGHTS]
    if len(paths) > 1:
        paths = [p for p in paths if _holds_letters(p)] or paths
    if len(paths) > 1:
        raise RecipeError(path, f"holds {' and '.join(p.name for p in paths)}", "one file of weights", "name that one")
    options = sorted(folder.glob(f"*{OPTIONS}"), key=lambda p: len(p.name))  # published as NAME_options.json too
    fitting = [p for p in options if paths[0].name.startswith(p.name.removesuffix(OPTIONS))]
    if len(options) > 1 and (not fitting or fitting[-1].name == OPTIONS):
        names = " and ".join(p.name for p in options)
        wanted = f"one, or one whose name begins like {paths[0].name}"
        raise RecipeError(path, f"holds {names}", wanted, "keep only the right one next to the weights")
    return (fitting or options)[-1], paths[0]


def _is_checkpoint(path: Path) -> bool:
    prefix = bundle.find(path) if path.exists() and path.suffix not in ENDINGS else None
    return prefix is not None and LETTERS_THERE in bundle.names(prefix)


def _trained(path: Path) -> tuple[Path, Path]:
    checkpoint = bundle.opened(path)
    options = checkpoint.prefix.with_name(OPTIONS)
    if not options.is_file():
        raise DataError(options, "no such file", "the options of its training", "put them there")
    return options, checkpoint.index


def _checkpoint(path: Path) -> tuple[weights.Tensors, set[str]]:
    """Return the variables of a TensorFlow checkpoint as float32, without optimizer state, and their original dtypes.

    The variables are named as in the HDF5 file that bilm-tf writes.
    """
    source = bundle.opened(path)
    names = {
        name: _dump_name(name) for name in source.shapes() if name.startswith("lm/") and not google.SLOTS.search(name)
    }
    tensors = {new: source.read(name) for name, new in names.items()}
    return {k: v.float() for k, v in tensors.items()}, {str(v.dtype).removeprefix("torch.") for v in tensors.values()}


def _dump_name(name: str) -> str:
    for there, here in DUMPED.items():
        name = name.replace(there, here)
    return name.removeprefix("lm/")


def _with_softmax(
    table: tables.Table, overrides: Sequence[str], options: Path, head: weights.Tensors, tokenizer: Tokenizer
) -> tuple[Networks, weights.Tensors]:
    """Return the networks with the softmax over words, and its tensors, if there is a word list of its size."""
    rows = len(head[SOFTMAX[0]])
    with_head = rows == tokenizer.vocabulary and head.keys() == set(SOFTMAX)
    learned = {"kind": "bilm", "samples": min(8192, rows // 2)} if with_head else table["objective"]
    networks = decoded(tables.override(table | {"objective": learned}, overrides), options)
    named = zip(("head.table.weight", "head.bias"), SOFTMAX, strict=True)
    return networks, {key: head[name].contiguous() for key, name in named} if with_head else {}


def _holds_letters(path: Path) -> bool:
    try:
        with hdf5.h5py(path).File(path) as file:
            return "char_embed" in file
    except OSError:
        return False


def _table(path: Path) -> tuple[tables.Table, list[str]]:
    options = files.read_json(path)
    wrong: list[str] = []
    model: tables.Table = {"kind": "elmo"}
    for name, known in (("lstm", LSTM), ("char_cnn", LETTERS)):
        part = options.get(name) if isinstance(options, dict) else None
        if not isinstance(part, dict):
            wrong.append(f"no table `{name}`")
            continue
        wrong += [f"`{name}.{key}`, which is not known" for key in sorted(part.keys() - known)]
        wrong += [f"no `{name}.{key}`" for key, (_, usual) in known.items() if usual is NEEDED and key not in part]
        model |= {setting: part.get(key, usual) for key, (setting, usual) in known.items()}
    wrong = wrong or _unsupported(options)
    if wrong:
        raise DataError(path, f"found {'; '.join(wrong)}", "the options of a bidirectional ELMo with characters")
    del model["symbols"]
    model |= {key: model[key] or 0 for key in ("cell_clip", "projection_clip", "highways")}
    model |= {"residual": bool(model["residual"]), "letter": model["letter"]["dim"]}
    model |= {"dropout": options["dropout"]} if "dropout" in options else {}
    ignored = sorted(options.keys() - USUAL)
    notes = [f"{path}: {', '.join(ignored)}: unknown, ignored"] if ignored else []
    if "use_skip_connections" not in options["lstm"]:
        notes.append(f"{path}: no use_skip_connections: read as false, as in bilm-tf; `model.residual=true` changes it")
    return {"model": model, "objective": {"kind": "bilm", "head": False, "samples": 0}}, notes


def _unsupported(options: tables.Table) -> list[str]:
    letters = options["char_cnn"]
    wrong = []
    if letters["n_characters"] not in (SYMBOLS, SYMBOLS + 1):
        wrong.append(f"`char_cnn.n_characters` {letters['n_characters']}, not {SYMBOLS} or {SYMBOLS + 1}")
    if not isinstance(letters["embedding"], dict) or "dim" not in letters["embedding"]:
        wrong.append("no `char_cnn.embedding.dim`")
    if options.get("bidirectional") is False:
        wrong.append("`bidirectional` false")
    return wrong


def _options(model: Any, words: int) -> tables.Table:
    """Return the contents of options.json, with `n_characters` as it is for inference."""
    return {
        "bidirectional": True,
        "char_cnn": {
            "activation": model.activation,
            "embedding": {"dim": model.letter},
            "filters": [list(pair) for pair in model.filters],
            "max_characters_per_token": model.longest_word,
            "n_characters": SYMBOLS + 1,
            "n_highway": model.highways,
        },
        "dropout": model.dropout,
        "lstm": {
            "cell_clip": model.cell_clip or None,
            "dim": model.cells,
            "n_layers": model.layers,
            "proj_clip": model.projection_clip or None,
            "projection_dim": model.width,
            "use_skip_connections": model.residual,
        },
        "n_tokens_vocab": words,
    }


def _elmo_tensors(tensors: Mapping[str, Tensor], model: Any) -> weights.Tensors:
    files_tensors = {"char_embed": tensors["model.letters.table.weight"]}
    for n in range(len(model.filters)):
        name = f"model.letters.windows.{n}"
        files_tensors[f"CNN/W_cnn_{n}"] = tensors[f"{name}.weight"].permute(2, 1, 0)[None]
        files_tensors[f"CNN/b_cnn_{n}"] = tensors[f"{name}.bias"]
    for n in range(model.highways):
        for kind, name in (("W", "weight"), ("b", "bias")):
            gate, change = tensors[f"model.letters.highways.{n}.both.{name}"].chunk(2)
            files_tensors |= {f"CNN_high_{n}/{kind}_carry": gate.t(), f"CNN_high_{n}/{kind}_transform": change.t()}
    if "model.letters.project.weight" in tensors:
        files_tensors["CNN_proj/W_proj"] = tensors["model.letters.project.weight"].T
        files_tensors["CNN_proj/b_proj"] = tensors["model.letters.project.bias"]
    for cell, name in _cells(model):
        rows = torch.cat([tensors[f"{name}.enter"], tensors[f"{name}.carry"]], 1)
        files_tensors |= {f"{cell}/W_0": _swap_gates(rows).T, f"{cell}/B": _swap_gates(tensors[f"{name}.bias"])}
        if f"{name}.project" in tensors:
            files_tensors[f"{cell}/W_P_0"] = tensors[f"{name}.project"].T
    return {name: tensor.contiguous() for name, tensor in files_tensors.items()}


def _native_tensors(stored: Mapping[str, Tensor], model: Any) -> weights.Tensors:
    tensors = {"model.letters.table.weight": stored["char_embed"]}
    for n in range(len(model.filters)):
        name = f"model.letters.windows.{n}"
        tensors[f"{name}.weight"] = stored[f"CNN/W_cnn_{n}"][0].permute(2, 1, 0)
        tensors[f"{name}.bias"] = stored[f"CNN/b_cnn_{n}"]
    for n in range(model.highways):
        for kind, name in (("W", "weight"), ("b", "bias")):
            both = [stored[f"CNN_high_{n}/{kind}_{part}"] for part in ("carry", "transform")]
            tensors[f"model.letters.highways.{n}.both.{name}"] = torch.cat([part.t() for part in both])
    if "CNN_proj/W_proj" in stored:
        tensors["model.letters.project.weight"] = stored["CNN_proj/W_proj"].T
        tensors["model.letters.project.bias"] = stored["CNN_proj/b_proj"]
    for cell, name in _cells(model):
        rows = _swap_gates(stored[f"{cell}/W_0"].T)
        tensors[f"{name}.enter"], tensors[f"{name}.carry"] = rows.chunk(2, 1)
        tensors[f"{name}.bias"] = _swap_gates(stored[f"{cell}/B"])
        if f"{cell}/W_P_0" in stored:
            tensors[f"{name}.project"] = stored[f"{cell}/W_P_0"].T
    return {name: tensor.contiguous() for name, tensor in tensors.items()}


def _cells(model: Any) -> list[tuple[str, str]]:
    return [
        (f"RNN_{way}/RNN/MultiRNNCell/Cell{layer}/LSTMCell", f"model.blocks.{layer}.{direction}")
        for way, direction in enumerate(("ahead", "back"))
        for layer in range(model.layers)
    ]


def _swap_gates(rows: Tensor) -> Tensor:
    i, f_gate, o_gate, o = rows.chunk(4)
    return torch.cat([i, o_gate, f_gate, o])


def _compare(stored: Mapping[str, Tensor], model: Any, path: Path, options: Path) -> None:
    """Raise DataError if the datasets are not those of a network with these options."""
    file_size = (
        path.stat().st_size
    )  # refuse sizes that are impossible for this file before a network of that size is allocated
    sizes = {
        "n_layers": model.layers,
        "dim": model.cells,
        "projection_dim": model.width,
        "n_highway": model.highways,
        "filters": sum(sum(pair) for pair in model.filters),
        "embedding.dim": model.letter,
    }
    for name, size in sizes.items():
        if size > file_size:
            raise DataError(options, f"{name}: found {size}", f"a size that fits {path.name}, of {file_size:,} bytes")
    with unfilled():
        network = model.build(0)
    wanted = _elmo_tensors({f"model.{k}": v for k, v in own_tensors(network).items()}, model)
    wrong = [f"{name} {list(wanted[name].shape)} is missing" for name in wanted if name not in stored]
    wrong += [f"{name} is unexpected" for name in stored if name not in wanted]
    wrong += [
        f"{name} is {list(tensor.shape)}, not {list(wanted[name].shape)}"
        for name, tensor in stored.items()
        if name in wanted and tensor.shape != wanted[name].shape
    ]
    if wrong:
        more = f" and {len(wrong) - 4} more" if len(wrong) > 4 else ""
        raise DataError(path, "; ".join(wrong[:4]) + more, f"the datasets that {options.name} describes")


def _read(path: Path) -> tuple[weights.Tensors, set[str]]:
    h5py = hdf5.h5py(path)
    data: dict[str, Any] = {}
    try:
        with h5py.File(path) as file:
            file.visititems(lambda name, item: data.update({name: item[()]} if isinstance(item, h5py.Dataset) else {}))
    except (OSError, RuntimeError) as error:
        raise DataError(path, f"cannot be read: {error}", "a complete HDF5 file") from None
    odd = [name for name, array in data.items() if getattr(array, "dtype", None) is None or array.dtype.kind != "f"]
    if odd:
        raise DataError(path, f"{odd[0]} has no floating-point numbers", "weights")
    kinds = {str(array.dtype) for array in data.values()}
    return {name: torch.from_numpy(array.astype("float32", copy=False)) for name, array in data.items()}, kinds


def _tokenizer(folder: Path) -> Tokenizer:
    """Return the tokenizer of the word list next to the weights, or one of special tokens: vectors need no words."""
    path = next((folder / name for name in LISTS if (folder / name).is_file()), None)
    if path:
        try:
            return Tokenizer.load(path, split="spaces")
        except DataError as error:
            remedy = "correct it, or move it away: vectors need no word list"
            raise DataError(error.place, error.found, error.wanted, remedy) from None
    signs = {name: number for number, name in enumerate(vocabulary.SIGNS)}
    return Tokenizer(vocabulary.words(signs, split="spaces", lowercase=False))
