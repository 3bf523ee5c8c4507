"""Every family equals its class in transformers on random weights, both ways; and no token sees what it must not."""

from __future__ import annotations

import dataclasses
import json
import re

import numpy as np
import pytest
import torch

from kit.families import LENGTHS, WORDS, Signs, close, hidden, hub_folder, packed, shaken, state
from ordsmed.base.errors import DataError
from ordsmed.base.menu import choice, load
from ordsmed.data.batch import batch_of
from ordsmed.learn.objectives import clm, mlm, mlm_nsp, rtd
from ordsmed.nn.attention import Cache
from ordsmed.nn.model import own_tensors
from ordsmed.nn.models import bert, electra, gpt2, megatron_bert, roberta
from ordsmed.weights import foreign, weights

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


BERTS = {
    "plain": {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64},
    "tanh": {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48, "hidden_act": "gelu_new"},
    "types": {"hidden_size": 24, "num_attention_heads": 3, "intermediate_size": 40, "type_vocab_size": 3},
    "one type": {"hidden_size": 32, "num_attention_heads": 1, "intermediate_size": 64, "type_vocab_size": 1},
    "epsilon": {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64, "layer_norm_eps": 1e-3},
}
GPTS = {
    "plain": {"n_embd": 32, "n_head": 2},
    "inner": {"n_embd": 32, "n_head": 4, "n_inner": 48},
    "one head": {"n_embd": 24, "n_head": 1, "n_positions": 33},
    "epsilon": {"n_embd": 32, "n_head": 2, "layer_norm_epsilon": 1e-3},
}
ROBERTAS = {
    "plain": {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64, "type_vocab_size": 1},
    "epsilon": {"hidden_size": 24, "num_attention_heads": 3, "intermediate_size": 40, "layer_norm_eps": 1e-3},
    "tanh": {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64, "hidden_act": "gelu_new"},
}
MEGATRONS = {
    "plain": {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64},
    "tanh": {"hidden_size": 24, "num_attention_heads": 3, "intermediate_size": 40, "hidden_act": "gelu_new"},
}
ELECTRAS = {
    "narrow": {"hidden_size": 32, "embedding_size": 16, "num_attention_heads": 2, "intermediate_size": 64},
    "wide": {"hidden_size": 16, "embedding_size": 32, "num_attention_heads": 1, "intermediate_size": 64},
    "equal": {"hidden_size": 32, "embedding_size": 32, "num_attention_heads": 4, "intermediate_size": 48},
    "tanh": {
        "hidden_size": 32,
        "embedding_size": 24,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "hidden_act": "gelu_new",
        "layer_norm_eps": 1e-3,
    },
}
FAMILIES = {"bert": BERTS, "roberta": ROBERTAS, "megatron_bert": MEGATRONS, "electra": ELECTRAS, "gpt2": GPTS}
CASES = [(family, name) for family, cases in FAMILIES.items() for name in cases]
CLASSES = {"bert": "Bert", "roberta": "Roberta", "megatron_bert": "MegatronBert", "electra": "Electra"}


def theirs_of(family, name):
    """Their model, every number in it random, so that none can be mistaken for another."""
    import transformers as t

    torch.manual_seed(sum(map(ord, name)))
    still = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    if family != "gpt2":
        shape = {"num_hidden_layers": 3, "max_position_embeddings": 40, **FAMILIES[family][name], **still}
        described = getattr(t, f"{CLASSES[family]}Config")(vocab_size=WORDS, **shape)
        model = getattr(t, f"{CLASSES[family]}ForMaskedLM")(described)
    else:
        still = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "bos_token_id": 5, "eos_token_id": 5}
        model = t.GPT2LMHeadModel(
            t.GPT2Config(vocab_size=WORDS, **{"n_layer": 3, "n_positions": 40, **GPTS[name], **still})
        )
    return shaken(model)


def objective_of(settings):
    chosen = clm if settings.capabilities.causal else mlm
    return choice(chosen)().build(settings, Signs()).eval()


def ours_of(folder):
    """What is read back from their folder."""
    objective = objective_of(foreign.settings(folder))
    foreign.load_into(objective, folder, Signs())
    return objective


def sentence(family, objective, rows=3, length=17):
    """Ids, positions, types and which tokens count (the rest is padding)."""
    made = torch.Generator().manual_seed(1)
    ids = torch.randint(6, WORDS, (rows, length), generator=made)
    kept = torch.ones(rows, length, dtype=torch.int32)
    kept[1, 11:], kept[2, 5:] = 0, 0
    kinds = objective.model_settings.types if family != "gpt2" else 0
    types = torch.randint(0, kinds, (rows, length), generator=made) if kinds else None
    return ids, torch.arange(length).repeat(rows, 1), types, kept


def ask_theirs(model, ids, types, kept, **more):
    known = {"input_ids": ids, "attention_mask": kept, **({} if types is None else {"token_type_ids": types})}
    return model(**known, output_hidden_states=True, **more)


@pytest.fixture(params=CASES, ids=" ".join)
def pair(request, tmp_path):
    """Their model and ours that was read from its folder."""
    family, name = request.param
    model = theirs_of(family, name)
    model.save_pretrained(tmp_path / "hub")
    return family, model, ours_of(tmp_path / "hub")


def test_hidden_states_and_scores_are_equal(pair):
    family, theirs, ours = pair
    ids, positions, types, kept = sentence(family, ours)
    there = ask_theirs(theirs, ids, types, kept)
    with torch.no_grad():
        hidden = ours.model(ids, positions, kept, types)
        scores = ours.head(hidden)
    seen = kept.bool()
    assert close(hidden[seen], there.hidden_states[-1][seen], 1e-5)
    assert close(scores[seen], there.logits[seen], 1e-5)


def test_losses_and_gradients_are_equal(pair):
    family, theirs, ours = pair
    ids, positions, types, kept = sentence(family, ours)
    asked = kept.bool().clone()
    asked[:, 0] = False
    if family != "gpt2":
        asked &= torch.rand(asked.shape, generator=torch.Generator().manual_seed(2)) < 0.4
    labels = torch.where(asked, ids, -100)
    loss = ask_theirs(theirs.train(), ids, types, kept, labels=labels).loss * asked.sum()
    loss.backward()
    batch = batch_for(family, ids, positions, types, kept, asked)
    [mine] = ours.train()(batch).values()
    mine.backward()
    assert float(mine.detach()) == pytest.approx(float(loss.detach()), rel=1e-5)
    grads = {k: p.grad for k, p in own_tensors(ours).items()}
    there = {k: p.grad for k, p in theirs.named_parameters()}
    largest = max(float(g.abs().max()) for g in there.values())
    for name, grad in weights.to_foreign(grads, ours.model_settings.names()).items():
        room = 1e-4 * max(float(there[name].abs().max()), 1e-3 * largest)
        assert (grad - there[name]).abs().max() <= room, name


def batch_for(family, ids, positions, types, kept, asked):
    numbers = np.arange(len(ids))
    arrays = {
        k: None if v is None else v.numpy()
        for k, v in {"tokens": ids, "positions": positions, "types": types, "documents": kept}.items()
    }
    if family == "gpt2":  # the token after each
        targets, counted = ids.roll(-1, 1).numpy(), asked.roll(-1, 1).clone()
        counted[:, -1] = False
        return batch_of(numbers=numbers, targets=targets, weights=counted.float().numpy(), **arrays)
    slots = int(asked.sum(1).max())
    places, used = np.zeros((len(ids), slots), np.int64), np.zeros((len(ids), slots), np.float32)
    for row, which in enumerate(asked):
        found = which.nonzero().flatten().numpy()
        places[row, : len(found)], used[row, : len(found)] = found, 1
    targets = np.take_along_axis(ids.numpy(), places, 1)
    return batch_of(numbers=numbers, targets=targets, weights=used, predicted_positions=places, **arrays)


OURS = [
    bert.Bert(width=32, layers=3, heads=2, inner=48, positions=40),
    roberta.Roberta(width=32, layers=2, heads=2, inner=48, positions=40),
    roberta.Roberta(width=32, layers=2, heads=4, types=2, positions=30, activation="gelu_tanh"),
    megatron_bert.MegatronBert(width=32, layers=3, heads=2, inner=48, positions=40),
    electra.Electra(width=32, layers=2, heads=2, inner=48, positions=40, embedding=16),
    electra.Electra(width=16, layers=2, heads=1, positions=40, embedding=32, activation="gelu_tanh"),
    bert.Bert(
        width=32, layers=2, heads=4, positions=24, types=1, activation="gelu_tanh", epsilon=1e-5, initializer_std=0.05
    ),
    gpt2.Gpt2(width=32, layers=3, heads=2, inner=48, positions=40),
    gpt2.Gpt2(width=24, layers=2, heads=3, positions=24, epsilon=1e-3, deep=False),
]


@pytest.mark.parametrize("settings", OURS, ids=lambda s: f"{type(s).__module__.split('.')[-1]} {s.width} {s.heads}")
def test_what_we_made_is_equal_there_and_comes_back(settings, tmp_path):
    import transformers as t

    ours = shaken(objective_of(settings))
    folder = hub_folder(ours, tmp_path / "hub")
    kind = t.AutoModelForCausalLM if settings.capabilities.causal else t.AutoModelForMaskedLM
    theirs, report = kind.from_pretrained(folder, output_loading_info=True)
    assert not any(report.values()), report
    family = type(settings).__module__.rpartition(".")[2]
    ids, positions, types, kept = sentence(family, ours)
    with torch.no_grad():
        there = ask_theirs(theirs.eval(), ids, types, kept).logits
        here = ours.head(ours.model(ids, positions, kept, types))
    assert close(here[kept.bool()], there[kept.bool()], 1e-5)
    theirs.save_pretrained(tmp_path / "again")
    again = foreign.settings(tmp_path / "again")
    changed = {"deep": type(settings).deep} if hasattr(settings, "deep") else {}  # of fresh weights alone
    changed |= {"types": max(settings.types, 1)} if hasattr(settings, "types") else {}
    assert again == dataclasses.replace(settings, **changed)
    back = own_tensors(ours_of(tmp_path / "again"))
    assert all(torch.equal(back[k], v) for k, v in own_tensors(ours).items())
    more = back.keys() - own_tensors(ours).keys()
    assert not any(back[k].any() for k in more), "what RoBERTa's class has beside the network is 0"


# what a token may see

SEEN = {type(s).__module__.rpartition(".")[2]: s for s in reversed(OURS)}
NETWORKS = pytest.mark.parametrize("settings", SEEN.values(), ids=list(SEEN))


@NETWORKS
def test_packed_documents_equal_each_alone(settings):
    ids, positions, documents = packed()
    together = hidden(settings, ids, positions, documents)
    start = 0
    for size in LENGTHS:
        part = slice(start, start + size)
        alone = hidden(settings, ids[:, part], positions[:, part])
        assert (together[:, part] - alone).abs().max() < 1e-6 * max(1, float(alone.abs().max()))
        start += size


@NETWORKS
def test_padding_changes_nothing(settings):
    ids, positions, documents = packed()
    with_other_padding = ids.clone()
    with_other_padding[:, sum(LENGTHS) :] = 0
    real = documents > 0
    one = hidden(settings, ids, positions, documents)
    other = hidden(settings, with_other_padding, positions, documents)
    assert torch.equal(one[real], other[real])
    assert torch.isfinite(one).all()
    cut = sum(LENGTHS)
    short = hidden(settings, ids[:, :cut], positions[:, :cut], documents[:, :cut])
    assert close(one[:, :cut], short, 2e-6)


@NETWORKS
def test_the_order_of_rows_changes_nothing(settings):
    ids, positions, documents = packed(rows=4)
    order = torch.tensor([2, 0, 3, 1])
    one = hidden(settings, ids, positions, documents)
    assert close(hidden(settings, ids[order], positions[order], documents[order]), one[order], 2e-6)


@NETWORKS
def test_no_token_sees_another_document(settings):
    ids, positions, documents = packed()
    place = LENGTHS[0] + 4  # in the second document
    changed = ids.clone()
    changed[:, place] = (changed[:, place] + 1) % WORDS
    moved = (hidden(settings, ids, positions, documents) - hidden(settings, changed, positions, documents)).abs().amax(
        -1
    ) > 0
    assert not moved[documents != 2].any()
    assert moved[:, place:][documents[:, place:] == 2].all()
    assert moved[:, :place][documents[:, :place] == 2].any() != settings.capabilities.causal


@NETWORKS
def test_without_documents_all_of_a_row_is_one_text(settings):
    ids, _, _ = packed()
    positions = torch.arange(ids.shape[1]).repeat(len(ids), 1)
    one = torch.ones_like(ids, dtype=torch.int32)
    assert close(hidden(settings, ids, positions, None), hidden(settings, ids, positions, one), 2e-6)
    changed = ids.clone()
    changed[:, 7] = (changed[:, 7] + 1) % WORDS
    moved = (hidden(settings, ids, positions, None) - hidden(settings, changed, positions, None)).abs().amax(-1) > 0
    assert moved[:, 7:].all()
    assert moved[:, :7].any() != settings.capabilities.causal


# keys and values that are kept


@pytest.mark.parametrize("steps", [[17], [1] * 17, [5, 1, 1, 7, 3]], ids=["at once", "one by one", "in pieces"])
@torch.no_grad()
def test_a_gpt_that_keeps_what_it_read_equals_one_that_reads_anew(steps):
    torch.manual_seed(8)
    network = shaken(SEEN["gpt2"].build(WORDS)).eval()
    ids = torch.randint(6, WORDS, (3, 17))
    whole = network(ids, torch.arange(17).repeat(3, 1))
    documents = torch.ones_like(ids)
    documents[1, :4] = 0  # a shorter row, padded on its left
    positions = (documents.cumsum(1) - 1).clamp_min(0)
    padded = network(ids, positions, documents)
    for told, wanted in ((None, whole), (documents, padded)):
        cache, at, made = Cache(SEEN["gpt2"].layers), 0, []
        for size in steps:
            part = slice(at, at + size)
            here = positions if told is not None else torch.arange(17).repeat(3, 1)
            made.append(network(ids[:, part], here[:, part], None if told is None else told[:, part], cache=cache))
            at += size
        assert close(torch.cat(made, 1), wanted, 1e-6)


def test_rows_of_both_directions_in_one_batch():
    torch.manual_seed(8)
    network = shaken(SEEN["gpt2"].build(WORDS)).eval()
    ids, positions, documents = packed(rows=2)
    changed = ids.clone()
    changed[:, 10] = (changed[:, 10] + 1) % WORDS  # in the second document
    causal = torch.tensor([True, False])
    with torch.no_grad():
        one, other = (network(i, positions, documents, causal=causal) for i in (ids, changed))
        assert torch.equal(one[0], network(ids, positions, documents)[0])
    moved = (one - other).abs().amax(-1) > 0
    assert not moved[documents != 2].any()
    assert not moved[0, :10].any()
    assert moved[0, 10 : sum(LENGTHS[:2])].all()
    assert moved[1][documents[1] == 2].all()


# heads beside the one for words


def test_pair_scores_and_their_gradients_are_equal(tmp_path):
    import transformers as t

    for kind, there in (("bert", "Bert"), ("megatron_bert", "MegatronBert")):
        torch.manual_seed(3)
        shape = {
            "hidden_size": 32,
            "num_attention_heads": 2,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
        }
        described = getattr(t, f"{there}Config")(vocab_size=WORDS, max_position_embeddings=40, **shape)
        theirs = shaken(getattr(t, f"{there}ForPreTraining")(described))
        theirs.save_pretrained(tmp_path / kind)
        ours = mlm_nsp.MlmNsp().build(foreign.settings(tmp_path / kind), Signs()).eval()
        foreign.load_into(ours, tmp_path / kind, Signs())
        ids, positions, types, kept = sentence(kind, ours)
        said = ask_theirs(theirs, ids, types, kept)
        hidden = ours.model(ids, positions, kept, types)
        assert close(ours.pair(hidden), said.seq_relationship_logits, 1e-5)
        assert close(ours.head(hidden)[kept.bool()], said.prediction_logits[kept.bool()], 1e-5)
        labels = torch.tensor([0, 1, 1])
        torch.nn.functional.cross_entropy(ours.pair(hidden), labels).backward()
        torch.nn.functional.cross_entropy(said.seq_relationship_logits, labels).backward()
        mine = theirs.bert.embeddings.word_embeddings.weight.grad
        assert close(ours.model.words.weight.grad, mine, 1e-4)
        folder = hub_folder(ours, tmp_path / f"{kind}-again")
        again, report = getattr(t, f"{there}ForPreTraining").from_pretrained(folder, output_loading_info=True)
        assert not any(report.values()), report
        assert all(torch.equal(v, again.state_dict()[k]) for k, v in theirs.state_dict().items())


@pytest.mark.parametrize("name", ELECTRAS)
def test_a_detector_is_equal_both_ways(name, tmp_path):
    import transformers as t

    torch.manual_seed(4)
    shape = {"num_hidden_layers": 3, "max_position_embeddings": 40, **ELECTRAS[name]}
    described = t.ElectraConfig(vocab_size=WORDS, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **shape)
    theirs = shaken(t.ElectraForPreTraining(described))
    theirs.save_pretrained(tmp_path / "hub")
    ours = rtd.Rtd().alone(foreign.settings(tmp_path / "hub"), Signs()).eval()
    foreign.load_into(ours, tmp_path / "hub", Signs())
    ids, positions, types, kept = sentence("electra", ours)
    there = ask_theirs(theirs, ids, types, kept)
    hidden = ours.model(ids, positions, kept, types)
    scores, seen = ours.detect(hidden), kept.bool()
    assert close(hidden[seen], there.hidden_states[-1][seen], 1e-5)
    assert close(scores[seen], there.logits[seen], 1e-5)
    scores[seen].sigmoid().sum().backward()
    there.logits[seen].sigmoid().sum().backward()
    mine = {k: p.grad for k, p in ours.networks()[""].tensors().items()}
    grads = {k: p.grad for k, p in theirs.named_parameters()}
    largest = max(float(g.abs().max()) for g in grads.values())
    for key, grad in weights.to_foreign(mine, ours.model_settings.names()).items():
        assert (grad - grads[key]).abs().max() <= 1e-4 * max(float(grads[key].abs().max()), 1e-3 * largest), key
    again, report = t.ElectraForPreTraining.from_pretrained(
        hub_folder(ours, tmp_path / "again"), output_loading_info=True
    )
    assert not any(report.values()), report
    assert all(torch.equal(v, again.state_dict()[k]) for k, v in theirs.state_dict().items())


# sizes

BERT_SIZES = {  # encoder and pooler with 30,522 pieces
    "tiny": 4_385_920,
    "mini": 11_170_560,
    "small": 28_763_648,
    "medium": 41_373_184,
    "base": 109_482_240,
    "large": 335_141_888,
}
GPT_SIZES = {  # 50,257 pieces, 1,024 positions
    "124M": 124_439_808,
    "355M": 354_823_168,
    "774M": 774_030_080,
    "1558M": 1_557_611_200,
    "117M": 124_439_808,
    "345M": 354_823_168,
    "762M": 774_030_080,
    "1.5B": 1_557_611_200,
}


def sized(kind, size):
    from ordsmed.base import settings

    return settings.decode(load("models", kind), {"size": size}, "test")


def count(settings, vocabulary):
    with torch.device("meta"):
        network = settings.build(vocabulary)
    return sum(t.numel() for t in own_tensors(network).values())


@pytest.mark.parametrize("size", BERT_SIZES)
def test_named_berts_have_the_published_size(size):
    settings = sized("bert", size)
    pooler = settings.width**2 + settings.width
    assert count(settings, 30_522) == BERT_SIZES[size] - pooler
    assert settings.heads == settings.width // 64


@pytest.mark.parametrize("size", GPT_SIZES)
def test_named_gpts_have_the_published_size(size):
    assert count(sized("gpt2", size), 50_257) == GPT_SIZES[size]


WITH_HEADS = {  # token head or detection head counted; a RoBERTa without its class's row of zeros
    ("roberta", "base", 50_265, "head"): 124_697_433 - 768,
    ("roberta", "large", 50_265, "head"): 355_412_057 - 1024,
    ("electra", "small", 30_522, "detect"): 13_549_057,
    ("electra", "base", 30_522, "detect"): 109_483_009,
    ("electra", "large", 30_522, "detect"): 335_142_913,
}


@pytest.mark.parametrize("named", WITH_HEADS, ids=lambda n: f"{n[0]} {n[1]}")
def test_named_robertas_and_electras_have_the_published_size(named):
    kind, size, words, head = named
    settings = sized(kind, size)
    with torch.device("meta"):
        signs = Signs(vocabulary=words)
        objective = mlm.Mlm().build(settings, signs) if head == "head" else rtd.Rtd().alone(settings, signs)
    assert sum(t.numel() for t in own_tensors(objective).values()) == WITH_HEADS[named]


def test_every_named_size_is_held_to_a_number():
    assert set(bert.Bert.SIZES) == set(BERT_SIZES)
    assert set(gpt2.Gpt2.SIZES) - {"mini"} == set(GPT_SIZES)


@pytest.mark.parametrize("settings", OURS)
def test_flops_are_counted_from_the_matrices(settings):
    """2 x multiply-adds of every linear layer, and of queries with keys and weights with values."""
    network = settings.build(WORDS)
    length = 16
    linear = sum(m.weight.numel() for m in network.modules() if isinstance(m, torch.nn.Linear))
    pairs = (length + 1) / 2 if settings.capabilities.causal else length
    assert settings.flops(length) == 2 * (linear + settings.layers * 2 * pairs * settings.width)
    head = settings.token_head(network)
    dense = sum(m.weight.numel() for m in head.modules() if isinstance(m, torch.nn.Linear))
    assert settings.head_flops(WORDS) == 2 * (dense + WORDS * network.words.embedding_dim)


# what people's folders hold


def rename(folder, change):
    """Their tensors under other names."""
    held = weights.read(folder / "model.safetensors")
    weights.write(folder / "model.safetensors", {change(k): v for k, v in held.items()})


@pytest.fixture
def berts(tmp_path):
    theirs_of("bert", "plain").save_pretrained(tmp_path / "hub")
    return tmp_path / "hub"


@pytest.fixture
def gpts(tmp_path):
    theirs_of("gpt2", "plain").save_pretrained(tmp_path / "hub")
    return tmp_path / "hub"


def test_names_of_old_berts_are_read(berts):
    today = state(ours_of(berts))
    rename(
        berts, lambda k: k.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
    )
    old = state(ours_of(berts))
    rename(berts, lambda k: k.removeprefix("bert."))
    bare = state(ours_of(berts))
    assert all(torch.equal(today[k], old[k]) and torch.equal(today[k], bare[k]) for k in today)


def test_what_a_bert_has_beside_its_network_is_left_out(berts):
    today = state(ours_of(berts))
    held = weights.read(berts / "model.safetensors")
    width = held["bert.embeddings.LayerNorm.weight"].shape[0]
    more = {
        "bert.embeddings.position_ids": torch.arange(40)[None],
        "bert.pooler.dense.weight": torch.randn(width, width),
        "bert.pooler.dense.bias": torch.randn(width),
        "cls.seq_relationship.weight": torch.randn(2, width),
        "cls.seq_relationship.bias": torch.randn(2),
        "cls.predictions.decoder.bias": held["cls.predictions.bias"].clone(),
        "cls.predictions.decoder.weight": held["bert.embeddings.word_embeddings.weight"].clone(),
    }
    weights.write(berts / "model.safetensors", {**held, **more})
    now = state(ours_of(berts))
    assert all(torch.equal(today[k], now[k]) for k in today)


def test_bare_gpts_with_their_masks_are_read(gpts):
    """As the release of 2019 lies on the hub: no `transformer.` before the names, the causal mask among the tensors."""
    today = state(ours_of(gpts))
    rename(gpts, lambda k: k.removeprefix("transformer."))
    held = weights.read(gpts / "model.safetensors")
    masks = {f"h.{n}.attn.bias": torch.ones(40, 40).tril()[None, None] for n in range(3)}
    masks |= {f"h.{n}.attn.masked_bias": torch.tensor(-1e4) for n in range(3)}
    weights.write(gpts / "model.safetensors", {**held, **masks})
    now = state(ours_of(gpts))
    assert all(torch.equal(today[k], now[k]) for k in today)


def test_pickled_weights_and_parts_are_read(gpts):
    today = state(ours_of(gpts))
    held = weights.read(gpts / "model.safetensors")
    (gpts / "model.safetensors").unlink()
    torch.save(held, gpts / "pytorch_model.bin")
    pickled = state(ours_of(gpts))
    (gpts / "pytorch_model.bin").unlink()
    names = sorted(held)
    halves = {"a.safetensors": names[:7], "b.safetensors": names[7:]}
    for part, some in halves.items():
        weights.write(gpts / part, {k: held[k] for k in some})
    index = {"weight_map": {k: part for part, some in halves.items() for k in some}}
    (gpts / "model.safetensors.index.json").write_text(json.dumps(index))
    parts = state(ours_of(gpts))
    assert all(torch.equal(today[k], pickled[k]) and torch.equal(today[k], parts[k]) for k in today)


def test_pickled_parts_are_read(gpts):
    today = state(ours_of(gpts))
    held = weights.read(gpts / "model.safetensors")
    (gpts / "model.safetensors").unlink()
    names = sorted(held)
    halves = {"pytorch_model-00001-of-00002.bin": names[:7], "pytorch_model-00002-of-00002.bin": names[7:]}
    for part, some in halves.items():
        torch.save({k: held[k] for k in some}, gpts / part)
    index = gpts / "pytorch_model.bin.index.json"
    listed = {k: part for part, some in halves.items() for k in some}
    index.write_text(json.dumps({"metadata": {}, "weight_map": listed}))
    parts = state(ours_of(gpts))
    assert all(torch.equal(today[k], parts[k]) for k in today)
    assert weights.foreign_names(gpts) == set(names)
    for told, said in (
        ({**listed, names[0]: "../other.bin"}, f"weight_map.{names[0]}: found .*wanted the name of a file next to it"),
        ({**listed, names[0]: 7}, "found 7; wanted the name of a file"),
        (
            {**listed, names[0]: "gone.bin"},
            "gone.bin: no such file; wanted a file that pytorch_model.bin.index.json lists",
        ),
        ([], "has no weight_map"),
        ({}, "has no weight_map"),
    ):
        index.write_text(json.dumps({"weight_map": told}))
        with pytest.raises(DataError, match=said):
            ours_of(gpts)


def test_a_table_that_is_not_the_one_it_is_tied_to_is_refused(berts):
    held = weights.read(berts / "model.safetensors")
    words = held["bert.embeddings.word_embeddings.weight"]
    weights.write(berts / "model.safetensors", {**held, "cls.predictions.decoder.weight": words + 1})
    with pytest.raises(DataError, match=r"cls\.predictions\.decoder\.weight differs from bert\..*tie_word_embeddings"):
        ours_of(berts)
    kept = {k: v for k, v in held.items() if k != "bert.embeddings.word_embeddings.weight"}
    weights.write(berts / "model.safetensors", {**kept, "cls.predictions.decoder.weight": words})
    assert ours_of(berts).model.words.weight.equal(words)  # the one stands for the other


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_no_number_is_refused_by_its_tensor(berts, value):
    held = weights.read(berts / "model.safetensors")
    held["bert.encoder.layer.1.intermediate.dense.weight"][3, 2] = value
    weights.write(berts / "model.safetensors", held)
    with pytest.raises(DataError, match=r"layer\.1\.intermediate\.dense\.weight: 1 of 2,048 numbers are NaN or inf"):
        ours_of(berts)


def test_quantized_weights_are_refused(berts):
    held = weights.read(berts / "model.safetensors")
    name = "bert.encoder.layer.1.intermediate.dense.weight"
    weights.write(berts / "model.safetensors", {**held, name: held[name].to(torch.int8)})
    with pytest.raises(DataError, match=r"dense\.weight has type torch\.int8; wanted floating-point numbers"):
        ours_of(berts)


def test_missing_and_left_over_tensors_are_named(berts):
    rename(berts, lambda k: k.replace("layer.1.output.dense.bias", "layer.1.output.dense.slant"))
    with pytest.raises(DataError) as caught:
        ours_of(berts)
    said = str(caught.value)
    assert "missing bert.encoder.layer.1.output.dense.bias" in said
    assert "unexpected bert.encoder.layer.1.output.dense.slant" in said


def test_a_network_of_another_shape_is_refused(berts):
    text = json.loads((berts / "config.json").read_text())
    (berts / "config.json").write_text(json.dumps({**text, "intermediate_size": 60}))
    with pytest.raises(DataError, match=r"wrong shapes .*\[64, 32\], not \[60, 32\]"):
        ours_of(berts)


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_attention_of_another_shape_is_refused(family, tmp_path):
    theirs_of(family, "plain").save_pretrained(tmp_path / "hub")
    held = weights.read(tmp_path / "hub" / "model.safetensors")
    name = next(k for k in held if "query.weight" in k or "c_attn.weight" in k)
    for shape in ([31, 31], [30, 32], [7]):
        weights.write(tmp_path / "hub" / "model.safetensors", {**held, name: torch.zeros(shape)})
        with pytest.raises(DataError, match=f"wrong shapes .*{re.escape(str(shape))}"):
            ours_of(tmp_path / "hub")


@pytest.mark.parametrize("make", [bert, electra, megatron_bert, roberta], ids=lambda m: m.__name__.split(".")[-1])
def test_a_network_without_types_is_exported_with_zeros(make, tmp_path):
    import transformers as t

    ours = shaken(objective_of(choice(make)(width=32, layers=2, heads=2, positions=24, types=0)))
    folder = hub_folder(ours, tmp_path / "hub")
    theirs, report = t.AutoModelForMaskedLM.from_pretrained(folder, output_loading_info=True)
    assert not any(report.values()), report
    ids = torch.randint(6, WORDS, (2, 9))
    with torch.no_grad():
        assert close(ours.head(ours.model(ids, torch.arange(9).repeat(2, 1))), theirs.eval()(ids).logits, 1e-5)
    foreign.load_into(ours, folder, Signs())  # and back: the row of zeros holds nothing
    held = weights.read(folder / "model.safetensors")
    row = next(k for k in held if "token_type" in k)
    weights.write(folder / "model.safetensors", {**held, row: held[row] + 1})
    with pytest.raises(DataError, match=f"unexpected {row}"):
        foreign.load_into(ours, folder, Signs())


def test_padding_behind_the_vocabulary_is_left_out(berts):
    today = state(ours_of(berts))
    held = weights.read(berts / "model.safetensors")
    wide = {
        k: torch.nn.functional.pad(v, (0, 0, 0, 7) if v.ndim == 2 else (0, 7))
        for k, v in held.items()
        if k in ("bert.embeddings.word_embeddings.weight", "cls.predictions.bias")
    }
    weights.write(berts / "model.safetensors", {**held, **wide})
    text = json.loads((berts / "config.json").read_text())
    (berts / "config.json").write_text(json.dumps({**text, "vocab_size": WORDS + 7}))
    now = state(ours_of(berts))
    assert all(torch.equal(today[k], now[k]) for k in today)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"hidden_act": "mish"}, "hidden_act: found mish; wanted gelu or"),
        ({"hidden_act": ["gelu"]}, "hidden_act: found .*; wanted gelu or"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type: found relative_key; wanted absolute"),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings: found 'no'; wanted true or false"),
        ({"model_type": "bort"}, "model_type: found bort; wanted one of bert, camembert"),
        ({"num_attention_heads": 5}, "num_attention_heads: found 5; wanted a divisor of the width 32"),
        ({"hidden_size": "32"}, 'hidden_size: found "32"; wanted a whole number'),
        ({"vocab_size": 98}, "vocab_size: found 98; wanted 97"),
    ],
)
def test_a_config_that_asks_for_more_is_refused(berts, change, said):
    text = json.loads((berts / "config.json").read_text())
    (berts / "config.json").write_text(json.dumps({**text, **change}))
    with pytest.raises(DataError, match=said.replace("`", ".")):
        ours_of(berts)
    text.pop("hidden_size")
    (berts / "config.json").write_text(json.dumps(text))
    with pytest.raises(DataError, match="has no 'hidden_size'"):
        ours_of(berts)


def test_a_gpt_that_looks_at_another_network_is_refused(gpts):
    text = json.loads((gpts / "config.json").read_text())
    (gpts / "config.json").write_text(json.dumps({**text, "add_cross_attention": True}))
    with pytest.raises(DataError, match="add_cross_attention: found True; wanted False"):
        ours_of(gpts)
