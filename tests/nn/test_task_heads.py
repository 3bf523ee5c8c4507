"""Heads of tasks: equal to their classes in transformers both ways, and what of them begins as pretrained."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import torch

from kit.families import WORDS, Signs, close, hub_folder, sentence, shaken, state
from ordsmed.base.errors import DataError
from ordsmed.base.menu import choice, load
from ordsmed.learn.objective import Network
from ordsmed.learn.objectives import clm, mlm, mlm_nsp
from ordsmed.nn.dropout import Dropout
from ordsmed.nn.model import TASK_CLASSES, Family
from ordsmed.weights import foreign, weights

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
LABELS = ("no", "maybe", "yes")
SHAPE = {"width": 32, "layers": 2, "heads": 2, "inner": 48, "positions": 40, "attention_dropout": 0.0}
FAMILIES = {
    family: load("models", family)(**SHAPE, **more)
    for family, more in {
        "bert": {},
        "megatron_bert": {},
        "roberta": {},
        "electra": {"embedding": 16},
        "gpt2": {},
        "modern": {"window": 6},
    }.items()
}
CASES = [(family, kind) for family in FAMILIES for kind in TASK_CLASSES]


def task(settings, kind, *, number=False):
    """A network with a task's head, as an objective of one."""
    labels = () if number or kind == "span" else LABELS
    modules = {"model": settings.build(WORDS), kind: settings.task_head(kind, len(labels) or 2 - number)}
    network = Network(settings, modules, labels, number)
    return SimpleNamespace(networks=lambda: {"": network}, network=network, **modules)


def signs(settings):
    return Signs(pad=max(getattr(settings, "offset", 1) - 1, 0))


def ask_ours(network, kind):
    """What the head says of texts or their tokens; [E, ...]."""
    model, head = (m.eval() for m in network.modules.values())
    ids, positions, kept = sentence()
    hidden = model(ids, positions, kept)
    if kind == "classify":
        places = kept.sum(1) - 1 if network.settings.capabilities.causal else torch.zeros(len(ids), dtype=torch.int64)
        return head(hidden[torch.arange(len(ids)), places])
    return head(hidden)[kept.bool()]


def ask_theirs(model, kind):
    ids, _, kept = sentence()
    padded = ids.masked_fill(kept == 0, model.config.pad_token_id)
    said = model.eval()(input_ids=padded, attention_mask=kept)
    scores = torch.stack([said.start_logits, said.end_logits], -1) if kind == "span" else said.logits
    return scores if kind == "classify" else scores[kept.bool()]


def auto(kind):
    import transformers as t

    return getattr(t, f"AutoModel{TASK_CLASSES[kind]}")


def load_theirs(kind, folder):
    model, report = auto(kind).from_pretrained(folder, output_loading_info=True)
    return model, {what: set(names) for what, names in report.items() if names}


@pytest.fixture(
    scope="module",
    params=[*((*case, False) for case in CASES), ("bert", "classify", True), ("gpt2", "classify", True)],
    ids=str,
)
def both(request, tmp_path_factory):
    """Ours with every number random, and theirs that was read from its folder."""
    family, kind, number = request.param
    torch.manual_seed(7)
    ours = task(FAMILIES[family], kind, number=number)
    for module in ours.network.modules.values():
        shaken(module)
    theirs, report = load_theirs(kind, hub_folder(ours, tmp_path_factory.mktemp("both") / "hub"))
    assert not report
    return kind, ours, theirs


@torch.no_grad()
def test_scores_are_equal_there(both):
    kind, ours, theirs = both
    found = ask_ours(ours.network, kind)
    assert found.shape[-1] == (1 if ours.network.number else len(ours.network.labels) or 2)
    assert close(found, ask_theirs(theirs, kind), 1e-5)


@torch.no_grad()
def test_dropouts_stand_where_theirs_do(both, monkeypatch):
    """Each scales by its rate instead of drawing: the scores are those there, unless one is missing."""
    kind, ours, theirs = both
    monkeypatch.setattr(Dropout, "forward", lambda self, x: x * (1 + self.rate))
    monkeypatch.setattr(Dropout, "add", lambda self, x, residual: residual + x * (1 + self.rate))
    monkeypatch.setattr(torch.nn.Dropout, "forward", lambda self, x: x * (1 + self.p))
    assert close(ask_ours(ours.network, kind), ask_theirs(theirs, kind), 1e-5)


def test_what_they_save_comes_back(both, tmp_path):
    kind, ours, theirs = both
    theirs.save_pretrained(tmp_path)
    assert foreign.task_of(tmp_path) == (kind, ours.network.labels, ours.network.number)
    again = task(foreign.settings(tmp_path), kind, number=ours.network.number)
    foreign.load_into(again, tmp_path, Signs())
    found, wanted = again.network.tensors(), ours.network.tensors()
    assert all(torch.equal(found[name], tensor) for name, tensor in wanted.items())
    assert found.keys() - wanted.keys() <= {"model.types.weight"}, "RoBERTa's class has a row of zeros"


def test_their_config_tells_the_labels(both):
    kind, ours, theirs = both
    labels = dict(enumerate(ours.network.labels)) or {0: "LABEL_0"}
    if kind != "span":
        assert theirs.config.id2label == labels
        assert theirs.config.label2id == {label: n for n, label in labels.items()}
    told = {"classify": "regression" if ours.network.number else "single_label_classification"}
    assert theirs.config.problem_type == told.get(kind)
    assert theirs.config.pad_token_id == signs(ours.network.settings).pad


@pytest.mark.parametrize(("family", "kind"), CASES)
def test_fresh_weights_are_as_theirs(family, kind):
    """The same spreads, each tensor for itself; biases are 0 and norms 1."""
    import transformers as t

    torch.manual_seed(5)
    settings = load("models", family)(**{**SHAPE, "width": 64, "layers": 8}, initializer_std=0.05)
    outputs = 2 if kind == "span" else 60
    head = settings.task_head(kind, outputs)
    described = {**settings.hugging_face(WORDS, signs(settings)), "num_labels": outputs}
    theirs = getattr(t, settings.architectures[kind])(t.AutoConfig.for_model(settings.model_type, **described))
    fresh = theirs.state_dict()
    for name, tensor in head.state_dict().items():
        there = fresh[settings.names().table[f"{kind}.{name}"]]
        assert tensor.shape == there.shape
        assert float(tensor.std()) == pytest.approx(float(there.std()), rel=0.25), name
        assert float(tensor.abs().max()) == pytest.approx(float(there.abs().max()), rel=0.4), name


def pretrained(family, *, pairs=True):
    """A network that learned words, and of a BERT pairs of segments."""
    settings = FAMILIES[family]
    has_pairs = pairs and settings.capabilities.pairs
    chosen = clm if settings.capabilities.causal else mlm_nsp if has_pairs else mlm
    return shaken(choice(chosen)().build(settings, Signs()))


@pytest.mark.parametrize(("family", "kind"), CASES)
def test_a_task_begins_with_what_theirs_begins_with(family, kind, tmp_path):
    """What is fresh there is fresh here, and the rest is equal; from a folder and from a run of ours alike."""
    torch.manual_seed(6)
    start = pretrained(family)
    theirs, report = load_theirs(kind, hub_folder(start, tmp_path / "hub"))
    ours = task(FAMILIES[family], kind)
    fresh = foreign.begin(ours.network, tmp_path / "hub", Signs())
    table, made = FAMILIES[family].names().table, weights.to_foreign(ours.network.tensors(), FAMILIES[family].names())
    assert {table[name] for name in fresh} == report["missing_keys"]
    there = theirs.state_dict()
    assert all(torch.equal(tensor, there[name]) for name, tensor in made.items() if name not in report["missing_keys"])
    learned = ours.network.tensors()
    for held in (state(start), learned):  # a run that learned words, and one that learned such a task
        own = task(FAMILIES[family], kind).network.tensors()
        assert weights.adopt(own, held, FAMILIES[family].begins, "here") == fresh
        assert all(torch.equal(own[name], tensor) for name, tensor in learned.items() if name not in fresh)


def test_a_bert_without_a_pooler_begins_a_fresh_one(tmp_path):
    start, ours = pretrained("bert", pairs=False), task(FAMILIES["bert"], "classify")
    head = state(ours.classify)
    fresh = foreign.begin(ours.network, hub_folder(start, tmp_path / "hub"), Signs())
    assert fresh == [f"classify.{name}" for name in head]
    assert all(torch.equal(tensor, head[name]) for name, tensor in state(ours.classify).items())
    assert torch.equal(ours.model.words.weight, start.model.words.weight)


def test_a_network_that_is_not_whole_is_refused(tmp_path):
    folder = hub_folder(pretrained("gpt2"), tmp_path / "hub")
    held = weights.read(folder / "model.safetensors")
    weights.write(folder / "model.safetensors", {k: v for k, v in held.items() if k != "transformer.h.1.ln_2.bias"})
    ours = task(FAMILIES["gpt2"], "tag")
    with pytest.raises(DataError, match=r"missing transformer\.h\.1\.ln_2\.bias; unexpected none"):
        foreign.begin(ours.network, folder, Signs())
    own = ours.network.tensors()
    held = {k: v for k, v in own.items() if k != "model.norm.bias"}
    with pytest.raises(DataError, match=r"missing model\.norm\.bias; unexpected none"):
        weights.adopt(own, held, {}, "here")


def test_a_fine_tuned_network_is_not_taken_for_one_that_tells_words(tmp_path):
    folder = hub_folder(task(FAMILIES["gpt2"], "classify"), tmp_path / "hub")
    with pytest.raises(DataError, match=r"unexpected score\.weight"):
        foreign.load_into(pretrained("gpt2"), folder, Signs())


def test_a_family_without_heads_of_its_own_has_a_plain_one():
    class Plain(Family):
        width, dropout = 8, 0.5

    head = Plain().task_head("tag", 3)
    assert head(torch.ones(2, 5, 8)).shape == (2, 5, 3)
    assert [m.rate for m in head if isinstance(m, Dropout)] == [0.5]


# what config.json says of a task

NAMED = "BertForSequenceClassification"


def told(folder, **config):
    (folder / "config.json").write_text(json.dumps({"architectures": [NAMED], **config}))
    return foreign.task_of(folder)


@pytest.mark.parametrize(
    ("config", "found"),
    [
        ({"architectures": ["BertForMaskedLM"]}, None),
        ({"architectures": None}, None),
        ({}, ("classify", ("LABEL_0", "LABEL_1"), False)),
        ({"num_labels": 3}, ("classify", ("LABEL_0", "LABEL_1", "LABEL_2"), False)),
        (
            {"id2label": {str(n): f"c{n}" for n in (10, 2, *range(2), *range(3, 10))}},
            ("classify", tuple(f"c{n}" for n in range(11)), False),
        ),
        ({"id2label": {"0": "score"}, "problem_type": None}, ("classify", (), True)),
        ({"id2label": {"0": "O"}, "architectures": ["ElectraForTokenClassification"]}, ("tag", ("O",), False)),
        ({"id2label": {"0": "O"}, "architectures": ["GPT2ForQuestionAnswering"]}, ("span", (), False)),
    ],
)
def test_the_task_of_a_folder(tmp_path, config, found):
    assert told(tmp_path, **config) == found


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"problem_type": "multi_label_classification"}, "problem_type: found multi_label_classification; wanted None"),
        ({"problem_type": "regression"}, "problem_type: found regression; wanted None or single_label"),
        ({"id2label": {"1": "a", "2": "b"}}, r"id2label: found the numbers \[1, 2\]; wanted all from 0 on"),
        ({"id2label": {"a": "0"}}, "id2label: found the number a; wanted whole numbers from 0 on"),
    ],
)
def test_a_task_that_is_none_of_ours_is_refused(tmp_path, config, said):
    with pytest.raises(DataError, match=said):
        told(tmp_path, **config)
