"""Choices read from data: templates, metrics, groups, tasks of lm-evaluation-harness as it scores them; refusals."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kit.language_models import elmo_made, made
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.measure.evaluation.recipe import named
from ordsmed.measure.likelihood import harness, templates, ways
from ordsmed.measure.likelihood.probe import Finding
from ordsmed.measure.probes.choices import Choices, ChoicesRecord
from ordsmed.measure.probes.minimal_pairs import MinimalPairs
from ordsmed.weights.formats.huggingface import HuggingFace

ROWS = [
    {"goal": "the newt swam", "sol1": "under it", "sol2": "on the old mat", "label": 0},
    {"goal": "a red cat", "sol1": "and a dog ran", "sol2": "sat", "label": 1},
    {"goal": "it", "sol1": "ran", "sol2": "swam under the red mat and ran", "label": 1},
    {"goal": "the old dog ", "sol1": "sat on it .", "sol2": "sat on the cat .", "label": 0},
    {"goal": "the dogs ran on " * 11, "sol1": "it", "sol2": "a mat", "label": 0},
]
PIQA: dict[str, Any] = {"text": "Question: {{goal}}\nAnswer:", "choices": "{{[sol1, sol2]}}", "right": "label"}


def jsonl(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def scored(trained: Any, probe: Any) -> tuple[list[Any], Finding]:
    scorer = ways.scorer(trained, probe.way, probe.prefers)
    examples = list(probe.examples(scorer))
    scores = iter(scorer.scores([item for example in examples for item in example.items], best=probe.best))
    records = [probe.record(example, [next(scores) for _ in example.items]) for example in examples]
    return records, probe.finding(records)


def probe_of(path: Path, rows: list[Any], **settings: Any) -> Choices:
    return Choices(files=(str(jsonl(path, rows)),), **settings)


def test_an_ending_is_scored_behind_its_context(tmp_path: Path) -> None:
    """Sums, means a character, byte and token, and sums less those behind nothing, of what the model says by hand."""
    trained = made("gpt2", tmp_path / "gpt2")
    rows = [*ROWS[:3], {"goal": "a dog", "sol1": "rän", "sol2": "sat", "label": "1"}]
    metrics = ("acc", "acc_norm", "acc_bytes", "acc_tokens", "acc_mutual_info")
    probe = probe_of(
        tmp_path / "x.jsonl", rows, metrics=metrics, text="goal", choices="{{[sol1, sol2]}}", right="label"
    )
    records, finding = scored(trained, probe)
    scorer = ways.scorer(trained)
    for row, record in zip(rows, records, strict=True):
        for key, option in zip(("sol1", "sol2"), record.options, strict=True):
            context, whole, alone = scorer.cut([row["goal"], f"{row['goal']} {row[key]}", f" {row[key]}"])
            logs = scorer.scores([replace(whole, first=1, sign=False), alone])  # no start token before a context
            ending = logs[0].logs[len(context) - 1 :]
            assert option[0] == pytest.approx(ending.sum(), abs=1e-5)
            assert option[1:4] == [len(row[key]), len(row[key].encode()), len(ending)]
            assert option[4] == pytest.approx(logs[1].total, abs=1e-5)
    values = [
        lambda log, *_: log,
        lambda log, characters, *_: log / characters,
        lambda log, _, size, *__: log / size,
        lambda log, _, __, tokens, ___: log / tokens,
        lambda log, _, __, ___, alone: log - alone,
    ]
    for metric, value in zip(metrics, values, strict=True):
        right = [
            (value(*second) > value(*first)) == gold[0]
            for gold, (first, second) in ((row.right, row.options) for row in records)
        ]
        assert finding.facts[metric] == pytest.approx(100 * sum(right) / len(rows))
    assert finding.guessing == dict.fromkeys(metrics, 50.0)
    assert probe.as_line(records[3])["line"] == 4


def test_each_metric_divides_by_its_own() -> None:
    metrics = ("acc", "acc_norm", "acc_bytes", "acc_tokens", "acc_mutual_info")
    probe = Choices(choices="c", right=0, metrics=metrics)
    marks = probe.marks(ChoicesRecord("", "x:1", [0], 0, [[-6.0, 6, 1, 3, -1.0], [-4.0, 2, 4, 1, -9.0]]))
    assert marks == dict(zip(metrics, (False, True, False, True, False), strict=True))
    assert templates.text("a {{b}}\n", {"b": "c"}, "x") == "a c\n"


def test_minimal_pairs_are_choices_behind_nothing(tmp_path: Path) -> None:
    rows = [{"good": "the newt swam", "bad": "the newts swam"}, {"good": "it ran", "bad": "it ran and ran"}]
    trained = made("gpt2", tmp_path / "gpt2")
    probe = probe_of(tmp_path / "x.jsonl", rows, choices="{{[good, bad]}}", right=0, delimiter="")
    records, finding = scored(trained, probe)
    pairs, wanted = scored(trained, MinimalPairs(probe.files))
    assert [[option[0] for option in record.options] for record in records] == [record.scores for record in pairs]
    assert finding.facts["acc"] == wanted.facts["accuracy"]


@pytest.mark.parametrize("family", ["bert", "electra", "hybrid", "elmo"])
def test_every_family_is_asked(family: str, tmp_path: Path) -> None:
    trained = elmo_made(tmp_path / "elmo") if family == "elmo" else made(family, tmp_path / family)
    records, finding = scored(trained, probe_of(tmp_path / "x.jsonl", ROWS[:4], **PIQA | {"text": "goal"}))
    assert finding.facts["examples"] == len(records) == 4
    assert all(option[0] < 0 for record in records for option in record.options)


def test_contexts_are_chosen_by_a_common_ending(tmp_path: Path) -> None:
    """As WinoGrande is scored."""
    rows = [{"s": "_ swam under it", "a": "the newt", "b": "the old cat", "answer": "2"}]
    settings = {"choices": "{{[a, b]}}", "right": "{{answer|int - 1}}", "ending": "{{s[2:]}}"}
    [record], _ = scored(made("gpt2", tmp_path / "gpt2"), probe_of(tmp_path / "x.jsonl", rows, **settings))
    assert record.right == [1]
    assert [option[3] for option in record.options] == [3, 3]  # the ending's tokens, behind either context
    with pytest.raises(ValueError, match="ending: found with a text"):
        probe_of(tmp_path / "x.jsonl", rows, **settings, text="s")


def test_groups_and_files(tmp_path: Path) -> None:
    """Examples of a group count together in the error; each file is one, where none is named."""
    trained = made("gpt2", tmp_path / "gpt2")
    one, other = jsonl(tmp_path / "one.jsonl", ROWS[:2]), jsonl(tmp_path / "other.jsonl", ROWS[2:4])
    records, finding = scored(trained, Choices(files=(str(one), str(other)), **PIQA))
    assert [record.group for record in records] == ["one", "one", "other", "other"]
    assert finding.facts["groups"] == 2
    assert finding.tables[0][0] == "by group"
    records, _ = scored(trained, Choices(files=(str(one),), group="{{goal[:2]}}", **PIQA))
    assert [record.group for record in records] == ["th", "a "]


def test_equal_choices_are_ties_of_which_the_first_counts(tmp_path: Path) -> None:
    rows = [{"c": ["a cat", "a cat"], "right": 0}, {"c": ["a cat", "a cat"], "right": 1}]
    records, finding = scored(
        made("gpt2", tmp_path / "g"), probe_of(tmp_path / "x.jsonl", rows, choices="c", right="right")
    )
    assert finding.facts["acc"] == 50
    assert finding.note == "2 examples with several likeliest choices: the first counts"
    assert [len(record.options) for record in records] == [2, 2]


def test_tables_of_every_kind_are_read_alike(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")

    rows = [{**row, "goal": row["goal"].strip()} for row in ROWS[:4]]
    paths = [jsonl(tmp_path / "x.jsonl", rows)]
    for name, comma in (("x.csv", ","), ("x.tsv", "\t")):
        lines = [comma.join(map(str, row)) for row in (rows[0], *(row.values() for row in rows))]
        (tmp_path / name).write_text("\n".join(lines) + "\n")
        paths.append(tmp_path / name)
    (tmp_path / "x.json").write_text(json.dumps(rows, indent=1))
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "x.parquet")
    scorer = ways.scorer(made("gpt2", tmp_path / "gpt2"))
    asked = []
    for path in (*paths, tmp_path / "x.json", tmp_path / "x.parquet"):
        examples = Choices(files=(str(path),), **PIQA).examples(scorer)
        asked.append([([item.pieces.tolist() for item in example.items], example.about[4:]) for example in examples])
    assert asked[0] == asked[1] == asked[2] == asked[3] == asked[4]


TASK = """
files = "x.jsonl"
text = "{{goal}}"
choices = "{{[sol1, sol2]}}"
right = "label"
metrics = ["acc_norm"]
"""


def test_a_task_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Explicit settings, also defaults, take precedence over the task file; only used settings change the key."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "piqa.toml").write_text(TASK)
    jsonl(tmp_path / "other.jsonl", ROWS)
    [probe] = named([["choices", "file=piqa.toml"]])
    assert (probe.files, probe.text, probe.metrics, probe.delimiter) == (("x.jsonl",), "{{goal}}", ("acc_norm",), " ")
    (tmp_path / "piqa.toml").write_text(f'{TASK}\ndelimiter = ""')
    [probe] = named([["choices", "other.jsonl", "file=piqa.toml", 'delimiter=" "', 'metrics=["acc"]']])
    assert (probe.files, probe.delimiter, probe.metrics) == (("other.jsonl",), " ", ("acc",))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"choices": None}, "choices: missing; wanted a field or a template, here or in a task"),
        ({"right": None}, "right: missing"),
        ({"metrics": ["f1"]}, "x.toml: metrics: found ['f1']"),
        ({"txt": "goal"}, "x.toml: txt: unknown setting; did you mean `text`?"),
        ({"text": "{{goal"}, "x.toml: text: `{{goal`: "),
    ],
)
def test_a_task_that_is_none_is_refused(
    change: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    table = {"files": ["x.jsonl"], **PIQA, **change}
    lines = (f"{key} = {json.dumps(value)}" for key, value in table.items() if value is not None)
    Path("x.toml").write_text("\n".join(lines) + "\n")
    with pytest.raises(RecipeError) as error:
        named([["choices", "file=x.toml"]])
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("row", "settings", "said"),
    [
        ({"goal": "a"}, {}, ":1: `{{[sol1, sol2]}}`: 'sol1' is undefined; wanted fields of the row (goal)"),
        ({"sol1": "a", "sol2": "", "goal": "b", "label": 0}, {}, ":1: `{{[sol1, sol2]}}` is ['a', '']; wanted two or"),
        ({"sol1": "a", "sol2": "b", "goal": "b", "label": 2}, {}, ":1: `label` is 2; wanted a number from 0 to 1"),
        ({"sol1": "a", "sol2": "b", "goal": "b", "label": "c"}, {}, ":1: `label` is 'c'; wanted a number from 0 to 1"),
        ({"goal": "1", "sol1": "a", "sol2": "b", "label": 0}, {"text": "goal"}, ":1: the text is 1; wanted words"),
        ({"goal": 1, "sol1": "a", "sol2": "b", "label": 0}, {"text": "goal"}, ":1: `goal` is 1; wanted a text"),
        ({"goal": "a", "sol1": "a " * 40, "sol2": "b", "label": 0}, {"text": ""}, "has 40 tokens; wanted at most"),
        ({"goal": "a", "sol1": "\ud800", "sol2": "b", "label": 0}, {"text": ""}, ":1: invalid UTF-8 at character 1"),
        ({"x": [1]}, {"text": "{{x.__class__.__base__.__subclasses__()}}"}, "access to attribute '__class__'"),
    ],
)
def test_rows_that_hold_no_choice_are_refused(row: Any, settings: Any, said: str, tmp_path: Path) -> None:
    full = row if "goal" in row or "x" not in row else {"goal": "a", "sol1": "a", "sol2": "b", "label": 0, **row}
    probe = probe_of(tmp_path / "x.jsonl", [full], **{**PIQA, **settings})
    with pytest.raises(DataError) as error:
        list(probe.examples(ways.scorer(made("gpt2", tmp_path / "gpt2"))))
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_right_ones(tmp_path: Path) -> None:
    choices = ["no", "yes", "may be"]
    for value, wanted in ((1, [1]), ("yes", [1]), ("2", [2]), ([0, 2], [0, 2]), ("[0, 2]", [0, 2]), (True, [1])):
        assert templates.numbers("gold", choices, {"gold": value}, "x") == wanted
    assert templates.numbers(2, choices, {}, "x") == [2]


YAML = """
task: local
dataset_path: json
dataset_kwargs: {data_files: {validation: DATA}}
validation_split: validation
output_type: multiple_choice
"""
HARNESS = {
    "piqa": ("piqa/piqa.yaml", ROWS),
    "sciq": (
        "sciq/sciq.yaml",
        [
            {
                "support": "  the newt swam .",
                "question": "who swam",
                "distractor1": "a cat",
                "distractor2": "it",
                "distractor3": "the dogs",
                "correct_answer": "the newt",
            },
            {
                "support": "",
                "question": "who ran",
                "distractor1": "an old mat",
                "distractor2": "a newt",
                "distractor3": "the pond and the mat",
                "correct_answer": "it",
            },
        ],
    ),
    "arc": (
        "arc/arc_easy.yaml",
        [
            {
                "question": "who ran",
                "choices": {"text": ["a dog", "the mat", "it"], "label": ["A", "B", "C"]},
                "answerKey": "C",
            },
            {
                "question": "who swam",
                "choices": {"text": ["a newt", "a mat", "the red pond"], "label": ["1", "2", "3"]},
                "answerKey": "1",
            },
        ],
    ),
    "openbookqa": (
        "openbookqa/openbookqa.yaml",
        [
            {
                "question_stem": "the cat sat on",
                "choices": {"text": ["it", "the mat"], "label": ["A", "B"]},
                "answerKey": " B",
            }
        ],
    ),
    "boolq": (
        "super_glue/boolq/default.yaml",
        [
            {"passage": "a dog ran .", "question": "who ran", "label": 1},
            {"passage": "it", "question": "it", "label": 0},
        ],
    ),
    "blimp": (
        "blimp/adjunct_island.yaml",
        [
            {"sentence_good": "the newt swam under it", "sentence_bad": "the newts swam under it"},
            {"sentence_good": "it ran and ran", "sentence_bad": "it ran"},
        ],
    ),
}


@pytest.mark.parametrize("task", HARNESS)
def test_its_tasks_are_read_as_they_are(task: str, tmp_path: Path) -> None:
    lm_eval = pytest.importorskip("lm_eval", reason="lm_eval is not installed: pip install -e .[dev]")
    name, rows = HARNESS[task]
    path = Path(lm_eval.__path__[0]) / "tasks" / name
    records, finding = scored(made("gpt2", tmp_path / "gpt2"), probe_of(tmp_path / "x.jsonl", rows, file=str(path)))
    assert len(records) == finding.facts["examples"] == len(rows)
    assert "acc" in finding.facts
    with pytest.raises(RecipeError, match=r"its data is `\S+` of the Hugging Face hub; wanted local files"):
        Choices(file=str(path))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("hellaswag/hellaswag.yaml", "hellaswag.yaml: process_docs: is the Python function utils.process_docs"),
        ("winogrande/default.yaml", "default.yaml: doc_to_text: is the Python function preprocess_winogrande.doc_to_t"),
        ("lambada/lambada_openai.yaml", "lambada_openai.yaml: is a task of `loglikelihood`; wanted output_type: multi"),
    ],
)
def test_what_cannot_be_read_is_one_line(name: str, said: str) -> None:
    lm_eval = pytest.importorskip("lm_eval", reason="lm_eval is not installed: pip install -e .[dev]")
    with pytest.raises(RecipeError) as error:
        Choices(files=("x.jsonl",), file=str(Path(lm_eval.__path__[0]) / "tasks" / name))
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("num_fewshot: 5", "num_fewshot: found 5; wanted 0"),
        ("gen_prefix: So", "gen_prefix: is not supported"),
        ("metric_list: [{metric: f1}]", "metrics: found ['f1']"),
        ("doc_to_text: [", "cannot be read: while parsing"),
        ("include: x.yaml", "includes itself"),
        ("dataset_path: of/hub", "dataset_kwargs: names no local files"),
    ],
)
def test_keys_that_would_change_a_number_are_refused(more: str, said: str, tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    path = tmp_path / "x.yaml"
    body = "doc_to_text: goal\ndoc_to_choice: ['no', 'yes']\ndoc_to_target: label\n"
    path.write_text(f"{YAML}{body}{more}\n")
    with pytest.raises(RecipeError) as error:
        Choices(file=str(path))
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_task_of_theirs_names_local_data_and_includes(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    (tmp_path / "base").write_text(YAML.replace("DATA", "x.jsonl"))
    path = tmp_path / "x.yaml"
    path.write_text("include: base\ndoc_to_text: goal\ndoc_to_choice: {a: 'no', b: 'yes'}\ndoc_to_target: label\n")
    probe = Choices(file=str(path))
    assert (probe.files, probe.choices, probe.metrics) == (("x.jsonl",), ("no", "yes"), ("acc",))
    assert harness.read(path, {"files", "text"}).keys() == {"choices", "right", "metrics"}


def local_task(folder: Path, name: str, rows: list[Any], body: str) -> Path:
    """A YAML task over a local file."""
    data = jsonl(folder / f"{name}.jsonl", rows)
    path = folder / f"{name}.yaml"
    text = YAML.replace("DATA", str(data)).replace("task: local", f"task: {name}")
    metrics = "".join(
        f"  - {{metric: {metric}, aggregation: mean, higher_is_better: true}}\n" for metric in ("acc", "acc_norm")
    )
    path.write_text(f"{body}{text}metric_list:\n{metrics}")
    return path


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_the_harness_finds_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores of every ending, and accuracies, of four of its own tasks over local data, and of a description."""
    lm_eval = pytest.importorskip("lm_eval", reason="lm_eval is not installed: pip install -e .[dev]")
    pytest.importorskip("lm_eval.models.huggingface")
    from lm_eval.tasks import TaskManager

    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TQDM_DISABLE"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    trained, model = made("gpt2", tmp_path / "run"), tmp_path / "gpt2"
    for folder in (model, tmp_path / "tasks"):
        folder.mkdir()
    HuggingFace().write(trained, model)
    tasks = Path(lm_eval.__path__[0]) / "tasks"
    paths = {}
    for name in ("piqa", "sciq", "arc", "blimp"):
        of, rows = HARNESS[name]
        paths[name] = local_task(tmp_path / "tasks", f"local_{name}", rows * 3, f"include: {tasks / of}\n")
    text = "doc_to_text: '{{goal}}:'\ndescription: \"the newt: \"\ntarget_delimiter: ''\n"
    paths["described"] = local_task(
        tmp_path / "tasks", "local_described", ROWS, text + "doc_to_choice: '{{[sol2, sol1]}}'\ndoc_to_target: label\n"
    )
    for path in paths.values():
        extra = "dataset_name: null\ntraining_split: null\ntest_split: null\ntag: []\n"
        path.write_text(path.read_text() + extra)
    manager = TaskManager(include_path=str(tmp_path / "tasks"), include_defaults=False)
    result: Any = lm_eval.simple_evaluate(
        "hf",
        model_args={"pretrained": str(model), "dtype": "float32", "add_bos_token": False},
        tasks=[f"local_{name}" for name in paths],
        batch_size=2,
        device="cpu",
        task_manager=manager,
        bootstrap_iters=10,
        log_samples=True,
    )
    for name, path in paths.items():
        records, finding = scored(trained, Choices(file=str(path)))
        samples = sorted(result["samples"][f"local_{name}"], key=lambda sample: sample["doc_id"])
        wanted = [[float(answer[0][0]) for answer in sample["resps"]] for sample in samples]
        for record, logs in zip(records, wanted, strict=True):
            assert [option[0] for option in record.options] == pytest.approx(logs, abs=1e-4)
        found = result["results"][f"local_{name}"]
        assert finding.facts["acc"] == pytest.approx(100 * found["acc,none"])
        assert finding.facts["acc_norm"] == pytest.approx(100 * found["acc_norm,none"])
        assert finding.errors["acc"] == pytest.approx(100 * found["acc_stderr,none"])
    assert len({round(found["acc,none"], 3) for found in result["results"].values()}) > 1


def test_a_task_file_that_is_missing() -> None:
    with pytest.raises(
        RecipeError, match=r"nowhere\.toml: no such file; wanted a task file \(TOML or YAML\); docs/eval"
    ):
        Choices(file="nowhere.toml")
