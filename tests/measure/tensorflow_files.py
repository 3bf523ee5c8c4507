"""Writes tests/base/binary/tensorflow/ with TensorFlow: tiny checkpoints of three kinds, outputs, records.

    python -m venv tf; tf/bin/pip install tensorflow-cpu; tf/bin/python tests/measure/tensorflow_files.py

With a prefix as its argument it reads that checkpoint and writes its tensors to stdout as an .npz: what we write,
TensorFlow opens.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

OUT = Path(__file__).parents[1] / "base" / "binary" / "tensorflow"
V, LENGTH, POSITIONS = 40, 7, 12
rng = np.random.default_rng(0)
TOKENS = rng.integers(0, V, (2, LENGTH))
TYPES = (np.arange(LENGTH) > 3).astype(np.int64)[None].repeat(2, 0)
Arrays = dict[str, np.ndarray]


def draw(shape: tuple[int, ...], name: str = "") -> np.ndarray:
    return (rng.normal(1.0 if name.endswith(("gamma", "/g")) else 0.0, 0.4, shape)).astype(np.float32)


def dense(own: Arrays, name: str, here: int, there: int) -> None:
    own[f"{name}/kernel"], own[f"{name}/bias"] = draw((here, there)), draw((there,))


def norm(own: Arrays, name: str, width: int) -> None:
    own[f"{name}/gamma"], own[f"{name}/beta"] = draw((width,), "gamma"), draw((width,))


def embeddings(own: Arrays, scope: str, width: int) -> None:
    own[f"{scope}/word_embeddings"] = draw((V, width))
    own[f"{scope}/position_embeddings"] = draw((POSITIONS, width))
    own[f"{scope}/token_type_embeddings"] = draw((2, width))
    norm(own, f"{scope}/LayerNorm", width)


def encoder(own: Arrays, scope: str, layers: int, width: int, inner: int) -> None:
    for n in range(layers):
        at = f"{scope}/layer_{n}"
        for part in ("query", "key", "value"):
            dense(own, f"{at}/attention/self/{part}", width, width)
        dense(own, f"{at}/attention/output/dense", width, width)
        norm(own, f"{at}/attention/output/LayerNorm", width)
        dense(own, f"{at}/intermediate/dense", width, inner)
        dense(own, f"{at}/output/dense", inner, width)
        norm(own, f"{at}/output/LayerNorm", width)


def bert_arrays(width: int = 8, layers: int = 2, inner: int = 16) -> Arrays:
    own: Arrays = {}
    embeddings(own, "bert/embeddings", width)
    encoder(own, "bert/encoder", layers, width, inner)
    dense(own, "bert/pooler/dense", width, width)
    dense(own, "cls/predictions/transform/dense", width, width)
    norm(own, "cls/predictions/transform/LayerNorm", width)
    own["cls/predictions/output_bias"] = draw((V,))
    own["cls/seq_relationship/output_weights"], own["cls/seq_relationship/output_bias"] = draw((2, width)), draw((2,))
    return own


def electra_arrays(embedded: int = 6, width: int = 8, small: int = 4, layers: int = 1) -> Arrays:
    own: Arrays = {}
    embeddings(own, "electra/embeddings", embedded)
    for scope, size in (("electra", width), ("generator", small)):
        dense(own, f"{scope}/embeddings_project", embedded, size)
        encoder(own, f"{scope}/encoder", layers, size, 2 * size)
    dense(own, "generator_predictions/dense", small, embedded)
    norm(own, "generator_predictions/LayerNorm", embedded)
    own["generator_predictions/output_bias"] = draw((V,))
    dense(own, "discriminator_predictions/dense", width, width)
    dense(own, "discriminator_predictions/dense_1", width, 1)
    return own


def gpt2_arrays(width: int = 8, layers: int = 2) -> Arrays:
    own = {"model/wte": draw((V, width)), "model/wpe": draw((POSITIONS, width))}
    for n in range(layers):
        at = f"model/h{n}"
        for name in ("ln_1", "ln_2"):
            own[f"{at}/{name}/g"], own[f"{at}/{name}/b"] = draw((width,), "/g"), draw((width,))
        for name, here, there in (
            ("attn/c_attn", 1, 3),
            ("attn/c_proj", 1, 1),
            ("mlp/c_fc", 1, 4),
            ("mlp/c_proj", 4, 1),
        ):
            own[f"{at}/{name}/w"], own[f"{at}/{name}/b"] = (
                draw((1, here * width, there * width)),
                draw((there * width,)),
            )
    own["model/ln_f/g"], own["model/ln_f/b"] = draw((width,), "/g"), draw((width,))
    return own


def normed(x: Any, gain: Any, shift: Any, epsilon: float) -> Any:
    mean, spread = tf.nn.moments(x, [-1], keepdims=True)
    return (x - mean) * tf.math.rsqrt(spread + epsilon) * gain + shift


def attend(query: Any, key: Any, value: Any, heads: int, *, causal: bool = False) -> Any:
    def apart(x: Any) -> Any:
        return tf.transpose(tf.reshape(x, (2, LENGTH, heads, -1)), (0, 2, 1, 3))

    query, key, value = apart(query), apart(key), apart(value)
    scores = tf.matmul(query, key, transpose_b=True) / np.float32(np.sqrt(query.shape[-1]))
    if causal:
        scores += (np.tri(LENGTH, dtype=np.float32) - 1) * 1e10
    return tf.reshape(tf.transpose(tf.matmul(tf.nn.softmax(scores), value), (0, 2, 1, 3)), (2, LENGTH, -1))


class Network:
    """Google's graph over variables by their names."""

    def __init__(self, own: Arrays, gelu: Any) -> None:
        self.own, self.gelu = own, gelu

    def dense(self, x: Any, name: str) -> Any:
        return tf.matmul(x, self.own[f"{name}/kernel"]) + self.own[f"{name}/bias"]

    def norm(self, x: Any, name: str) -> Any:
        return normed(x, self.own[f"{name}/gamma"], self.own[f"{name}/beta"], 1e-12)

    def embedded(self, scope: str) -> Any:
        words = tf.gather(self.own[f"{scope}/word_embeddings"], TOKENS)
        types = tf.gather(self.own[f"{scope}/token_type_embeddings"], TYPES)
        return self.norm(words + types + self.own[f"{scope}/position_embeddings"][:LENGTH], f"{scope}/LayerNorm")

    def encoded(self, x: Any, scope: str, heads: int, layers: int = 2) -> Any:
        for n in range(layers):
            at = f"{scope}/layer_{n}"
            parts = (self.dense(x, f"{at}/attention/self/{part}") for part in ("query", "key", "value"))
            mixed = self.dense(attend(*parts, heads), f"{at}/attention/output/dense")
            x = self.norm(mixed + x, f"{at}/attention/output/LayerNorm")
            up = self.gelu(self.dense(x, f"{at}/intermediate/dense"))
            x = self.norm(self.dense(up, f"{at}/output/dense") + x, f"{at}/output/LayerNorm")
        return x

    def words(self, x: Any, scope: str, transform: str, table: str, bias: str) -> Any:
        inner = self.norm(self.gelu(self.dense(x, f"{scope}/{transform}dense")), f"{scope}/{transform}LayerNorm")
        return tf.matmul(inner, self.own[table], transpose_b=True) + self.own[bias]


def tanh_gelu(x: Any) -> Any:
    return 0.5 * x * (1.0 + tf.tanh(np.float32(np.sqrt(2 / np.pi)) * (x + 0.044715 * tf.pow(x, 3))))


def erf_gelu(x: Any) -> Any:
    return 0.5 * x * (1.0 + tf.math.erf(x / np.float32(np.sqrt(2.0))))


def bert_says(own: Arrays) -> Arrays:
    net = Network(own, tanh_gelu)
    x = net.encoded(net.embedded("bert/embeddings"), "bert/encoder", 2)
    table, scope = "bert/embeddings/word_embeddings", "cls/predictions"
    words = net.words(x, scope, "transform/", table, f"{scope}/output_bias")
    pooled = tf.tanh(net.dense(x[:, 0], "bert/pooler/dense"))
    pair = tf.matmul(pooled, own["cls/seq_relationship/output_weights"], transpose_b=True)
    return {"words": words.numpy(), "pair": (pair + own["cls/seq_relationship/output_bias"]).numpy()}


def electra_says(own: Arrays) -> Arrays:
    net = Network(own, erf_gelu)
    shared, scope = net.embedded("electra/embeddings"), "generator_predictions"
    small = net.encoded(net.dense(shared, "generator/embeddings_project"), "generator/encoder", 1, 1)
    words = net.words(small, scope, "", "electra/embeddings/word_embeddings", f"{scope}/output_bias")
    x = net.encoded(net.dense(shared, "electra/embeddings_project"), "electra/encoder", 2, 1)
    x = net.dense(net.gelu(net.dense(x, "discriminator_predictions/dense")), "discriminator_predictions/dense_1")
    return {"words": words.numpy(), "fake": x[..., 0].numpy()}


def gpt2_says(own: Arrays) -> Arrays:
    def linear(x: Any, name: str) -> Any:
        return tf.matmul(x, own[f"{name}/w"][0]) + own[f"{name}/b"]

    x = tf.gather(own["model/wte"], TOKENS) + own["model/wpe"][:LENGTH]
    for n in range(2):
        at = f"model/h{n}"
        inner = linear(normed(x, own[f"{at}/ln_1/g"], own[f"{at}/ln_1/b"], 1e-5), f"{at}/attn/c_attn")
        x += linear(attend(*tf.split(inner, 3, axis=-1), 2, causal=True), f"{at}/attn/c_proj")
        inner = linear(normed(x, own[f"{at}/ln_2/g"], own[f"{at}/ln_2/b"], 1e-5), f"{at}/mlp/c_fc")
        x += linear(tanh_gelu(inner), f"{at}/mlp/c_proj")
    x = normed(x, own["model/ln_f/g"], own["model/ln_f/b"], 1e-5)
    return {"words": tf.matmul(x, own["model/wte"], transpose_b=True).numpy()}


def save(
    own: Arrays, prefix: Path, slots: dict[str, tuple[str, ...]], cut: dict[str, list[int]] | None = None, **saver: Any
) -> None:
    """As tf.train.Saver does, with the optimizer's slots and the step; `cut`: variables that lie in so many parts."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        step = tf.compat.v1.get_variable("global_step", initializer=np.int64(7), trainable=False)
        made = [step]
        for name, array in own.items():
            parts = (cut or {}).get(name)
            how: dict[str, Any] = {"initializer": array}
            if parts:
                how = {"shape": array.shape, "initializer": part_of(array)}
                how |= {"partitioner": lambda shape, dtype, parts=parts: parts}
            made.append(tf.compat.v1.get_variable(name, use_resource=False, **how))
            for slot in slots.get(name, ()):
                made.append(tf.compat.v1.get_variable(f"{name}/{slot}", initializer=array * 0, use_resource=False))
        session.run(tf.compat.v1.global_variables_initializer())
        tf.compat.v1.train.Saver(made, **saver).save(session, str(prefix), write_meta_graph=False)


def part_of(array: np.ndarray) -> Any:
    """An initializer of each part of a variable."""

    def make(shape: Any, dtype: Any = None, partition_info: Any = None) -> Any:
        return array[tuple(slice(at, at + n) for at, n in zip(partition_info.var_offset, shape, strict=True))]

    return make


def as_nvidia(own: Arrays) -> Arrays:
    """Google's ELECTRA under the names of NVIDIA's modules: attributes of objects, not scopes."""
    made = {}
    for name, array in own.items():
        network = "generator" if name.startswith("generator") else "discriminator"
        name = name.replace("generator/", "electra/") if name.startswith("generator/") else name
        name = name.replace("layer_", "layer/").replace("attention/self/", "attention/self_attention/")
        name = name.replace("attention/output/", "attention/dense_output/")
        name = name.replace("/output/", "/bert_output/").replace("dense_1/", "dense_prediction/")
        name = name.replace("generator_predictions/output_bias", "generator_lm_head/bias")
        name = name.replace("word_embeddings", "weight").replace(
            "position_embeddings", "position_embeddings/embeddings"
        )
        name = name.replace("token_type_embeddings", "token_type_embeddings/embeddings")
        made[f"model/{network}/{name}"] = array
        if "/embeddings/LayerNorm/" in name:  # the tables are shared, and stand once; the norms are two
            made[f"model/generator/{name}"] = array + 1
    return made


def as_model_garden(own: Arrays, heads: int = 2) -> Arrays:
    """Google's BERT under the names of its TensorFlow 2 code: layers by number, a head's numbers apart."""
    layers = {
        "attention/self/": "_attention_layer/_",
        "attention/output/dense/": "_attention_layer/_output_dense/",
        "attention/output/LayerNorm/": "_attention_layer_norm/",
        "intermediate/dense/": "_intermediate_dense/",
        "output/dense/": "_output_dense/",
        "output/LayerNorm/": "_output_layer_norm/",
    }
    beside = {
        "bert/embeddings/word_embeddings": "encoder/layer_with_weights-0/embeddings",
        "bert/embeddings/position_embeddings": "encoder/layer_with_weights-1/embeddings",
        "bert/embeddings/token_type_embeddings": "encoder/layer_with_weights-2/embeddings",
        "bert/embeddings/LayerNorm/": "encoder/layer_with_weights-3/",
        "bert/pooler/dense/": "next_sentence.pooler_dense/",
        "cls/predictions/transform/dense/": "masked_lm/dense/",
        "cls/predictions/transform/LayerNorm/": "masked_lm/layer_norm/",
        "cls/predictions/output_bias": "masked_lm/output_bias|bias",
        "cls/seq_relationship/output_weights": "model/classification_heads/0/out_proj/kernel",
        "cls/seq_relationship/output_bias": "model/classification_heads/0/out_proj/bias",
    }
    made = {
        "encoder/layer_with_weights-6/kernel": own["bert/pooler/dense/kernel"] + 1,  # a pooler that nobody taught
        "encoder/layer_with_weights-6/bias": own["bert/pooler/dense/bias"] + 1,
    }
    for name, array in own.items():
        if name.startswith("bert/encoder/layer_"):
            number, _, name = name.removeprefix("bert/encoder/layer_").partition("/")
            here, there = next(pair for pair in layers.items() if name.startswith(pair[0]))
            rest = name.removeprefix(here)
            if here == "attention/self/":
                part, _, end = rest.partition("/")
                rest, array = f"{part}_dense/{end}", array.reshape(*array.shape[:-1], heads, -1)
            elif here == "attention/output/dense/" and rest == "kernel":
                array = array.reshape(heads, -1, array.shape[-1])
            made[f"encoder/layer_with_weights-{int(number) + 4}/{there}{rest}"] = array
            continue
        here, there = next(pair for pair in beside.items() if name.startswith(pair[0]))
        turned = name == "cls/seq_relationship/output_weights"
        made[there + name.removeprefix(here)] = array.T.copy() if turned else array
    return made


def save_objects(own: Arrays, prefix: Path) -> None:
    """As tf.train.Checkpoint does."""
    root: dict[str, Any] = {}
    for name, array in own.items():
        *scopes, last = name.split("/")
        inner = root
        for scope in scopes:
            inner = inner.setdefault(scope, {})
        inner[last] = tf.Variable(array)

    def object_of(table: Any) -> Any:
        if not isinstance(table, dict):
            return table
        if all(key.isdigit() for key in table):
            return [object_of(table[f"{n}"]) for n in range(len(table))]
        module = tf.Module()
        for key, inner in table.items():
            setattr(module, key.replace("|", "/"), object_of(inner))
        return module

    objects = {name: object_of(inner) for name, inner in root.items()}
    tf.train.Checkpoint(step=tf.Variable(3), **objects).write(str(prefix))


def records(path: Path) -> None:
    """Examples of every kind of feature, with negative and large numbers."""
    with tf.io.TFRecordWriter(str(path)) as writer:
        for n in range(5):
            feature = {
                "input_ids": tf.train.Feature(int64_list=tf.train.Int64List(value=[n, 300 * n, -1, 1 << 40])),
                "masked_lm_weights": tf.train.Feature(float_list=tf.train.FloatList(value=[0.5 * n, 1.0])),
                "text": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"a" * n])),
            }
            writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())


def main() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    says: Arrays = {"tokens": TOKENS, "types": TYPES}
    bert = bert_arrays()
    save(bert, OUT / "bert_model.ckpt", {"bert/pooler/dense/kernel": ("adam_m", "adam_v")})
    says |= {f"bert.{name}": array for name, array in bert_says(bert).items()}
    electra = electra_arrays()
    save(electra, OUT / "electra" / "model.ckpt-7", {"electra/embeddings/LayerNorm/beta": ("adam_m",)})
    says |= {f"electra.{name}": array for name, array in electra_says(electra).items()}
    save_objects(as_nvidia(electra), OUT / "nvidia" / "ckpt-3")
    gpt2 = gpt2_arrays()
    save(gpt2, OUT / "gpt2" / "model.ckpt", {})
    says |= {f"gpt2.{name}": array for name, array in gpt2_says(gpt2).items()}
    np.savez_compressed(OUT / "says.npz", **says)
    old = {"w": draw((2, 3))}
    save(old, OUT / "first.ckpt", {}, write_version=tf.compat.v1.train.SaverDef.V1)
    config = {
        "vocab_size": V,
        "hidden_size": 8,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "hidden_act": "gelu",
        "intermediate_size": 16,
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
        "max_position_embeddings": POSITIONS,
        "type_vocab_size": 2,
        "initializer_range": 0.02,
    }
    (OUT / "bert_config.json").write_text(json.dumps(config))
    records(OUT / "records.tfrecord")
    cut = {"bert/embeddings/word_embeddings": [3, 1], "bert/pooler/dense/kernel": [1, 2]}
    save(bert, OUT / "parts" / "bert_model.ckpt", {}, cut)
    save_objects(as_model_garden(bert), OUT / "objects" / "bert_model.ckpt")
    for state in OUT.rglob("checkpoint"):
        state.unlink()  # it names folders of this machine


def show(prefix: str) -> None:
    reader = tf.train.load_checkpoint(prefix)
    tensors = {name.replace("/", "|"): reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
    np.savez(sys.stdout.buffer, **tensors)


if __name__ == "__main__":
    show(sys.argv[1]) if len(sys.argv) > 1 else main()
