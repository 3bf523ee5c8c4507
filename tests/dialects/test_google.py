"""Google's command lines: where each flag goes, compared with tables written by hand."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from kit.dialects import called, changes, resolved
from ordsmed.base.arguments import UsageError
from ordsmed.base.errors import DataError
from ordsmed.translate import perform
from ordsmed.translate.program import find

CODE = "google"
CONFIG = {
    "attention_probs_dropout_prob": 0.2, "hidden_act": "gelu", "hidden_dropout_prob": 0.3, "hidden_size": 32,
    "initializer_range": 0.05, "intermediate_size": 48, "max_position_embeddings": 64, "num_attention_heads": 2,
    "num_hidden_layers": 3, "type_vocab_size": 2, "vocab_size": 99,
}  # fmt: skip
P, E, F = "pretrain: ", "encode: ", "finetune: "


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With a bert_config.json and a vocabulary beside it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bert_config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n")
    return tmp_path


BASE = ["--bert_config_file=bert_config.json", "--input_file=a.tfrecord,b*", "--output_dir=o"]
FLAGS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "--input_file": (["=c.tfrecord"], {E + "records": ["c.tfrecord"]}),
    "--output_dir": (["=p"], {P + "out": "p"}),
    "--init_checkpoint": (["=ckpt"], {P + "init": "ckpt"}),
    "--max_seq_length": (["=32"], {P + "phase[1].length": 32}),
    "--do_eval": (["=true"], {P + "validation_rows": 800}),
    "--max_eval_steps": (["=4", "--do_eval"], {P + "validation_rows": 32}),
    "--train_batch_size": (["=8"], {P + "phase[1].batch": 8}),
    "--learning_rate": (["=0.1"], {P + "phase[1].rate": 0.1}),
    "--num_train_steps": (["=20000"], {P + "phase[1].steps": 20_000}),
    "--num_warmup_steps": (["=7"], {P + "phase[1].warmup": 7.0}),
    "--save_checkpoints_steps": (["=70"], {P + "save": 70}),
}
CLASS_BASE = ["--do_train", "--task_name=MRPC", "--data_dir=d", "--init_checkpoint=i", "--output_dir=o"]
CLASSES: dict[str, tuple[list[str], dict[str, Any]]] = {
    "--vocab_file": (["=v"], {"tokenizer: tokenizer.kind": "wordpiece", "tokenizer: tokenizer.file": "v",
                              "tokenizer: tokenizer.lowercase": True}),
    "--do_lower_case": (["=false", "--vocab_file=v"], {
        "tokenizer: tokenizer.kind": "wordpiece", "tokenizer: tokenizer.file": "v",
        "tokenizer: tokenizer.lowercase": False}),
    "--init_checkpoint": (["=j"], {F + "init": "j"}),
    "--output_dir": (["=p"], {F + "out": "p"}),
    "--train_batch_size": (["=8"], {F + "batch": 8}),
    "--learning_rate": (["=0.1"], {F + "rate": 0.1}),
    "--num_train_epochs": (["=4"], {F + "epochs": 4.0}),
    "--warmup_proportion": (["=0.2"], {F + "warmup": 0.2}),
    "--save_checkpoints_steps": (["=70"], {F + "save": 70}),
    "--data_dir": (["=e"], {F + "task.train": "e/train.tsv"}),
    "--task_name": (["=RTE"], {F + "task.name": "rte"}),
    "--max_seq_length": (["=64"], {F + "task.length": 64}),
    "--do_eval": ([], {F + "task.dev": "d/dev.tsv"}),
}  # fmt: skip
QUESTION_BASE = ["--do_train", "--train_file=t.json", "--init_checkpoint=i", "--output_dir=o"]
QUESTIONS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "--train_file": (["=u.json"], {F + "task.train": "u.json"}),
    "--predict_file": (["=p.json", "--do_predict"], {F + "task.dev": "p.json"}),
    "--max_seq_length": (["=96"], {F + "task.length": 96}),
    "--doc_stride": (["=32"], {F + "task.stride": 32}),
    "--max_query_length": (["=20"], {F + "task.longest_question": 20}),
    "--n_best_size": (["=9"], {F + "task.n_best": 9}),
    "--max_answer_length": (["=12"], {F + "task.longest_answer": 12}),
    "--version_2_with_negative": ([], {F + "task.version": "2.0"}),
    "--null_score_diff_threshold": (["=-1.5"], {F + "task.threshold": -1.5}),
}


def flags_of(name: str) -> set[str]:
    return {flag.name for flag in find(CODE, name).flags if flag.goes}


def test_every_flag_is_in_a_table() -> None:
    assert flags_of("run_pretraining.py") - {"--bert_config_file"} == set(FLAGS)
    assert flags_of("run_classifier.py") - {"--do_train", "--do_predict"} == set(CLASSES)
    assert flags_of("run_squad.py") - flags_of("run_classifier.py") <= set(QUESTIONS)


@pytest.mark.parametrize(
    ("name", "least", "flag", "words", "wanted"),
    [
        *(("run_pretraining.py", BASE, flag, *FLAGS[flag]) for flag in FLAGS),
        *(("run_classifier.py", CLASS_BASE, flag, *CLASSES[flag]) for flag in CLASSES),
        *(("run_squad.py", QUESTION_BASE, flag, *QUESTIONS[flag]) for flag in QUESTIONS),
    ],
)
def test_a_flag_arrives(
    folder: Path, name: str, least: list[str], flag: str, words: list[str], wanted: dict[str, Any]
) -> None:
    value = [flag + words[0], *words[1:]] if words and words[0].startswith("=") else [flag, *words]
    got = changes(CODE, name, least, *value)
    assert got == {key: pytest.approx(one) if isinstance(one, float) else one for key, one in wanted.items()}


def test_the_network_is_that_of_the_config(folder: Path) -> None:
    got = resolved(CODE, "run_pretraining.py", *BASE)
    wanted = {"kind": "bert", "width": 32, "layers": 3, "heads": 2, "inner": 48, "positions": 64, "dropout": 0.3,
              "attention_dropout": 0.2, "spread": 0.05}  # fmt: skip
    assert {key: got[f"{P}model.{key}"] for key in wanted} == wanted
    assert (got[P + "objective.examples"], got[P + "optimizer.flavour"]) == ("masked", "bert")
    assert (got[P + "phase[1].schedule.since"], got[E + "tokenizer"]) == ("jump", "vocab.txt")


def test_records_of_a_folder_are_read_from_it(folder: Path) -> None:
    (folder / "made").mkdir()
    (folder / "made" / "vocab.txt").write_text("a")
    got = resolved(CODE, "run_pretraining.py", *BASE, "--input_file=made")
    assert (got[E + "records"], got[E + "tokenizer"]) == (["made/*tfrecord*"], "made/vocab.txt")


def test_records_are_made_of_texts(folder: Path) -> None:
    words = ["--input_file=a.txt,b.txt", "--output_file=o", "--vocab_file=v", "--nodo_lower_case", "--dupe_factor=5",
             "--do_whole_word_mask"]  # fmt: skip
    call = called(CODE, "create_pretraining_data.py", *words)
    assert call.recipes["tokenizer"]["tokenizer"] == {"kind": "wordpiece", "file": "v", "lowercase": False}
    assert call.recipes["corpus"]["source"] == {"kind": "text", "path": ["a.txt", "b.txt"]}
    said = "o mlm_nsp hide=0.15 short=0.1 unit=word --length 128 --times 5 --seed 12345"
    own = perform.words(find(CODE, "create_pretraining_data.py"), call)
    assert own == ["encode", "records", "work/as/o/encode.toml", *said.split()]


def test_a_model_that_stands_predicts(folder: Path) -> None:
    least = [word for word in CLASS_BASE if word != "--do_train"]
    assert called(CODE, "run_classifier.py", *least, "--do_predict").words == [
        "o", "d/test.tsv", "o/predictions", "--anew"]  # fmt: skip
    assert called(CODE, "run_classifier.py", *least, "--do_eval").words[-1] == "--scores"
    squad = ["--init_checkpoint=i", "--output_dir=o", "--predict_file=p.json", "--do_predict"]
    assert called(CODE, "run_squad.py", *squad).words == ["o", "p.json", "o/predictions", "--anew"]


@pytest.mark.parametrize(
    ("name", "words", "said"),
    [
        ("run_pretraining.py", BASE[:2], "no --output_dir"),
        ("run_pretraining.py", [*BASE, "--do_train=perhaps"], "found perhaps; wanted True or False"),
        ("run_classifier.py", [*CLASS_BASE, "--task_name=XNLI"], "found XNLI; wanted cola"),
        ("run_classifier.py", CLASS_BASE[1:], "--do_train: missing"),
        ("run_squad.py", QUESTION_BASE[1:], "no --predict_file"),
        ("create_pretraining_data.py", [], "no --input_file"),
    ],
)  # fmt: skip
def test_wrong_words(folder: Path, name: str, words: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        called(CODE, name, *words)


def test_a_vocabulary_that_is_nowhere(folder: Path) -> None:
    (folder / "vocab.txt").unlink()
    with pytest.raises(UsageError, match=r"no vocab.txt in"):
        called(CODE, "run_pretraining.py", *BASE)
    (folder / "bert_config.json").unlink()
    with pytest.raises(DataError, match=r"bert_config.json"):
        called(CODE, "run_pretraining.py", *BASE)
