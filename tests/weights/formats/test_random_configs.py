"""Configurations drawn at random: every one is equal to its class in transformers both ways, or refused by its key."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest
import torch

from kit.families import WORDS, Signs, close, hub_folder, shaken
from ordsmed.base.errors import DataError
from ordsmed.base.menu import choice
from ordsmed.learn.objectives import clm, mlm, mlm_nsp, rtd
from ordsmed.nn.activations import HUGGING_FACE
from ordsmed.nn.model import TASK_CLASSES
from ordsmed.weights import foreign
from ordsmed.weights.formats.huggingface import HuggingFace

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
ENCODERS = {"bert": "Bert", "roberta": "Roberta", "megatron_bert": "MegatronBert", "electra": "Electra"}
FAMILIES = [*ENCODERS, "gpt2", "modern"]
OTHERS = ["gelu_10", "mish", "sigmoid", "leaky_relu", "relu6"]  # activations that no network of ours has
ROWS, PAD = 3, 7


class Drawn:
    """A configuration, and what of it no network of ours does."""

    def __init__(self, family: str, seed: int) -> None:
        self.chance, self.keys, self.refused = random.Random(f"{family} {seed}"), {}, {}
        self.family = family
        self.heads = self.chance.choice([1, 2, 3, 4])
        self.width = self.heads * self.chance.choice([4, 6, 8, 12])
        {"gpt2": self.gpt2, "modern": self.modern}.get(family, self.encoder)()
        self.maybe(tie_word_embeddings=[False], chances=0.4)
        self.rows = WORDS + self.chance.choice([0, 0, 7])  # padding behind the vocabulary, to a multiple of 8
        self.keys["vocab_size"] = self.rows

    def maybe(self, chances: float = 0.3, **keys: list[Any]) -> None:
        for key, values in keys.items():
            if self.chance.random() < chances:
                self.keys[key] = self.chance.choice(values)

    def not_ours(self, chances: float = 0.06, **keys: list[Any]) -> None:
        for key, values in keys.items():
            if self.chance.random() < chances:
                self.keys[key] = self.refused[key] = self.chance.choice(values)

    def encoder(self) -> None:
        self.keys |= {
            "hidden_size": self.width,
            "num_attention_heads": self.heads,
            "num_hidden_layers": self.chance.randint(1, 3),
            "intermediate_size": self.chance.choice([5, 24, 33, 64]),
            "max_position_embeddings": 40,
            "hidden_dropout_prob": self.chance.choice([0.0, 0.3]),
            "type_vocab_size": self.chance.randint(1, 3),
            "attention_probs_dropout_prob": 0.0,
            "hidden_act": self.chance.choice(list(HUGGING_FACE)),
        }
        self.maybe(
            layer_norm_eps=[1e-3, 1e-5, 1e-7],
            initializer_range=[0.1, 0.005],
            classifier_dropout=[0.2],
            position_embedding_type=["absolute"],
            chunk_size_feed_forward=[5],
        )
        if self.family == "electra":
            self.keys["embedding_size"] = self.chance.choice([self.width, 12, 40])
        if self.family == "bert":
            self.maybe(pad_token_id=[0, 9])
        self.not_ours(hidden_act=OTHERS, is_decoder=[True], position_embedding_type=["relative_key_query"])

    def gpt2(self) -> None:
        self.keys |= {
            "n_embd": self.width,
            "n_head": self.heads,
            "n_layer": self.chance.randint(1, 4),
            "n_positions": 40,
            "n_inner": self.chance.choice([None, 17, 64]),
            "resid_pdrop": 0.0,
            "embd_pdrop": 0.0,
            "attn_pdrop": 0.0,
            "bos_token_id": 5,
            "eos_token_id": 5,
        }
        self.maybe(
            activation_function=list(HUGGING_FACE),
            scale_attn_weights=[False],
            scale_attn_by_inverse_layer_idx=[True],
            reorder_and_upcast_attn=[True],
            layer_norm_epsilon=[1e-2, 1e-8],
            summary_activation=["tanh"],
            chances=0.5,
        )
        self.not_ours(activation_function=OTHERS, add_cross_attention=[True])

    def modern(self) -> None:
        layers = self.chance.randint(1, 5)
        self.keys |= {
            "hidden_size": self.width,
            "num_attention_heads": self.heads,
            "num_hidden_layers": layers,
            "intermediate_size": self.chance.choice([5, 24, 33]),
            "max_position_embeddings": 40,
            "pad_token_id": 0,
            "bos_token_id": 2,
            "eos_token_id": 3,
            "cls_token_id": 2,
            "sep_token_id": 3,
            "local_attention": self.chance.choice([1, 4, 7, 128]),
        }
        kinds = ["full_attention", "sliding_attention"]
        self.maybe(
            norm_bias=[True],
            attention_bias=[True],
            mlp_bias=[True],
            classifier_bias=[True],
            decoder_bias=[False],
            hidden_activation=list(HUGGING_FACE),
            classifier_activation=list(HUGGING_FACE),
            norm_eps=[1e-2, 1e-7],
            initializer_cutoff_factor=[3.0],
            classifier_pooling=["mean"],
            global_attn_every_n_layers=[1, 2, 4],
            chances=0.4,
            layer_types=[[self.chance.choice(kinds) for _ in range(layers)]],
        )
        if self.chance.random() < 0.4:
            thetas = {kind: self.chance.choice([50.0, 9e4]) for kind in kinds}
            self.keys["rope_parameters"] = {k: {"rope_type": "default", "rope_theta": v} for k, v in thetas.items()}
        self.not_ours(hidden_activation=OTHERS)

    def task(self) -> Any:
        """Their class with the head of a task, of three labels where it has some."""
        import transformers as t

        torch.manual_seed(self.chance.randint(0, 1 << 30))
        stem = {**ENCODERS, "gpt2": "GPT2", "modern": "ModernBert"}[self.family]
        end = self.chance.choice(list(TASK_CLASSES.values()))
        more = {} if end.endswith("QuestionAnswering") else {"num_labels": 3}
        more |= {"pad_token_id": PAD} if self.family == "gpt2" else {}
        return shaken(getattr(t, f"{stem}{end}")(getattr(t, f"{stem}Config")(**{**self.keys, **more})))

    def model(self) -> Any:
        import transformers as t

        torch.manual_seed(self.chance.randint(0, 1 << 30))
        if self.family == "gpt2":
            return shaken(t.GPT2LMHeadModel(t.GPT2Config(**self.keys)))
        if self.family == "modern":
            return shaken(t.ModernBertForMaskedLM(t.ModernBertConfig(**self.keys)))
        stem, ends = ENCODERS[self.family], ["MaskedLM"]
        if self.family == "electra" or (self.family != "roberta" and self.keys["type_vocab_size"] > 1):
            ends.append("PreTraining")
        made = getattr(t, f"{stem}Config")(**self.keys)
        return shaken(getattr(t, f"{stem}For{self.chance.choice(ends)}")(made))


def ours_of(folder, settings, architecture):
    """The objective that such a class learned by, filled."""
    if architecture.endswith("ForPreTraining"):
        made = rtd.Rtd().alone if settings.capabilities.detects else mlm_nsp.MlmNsp().build
    else:
        made = choice(clm if settings.capabilities.causal else mlm)().build
    objective = made(settings, Signs()).eval()
    foreign.load_into(objective, folder, Signs())
    return objective


@torch.no_grad()
def said_by(model, *, types=0):
    ids, kept, kinds = asked(types)
    more = {} if kinds is None else {"token_type_ids": kinds}
    out = model(input_ids=ids, attention_mask=kept, **more)
    names = {"logits": "scores", "prediction_logits": "scores", "seq_relationship_logits": "pairs"}
    found = {told: out[name] for name, told in names.items() if name in out}
    return {"scores": found["scores"][kept.bool()], **{k: v for k, v in found.items() if k != "scores"}}


@torch.no_grad()
def said_here(objective, *, types=0):
    ids, kept, kinds = asked(types)
    hidden = objective.model(ids, torch.arange(ids.shape[1]).repeat(len(ids), 1), kept, kinds)
    head = objective.detect if hasattr(objective, "detect") else objective.head
    found = {"scores": head(hidden)[kept.bool()]}
    return found | ({"pairs": objective.pair(hidden)} if hasattr(objective, "pair") else {})


def asked(types):
    made = torch.Generator().manual_seed(5)
    ids = torch.randint(10, WORDS, (ROWS, 15), generator=made)
    kept = torch.ones(ROWS, 15, dtype=torch.int32)
    kept[1, 9:], kept[2, 4:] = 0, 0
    ids[kept == 0] = PAD  # by which a GPT-2 knows a text's end
    return ids, kept, torch.randint(0, types, (ROWS, 15), generator=made) if types else None


def check(family: str, seed: int, folder: Any) -> bool:
    """Equal both ways, or refused; returns whether it was taken."""
    import transformers as t

    drawn = Drawn(family, seed)
    theirs = drawn.model()
    theirs.save_pretrained(folder / "theirs")
    if drawn.refused:
        with pytest.raises(DataError) as caught:
            foreign.settings(folder / "theirs")
        assert any(
            re.search(rf"{key}: found {value}; wanted ", str(caught.value)) for key, value in drawn.refused.items()
        ), (drawn.refused, str(caught.value))
        return False
    architecture, types = type(theirs).__name__, drawn.keys.get("type_vocab_size", 0)
    ours = ours_of(folder / "theirs", foreign.settings(folder / "theirs"), architecture)
    there, here = said_by(theirs, types=types), said_here(ours, types=types)
    if family == "modern" or not architecture.endswith("PreTraining") or "pairs" in there:
        there["scores"] = there["scores"][:, :WORDS]
    assert there.keys() == here.keys()
    assert all(close(here[name], there[name], 1e-5) for name in there), drawn.keys
    written = hub_folder(ours, folder / "again")
    again, report = getattr(t, architecture).from_pretrained(written, output_loading_info=True)
    assert not any(report.values()), (drawn.keys, report)
    back = said_by(again.eval(), types=types)
    assert all(close(back[name], there[name], 1e-5) for name in there), drawn.keys
    return True


def check_task(family: str, seed: int, folder: Any) -> bool:
    """The same of a class with the head of a task."""
    drawn = Drawn(family, seed)
    theirs = drawn.task()
    theirs.save_pretrained(folder / "theirs")
    form = HuggingFace()
    if drawn.refused:
        with pytest.raises(DataError) as caught:
            form.learned(folder / "theirs", foreign.settings(folder / "theirs"))
        assert any(f"{key}: found {value}" in str(caught.value) for key, value in drawn.refused.items())
        return False
    model = foreign.settings(folder / "theirs")
    ours = form.learned(folder / "theirs", model).build(model, Signs()).eval()
    foreign.load_into(ours, folder / "theirs", Signs())
    ids, kept, kinds = asked(drawn.keys.get("type_vocab_size", 0))
    with torch.no_grad():
        more = {} if kinds is None else {"token_type_ids": kinds}
        there = theirs(input_ids=ids, attention_mask=kept, **more).to_tuple()
        [(role, head)] = [(k, m) for k, m in ours.networks()[""].modules.items() if k != "model"]
        hidden = ours.model(ids, torch.arange(ids.shape[1]).repeat(len(ids), 1), kept, kinds)
        places = kept.sum(1) - 1 if model.capabilities.causal else torch.zeros(len(ids), dtype=torch.int64)
        state = hidden[torch.arange(len(ids)), places]
        if role == "classify" and ours.pool == "mean":
            state = (hidden * kept[..., None]).sum(1) / kept.sum(1, keepdim=True)
        said = head(state if role == "classify" else hidden)
    seen = kept.bool()
    pairs = [(said, there[0])] if role == "classify" else [(said[seen], there[0][seen])]
    if role == "span":
        pairs = [(said[seen][:, n], there[n][seen]) for n in (0, 1)]
    # a norm over 4 numbers multiplies roundings: 1.1e-5 without vector units, 5e-7 with them
    assert all(close(*pair, 3e-5) for pair in pairs), (type(theirs).__name__, drawn.keys)
    return True


@pytest.mark.parametrize("family", FAMILIES)
def test_configs_drawn_at_random_are_equal_both_ways_or_refused_by_name(family, tmp_path):
    found = []
    for seed in range(3):
        (tmp_path / f"{seed}").mkdir()
        found.append(check(family, seed, tmp_path / f"{seed}"))
        (tmp_path / f"task-{seed}").mkdir()
        found.append(check_task(family, seed, tmp_path / f"task-{seed}"))
    assert any(found)


@pytest.mark.long
@pytest.mark.parametrize("family", FAMILIES)
def test_many_of_them(family, tmp_path):
    found = []
    for seed in range(4, 30):
        (tmp_path / f"{seed}").mkdir()
        found.append(check(family, seed, tmp_path / f"{seed}"))
        (tmp_path / f"task-{seed}").mkdir()
        found.append(check_task(family, seed, tmp_path / f"task-{seed}"))
    assert {True, False} == set(found)
