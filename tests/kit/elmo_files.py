"""ELMo's files with random weights, and plain loops over NumPy arrays that say what their vectors are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from kit.absent import Lazy
from ordsmed.base.binary import bundle

h5py = Lazy("h5py")
Arrays = dict[str, NDArray[Any]]
CELL = "RNN_{}/RNN/MultiRNNCell/Cell{}/LSTMCell"
SETS = {
    "published's shape": {},
    "three layers": {"n_layers": 3, "use_skip_connections": False},
    "one layer, no highways": {"n_layers": 1, "n_highway": 0},
    "tanh, no projections": {"activation": "tanh", "dim": 9, "projection_dim": 9},
    "no clipping": {"cell_clip": None, "proj_clip": None, "n_highway": 1, "n_characters": 261},
}


def options(**changed: Any) -> dict[str, Any]:
    """Options of a tiny network; keys of both tables may be changed."""
    lstm = {
        "cell_clip": 0.5,
        "proj_clip": 0.3,
        "dim": 12,
        "projection_dim": 5,
        "n_layers": 2,
        "use_skip_connections": True,
    }
    letters = {
        "activation": "relu",
        "embedding": {"dim": 4},
        "filters": [[1, 3], [2, 4], [4, 2]],
        "n_highway": 2,
        "max_characters_per_token": 12,
        "n_characters": 262,
    }
    for part in (lstm, letters):
        part.update({k: changed.pop(k) for k in list(changed) if k in part})
    assert not changed
    return {"lstm": lstm, "char_cnn": letters}


def arrays(asked: dict[str, Any], seed: int = 0) -> Arrays:
    """Every dataset of such a network, random; so large that much is clipped."""
    lstm, letters = asked["lstm"], asked["char_cnn"]
    width, cells, size = lstm["projection_dim"], lstm["dim"], letters["embedding"]["dim"]
    features = sum(count for _, count in letters["filters"])
    shapes: dict[str, tuple[int, ...]] = {"char_embed": (261, size)}
    for n, (reach, count) in enumerate(letters["filters"]):
        shapes |= {f"CNN/W_cnn_{n}": (1, reach, size, count), f"CNN/b_cnn_{n}": (count,)}
    for n in range(letters["n_highway"]):
        for part in ("carry", "transform"):
            shapes |= {f"CNN_high_{n}/W_{part}": (features, features), f"CNN_high_{n}/b_{part}": (features,)}
    if features != width:
        shapes |= {"CNN_proj/W_proj": (features, width), "CNN_proj/b_proj": (width,)}
    for way in (0, 1):
        for layer in range(lstm["n_layers"]):
            cell = CELL.format(way, layer)
            shapes |= {f"{cell}/W_0": (2 * width, 4 * cells), f"{cell}/B": (4 * cells,)}
            shapes |= {f"{cell}/W_P_0": (cells, width)} if cells != width else {}
    chance = np.random.default_rng(seed)
    return {name: chance.normal(0, 0.7, shape).astype(np.float32) for name, shape in shapes.items()}


def write(folder: Path, asked: dict[str, Any], stored: Arrays, name: str = "model.hdf5") -> Path:
    """A folder as the reference leaves it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "options.json").write_text(json.dumps(asked))
    with h5py.File(folder / name, "w") as file:
        for key, array in stored.items():
            file[key] = array
    return folder


def checkpoint(folder: Path, asked: dict[str, Any], stored: Arrays, words: int) -> Path:
    """What bilm-tf's training leaves: variables, slots of its optimizer, counters, and the softmax."""
    names = {
        "/RNN/": "/rnn/",
        "/MultiRNNCell/": "/multi_rnn_cell/",
        "/Cell": "/cell_",
        "/LSTMCell/": "/lstm_cell/",
        "W_P_0": "projection/kernel",
        "/W_0": "/kernel",
        "lstm_cell/B": "lstm_cell/bias",
    }
    variables = {}
    for name, array in stored.items():
        for here, there in names.items():
            name = name.replace(here, there) if "RNN" in name or "rnn" in name else name
        variables[f"lm/{name}"] = torch.from_numpy(array)
        variables[f"lm/{name}/Adagrad"] = torch.zeros(1)
    rows = torch.arange(words * 5.0).reshape(words, 5)
    variables |= {"lm/softmax/W": rows, "lm/softmax/b": rows[:, 0], "global_step": torch.tensor(3)}
    variables |= {"train_perplexity": torch.tensor(1.0)}
    folder.mkdir()
    (folder / "options.json").write_text(json.dumps(asked | {"n_tokens_vocab": words}))
    bundle.write(folder / "model.ckpt-3", iter(variables.items()))
    return folder


def read(path: Path) -> Arrays:
    """All datasets of a file."""
    found: Arrays = {}
    with h5py.File(path) as file:
        file.visititems(lambda key, item: found.update({key: item[()]} if isinstance(item, h5py.Dataset) else {}))
    return found


def vectors(asked: dict[str, Any], stored: Arrays, lines: list[str]) -> list[NDArray[np.float64]]:
    """All layers of each line's words, [L, T, 2P]; the states go on from line to line."""
    weights = {name: array.astype(np.float64) for name, array in stored.items()}
    lstm, longest = asked["lstm"], asked["char_cnn"]["max_characters_per_token"]
    states: dict[tuple[int, int], Any] = {}
    found = []
    for line in lines:
        symbols = [[256], *(list(word.encode()[: longest - 2]) for word in line.split()), [257]]
        rows = [[258, *inner, 259] for inner in symbols]
        words = np.stack([_word(asked, weights, row + [260] * (longest - len(row))) for row in rows])
        layers, inputs = [np.concatenate([words, words], 1)], [words, words[::-1]]
        for layer in range(lstm["n_layers"]):
            for way in (0, 1):
                silence = (np.zeros(lstm["projection_dim"]), np.zeros(lstm["dim"]))
                out, states[way, layer] = _cell(
                    weights, CELL.format(way, layer), lstm, inputs[way], *states.get((way, layer), silence)
                )
                inputs[way] = inputs[way] + out if lstm["use_skip_connections"] and layer else out
            layers.append(np.concatenate([inputs[0], inputs[1][::-1]], 1))
        found.append(np.stack(layers)[:, 1:-1])
    return found


def _word(asked: dict[str, Any], weights: Arrays, symbols: list[int]) -> NDArray[np.float64]:
    letters = weights["char_embed"][symbols]
    best = []
    for n, (reach, _) in enumerate(asked["char_cnn"]["filters"]):
        kernel = weights[f"CNN/W_cnn_{n}"][0]
        windows = [letters[at : at + reach] for at in range(len(letters) - reach + 1)]
        answers = np.max([np.einsum("we,wen->n", window, kernel) for window in windows], 0) + weights[f"CNN/b_cnn_{n}"]
        best.append(np.maximum(answers, 0) if asked["char_cnn"]["activation"] == "relu" else np.tanh(answers))
    found = np.concatenate(best)
    for n in range(asked["char_cnn"]["n_highway"]):
        gate, change = (
            found @ weights[f"CNN_high_{n}/W_{part}"] + weights[f"CNN_high_{n}/b_{part}"]
            for part in ("carry", "transform")
        )
        found = _sigmoid(gate) * np.maximum(change, 0) + (1 - _sigmoid(gate)) * found
    if "CNN_proj/W_proj" in weights:
        found = found @ weights["CNN_proj/W_proj"] + weights["CNN_proj/b_proj"]
    return found


def _cell(weights: Arrays, cell: str, lstm: dict[str, Any], x: Any, h: Any, c: Any) -> tuple[Any, Any]:
    cell_clip, projection_clip = (lstm[name] or np.inf for name in ("cell_clip", "proj_clip"))
    out = []
    for step in x:
        i, new, f, o = np.split(np.concatenate([step, h]) @ weights[f"{cell}/W_0"] + weights[f"{cell}/B"], 4)
        c = np.clip(_sigmoid(f + 1) * c + _sigmoid(i) * np.tanh(new), -cell_clip, cell_clip)
        h = _sigmoid(o) * np.tanh(c)
        h = h @ weights[f"{cell}/W_P_0"] if f"{cell}/W_P_0" in weights else h
        h = np.clip(h, -projection_clip, projection_clip)
        out.append(h)
    return np.stack(out), (h, c)


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))
