"""A damaged config.json gives one line with the location, what was found and what was wanted, and no traceback."""

from __future__ import annotations

import json
import random

import pytest
import torch

from kit.families import WORDS, Signs, hub_folder, masked, shaken
from ordsmed.base.errors import DataError, OrdsmedError
from ordsmed.base.menu import choice
from ordsmed.learn.objectives import clm
from ordsmed.nn.models import bert, electra, gpt2, modern, roberta
from ordsmed.weights import foreign

SMALL = {"width": 16, "layers": 2, "heads": 2, "inner": 24, "positions": 40}
FAMILIES = {"bert": bert, "roberta": roberta, "electra": electra, "gpt2": gpt2, "modern": modern}
VALUES = [
    None,
    True,
    0,
    -1,
    -7.5,
    2.5,
    10**9,
    10**30,
    1e308,
    float("nan"),
    float("inf"),
    "32",
    "",
    "x" * 500,
    [],
    [1],
    {},
    {"a": 1},
    [[[]]],
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    made = {}
    for name, family in FAMILIES.items():
        torch.manual_seed(1)
        settings = choice(family)(**SMALL)
        objective = clm.Clm().build(settings, Signs()) if name == "gpt2" else masked(settings)
        made[name] = hub_folder(shaken(objective), tmp_path_factory.mktemp("hub") / name)
    return made


def opened(folder):
    found = foreign.settings(folder)
    foreign.task_of(folder)
    foreign.classes(folder)
    return found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[1]", r"config\.json: found \[1\]; wanted a table of settings; download config\.json again"),
        ("null", "found null; wanted a table"),
        ('"bert"', "found bert; wanted a table"),
        ("2.5", "found 2.5"),
        ("", "not JSON"),
        ('{"model_type": "bert", ', "not JSON"),
        ("[" * 100_000, "is nested too deeply to be read"),
        ("{}", "model_type"),
        ('{"model_type": ["bert"]}', r'model_type: found \["bert"\]; wanted one of bert,'),
        ('{"model_type": null}', "model_type: found null"),
        ('{"model_type": 7}', "model_type: found 7"),
        ('{"model_type": "bert"}', "has no 'hidden_size'; wanted the settings of a bert; download config.json again"),
        ('{"hidden_size": ' + "9" * 5000 + "}", "not JSON"),
    ],
    ids=range(13),
)
def test_no_table_of_settings(folders, tmp_path, text, said):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(DataError, match=said) as caught:
        opened(tmp_path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400 + len(str(tmp_path))


def test_bytes_that_are_no_text_and_a_folder_in_its_place(tmp_path):
    (tmp_path / "config.json").write_bytes(b'{"model_type": "b\xe9rt"}')
    with pytest.raises(DataError, match="not JSON: 'utf-8'"):
        opened(tmp_path)
    (tmp_path / "config.json").unlink()
    (tmp_path / "config.json").mkdir()
    with pytest.raises(DataError, match=r"config\.json: cannot be read: Is a directory"):
        opened(tmp_path)


@pytest.mark.parametrize(
    ("family", "key", "value", "said"),
    [
        ("bert", "num_hidden_layers", 2.5, "num_hidden_layers: found 2.5; wanted a whole number, 1 or more"),
        ("bert", "num_attention_heads", 0, "num_attention_heads: found 0; wanted a whole number, 1 or more"),
        ("bert", "hidden_size", True, "hidden_size: found True; wanted a whole number"),
        ("bert", "num_hidden_layers", 10**9, "describes 1000000000 layers .*wanted a network that fits .* bytes"),
        ("bert", "max_position_embeddings", 10**9, "and 1000000000 positions; wanted a network that fits"),
        ("bert", "type_vocab_size", 10**9, "wanted a network that fits"),
        ("modern", "num_hidden_layers", 10**12, "layer_types: found .*; wanted .* for each of 1000000000000 layers"),
        ("roberta", "max_position_embeddings", 2, "max_position_embeddings: found 2; wanted a whole number, 3 or more"),
        ("bert", "layer_norm_eps", -1.0, "layer_norm_eps: found -1.0; wanted 0 to below 1"),
        ("gpt2", "n_inner", 0, "n_inner: found 0; wanted a whole number"),
        ("gpt2", "resid_pdrop", "much", "resid_pdrop: found 'much'; wanted a number"),
        ("modern", "rope_parameters", [1], r"rope_parameters: found \[1\]; wanted a table"),
        ("modern", "norm_eps", "far", "norm_eps: found 'far'; wanted a number"),
        ("electra", "embedding_size", None, "embedding_size: found null; wanted a whole number"),
        ("bert", "architectures", {"a": 1}, "architectures: found .*; wanted a list of classes"),
        ("bert", "vocab_size", "60", 'vocab_size: found "60"; wanted a whole number, 1 or more'),
        ("modern", "vocab_size", None, "vocab_size: found null; wanted a whole number"),
        ("bert", "quantization_config", {"bits": 4}, "quantization_config: found .*bits.*; wanted None"),
    ],
)
def test_a_setting_that_cannot_be_is_named_by_its_key(folders, tmp_path, family, key, value, said):
    write(folders[family], tmp_path / "hub", {key: value})
    with pytest.raises(DataError, match=said) as caught:
        opened(tmp_path / "hub")
    assert str(tmp_path / "hub" / "config.json") in str(caught.value)


def test_numbers_of_labels_are_numbers(folders, tmp_path):
    named = {"architectures": ["BertForSequenceClassification"], "id2label": {"first": "a"}}
    write(folders["bert"], tmp_path / "hub", named)
    with pytest.raises(DataError, match="id2label: found the number first; wanted whole numbers from 0 on"):
        opened(tmp_path / "hub")


def write(source, target, change, *, without=()):
    target.mkdir(exist_ok=True)
    if not (target / "model.safetensors").exists():
        (target / "model.safetensors").symlink_to(source / "model.safetensors")
    config = {k: v for k, v in json.loads((source / "config.json").read_text()).items() if k not in without}
    (target / "config.json").write_text(json.dumps({**config, **change}))


@pytest.mark.long
@pytest.mark.parametrize("family", FAMILIES)
def test_whatever_stands_there_is_a_line_or_fits(folders, tmp_path, family):
    """Every key with every odd value, some keys gone: refused in one line, or a network that its weights fill."""
    source, chance = folders[family], random.Random(family)
    keys = sorted(json.loads((source / "config.json").read_text()))
    tried = [({key: value}, ()) for key in keys for value in VALUES]
    tried += [({}, (key,)) for key in keys]
    tried += [
        ({key: chance.choice(VALUES) for key in chance.sample(keys, 3)}, chance.sample(keys, 2)) for _ in range(60)
    ]
    said = []
    tried = tried if family == "bert" else tried[::3]
    for change, without in tried:
        write(source, tmp_path / "hub", change, without=without)
        try:
            settings = opened(tmp_path / "hub")
        except OrdsmedError as error:
            said.append(str(error))
            continue
        with torch.device("meta"):  # whatever is taken is small
            made = settings.build(WORDS)
        assert sum(p.numel() for p in made.parameters()) < 10**6, change
    assert len(said) > len(tried) / 3
    assert not [line for line in said if "\n" in line or len(line) > 600 + len(str(tmp_path))]
