"""Recipes: every mistake in one line with place and near name; what is written is read back."""

from __future__ import annotations

import copy
import math
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordsmed.base import menu, run, settings
from ordsmed.base.errors import RecipeError, nearest
from ordsmed.base.menu import Menu, choice
from ordsmed.corpus.pipeline import Corpus
from ordsmed.data.encode import Encoding
from ordsmed.data.tokenizer_training import TokenizerTraining
from ordsmed.learn.objectives import clm, mlm
from ordsmed.learn.optimizers import adamw
from ordsmed.learn.phases import Phase
from ordsmed.learn.schedules import Schedule
from ordsmed.measure.bench.bench import Bench
from ordsmed.nn.models import bert, gpt2
from ordsmed.train.finetune.recipe import Finetuning
from ordsmed.train.mesh.layout import Layout
from ordsmed.train.pretrain.recipe import Pretraining

GOOD = """
data = "somewhere"
[model]
kind = "bert"
size = "mini"
[objective]
kind = "mlm"
[[phase]]
steps = 10
length = 128
batch = 4
learning_rate = 1e-3
[[phase]]
steps = 5
length = 256
batch = 2
learning_rate = 1e-4
schedule = "cosine"
"""


def decoded(*words: str, text: str = GOOD) -> Pretraining:
    return settings.decode(Pretraining, settings.override(tomllib.loads(text), words), "r.toml")


def complaint(*words: str, text: str = GOOD) -> str:
    with pytest.raises(RecipeError) as error:
        decoded(*words, text=text)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_good_one() -> None:
    recipe = decoded()
    assert (recipe.model.width, recipe.model.layers, recipe.model.heads) == (256, 4, 4)
    assert [p.length for p in recipe.phase] == [128, 256]
    assert [p.schedule.kind for p in recipe.phase] == ["linear", "cosine"]
    assert recipe.optimizer == adamw.AdamW()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["phase[2].lenght=3"], "r.toml: phase[2].lenght: unknown setting; did you mean `phase.length`?"),
        (["model.theta=3.0"], "r.toml: model.theta: unknown setting; `theta` is a setting of modern"),
        (["modle=3"], "r.toml: modle: unknown setting; did you mean `model`?"),
        (["model.widht=3"], "r.toml: model.widht: unknown setting; did you mean `model.width`?"),
        (
            ["phase[2].schedule.ende=0.5"],
            "r.toml: phase[2].schedule.ende: unknown setting; did you mean `phase.schedule.end`?",
        ),
        (["layout.qqqq=1"], "r.toml: layout.qqqq: unknown setting; there are: background, compile, deterministic"),
        (["phase[1].steps=many"], "r.toml: phase[1].steps: found 'many'; wanted a whole number"),
        (["phase[1].steps=1.5"], "r.toml: phase[1].steps: found 1.5; wanted a whole number"),
        (["phase[1].steps=true"], "r.toml: phase[1].steps: found true; wanted a whole number"),
        (["phase[1].learning_rate=fast"], "r.toml: phase[1].learning_rate: found 'fast'; wanted a number"),
        (["phase.learning_rate=[true]"], "r.toml: phase[1].learning_rate: found [true]; wanted a number"),
        (["layout.compile=1"], "r.toml: layout.compile: found 1; wanted true or false"),
        (["out=3"], "r.toml: out: found 3; wanted a text"),
        (["data={a='x'}"], 'r.toml: data: found { a = "x" }; wanted a text or a list of texts or a table of numbers'),
        (["optimizer.betas=[1]"], "r.toml: optimizer.betas: found [1]; wanted a list of two numbers"),
        (
            ["objective.mask_prob=much"],
            "r.toml: objective.mask_prob: found 'much'; wanted a number or a table of start, end",
        ),
        (
            ["revisions=pwers"],
            "r.toml: revisions: found 'pwers'; wanted a whole number or a list of whole numbers or po",
        ),
        (
            ["phase.schedule=cosin"],
            "r.toml: phase[1].schedule.kind: found 'cosin'; wanted one of constant, linear, polyn",
        ),
        (["seed=[1]"], "r.toml: seed: found [1]; wanted a whole number"),
        (["phase=7"], "r.toml: phase: found 7; wanted one or more tables, written [[phase]]"),
        (["phase=[]"], "r.toml: phase: missing; wanted one or more [[phase]]"),
        (["phase=[3]"], "r.toml: phase[1]: found 3; wanted a table of steps, length"),
        (["layout=3"], "r.toml: layout: found 3; wanted a table of replicate"),
        (["layout.precision=fp8"], "r.toml: layout.precision: found 'fp8'; wanted"),
        (["model.size=minni"], "r.toml: model.size: found 'minni'; did you mean `mini`?"),
        (["model.kind=brt"], "r.toml: model.kind: `brt` is not in models; did you mean `bert`?"),
        (["model.kind=no.such.lab"], "r.toml: model.kind: `no.such.lab`: No module named 'no'; wanted a module"),
        (["model.kind=json.decoder"], "r.toml: model.kind: `json.decoder` has no such class"),
        (["model=3"], "r.toml: model.kind: missing; wanted one of: " + ", ".join(menu.entries("models"))),
        (["objective={mask_prob=0.2}"], "r.toml: objective.kind: missing; wanted one of: "),
        (['model={kind="bert", heads=5, width=64}'], "r.toml: model.heads: found 5; wanted a divisor of the width 64"),
        (["phase[2].learning_rate=nan"], "r.toml: phase[2].learning_rate: found nan; wanted a finite number above 0"),
        (["keep=0"], "r.toml: keep: found 0; wanted 1 or more"),
    ],
)
def test_one_line_with_key_and_remedy(words: list[str], said: str) -> None:
    assert complaint(*words).startswith(said)


@pytest.mark.parametrize(
    ("word", "near"),
    [
        ("phase.schedule=cosin", "cosine"),
        ("layout.precision=bf61", "bf16"),
        ("revisions=pwers", "powers"),
        ('layout.exact=["embedings"]', "embeddings"),
        ("objective.kind=mln", "mlm"),
        ("mask_prob=0.3", "objective.mask_prob"),  # a key of one other table leads there
        ("learning_rate=1", "phase.learning_rate"),
        ("rate=1", "phase.learning_rate` or `group.rate"),  # of several, to those the recipe has first
        ("lenght=3", "phase.length"),
        ("precison=fp16", "layout.precision"),
        ("phase.tensor=2", "layout.tensor"),
        ("model.initializer_stdd=3", "model.initializer_std"),
        ("phase.seed=2", "seed"),
    ],
)
def test_what_was_meant_is_named(word: str, near: str) -> None:
    assert complaint(word).endswith(f"; did you mean `{near}`?")


def test_one_phase_has_one_number() -> None:
    one = GOOD[: GOOD.rindex("[[phase]]")]
    said = "`phase.0.learning_rate=1`: found phase.0; wanted phase[1]; did you mean `phase[1].learning_rate`?"
    assert complaint("phase.0.learning_rate=1", text=one) == said


def test_a_setting_of_a_task_is_known_by_its_kind() -> None:
    table = {"init": "x", "task": {"kind": "classify", "train": "a.tsv"}, "class_weights": "balanced"}
    with pytest.raises(RecipeError, match=r"class_weights: unknown setting; did you mean `task.class_weights`\?$"):
        settings.decode(Finetuning, table, "r.toml")
    with pytest.raises(RecipeError, match=r"class_weights: unknown setting; there are"):
        settings.decode(Finetuning, {**table, "task": {"kind": "squad", "train": "a.json"}}, "r.toml")


def test_a_setting_of_a_choice_that_is_one_word() -> None:
    assert complaint("model=gpt2", "deep=true").endswith("did you mean `model.deep`?")


def test_a_long_list_of_names_is_cut() -> None:
    names = [f"name-{number:03}" for number in range(150)]
    assert nearest("zzz", names[:30]) == "there are: " + ", ".join(names[:30])
    told = nearest("zzz", names)
    assert told == f"there are: {', '.join(names[:10])} ... and 140 others"
    assert nearest("name-0777", names) == "did you mean `name-077`?"


def test_what_is_missing() -> None:
    assert (
        complaint(text=GOOD.replace('data = "somewhere"', ""))
        == "r.toml: data: missing; wanted a text or a list of texts or a table of numbers"
    )
    assert complaint(text=GOOD.replace("batch = 2", "")) == "r.toml: phase[2].batch: missing; wanted a whole number"
    without = GOOD.replace('[objective]\nkind = "mlm"', "")
    assert complaint(text=without) == "r.toml: objective: missing; wanted one of " + ", ".join(
        menu.entries("objectives")
    )
    assert complaint(text=GOOD.replace('kind = "bert"\nsize = "mini"', "")).startswith("r.toml: model.kind: missing")


def test_a_word_is_short_for_its_kind() -> None:
    recipe = decoded("model=gpt2", "objective=clm", "phase.schedule=wsd")
    assert isinstance(recipe.model, gpt2.Gpt2)
    assert isinstance(recipe.objective, clm.Clm)
    assert {p.schedule for p in recipe.phase} == {Schedule("wsd")}
    assert decoded("model=gpt2", "objective=clm", "model.width=128").model == gpt2.Gpt2(width=128)
    assert decoded("phase[2].schedule.end=0.1").phase[1].schedule == Schedule("cosine", end=0.1)


@pytest.mark.parametrize("family", [bert, gpt2])
def test_a_size_stands_for_its_numbers_and_others_win(family: Any) -> None:
    kind = family.__name__.rsplit(".")[-1]
    for size, numbers in choice(family).SIZES.items():
        found = decoded(f"model={kind}", f"model.size={size}", "model.dropout=0.0").model
        assert found == choice(family)(**numbers, dropout=0.0)
    assert decoded("model.layers=7").model == bert.Bert(**{**bert.Bert.SIZES["mini"], "layers": 7})


def test_overrides_reach_everywhere() -> None:
    words = [
        "phase[2].learning_rate=5e-5",
        "phase.batch=8",
        "layout.threads=2",
        "optimizer=adamw",
        "optimizer.decay=0.1",
        "data=nb",
    ]
    recipe = decoded(*words, "out=a=b")
    assert recipe.optimizer == adamw.AdamW(decay=0.1)
    assert [p.learning_rate for p in recipe.phase] == [1e-3, 5e-5]
    assert [p.batch for p in recipe.phase] == [8, 8]
    assert recipe.layout == Layout(threads=2)
    assert (recipe.data, recipe.out) == ("nb", "a=b")
    assert decoded("optimizer={kind='adamw', decay=0.5}").optimizer == adamw.AdamW(decay=0.5)
    assert decoded("phase[1]={steps=1, length=8, batch=1, learning_rate=1}").phase[0] == Phase(
        steps=1, length=8, batch=1, learning_rate=1.0
    )
    assert decoded("phase=[{steps=1, length=8, batch=1, learning_rate=1}]").phase == (
        Phase(steps=1, length=8, batch=1, learning_rate=1.0),
    )
    assert decoded("data={a=1, b=0.5}").data_of(0) == {"a": 1.0, "b": 0.5}
    assert decoded("data.a=3", text=GOOD.replace('data = "somewhere"', "")).data_of(0) == {"a": 3.0}


@pytest.mark.parametrize(
    ("word", "said"),
    [
        (
            "phase[0].learning_rate=1",
            "`phase[0].learning_rate=1`: found phase[0]; wanted phase[1] to phase[2]; did you mean `phase[1].learning_rate`?",  # noqa: E501
        ),
        (
            "phase[3].learning_rate=1",
            "`phase[3].learning_rate=1`: found phase[3]; wanted phase[1] to phase[2]; did you mean `phase[2].learning_rate`?",  # noqa: E501
        ),
        ("phase[x].learning_rate=1", "`phase[x].learning_rate=1`: found phase[x]; wanted phase[1] to phase[2]"),
        (
            "phase[1.learning_rate=1",
            "`phase[1.learning_rate=1`: found phase[1; wanted phase[1] to phase[2]; did you mean `phase[1].learning_rate`?",  # noqa: E501
        ),
        ("phase[]=1", "`phase[]=1`: found phase[]; wanted phase[1] to phase[2]"),
        ("model[1].width=64", "`model[1].width=64`: found model[1]; wanted `model` without a number: it is not a list"),
        (
            "phase.0.learning_rate=1",
            "`phase.0.learning_rate=1`: found phase.0; wanted phase[1] to phase[2]; did you mean `phase[1].learning_rate`?",  # noqa: E501
        ),
        (
            "phase.2.learning_rate=1",
            "`phase.2.learning_rate=1`: found phase.2; wanted phase[1] to phase[2]; did you mean `phase[2].learning_rate`?",  # noqa: E501
        ),
        (
            "phase2.learning_rate=1",
            "`phase2.learning_rate=1`: found phase2; wanted phase[1] to phase[2]; did you mean `phase[2].learning_rate`?",  # noqa: E501
        ),
        ("phase.9=1", "`phase.9=1`: found phase.9; wanted phase[1] to phase[2]; did you mean `phase[2]`?"),
        ("phase.steps", "`phase.steps`: not an override; wanted key.path=value"),
        ("=3", "`=3`: not an override; wanted key.path=value"),
    ],
)
def test_overrides_that_reach_nothing(word: str, said: str) -> None:
    assert complaint(word) == said


def test_files_that_are_no_recipes(tmp_path: Path) -> None:
    broken, bytes_ = tmp_path / "a.toml", tmp_path / "b.toml"
    broken.write_text("a = \n")
    bytes_.write_bytes(b"a = '\xff'\n")
    texts = tmp_path / "texts.jsonl"
    texts.write_text('{"text": "a recipe was meant"}\n')
    for path, said in (
        (broken, "not TOML: "),
        (bytes_, "not TOML: "),
        (texts, "not TOML: Invalid statement (at line 1, column 1); wanted a recipe (TOML); `ordsmed recipes`"),
        (tmp_path / "c.toml", "no such file"),
        (tmp_path, "is a folder"),
    ):
        with pytest.raises(RecipeError) as error:
            settings.read(path)
        assert str(error.value).startswith(f"{path}: {said}")
        assert "\n" not in str(error.value)


# every refusal of a __post_init__: (class, a good table, changes, the key that is named)
REFUSED: list[tuple[Any, dict[str, Any], dict[str, Any], str]] = [
    (Phase, PHASE := {"steps": 4, "length": 8, "batch": 2, "learning_rate": 1.0}, {"steps": 0}, "steps"),
    (Phase, PHASE, {"length": 0}, "length"),
    (Phase, PHASE, {"batch": -1}, "batch"),
    (Phase, PHASE, {"learning_rate": 0.0}, "learning_rate"),
    (Phase, PHASE, {"learning_rate": math.inf}, "learning_rate"),
    (Phase, PHASE, {"warmup": 5}, "warmup"),
    (Phase, PHASE, {"warmup": -0.1}, "warmup"),
    (Phase, PHASE, {"schedule": {"end": 2.0}}, "schedule.end"),
    (Schedule, {}, {"end": -0.1}, "end"),
    (Schedule, {}, {"decay": 0.0}, "decay"),
    (Schedule, {}, {"power": -1.0}, "power"),
    (mlm.Mlm, {}, {"mask_prob": 0.0}, "mask_prob"),
    (mlm.Mlm, {}, {"mask_prob": 1.0}, "mask_prob"),
    (mlm.Mlm, {}, {"keep": 0.6, "swap": 0.6}, "keep"),
    (mlm.Mlm, {}, {"swap": -0.1}, "keep"),
    (adamw.AdamW, {}, {"betas": [0.9, 1.0]}, "betas"),
    (adamw.AdamW, {}, {"epsilon": -1.0}, "epsilon"),
    (adamw.AdamW, {}, {"decay": -1.0}, "decay"),
    (bert.Bert, {}, {"heads": 7}, "heads"),
    (bert.Bert, {}, {"dropout": 1.0}, "dropout"),
    (gpt2.Gpt2, {}, {"attention_dropout": -0.1}, "attention_dropout"),
    (Corpus, {"source": "stdlib"}, {"validation": 1.0}, "validation"),
    (Corpus, {"source": "stdlib"}, {"shard": 0}, "shard"),
    (TokenizerTraining, {"tokenizer": "wordpiece", "corpus": "a"}, {"sample": 0}, "sample"),
    (TokenizerTraining, {"tokenizer": "wordpiece", "corpus": "a"}, {"corpus": None}, "corpus"),
    (
        TokenizerTraining,
        {"tokenizer": "wordpiece", "corpus": "a"},
        {"tokenizer": {"kind": "bytebpe", "size": 3}},
        "tokenizer.size",
    ),
    (Encoding, {"corpus": "a", "tokenizer": "b"}, {"processes": 0}, "processes"),
    (Bench, {"measure": "windows"}, {"measure": "training"}, "model"),
    (Bench, {"measure": "windows"}, {"measure": "loader"}, "objective"),
    (Bench, {"measure": "windows"}, {"batch": 0}, "batch"),
]


@pytest.mark.parametrize(("cls", "good", "changes", "key"), REFUSED)
def test_refusals_of_settings_name_their_key(cls: Any, good: dict[str, Any], changes: dict[str, Any], key: str) -> None:
    settings.decode(cls, good, "r.toml")
    table = {k: v for k, v in {**good, **changes}.items() if v is not None}
    with pytest.raises(RecipeError) as error:
        settings.decode(cls, table, "r.toml")
    assert str(error.value).startswith(f"r.toml: {key}: ")
    assert "wanted" in str(error.value)
    assert "\n" not in str(error.value)


words = st.text(max_size=12)
shares = st.floats(0, 1, exclude_max=True)
phases = st.builds(
    Phase,
    steps=st.integers(10, 10**7),
    length=st.integers(1, 4096),
    batch=st.integers(1, 10**5),
    learning_rate=st.floats(1e-9, 10),
    warmup=st.floats(0, 10),
    pack=st.booleans(),
    schedule=st.builds(
        Schedule,
        st.sampled_from(["constant", "linear", "polynomial", "cosine", "wsd", "inverse_sqrt"]),
        power=st.floats(0.1, 4),
        end=shares,
        decay=st.floats(0.01, 1),
        shape=st.sampled_from(["linear", "sqrt"]),
    ),
)
models = st.one_of(
    st.builds(bert.Bert, width=st.sampled_from([64, 128]), heads=st.sampled_from([0, 1, 2]), dropout=shares),
    st.builds(gpt2.Gpt2, width=st.sampled_from([64, 128]), layers=st.integers(1, 48), deep=st.booleans()),
)
objectives = st.one_of(
    st.builds(mlm.Mlm, mask_prob=st.floats(0.01, 0.99), unit=st.sampled_from(["token", "word"])),
    st.builds(clm.Clm, separate=st.booleans()),
)
pretrainings = st.builds(
    Pretraining,
    data=st.one_of(words, st.dictionaries(words, st.floats(0.1, 5), min_size=1, max_size=3)),
    objective=objectives,
    model=models,
    phase=st.lists(phases, min_size=1, max_size=3).map(tuple),
    seed=st.integers(-(2**63), 2**63 - 1),
    optimizer=st.builds(adamw.AdamW, betas=st.tuples(shares, shares)),
    out=st.none() | words,
    layout=st.builds(Layout, micro=st.integers(0, 64), precision=st.sampled_from(["fp32", "bf16"])),
)


@given(pretrainings)
def test_written_and_read_back(recipe: Pretraining) -> None:
    table = tomllib.loads(settings.write(recipe))
    assert table == settings.plain(recipe)
    before = copy.deepcopy(table)
    assert settings.decode(Pretraining, table, "r.toml") == recipe
    assert table == before


def test_plain_leaves_out_what_is_not_said() -> None:
    assert settings.plain(replace(decoded(), out=None)).keys() >= {"data", "model", "phase"}
    assert "out" not in settings.plain(decoded())
    assert settings.plain(decoded())["model"]["kind"] == "bert"
    assert settings.plain(Path("a/b")) == "a/b"
    assert settings.plain({1: (1, None)}) == {"1": [1, None]}


def test_flat() -> None:
    flat = settings.flat(settings.plain(decoded()))
    assert (flat["model.width"], flat["phase[2].schedule.kind"]) == (256, "cosine")
    assert flat["optimizer.betas"] == [0.9, 0.999]


@dataclass(frozen=True)
class Outer:
    """Settings as a stranger may write them."""

    part: Annotated[Any, Menu("models")] = None
    names: tuple[str, ...] = ()
    kind_of_cut: Literal["a", "b", "1.1"] = "a"
    table: dict[str, int] = field(default_factory=dict)
    both: Literal["2.0"] | None = None
    several: tuple[Literal["a", "1.1"], ...] = ()
    noted: Annotated[int, "of a stranger"] = 0
    fixed: ClassVar[int] = 3


@pytest.mark.parametrize(
    ("table", "check"),
    [
        ({"names": ["x", "y"]}, lambda o: o.names == ("x", "y")),
        ({"table": {"x": 1}}, lambda o: o.table == {"x": 1}),
        ({"kind_of_cut": 1.1}, lambda o: o.kind_of_cut == "1.1"),
        ({"both": 2.0}, lambda o: o.both == "2.0"),
        ({"noted": 4}, lambda o: o.noted == 4),
        ({"part": {"kind": "ordsmed.nn.models.bert"}}, lambda o: isinstance(o.part, bert.Bert)),
    ],
)
def test_other_shapes(table: dict[str, Any], check: Callable[[Outer], bool]) -> None:
    assert check(settings.decode(Outer, table, "r.toml"))


def test_lists_that_are_none() -> None:
    assert complaint("phase=[]", "phase.learning_rate=1").startswith(
        "r.toml: phase: found { kind = [], learning_rate = 1 }; wanted one or"
    )
    with pytest.raises(RecipeError, match=r"^`K9\[1.a=2`: found K9\[1; wanted K9\[1\] to K9\[1\]$"):
        settings.override({"K9": [{"a": 1}]}, ["K9[1.a=2"])


def test_what_is_found_is_cut_where_it_is_long() -> None:
    for length, said in ((57, repr("x" * 57)), (58, "'" + "x" * 56 + "...")):
        assert (
            complaint("phase[1].steps=" + "x" * length)
            == f"r.toml: phase[1].steps: found {said}; wanted a whole number"
        )


def test_choices_are_named() -> None:
    with pytest.raises(RecipeError, match=r"kind_of_cut: found 1\.2; wanted one of a, b, 1\.1$"):
        settings.decode(Outer, {"kind_of_cut": 1.2}, "r.toml")


@pytest.mark.parametrize(
    "table",
    [
        {"names": "x"},
        {"names": [1]},
        {"kind_of_cut": "c"},
        {"table": {"x": "y"}},
        {"fixed": 4},
        [],
        3,
        {"several": 1.1},
    ],
)
def test_other_shapes_refused(table: Any) -> None:
    with pytest.raises(RecipeError, match=r"^r\.toml"):
        settings.decode(Outer, table, "r.toml")


def test_a_setting_added_later_tells_nothing_apart_until_it_is_used():
    """Folders made before it was there go on to fit their recipes."""

    @dataclass(frozen=True)
    class Grown:
        width: int = 4
        tied: bool = True
        LATER_ADDED: ClassVar[tuple[str, ...]] = ("tied",)

    assert settings.plain(Grown(), essence=True) == {"width": 4}
    assert settings.plain(Grown(tied=False), essence=True) == {"width": 4, "tied": False}
    assert settings.plain(Grown()) == {"width": 4, "tied": True}


@pytest.mark.parametrize("kind", menu.entries("models"))
def test_models_fingerprints_stay_as_they_were(kind):
    """What has been added to a family since the first runs does not count where it is as it always was."""
    made = menu.load("models", kind)()
    later = set(getattr(type(made), "LATER_ADDED", ()))
    assert not later & settings.plain(made, essence=True).keys()
    assert {"tied"} <= later or kind == "elmo"


def test_a_setting_that_was_renamed_goes_on_by_its_former_name(tmp_path: Path) -> None:
    """In a recipe, in an override of either name over a recipe of either, and in what tells runs apart."""
    former, present = (GOOD.replace('"mini"', f'"mini"\n{name} = 0.05') for name in ("spread", "initializer_std"))
    assert decoded(text=former) == decoded(text=present)
    assert decoded(text=former).model.initializer_std == 0.05
    for text in (former, present):
        for word in ("model.spread=0.1", "model.initializer_std=0.1"):
            assert decoded(word, text=text).model.initializer_std == 0.1, (text, word)
    wide = settings.decode(gpt2.Gpt2, {"places_spread": 0.3}, "r.toml")
    assert wide == gpt2.Gpt2(positions_initializer_std=0.3)
    assert settings.plain(decoded(text=former))["model"]["initializer_std"] == 0.05
    assert run.essence(decoded(text=present))["model"]["spread"] == 0.05
    both = former.replace("spread = 0.05", "spread = 0.05\ninitializer_std = 0.05")
    said = "model.spread: its new name `initializer_std` is set as well; wanted one of the two; leave out `spread`"
    assert complaint(text=both).endswith(said)
    assert complaint("model.spread=-1.0").endswith("model.initializer_std: found -1.0; wanted above 0, to 10")
    assert settings.renamed(tomllib.loads(former)) == tomllib.loads(present)
    assert settings.renamed({"rate": 1.0, "group": [{"rate": 0.5}]}) == {"learning_rate": 1.0, "group": [{"rate": 0.5}]}
    assert settings.renamed(tomllib.loads(present), settings.FORMER) == tomllib.loads(
        former.replace("learning_rate", "rate")
    )


def test_a_former_name_is_advised_once_and_not_for_what_is_stored(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In short for a setting of the objective or a phase too; a plugin's setting of that name stays as it is."""
    monkeypatch.setattr(settings, "_advised", set())
    old = GOOD.replace("learning_rate", "rate")
    assert decoded("objective.hide=0.2", "phase.rate=0.5", text=old) == decoded(
        "objective.mask_prob=0.2", "phase.learning_rate=0.5"
    )
    advice = [line for line in capsys.readouterr().err.splitlines() if "is called" in line]
    assert len(advice) == 2
    assert "`rate` is called `learning_rate` now; the former name works until version 1.0" in advice[1]
    monkeypatch.setattr(settings, "_advised", set())
    settings.decode(Pretraining, tomllib.loads(old), "work/run/recipe.toml")
    assert "is called" not in capsys.readouterr().err
    both = run.merge_tables({"objective": {"hide": 0.1}}, {"objective": {"mask_prob": 0.2}})
    assert both == {"objective": {"mask_prob": 0.2}}


def test_a_finished_folder_fits_by_either_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where its fingerprint is that of a version with fewer settings, what its recipe has counts, under either name."""
    monkeypatch.setattr(Pretraining, "stamp", lambda self: "")
    for name in ("spread", "initializer_std"):
        recipe = decoded(text=GOOD.replace('"mini"', f'"mini"\n{name} = 0.05'))
        table = settings.renamed(settings.plain(recipe), settings.FORMER if name == "spread" else {})
        del table["seed"]
        fewer = run.essence(recipe)
        del fewer["seed"]
        folder = tmp_path / name
        folder.mkdir()
        (folder / "recipe.toml").write_text("\n".join(settings.lines(table)), encoding="utf-8")
        mark = run._fingerprint_of(recipe, fewer)
        (folder / "status.json").write_text(f'{{"verb": "pretrain", "state": "done", "fingerprint": "{mark}"}}')
        assert run.fits(run.Run(folder), recipe), name


def test_a_choice_that_may_be_left_out_is_taken_back_by_hand() -> None:
    """`model=none` beside `init`, in a recipe that names a network; what must be said cannot be taken back."""
    table = tomllib.loads(GOOD)
    found = settings.decode(Pretraining, settings.override(copy.deepcopy(table), ["model=none", "init=run"]), "r")
    assert found.model is None
    with pytest.raises(RecipeError, match="model: missing; wanted a \\[model\\], or `init` to start from"):
        settings.decode(Pretraining, settings.override(copy.deepcopy(table), ["model=none"]), "r")
    with pytest.raises(RecipeError, match="objective"):
        settings.decode(Pretraining, settings.override(copy.deepcopy(table), ["objective=none"]), "r")


@dataclass(frozen=True)
class Held:
    a: int = 1
    b: tuple[int, ...] = (1, 2)


@dataclass(frozen=True)
class Holder:
    must: int
    name: str = "x"
    inner: Held = field(default_factory=Held)
    maybe: Held | None = None
    many: tuple[Held, ...] = ()
    model: Annotated[Any, Menu("models")] = field(default_factory=bert.Bert)


@pytest.mark.parametrize(
    ("recipe", "kept"),
    [
        (Holder(1), {"must": 1}),
        (Holder(1, "y", Held(b=(3,))), {"must": 1, "name": "y", "inner": {"b": [3]}}),
        (Holder(1, maybe=Held()), {"must": 1, "maybe": {}}),
        (Holder(1, many=(Held(), Held(2))), {"must": 1, "many": [{}, {"a": 2}]}),
        (Holder(1, model=gpt2.Gpt2()), {"must": 1, "model": {"kind": "gpt2"}}),
        (Holder(1, model=bert.Bert(layers=3)), {"must": 1, "model": {"kind": "bert", "layers": 3}}),
        (
            Holder(1, model=bert.Bert(width=64, heads=2, inner=256)),
            {"must": 1, "model": {"kind": "bert", "width": 64, "heads": 2}},
        ),
    ],
)
def test_what_is_at_its_default_is_left_out(recipe: Holder, kept: dict[str, Any]) -> None:
    assert settings.without_defaults(recipe) == kept


def test_lines_for_a_person_are_the_table() -> None:
    table = {
        "a": ["x[", "b,\n"],
        "b": [[1, 2], []],
        "c": True,
        "d": [{"x": 1, "s": {"k": 1e-6}}, {}],
        "w/x": {"é": '"'},
        "m": [1, {"a": 2}],
        "e": {},
    }
    told = settings.lines(table)
    assert tomllib.loads("\n".join(told)) == table
    assert told[:4] == ['a = ["x[", "b,\\n"]', "b = [[1, 2], []]", "c = true", "m = [1, { a = 2 }]"]
    assert {"[[d]]", "[d.s]", '["w/x"]', "[e]"} <= set(told)


@pytest.mark.parametrize("kind", [Corpus, TokenizerTraining, Encoding, Pretraining, Finetuning, Bench])
def test_a_recipe_is_what_is_shown_of_it(kind: Any) -> None:
    """Of every one that is built in, with its defaults and without."""
    for name in run.recipe_names(kind.verb):
        recipe = run.load(kind, name)[0]
        short, whole = settings.without_defaults(recipe), settings.plain(recipe)
        assert settings.decode(kind, short, name) == recipe
        assert tomllib.loads("\n".join(settings.lines(short))) == short
        assert tomllib.loads("\n".join(settings.lines(whole))) == whole


def test_a_choice_of_a_list_is_changed_by_its_number_though_others_are_names() -> None:
    table = {"clean": ["unicode", {"kind": "length", "shortest": 3}, "mojibake"]}
    settings.override(table, ["clean[2].shortest=20", "clean[1].form=NFC"])
    assert table == {"clean": [{"kind": "unicode", "form": "NFC"}, {"kind": "length", "shortest": 20}, "mojibake"]}
    with pytest.raises(RecipeError, match=r"clean\[1\] to clean\[3\]"):
        settings.override(table, ["clean[4].shortest=20"])
