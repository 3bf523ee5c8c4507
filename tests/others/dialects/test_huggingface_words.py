"""transformers' run_ner: its flags, its input files of words and tags, and its output files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kit.dialects import called, changes, resolved
from ordsmed.base.arguments import UsageError
from ordsmed.base.errors import DataError, OrdsmedError
from ordsmed.cli import main
from ordsmed.others.translate import tagged_words
from ordsmed.others.translate.program import find

CODE, NER, F = "huggingface", "run_ner.py", "finetune: "
BASE = ["--do_train", "--train_file=w.conll", "--model_name_or_path=b"]
OBJECTS = [
    {"id": "0", "tokens": ["Newts", "swim"], "ner_tags": ["B-ANIMAL", "O"], "pos_tags": ["NOUN", "VERB"]},
    {"id": "1", "tokens": [], "ner_tags": [], "pos_tags": []},
    {"id": "2", "tokens": ["In", "New York"], "ner_tags": ["O", "B-PLACE"], "pos_tags": ["ADP", "PROPN"]},
]
CONLL = "Newts\tB-ANIMAL\nswim\tO\n\nIn\tO\nNew York\tB-PLACE\n\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write the same sentences in two formats."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "w.conll").write_text(CONLL)
    (tmp_path / "v.conll").write_text(CONLL)
    (tmp_path / "w.json").write_text("".join(json.dumps(one) + "\n" for one in OBJECTS))
    return tmp_path


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["--train_file=v.conll"], {F + "task.train": "v.conll"}),
        (["--max_seq_length=64"], {F + "task.length": 64}),
        (["--validation_file=v.conll", "--do_eval", "--eval_strategy=epoch"], {F + "task.dev": "v.conll"}),
        (["--model_name_or_path=c", "--tokenizer_name=tok"], {F + "init": "c", F + "tokenizer": "tok"}),
        (["--learning_rate=0.1", "--num_train_epochs=5"], {F + "learning_rate": 0.1, F + "epochs": 5.0}),
        (["--per_device_train_batch_size=4"], {F + "batch": 4, F + "layout.micro": 4}),
    ],
)
def test_a_flag_arrives(folder: Path, words: list[str], wanted: dict[str, Any]) -> None:
    assert changes(CODE, NER, BASE, *words) == wanted


def test_what_theirs_leaves_unsaid(folder: Path) -> None:
    got = resolved(CODE, NER, *BASE)
    wanted = {
        "task.kind": "tag",
        "task.column": -1,
        "task.length": 512,
        "epochs": 3.0,
        "learning_rate": 5e-5,
        "freeze": False,
    }
    assert {key: got[F + key] for key in wanted} == wanted
    kinds = {flag.name for flag in find(CODE, NER).flags}
    assert {"--text_column_name", "--label_all_tokens", "--return_entity_level_metrics", "--deepspeed"} < kinds


@pytest.mark.parametrize(
    ("words", "tags"),
    [
        ([], ["B-ANIMAL", "O", "O", "B-PLACE"]),
        (["--task_name=POS"], ["NOUN", "VERB", "ADP", "PROPN"]),
        (["--label_column_name=pos_tags", "--text_column_name=tokens"], ["NOUN", "VERB", "ADP", "PROPN"]),
    ],
)
def test_an_object_a_sentence_becomes_conll(folder: Path, words: list[str], tags: list[str]) -> None:
    call = called(CODE, NER, "--do_train", "--train_file=w.json", "--model_name_or_path=b", *words)
    target = Path(call.recipes["finetune"]["task"]["train"])
    assert not target.exists(), "before anything is performed"
    for step in call.before:
        step()
    first, second = (text.splitlines() for text in target.read_text().split("\n\n")[:2])
    assert [line.split("\t")[1] for line in (*first, *second)] == tags
    before = target.stat().st_mtime_ns
    call.before[0]()
    assert target.stat().st_mtime_ns == before, "features of it go on to fit"


def test_a_list_on_one_line_is_taken(folder: Path) -> None:
    (folder / "w.json").write_text(json.dumps(OBJECTS))
    got = resolved(CODE, NER, "--do_train", "--train_file=w.json", "--model_name_or_path=b")
    assert got[F + "task.train"].endswith("/w.conll")


@pytest.mark.parametrize("indent", [None, 1])
def test_a_list_is_as_good_as_lines(tmp_path: Path, indent: int | None) -> None:
    (tmp_path / "w.json").write_text(json.dumps(OBJECTS, indent=indent))
    tagged_words.as_conll(tmp_path / "w.json", tmp_path / "x" / "w.conll", "tokens", "ner_tags")
    assert (tmp_path / "x" / "w.conll").read_text() == CONLL
    tagged_words.write_predictions(tmp_path / "p.txt", [tmp_path / "x" / "w.conll"])
    assert (tmp_path / "p.txt").read_text() == "B-ANIMAL O\nO B-PLACE\n"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"tokens": ["a"], "ner_tags": []}', "found 1 in `tokens` and 0 in `ner_tags`; wanted a tag per word"),
        ('{"tokens": "a b", "ner_tags": ["O"]}', "has no list `tokens`"),
        ('{"tokens": ["a", " "], "ner_tags": ["O", "O"]}', "`tokens` contains ' '"),
        ('{"tokens": ["a"], "ner_tags": ["O\\tO"]}', "`ner_tags` contains"),
        ("{", "is not JSON"),
        (r'{"tokens": ["a\ud800"], "ner_tags": ["O"]}', r"is not JSON \(half a surrogate pair, \\ud800\)"),
    ],
)
def test_files_that_are_wrong(tmp_path: Path, line: str, said: str) -> None:
    (tmp_path / "w.json").write_text(json.dumps(OBJECTS[0]) + "\n" + line)
    with pytest.raises(DataError, match=rf"w\.json:2: {said}"):
        tagged_words.as_conll(tmp_path / "w.json", tmp_path / "w.conll", "tokens", "ner_tags")
    assert not (tmp_path / "w.conll").exists()


def test_a_list_without_its_end(tmp_path: Path) -> None:
    (tmp_path / "w.json").write_text("[" + json.dumps(OBJECTS[0]))
    with pytest.raises(DataError, match=r"w\.json: is not JSON \(.*; wanted a list of objects, or an object per line"):
        tagged_words.as_conll(tmp_path / "w.json", tmp_path / "w.conll", "tokens", "ner_tags")


def test_a_line_ends_where_json_has_its_end(tmp_path: Path) -> None:
    (tmp_path / "w.json").write_text('{"tokens": ["a\u2028b"], "ner_tags": ["O"]}\n', encoding="utf-8")
    tagged_words.as_conll(tmp_path / "w.json", tmp_path / "w.conll", "tokens", "ner_tags")
    assert (tmp_path / "w.conll").read_text(encoding="utf-8") == "a\u2028b\tO\n\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--do_train"], "--train_file: missing"),
        (["--do_eval"], "--validation_file: missing; wanted a file, because of --do_eval"),
        (["--do_predict"], "--test_file: missing"),
        ([], "--do_train: missing, as are --do_eval"),
        (["--do_train", "--train_file=a.csv"], "a.csv: is CSV"),
        (["--do_train", "--train_file=w.json", "--label_column_name=ner_tag"], "did you mean `ner_tags`"),
        (["--do_train", "--train_file=w.json", "--text_column_name=words"], "found words; wanted one of id, tokens"),
        (["--do_train", "--train_file=none.json"], "none.json: no such file"),
        (["--do_train", "--train_file=w.conll", "--label_all_tokens"], "belongs to its first token"),
        (["--do_train", "--dataset_name=conll2003"], "nothing is downloaded"),
    ],
)
def test_wrong_words(folder: Path, words: list[str], said: str) -> None:
    (folder / "a.csv").write_text("tokens,ner_tags\n")
    with pytest.raises(OrdsmedError) as told:
        called(CODE, NER, "--model_name_or_path=b", *words)
    assert said in str(told.value)
    assert issubclass(UsageError, OrdsmedError)


@pytest.mark.long
def test_tags_leave_what_theirs_leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores are between 0 and 1, predictions.txt has a sentence per line, and transformers opens the folder."""
    monkeypatch.chdir(tmp_path)
    words = ["the", "cat", "sat", "on", "mat", "rain"]
    (tmp_path / "bert").mkdir()
    config = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    transformers = pytest.importorskip("transformers")
    transformers.BertModel(transformers.BertConfig(vocab_size=11, **config)).save_pretrained(tmp_path / "bert")
    (tmp_path / "bert" / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words, ""]))
    rows = [
        {"tokens": words[n % 3 :], "ner_tags": ["B-X" if w == "cat" else "O" for w in words[n % 3 :]]}
        for n in range(12)
    ]
    (tmp_path / "w.json").write_text("".join(json.dumps(one) + "\n" for one in rows))
    main(
        [
            "as",
            CODE,
            NER,
            "--model_name_or_path=bert",
            "--train_file=w.json",
            "--validation_file=w.json",
            "--test_file=w.json",
            "--do_train",
            "--do_eval",
            "--do_predict",
            "--use_cpu",
            "--max_steps=4",
            "--output_dir=out",
        ]
    )
    whole = json.loads((tmp_path / "out" / "all_results.json").read_text())
    assert {"eval_precision", "eval_recall", "eval_f1", "eval_accuracy", "predict_f1", "train_samples"} <= set(whole)
    assert not [name for name in whole if "strict" in name]
    assert 0 <= whole["eval_accuracy"] <= 1
    lines = (tmp_path / "out" / "predictions.txt").read_text().splitlines()
    assert [len(line.split()) for line in lines] == [len(row["tokens"]) for row in rows]
    assert {tag for line in lines for tag in line.split()} <= {"B-X", "O"}
    model = transformers.AutoModelForTokenClassification.from_pretrained(tmp_path / "out")
    assert set(model.config.id2label.values()) == {"B-X", "O"}
