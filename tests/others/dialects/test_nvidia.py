"""NVIDIA's command lines: targets of each flag, and its machines, compared with tables written by hand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kit.dialects import called, changes, resolved
from ordsmed.base import snapshots
from ordsmed.base.arguments import UsageError
from ordsmed.base.errors import DataError
from ordsmed.base.machine.devices import Accelerator
from ordsmed.cli import main
from ordsmed.others.dialects import nvidia
from ordsmed.others.translate import install, perform
from ordsmed.others.translate.program import find

CODE = "nvidia"
BASE = ["--model_name", "m", "--pretrain_tfrecords", "a*"]
P, E = "pretrain: ", "encode: "
SCHEDULE = P + "phase[1].schedule"
FLAGS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "--model_name": (["other"], {P + "out": "results/models/other"}),
    "--model_size": (
        ["large"],
        {P + "model.layers": 24, P + "model.width": 1024, P + "objective.generator.width": 256},
    ),
    "--pretrain_tfrecords": (["b,c"], {E + "records": ["b", "c"]}),
    "--vocab_file": (["v.txt"], {E + "tokenizer": "v.txt"}),
    "--results_dir": (["out_override"], {P + "out": "out_override/models/m"}),
    "--max_seq_length": (["256"], {P + "phase[1].length": 256}),
    "--mask_prob": (["0.2"], {P + "objective.mask_prob": 0.2}),
    "--disc_weight": (["30"], {P + "objective.detect_weight": 30.0}),
    "--gen_weight": (["2"], {P + "objective.guess_weight": 2.0}),
    "--generator_hidden_size": (["0.5"], {P + "objective.generator.width": 384}),
    "--train_batch_size": (["8"], {P + "phase[1].batch": 8, P + "layout.micro": 8}),
    "--gradient_accumulation_steps": (["3"], {P + "phase[1].batch": 384}),
    "--learning_rate": (["0.1"], {P + "phase[1].learning_rate": 0.1}),
    "--num_train_steps": (["20_000".replace("_", "")], {P + "phase[1].steps": 20_000}),
    "--num_warmup_steps": (["5"], {P + "phase[1].warmup": 5.0}),
    "--lr_decay_power": (["2"], {SCHEDULE + ".power": 2.0}),
    "--end_lr": (["5e-5"], {SCHEDULE + ".end": 0.1}),
    "--optimizer": (["lamb"], {P + "optimizer.kind": "lamb"}),
    "--skip_adaptive": (["--optimizer", "lamb"], {P + "optimizer.kind": "lamb", P + "optimizer.adapt": "matrices"}),
    "--opt_beta_1": (["0.9"], {P + "optimizer.betas": [0.9, 0.974]}),
    "--opt_beta_2": (["0.99"], {P + "optimizer.betas": [0.878, 0.99]}),
    "--weight_decay_rate": (["0.1"], {P + "optimizer.decay": 0.1}),
    "--seed": (["3"], {P + "seed": 3}),
    "--amp": ([], {P + "layout.precision": "fp16"}),
    "--xla": ([], {P + "layout.compile": True}),
    "--fp16_compression": (["--amp"], {P + "layout.precision": "fp16", P + "layout.reduce": "fp16"}),
    "--log_freq": (["7"], {P + "log": 7}),
    "--save_checkpoints_steps": (["70"], {P + "save": 70}),
    "--keep_checkpoint_max": (["2"], {P + "keep": 2}),
    "--restore_checkpoint": (["some/run"], {P + "init": "some/run"}),
    "--phase2": (
        ["--restore_checkpoint", "latest"],
        {P + "out": "results/models/m-phase2", P + "init": "results/models/m"},
    ),
    "--load_weights": ([], {P + "init": "results/models/m/weights"}),
    "--weights_dir": (["w", "--load_weights"], {P + "init": "w"}),
}
SQUAD_BASE = ["--do_train", "--train_file", "t.json", "--output_dir", "o"]
F, T = "finetune: ", "tokenizer: tokenizer."
SQUAD: dict[str, tuple[list[str], dict[str, Any]]] = {
    "--electra_model": (["google/electra-small-discriminator"], {F + "init": "google/electra-small-discriminator"}),
    "--data_dir": (["d"], {F + "task.train": "d/t.json"}),
    "--train_file": (["u.json"], {F + "task.train": "u.json"}),
    "--predict_file": (["p.json", "--do_eval"], {F + "task.dev": "p.json"}),
    "--output_dir": (["q"], {F + "out": "q/squad_v1.1"}),
    "--max_seq_length": (["96"], {F + "task.length": 96}),
    "--doc_stride": (["32"], {F + "task.stride": 32}),
    "--max_query_length": (["20"], {F + "task.longest_question": 20}),
    "--n_best_size": (["9"], {F + "task.n_best": 9}),
    "--max_answer_length": (["12"], {F + "task.longest_answer": 12}),
    "--beam_size": (["7"], {F + "task.beam": 7}),
    "--do_lower_case": ([], {F + "task.lowercase": True}),
    "--version_2_with_negative": ([], {F + "task.version": "2.0", F + "out": "o/squad_v2.0"}),
    "--null_score_diff_threshold": (["-5.6"], {F + "task.threshold": -5.6}),
    "--train_batch_size": (["4"], {F + "batch": 4, F + "layout.micro": 4}),
    "--learning_rate": (["3e-4"], {F + "learning_rate": 3e-4}),
    "--num_train_epochs": (["2"], {F + "epochs": 2.0}),  # of whole steps
    "--max_steps": (["50"], {F + "steps": 50}),
    "--warmup_proportion": (["0.05"], {F + "warmup": 0.05}),
    "--weight_decay_rate": (["0.2"], {F + "optimizer.decay": 0.2}),
    "--layerwise_lr_decay": (["0.9"], {F + "layer_decay": 0.9}),
    "--seed": (["1"], {F + "seed": 1}),
    "--amp": ([], {F + "layout.precision": "fp16", F + "layout.reduce": "fp16"}),
    "--xla": ([], {F + "layout.compile": True}),
    "--log_freq": (["5"], {F + "log": 5}),
    "--no_cuda": ([], {F + "layout.device": "cpu"}),
    "--vocab_file": (["v"], {T + "kind": "wordpiece", T + "file": "v", T + "lowercase": False}),
    "--cache_dir": (["c"], {F + "features": "c"}),
    "--skip_cache": ([], {F + "features": ""}),
}


def test_every_flag_is_in_a_table() -> None:
    """Or in a separate test of the calls and the files they write."""
    for name, table, out_override in (
        ("run_pretraining.py", FLAGS, {"--log_dir", "--json-summary", "--steps_this_run"}),
        (
            "run_tf_squad.py",
            SQUAD,
            {
                "--do_train",
                "--do_predict",
                "--do_eval",
                "--joint_head",
                "--init_checkpoint",
                "--json-summary",
                "--skip_checkpoint",
                "--ci",
            },
        ),
    ):
        assert {flag.name for flag in find(CODE, name).flags if flag.goes} - out_override == set(table)


@pytest.mark.parametrize("flag", FLAGS)
def test_a_flag_of_pretraining_arrives(flag: str) -> None:
    words, wanted = FLAGS[flag]
    got = changes(CODE, "run_pretraining.py", BASE, flag, *words)
    if flag == "--optimizer" or "lamb" in words:  # in addition to the defaults
        got = {key: value for key, value in got.items() if key in wanted}
    if flag == "--model_size":
        got = {key: got[key] for key in wanted}
    assert got == {key: pytest.approx(value) if isinstance(value, float) else value for key, value in wanted.items()}


@pytest.mark.parametrize("flag", SQUAD)
def test_a_flag_of_squad_arrives(flag: str) -> None:
    words, wanted = SQUAD[flag]
    got = changes(CODE, "run_tf_squad.py", SQUAD_BASE, flag, *words)
    assert got == {key: pytest.approx(value) if isinstance(value, float) else value for key, value in wanted.items()}


def test_a_head_that_is_not_joint_is_not() -> None:
    """The original reads the word False as true."""
    call = called(CODE, "run_tf_squad.py", *SQUAD_BASE, "--joint_head", "False")
    assert call.recipes["finetune"]["task"]["head"] == "independent"
    assert any("the original reads the word False as true" in note for note in call.notes)
    assert (
        called(CODE, "run_tf_squad.py", *SQUAD_BASE, "--joint_head", "True").recipes["finetune"]["task"]["head"]
        == "joint"
    )
    with pytest.raises(UsageError, match="--joint_head: found maybe; wanted True or False"):
        called(CODE, "run_tf_squad.py", *SQUAD_BASE, "--joint_head", "maybe")


def test_a_training_begins_with_the_model_and_not_with_the_checkpoint_that_is_asked() -> None:
    """The original's configurations name a checkpoint that the training itself will write."""
    call = called(CODE, "run_tf_squad.py", *SQUAD_BASE, "--electra_model", "e", "--init_checkpoint", "c")
    assert call.recipes["finetune"]["init"] == "e"
    assert any(note.startswith("--init_checkpoint: used only without --do_train") for note in call.notes)
    plain = called(CODE, "run_tf_squad.py", *SQUAD_BASE, "--init_checkpoint", "None")
    assert not any("--init_checkpoint" in note for note in plain.notes)


# what get_generator_config of their modeling.py gives: share -> numbers a token of base and of large, then its heads
GENERATORS = {
    "0.0841": (128, 2, 128, 2),
    "0.125": (128, 2, 128, 2),
    "0.25": (192, 3, 256, 4),
    "0.3": (256, 4, 320, 5),
    "0.3333333": (256, 4, 384, 6),
    "0.05": (64, 1, 64, 1),
    "0.5": (384, 6, 512, 8),
    "0.6667": (512, 8, 704, 11),
    "1": (768, 12, 1024, 16),
    "1.5": (1152, 18, 1536, 24),
}


@pytest.mark.parametrize("share", GENERATORS)
def test_a_generator_has_whole_heads(share: str) -> None:
    """The original's scripts give 0.3333333 for every size of the model."""
    for size, width, heads in (("base", *GENERATORS[share][:2]), ("large", *GENERATORS[share][2:])):
        words = ["--model_size", size, "--generator_hidden_size", share]
        got = resolved(CODE, "run_pretraining.py", *BASE, *words)
        assert got[P + "objective.generator.width"] == width == 64 * heads
        assert got[P + "objective.generator.heads"] == got[P + "objective.generator.inner"] == 0  # by the width
    with pytest.raises(UsageError, match=r"--generator_hidden_size: found -0.25; wanted a share of 768"):
        called(CODE, "run_pretraining.py", *BASE, "--generator_hidden_size=-0.25")


ASKED = {  # the defaults of an existing model
    "beam": "4",
    "length": "384",
    "longest_answer": "30",
    "longest_question": "64",
    "lowercase": "false",
    "n_best": "20",
    "stride": "128",
    "threshold": "0.0",
    "version": '"1.1"',
}
PREDICT = ["--do_predict", "--init_checkpoint", "r", "--predict_file", "d", "--output_dir", "o"]
ASKED_BY: dict[str, tuple[list[str], dict[str, str]]] = {
    "--max_seq_length": (["96"], {"length": "96"}),
    "--doc_stride": (["32"], {"stride": "32"}),
    "--max_query_length": (["20"], {"longest_question": "20"}),
    "--n_best_size": (["9"], {"n_best": "9"}),
    "--max_answer_length": (["12"], {"longest_answer": "12"}),
    "--beam_size": (["7"], {"beam": "7"}),
    "--null_score_diff_threshold": (["-5.6"], {"threshold": "-5.6"}),
    "--do_lower_case": ([], {"lowercase": "true"}),
    "--version_2_with_negative": ([], {"version": '"2.0"'}),
    "--joint_head": (["True"], {"head": '"joint"'}),
}


def test_a_seed_without_training_is_noted() -> None:
    notes = called(CODE, "run_tf_squad.py", *PREDICT, "--seed", "7").notes
    assert "--seed: has no effect without --do_train, because prediction uses no random numbers" in notes


def asked(words: list[str]) -> dict[str, str]:
    """The command line that evaluates an existing model."""
    settings = [word.removeprefix("task.") for word in words if word.startswith("task.")]
    assert len(set(settings)) == len(settings)
    return {key: value for key, _, value in (word.partition("=") for word in settings)}


def test_predictions_need_no_training() -> None:
    call = called(CODE, "run_tf_squad.py", "--do_eval", *PREDICT)
    own = perform.words(find(CODE, "run_tf_squad.py"), call)
    assert asked(own) == ASKED
    assert [word for word in own if "task." not in word] == ["predict", "r", "d", "o/predictions", "--anew", "--scores"]
    assert called(CODE, "run_tf_squad.py", *PREDICT, "--no_cuda").words[-2:] == ["--device", "cpu"]


@pytest.mark.parametrize("flag", ASKED_BY)
def test_a_flag_of_predictions_arrives(flag: str) -> None:
    """As the original's run_squad.sh gives them with `eval` and `prediction`."""
    words, wanted = ASKED_BY[flag]
    assert asked(called(CODE, "run_tf_squad.py", *PREDICT, flag, *words).words) == ASKED | wanted


def test_an_independent_head_is_asked_by_its_best_starts_and_ends() -> None:
    call = called(CODE, "run_tf_squad.py", *PREDICT, "--joint_head", "False")
    assert asked(call.words) == ASKED | {"head": '"independent"', "search": '"tops"'}


def test_one_question() -> None:
    call = called(
        CODE, "run_inference.py", "--electra_model", "x", "--init_checkpoint", "r", "--question=Q?", "--context=C."
    )
    own = perform.words(find(CODE, "run_inference.py"), call)
    assert [word for word in own if "task." not in word] == ["answer", "r", "Q?", "C."]
    assert asked(own) == QUESTION_USUAL


def test_a_checkpoint_of_a_run_is_exported() -> None:
    call = called(
        CODE,
        "postprocess_pretrained_ckpt.py",
        "--pretrained_checkpoint",
        "r/checkpoints/step-000000500",
        "--output_dir",
        "d",
    )
    assert (call.verb, call.words) == ("export", ["r", "d/discriminator", "--anew", "--step", "500"])


@pytest.mark.parametrize(("name", "run"), [("ckpt-500", "r"), ("ckpt-p2-500", "r-phase2"), ("step-000000500", "r")])
def test_checkpoints_by_their_names(name: str, run: str) -> None:
    call = called(CODE, "run_inference.py", "--init_checkpoint", f"r/checkpoints/{name}")
    assert call.words[:3] == [run, "--step", "500"]


def test_a_checkpoint_of_tensorflow_stays_one(tmp_path: Path) -> None:
    """It is imported when it is opened."""
    (tmp_path / "checkpoints").mkdir()
    path = tmp_path / "checkpoints" / "ckpt-500"
    path.with_suffix(".index").touch()
    words = called(CODE, "run_inference.py", "--init_checkpoint", str(path)).words
    assert [word for word in words if "task." not in word] == [str(path)]


QUESTION_USUAL = {key: ASKED[key] for key in ("beam", "longest_answer", "n_best", "threshold", "version")}
QUESTION: dict[str, tuple[list[str], dict[str, str]]] = {  # what is said -> behind the run's folder
    flag: said for flag, said in ASKED_BY.items() if flag != "--do_lower_case"
}


@pytest.mark.parametrize("flag", QUESTION)
def test_a_flag_of_one_question_arrives(flag: str) -> None:
    words, wanted = QUESTION[flag]
    assert asked(called(CODE, "run_inference.py", "--init_checkpoint", "r", flag, *words).words) == (
        QUESTION_USUAL | wanted
    )
    known = {one.name for one in find(CODE, "run_inference.py").flags if one.goes}
    assert known == {*QUESTION, "--init_checkpoint", "--question", "--context"}


BUILT: dict[str, tuple[str, dict[str, Any], str]] = {  # what is said -> recipes, and the words that it changes
    "--corpus-dir": ("c2", {"corpus: source.path": "c2"}, ""),
    "--vocab-file": ("v2", {E + "tokenizer": "v2"}, ""),
    "--num-processes": ("3", {E + "processes": 3}, ""),
    "--output-dir": ("o2", {}, "o2 rtd --length 128 --files 1000 --seed 1314"),
    "--max-seq-length": ("64", {}, "o rtd --length 64 --files 1000 --seed 1314"),
    "--num-out-files": ("5", {}, "o rtd --length 128 --files 5 --seed 1314"),
    "--seed": ("7", {}, "o rtd --length 128 --files 1000 --seed 7"),
}


@pytest.mark.parametrize("flag", BUILT)
def test_a_flag_of_records_arrives(flag: str) -> None:
    word, settings, words = BUILT[flag]
    least = ["--corpus-dir", "c", "--vocab-file", "v", "--output-dir", "o"]
    assert changes(CODE, "build_pretraining_dataset.py", least, flag, word) == settings
    call = called(CODE, "build_pretraining_dataset.py", *least, flag, word)
    assert " ".join(call.words) == f"<encode> {words or 'o rtd --length 128 --files 1000 --seed 1314'} --anew"
    known = {one.name for one in find(CODE, "build_pretraining_dataset.py").flags if one.goes}
    assert known == {*BUILT, "--blanks-separate-docs", "--do-lower-case", "--no-lower-case"}
    with pytest.raises(UsageError, match="--blanks-separate-docs: found False; wanted True"):
        called(CODE, "build_pretraining_dataset.py", *least, "--blanks-separate-docs", "False")


CASED = [  # pieces, what is said, and of the tokenizer whether it has its own case, else which
    ("cat", "--no-lower-case", False),
    ("cat", "--do-lower-case", None),
    ("Cat", "--do-lower-case", True),
    ("Cat", "--no-lower-case", None),
    ("cat", "", None),
]


@pytest.mark.parametrize(("piece", "flag", "lowercase"), CASED)
def test_the_case_of_records_is_what_is_said(piece: str, flag: str, lowercase: bool | None, tmp_path: Path) -> None:
    """A vocabulary with that case is used itself, because existing stores are named after it."""
    (tmp_path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", piece, ""]))
    listed = str(tmp_path / "vocab.txt")
    words = ["--corpus-dir", "c", "--vocab-file", listed, "--output-dir", "o", *flag.split()]
    number = {"--no-lower-case": ["--do_lower_case=0"], "--do-lower-case": ["--do_lower_case=1"], "": []}[flag]
    whole = ["--action", "create_tfrecord_files", "--dataset", "bookscorpus", "--vocab_file", listed, *number]
    for name, own in (("build_pretraining_dataset.py", words), ("dataPrep.py", whole)):
        call = called(CODE, name, *own)
        for one in (call, *call.then):
            if lowercase is None:
                assert (one.recipes["encode"]["tokenizer"], one.recipes.get("tokenizer")) == (listed, None)
            else:
                assert one.recipes["encode"]["tokenizer"] == "<tokenizer>"
                table = {"kind": "wordpiece", "file": listed, "lowercase": lowercase}
                assert one.recipes["tokenizer"]["tokenizer"] == table
    assert [note for note in call.notes if "texts are lowercased" in note] == call.notes[: not flag]


def test_two_cases_are_one_too_many() -> None:
    words = ["--corpus-dir", "c", "--vocab-file", "v", "--output-dir", "o", "--do-lower-case", "--no-lower-case"]
    with pytest.raises(UsageError, match="--no-lower-case: found with --do-lower-case; wanted one of the two"):
        called(CODE, "build_pretraining_dataset.py", *words)


def test_records_are_of_the_store_that_the_call_makes() -> None:
    words = ["--corpus-dir", "c", "--vocab-file", "v", "--output-dir", "o", "--num-out-files", "2"]
    call = called(CODE, "build_pretraining_dataset.py", *words)
    own = perform.words(find(CODE, "build_pretraining_dataset.py"), call)
    wanted = "encode records work/as/o/encode.toml o rtd --length 128 --files 2 --seed 1314 --anew"
    assert own == wanted.split()


@pytest.mark.parametrize(
    ("name", "words", "said"),
    [
        ("run_pretraining.py", [], "no --model_name"),
        ("run_pretraining.py", [*BASE, "--phase2"], "--phase2: found without --restore_checkpoint"),
        ("run_pretraining.py", [*BASE, "--load_weights", "--restore_checkpoint", "x"], "one of the two"),
        ("run_pretraining.py", [*BASE, "--generator_hidden_size", "0"], "a share of 768"),
        ("run_pretraining.py", [*BASE, "--num_train_steps", "5"], "at most the 5 of --num_train_steps"),
        ("run_pretraining.py", [*BASE, "--steps_this_run", "0"], "--steps_this_run: found 0; wanted a number of"),
        ("run_pretraining.py", [*BASE, "--skip_checkpoint"], "is not supported"),
        ("run_tf_squad.py", ["--output_dir", "x"], "no --do_train, --do_eval or --do_predict"),
        ("run_tf_squad.py", ["--do_train", "--output_dir", "x"], "no --data_dir and no --train_file"),
        ("run_tf_squad.py", ["--do_predict"], "no --init_checkpoint"),
        ("run_inference.py", ["--init_checkpoint", "r", "--question", "q"], "no --context"),
        ("build_pretraining_dataset.py", ["--corpus-dir", "c"], "no --vocab-file"),
        ("run_glue.py", [], "no program of nvidia"),
    ],
)
def test_wrong_words(name: str, words: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        called(CODE, name, *words)


def test_a_training_begins_anew_by_a_word_or_for_a_whole_script() -> None:
    """The original overwrites existing results; ordsmed needs a flag for that."""
    words = ["--output_dir", "o", "--init_checkpoint", "r", "--train_file", "t", "--predict_file", "p"]
    calls = {
        "plain": called(CODE, "run_tf_squad.py", *words, "--do_train"),
        "word": called(CODE, "run_tf_squad.py", *words, "--do_train", "--anew"),
        "script": called(CODE, "run_tf_squad.py", *words, "--do_train", ORDSMED_ANEW="1"),
        "other": called(CODE, "run_tf_squad.py", *words, "--do_predict", ORDSMED_ANEW="1"),
    }
    assert {name: call.words.count("--anew") for name, call in calls.items()} == {
        "plain": 0,
        "word": 1,
        "script": 1,
        "other": 1,
    }
    with pytest.raises(UsageError, match="--anew: no such flag"):
        called(CODE, "run_inference.py", "--init_checkpoint", "r", "--anew")


def test_so_many_steps_are_learned_in_this_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = [*BASE, "--steps_this_run", "50"]
    assert called(CODE, "run_pretraining.py", *words).environment == {"ORDSMED_STOP_AT": "50"}
    snapshots.path_of(Path("results/models/m/checkpoints"), 70).mkdir(parents=True)
    assert called(CODE, "run_pretraining.py", *words).environment == {"ORDSMED_STOP_AT": "120"}
    assert called(CODE, "run_pretraining.py", *BASE, "--steps_this_run", "-1").environment == {}


@pytest.mark.parametrize(
    ("card", "precision"),
    [(None, "fp32"), (Accelerator("V100", (7, 0)), "fp32"), (Accelerator("A100", (8, 0)), "tf32")],
)
def test_without_amp_it_is_tf32_where_the_card_has_it(
    card: Accelerator | None, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvidia, "card_of", lambda device: card)
    for program, words in ("run_pretraining.py", BASE), ("run_tf_squad.py", SQUAD_BASE):
        calls = [called(CODE, program, *words, *more) for more in ([], ["--amp"], ["layout.precision=fp32"])]
        assert [len([note for note in call.notes if "TF32" in note]) for call in calls] == [1, 0, 0]
        made = [call.recipes[call.verb]["layout"].get("precision") for call in calls]
        assert made == [precision, "fp16", "fp32"]
    for word in "--no_cuda", 'layout.device="cpu"':
        assert called(CODE, "run_tf_squad.py", *SQUAD_BASE, word).recipes["finetune"]["layout"]["precision"] == "fp32"


def test_the_original_s_document_calls_a_program_otherwise() -> None:
    assert find(CODE, "inference.py") is find(CODE, "inference") is find(CODE, "run_inference.py")


def test_a_flag_of_a_checkpoint_with_nothing_behind_it_means_the_latest() -> None:
    """As in the original's run.sub."""
    second = called(CODE, "run_pretraining.py", *BASE, "--restore_checkpoint", "--phase2")
    assert second.recipes["pretrain"]["init"] == "results/models/m"


def test_one_process_of_several_shows_what_would_be_done(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = []
    for rank in "01":
        for name, value in (("RANK", rank), ("WORLD_SIZE", "2"), ("LOCAL_RANK", rank), ("LOCAL_WORLD_SIZE", "2")):
            monkeypatch.setenv(name, value)
        main(["as", CODE, "run_pretraining.py", *BASE, "--recipe"])
        shown.append(capsys.readouterr().out)
    assert "# a step has 128 x 1 x 2 = 256 rows" in shown[0]
    assert shown[1] == ""


def test_files_that_stand_are_left(tmp_path: Path) -> None:
    (tmp_path / "run_pretraining.py").write_text("mine")
    with pytest.raises(DataError, match=r"run_pretraining.py: already exists with other content"):
        install.install(CODE, str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["run_pretraining.py"]


def test_lines_on_the_screen_are_means_of_the_steps_since_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here at every third step; lines of validations are skipped."""
    tell = nvidia._log_lines(3)
    steps = [{"step": n, "rows": 8, "seconds": 2.0, "loss": float(n), "guess": 0.0, "detect": 0.0} for n in range(1, 8)]
    told = [tell(line) for line in [*steps, {"step": 9, "validation": 1.0}]]
    assert [len(lines) for lines in told] == [0, 0, 1, 0, 0, 1, 0, 0]
    assert "Training Iteration: 6  train_perf : 4.0 total_loss : 5.0" in told[5][0]
    assert "total_loss : 2.0" in told[2][0]


def test_a_link_is_made_anew_where_it_led_elsewhere(tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        nvidia._link(tmp_path / "link", tmp_path / name)
    assert (tmp_path / "link").resolve() == tmp_path / "new"


def test_what_their_programs_have_beside_their_flags() -> None:
    pretraining = resolved(CODE, "run_pretraining.py", *BASE)
    wanted = {
        "phase[1].pack": False,
        "optimizer.epsilon": 1e-6,
        "optimizer.variant": "keras",
        "validate": 0,
        SCHEDULE.removeprefix(P) + ".kind": "polynomial",
        "objective.examples": "given",
    }
    assert {key: pretraining[P + key] for key in wanted} == wanted
    even = ["--num_train_steps", "7", "--num_warmup_steps", "7"]
    assert resolved(CODE, "run_pretraining.py", *BASE, *even)[P + "phase[1].warmup"] == 7
    squad = resolved(CODE, "run_tf_squad.py", *SQUAD_BASE)
    wanted = {
        "optimizer.kind": "adamw",
        "optimizer.epsilon": 1e-6,
        "optimizer.variant": "keras",
        "task.form": "nvidia",
        "task.head": "joint",
        "epoch_steps": "down",
        "course": "epochs",
    }
    assert {key: squad[F + key] for key in wanted} == wanted
    for words in (["--load_weights", "--restore_checkpoint", "latest"], ["--load_weights", "--restore_checkpoint=x"]):
        with pytest.raises(UsageError, match="--load_weights: found with --restore_checkpoint"):
            called(CODE, "run_pretraining.py", *BASE, *words)
    assert not any("fp16_compression" in note for note in called(CODE, "run_pretraining.py", *BASE, "--amp").notes)
    notes = called(CODE, "run_pretraining.py", *BASE, "--fp16_compression").notes
    assert "--fp16_compression: has no effect without --amp" in notes


def test_checkpoints_are_not_named_where_none_is_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = Path("o/squad_v1.1")
    snapshots.path_of(run / "checkpoints", 2).mkdir(parents=True)
    (run / "metrics.jsonl").write_text('{"step": 2, "rows": 8, "seconds": 1.0, "loss": 1.0}\n')
    for more, names in (["--skip_checkpoint"], []), ([], ["electra_base_qa_v2_False_epoch_1_ckpt"]):
        call = called(CODE, "run_tf_squad.py", *SQUAD_BASE, "--num_train_epochs", "1", *more)
        for step in call.after:
            step()
        assert [path.name for path in Path().glob("checkpoints/*")] == names


def test_texts_are_kept_as_they_are_formatted() -> None:
    for name, more in ("bookscorpus", {"corpus: source.broken": "skip"}), ("wikicorpus_en", {}):
        got = resolved(CODE, "dataPrep.py", "--action", "text_formatting", "--dataset", name)
        wanted = {"corpus: shortest": 1, "corpus: duplicates": "keep", "corpus: validation": 0.0, **more}
        assert {key: got[key] for key in wanted} == wanted
    words = ["--action", "create_tfrecord_files", "--dataset", "wikicorpus_en", "--n_test_shards"]
    assert [len(called(CODE, "dataPrep.py", *words, count).then) for count in ("0", "1")] == [0, 1]


def test_words_of_a_benchmark_by_their_place() -> None:
    def bench(*words: str) -> tuple[dict[str, Any], list[str]]:
        call = called(CODE, "benchmark_squad.sh", *words)
        return call.recipes["bench"], call.notes

    assert bench("eval", "1", "7")[0]["batches"] == [[7, 20]]
    assert bench("eval", "1", "7", "3")[0]["batches"] == [[3, 20]]
    own, _ = bench("eval", "1", "7", "3", "amp", "1.1", "d")
    assert (own["tokenizer"], own["task"]["train"]) == ("vocab/vocab.txt", "d/train-v1.1.json")
    alone = [any("only one is measured" in note for note in bench("eval", gpus, "7")[1]) for gpus in ("1", "2")]
    assert alone == [False, True]
    call = called(CODE, "benchmark_pretraining.sh", "8", "amp", "xla", "1", "false", "2", "4", "3", "large")
    cells = [["length=128", "batch=8", "layout.micro=8"], ["length=512", "batch=4", "layout.micro=4"]]
    assert call.recipes["bench"]["table"]["cells"] == cells
    assert call.recipes["bench"]["objective"]["generator"] == {"width": 384}
