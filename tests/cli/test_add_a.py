"""The files of docs/add-a run as they are printed; wrong ones are refused in a line, before anything is made."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from kit.language_models import hub_folder, made
from kit.makers import synthetic_text
from ordsmed import cli
from ordsmed.base import menu, offers, settings
from ordsmed.base.arguments import Parser, UsageError
from ordsmed.base.errors import RecipeError
from ordsmed.base.launch import site
from ordsmed.base.ranks import ProcessInfo
from ordsmed.learn.objective import fresh
from ordsmed.machines.doctor import doctor
from ordsmed.machines.suite import items
from ordsmed.measure.likelihood import ways
from ordsmed.measure.probes.choices import Choices
from ordsmed.serve.batcher import Batcher
from ordsmed.serve.call import ServedCall, Service
from ordsmed.serve.models import ServedModels
from ordsmed.tell.report import send
from ordsmed.train.pretrain.recipe import Pretraining

INDEX = Path(__file__).parents[2] / "docs/add-a.md"
PAGES = sorted(INDEX.with_suffix("").glob("*.md"))
TEXT = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
BLOCK = r"(?:(?: {4}.*)?\n)+"
BLOCKS = {
    name: textwrap.dedent(text).strip() + "\n"
    for name, text in re.findall(rf"^(?:In )?`((?:my_lab|src)/\S+)`:\n\n({BLOCK})", TEXT, re.M)
}
FILES = {name: text for name, text in BLOCKS.items() if name.startswith("my_lab/")}
COMMANDS = [line.strip() for line in re.findall(r"^ {4}ordsmed .*", INDEX.read_text(encoding="utf-8"), re.M)]


@pytest.fixture(autouse=True)
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a user, a space in its name, with every file of the page."""
    folder = tmp_path / "a lab"
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] in ("my_lab", "broken")]:
        del sys.modules[name]


def run(*words: str) -> None:
    cli.main(words)


def write_poems() -> None:
    Path("poems").mkdir()
    for number, text in enumerate(synthetic_text(30).split("\n\n")):
        name = "one" if not number else f"{number:03d}"
        Path(f"poems/{name}.txt").write_text(f"Poem {number}\n" + text.replace(". ", ".\n") + "\n", encoding="utf-8")


def test_the_index_lists_every_page() -> None:
    links = re.findall(r"\(add-a/([\w-]+)\.md\)", INDEX.read_text(encoding="utf-8"))
    assert sorted(links) == [page.stem for page in PAGES]


def test_the_pages_have_a_file_of_every_kind() -> None:
    kinds = re.findall(
        r'^(?:kind = |clean = \[|callbacks = \[|sentences = )"(my_lab\.\w+)', "\n".join(FILES.values()), re.M
    )
    kinds += ["my_lab.rhymes", "my_lab.endings"]  # of the command line
    assert {f"my_lab/{kind.split('.')[1]}.py" for kind in kinds} == {name for name in FILES if name.endswith(".py")}
    assert len(set(kinds)) == 11


def test_a_probe_is_asked_what_its_task_says() -> None:
    """Titles and brackets are taken out, as lm-evaluation-harness's own HellaSwag does."""
    probe = Choices(files=("my_lab/like_hellaswag.jsonl",), file="my_lab/hellaswag.toml")
    questions = [(question.choices, question.about[2]) for question in probe.questions()]
    assert questions == [
        ([("Pond: A newt. It", " sings"), ("Pond: A newt. It", " swims")], [1]),
        ([("Tea: The pot. A cup", " is full"), ("Tea: The pot. A cup", " sings")], [0]),
    ]


def test_a_probe_of_choices_scores_both_endings(tmp_path: Path) -> None:
    """Of three poems: which line each is given, what is kept, and the share of right ones next to guessing."""
    poems = {"a": "it ran\nthe cat sat", "b": "it swam\nthe newt swam", "c": "it sat\non a mat"}
    for name, text in poems.items():
        (tmp_path / f"{name}.txt").write_text(text)
    probe = menu.load("probes", "my_lab.endings")(files=(str(tmp_path / "*.txt"),))
    scorer = ways.scorer(made("gpt2", tmp_path / "gpt2"), probe.way, probe.prefers)
    examples = list(probe.examples(scorer))
    records = [probe.record(example, scorer.scores(list(example.items))) for example in examples]
    assert [[ending for _, ending in question.choices] for question in probe.questions()] == [
        ["\nthe cat sat", "\nthe newt swam"],
        ["\nthe newt swam", "\non a mat"],
        ["\non a mat", "\nthe cat sat"],
    ]
    right = [probe.as_line(record)["accuracy"] for record in records]
    finding = probe.finding(records)
    assert (finding.facts["accuracy"], finding.guessing["accuracy"]) == (pytest.approx(100 * sum(right) / 3), 50)


def test_an_objective_of_the_page_is_learned_alone(capsys: pytest.CaptureFixture[str]) -> None:
    write_poems()
    phase = "phase=[{steps=2,length=32,batch=8,learning_rate=1e-3}]"
    run("pretrain", "my_lab/every.toml", "data=my_lab/encode.toml", "model.size=tiny", phase)
    assert "step 2: validation loss " in capsys.readouterr().err
    run("fill", "work/pretrain/every", "The [MASK] sings.")
    assert "  [MASK]: " in capsys.readouterr().out


def test_a_cleaning_step_of_the_page_is_a_table_with_settings(capsys: pytest.CaptureFixture[str]) -> None:
    Path("texts").mkdir()
    Path("texts/one.txt").write_text("The smith sings.\n\n" + "The smith sings of soft\xadness again and again.\n")
    run("corpus", "my_lab/clean-texts.toml")
    (part,) = Path("work/corpus/clean-texts/train").glob("*.jsonl")
    assert (
        json.loads(part.read_text(encoding="utf-8"))["text"].strip() == "The smith sings of softness again and again."
    )


@pytest.mark.long
def test_the_pages_work_from_end_to_end(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every command of the index, in its order: corpus to scores."""
    write_poems()
    Path("moods.txt").write_text("glad: The smith sings.\nsad: The kettle is old.\n" * 6)
    said = {}
    for command in COMMANDS:
        capsys.readouterr()
        run(*shlex.split(command)[1:])
        said[command.removeprefix("ordsmed ")] = capsys.readouterr().out
    assert "          the folder\n" in said["menus corpora my_lab.poems"]
    assert "in total: 20 steps" in said["pretrain my_lab/means.toml --dry-run"]
    lines = [json.loads(line) for line in Path("work/pretrain/means/weights.jsonl").read_text().splitlines()]
    assert [(line["step"], len(line["counts"])) for line in lines] == [(10, 20), (20, 20)]
    assert re.search(r"validation at step 20: loss \d\.\d+\n", said["show work/pretrain/means"])
    assert "  [MASK]: " in said['fill work/pretrain/means "The [MASK] sings."']
    assert "words x 64 numbers" in said["embed work/pretrain/means poems/one.txt vectors.npz"]
    assert "accuracy" in said["evaluate work/finetune/moods"]
    [probed] = (text for command, text in said.items() if "--probe choices" in command)
    assert re.search(r"\| means.*\| choices \(masked\) +\| like_hellaswag.jsonl +\| acc_norm ", probed)
    assert "my_lab.rhymes (masked)" in said["evaluate work/pretrain/means --probe my_lab.rhymes poems"]
    [asked] = (text for command, text in said.items() if "my_lab.endings" in command)
    assert re.search(r"\| my_lab.endings \(masked\) .*\| accuracy ", asked)
    lines = [json.loads(line) for line in Path("endings.jsonl").read_text().splitlines()]
    assert [sorted(line) for line in lines] == [["accuracy", "file", "other", "own"]] * 30
    assert "gpu*       A100  4" in said["sites my_lab/cluster.toml"]
    corpus = "".join(p.read_text() for p in Path("work/corpus/corpus").rglob("*.jsonl"))
    assert "Poem" not in re.sub(r'"title": ?"[^"]*"', "", corpus)  # the title is no text
    with pytest.raises(SystemExit):
        run("export", "work/pretrain/means", "out")
    err = capsys.readouterr().err
    assert err.startswith("ordsmed: work/pretrain/means: is a my_lab.means: no format can hold it; ")
    assert err.count("\n") == 1
    assert not Path("out").exists()


def house(name: str) -> ModuleType:
    """A module of one of the pages' files that go into a checkout."""
    module = sys.modules[f"my_lab.{Path(name).stem}"] = ModuleType(f"my_lab.{Path(name).stem}")
    exec(compile(BLOCKS[f"src/ordsmed/{name}"], name, "exec"), module.__dict__)
    return module


def test_the_dialect_of_the_page_makes_a_recipe() -> None:
    module = house("others/dialects/nanogpt.py")
    offers.check_names("dialects", module, "nanogpt", "page")
    [program] = module.PROGRAMS
    words = ["--data_dir", "work/encode/x", "--n_layer=2", "--n_head", "2", "--n_embd", "64", "--wandb_log=True"]
    call = program.translated(program.read(words, ProcessInfo(0, 1), {}))
    recipe = settings.decode(Pretraining, call.recipes["pretrain"], "page")
    assert (recipe.model.layers, recipe.model.width, recipe.phase[0].steps) == (2, 64, 600_000)
    assert recipe.phase[0].schedule.end == pytest.approx(0.1)
    assert call.notes == ["--wandb_log: not needed here: `ordsmed report RUN --to wandb` sends a run"]
    with pytest.raises(UsageError, match="--init_from: is not supported"):
        program.translated(program.read([*words, "--init_from=gpt2"], ProcessInfo(0, 1), {}))


def test_the_protocol_of_the_page_answers(tmp_path: Path) -> None:
    module = house("serve/protocols/loudest.py")
    offers.check_names("protocols", module, "loudest", "page")
    models = ServedModels.opened([f"newt={hub_folder('gpt2', tmp_path / 'newt')}"], {"device": "cpu"})
    service = Service(models, Batcher())
    service.batcher.start()
    [endpoint] = module.ENDPOINTS
    call = ServedCall(service, "newt", endpoint.read(b'{"text": "the old newt"}'))
    answer = asyncio.run(endpoint.run(call))
    service.batcher.close()
    words = models.find("newt").model.score("the old newt").words
    assert (answer.bits, answer.word) == max((word.bits, word.text) for word in words)


def test_the_judge_of_the_page_scores(tmp_path: Path) -> None:
    module = house("measure/judges/word_list.py")
    choice = menu.choice(module)
    offers.check("judges", "word_list", choice, "page")
    path = tmp_path / "nynorsk.words"
    path.write_text("eg\nikkje\nveit\n")
    assert choice.recognises(str(path))
    assert not choice.recognises(str(tmp_path))
    assert choice(str(path)).score("Eg veit det ikkje", "") == pytest.approx(3 / 4)


def test_the_tracker_of_the_page_writes_lines(tmp_path: Path) -> None:
    module = house("tell/trackers/lines.py")
    offers.check_names("trackers", module, "lines", "page")
    tracker = module.Tracker(send.Sending("lab", "bert", "0123456789", {}, 0.0, 0, tmp_path / "sent"))
    tracker.log(10, {"training/loss": 2.5}, 7.0)
    tracker.end({"f1": 90.0}, "done")
    lines = [json.loads(line) for line in (tmp_path / "sent/bert-0123.jsonl").read_text().splitlines()]
    assert lines == [{"step": 10, "time": 7.0, "training/loss": 2.5}, {"state": "done", "f1": 90.0}]


def test_the_verb_of_the_page_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module = house("cli/verbs/words.py")
    offers.check_names("verbs", module, "words", "page")
    (tmp_path / "a.txt").write_text("two words\n")
    parser = Parser("words", owners=lambda flag: "")
    module.arguments(parser)
    module.run(parser.read([str(tmp_path / "a.txt")]))
    assert capsys.readouterr().out == f"2 {tmp_path / 'a.txt'}\n2 in all\n"


@pytest.mark.parametrize(
    ("answer", "gpus", "state"),
    [("cc (Debian) 12\nmore", "none", "ok"), (None, "none", "absent"), (None, "NVIDIA", "warning")],
)
def test_the_check_of_the_page_says_what_it_finds(answer: str | None, gpus: str, state: str) -> None:
    module = house("machines/doctor/software.py")
    host: Any = SimpleNamespace(ask=lambda words: answer if words == ["cc", "--version"] else "", gpus=gpus)
    assert [outcome.state for outcome in doctor.examine(host, (module.compiler,))] == [state]


def test_the_item_of_the_page_is_asked(tmp_path: Path) -> None:
    module = house("machines/suite/items.py")
    [(item, case, outcome, _)] = items.run_items(items.Workplace(tmp_path / "work"), (module.sorting,))
    assert (item, case, outcome.state) == ("sorting", "stable", "ok")


def test_the_site_of_the_page_takes_a_job(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = site.Destination.find("my_lab/cluster.toml:gpu")
    assert (found.partition.gpu, found.partition.gpus) == ("A100", 4)


def change(name: str, old: str, new: str) -> None:
    path = Path(f"my_lab/{name}.py")
    assert old in path.read_text(encoding="utf-8")
    path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")


@pytest.mark.parametrize(
    ("of", "old", "new", "said"),
    [
        ("corpora poems", "def stamp", "def stomp", "Poems has no `stamp`; wanted `stamp()`"),
        ("corpora poems", "def size(self)", "def size(self, unit)", "Poems.size has other parameters"),
        ("corpora poems", "@dataclass(frozen=True)\n", "", "Poems is not a dataclass; wanted @dataclass(frozen=True)"),
        ("corpora poems", "frozen=True", "frozen=False", "Poems is not frozen; wanted @dataclass(frozen=True)"),
        ("corpora poems", "(Choice)", "", "has no such class; wanted one frozen dataclass that derives from"),
        ("corpora poems", "import Document", "import Documents", "cannot be imported: ImportError: cannot import name"),
        ("corpora poems", "from pathlib", "from pathlab", "cannot be imported: ModuleNotFoundError: No module named"),
        ("corpora poems", "path: str", "path: strr", "cannot be imported: NameError: name 'strr'"),
        ("corpora poems", "def size(self) -> int:", "def size(self) -> int", "cannot be imported: expected ':' ("),
        ("cleaners hyphens", "def clean", "def cleen", "Hyphens has no `clean`; wanted `clean(text, meta)`"),
        ("cleaners hyphens", ", meta: dict[str, Any]", "", "Hyphens.clean has other parameters"),
        ("tokenizers lower", "def load", "def lode", "Lower has no `load`; wanted `load()`"),
        ("models means", "def flops", "def flaps", "Means has no `flops`; wanted `flops(length)`"),
        ("models means", "def token_head", "def head", "Means has no `token_head`; wanted `token_head(model)`"),
        ("objectives every", "*key: object", "key: object", "Every.rows has other parameters"),
        ("objectives every", "stretch: Stretch", "strech: Stretch", "Every.rows has other parameters"),
        ("objectives every", "def build", "def bild", "Every has no `build`; wanted `build(model, tokenizer)`"),
        ("optimizers signs", "moments: ClassVar[int] = 0", "", "Signs has no `moments`"),
        ("tasks moods", "Sequence[str], *, learning: bool = False", "Sequence[str]", "Moods.records has other"),
    ],
)
def test_what_is_missing_is_one_line(
    capsys: pytest.CaptureFixture[str], of: str, old: str, new: str, said: str
) -> None:
    name, kind = of.split()
    if old == "*key: object":
        new = "key: object = 0" if new else new
        change(kind, "*key: object,\n        stretch", "stretch")
    else:
        change(kind, old, new)
    with pytest.raises(SystemExit) as stopped:
        run("menus", name, f"my_lab.{kind}")
    told = capsys.readouterr()
    assert (stopped.value.code, told.out, told.err.count("\n")) == (1, "", 1)
    assert told.err.startswith(f"ordsmed: menus: `my_lab.{kind}`")
    assert said in told.err


@pytest.mark.parametrize(
    ("of", "old", "new", "said"),
    [
        ("poems", "yield Document(text, ", "yield dict(", "poems: documents: TypeError: gives {'id': 'one.txt', "),
        (
            "poems",
            "yield Document(text, ",
            "yield Document(text.encode(), ",
            "poems: documents: TypeError: gives a Document whose",
        ),
        (
            "hyphens",
            "return ",
            "return 3 if text else ",
            "hyphens: one.txt: TypeError: gives 3, an int; wanted the cleaned text",
        ),
    ],
)
def test_what_gives_no_documents_is_one_line(
    capsys: pytest.CaptureFixture[str], of: str, old: str, new: str, said: str
) -> None:
    change(of, old, new)
    Path("poems").mkdir()
    Path("poems/one.txt").write_text("Poem\nThe smith sings.\n")
    with pytest.raises(SystemExit):
        run("corpus", "my_lab/corpus.toml")
    (told,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("ordsmed: ")]
    assert told.startswith(f"ordsmed: my_lab.{said}")
    assert told.endswith("; fix the source or step")


def test_where_a_module_is_looked_for(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [path for path in sys.path if not path.endswith("a lab")])
    for kind, said in (("my_lab.poems", "`export PYTHONPATH=$PWD`"), ("no_lab.poems", "put the folder above it on")):
        with pytest.raises(SystemExit):
            run("menus", "corpora", kind)
        err = capsys.readouterr().err
        assert err.startswith(f"ordsmed: menus: `{kind}`: No module named '{kind.split('.')[0]}'; wanted a module")
        assert said in err


@pytest.mark.parametrize(
    ("of", "old", "new", "said"),
    [
        ("every", "def count", "def cont", "`my_lab.every`: Guessing has no `count`; wanted `count(batch: "),
        ("every", "def forward", "def forwards", "`my_lab.every`: Guessing has no `forward`; wanted `forward(batch: "),
        ("every", ', {"every": 1.0}', ", {}", "`my_lab.every`: Guessing has no `self.weights`; wanted "),
        ("every", "self.model_settings, ", "self.settings, ", "`my_lab.every`: Guessing has no `self.model_settings`;"),
        ("every", "return Guessing(", "return str(", "`my_lab.every`: build() returns a str; wanted an ordsmed.learn."),
        (
            "means",
            "def forward(\n",
            "def forwards(\n",
            "`my_lab.means`: MeansModel has no `forward`; wanted `forward(tok",
        ),
        ("means", "def transform", "def transforms", "`my_lab.means`: Guess has no `transform`; wanted `transform("),
    ],
)
def test_networks_that_are_not_finished_are_one_line(of: str, old: str, new: str, said: str) -> None:
    """They are refused when they are built, which is before the first step, and by --dry-run."""
    change(of, old, new)
    model, learned = menu.load("models", "my_lab.means")(), menu.load("objectives", "my_lab.every")()
    tokenizer: Any = type("Words", (), {"vocabulary": 50})()
    if "str(" in new:
        change("every", "model, tokenizer.vocabulary", "tokenizer.vocabulary")
        for name in ("my_lab.every", "my_lab"):
            del sys.modules[name]
        learned = menu.load("objectives", "my_lab.every")()
    with pytest.raises(RecipeError) as error:
        fresh(learned, model, tokenizer, 0)
    assert str(error.value).startswith(said)


def test_what_an_objective_need_not_say() -> None:
    """A step's cost and the judgement of a validation follow from what it has."""
    import torch

    from ordsmed.data.batch import Batch

    model = menu.load("models", "my_lab.means")(width=8, layers=1, positions=4)
    tokenizer: Any = type("Words", (), {"vocabulary": 50})()
    made = fresh(menu.load("objectives", "my_lab.every")(), model, tokenizer, 0)
    assert made.flops(3, 4) == 3 * 3 * 4 * (2 * (4 * 64 + 4 * 8) + 2 * 8 * 50)
    row = torch.arange(4)[None]
    batch = Batch(torch.zeros(1).long(), row, row, row, torch.ones(1, 4))
    assert torch.equal(made.validate(batch)["every"], made(batch)["every"])
    assert made.state == {}
