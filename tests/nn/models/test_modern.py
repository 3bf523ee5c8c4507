"""ModernBERT equals its class in transformers, both ways; and no token sees what it must not."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
import torch

from kit.families import (
    LENGTHS,
    WORDS,
    Signs,
    close,
    count,
    hidden,
    hub_folder,
    masked,
    masked_batch,
    ours_of,
    packed,
    sentence,
    shaken,
    state,
)
from ordsmed.base import settings as decoding
from ordsmed.base.errors import DataError
from ordsmed.learn.objectives import clm
from ordsmed.nn.attention import Cache, nearby
from ordsmed.nn.model import own_tensors
from ordsmed.nn.models import modern
from ordsmed.nn.models.modern import ModernBert
from ordsmed.weights import foreign, weights

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


def thetas(whole, near):
    return {
        kind: {"rope_type": "default", "rope_theta": theta}
        for kind, theta in (("full_attention", whole), ("sliding_attention", near))
    }


THEIRS = {
    "plain": {},
    "window": {"local_attention": 6},
    "odd window": {"local_attention": 7, "num_hidden_layers": 3},
    "own place": {"local_attention": 1},
    "every second": {"global_attn_every_n_layers": 2, "local_attention": 4},
    "all global": {"global_attn_every_n_layers": 1, "num_hidden_layers": 2},
    "first global": {"global_attn_every_n_layers": 9, "local_attention": 8},
    "heads": {"num_attention_heads": 4, "intermediate_size": 40, "local_attention": 10},
    "one head": {"num_attention_heads": 1, "hidden_size": 24, "intermediate_size": 31},
    "odd inner": {"num_attention_heads": 4, "intermediate_size": 49},
    "epsilon": {"norm_eps": 1e-2},
    "thetas": {"rope_parameters": thetas(500.0, 20.0), "local_attention": 6},
    "one layer": {"num_hidden_layers": 1},
}


def theirs_of(name, **more):
    import transformers as t

    torch.manual_seed(sum(map(ord, name)))
    shape = {
        "hidden_size": 32,
        "num_attention_heads": 2,
        "intermediate_size": 48,
        "num_hidden_layers": 5,
        "max_position_embeddings": 40,
        "pad_token_id": 0,
        "bos_token_id": 2,
        "eos_token_id": 3,
        "cls_token_id": 2,
        "sep_token_id": 3,
        **THEIRS[name],
        **more,
    }
    return shaken(t.ModernBertForMaskedLM(t.ModernBertConfig(vocab_size=WORDS, **shape)))


def ask_theirs(model, ids, kept, **more):
    return model(input_ids=ids, attention_mask=kept, output_hidden_states=True, **more)


@pytest.fixture(params=THEIRS)
def pair(request, tmp_path):
    """Their model and ours that was read from its folder."""
    model = theirs_of(request.param)
    model.save_pretrained(tmp_path / "hub")
    return model, ours_of(tmp_path / "hub")


def test_hidden_states_and_scores_are_equal(pair):
    theirs, ours = pair
    ids, positions, kept = sentence()
    with torch.no_grad():
        there = ask_theirs(theirs, ids, kept)
        body = theirs.model(input_ids=ids, attention_mask=kept).last_hidden_state
        found = ours.model(ids, positions, kept)
        scores = ours.head(found)
    seen = kept.bool()
    assert close(found[seen], body[seen], 1e-5)
    assert close(scores[seen], there.logits[seen], 1e-5)


def test_without_a_mask_they_are_equal(pair):
    theirs, ours = pair
    ids, positions, _ = sentence()
    with torch.no_grad():
        assert close(ours.head(ours.model(ids, positions)), theirs(input_ids=ids).logits, 1e-5)


def test_losses_and_gradients_are_equal(pair):
    theirs, ours = pair
    ids, positions, kept = sentence()
    asked = kept.bool() & (torch.rand(ids.shape, generator=torch.Generator().manual_seed(2)) < 0.4)
    loss = ask_theirs(theirs.train(), ids, kept, labels=torch.where(asked, ids, -100)).loss * asked.sum()
    loss.backward()
    [mine] = ours.train()(masked_batch(ids, positions, kept, asked)).values()
    mine.backward()
    assert float(mine.detach()) == pytest.approx(float(loss.detach()), rel=1e-5)
    grads = {k: p.grad for k, p in own_tensors(ours).items()}
    there = {k: p.grad for k, p in theirs.named_parameters()}
    largest = max(float(g.abs().max()) for g in there.values())
    made = weights.to_foreign(grads, ours.model_settings.names())
    assert made.keys() == there.keys()
    for name, grad in made.items():
        room = 1e-4 * max(float(there[name].abs().max()), 1e-3 * largest)
        assert (grad - there[name]).abs().max() <= room, name


OURS = {
    "plain": ModernBert(width=32, layers=5, heads=2, inner=48, positions=40),
    "narrow": ModernBert(width=32, layers=4, heads=4, inner=24, positions=40, every=2, window=6, epsilon=1e-3),
    "other": ModernBert(
        width=24,
        layers=3,
        heads=3,
        inner=20,
        positions=24,
        every=1,
        theta=800.0,
        local_theta=70.0,
        initializer_std=0.05,
    ),
    "beyond": ModernBert(width=24, layers=2, heads=2, positions=30, every=5, window=5, inner_dropout=0.2),
}


@pytest.mark.parametrize("name", OURS)
def test_what_we_made_is_equal_there_and_comes_back(name, tmp_path):
    import transformers as t

    ours = shaken(masked(OURS[name]))
    folder = hub_folder(ours, tmp_path / "hub")
    theirs, report = t.AutoModelForMaskedLM.from_pretrained(folder, output_loading_info=True)
    assert not any(report.values()), report
    ids, positions, kept = sentence()
    with torch.no_grad():
        there = ask_theirs(theirs.eval(), ids, kept).logits
        here = ours.head(ours.model(ids, positions, kept))
    assert close(here[kept.bool()], there[kept.bool()], 1e-5)
    theirs.save_pretrained(tmp_path / "again")
    assert foreign.settings(tmp_path / "again") == OURS[name]
    back = state(ours_of(tmp_path / "again"))
    assert all(torch.equal(back[k], v) for k, v in state(ours).items())


# what a token may see

SEEN = ModernBert(width=32, layers=5, heads=2, inner=48, positions=40, window=6)


def test_packed_documents_equal_each_alone():
    ids, positions, documents = packed()
    together, start = hidden(SEEN, ids, positions, documents), 0
    for size in LENGTHS:
        part = slice(start, start + size)
        alone = hidden(SEEN, ids[:, part], positions[:, part])
        assert (together[:, part] - alone).abs().max() < 1e-6 * max(1, float(alone.abs().max()))
        start += size


def test_padding_changes_nothing():
    ids, positions, documents = packed()
    with_other_padding, cut = ids.clone(), sum(LENGTHS)
    with_other_padding[:, cut:] = 0
    one = hidden(SEEN, ids, positions, documents)
    assert torch.isfinite(one).all()
    other = hidden(SEEN, with_other_padding, positions, documents)
    assert torch.equal(one[documents > 0], other[documents > 0])
    short = hidden(SEEN, ids[:, :cut], positions[:, :cut], documents[:, :cut])
    assert close(one[:, :cut], short, 1e-6)


def test_the_order_of_rows_changes_nothing():
    ids, positions, documents = packed(rows=4)
    order = torch.tensor([2, 0, 3, 1])
    one = hidden(SEEN, ids, positions, documents)
    assert close(hidden(SEEN, ids[order], positions[order], documents[order]), one[order], 1e-6)


def moved_by(settings, place, *inputs, quiet=0):
    """Which places' hidden states change with one token; the first blocks' attention may be kept quiet."""
    ids, changed = inputs[0], inputs[0].clone()
    changed[:, place] = (changed[:, place] + 1) % WORDS
    torch.manual_seed(8)
    network = shaken(settings.build(WORDS))
    with torch.no_grad():
        for block in network.blocks[:quiet]:
            block.attention.mix.weight.zero_()
        return (network(ids, *inputs[1:]) - network(changed, *inputs[1:])).abs().amax(-1) > 0


def test_no_token_sees_another_document():
    ids, positions, documents = packed()
    moved = moved_by(SEEN, LENGTHS[0] + 4, ids, positions, documents)
    assert not moved[documents != 2].any()
    assert moved[documents == 2].all()


@pytest.mark.parametrize(("window", "reach"), [(6, 3), (7, 3), (2, 1), (1, 0), (28, 14), (200, 100)])
def test_a_local_layer_sees_half_a_window_to_each_side(window, reach):
    settings = ModernBert(width=32, layers=2, heads=2, inner=48, every=2, window=window)
    ids, positions, kept = sentence(length=30)
    far = (torch.arange(30) - 14).abs() > reach
    for documents in (None, torch.ones_like(kept)):
        assert torch.equal(moved_by(settings, 14, ids, positions, documents, quiet=1), ~far.repeat(3, 1))
    assert moved_by(settings, 14, ids, positions, None).all()


def test_local_layers_in_packed_rows_see_neither_far_nor_other_documents():
    settings = ModernBert(width=32, layers=2, heads=2, inner=48, every=2, window=6)
    ids, positions, documents = packed()
    place = LENGTHS[0] + 1
    near = ((torch.arange(ids.shape[1]) - place).abs() <= 3) & (documents == 2)
    assert torch.equal(moved_by(settings, place, ids, positions, documents, quiet=1), near)


def test_positions_are_relative():
    """All a token knows is how far the others are: the same text further on in a row is the same."""
    ids, positions, kept = sentence()
    assert close(hidden(SEEN, ids, positions + 20, kept)[0], hidden(SEEN, ids, positions, kept)[0], 2e-5)
    assert not close(hidden(SEEN, ids, positions * 2, kept)[0], hidden(SEEN, ids, positions, kept)[0], 1e-3)


def test_angles_stay_exact_in_long_rows_of_16_bit_networks():
    positions = torch.tensor([[0, 1, 4095, 8191]])
    with torch.autocast("cpu", torch.bfloat16):
        cosine, sine = modern.angles(positions, 10_000.0, 8)
    assert cosine.dtype == sine.dtype == torch.float32
    exact = positions[..., None].double() * 10_000.0 ** -(torch.arange(0, 8, 2).double() / 8)
    assert (cosine[..., :4] - exact.cos()).abs().max() < 1e-3
    assert torch.equal(cosine[..., :4], cosine[..., 4:])


# sizes

PUBLISHED = {"base": (149_014_272, 149_655_232), "large": (394_781_696, 395_881_664)}  # 50,368 pieces; with the head


def sized(size):
    return decoding.decode(ModernBert, {"size": size}, "test")


@pytest.mark.parametrize("size", PUBLISHED)
def test_named_sizes_are_the_published_ones(size):
    settings = sized(size)
    with torch.device("meta"):
        network = settings.build(50_368)
        head = settings.token_head(network)
    assert (count(network), count(network, head)) == PUBLISHED[size]
    assert settings.width // settings.heads == 64
    assert set(ModernBert.SIZES) - {"small"} == set(PUBLISHED)


@pytest.mark.parametrize("length", [3, 16, 40])
@pytest.mark.parametrize("name", OURS)
def test_flops_are_counted_from_the_matrices(name, length):
    """2 x multiply-adds of every linear layer, and of queries with the keys they see and weights with values."""
    settings = OURS[name]
    network = settings.build(WORDS)
    linear = sum(m.weight.numel() for m in network.modules() if isinstance(m, torch.nn.Linear))
    near = nearby(torch.ones(1, 1, length, length).bool(), settings.reach, torch.zeros(1, length))
    pairs = sum(float(near.sum()) / length if settings.local(n) else length for n in range(settings.layers))
    assert settings.flops(length) == pytest.approx(2 * (linear + 2 * pairs * settings.width), rel=1e-12)
    head = settings.token_head(network)
    assert settings.head_flops(WORDS) == 2 * (head.dense.weight.numel() + WORDS * settings.width)


def test_fresh_weights_are_spread_as_theirs():
    import transformers as t

    torch.manual_seed(3)
    ours = masked(ModernBert(width=256, layers=3, heads=4))
    shape = {"hidden_size": 256, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 384}
    theirs = dict(
        t.ModernBertForMaskedLM(t.ModernBertConfig(vocab_size=WORDS, pad_token_id=0, **shape)).named_parameters()
    )
    made = weights.to_foreign(state(ours), ours.model_settings.names())
    for name, weight in made.items():
        if weight.ndim < 2:
            assert torch.equal(weight, theirs[name]), name
            continue
        assert float(weight.detach().std()) == pytest.approx(float(theirs[name].detach().std()), rel=0.03), name
        small = name.endswith(("Wo.weight", "dense.weight"))
        assert weight.abs().max() <= 0.04 / (math.sqrt(6) if small else 1) + 1e-9, name


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"heads": 5}, "heads: found 5; wanted a divisor of the width 32"),
        ({"heads": 32}, "heads: found 32; wanted a divisor of half the width 32"),
        ({"every": 0}, "every: found 0; wanted 1 or more"),
        ({"window": 0}, "window: found 0; wanted 1 or more"),
        ({"theta": 0.0}, "theta: found 0.0; wanted 1 or more"),
        ({"initializer_std": 0.0}, "initializer_std: found 0.0; wanted above 0"),
        ({"inner_dropout": 1.0}, "inner_dropout: found 1.0; wanted 0 to below 1"),
    ],
)
def test_settings_that_cannot_be_are_refused(change, said):
    with pytest.raises(ValueError, match=said):
        ModernBert(**{"width": 32, "heads": 2, **change})


def test_smaller_is_the_same_family():
    small = sized("base").smaller(64, 2)
    assert (small.width, small.layers, small.heads, small.inner) == (64, 2, 1, 96)
    assert (small.every, small.window, small.theta) == (3, 128, 160_000.0)


# what people's folders hold

OLD = {  # as answerdotai/ModernBERT-base says it, written by transformers 4.47
    "architectures": ["ModernBertForMaskedLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 50281,
    "classifier_activation": "gelu",
    "classifier_bias": False,
    "classifier_dropout": 0.0,
    "classifier_pooling": "mean",
    "cls_token_id": 50281,
    "decoder_bias": True,
    "deterministic_flash_attn": False,
    "embedding_dropout": 0.0,
    "eos_token_id": 50282,
    "global_attn_every_n_layers": 3,
    "global_rope_theta": 160000.0,
    "gradient_checkpointing": False,
    "hidden_activation": "gelu",
    "hidden_size": 768,
    "initializer_cutoff_factor": 2.0,
    "initializer_range": 0.02,
    "intermediate_size": 1152,
    "layer_norm_eps": 1e-05,
    "local_attention": 128,
    "local_rope_theta": 10000.0,
    "max_position_embeddings": 8192,
    "mlp_bias": False,
    "mlp_dropout": 0.0,
    "model_type": "modernbert",
    "norm_bias": False,
    "norm_eps": 1e-05,
    "num_attention_heads": 12,
    "num_hidden_layers": 22,
    "pad_token_id": 50283,
    "position_embedding_type": "absolute",
    "sep_token_id": 50282,
    "tie_word_embeddings": True,
    "torch_dtype": "float32",
    "transformers_version": "4.47.0.dev0",
    "vocab_size": 50368,
}


def read(folder, table):
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(table))
    return foreign.settings(folder)


def test_configs_of_transformers_4_are_read(tmp_path):
    assert read(tmp_path / "hub", OLD) == sized("base")
    assert read(tmp_path / "hub", {**OLD, "local_rope_theta": None}).local_theta == 160_000.0
    other = {**OLD, "global_attn_every_n_layers": 2, "global_rope_theta": 5e4, "local_rope_theta": 1e3}
    found = read(tmp_path / "hub", other)
    assert (found.every, found.theta, found.local_theta) == (2, 5e4, 1e3)


def test_what_we_write_means_the_same_to_transformers_4_and_5():
    """The keys of either alone give transformers 5 the same network."""
    import transformers as t

    written = OURS["narrow"].hugging_face(WORDS, Signs())
    new = {"layer_types", "rope_parameters"}
    old = {"global_attn_every_n_layers", "global_rope_theta", "local_rope_theta"}
    asked = ("layer_types", "rope_parameters", "sliding_window")
    configs = [t.ModernBertConfig(**{k: v for k, v in written.items() if k not in left}) for left in (set(), new, old)]
    first, *rest = [[getattr(config, key) for key in asked] for config in configs]
    assert first == rest[0] == rest[1]


def test_old_folders_hold_the_same_weights(tmp_path):
    theirs_of("window").save_pretrained(tmp_path / "hub")
    today, path = state(ours_of(tmp_path / "hub")), tmp_path / "hub" / "config.json"
    text = json.loads(path.read_text())
    kept = {k: v for k, v in text.items() if k not in ("layer_types", "rope_parameters")}
    path.write_text(json.dumps({**kept, "global_attn_every_n_layers": 3, "global_rope_theta": 160000.0}))
    old = ours_of(tmp_path / "hub")
    assert old.model_settings == foreign.settings(tmp_path / "hub")
    assert all(torch.equal(today[k], v) for k, v in state(old).items())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"hidden_activation": "mish"}, "hidden_activation: found mish; wanted gelu"),
        ({"classifier_activation": "gelu_10"}, "classifier_activation: found gelu_10; wanted gelu"),
        ({"norm_bias": 1}, "norm_bias: found 1; wanted true or false"),
        ({"local_attention": 0}, "local_attention: found 0; wanted a whole number, 1 or more"),
        ({"rope_scaling": {"factor": 2.0}}, "rope_scaling: found .*; wanted None"),
        (
            {"rope_parameters": {"full_attention": {"rope_type": "yarn"}}},
            "rope_scaling.factor: found None; wanted a number",
        ),
        ({"layer_types": ["chunked_attention"] * 22}, "layer_types: found .*; wanted full_attention or sliding_att"),
        ({"layer_types": ["full_attention"] * 3}, "layer_types: found .*; wanted .* for each of 22 layers"),
        ({"num_attention_heads": 7}, "num_attention_heads: found 7; wanted a divisor of the width 768"),
    ],
)
def test_a_config_that_asks_for_more_is_refused(tmp_path, change, said):
    with pytest.raises(DataError, match=said):
        read(tmp_path / "hub", {**OLD, **change})


def test_missing_and_left_over_tensors_are_named(tmp_path):
    theirs_of("plain").save_pretrained(tmp_path)
    held = weights.read(tmp_path / "model.safetensors")
    changed = {k.replace("layers.1.attn_norm.weight", "layers.0.attn_norm.weight"): v for k, v in held.items()}
    weights.write(tmp_path / "model.safetensors", changed)
    with pytest.raises(
        DataError, match=r"missing model.layers.1.attn_norm.weight; unexpected model.layers.0.attn_norm"
    ):
        ours_of(tmp_path)


# on several devices


def test_a_split_of_rows_is_a_split_of_whole_pairs():
    """Half of the gated rows, with half of the columns that come behind, give half of the sum."""
    torch.manual_seed(5)
    block = shaken(modern.ModernBlock(ModernBert(width=32, heads=4, inner=40)))
    inside = torch.randn(2, 3, 32)

    def sums(up, down):
        gated, gate = (inside @ up.T).unflatten(-1, (-1, 2, block.run)).unbind(-2)
        return (torch.nn.functional.gelu(gated) * gate).flatten(-2) @ down.T

    whole = sums(block.up.weight, block.down.weight)
    for ranks in (2, 4):
        parts = zip(block.up.weight.chunk(ranks, 0), block.down.weight.chunk(ranks, 1), strict=True)
        assert close(sum(sums(*part) for part in parts), whole, 1e-5)


# decoders


def decoder_of(name, **more):
    import transformers as t

    torch.manual_seed(sum(map(ord, name)))
    shape = {
        "hidden_size": 32,
        "num_attention_heads": 2,
        "intermediate_size": 48,
        "num_hidden_layers": 5,
        "max_position_embeddings": 40,
        "pad_token_id": 0,
        "bos_token_id": 2,
        "eos_token_id": 3,
        "cls_token_id": 2,
        "sep_token_id": 3,
        **THEIRS[name],
        **more,
    }
    return shaken(t.ModernBertDecoderForCausalLM(t.ModernBertDecoderConfig(vocab_size=WORDS, **shape)))


BIASED = dict.fromkeys(("norm_bias", "attention_bias", "mlp_bias", "classifier_bias"), True)


@pytest.mark.parametrize("name", [name for name in THEIRS if name != "own place"])
def test_a_decoder_equals_its_class_both_ways(name, tmp_path):
    """Far and near: 17 tokens, of which a local layer sees a few before each."""
    theirs = decoder_of(name, **(BIASED if name == "heads" else {}))
    theirs.save_pretrained(tmp_path / "hub")
    found = foreign.settings(tmp_path / "hub")
    assert found.causal
    assert found.capabilities.causal
    ours = clm.Clm().build(found, Signs()).eval()
    foreign.load_into(ours, tmp_path / "hub", Signs())
    ids, positions, kept = sentence()
    with torch.no_grad():
        wanted = theirs(input_ids=ids).logits
        assert close(ours.head(ours.model(ids, positions)), wanted, 1e-5)
        packed_alike = ours.head(ours.model(ids, positions, kept))[kept.bool()]
        assert close(packed_alike, theirs(input_ids=ids, attention_mask=kept).logits[kept.bool()], 1e-5)
        cache = Cache(found.layers)
        parts = [
            ours.head(ours.model(ids[:, at], positions[:, at], cache=cache))
            for at in (slice(0, 9), slice(9, 10), slice(10, 17))
        ]
        assert close(torch.cat(parts, 1), wanted, 1e-5)
    again = type(theirs).from_pretrained(hub_folder(ours, tmp_path / "again")).eval()
    with torch.no_grad():
        assert torch.equal(again(input_ids=ids).logits, wanted)


def test_a_decoder_of_the_narrowest_window_sees_itself():
    assert ModernBert.from_hugging_face({**decoder_of("plain").config.to_dict(), "local_attention": 2}).reach == 0


def test_a_network_that_reads_both_ways_can_be_told_to_go_on():
    """Rows read causally are those of a decoder with the same weights; so is what is read bit by bit."""
    ids, positions, documents = packed()
    both = ModernBert(width=32, layers=4, heads=2, positions=40, window=6, initializer_std=0.3)
    rows = torch.ones(len(ids), dtype=torch.bool)
    torch.manual_seed(8)
    network = shaken(both.build(WORDS))
    decoder = replace(both, causal=True).build(WORDS).eval()
    decoder.load_state_dict(network.state_dict())
    with torch.no_grad():
        wanted = decoder(ids, positions, documents)
        assert close(network(ids, positions, documents, causal=rows), wanted, 1e-6)
        seen = network(ids, positions, documents, causal=~rows)
        assert close(seen, network(ids, positions, documents), 1e-6)
        assert not close(seen, wanted, 1e-2)
        cache, line = Cache(4), torch.arange(20)[None].expand(2, -1)
        parts = [network(ids[:, at], line[:, at], cache=cache) for at in (slice(0, 5), slice(5, 6), slice(6, 20))]
        assert close(torch.cat(parts, 1), decoder(ids, line), 1e-5)


def test_a_decoder_costs_what_it_looks_at():
    both = ModernBert(width=32, layers=2, heads=2, inner=40, positions=40, window=4)
    linear = 2 * (4 * 32**2 + 3 * 32 * 40)
    pairs = (10 + 1) / 2 + (1 + 2 + 3 * 8) / 10  # of each token: all before it; itself and two before it
    assert replace(both, causal=True).flops(10) == pytest.approx(2.0 * (linear + 2 * pairs * 32))


def test_fresh_weights_are_the_same_by_every_torch() -> None:
    """`trunc_normal_` of torch 2.7 draws others than 2.13: here it is what `normal_` draws, but for far ones."""
    torch.manual_seed(5)
    drawn = torch.empty(200, 30).normal_(0.0, 0.02)
    torch.manual_seed(5)
    weight = torch.empty(200, 30)
    modern._fresh(weight, 0.02)
    near = drawn.abs() <= 0.04
    assert 0.03 < 1 - near.double().mean() < 0.06
    assert torch.equal(weight[near], drawn[near])
    assert weight.abs().max() <= 0.04
    assert not torch.equal(weight, drawn)
