"""Google's ELECTRA: targets of each flag and each key of --hparams, compared with tables written by hand."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from kit.dialects import called, differences, resolved
from ordsmed.base import files, run
from ordsmed.base.arguments import UsageError
from ordsmed.base.errors import DataError
from ordsmed.cli import main
from ordsmed.data.tokenizer_training import TokenizerTraining
from ordsmed.others.translate import page, perform
from ordsmed.others.translate.program import find

CODE = "electra"
LEAST = ["--data-dir", "d", "--model-name", "m"]
P, E, F, C, T = "pretrain: ", "encode: ", "finetune: ", "corpus: ", "tokenizer: tokenizer."
SCHEDULE, GENERATOR = P + "phase[1].schedule", P + "objective.generator."
RECORDS = "d/pretrain_tfrecords/pretrain_data.tfrecord*"
KEYS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # of pretraining
    "debug": (
        {"debug": True, "num_warmup_steps": 5},
        {
            P + "model.width": 144,
            P + "model.layers": 3,
            P + "model.inner": 576,
            GENERATOR + "width": 36,
            GENERATOR + "layers": 3,
            P + "phase[1].steps": 20,
            P + "phase[1].batch": 8,
            P + "phase[1].warmup": 5.0,
        },
    ),
    "gen_weight": ({"gen_weight": 2.0}, {P + "objective.guess_weight": 2.0}),
    "disc_weight": ({"disc_weight": 30}, {P + "objective.detect_weight": 30.0}),
    "mask_prob": ({"mask_prob": 0.25}, {P + "objective.mask_prob": 0.25}),
    "learning_rate": ({"learning_rate": 2e-4}, {P + "phase[1].learning_rate": 2e-4}),
    "lr_decay_power": ({"lr_decay_power": 0.5}, {SCHEDULE + ".kind": "polynomial", SCHEDULE + ".power": 0.5}),
    "weight_decay_rate": ({"weight_decay_rate": 0.1}, {P + "optimizer.decay": 0.1}),
    "num_warmup_steps": ({"num_warmup_steps": 7}, {P + "phase[1].warmup": 7.0}),
    "save_checkpoints_steps": ({"save_checkpoints_steps": 70}, {P + "save": 70}),
    "num_train_steps": ({"num_train_steps": 4e5}, {P + "phase[1].steps": 400_000}),
    "keep_checkpoint_max": ({"keep_checkpoint_max": None}, {P + "keep": 10**6}),
    "model_size": (
        {"model_size": "large"},
        {
            P + "model.width": 1024,
            P + "model.layers": 24,
            P + "model.heads": 16,
            P + "model.inner": 4096,
            P + "model.embedding": 1024,
            GENERATOR + "width": 256,
            GENERATOR + "layers": 24,
        },
    ),
    "model_hparam_overrides": (
        {"model_hparam_overrides": {"hidden_size": 128, "num_hidden_layers": 4, "hidden_dropout_prob": 0.2}},
        {
            P + "model.width": 128,
            P + "model.layers": 4,
            P + "model.heads": 2,
            P + "model.inner": 512,
            P + "model.dropout": 0.2,
            GENERATOR + "width": 32,
            GENERATOR + "layers": 4,
        },
    ),
    "embedding_size": ({"embedding_size": 64}, {P + "model.embedding": 64}),
    "do_lower_case": ({"do_lower_case": False}, {T + "lowercase": False}),
    "untied_generator_embeddings": ({"untied_generator_embeddings": True}, {P + "objective.share": "none"}),
    "untied_generator": (
        {"untied_generator": False},
        {P + "objective.share": "all", GENERATOR + "width": 0, GENERATOR + "layers": 0},
    ),
    "generator_layers": ({"generator_layers": 0.55}, {GENERATOR + "layers": 7}),
    "generator_hidden_size": ({"generator_hidden_size": 0.4993}, {GENERATOR + "width": 128}),
    "disallow_correct": ({"disallow_correct": True}, {P + "objective.never_right": True}),
    "temperature": ({"temperature": 0.9}, {P + "objective.temperature": 0.9}),
    "max_seq_length": ({"max_seq_length": 512}, {P + "phase[1].length": 512}),
    "train_batch_size": ({"train_batch_size": 256}, {P + "phase[1].batch": 256}),
    "do_eval": ({"do_eval": True}, {P + "validation_rows": 12800, E + "validation_records": RECORDS}),
    "num_eval_steps": (
        {"do_eval": True, "num_eval_steps": 3},
        {P + "validation_rows": 384, E + "validation_records": RECORDS},
    ),
    "eval_batch_size": (
        {"do_eval": True, "eval_batch_size": 5},
        {P + "validation_rows": 500, E + "validation_records": RECORDS},
    ),
    "pretrain_tfrecords": ({"pretrain_tfrecords": "r*"}, {E + "records": "r*"}),
    "vocab_file": ({"vocab_file": "v"}, {T + "file": "v"}),
    "model_dir": ({"model_dir": "o"}, {P + "out": "o"}),
}
SST, SQUAD = {"task_names": ["sst"]}, {"task_names": ["squad"]}
TASKS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {  # minimal arguments of fine-tuning
    "num_trials": (SST, {"num_trials": 2}, {F + "seeds": [1, 2], F + "out": "d/models/m/finetuning_models/sst_model"}),
    "model_size": (SST, {"model_size": "large"}, {F + "learning_rate": 5e-5, F + "layer_decay": 0.9}),
    "learning_rate": (SST, {"learning_rate": 3e-4}, {F + "learning_rate": 3e-4}),
    "weight_decay_rate": (SST, {"weight_decay_rate": 0.1}, {F + "optimizer.decay": 0.1}),
    "layerwise_lr_decay": (SST, {"layerwise_lr_decay": -1}, {F + "layer_decay": 1.0}),
    "num_train_epochs": (SST, {"num_train_epochs": 5}, {F + "epochs": 5.0}),
    "warmup_proportion": (SST, {"warmup_proportion": 0.2}, {F + "warmup": 0.2}),
    "save_checkpoints_steps": (SST, {"save_checkpoints_steps": 70}, {F + "save": 70}),
    "use_tfrecords_if_existing": (SST, {"use_tfrecords_if_existing": False}, {F + "features": ""}),
    "preprocessed_data_dir": (SST, {"preprocessed_data_dir": "x"}, {F + "features": "x"}),
    "max_seq_length": (SST, {"max_seq_length": 64}, {F + "task.length": 64}),
    "train_batch_size": (SST, {"train_batch_size": 8}, {F + "batch": 8}),
    "do_lower_case": (SST | {"vocab_file": "v"}, {"do_lower_case": False}, {T + "lowercase": False}),
    "init_checkpoint": (SST, {"init_checkpoint": "i"}, {F + "init": "i"}),
    "model_dir": (SST, {"model_dir": "o"}, {F + "out": "o_1"}),
    "double_unordered": ({"task_names": ["mrpc"]}, {"double_unordered": False}, {F + "task.unordered": False}),
    "max_query_length": (SQUAD, {"max_query_length": 20}, {F + "task.longest_question": 20}),
    "doc_stride": (SQUAD, {"doc_stride": 32}, {F + "task.stride": 32}),
    "n_best_size": (SQUAD, {"n_best_size": 9}, {F + "task.n_best": 9}),
    "max_answer_length": (SQUAD, {"max_answer_length": 12}, {F + "task.longest_answer": 12}),
    "answerable_weight": (SQUAD, {"answerable_weight": 0.7}, {F + "task.answerable_weight": 0.7}),
    "joint_prediction": (
        SQUAD,
        {"joint_prediction": False},
        {F + "task.head": "independent", F + "task.form": "nvidia", F + "task.beam": 5, F + "task.search": "tops"},
    ),
    "beam_size": (SQUAD, {"beam_size": 7}, {F + "task.beam": 7}),
    "qa_na_threshold": (SQUAD, {"qa_na_threshold": -1.5}, {F + "task.threshold": -1.5}),
}
WRITTEN = {"results_txt", "qa_eval_file", "qa_preds_file", "qa_na_file"}  # by what comes after; below
BUILD = ["--corpus-dir", "c", "--vocab-file", "v", "--output-dir", "o"]
BUILDING: dict[str, tuple[list[str], dict[str, Any]]] = {
    "--corpus-dir": (["x"], {C + "source.path": "x"}),
    "--vocab-file": (["w"], {T + "file": "w"}),
    "--num-processes": (["3"], {C + "processes": 3, E + "processes": 3}),
    "--blanks-separate-docs": (["False"], {C + "source.apart": "file"}),
    "--no-lower-case": ([], {T + "lowercase": False}),
    "--no-strip-accents": ([], {T + "strip_accents": False}),
}


def hparams(**keys: Any) -> list[str]:
    return ["--hparams", json.dumps(keys)]


def near(wanted: dict[str, Any]) -> dict[str, Any]:
    return {key: pytest.approx(one) if isinstance(one, float) else one for key, one in wanted.items()}


def test_every_key_is_in_a_table() -> None:
    for name, table, out_override in (
        ("run_pretraining.py", KEYS, {"do_train"}),
        ("run_finetuning.py", TASKS, {"do_train", "do_eval", "task_names", "vocab_file"} | WRITTEN),
    ):
        assert {flag.name for flag in find(CODE, name).flags if flag.goes and flag.within} - out_override == set(table)
    flags = {flag.name for flag in find(CODE, "build_pretraining_dataset.py").flags}
    usual = {"--do-lower-case", "--do-strip-accents", "--output-dir", "--max-seq-length"}
    assert flags - usual == set(BUILDING)


@pytest.mark.parametrize("key", KEYS)
def test_a_key_of_pretraining_arrives(key: str) -> None:
    said, wanted = KEYS[key]
    assert differences(CODE, "run_pretraining.py", LEAST, [*LEAST, *hparams(**said)]) == near(wanted)


@pytest.mark.parametrize("key", TASKS)
def test_a_key_of_finetuning_arrives(key: str) -> None:
    usual, said, wanted = TASKS[key]
    before, after = [*LEAST, *hparams(**usual)], [*LEAST, *hparams(**usual, **said)]
    assert differences(CODE, "run_finetuning.py", before, after) == near(wanted)


@pytest.mark.usefixtures("many_cores")
@pytest.mark.parametrize("flag", BUILDING)
def test_a_flag_of_records_arrives(flag: str) -> None:
    words, wanted = BUILDING[flag]
    assert differences(CODE, "build_pretraining_dataset.py", BUILD, [*BUILD, flag, *words]) == near(wanted)


def test_records_are_written_as_theirs() -> None:
    call = called(CODE, "build_pretraining_dataset.py", *BUILD, "--max-seq-length", "64")
    said = "o rtd --length 64 --files 1000 --anew"
    own = perform.words(find(CODE, "build_pretraining_dataset.py"), call)
    assert own == ["encode", "records", "work/as/o/encode.toml", *said.split()]
    assert called(CODE, "build_pretraining_dataset.py", *BUILD, "--blanks-separate-docs", "False").notes


def test_archives_of_pages_become_records() -> None:
    got = resolved(CODE, "build_openwebtext_pretraining_dataset.py", "--data-dir", "d", "--no-lower-case")
    wanted = {
        C + "source.kind": "tar",
        C + "source.path": "d/openwebtext",
        C + "source.cut": "member",
        C + "sentences": "lines",
        T + "file": "d/vocab.txt",
        T + "lowercase": False,
    }
    assert {key: got[key] for key in wanted} == wanted
    assert called(CODE, "build_openwebtext_pretraining_dataset.py", "--data-dir", "d").words[1] == (
        "d/pretrain_tfrecords"
    )


def test_what_is_left_out_is_as_theirs() -> None:
    got = resolved(CODE, "run_pretraining.py", *LEAST)
    wanted = {
        P + "model.width": 256,
        P + "model.layers": 12,
        P + "model.heads": 4,
        P + "model.inner": 1024,
        P + "model.embedding": 128,
        GENERATOR + "width": 64,
        GENERATOR + "layers": 12,
        P + "objective.kind": "rtd",
        P + "objective.examples": "given",
        P + "objective.detect_weight": 50.0,
        P + "objective.guess_weight": 1.0,
        P + "objective.mask_prob": 0.15,
        P + "objective.share": "embeddings",
        P + "optimizer.kind": "adamw",
        P + "optimizer.variant": "bert",
        P + "optimizer.decay": 0.01,
        P + "phase[1].learning_rate": 5e-4,
        P + "phase[1].steps": 1_000_000,
        P + "phase[1].warmup": 10_000.0,
        P + "phase[1].batch": 128,
        P + "phase[1].length": 128,
        SCHEDULE + ".kind": "linear",
        SCHEDULE + ".since": "start",
        P + "keep": 5,
        P + "save": 1000,
        P + "clip": 1.0,
        P + "out": "d/models/m",
        T + "file": "d/vocab.txt",
        E + "records": "d/pretrain_tfrecords/pretrain_data.tfrecord*",
    }
    assert {key: got[key] for key in wanted} == wanted


@pytest.mark.parametrize(
    ("task", "epochs", "length", "ending", "wanted"),
    [
        ("chunk", 3.0, 256, "txt", {"kind": "tag", "scheme": "IOBES", "column": -1}),
        ("sst", 3.0, 128, "tsv", {"kind": "classify", "name": "sst-2"}),
        ("rte", 10.0, 128, "tsv", {"name": "rte"}),
        ("sts", 10.0, 128, "tsv", {"name": "sts-b", "unordered": True}),
        (
            "squad",
            2.0,
            512,
            "json",
            {
                "kind": "squad",
                "version": "2.0",
                "head": "joint",
                "form": "google",
                "beam": 20,
                "threshold": -2.75,
                "answerable_weight": 0.5,
            },
        ),
        ("squadv1", 2.0, 512, "json", {"version": "1.1", "threshold": 0.0, "beam": 20}),
    ],
)
def test_each_task_has_its_own_course(
    task: str, epochs: float, length: int, ending: str, wanted: dict[str, Any]
) -> None:
    got = resolved(CODE, "run_finetuning.py", *LEAST, *hparams(task_names=[task]))
    assert (got[F + "epochs"], got[F + "task.length"]) == (epochs, length)
    assert (got[F + "learning_rate"], got[F + "layer_decay"], got[F + "schedule.since"]) == (1e-4, 0.8, "start")
    assert (got[F + "init"], got[F + "out"]) == ("d/models/m", f"d/models/m/finetuning_models/{task}_model_1")
    assert got[F + "task.train"] == f"d/finetuning_data/{task}/train.{ending}"
    assert got[F + "task.dev"] == f"d/finetuning_data/{task}/dev.{ending}"
    assert {key: got[f"{F}task.{key}"] for key in wanted} == wanted


def test_a_warmup_that_is_longer_than_the_training_rises_as_far_as_it_gets() -> None:
    """The learning rate at each step is the original's: peak x (1 - s / steps) x s / warmup."""
    call = called(CODE, "run_pretraining.py", *LEAST, *hparams(num_train_steps=100, learning_rate=0.5))
    (phase,) = call.recipes["pretrain"]["phase"]
    assert (phase["learning_rate"], phase["warmup"]) == (pytest.approx(0.5 * 100 / 10_000), 100)
    assert any("10,000 steps of warmup exceed the 100" in note for note in call.notes)


@pytest.mark.parametrize("joint", [True, False])
def test_only_questions_have_a_joint_head(joint: bool) -> None:
    """For another task the key has no effect, as in the original, and a note says so."""
    how = hparams(do_train=False, task_names=["cola"], joint_prediction=joint)
    call = called(CODE, "run_finetuning.py", *LEAST, *how)
    assert not [word for word in call.words if word.startswith("task.head")]
    assert "--hparams joint_prediction: not used by this call" in call.notes
    how = hparams(do_train=False, task_names=["squad"], joint_prediction=joint)
    said = f'task.head="{"joint" if joint else "independent"}"'
    assert said in called(CODE, "run_finetuning.py", *LEAST, *how).words


def test_a_model_that_was_trained_is_judged_alone() -> None:
    call = called(CODE, "run_finetuning.py", *LEAST, *hparams(do_train=False, task_names=["mnli"]))
    own = perform.words(find(CODE, "run_finetuning.py"), call)
    out = "d/models/m/finetuning_models/mnli_model_1"
    dev = "d/finetuning_data/mnli/dev_matched.tsv"
    how = ['task.name="mnli"', "task.length=128"]
    assert own == ["predict", out, dev, f"{out}/predicted", "--scores", "--anew", *how]
    more = {"init_checkpoint": "other", "max_seq_length": 64, "qa_na_threshold": -1.0}
    named = called(CODE, "run_finetuning.py", *LEAST, *hparams(do_train=False, task_names=["squad"], **more))
    assert named.words[0] == "other"
    assert {"task.length=64", "task.threshold=-1.0", "task.stride=128"} < set(named.words)
    without = called(CODE, "run_finetuning.py", *LEAST, *hparams(do_eval=False, task_names=["mnli"]))
    assert "dev" not in without.recipes["finetune"]["task"]
    assert not without.after


def test_a_checkpoint_of_theirs_is_no_folder_to_train_in(tmp_path: Path) -> None:
    """Do not start a network with random weights in another folder."""
    place = tmp_path / "models" / "electra_small"
    place.mkdir(parents=True)
    (place / "electra_small.index").touch()
    with pytest.raises(UsageError, match=f"`--model-name NEW`, and `init={place}` after the flags, starts"):
        called(CODE, "run_pretraining.py", "--data-dir", str(tmp_path), "--model-name", "electra_small")


def test_keys_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_text('{"train_batch_size": 3, "uniform_generator": false, "use_tpu": true}')
    call = called(CODE, "run_pretraining.py", *LEAST, "--hparams", str(path))
    assert call.recipes["pretrain"]["phase"][0]["batch"] == 3
    assert "--hparams use_tpu: not needed here: devices are detected" in call.notes
    path.write_text("{")
    with pytest.raises(DataError, match=r"keys\.json: not JSON"):
        called(CODE, "run_pretraining.py", *LEAST, "--hparams", str(path))
    with pytest.raises(DataError, match=r"none\.json: no such file"):
        called(CODE, "run_pretraining.py", *LEAST, "--hparams", "none.json")


def test_keys_have_rows_of_their_own() -> None:
    rows = page.flags(find(CODE, "run_pretraining.py"))
    (row,) = [row.split() for row in rows if "disc_weight" in row]
    assert row == ["--hparams", "disc_weight", "50.0", "objective.detect_weight"]


@pytest.mark.parametrize(
    ("name", "words", "said"),
    [
        ("run_pretraining.py", LEAST[2:], "no --data-dir"),
        ("run_pretraining.py", [*LEAST, "--learning_rate", "1"], "--learning_rate: no such flag"),
        ("run_pretraining.py", [*LEAST, "--hparams", "nothing"], "--hparams: is not JSON"),
        ("run_pretraining.py", [*LEAST, "--hparams", "[1]"], "--hparams: found [1]; wanted a table"),
        ("run_pretraining.py", [*LEAST, *hparams(lerning_rate=1)], "did you mean `learning_rate`"),
        ("run_pretraining.py", [*LEAST, *hparams(learning_rate="1")], 'found "1"; wanted a number'),
        ("run_pretraining.py", [*LEAST, *hparams(learning_rate=True)], "found true; wanted a number"),
        ("run_pretraining.py", [*LEAST, *hparams(debug=1)], "found 1; wanted true or false"),
        ("run_pretraining.py", [*LEAST, *hparams(num_train_steps=1.5)], "found 1.5; wanted a whole number"),
        ("run_pretraining.py", [*LEAST, *hparams(do_train=False)], "with do_eval the training ends with an evaluation"),
        ("run_pretraining.py", [*LEAST, *hparams(electra_objective=False)], "ordsmed as google run_pretraining.py"),
        ("run_pretraining.py", [*LEAST, *hparams(model_size="tiny")], "found tiny; wanted small, base, large"),
        ("run_pretraining.py", [*LEAST, *hparams(generator_layers=0.01)], "found 0.01; wanted a share"),
        ("run_pretraining.py", [*LEAST, *hparams(model_hparam_overrides={"hiden_size": 1})], "`hidden_size`"),
        ("run_finetuning.py", [*LEAST, *hparams(model_size="zzz")], "model_size: found zzz; wanted small, base"),
        ("run_finetuning.py", [*LEAST, *hparams(task_names=["ssst"])], "found `ssst`; wanted a task; did you"),
        ("run_finetuning.py", [*LEAST, *hparams(task_names=["sst", "rte"])], "found 2 tasks; wanted one"),
        ("run_finetuning.py", [*LEAST, *hparams(task_names="sst")], 'found "sst"; wanted a list'),
        ("run_finetuning.py", [*LEAST, *hparams(num_trials=0)], "found 0; wanted 1 or more"),
        ("run_finetuning.py", [*LEAST, *hparams(do_train=False, do_eval=False)], "and do_eval false"),
        ("run_finetuning.py", [*LEAST, *hparams(write_test_outputs=True)], "`ordsmed predict MODEL FILE... OUT`"),
        ("build_pretraining_dataset.py", BUILD[:4], "no --output-dir"),
    ],
)
def test_wrong_words(name: str, words: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        called(CODE, name, *words)


WORDS = ["a", "cat", "dog", "sat", "mat", "red", "big", "man", "saw", "it"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write the original's files: texts, a vocabulary, and two tasks."""
    monkeypatch.chdir(tmp_path)
    data = tmp_path / "d"
    for name in ("texts", "finetuning_data/sst", "finetuning_data/squad"):
        (data / name).mkdir(parents=True)
    signs = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    (data / "vocab.txt").write_text("\n".join([*signs, ".", "?", "what", *WORDS, ""]))
    lines = [" ".join(WORDS[(n + k) % 10] for k in range(7)) + " ." for n in range(60)]
    for part in (0, 1):
        (data / "texts" / f"{part}.txt").write_text("\n\n".join("\n".join(lines[n : n + 6]) for n in range(0, 60, 6)))
    for split, count in (("train", 16), ("dev", 6)):
        rows = [f"{lines[n]}\t{n % 2}" for n in range(count)]
        (data / "finetuning_data/sst" / f"{split}.tsv").write_text("\n".join(["sentence\tlabel", *rows, ""]))
        questions = [
            {
                "id": f"{n}",
                "question": "what sat ?",
                "is_impossible": bool(n % 2),
                "answers": [] if n % 2 else [{"text": "cat", "answer_start": 2}],
            }
            for n in range(count)
        ]
        paragraphs = [{"context": "a cat sat .", "qas": questions}]
        table = {"version": "v2.0", "data": [{"title": "t", "paragraphs": paragraphs}]}
        (data / "finetuning_data/squad" / f"{split}.json").write_text(json.dumps(table))
    return tmp_path


NETWORK = {"model_hparam_overrides": {"hidden_size": 128, "num_hidden_layers": 1}, "embedding_size": 16}


def test_a_vocabulary_that_is_named_again(folder: Path) -> None:
    """It is imported once; another checkpoint gets another folder."""
    (folder / "d" / "other.txt").write_text((folder / "d" / "vocab.txt").read_text() + "more\n")
    program = find(CODE, "run_finetuning.py")

    def place(name: str) -> Path:
        call = called(CODE, program.name, *LEAST, *hparams(task_names=["sst"], vocab_file=f"d/{name}.txt"))
        perform.keep_former_results(program, call)
        path = perform.recipe_at(program, call, "tokenizer")
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_text(path, perform.recipes(program, call, ())[path])
        run.obtain(TokenizerTraining, str(path))
        return path

    first, other = place("vocab"), place("other")
    assert first != other
    assert [place("vocab"), place("other")] == [first, other]


def test_a_network_that_cannot_be() -> None:
    with pytest.raises(DataError, match=r"^--hparams model_hparam_overrides: hidden_act: found loud"):
        called(CODE, "run_pretraining.py", *LEAST, *hparams(model_hparam_overrides={"hidden_act": "loud"}))


def test_trials_are_told_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    call = called(CODE, "run_finetuning.py", *LEAST, *hparams(task_names=["sst"], num_trials=10), "out=other")
    for seed in range(1, 11):
        trial = Path(f"other/trials/seed-{seed}")
        trial.mkdir(parents=True)
        files.write_json(trial / "scores.json", {"accuracy": seed})
    for step in call.after:
        step()
    lines = Path("d/models/m/results/sst_results.txt").read_text().splitlines()
    assert lines == [f"sst: accuracy: {seed:.2f}" for seed in range(1, 11)]


@pytest.mark.long
def test_from_texts_to_scores(folder: Path) -> None:
    """Records, three resumed steps, GLUE in two trials, SQuAD with a joint head; then from Google's checkpoint."""
    main(
        [
            "as",
            CODE,
            "build_pretraining_dataset.py",
            "--corpus-dir",
            "d/texts",
            "--vocab-file",
            "d/vocab.txt",
            "--output-dir",
            "d/pretrain_tfrecords",
            "--max-seq-length",
            "24",
        ]
    )
    keys = {**NETWORK, "max_seq_length": 24, "train_batch_size": 4, "num_train_steps": 3, "generator_hidden_size": 0.5}
    pretrain = ["as", CODE, "run_pretraining.py", *LEAST, *hparams(**keys)]
    main(pretrain)
    own = folder / "d/models/m"
    assert [json.loads(line)["step"] for line in (own / "metrics.jsonl").read_text().splitlines()][-1] == 3
    weights = (own / "weights/model.safetensors").read_bytes()
    main(pretrain)
    assert (own / "weights/model.safetensors").read_bytes() == weights, "a finished run stays"
    learn = {"max_seq_length": 24, "train_batch_size": 8, "num_train_epochs": 1}
    main(["as", CODE, "run_finetuning.py", *LEAST, *hparams(**learn, task_names=["sst"], num_trials=2)])
    lines = (own / "results/sst_results.txt").read_text().splitlines()
    assert [re.sub(r"-?\d+\.\d\d", "N", line) for line in lines] == ["sst: accuracy: N - loss: N"] * 2
    main(["as", CODE, "run_finetuning.py", *LEAST, *hparams(**learn, task_names=["squad"])])
    answers = json.loads((own / "results/squad_qa/squad_preds.json").read_text())
    odds = json.loads((own / "results/squad_qa/squad_null_odds.json").read_text())
    scores = json.loads((own / "results/squad_qa/squad_eval.json").read_text())
    assert set(answers) == set(odds) == {str(n) for n in range(6)}
    assert {"exact", "f1", "total", "HasAns_f1", "NoAns_f1", "best_f1_thresh"} <= set(scores)
    assert not {"step", "examples", "validation", "guessing"} & set(scores)
    main(["export", str(own), "d/models/theirs", "--to", "google_electra"])
    theirs = ["--data-dir", "d", "--model-name", "theirs"]
    alone = hparams(**learn, task_names=["sst"], do_train=False)
    main(["as", CODE, "run_finetuning.py", *theirs, *hparams(**learn, task_names=["sst"])])
    trained = (folder / "d/models/theirs/results/sst_results.txt").read_text()
    main(["as", CODE, "run_finetuning.py", *theirs, *alone])
    judged = (folder / "d/models/theirs/results/sst_results.txt").read_text()
    assert trained.startswith(judged.strip()), "the existing model gets the same scores"


def test_a_model_that_is_nowhere(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["as", CODE, "run_finetuning.py", "--data-dir", "d", "--model-name", "none", *hparams(**SST)])
    assert "init: found d/models/none, no such folder" in capsys.readouterr().err
