"""Tensor names of Google's BERT and ELECTRA checkpoints, mapped to Hugging Face's.

Hugging Face's name                       Google's
bert.encoder.layer.0.output.dense.weight  bert/encoder/layer_0/output/dense/kernel   [in, out]
....LayerNorm.weight, .bias               .../LayerNorm/gamma, beta
bert.embeddings.word_embeddings.weight    bert/embeddings/word_embeddings
cls.seq_relationship.weight               cls/seq_relationship/output_weights
classifier.weight                         output_weights          (run_classifier.py)
qa_outputs.weight                         cls/squad/output_weights    (run_squad.py)

Checkpoints of TensorFlow 2 have objects in place of scopes, layers with numbers or names, and a separate dimension for
attention heads:

encoder/layer_with_weights-4/_attention_layer/_query_dense/kernel   [in, heads, numbers]      (from 2020)
encoder/_transformer_layers/0/_attention_layer/_query_dense/kernel                            (from 2021)
"""

from __future__ import annotations

import re

from torch import Tensor

from ordsmed.weights.renaming import LazyTensors, TensorLayout

ACTIVATIONS = {"gelu": "gelu_new", "relu": "relu", "tanh": "tanh"}  # Google's name -> Hugging Face's
SLOTS = re.compile(r"/(adam_[mv]|Adam(_1)?|Adagrad|Momentum|LAMB\w*|lamb_[mv]|m|v)$|^global_step$|^beta[12]_power$")


VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"  # suffix of every name in an object graph
HEADS = {
    "classifier": "",
    "qa_outputs": "cls/squad/",
    "cls.predictions": "cls/predictions/",
    "cls.seq_relationship": "cls/seq_relationship/",
}
LAYER = (  # name after the layer number: TensorFlow 2's -> TensorFlow 1's
    (r"_attention_layer/_(query|key|value)_dense/", r"attention/self/\1/"),
    (r"(_attention_layer/_output|_attention_output)_dense/", "attention/output/dense/"),
    (r"_attention_layer_norm/", "attention/output/LayerNorm/"),
    (r"_intermediate_dense/", "intermediate/dense/"),
    (r"_output_dense/", "output/dense/"),
    (r"_output_layer_norm/", "output/LayerNorm/"),
)
BESIDE = (
    (r"^encoder/(layer_with_weights-0|_embedding_layer)/embeddings$", "bert/embeddings/word_embeddings"),
    (
        r"^encoder/(layer_with_weights-1|_position_embedding_layer)/(position_)?embeddings$",
        "bert/embeddings/position_embeddings",
    ),
    (r"^encoder/(layer_with_weights-2|_type_embedding_layer)/embeddings$", "bert/embeddings/token_type_embeddings"),
    (r"^encoder/(layer_with_weights-3|_embedding_norm_layer)/", "bert/embeddings/LayerNorm/"),
    (r"^encoder/(layer_with_weights-\d+|_pooler_layer)/(kernel|bias)$", r"bert/pooler/dense/\2"),
    (r"^next_sentence\.\.pooler_dense/", "bert/pooler/dense/"),
    (r"^masked_lm/dense/", "cls/predictions/transform/dense/"),
    (r"^masked_lm/layer_norm/", "cls/predictions/transform/LayerNorm/"),
    (r"^masked_lm/output_bias(\.Sbias)?$", "cls/predictions/output_bias"),
    (r"^masked_lm/embedding_table$", "bert/embeddings/word_embeddings"),
    (r"^classification_heads/0/out_proj/kernel$", "cls/seq_relationship/output_weights"),
    (r"^classification_heads/0/out_proj/bias$", "cls/seq_relationship/output_bias"),
)
OWN_POOLER = "next_sentence..pooler_dense/"  # trained; the encoder's pooler is untrained in such a checkpoint


def with_tf1_names(tensors: LazyTensors) -> LazyTensors:
    """Return the tensors of a TensorFlow 2 BERT under the names and shapes of TensorFlow 1.

    Other entries of the object graph are dropped. Tensors of a TensorFlow 1 checkpoint are returned unchanged.
    """
    if not any(name.endswith(VALUE) for name in tensors):
        return tensors
    learned = any(name.startswith(OWN_POOLER) for name in tensors)
    named = {name: new for name in tensors if (new := _scope(name, learned=learned))}
    tensors = tensors.renamed(named.get)
    shapes = {name: _merged_shape(name, shape) for name, shape in tensors.shapes.items()}

    def read(name: str) -> Tensor:
        tensor = tensors[name]
        return tensor.T if _is_turned(name) else tensor.reshape(shapes[name])

    return LazyTensors(shapes, read)


def _scope(name: str, *, learned: bool) -> str | None:
    """Return TensorFlow 1's name for an entry of an object graph; None if it is not a weight of the network."""
    if (
        not name.endswith(VALUE)
        or ".OPTIMIZER_SLOT" in name
        or re.match(r"(\w*optimizer|_?\w*step|save_counter)/", name)
    ):
        return None
    name = re.sub(r"^model/", "", name.removesuffix(VALUE))
    name = re.sub(r"^layer_with_weights-0/(?=layer_with_weights-)", "", name)
    name = f"encoder/{name}" if name.startswith("layer_with_weights-") else name
    pooler = re.match(r"encoder/(layer_with_weights-(\d+)|_pooler_layer)/(kernel|bias)$", name)
    if pooler and learned:
        return None
    if match := re.match(r"encoder/(?:layer_with_weights-(\d+)|_transformer_layers/(\d+))/(_.*)$", name):
        number, inner = int(match[2] or int(match[1]) - 4), match[3]
        for pattern, new in LAYER:
            inner = re.sub(f"^{pattern}", new, inner)
        return f"bert/encoder/layer_{number}/{inner}"
    for pattern, new in BESIDE:
        name = re.sub(pattern, new, name)
    return name


def _is_turned(name: str) -> bool:
    return name == "cls/seq_relationship/output_weights"


def _merged_shape(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    if _is_turned(name):
        return shape[::-1]
    if "/attention/self/" in name:
        return (*shape[:-2], shape[-2] * shape[-1]) if len(shape) == (3 if name.endswith("kernel") else 2) else shape
    if name.endswith("/attention/output/dense/kernel") and len(shape) == 3:
        return (shape[0] * shape[1], shape[2])
    return shape


def without_slots(tensors: LazyTensors) -> LazyTensors:
    return tensors.renamed(lambda name: None if SLOTS.search(name) else name)


def spelled(_: str, name: str) -> tuple[str, TensorLayout]:
    """Return Google's name for a Hugging Face name, and whether the matrix is transposed in the checkpoint."""
    module, _, end = name.rpartition(".")
    scope = re.sub(r"layer\.(\d+)", r"layer_\1", module).replace(".", "/")
    if module.endswith("_embeddings"):
        return scope, "alike"
    if module.endswith("LayerNorm"):
        return f"{scope}/{'gamma' if end == 'weight' else 'beta'}", "alike"
    if module in HEADS:
        return f"{HEADS[module]}output_{'weights' if end == 'weight' else 'bias'}", "alike"
    return f"{scope}/{'kernel' if end == 'weight' else 'bias'}", "turned" if end == "weight" else "alike"
