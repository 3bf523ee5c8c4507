"""Google's command lines: targets of each flag, compared with tables written by hand."""

from __future__ import annotations

import errno
import json
import os
import random
import re
from pathlib import Path
from typing import Any

import pytest

from kit.dialects import called, changes, resolved
from ordsmed import cli
from ordsmed.base.arguments import UsageError
from ordsmed.base.errors import DataError
from ordsmed.others.dialects.google import move_records, write_classes, write_scores, write_validation
from ordsmed.others.translate import perform
from ordsmed.others.translate.program import find

CODE = "google"
CONFIG = {
    "attention_probs_dropout_prob": 0.2,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.3,
    "hidden_size": 32,
    "initializer_range": 0.05,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "num_attention_heads": 2,
    "num_hidden_layers": 3,
    "type_vocab_size": 2,
    "vocab_size": 99,
}
P, E, F = "pretrain: ", "encode: ", "finetune: "


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write bert_config.json with a vocabulary next to it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bert_config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n")
    return tmp_path


BASE = ["--do_train", "--bert_config_file=bert_config.json", "--input_file=a.tfrecord,b*", "--output_dir=o"]
FLAGS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "--input_file": (["=c.tfrecord"], {E + "records": ["c.tfrecord"]}),
    "--output_dir": (["=p"], {P + "out": "p"}),
    "--init_checkpoint": (["=ckpt"], {P + "init": "ckpt"}),
    "--max_seq_length": (["=32"], {P + "phase[1].length": 32}),
    "--do_eval": (["=true"], {P + "validation_rows": 800, E + "validation_records": ["a.tfrecord", "b*"]}),
    "--eval_batch_size": (
        ["=5", "--do_eval"],
        {P + "validation_rows": 500, E + "validation_records": ["a.tfrecord", "b*"]},
    ),
    "--max_eval_steps": (
        ["=4", "--do_eval"],
        {P + "validation_rows": 32, E + "validation_records": ["a.tfrecord", "b*"]},
    ),
    "--train_batch_size": (["=8"], {P + "phase[1].batch": 8}),
    "--learning_rate": (["=0.1"], {P + "phase[1].learning_rate": 0.1}),
    "--num_train_steps": (["=20000"], {P + "phase[1].steps": 20_000}),
    "--num_warmup_steps": (["=7"], {P + "phase[1].warmup": 7.0}),
    "--save_checkpoints_steps": (["=70"], {P + "save": 70}),
}
CLASS_BASE = ["--do_train", "--task_name=MRPC", "--data_dir=d", "--init_checkpoint=i", "--output_dir=o"]
CLASSES: dict[str, tuple[list[str], dict[str, Any]]] = {
    "--vocab_file": (
        ["=v"],
        {
            "tokenizer: tokenizer.kind": "wordpiece",
            "tokenizer: tokenizer.file": "v",
            "tokenizer: tokenizer.lowercase": True,
        },
    ),
    "--do_lower_case": (
        ["=false", "--vocab_file=v"],
        {
            "tokenizer: tokenizer.kind": "wordpiece",
            "tokenizer: tokenizer.file": "v",
            "tokenizer: tokenizer.lowercase": False,
        },
    ),
    "--init_checkpoint": (["=j"], {F + "init": "j"}),
    "--output_dir": (["=p"], {F + "out": "p"}),
    "--train_batch_size": (["=8"], {F + "batch": 8}),
    "--learning_rate": (["=0.1"], {F + "learning_rate": 0.1}),
    "--num_train_epochs": (["=4"], {F + "epochs": 4.0}),
    "--warmup_proportion": (["=0.2"], {F + "warmup": 0.2}),
    "--save_checkpoints_steps": (["=70"], {F + "save": 70}),
    "--data_dir": (["=e"], {F + "task.train": "e/train.tsv"}),
    "--task_name": (["=RTE"], {F + "task.name": "rte"}),
    "--max_seq_length": (["=64"], {F + "task.length": 64}),
    "--do_eval": ([], {F + "task.dev": "d/dev.tsv"}),
}
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


@pytest.mark.parametrize(("theirs", "ours"), [("gelu", "gelu_tanh"), ("relu", "relu")])
def test_the_network_of_a_configuration(folder: Path, theirs: str, ours: str) -> None:
    """Its `gelu` is the tanh approximation, with which its published weights were trained."""
    (folder / "bert_config.json").write_text(json.dumps(CONFIG | {"hidden_act": theirs, "pooler_fc_size": 768}))
    got = resolved(CODE, "run_pretraining.py", *BASE)
    wanted = {
        "kind": "bert",
        "width": 32,
        "layers": 3,
        "heads": 2,
        "inner": 48,
        "positions": 64,
        "dropout": 0.3,
        "attention_dropout": 0.2,
        "initializer_std": 0.05,
        "activation": ours,
    }
    assert {key: got[f"{P}model.{key}"] for key in wanted} == wanted


def test_every_flag_is_in_a_table() -> None:
    assert flags_of("run_pretraining.py") - {"--bert_config_file", "--do_train"} == set(FLAGS)
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


DEVICES = {
    "--use_tpu": "true",
    "--tpu_name": "x",
    "--tpu_zone": "x",
    "--gcp_project": "x",
    "--master": "x",
    "--num_tpu_cores": "4",
    "--iterations_per_loop": "5",
}
LEARNING = {"--bert_config_file": "c", "--predict_batch_size": "4", **DEVICES}
IDLE = {  # of each program
    "run_pretraining.py": (BASE, {"--max_predictions_per_seq": "5", **DEVICES}),
    "run_classifier.py": (CLASS_BASE, {"--eval_batch_size": "4", **LEARNING}),
    "run_squad.py": (QUESTION_BASE, {"--verbose_logging": "true", **LEARNING}),
}


@pytest.mark.parametrize("name", IDLE)
def test_what_does_nothing_says_so(folder: Path, name: str) -> None:
    """Test every flag that is in no other table."""
    least, flags = IDLE[name]
    for flag, value in flags.items():
        assert not changes(CODE, name, least, f"{flag}={value}")
        assert any(flag in note for note in called(CODE, name, *least, f"{flag}={value}").notes)
    assert set(flags) == {flag.name for flag in find(CODE, name).flags if flag.nothing}
    assert not [flag.name for flag in find(CODE, name).flags if flag.refused]


def test_the_network_is_that_of_the_config(folder: Path) -> None:
    got = resolved(CODE, "run_pretraining.py", *BASE)
    wanted = {
        "kind": "bert",
        "width": 32,
        "layers": 3,
        "heads": 2,
        "inner": 48,
        "positions": 64,
        "dropout": 0.3,
        "attention_dropout": 0.2,
        "initializer_std": 0.05,
    }
    assert {key: got[f"{P}model.{key}"] for key in wanted} == wanted
    assert (got[P + "objective.examples"], got[P + "optimizer.variant"]) == ("masked", "bert")
    assert (got[P + "phase[1].schedule.since"], got[E + "tokenizer"]) == ("jump", "vocab.txt")


def test_records_of_a_folder_are_read_from_it(folder: Path) -> None:
    (folder / "made").mkdir()
    (folder / "made" / "vocab.txt").write_text("a")
    got = resolved(CODE, "run_pretraining.py", *BASE, "--input_file=made")
    assert (got[E + "records"], got[E + "tokenizer"]) == (["made/*tfrecord*"], "made/vocab.txt")


def test_records_are_made_of_texts(folder: Path) -> None:
    words = [
        "--input_file=a.txt,b.txt",
        "--output_file=to/o,to/p",
        "--vocab_file=v",
        "--nodo_lower_case",
        "--dupe_factor=5",
        "--do_whole_word_mask",
    ]
    call = called(CODE, "create_pretraining_data.py", *words)
    assert call.recipes["tokenizer"]["tokenizer"] == {"kind": "wordpiece", "file": "v", "lowercase": False}
    assert call.recipes["corpus"]["source"] == {"kind": "text", "path": ["a.txt", "b.txt"]}
    how = "mlm_nsp mask_prob=0.15 most=20 short=0.1 unit=word --length 128 --times 5 --seed 12345 --files 2 --anew"
    own = perform.words(find(CODE, "create_pretraining_data.py"), call)
    assert own == ["encode", "records", "work/as/to-o/encode.toml", "work/as/to-o/records", *how.split()]


def test_a_network_that_lacks_a_key(folder: Path) -> None:
    (folder / "few.json").write_text('{"hidden_size": 8}')
    with pytest.raises(DataError, match=r"^few\.json: has no 'num_hidden_layers'"):
        called(CODE, "run_pretraining.py", *BASE, "--bert_config_file=few.json")


def test_records_may_lie_on_another_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, target = tmp_path / "made", tmp_path / "to" / "o"
    made.mkdir()
    for name in ("a.tfrecord", "vocab.txt"):
        (made / name).write_text(name)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    for name in ("rename", "replace"):
        monkeypatch.setattr(os, name, refuse)
    move_records(made, [target])
    assert (target.read_text(), (target.parent / "vocab.txt").read_text()) == ("a.tfrecord", "vocab.txt")
    assert [path.name for path in made.iterdir()] == ["vocab.txt"]


RECORD_FLAGS = {  # each with a value other than the default, and the words that it changes
    "--max_seq_length": ("64", "--length 64"),
    "--max_predictions_per_seq": ("5", "most=5"),
    "--masked_lm_prob": ("0.05", "mask_prob=0.05"),
    "--short_seq_prob": ("0.2", "short=0.2"),
    "--dupe_factor": ("3", "--times 3"),
    "--random_seed": ("7", "--seed 7"),
    "--do_whole_word_mask": ("true", "unit=word"),
    "--do_lower_case": ("false", ""),
    "--input_file": ("b", ""),
    "--output_file": ("x", "work/as/x/records"),
    "--vocab_file": ("w", ""),
}


@pytest.mark.parametrize("flag", RECORD_FLAGS)
def test_a_flag_of_records_arrives(folder: Path, flag: str) -> None:
    value, more = RECORD_FLAGS[flag]
    least = ["--input_file=a", "--output_file=o", "--vocab_file=v"]
    before, after = (called(CODE, "create_pretraining_data.py", *least, *words) for words in ([], [f"{flag}={value}"]))
    new = [word for word in after.words if word not in before.words]
    assert sorted(new) == sorted(word for word in more.split() if not word.startswith("--"))
    assert (after.recipes != before.recipes) == (more == "")
    assert flags_of("create_pretraining_data.py") == set(RECORD_FLAGS)


def test_a_model_that_stands_predicts(folder: Path, tiny_run: Any) -> None:
    """The model in --output_dir predicts; if there is none, that of --init_checkpoint, here a folder."""
    least = [word for word in CLASS_BASE if word != "--do_train"]
    assert called(CODE, "run_classifier.py", *least, "--do_predict", "--max_seq_length=9").words == [
        "i",
        "d/test.tsv",
        "o/predicted",
        "--anew",
        "task.length=9",
        'task.name="mrpc"',
    ]
    both = called(CODE, "run_classifier.py", *least, "--do_eval", "--do_predict", "--task_name=MNLI")
    how = ["task.length=128", 'task.name="mnli"']
    assert [one.words for one in (both, *both.then)] == [
        ["i", "d/dev_matched.tsv", "o/judged", "--anew", *how, "--scores"],
        ["i", "d/test_matched.tsv", "o/predicted", "--anew", *how],
    ]
    trained = called(CODE, "run_classifier.py", *CLASS_BASE, "--do_predict")
    assert trained.verb == "finetune"
    assert [one.words[0] for one in trained.then] == ["o"]
    for init in (str(tiny_run.bert), f"{tiny_run.bert}/model.ckpt-343"):
        squad = [f"--init_checkpoint={init}", "--output_dir=o", "--predict_file=p.json", "--do_predict"]
        words = [str(tiny_run.bert), "p.json", "o/predictions", "--anew"]
        assert called(CODE, "run_squad.py", *squad).words[:4] == words
    squad = [*squad[:1], f"--output_dir={tiny_run.gpt2}", *squad[2:]]
    assert called(CODE, "run_squad.py", *squad).words[0] == str(tiny_run.gpt2)


def test_xnli_is_chinese(folder: Path) -> None:
    """Files may be where the original's code reads them, or as they were published."""
    words = [*CLASS_BASE, "--task_name=XNLI", "--do_eval"]
    got = resolved(CODE, "run_classifier.py", *words)
    wanted = {"name": "xnli", "language": "zh", "train": "d/multinli/multinli.train.zh.tsv", "dev": "d/xnli.dev.tsv"}
    assert {key: got[f"{F}task.{key}"] for key in wanted} == wanted
    for name in ("XNLI-MT-1.0/multinli/multinli.train.zh.tsv", "XNLI-1.0/xnli.dev.tsv"):
        (folder / "d" / name).parent.mkdir(parents=True)
        (folder / "d" / name).touch()
    got = resolved(CODE, "run_classifier.py", *words)
    assert [got[f"{F}task.{key}"] for key in ("train", "dev")] == [
        "d/XNLI-MT-1.0/multinli/multinli.train.zh.tsv",
        "d/XNLI-1.0/xnli.dev.tsv",
    ]
    asked = called(CODE, "run_classifier.py", *words[1:]).words
    assert asked == [
        "i",
        "d/XNLI-1.0/xnli.dev.tsv",
        "o/judged",
        "--anew",
        "task.length=128",
        'task.name="xnli"',
        'task.language="zh"',
        "--scores",
    ]


def test_a_model_that_stands_is_asked_as_the_flags_say() -> None:
    """The README's second call for SQuAD 2.0 gives the threshold of the first; settings may follow the flags."""
    squad = ["--init_checkpoint=i", "--output_dir=o", "--predict_file=p.json", "--do_predict"]
    flags = [
        "--max_seq_length=96",
        "--doc_stride=32",
        "--max_query_length=16",
        "--n_best_size=5",
        "--max_answer_length=12",
        "--version_2_with_negative",
        "--null_score_diff_threshold=-1.5",
    ]
    said = called(CODE, "run_squad.py", *squad, *flags, "task.lowercase=true").words[4:]
    assert said == [
        "task.length=96",
        "task.stride=32",
        "task.longest_question=16",
        "task.n_best=5",
        "task.longest_answer=12",
        "task.threshold=-1.5",
        'task.version="2.0"',
        'task.search="tops"',
        "task.lowercase=true",
    ]


def test_a_checkpoint_of_a_run_begins_another(folder: Path) -> None:
    """Only the weights are used, because the original reads no optimizer state."""
    (folder / "out" / "weights").mkdir(parents=True)
    (folder / "out" / "status.json").write_text('{"verb": "pretrain", "step": 20}')
    got = changes(CODE, "run_pretraining.py", BASE, "--init_checkpoint=out/model.ckpt-20")
    assert got == {P + "init": "out/weights"}
    for name, files in (
        ("run_classifier.py", ["--task_name=CoLA", "--data_dir=d"]),
        ("run_squad.py", ["--train_file=t.json"]),
    ):
        words = [*files, "--do_train", "--init_checkpoint=out/model.ckpt-20", "--output_dir=o"]
        assert resolved(CODE, name, *words)[F + "init"] == "out/weights"


def test_files_that_their_scripts_look_for(tmp_path: Path) -> None:
    """Scores have the original's names, order and range 0 to 1; classes are sorted by name."""
    lines = [
        {"step": 3, "validation": 9.0, "mlm": 8.0, "mlm_right": 0.5, "pair": 1.0, "pair_right": 0.25},
        {"step": 4, "validation": 3.0, "mlm": 2.5, "mlm_right": 0.5, "pair": 0.5, "pair_right": 0.75},
        {"step": 5, "loss": 1.0},
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    write_validation(tmp_path)
    assert (tmp_path / "eval_results.txt").read_text() == (
        "global_step = 4\nloss = 3.0\nmasked_lm_accuracy = 0.5\nmasked_lm_loss = 2.5\n"
        "next_sentence_accuracy = 0.75\nnext_sentence_loss = 0.5\n"
    )
    (tmp_path / "scores.json").write_text('{"step": 2, "accuracy": 75.0, "validation": 0.5, "guessing": {}}')
    write_scores(tmp_path / "new", tmp_path / "scores.json")
    assert (tmp_path / "new" / "eval_results.txt").read_text() == (
        "eval_accuracy = 0.75\neval_loss = 0.5\nglobal_step = 2\nloss = 0.5\n"
    )
    (tmp_path / "predicted").mkdir()
    for odd in ("", "\u2028", "\x85", "\x0b"):  # in a file's name, or a class's: they end no line
        table = (
            f"line\tpredicted\tgold\tneutral\tcontra{odd}diction\n{odd}2\tneutral\t\t0.7\t0.3\n3\tneutral\t\t0.6\t0.4\n"
        )
        (tmp_path / "predicted" / "predictions.tsv").write_text(table)
        write_classes(tmp_path)
        assert (tmp_path / "test_results.tsv").read_text() == "0.3\t0.7\n0.4\t0.6\n"


@pytest.mark.parametrize(
    ("name", "words", "said"),
    [
        ("run_pretraining.py", BASE[:3], "no --output_dir"),
        ("run_pretraining.py", [*BASE, "--do_train=perhaps"], "found perhaps; wanted True or False"),
        ("run_classifier.py", [*CLASS_BASE, "--task_name=SST-3"], "found SST-3; wanted cola"),
        ("run_classifier.py", [*CLASS_BASE, "--task_name=XNLI", "--do_predict"], "--do_predict: found with XNLI"),
        ("run_pretraining.py", BASE[1:], "--do_train: missing, and --do_eval"),
        ("run_pretraining.py", [*BASE[1:], "--do_eval"], "--do_eval: found without --do_train"),
        ("run_classifier.py", CLASS_BASE[1:], "--do_train: missing"),
        ("run_squad.py", [*QUESTION_BASE, "--do_predict"], "no --predict_file"),
        ("run_squad.py", QUESTION_BASE[1:], "--do_train: missing"),
        ("create_pretraining_data.py", [], "no --input_file"),
    ],
)
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


@pytest.mark.long
def test_the_commands_of_their_readme(folder: Path) -> None:
    """A complete tiny run: records, pretraining, a task and questions; it writes the original's files."""
    draws = random.Random(1)
    words = ["the", "cat", "sat", "on", "a", "mat", "while", "rain", "fell", "over", "old", "red", "roofs"]

    def sentence(count: int) -> str:
        return " ".join(draws.choices(words, k=count))

    def run(program: str, flags: str) -> None:
        cli.main(["as", CODE, program, *flags.split()])

    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", *words]) + "\n")
    (folder / "bert_config.json").write_text(json.dumps(CONFIG | {"vocab_size": 6 + len(words)}))
    (folder / "s.txt").write_text("\n\n".join("\n".join(sentence(7) for _ in range(6)) for _ in range(40)) + "\n")
    run(
        "create_pretraining_data.py",
        "--input_file=./s.txt --output_file=tf/examples.tfrecord --vocab_file=vocab.txt "
        "--do_lower_case=True --max_seq_length=32 --max_predictions_per_seq=5 --masked_lm_prob=0.15 "
        "--random_seed=12345 --dupe_factor=2",
    )
    assert sorted(os.listdir("tf")) == ["examples.tfrecord", "vocab.txt"]
    run(
        "run_pretraining.py",
        "--input_file=tf/examples*.tfrecord --output_dir=pre --do_train=True --do_eval=True "
        "--bert_config_file=bert_config.json --train_batch_size=8 --max_seq_length=32 --max_predictions_per_seq=5 "
        "--num_train_steps=4 --num_warmup_steps=1 --learning_rate=2e-5 --max_eval_steps=2",
    )
    assert (folder / "pre" / "eval_results.txt").read_text().startswith("global_step = 4\nloss = ")
    longer = called(CODE, "run_pretraining.py", *BASE[:2], "--input_file=tf/examples*.tfrecord", "--output_dir=other")
    with pytest.raises(UsageError, match=r"found 128; the records of tf/examples\.tfrecord have 32 tokens; wanted 32"):
        longer.before[0]()
    (folder / "MRPC").mkdir()
    for name, count in (("train", 16), ("dev", 6), ("test", 5)):
        rows = [f"{n % 2}\t{n}\t{n}\t{sentence(5)}\t{sentence(5)}" for n in range(count)]
        label = "index" if name == "test" else "Quality"
        head = f"{label}\t#1 ID\t#2 ID\t#1 String\t#2 String"
        (folder / "MRPC" / f"{name}.tsv").write_text("\n".join([head, *rows]) + "\n")
    common = "--vocab_file=vocab.txt --bert_config_file=bert_config.json --num_train_epochs=1.0 --max_seq_length=32"
    run(
        "run_classifier.py",
        f"--task_name=MRPC --do_train=true --do_eval=true --do_predict=true {common} "
        "--data_dir=MRPC --init_checkpoint=pre --train_batch_size=8 --output_dir=mrpc",
    )
    assert "global_step = 2\n" in (folder / "mrpc" / "eval_results.txt").read_text()
    results = (folder / "mrpc" / "test_results.tsv").read_text()
    run(
        "run_classifier.py",
        f"--task_name=MRPC --do_predict=true --data_dir=MRPC {common} "
        "--init_checkpoint=mrpc/model.ckpt-343 --output_dir=more",
    )
    assert (folder / "more" / "test_results.tsv").read_text() == results
    assert results.count("\n") == 5
    context = sentence(12)
    asked = [
        {"id": str(n), "question": sentence(3), "answers": [{"text": context.split()[0], "answer_start": 0}]}
        for n in range(8)
    ]
    squad = {"version": "1.1", "data": [{"title": "t", "paragraphs": [{"context": context, "qas": asked}]}]}
    (folder / "squad.json").write_text(json.dumps(squad))
    run(
        "run_squad.py",
        f"--do_train=True --train_file=squad.json --do_predict=True {common} "
        "--predict_file=squad.json --init_checkpoint=pre --train_batch_size=4 "
        "--doc_stride=16 --max_query_length=8 --output_dir=squad/",
    )
    assert set(json.loads((folder / "squad" / "predictions.json").read_text())) == set("01234567")
    assert (folder / "squad" / "nbest_predictions.json").is_file()
