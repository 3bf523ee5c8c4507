"""Shipped recipes: each decodes, each pretraining trains when it is shrunk, and none is named that does not exist."""

from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from kit.makers import build
from ordsmed.base import run, settings
from ordsmed.base.errors import RecipeError
from ordsmed.base.ranks import Ranks
from ordsmed.base.say import log_to
from ordsmed.corpus.pipeline import Corpus
from ordsmed.data.encode import Encoding
from ordsmed.data.mix import listed
from ordsmed.data.tokenizer_training import TokenizerTraining
from ordsmed.maker.request import is_recipe
from ordsmed.maker.speedrun.track import is_track
from ordsmed.measure.bench.bench import Bench
from ordsmed.measure.evaluation.recipe import Evaluation
from ordsmed.tell.show.picture import Pictures
from ordsmed.tell.show.show import difference, read, show
from ordsmed.train import loop
from ordsmed.train.finetune.finetune import finetune, rehearse
from ordsmed.train.finetune.plan import check as check_plan
from ordsmed.train.finetune.recipe import Finetuning
from ordsmed.train.mesh.layout import Layout
from ordsmed.train.meters import read as read_metrics
from ordsmed.train.pretrain.pretrain import rehearse as rehearse_pretraining
from ordsmed.train.pretrain.recipe import Pretraining

# those of `make` and `speedrun`: tests/maker
NAMES = [name for name in run.recipe_names() if not is_recipe(name) and not is_track(name)]
LESSONS = ("tiny/questions", "tiny/sentences", "tiny/words")  # what a small model is fine-tuned for
KINDS = {
    "corpus": Corpus,
    "tokenizer": TokenizerTraining,
    "encode": Encoding,
    "pretrain": Pretraining,
    "finetune": Finetuning,
    "bench": Bench,
    "evaluate": Evaluation,
}
SIZES = ("tiny", "laptop", "desk", "continue")  # folders of recipes by what they take, not by their verb
TRAINED = [name for name in NAMES if name.startswith(("pretrain/", *(f"{size}/" for size in SIZES[:3])))]
TRAINED = [name for name in TRAINED if name not in LESSONS]
CONTINUED = [name for name in NAMES if name.startswith("continue/")]
TUNED = [*(name for name in NAMES if name.startswith("finetune/")), *LESSONS]


@pytest.mark.parametrize("name", NAMES)
def test_every_recipe_decodes(name: str) -> None:
    folder, _, short = name.partition("/")
    recipe, verb = read(name)
    made = folder if folder not in SIZES else "finetune" if name in LESSONS else "pretrain"
    assert isinstance(recipe, KINDS[made])
    assert verb == made
    if folder not in SIZES:
        assert short in run.recipe_names(folder)
        assert run.load(KINDS[folder], short)[0] == recipe
    text = run.recipe_text(run.find_recipe(name, ""))
    assert re.match(r"# \S.{20,}", text), "the first line tells what it is"


@pytest.mark.parametrize(
    "name", ["pretrain/bert-tiny", "pretrain/electra-base-lamb-dgx1-8gpu-fp32", "finetune/roberta-rte"]
)
def test_a_variant_is_a_recipe_as_one_with_a_file(name: str, tmp_path: Path) -> None:
    """Found by each of its names and by its path; printed whole, so that the text is a start for one's own."""
    verb, short = name.split("/")
    path = run.find_recipe(name, "")
    assert not path.is_file()
    assert path == run.find_recipe(short, verb) == run.find_recipe(str(path), "")
    mine = tmp_path / "mine.toml"
    mine.write_text(text := run.recipe_text(path))
    assert run.load(KINDS[verb], str(mine))[0] == run.load(KINDS[verb], short)[0]
    assert "like =" not in text
    steps = run.recipe_text(run.find_recipe("electra-squad-steps", "finetune")).splitlines()
    assert steps[1] == "# `electra-squad` with step=all"
    assert any(line.startswith("# NVIDIA's finetune_ckpts_on_squad.sh") for line in steps), "its own note"
    assert any("is a placeholder" in line for line in steps), "and what is said of the other recipe"
    assert run.title(name) == name.replace("/", "-")
    with pytest.raises(RecipeError, match="no recipe of"):
        run.find_recipe(f"{short}x", verb)


def test_variants_say_what_they_are() -> None:
    """No name twice, none that a file has; each row lays over a recipe of the same folder."""
    for table in run.BUILT_IN.rglob(run.VARIANTS):
        rows = [(like, name) for like, listed in settings.read(table).items() for name in listed]
        assert len({name for _, name in rows}) == len(rows)
        for like, name in rows:
            assert not table.with_name(f"{name}.toml").exists()
            assert run.find_recipe(like, table.parent.name).parent == table.parent


@pytest.mark.parametrize("name", [n for n in NAMES if n.startswith("bench/")])
def test_a_bench_is_in_the_precision_that_its_first_line_names(name: str) -> None:
    first = run.recipe_text(run.find_recipe(name, "")).splitlines()[0]
    named = [precision for precision in ("fp32", "bf16", "fp16") if re.search(rf"\b{precision}\b", first)]
    assert named in ([], [read(name)[0].layout.precision])


@pytest.mark.parametrize("name", [n for n in NAMES if not n.startswith(("corpus/", "bench/"))])
def test_what_a_recipe_names_is_shipped(name: str) -> None:
    recipe, _ = read(name)
    if isinstance(recipe, Pretraining):
        for source in recipe.sources:
            run.load(Encoding, source)
    if isinstance(recipe, Encoding):
        run.load(TokenizerTraining, recipe.tokenizer)
    if isinstance(recipe, Encoding | TokenizerTraining) and recipe.corpus:
        for corpus in listed(recipe.corpus):
            run.load(Corpus, corpus)


@pytest.mark.parametrize("name", TRAINED)
def test_lengths_and_batches_fit(name: str) -> None:
    recipe, _ = read(name)
    assert isinstance(recipe, Pretraining)
    for number, phase in enumerate(recipe.phase, 1):
        assert phase.length <= recipe.model.longest()
        assert recipe.layout.share(phase, number, "cpu").accumulation >= 1
    kind = settings.plain(recipe)["objective"]["kind"]
    able = recipe.model.capabilities
    assert able.both if kind == "hybrid" else able.causal == (kind == "clm")


MACHINES = {  # NVIDIA's table: micro-batch and accumulation of both phases, on so many GPUs
    "dgxa100-8gpu-amp": (8, 176, 48, 24, 144),
    "dgxa100-8gpu-tf32": (8, 88, 96, 12, 288),
    "dgx2-16gpu-amp": (16, 176, 24, 24, 72),
    "dgx2-16gpu-fp32": (16, 88, 48, 12, 144),
    "dgx1-8gpu-amp": (8, 88, 96, 12, 288),
    "dgx1-8gpu-fp32": (8, 40, 211, 6, 576),
    "dgxa100-1gpu-amp": (1, 176, 384, 24, 1152),
    "dgxa100-1gpu-tf32": (1, 88, 768, 12, 2304),
    "dgx2-1gpu-amp": (1, 176, 384, 24, 1152),
    "dgx2-1gpu-fp32": (1, 88, 768, 12, 2304),
    "dgx1-1gpu-amp": (1, 88, 768, 12, 2304),
    "dgx1-1gpu-fp32": (1, 40, 1689, 6, 4608),
}


@pytest.mark.parametrize("name", MACHINES)
def test_the_machines_of_a_published_table(name: str) -> None:
    """The recipe says how a machine cuts a batch; the science is the plain recipe's."""
    gpus, *cut = MACHINES[name]
    there, _ = read(f"pretrain/electra-base-lamb-{name}")
    plain, _ = read("pretrain/electra-base-lamb")
    assert isinstance(there, Pretraining)
    shares = [there.layout.share(phase, n, "cuda", 0, gpus) for n, phase in enumerate(there.phase, 1)]
    assert [n for share in shares for n in (share.micro, share.accumulation)] == cut
    assert sum(abs(a.batch - b.batch) for a, b in zip(there.phase, plain.phase, strict=True)) <= 64
    one, other = (settings.plain(r) | {"layout": None, "phase": None} for r in (there, plain))
    assert one == other


@pytest.mark.parametrize("name", TUNED)
def test_a_fine_tuning_fits_the_network_that_it_names(name: str) -> None:
    """`init` names what a shipped pretraining leaves; files are those that `ordsmed fetch` gets."""
    recipe, _ = read(name)
    assert isinstance(recipe, Finetuning)
    assert recipe.init is not None
    title = recipe.init.removeprefix("work/pretrain/")
    network = read(f"tiny/{title.removeprefix('tiny-')}" if title.startswith("tiny-") else f"pretrain/{title}")[0].model
    check_plan(recipe.fill_defaults(network), network, Ranks(torch.device("cpu")))
    paths = [*recipe.task.paths("train"), *recipe.task.paths("dev")]
    tables = {n: run.find_recipe(f"fetch/{n}", "").read_text(encoding="utf-8") for n in ("squad", "glue", "xnli")}
    for fetched in (path.removeprefix("work/fetch/") for path in paths if path.startswith("work/fetch/")):
        table, _, file = fetched.partition("/")
        assert f'path = "{file}"' in tables[table] or (table in ("glue", "xnli") and not file)


ON_MACHINES = {  # NVIDIA's table: GPUs, examples of each, rate
    "dgxa100-8gpu-amp": (8, 32, 8e-4),
    "dgxa100-8gpu-tf32": (8, 32, 8e-4),
    "dgx2-16gpu-amp": (16, 32, 1e-3),
    "dgx2-16gpu-fp32": (16, 32, 1e-3),
    "dgx1-8gpu-amp": (8, 16, 4e-4),
    "dgx1-8gpu-fp32": (8, 8, 3e-4),
    "dgx1-8gpu-amp-v2": (8, 16, 4e-4),
    "dgxa100-1gpu-amp": (1, 32, 2e-4),
    "dgxa100-1gpu-tf32": (1, 32, 2e-4),
    "dgx2-1gpu-amp": (1, 32, 2e-4),
    "dgx2-1gpu-fp32": (1, 32, 2e-4),
    "dgx1-1gpu-amp": (1, 16, 1e-4),
    "dgx1-1gpu-fp32": (1, 8, 1e-4),
}


@pytest.mark.parametrize("name", ON_MACHINES)
def test_fine_tunings_on_the_machines_of_a_published_table(name: str) -> None:
    gpus, micro, rate = ON_MACHINES[name]
    there, plain = (read(f"finetune/electra-squad{end}")[0] for end in (f"-{name}", "-2.0" if "v2" in name else ""))
    assert isinstance(there, Finetuning)
    share = there.layout.share(there.phases[0], 1, "cuda", 0, gpus)
    assert (share.micro, share.accumulation, there.learning_rate, there.batch) == (micro, 1, rate, gpus * micro)
    assert (there.epochs, there.task.version) == ((3, "2.0") if "v2" in name else (2, "1.1"))
    assert ("bf16" if "a100" in name else "fp16") == there.layout.precision or "amp" not in name
    one, other = (settings.plain(r) | {"layout": None, "batch": None, "learning_rate": None} for r in (there, plain))
    assert one == other
    assert (there.warmup, there.layer_decay, there.task.threshold, there.task.beam) == (0.05, 0.8, -5.6, 5)


def lines_of(told: list[str], beginning: str) -> list[str]:
    return [line for line in told if line.startswith(beginning)]


def test_a_fine_tuning_is_shown_before_anything_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    told = show("squad-2.0", devices=3)
    assert lines_of(told, "init: ")[0].startswith("init: work/pretrain/bert-base does not exist here")
    assert lines_of(told, "task.train: ") == [
        "task.train: work/fetch/squad/train-v2.0.json does not exist; `ordsmed fetch squad` gets it"
    ]
    assert told[-2].endswith("2 epochs of 24 rows x 384 tokens; batch = micro 8 x accumulation 1 x devices 3")
    assert lines_of(show("glue-grid"), "trials: ")[0].startswith("trials: 20, each trained on one device: ")
    assert lines_of(show("electra-squad-steps"), "trials: ") == [
        "trials: one from each checkpoint of `init`, and for each setting and seed"
    ]
    (tmp_path / "mine.toml").write_text('like = "squad-2.0"\n[task]\nlength = 256\n')
    assert difference("squad-2.0", "mine.toml")[1:] == ["task.length  384 | 256"]
    (tmp_path / "mine.toml").write_text('like = "sqad-2.0"\n')
    with pytest.raises(RecipeError, match=r"`sqad-2\.0`: no recipe of `finetune`"):
        rehearse("mine.toml")
    assert [path.name for path in tmp_path.iterdir()] == ["mine.toml"]


def lessons(folder: Path, init: Path) -> Path:
    """A recipe on a few labelled texts."""
    texts = "".join(f"the old smith mends a kettle\t{label}\n" for label in "ab" * 10)
    (folder / "train.tsv").write_text("text\tlabel\n" + texts)
    recipe = folder / "mine.toml"
    recipe.write_text(
        f'init = "{init}"\nout = "{folder}/run"\nfeatures = ""\nepochs = 3\nbatch = 8\n'
        f'layout = {{ device = "cpu" }}\n[task]\nkind = "classify"\nlength = 32\n'
        f'train = "{folder}/train.tsv"\ndev = "{folder}/train.tsv"\n'
    )
    return recipe


@pytest.mark.long
def test_a_fine_tuning_is_shown_with_what_its_network_and_data_tell(tiny_run: Any, tmp_path: Path) -> None:
    recipe = str(lessons(tmp_path, tiny_run.bert))
    told = show(recipe)
    usual = "defaults of bert: learning_rate 0.0015, warmup 0.1, layer_decay 1.0, freeze false"
    assert lines_of(told, usual)
    assert {"  learning_rate = 0.0015", "  width = 64", '  labels = ["a", "b"]'} <= set(told)
    assert lines_of(told, "examples: 20 of ")[0].endswith("; 20 for validation")
    assert told[-4].startswith("phase 1: 8 steps of 8 rows x 32 tokens; batch = micro 8 x ")
    [whole] = numbers_of(told)
    adapted, learned = numbers_of(show(recipe, ["adapters={rank=2}"]))
    head = 64 * 64 + 64 + 2 * 64 + 2  # BERT's dense layer before the scores, and those
    assert learned - head == adapted - whole == 2 * 2 * (64 + 192 + 64 + 64)
    with pytest.raises(RecipeError, match=r"mine\.toml: warmup: found 9; wanted 0 to 8 steps"):
        show(recipe, ["warmup=9"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.toml", "train.tsv"]


def numbers_of(told: list[str]) -> list[int]:
    """Parameters, and of them those that learn where not all do."""
    return [int(number) for number in re.findall(r"\d+", lines_of(told, "network: ")[0].replace(",", ""))]


@pytest.mark.long
def test_a_run_of_a_fine_tuning_is_shown(tiny_run: Any, tmp_path: Path) -> None:
    told = show(str(finetune(str(lessons(tmp_path, tiny_run.bert)), callbacks=[Pictures()])))
    assert {"state: done", "step 8 of 8"} <= set(told)
    assert [line.endswith("  <- best") for line in lines_of(told, "  step ")] == [True, False, False]
    assert re.match(r"scores: accuracy 50\.00 \(guessing 50\.00\)", lines_of(told, "scores: ")[0])
    assert lines_of(told, "picture: ") == [f"picture: {tmp_path}/run/loss.svg"]


def test_a_recipe_like_another(tmp_path: Path) -> None:
    """Tables are laid over each other key by key, lists and other kinds as a whole; a circle is refused."""
    (tmp_path / "mine.toml").write_text(
        'like = "tiny/bert"\nseed = 5\n[model]\nwidth = 64\n[objective]\nkind = "mlm_nsp"\nshort = 0.2\n'
    )
    mine, plain = run.read_table(tmp_path / "mine.toml", ""), run.read_table(run.find_recipe("tiny/bert", ""), "")
    assert mine["model"] == plain["model"] | {"width": 64}
    assert mine["objective"] == {"kind": "mlm_nsp", "short": 0.2}
    assert (mine["seed"], mine["phase"], mine["data"]) == (5, plain["phase"], plain["data"])
    (tmp_path / "a.toml").write_text('like = "b.toml"\n')
    (tmp_path / "b.toml").write_text(f'like = "{tmp_path}/a.toml"\n')
    for text, said in (('like = "tiny/brt"', "did you mean `tiny/bert`"), ("like = 3", "like: found 3")):
        (tmp_path / "c.toml").write_text(text)
        with pytest.raises(RecipeError, match=said):
            run.read_table(tmp_path / "c.toml", "")
    (tmp_path / "d.toml").write_text('like = "electra-base-lamb-dgx1-1gpu-amp"')
    assert run.load(Pretraining, str(tmp_path / "d.toml"))[0].layout.micro == (88, 12)
    with pytest.raises(RecipeError, match="is based on itself"):
        run.read_table(tmp_path / "a.toml", "")


def shrunk(recipe: Pretraining, data: Path) -> Pretraining:
    """Two layers of 64, two phases' worth of two rows of 32 tokens."""
    phases = [
        dataclasses.replace(
            p,
            steps=2,
            epochs=0.0,
            length=min(p.length, 32),
            batch=2,
            warmup=min(p.warmup, 1),
            batch_ramp=p.batch_ramp and dataclasses.replace(p.batch_ramp, start=1, over=1),
        )
        for p in recipe.phase
    ]
    objective = recipe.objective
    if hasattr(objective, "generator"):
        objective = dataclasses.replace(objective, generator=type(objective.generator)())
    if hasattr(objective, "samples"):
        objective = dataclasses.replace(objective, samples=0)  # few samples tell less than the loss of all
    return dataclasses.replace(
        recipe,
        objective=objective,
        init=None,
        vocabulary="same",
        layout=Layout(device="cpu"),
        data=str(data),
        model=recipe.model.smaller(64, 2),
        phase=tuple(phases),
        save=0,
        validate=0,
        validation_rows=4,
    )


@pytest.mark.long
@pytest.mark.parametrize("name", TRAINED)
def test_every_pretraining_takes_two_steps(
    name: str, tiny_run: Any, tiny_roberta: Path, tiny_words: Path, tmp_path: Path
) -> None:
    recipe, _ = read(name)
    assert isinstance(recipe, Pretraining)
    asked = next(iter(recipe.sources))
    data = tiny_run.folder / f"encode-{'gpt2' if 'bytebpe' in asked else 'bert'}"
    data = tiny_roberta if "roberta" in asked else tiny_words if asked.endswith("-words") else data
    job = build(shrunk(recipe, data), Ranks(torch.device("cpu")))
    with log_to(tmp_path / "log.txt"):
        last = loop.train(job, tmp_path, 0, 1e9)
    assert last == 2 * len(recipe.phase)
    lines = [line for line in read_metrics(tmp_path / "metrics.jsonl") if "validation" not in line]
    assert [line["step"] for line in lines] == list(range(1, last + 1))
    guess = math.log(job.tokenizer.vocabulary)
    term = "loss" if job.objective.guesses == "validation" else job.objective.guesses
    assert all(0.7 * guess < line[term] < 1.4 * guess for line in lines)
    assert all(line["norm"] > 0 for line in lines)


@pytest.mark.parametrize("name", CONTINUED)
def test_a_continued_pretraining_starts_from_a_model_that_stands(
    name: str, tiny_run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of one that stands and data of its vocabulary, or another one, the recipe's own words are enough."""
    words = [f"init={tiny_run.bert}", f"data={tiny_run.folder / 'encode-bert'}", f"out={tmp_path / 'run'}"]
    recipe, lines = rehearse_pretraining(
        name, [*words, "phase.epochs=0", "phase.steps=4", "phase.max_steps=0", "phase.length=16", "phase.batch=4"]
    )
    assert recipe.vocabulary == ("transplant" if name == "continue/language" else "same")
    assert recipe.validation_interval == 1, "a share of the steps"
    assert any(" passes over " in line for line in lines)


def test_the_readme_names_no_recipe_that_is_not_there() -> None:
    readme = Path(__file__).parents[2] / "README.md"
    text = readme.read_text(encoding="utf-8") if readme.exists() else ""
    if len(text) < 500:
        pytest.skip("README is not written yet")
    code = "\n".join(re.findall(r"```.*?```|`[^`\n]+`", text, re.DOTALL))
    named = re.findall(r"ordsmed (corpus|tokenizer|encode|pretrain|bench) (?:-\S+ )*([a-z][\w/-]*)(?=[\s`])", code)
    missing = [f"{v} {n}" for v, n in named if not n.startswith("work/") and n not in [*run.recipe_names(v), *NAMES]]
    assert missing == []


@pytest.mark.parametrize(
    ("recipe", "word", "ours"),
    [
        ("tiny/bert", "hidden_size=256", "model.width"),
        ("tiny/bert", "model.num_hidden_layers=3", "model.layers"),
        ("tiny/bert", "lr=1e-4", "phase.learning_rate"),
        ("tiny/bert", "phase.lr=1e-4", "phase.learning_rate"),
        ("tiny/bert", "batch_size=8", "phase.batch"),
        ("tiny/bert", "warmup_ratio=0.1", "phase.warmup"),
        ("tiny/bert", "num_train_steps=8", "phase.steps"),
        ("tiny/bert", "mlm_probability=0.2", "objective.mask_prob"),
        ("tiny/electra", "mlm_probability=0.2", "objective.mask_prob"),
        ("tiny/bert", "weight_decay=0.1", "optimizer.decay"),
        ("tiny/bert", "optimizer.weight_decay=0.1", "optimizer.decay"),
        ("tiny/bert", "fp16=true", "layout.precision"),
        ("tiny/bert", "FP16=true", "layout.precision"),
        ("tiny/gpt2", "n_embd=64", "model.width"),
        ("tiny/words", "lr=1e-4", "learning_rate"),
        ("tiny/words", "max_seq_length=64", "task.length"),
        ("tiny/questions", "doc_stride=64", "task.stride"),
        ("tiny/words", "model.hidden_size=8", "model.width"),
    ],
)
def test_a_setting_by_its_name_in_other_codes_is_answered_with_ours(recipe: str, word: str, ours: str) -> None:
    kind = Finetuning if recipe in LESSONS else Pretraining
    overrides = [word] if not word.startswith("model.") or kind is Pretraining else ["model.kind=bert", word]
    with pytest.raises(RecipeError, match=f"unknown setting; it is `{re.escape(ours)}` here"):
        run.load(kind, recipe, overrides)
