"""Command lines of transformers' example scripts: targets of each flag, compared with tables written by hand."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kit.dialects import called, changes, resolved
from ordsmed.base import files, settings
from ordsmed.base.arguments import UsageError
from ordsmed.base.errors import DataError
from ordsmed.base.ranks import ProcessInfo
from ordsmed.cli import main
from ordsmed.learn.phases import Phase
from ordsmed.nn.models.modern import ModernBert
from ordsmed.others.dialects import huggingface
from ordsmed.others.translate import perform, trainer
from ordsmed.others.translate.program import find

CODE = "huggingface"
MLM, CLM, GLUE, QA = "run_mlm.py", "run_clm.py", "run_glue.py", "run_qa.py"
OLD, OLDER, XNLI = "run_language_modeling.py", "run_lm_finetuning.py", "run_xnli.py"
P, E, C, F = "pretrain: ", "encode: ", "corpus: ", "finetune: "
PHASE, SCHEDULE = P + "phase[1].", P + "phase[1].schedule."
BASE = ["--do_train", "--train_file=t.txt", "--model_name_or_path=bert", "--max_seq_length=64"]
GPT2 = ["--do_train", "--train_file=t.txt", "--model_name_or_path=gpt2", "--block_size=64"]
FRESH = ["--do_train", "--train_file=t.txt", "--model_type=bert", "--tokenizer_name=tok", "--max_seq_length=64"]
Table = dict[str, tuple[list[str], dict[str, Any]]]
# of TrainingArguments: what holds for a fine-tuning as well, there without its phase
UPDATES: Table = {
    "--output_dir": (["o"], {P + "out": "o"}),
    "--per_device_train_batch_size": (["4"], {PHASE + "batch": 4, P + "layout.micro": 4}),
    "--gradient_accumulation_steps": (["3"], {PHASE + "batch": 24}),
    "--auto_find_batch_size": ([], {}),
    "--num_train_epochs": (["1.5"], {PHASE + "epochs": 1.5}),
    "--max_steps": (["7"], {PHASE + "steps": 7}),
    "--learning_rate": (["1e-3"], {PHASE + "learning_rate": 1e-3}),
    "--lr_scheduler_type": (["cosine"], {SCHEDULE + "kind": "cosine"}),
    "--lr_scheduler_kwargs": (
        ['{"power": 2.0, "lr_end": 1e-5}', "--lr_scheduler_type=polynomial"],
        {SCHEDULE + "kind": "polynomial", SCHEDULE + "power": 2.0, SCHEDULE + "end": 0.2},
    ),
    "--warmup_steps": (["9"], {PHASE + "warmup": 9.0}),
    "--warmup_ratio": (["0.1"], {PHASE + "warmup": 0.1}),
    "--optim": (["stable_adamw"], {P + "optimizer.kind": "stableadamw", P + "optimizer.betas": [0.9, 0.999]}),
    "--weight_decay": (["0.1"], {P + "optimizer.decay": 0.1}),
    "--adam_beta1": (["0.8"], {P + "optimizer.betas": [0.8, 0.999]}),
    "--adam_beta2": (["0.98"], {P + "optimizer.betas": [0.9, 0.98]}),
    "--adam_epsilon": (["1e-6"], {P + "optimizer.epsilon": 1e-6}),
    "--max_grad_norm": (["0"], {P + "clip": 0.0}),
    "--seed": (["3"], {P + "seed": 3}),
    "--full_determinism": ([], {P + "layout.deterministic": True}),
    "--bf16": ([], {P + "layout.precision": "bf16"}),
    "--fp16": (["True"], {P + "layout.precision": "fp16"}),
    "--tf32": (["yes"], {P + "layout.precision": "tf32"}),
    "--gradient_checkpointing": ([], {P + "layout.recompute": True}),
    "--activation_checkpointing": ([], {P + "layout.recompute": True}),
    "--torch_compile": ([], {P + "layout.compile": True}),
    "--torch_compile_backend": (["inductor"], {P + "layout.compile": True}),
    "--torch_compile_mode": (["default"], {P + "layout.compile": True}),
    "--torchdynamo": (["inductor"], {P + "layout.compile": True}),
    "--logging_steps": (["5"], {P + "log": 5}),
    "--save_total_limit": (["2"], {P + "keep": 2}),
    "--use_cpu": ([], {P + "layout.device": "cpu"}),
    "--ddp_timeout": (["60"], {P + "layout.patience": 60.0}),
    "--tp_size": (["2"], {P + "layout.tensor": 2}),
    "--dataloader_num_workers": (["3"], {P + "layout.workers": 3}),
}
JUDGED: Table = {
    "--eval_strategy": (["steps", "--eval_steps=20"], {P + "validate": 20}),
    "--eval_steps": (["20", "--evaluation_strategy=steps"], {P + "validate": 20}),
    "--save_strategy": (["no"], {P + "save": 0}),
    "--save_steps": (["50"], {P + "save": 50}),
}
FILE = C + "given.validation."
TEXTS: Table = {
    "--model_name_or_path": (["other"], {P + "init": "other", E + "tokenizer": "other"}),
    "--tokenizer_name": (["tok"], {E + "tokenizer": "tok"}),
    "--train_file": (["a.csv"], {C + "source.kind": "csv", C + "source.path": "a.csv", C + "source.text_key": "id"}),
    "--validation_file": (["v.json"], {FILE + "kind": "jsonl", FILE + "path": "v.json"}),
    "--validation_split_percentage": (["10"], {C + "validation": 0.1}),
    "--preprocessing_num_workers": (["2"], {C + "processes": 2, E + "processes": 2}),
    "--max_eval_samples": (["9"], {P + "validation_rows": 9}),
}
MASKED: Table = {
    **UPDATES,
    **JUDGED,
    **TEXTS,
    "--max_seq_length": (["32"], {PHASE + "length": 32}),
    "--mlm_probability": (["0.2"], {P + "objective.mask_prob": 0.2}),
    "--line_by_line": ([], {C + "source.apart": "line", PHASE + "pack": False}),
}
OLD_BASE = ["--do_train", "--train_data_file=t.txt", "--model_name_or_path=bert", "--block_size=64", "--mlm"]
OLD_TEXTS: Table = {
    "--train_data_file": (["a.csv"], {C + "source.path": "a.csv"}),  # a text, whatever its name ends with
    "--train_data_files": ([], {}),
    "--eval_data_file": (["v.json", "--do_eval"], {FILE + "kind": "text", FILE + "path": "v.json"}),
    "--block_size": (["32"], {PHASE + "length": 32}),
    "--mlm": ([], {}),
    "--mlm_probability": (["0.2"], {P + "objective.mask_prob": 0.2}),
    "--whole_word_mask": ([], {P + "objective.unit": "word"}),
    "--line_by_line": ([], {C + "source.apart": "line", PHASE + "pack": False}),
    "--evaluate_during_training": (["--logging_steps=70"], {P + "validate": 70, P + "log": 70}),
    "--model_name_or_path": TEXTS["--model_name_or_path"],
    "--tokenizer_name": TEXTS["--tokenizer_name"],
    "--model_type": (["roberta"], {}),  # the named one says it
}
NETWORKS: Table = {
    "--model_type": (["roberta"], {P + "model.kind": "roberta", P + "model.types": 1}),
    "--config_overrides": (
        ["hidden_size=64,num_attention_heads=2,hidden_dropout_prob=0.2"],
        {P + "model.width": 64, P + "model.heads": 2, P + "model.inner": 3072, P + "model.dropout": 0.2},
    ),
}
CLASS_BASE = ["--do_train", "--train_file=two.csv", "--validation_file=two.csv", "--model_name_or_path=b"]
QUESTION_BASE = ["--do_train", "--train_file=t.json", "--model_name_or_path=b"]
LEARNED: Table = {
    **{
        flag: (words, {key.replace(PHASE, F).replace(P, F): value for key, value in wanted.items()})
        for flag, (words, wanted) in UPDATES.items()
    },
    "--model_name_or_path": (["other"], {F + "init": "other"}),
    "--tokenizer_name": (["tok"], {F + "tokenizer": "tok"}),
    "--save_strategy": (["epoch"], {}),  # 0: see below
    "--save_steps": (["50"], {F + "save": 50}),
}
BEST = ["--do_eval", "--eval_strategy=epoch", "--load_best_model_at_end"]
CLASSES: Table = {
    **LEARNED,
    "--max_seq_length": (["64"], {F + "task.length": 64}),
    "--train_file": (
        ["one.json"],
        {F + "task.train": "one.json", F + "task.text": "body", F + "task.second": None, F + "task.format": "jsonl"},
    ),
    "--validation_file": (["v.json", "--do_eval", "--eval_strategy=steps"], {F + "task.dev": "v.json"}),
    "--eval_strategy": (["epoch", "--do_eval"], {F + "task.dev": "two.csv"}),
    "--eval_steps": (["9", "--do_eval", "--eval_strategy=steps"], {F + "task.dev": "two.csv"}),
    "--load_best_model_at_end": (BEST[:2], {F + "task.dev": "two.csv"}),
    "--metric_for_best_model": (
        ["eval_matthews_correlation", *BEST],
        {F + "task.dev": "two.csv", F + "best": "matthews"},
    ),
}
QUESTIONS: Table = {
    "--max_seq_length": (["96"], {F + "task.length": 96, F + "task.longest_question": 96}),
    "--doc_stride": (["32"], {F + "task.stride": 32}),
    "--n_best_size": (["9"], {F + "task.n_best": 9}),
    "--max_answer_length": (["12"], {F + "task.longest_answer": 12}),
    "--version_2_with_negative": ([], {F + "task.version": "2.0"}),
    "--null_score_diff_threshold": (["-1.5"], {F + "task.threshold": -1.5}),
    "--train_file": (["u.json"], {F + "task.train": "u.json"}),
    "--validation_file": (["v.json", *BEST], {F + "task.dev": "v.json"}),
    "--metric_for_best_model": (
        ["exact_match", "--validation_file=v.json", *BEST],
        {F + "task.dev": "v.json", F + "best": "exact"},
    ),
}
ELSEWHERE = {  # tests of their own
    "--do_train",
    "--do_eval",
    "--do_predict",
    "--overwrite_output_dir",
    "--resume_from_checkpoint",
    "--fsdp",
    "--max_train_samples",
    "--max_eval_samples",
    "--max_predict_samples",
    "--load_best_model_at_end",
    "--metric_for_best_model",
    "--config_name",
    "--dataset_name",
    "--dataset_config_name",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write texts in three formats."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.txt").write_text("one two\n\nthree four\n")
    (tmp_path / "a.csv").write_text("id,body\n1,one two\n")
    (tmp_path / "v.json").write_text('{"id": 1, "text": "one two"}\n')
    (tmp_path / "two.csv").write_text("id,sentence1,label,sentence2\n1,one two,yes,three\n")
    (tmp_path / "one.json").write_text('{"label": "1", "body": "one two"}\n')
    return tmp_path


def flags_of(name: str) -> set[str]:
    return {flag.name for flag in find(CODE, name).flags if flag.goes}


def test_every_flag_is_in_a_table() -> None:
    assert flags_of(MLM) - ELSEWHERE == (set(MASKED) | set(NETWORKS)) - ELSEWHERE
    assert flags_of(CLM) - flags_of(MLM) == {"--block_size"}
    assert flags_of(GLUE) - ELSEWHERE - {"--task_name", "--test_file"} == set(CLASSES) - ELSEWHERE
    assert flags_of(OLD) - ELSEWHERE == set(OLD_TEXTS) | set(UPDATES) | set(JUDGED) - ELSEWHERE
    assert flags_of(OLD) == flags_of(OLDER)
    assert flags_of(XNLI) - flags_of(GLUE) == {"--language", "--train_language", "--data_dir"}
    assert flags_of(QA) - flags_of(GLUE) == set(QUESTIONS) - set(CLASSES) | {"--dataset_name"}


@pytest.mark.usefixtures("many_cores")
@pytest.mark.parametrize(
    ("name", "least", "flag", "words", "wanted"),
    [
        *((MLM, BASE, flag, *MASKED[flag]) for flag in MASKED),
        *((MLM, FRESH, flag, *NETWORKS[flag]) for flag in NETWORKS),
        *((CLM, GPT2, flag, *TEXTS[flag]) for flag in TEXTS),
        (CLM, GPT2, "--block_size", ["32"], {PHASE + "length": 32}),
        *((OLD, OLD_BASE, flag, *OLD_TEXTS[flag]) for flag in OLD_TEXTS if flag != "--train_data_files"),
        *((GLUE, CLASS_BASE, flag, *CLASSES[flag]) for flag in CLASSES),
        *((QA, QUESTION_BASE, flag, *QUESTIONS[flag]) for flag in QUESTIONS),
    ],
)
def test_a_flag_arrives(
    folder: Path, name: str, least: list[str], flag: str, words: list[str], wanted: dict[str, Any]
) -> None:
    got = changes(CODE, name, least, flag, *words)
    wanted = {key: one for key, one in wanted.items() if one is not None}
    assert got == {key: pytest.approx(one) if isinstance(one, float) else one for key, one in wanted.items()}


def test_no_field_of_the_trainer_is_swallowed() -> None:
    """Test the fields of the installed version; the table also has those of older and newer versions."""
    arguments = pytest.importorskip("transformers.training_args").TrainingArguments
    fields = {f"--{field.name}" for field in dataclasses.fields(arguments)}
    for name in (MLM, CLM, GLUE, QA, "run_ner.py"):
        assert fields - {word for flag in find(CODE, name).flags for word in (flag.name, *flag.also)} == set()


def test_what_theirs_leaves_unsaid(folder: Path) -> None:
    got = resolved(CODE, MLM, *BASE)
    wanted = {
        "out": "trainer_output",
        "init": "bert",
        "seed": 42,
        "clip": 1.0,
        "save": 500,
        "validate": 0,
        "log": 500,
        "phase[1].batch": 8,
        "phase[1].epochs": 3.0,
        "phase[1].learning_rate": 5e-5,
        "phase[1].warmup": 0.0,
        "phase[1].schedule.kind": "linear",
        "phase[1].pack": True,
        "optimizer.kind": "adamw",
        "optimizer.betas": [0.9, 0.999],
        "optimizer.epsilon": 1e-8,
        "optimizer.decay": 0.0,
        "objective.kind": "mlm",
        "objective.mask_prob": 0.15,
        "objective.swap_from": "all",
        "layout.precision": "fp32",
        "layout.micro": 8,
    }
    assert {key: got[P + key] for key in wanted} == wanted
    assert (got[C + "validation"], got[C + "sentences"], got[C + "duplicates"]) == (0.05, "none", "keep")
    assert (got[E + "sentences"], got[P + "validation_rows"]) == (False, 10**9)
    assert resolved(CODE, CLM, *GPT2)[P + "objective.separate"] is False
    adagrad = called(CODE, MLM, *BASE, "--optim=adagrad", "--weight_decay=0.1").recipes["pretrain"]["optimizer"]
    assert adagrad == {"kind": "adagrad", "initial": 0.0, "epsilon": 1e-10, "decay": 0.1}  # as torch's


def test_rows_of_all_devices_and_memory_split_over_them(folder: Path) -> None:
    words = ["--per_device_train_batch_size=4", "--gradient_accumulation_steps=2"]
    assert resolved(CODE, MLM, *BASE, *words, world=8)[PHASE + "batch"] == 64
    for how, reshard in (("full_shard auto_wrap", True), ("shard_grad_op", False)):
        got = resolved(CODE, MLM, *BASE, "--fsdp", how, world=8)
        assert (got[P + "layout.shard"], got[P + "layout.reshard"]) == (8, reshard)
    with pytest.raises(UsageError, match="found hybrid_shard; wanted full_shard or shard_grad_op"):
        called(CODE, MLM, *BASE, "--fsdp", "hybrid_shard")


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["constant", "--warmup_steps=5"], {"kind": "constant"}),
        (["constant_with_warmup"], {"kind": "constant"}),
        (["cosine_with_restarts"], {"kind": "restarts"}),
        (["polynomial", "--learning_rate=1e-5"], {"kind": "polynomial", "power": 1.0, "end": 0.01}),
        (["cosine_with_min_lr", '--lr_scheduler_kwargs={"min_lr_rate": 0.1}'], {"kind": "cosine", "end": 0.1}),
        (
            [
                "warmup_stable_decay",
                "--max_steps=100",
                '--lr_scheduler_kwargs={"num_decay_steps": 25, "decay_type": "1-sqrt", "min_lr_ratio": 0.1}',
            ],
            {"kind": "wsd", "decay": 0.25, "shape": "sqrt", "end": 0.1},
        ),
    ],
)
def test_courses_of_the_rate(folder: Path, words: list[str], wanted: dict[str, Any]) -> None:
    call = called(CODE, MLM, *BASE, "--lr_scheduler_type", *words)
    (phase,) = call.recipes["pretrain"]["phase"]
    assert phase["schedule"] == {k: pytest.approx(v) if isinstance(v, float) else v for k, v in wanted.items()}
    assert phase["warmup"] == 0.0


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        ("linear", {}),
        ("constant", {}),
        ("constant_with_warmup", {}),
        ("polynomial", {}),
        ("polynomial", {"power": 2.0, "lr_end": 1e-6}),
        ("inverse_sqrt", {}),
        ("inverse_sqrt", {"timescale": 5}),
        *(("cosine", {"num_cycles": cycles}) for cycles in (0.25, 0.5, 1, 1.5, 3)),
        ("cosine", {}),
        *(("cosine_with_restarts", {"num_cycles": cycles}) for cycles in (0.5, 1, 2, 3)),
        ("cosine_with_restarts", {}),
        *(
            ("cosine_with_min_lr", {**least, **cycles})
            for least in ({"min_lr": 1e-5}, {"min_lr_rate": 0.2})
            for cycles in ({}, {"num_cycles": 1})
        ),
        *(
            ("warmup_stable_decay", {"num_decay_steps": 10, "decay_type": shape, "min_lr_ratio": least})
            for shape in ("linear", "1-sqrt", "cosine")
            for least in (0, 0.1)
        ),
        ("warmup_stable_decay", {"num_decay_steps": 10, "num_cycles": 1}),
        ("warmup_stable_decay", {"num_decay_steps": 10, "num_stable_steps": 25, "warmup_type": "linear"}),
    ],
)
@pytest.mark.filterwarnings("ignore:Both num_training_steps and num_stable_steps")
def test_rates_are_theirs(folder: Path, kind: str, how: dict[str, Any]) -> None:
    """Compare every step after the warmup; during the warmup ordsmed is one step ahead."""
    import torch

    theirs = pytest.importorskip("transformers.optimization")
    words = [
        f"--lr_scheduler_type={kind}",
        f"--lr_scheduler_kwargs={json.dumps(how)}",
        "--max_steps=40",
        "--warmup_steps=5",
    ]
    recipe = called(CODE, MLM, *BASE, *words).recipes["pretrain"]
    phase = settings.decode(Phase, recipe["phase"][0], "phase")
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=5e-5)
    course = theirs.get_scheduler(kind, optimizer, 5, 40, scheduler_specific_kwargs=dict(how))
    rates = []
    for _ in range(40):
        rates.append(course.get_last_lr()[0])
        optimizer.step()
        course.step()
    assert [phase.rate_at(step) for step in range(5, 40)] == pytest.approx(rates[5:], rel=1e-6, abs=1e-12)
    if kind != "constant" and "min_lr_ratio" not in how:  # the original's warmup starts there
        assert [phase.rate_at(step) for step in range(4)] == pytest.approx(rates[1:5])


def test_the_old_program_of_language_models(folder: Path) -> None:
    """A pattern matches several files; without --mlm the model is causal; the first version had other defaults."""
    (folder / "t2.txt").write_text("five\n")
    found = resolved(CODE, OLD, *OLD_BASE[:1], "--train_data_files=t*.txt", *OLD_BASE[2:])
    assert (found[C + "source.path"], found[C + "validation"]) == (["t.txt", "t2.txt"], 0.0)
    assert (found[PHASE + "batch"], found[PHASE + "epochs"], found[P + "save"], found[P + "validate"]) == (8, 3, 500, 0)
    masks = {"kind": "mlm", "swap_from": "all", "rounding": "chance"}
    assert {key: found[P + f"objective.{key}"] for key in masks} == masks
    gpt2 = [*OLD_BASE[:2], "--model_name_or_path=gpt2", "--block_size=64", "--line_by_line", "--whole_word_mask"]
    call = called(CODE, OLD, *gpt2)
    assert call.recipes["pretrain"]["objective"] == {"kind": "clm", "separate": True}
    assert "--whole_word_mask: has no effect without --mlm" in call.notes
    first = resolved(CODE, OLDER, *OLD_BASE[:2], "--block_size=64", "--mlm", "--evaluate_during_training")
    wanted = {
        PHASE + "batch": 4,
        PHASE + "epochs": 1.0,
        P + "save": 50,
        P + "log": 50,
        P + "validate": 50,
        P + "init": "bert-base-cased",
    }
    assert {key: first[key] for key in wanted} == wanted
    assert called(CODE, OLDER, *OLD_BASE[:2], "--model_type=gpt2", "--model_name_or_path=gpt2").recipes
    with pytest.raises(UsageError, match="--model_type: found zzz; wanted bert, roberta"):
        called(CODE, OLDER, *OLD_BASE[:2], "--model_type=zzz")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (OLD_BASE[:1], "--train_data_file: missing; wanted a text file"),
        (OLD_BASE[1:], "--do_train: missing"),
        ([*OLD_BASE, "--train_data_files=*.txt"], "--train_data_file: found with --train_data_files; wanted one of"),
        ([OLD_BASE[0], "--train_data_files=n*.txt", "--mlm"], r"found n\*.txt, which matches no file"),
        ([*OLD_BASE, "--do_eval"], "--eval_data_file: missing; wanted a text file, because of --do_eval"),
        ([*OLD_BASE[:2], "--model_type=roberta", "--tokenizer_name=tok"], "--mlm: missing; wanted --mlm"),
        ([*OLD_BASE, "--train_ref_file=r.txt"], "--train_ref_file: is not supported"),
    ],
)
def test_wrong_words_of_the_old_program(folder: Path, words: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        called(CODE, OLD, *words)


def test_a_model_that_stands_says_whether_it_needs_mlm(folder: Path) -> None:
    (folder / "bert").mkdir()
    (folder / "bert" / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(UsageError, match="--mlm: missing"):
        called(CODE, OLD, *OLD_BASE[:-1])


def test_a_tokenizer_says_how_long_blocks_may_be(folder: Path) -> None:
    (folder / "tok").mkdir()
    (folder / "tok" / "tokenizer_config.json").write_text('{"model_max_length": 48}')
    words = [*OLD_BASE, "--tokenizer_name=tok"]
    assert resolved(CODE, OLD, *words)[PHASE + "length"] == 48
    assert "--block_size 64: rows have 48 tokens, the limit of the tokenizer" in called(CODE, OLD, *words).notes
    assert resolved(CODE, OLD, *words, "--block_size=-1")[PHASE + "length"] == 48


def test_words_as_their_parser_reads_them(folder: Path) -> None:
    (folder / "words.json").write_text(
        json.dumps(
            {
                "train_file": "t.txt",
                "do_train": True,
                "model_name_or_path": "b",
                "max_steps": 5,
                "fp16": False,
                "report_to": ["none"],
                "lr_scheduler_kwargs": {"lr_end": 0.0},
                "lr_scheduler_type": "polynomial",
                "tokenizer_name": None,
            }
        )
    )
    got = resolved(CODE, MLM, "words.json", "--bf16", "y", "optimizer.decay=0.5")
    assert (got[PHASE + "steps"], got[P + "layout.precision"], got[P + "optimizer.decay"]) == (5, "bf16", 0.5)
    assert got[SCHEDULE + "end"] == 0.0
    dashes = resolved(CODE, MLM, *BASE, "--output-dir", "o", "--no_use_fast_tokenizer", "--no-cuda", "--fp16", "f")
    assert (dashes[P + "out"], dashes[P + "layout.device"], dashes[P + "layout.precision"]) == ("o", "cpu", "fp32")


def test_files_of_words_that_are_none(folder: Path) -> None:
    (folder / "a.json").write_text('["--do_train"]')
    with pytest.raises(DataError, match=r"a.json: is not a JSON object"):
        called(CODE, MLM, "a.json")
    (folder / "a.json").write_text('{"do_train": tru')
    with pytest.raises(DataError, match=r"a.json: not JSON"):
        called(CODE, MLM, "a.json")
    (folder / "a.json").write_text('{"do_trian": true}')
    with pytest.raises(UsageError, match="--do_trian=True: no such flag; did you mean `--do_train`"):
        called(CODE, MLM, "a.json")


def test_files_are_looked_for_before_anything_is_learned(folder: Path) -> None:
    with pytest.raises(DataError, match=r"none.csv: no such file"):
        called(CODE, GLUE, *CLASS_BASE, "--do_predict", "--test_file=none.csv")
    with pytest.raises(DataError, match="`ordsmed fetch squad` gets it"):
        called(CODE, QA, "--model_name_or_path=b", "--do_train", "--do_eval", "--dataset_name=squad")


def test_networks_of_configurations(folder: Path) -> None:
    (folder / "config.json").write_text(
        json.dumps(
            {
                "model_type": "gpt2",
                "n_embd": 32,
                "n_layer": 3,
                "n_head": 2,
                "n_positions": 64,
                "vocab_size": 9,
                "activation_function": "gelu_new",
                "resid_pdrop": 0.1,
                "embd_pdrop": 0.1,
                "attn_pdrop": 0.1,
                "layer_norm_epsilon": 1e-5,
                "initializer_range": 0.02,
                "n_inner": None,
            }
        )
    )
    (folder / "tok").mkdir()
    (folder / "tok" / "tokenizer_config.json").write_text('{"model_max_length": 48}')
    words = ["--do_train", "--train_file=t.txt", "--config_name=config.json", "--tokenizer_name=tok"]
    got = resolved(CODE, CLM, *words)
    assert [got[P + f"model.{key}"] for key in ("kind", "width", "layers", "positions")] == ["gpt2", 32, 3, 64]
    assert (got[PHASE + "length"], got[E + "tokenizer"]) == (48, "tok")
    (folder / "tok" / "tokenizer_config.json").write_text('{"model_max_length": 1e30}')
    assert resolved(CODE, CLM, *words)[PHASE + "length"] == 64, "the network's"
    longer = [*words[:2], "--model_type=gpt2", "--config_overrides=n_positions=2048", words[-1]]
    assert resolved(CODE, CLM, *longer)[PHASE + "length"] == 1024
    (folder / "config.json").rename(folder / "tok" / "config.json")
    assert resolved(CODE, CLM, *words[:2], "--model_name_or_path=tok")[PHASE + "length"] == 64


def test_a_folder_goes_on_or_begins_anew(folder: Path) -> None:
    assert called(CODE, MLM, *BASE, "--overwrite_output_dir").words == ["--anew"]
    for word in ("True", "o/checkpoint-500", "o"):
        assert called(CODE, MLM, *BASE, "--output_dir=o", f"--resume_from_checkpoint={word}").words == []
    with pytest.raises(UsageError, match="found other/checkpoint-5; wanted a checkpoint in o"):
        called(CODE, MLM, *BASE, "--output_dir=o", "--resume_from_checkpoint=other/checkpoint-5")


def test_other_texts_lie_elsewhere(folder: Path) -> None:
    """As with the original's cache, results of a former call with other flags cause no error."""

    def recipes(*words: str) -> dict[Path, str]:
        return perform.recipes(find(CODE, MLM), called(CODE, MLM, *BASE, *words), [])

    def place(*words: str) -> tuple[str, str]:
        got = resolved(CODE, MLM, *BASE, *words)
        return got[C + "out"], got[E + "out"]

    assert place() == place("--learning_rate=1")
    there = [path for path in recipes() if path.stem != "pretrain"]
    assert there == [path for path in recipes("--output_dir=other") if path.stem != "pretrain"]
    assert place()[0] == place("--tokenizer_name=other")[0]
    assert place()[1] != place("--tokenizer_name=other")[1]
    before = place("--line_by_line")
    assert before[0] != place()[0]
    (folder / "t.txt").write_text("one two three\n")
    assert before[0] != place("--line_by_line")[0]


def test_networks_that_cannot_be(folder: Path) -> None:
    """Errors are one line with the location, also for keys of a user."""
    with pytest.raises(DataError, match=r"^--config_overrides: hidden_act: found loud"):
        called(CODE, MLM, *FRESH, "--config_overrides=hidden_act=loud")
    (folder / "few.json").write_text('{"model_type": "bert", "hidden_size": 8}')
    with pytest.raises(DataError, match=r"^few\.json: has no 'num_hidden_layers'"):
        called(CODE, MLM, *FRESH[:2], "--config_name=few.json", "--tokenizer_name=tok")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([*BASE, "--learning_rat=1", "--per_device_eval_batch_sise=3"], "did you mean `--per_device_eval_batch_size`?"),
        ([*BASE, "--dataset_name=wikitext"], "--dataset_name: found with files; wanted one of the two"),
        ([*BASE[:1], *BASE[2:], "--dataset_name=imdb"], "found imdb; wanted wikitext wikitext-2-raw-v1, wikitext"),
        ([*BASE, "--bf16", "--fp16"], "--bf16: found with --fp16"),
        ([*BASE, "--bf16", "perhaps"], "found perhaps; wanted True or False"),
        (BASE[1:], "--do_train: missing"),
        (BASE[:1] + BASE[2:], "--train_file: missing"),
        (BASE[:2], "--model_name_or_path: missing"),
        ([*BASE, "--config_overrides=hidden_size=8"], "--config_overrides: found with --model_name_or_path"),
        ([*FRESH, "--config_overrides=hiden_size=8"], "found hiden_size=8; wanted KEY=VALUE; did you mean `hid"),
        ([*FRESH, "--config_overrides=hidden_size=wide"], "found hidden_size=wide; wanted a value such as 768"),
        ([*FRESH, "--model_type=bart"], "--model_type: found bart; wanted one of bert"),
        ([*FRESH[:3], "--model_type=bert"], "--tokenizer_name: missing"),
        ([*BASE, "--optim=adamw"], "--optim: found adamw; wanted one of adamw_torch"),
        ([*BASE, "--lr_scheduler_type=greedy"], "found greedy; wanted one of linear"),
        ([*BASE, "--lr_scheduler_kwargs={x}"], "wanted JSON"),
        *(
            ([*BASE, f"--lr_scheduler_kwargs={text}", "--lr_scheduler_type=cosine"], wanted)
            for text, wanted in (
                ("7", "wanted JSON of numbers"),
                ("[1]", "JSON of numbers"),
                ('{"num_cycles": "1"}', "JSON of numbers"),
                ('{"num_cycles": 0}', "found num_cycles 0; wanted more than 0"),
                ('{"num_cycles": NaN}', "JSON of numbers"),
                ('{"timescale": 7}', "leave timescale out"),
            )
        ),
        ([*BASE, "--lr_scheduler_kwargs", '{"power": 3}'], "leave power out"),
        ([*BASE, "--torch_compile_backend=eager"], "found eager; wanted inductor"),
        ([*BASE, "--torch_compile_mode=max-autotune"], "found max-autotune; wanted default"),
        ([*BASE, "--eval_strategy=epoch", "--max_steps=9"], "--eval_strategy: found epoch with --max_steps"),
        ([*BASE, "--save_strategy=epoch", "--max_steps=9"], "--save_strategy: found epoch with --max_steps"),
        ([*BASE, "--save_strategy=best"], "--save_strategy: found best; wanted no, steps or epoch"),
        ([*BASE, "--save_steps=2.5"], "--save_steps: found 2.5; wanted a number of steps, or a share"),
        ([*BASE, "--load_best_model_at_end"], "--load_best_model_at_end: found for a language model"),
        ([*BASE, "--deepspeed=ds.json"], "`layout.shard=N` after the flags"),
        ([*BASE, "--train_file=t.pdf"], "t.pdf: has the ending .pdf; wanted .txt, .csv or .json"),
        ([*BASE, "--train_file=none.csv"], "none.csv: no such file"),
        ([*BASE, "--train_file=list.json"], "list.json:1: is not an object"),
    ],
)
def test_wrong_words(folder: Path, words: list[str], said: str) -> None:
    (folder / "list.json").write_text("[\n1]")
    with pytest.raises(UsageError, match=re.escape(said)):
        called(CODE, MLM, *words)


def test_what_is_refused_may_be_said_as_it_is_unsaid(folder: Path) -> None:
    words = ["--label_smoothing_factor", "0.0", "--push_to_hub", "False", "--model_revision=main"]
    assert changes(CODE, MLM, BASE, *words) == {}
    with pytest.raises(UsageError, match="--label_smoothing_factor: is not supported; leave it out"):
        called(CODE, MLM, *BASE, "--label_smoothing_factor", "0.1")


@pytest.mark.parametrize(("said", "pool"), [("", None), ("cls", None), ("mean", "mean")])
def test_a_modern_bert_pools_as_its_config_says(folder: Path, said: str, pool: str | None) -> None:
    (folder / "b").mkdir()
    tokens = SimpleNamespace(pad=0, start=1, stop=2, separator=2)
    table = ModernBert(width=16, layers=1, heads=2, positions=512).hugging_face(99, tokens)  # type: ignore[arg-type]
    files.write_json(folder / "b" / "config.json", {"model_type": "modernbert", **table, "classifier_pooling": said})
    assert resolved(CODE, GLUE, *CLASS_BASE).get(F + "task.pool") == pool


def test_what_theirs_leaves_unsaid_of_a_fine_tuning(folder: Path) -> None:
    got = resolved(CODE, GLUE, *CLASS_BASE)
    wanted = {
        "out": "trainer_output",
        "learning_rate": 5e-5,
        "epochs": 3.0,
        "batch": 8,
        "warmup": 0.0,
        "layer_decay": 1.0,
        "freeze": False,
        "save": 500,
        "task.kind": "classify",
        "task.text": "sentence1",
        "task.second": "sentence2",
        "task.length": 128,
        "task.number": False,
        "optimizer.decay": 0.0,
    }
    assert {key: got[F + key] for key in wanted} == wanted
    assert not got.get(F + "task.dev")
    assert F + "optimizer.kind" in got, "it has every key that the family fills in, so the head is unchanged"
    assert F + "task.pool" not in got
    assert resolved(CODE, GLUE, *CLASS_BASE, "--save_strategy=epoch")[F + "save"] == 0
    squad = resolved(CODE, QA, *QUESTION_BASE)
    wanted = {
        "task.kind": "squad",
        "task.version": "1.1",
        "task.head": "independent",
        "task.search": "tops",
        "task.length": 384,
        "task.stride": 128,
        "task.overlap": True,
        "task.longest_question": 384,
    }
    assert {key: squad[F + key] for key in wanted} == wanted


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["--eval_strategy=epoch", "--save_strategy=epoch"], {"validate": 1 / 3, "save": 1 / 3}),
        (["--eval_strategy=epoch", "--num_train_epochs=1"], {"validate": 0, "save": 500}),
        (["--eval_strategy=steps", "--eval_steps=0.1", "--save_steps=0.2"], {"validate": 0.1, "save": 0.2}),
        (
            ["--eval_strategy=steps", "--eval_steps=0.1", "--save_steps=0.2", "--logging_steps=0.05", "--max_steps=35"],
            {"validate": 4, "save": 7, "log": 2},
        ),
        (["--eval_strategy=steps", "--save_steps=-1", "--logging_steps=7"], {"validate": 7, "save": 0, "log": 7}),
    ],
)
def test_a_language_model_is_judged_and_saved(folder: Path, words: list[str], wanted: dict[str, float]) -> None:
    """Validate at an epoch's end or at a share of all steps, whose number is known after encoding."""
    got = resolved(CODE, MLM, *BASE, *words)
    assert {key: got[P + key] for key in wanted} == wanted
    if "--save_steps=0.2" in words and "--max_steps=35" not in words:
        with pytest.raises(UsageError, match=r"--save_steps: found 0\.2; wanted steps"):
            called(CODE, GLUE, *CLASS_BASE, "--save_steps=0.2")


def test_data_sets_that_are_fetched(folder: Path) -> None:
    """The commands of the examples' READMEs; `ordsmed fetch` replaces the hub."""
    words = [BASE[0], *BASE[2:], "--dataset_name=Salesforce/wikitext", "--dataset_config_name=wikitext-2-raw-v1"]
    got = resolved(CODE, MLM, *words, "--line_by_line")
    assert got[C + "source.path"] == "work/fetch/wikitext/wikitext-2-raw/wiki.train.raw"
    assert got[C + "given.validation.path"] == "work/fetch/wikitext/wikitext-2-raw/wiki.valid.raw"
    assert (got[C + "source.apart"], got[C + "given.validation.apart"]) == ("line", "line")
    for name, version in (("squad", "1.1"), ("squad_v2", "2.0")):
        words = ["--model_name_or_path=b", "--do_eval", f"--dataset_name={name}", "--dataset_config_name=plain_text"]
        got = resolved(CODE, QA, *(word for word in words if word != "--do_eval"), "--do_train")
        assert got[F + "task.train"] == f"work/fetch/squad/train-v{version}.json"
        assert called(CODE, QA, *words).words[1] == f"work/fetch/squad/dev-v{version}.json"


def test_tables_of_excel_and_lists(folder: Path) -> None:
    """A byte order mark is not part of a column's name; a JSON list works like JSON lines."""
    (folder / "bom.csv").write_bytes(b"\xef\xbb\xbftext,label\nfine,yes\n")
    got = resolved(CODE, GLUE, *CLASS_BASE, "--train_file=bom.csv")
    assert (got[F + "task.text"], got.get(F + "task.second")) == ("text", None)
    (folder / "list.json").write_text('[\n{"label": 1.5, "a": "one", "b": "two"}]')
    got = resolved(CODE, GLUE, *CLASS_BASE, "--train_file=list.json")
    assert [got[F + f"task.{key}"] for key in ("text", "second", "number")] == ["a", "b", True]
    assert got.get(F + "task.format") is None


def test_tasks_of_glue_and_numbers(folder: Path) -> None:
    words = ["--model_name_or_path=b", "--do_train", "--task_name"]
    got = resolved(CODE, GLUE, *words, "STSB")
    assert (got[F + "task.name"], got[F + "task.train"]) == ("sts-b", "work/fetch/glue/STS-B/train.tsv")
    assert [resolved(CODE, GLUE, *words, one)[F + "task.unordered"] for one in ("stsb", "mrpc", "rte")] == [False] * 3
    (folder / "n.csv").write_text("text,label\none,1\ntwo,0.5\n")
    got = resolved(CODE, GLUE, *CLASS_BASE, "--train_file=n.csv")
    assert (got[F + "task.number"], got[F + "task.metrics"][0]) == (True, "pearson")
    call = called(CODE, GLUE, *words[:1], "--do_eval", "--do_predict", "--task_name=mnli", "--output_dir=o")
    asked = ["b", "work/fetch/glue/MNLI/dev_matched.tsv", "o/eval_predictions", "--anew", "--scores"]
    assert call.words == [*asked, "task.length=128", 'task.name="mnli"']


def test_scores_have_theirs_names_and_sizes(folder: Path) -> None:
    def told(own: dict[str, float], *words: str) -> dict[str, float]:
        values = find(CODE, GLUE).read(words, ProcessInfo(), {})
        return huggingface.hf_scores(huggingface.EvaluatedFiles("eval", (), is_labelled=True, end="_mm"), own, values)

    number = {"pearson": 50.0, "squared_error": 3.0, "validation": 0.12}
    assert told(number) == {"eval_pearson_mm": 0.5, "eval_mse_mm": 3.0, "eval_loss_mm": 3.0}
    assert told(number, "--task_name=stsb") == {
        "eval_pearson_mm": 0.5,
        "eval_combined_score_mm": 0.5,
        "eval_loss_mm": 3.0,
    }
    assert told({"matthews": 50.0, "validation": 0.7}) == {"eval_matthews_correlation_mm": 0.5, "eval_loss_mm": 0.7}
    assert told({"accuracy": 80.0, "f1": 90.0}, "--task_name=MRPC")["eval_combined_score_mm"] == pytest.approx(0.85)
    assert "eval_combined_score_mm" not in told({"accuracy": 80.0, "f1": 90.0}, "--task_name=cola")
    assert told({"exact": 80.0, "f1": 90.0}) == {"eval_exact_match_mm": 80.0, "eval_f1_mm": 90.0}


def test_a_model_that_stands_is_asked(folder: Path) -> None:
    words = ["--model_name_or_path=b", "--validation_file=v.json", "--output_dir=o", "--use_cpu"]
    call = called(CODE, QA, *words, "--do_eval")
    assert (call.verb, call.recipes) == ("predict", {})
    assert call.words[:5] == ["b", "v.json", "o/eval_predictions", "--anew", "--scores"]
    assert call.words[-2:] == ["--device", "cpu"]
    flags = ["--doc_stride=32", "--null_score_diff_threshold=0.5", "--version_2_with_negative"]
    said = called(CODE, QA, *words, *flags, "--do_eval").words
    assert {"task.stride=32", "task.overlap=true", "task.longest_question=384"} < set(said)
    assert {"task.threshold=0.5", 'task.version="2.0"', "task.length=384"} < set(said)
    call = called(CODE, GLUE, *CLASS_BASE[1:], "--do_predict", "--test_file=s.csv", "--output_dir=o")
    assert call.words[:4] == ["b", "s.csv", "o/predict_predictions", "--anew"]
    assert 'task.text="sentence1"' in call.words


@pytest.fixture
def entailed(folder: Path) -> Path:
    """Write XNLI's files of two languages."""
    (folder / "x/XNLI-1.0").mkdir(parents=True)
    (folder / "x/XNLI-MT-1.0/multinli").mkdir(parents=True)
    head = "language\tgold_label\tsentence1\tsentence2\n"
    for name in ("dev", "test"):
        rows = "".join(f"{language}\tneutral\tthe cat\tsat\n" for language in ("de", "sw", "de"))
        (folder / f"x/XNLI-1.0/xnli.{name}.tsv").write_text(head + rows)
    for language in ("de", "en"):
        rows = "the cat\tsat\tneutral\nthe mat\train fell\tcontradictory\n"
        (folder / f"x/XNLI-MT-1.0/multinli/multinli.train.{language}.tsv").write_text("premise\thypo\tlabel\n" + rows)
    return folder


XNLI_BASE = ["--model_name_or_path=b", "--data_dir=x", "--language=de"]


def test_recipes_that_a_run_refuses_are_not_printed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for flag, wanted in (("--learning_rate=nan", "rate: found nan"), ("--mlm_probability=1.5", "mask_prob: found 1.5")):
        with pytest.raises(SystemExit):
            main(["as", CODE, MLM, *BASE, flag, "--recipe"])
        captured = capsys.readouterr()
        assert wanted in captured.err
        assert not captured.out


@pytest.mark.parametrize("words", [["--eval_strategy=epoch"], ["--do_eval=False", "--eval_strategy=steps"]])
def test_a_strategy_of_evaluation_turns_evaluation_on(folder: Path, words: list[str]) -> None:
    call = called(CODE, GLUE, *CLASS_BASE, *words)
    assert call.recipes["finetune"]["task"]["dev"] == "two.csv"
    assert find(CODE, MLM).read([*BASE, *words], ProcessInfo(), {}).do_eval


def test_xnli_in_one_of_its_languages(entailed: Path) -> None:
    got = resolved(CODE, XNLI, *XNLI_BASE, "--do_train", "--do_eval", "--eval_strategy=epoch")
    train, dev = "x/XNLI-MT-1.0/multinli/multinli.train.de.tsv", "x/XNLI-1.0/xnli.dev.tsv"
    wanted = {
        "task.name": "xnli",
        "task.language": "de",
        "task.length": 128,
        "task.train": train,
        "task.dev": dev,
        "epochs": 3.0,
        "batch": 8,
    }
    assert {key: got[F + key] for key in wanted} == wanted
    other = resolved(CODE, XNLI, *XNLI_BASE, "--do_train", "--train_language=en")
    assert (other[F + "task.train"], other[F + "task.language"]) == (train.replace("train.de", "train.en"), "de")
    asked = called(CODE, XNLI, *XNLI_BASE, "--do_predict", "--output_dir=o").words
    assert asked[:5] == ["b", "x/XNLI-1.0/xnli.test.tsv", "o/predict_predictions", "--anew", "--scores"]
    assert {'task.name="xnli"', 'task.language="de"', "task.length=128"} < set(asked)
    with pytest.raises(DataError, match="`ordsmed fetch xnli` gets it"):
        called(CODE, XNLI, XNLI_BASE[0], XNLI_BASE[2], "--do_train", "--do_eval")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--do_train"], "--language: missing; wanted ar, bg, de"),
        (["--language=no", "--do_train"], "--language: found no; wanted ar, bg, de"),
        (["--language=de", "--train_language=no", "--do_train"], "--train_language: found no; wanted ar, bg"),
        (["--language=de"], "--do_train: missing, as are --do_eval and --do_predict"),
    ],
)
def test_wrong_words_of_xnli(entailed: Path, words: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        called(CODE, XNLI, *XNLI_BASE[:2], *words)


def test_fewer_examples(folder: Path) -> None:
    """The first examples of each file are copied to other files before training."""
    (folder / "two.csv").write_text('sentence1,label\n"one\ntwo",yes\nthree,no\nfour,no\n')
    words = [*CLASS_BASE, "--do_eval", "--test_file=two.csv", "--do_predict", "--eval_strategy=epoch"]
    call = called(CODE, GLUE, *words, "--max_train_samples=1", "--max_eval_samples=2")
    task = call.recipes["finetune"]["task"]
    assert not Path(task["train"]).exists()
    for step in call.before:
        step()
    assert Path(task["train"]).read_text() == 'sentence1,label\n"one\ntwo",yes\n'
    assert Path(task["dev"]).read_text() == 'sentence1,label\n"one\ntwo",yes\nthree,no\n'
    assert f"two.csv: uses the first 1 example, copied to {task['train']}" in call.notes
    asked = called(CODE, QA, "--model_name_or_path=b", "--validation_file=v.json", "--do_eval", "--max_eval_samples=1")
    assert asked.words[1].startswith("work/as/first-1-")
    assert asked.words[1].endswith("/v.json")


def test_a_checkpoint_of_a_run_by_its_name(folder: Path) -> None:
    """OUT/checkpoint-6 is a step of the run in OUT, which resumes only from its last checkpoint."""
    (folder / "out" / "weights").mkdir(parents=True)
    for step in (4, 6):
        (folder / "out" / "checkpoints" / f"step-{step:09d}").mkdir(parents=True)
    (folder / "out" / "status.json").write_text('{"verb": "finetune", "step": 6}')
    (folder / "out" / "recipe.toml").touch()
    named = ["--validation_file=v.json", "--do_eval", "--output_dir=o", "--tokenizer_name=tok"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(huggingface, "_network_limit", lambda values: huggingface.NO_LIMIT)
        last = called(CODE, QA, "--model_name_or_path=out/checkpoint-6", *named).words
        earlier = called(CODE, QA, "--model_name_or_path=out/checkpoint-4", *named).words
    assert (last[0], earlier[0], earlier[-2:]) == ("out", "out", ["--step", "4"])
    assert "--step" not in last
    assert resolved(CODE, MLM, *BASE, "--model_name_or_path=out/checkpoint-6")[P + "init"] == "out/weights"
    words = [*BASE, "--output_dir=out", "--resume_from_checkpoint=out/checkpoint-"]
    assert called(CODE, MLM, *words[:-1], words[-1] + "6").words == []
    with pytest.raises(UsageError, match="wanted the last one, of step 6"):
        called(CODE, MLM, *words[:-1], words[-1] + "4")


def test_rows_are_no_longer_than_the_model_takes(folder: Path) -> None:
    """The original also limits --max_seq_length to that of the tokenizer."""
    (folder / "short").mkdir()
    config = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    config |= {"model_type": "bert", "max_position_embeddings": 48, "vocab_size": 9, "type_vocab_size": 2}
    config |= {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1, "initializer_range": 0.02}
    config |= {"hidden_act": "gelu", "layer_norm_eps": 1e-12}
    (folder / "short" / "config.json").write_text(json.dumps(config))
    words = [*CLASS_BASE[:3], "--model_name_or_path=short", "--output_dir=o"]
    call = called(CODE, GLUE, *words)
    assert call.recipes["finetune"]["task"]["length"] == 48
    assert "--max_seq_length 128: rows have 48 tokens, the limit of the model" in call.notes
    (folder / "short" / "tokenizer_config.json").write_text('{"model_max_length": 32}')
    assert called(CODE, GLUE, *words).recipes["finetune"]["task"]["length"] == 32


@pytest.mark.parametrize(
    ("name", "words", "said"),
    [
        (GLUE, CLASS_BASE[1:], "--do_train: missing, as are --do_eval"),
        (GLUE, CLASS_BASE[:3], "--model_name_or_path: missing"),
        (GLUE, [*CLASS_BASE[:2], CLASS_BASE[3]], "run_glue.py: no --task_name and not both files"),
        (GLUE, [*CLASS_BASE, "--task_name=cola"], "--task_name: found with files"),
        (GLUE, [*CLASS_BASE, "--do_predict"], "--test_file: missing"),
        (GLUE, [*CLASS_BASE, "--dataset_name=imdb"], "nothing is downloaded: give the files"),
        (QA, [*QUESTION_BASE[:1], QUESTION_BASE[2], "--dataset_name=adversarial_qa"], "wanted squad, squad_v2"),
        (GLUE, [*CLASS_BASE, "--load_best_model_at_end"], "--load_best_model_at_end: found without --eval_strategy"),
        (GLUE, [*CLASS_BASE, *BEST, "--metric_for_best_model=loss"], "--metric_for_best_model: found loss"),
        (QA, QUESTION_BASE[:1] + QUESTION_BASE[2:], "--train_file: missing"),
        (QA, [*QUESTION_BASE, "--do_eval"], "--validation_file: missing"),
        (QA, [*QUESTION_BASE, "--train_file=t.csv"], "--train_file: found t.csv; wanted a .json file"),
    ],
)
def test_wrong_words_of_a_fine_tuning(folder: Path, name: str, words: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        called(CODE, name, *words)


@pytest.fixture
def pieces(folder: Path) -> Path:
    """Write a tokenizer's folder, and texts of its words."""
    words = ["the", "cat", "sat", "on", "a", "mat", "while", "rain", "fell"]
    (folder / "tok").mkdir()
    (folder / "tok" / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words, ""]))
    texts = [" ".join(words[n % 5 :] + words[: n % 7]) for n in range(60)]
    (folder / "t.txt").write_text("\n\n".join(texts))
    return folder


SMALL = [
    "--tokenizer_name=tok",
    "--train_file=t.txt",
    "--do_train",
    "--do_eval",
    "--max_steps=2",
    "--use_cpu",
    "--per_device_train_batch_size=2",
    "--output_dir=out",
]


def test_a_configuration_beside_a_model_says_its_network(folder: Path) -> None:
    """Dropout may differ from the model's; other differences are refused when the model is opened."""
    sizes = dict.fromkeys(("vocab_size", "max_position_embeddings", "intermediate_size", "hidden_size"), 16)
    sizes |= dict.fromkeys(("num_hidden_layers", "num_attention_heads", "type_vocab_size"), 2)
    (folder / "c.json").write_text(json.dumps({"model_type": "bert", "hidden_dropout_prob": 0.3, **sizes}))
    for words in ([MLM, *BASE], [OLD, *OLD_BASE]):
        recipe = called(CODE, *words, "--config_name=c.json").recipes["pretrain"]
        assert (recipe["init"], recipe["model"]["dropout"], recipe["model"]["width"]) == ("bert", 0.3, 16)
    assert not called(CODE, MLM, *BASE).recipes["pretrain"].get("model")


def test_a_model_that_is_asked_has_its_own_tokenizer(pieces: Path) -> None:
    """A tokenizer that is given must be equal."""
    (pieces / "other").mkdir()
    (pieces / "other" / "vocab.txt").write_text((pieces / "tok" / "vocab.txt").read_text() + "sun\n")
    words = ["--model_name_or_path=tok", "--test_file=t.json", "--do_predict", "--output_dir=o"]
    for named, fits in (("tok", True), ("other", False)):
        call = called(CODE, QA, *words, f"--tokenizer_name={named}")
        assert f"--tokenizer_name {named}: must equal the tokenizer of tok" in call.notes
        with contextlib.nullcontext() if fits else pytest.raises(UsageError, match="found other, which is not"):
            for make in call.before:
                make()
    assert not called(CODE, QA, *words).before


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "words", "auto"),
    [
        (
            MLM,
            [
                "--model_type=bert",
                "--max_seq_length=16",
                "--config_overrides=hidden_size=16,num_hidden_layers=1,num_attention_heads=2,intermediate_size=32",
            ],
            "AutoModelForMaskedLM",
        ),
        (
            CLM,
            ["--model_type=gpt2", "--block_size=16", "--config_overrides=n_embd=16,n_layer=1,n_head=2"],
            "AutoModelForCausalLM",
        ),
    ],
)
def test_a_run_leaves_what_theirs_leaves(pieces: Path, name: str, words: list[str], auto: str) -> None:
    main(["as", CODE, name, *SMALL, *words])
    out = pieces / "out"
    whole = json.loads((out / "all_results.json").read_text())
    assert {"train_loss", "eval_loss", "eval_accuracy", "perplexity"} <= set(whole)
    assert whole["train_runtime"] > 0
    state = json.loads((out / "trainer_state.json").read_text())
    assert [(one["step"], "loss" in one, "eval_loss" in one) for one in state["log_history"]] == [
        (2, True, False),
        (2, False, True),
    ]
    assert state["log_history"][1]["eval_loss"] == whole["eval_loss"]
    assert state["global_step"] == 2
    assert not (out / "ordsmed.json").exists(), "a run's folder is no export"
    assert whole == json.loads((out / "train_results.json").read_text()) | json.loads(
        (out / "eval_results.json").read_text()
    )
    again = [
        "as",
        CODE,
        MLM,
        "--model_name_or_path=out",
        "--tokenizer_name=tok",
        "--output_dir=more",
        *SMALL[1:-1],
        "--max_seq_length=16",
    ]
    if name == MLM:  # the original's folder has initial weights; its call resumes in place
        main(again)
        assert "init = 'out'" in (pieces / "work/as/more/pretrain.toml").read_text().replace('"', "'")
        main(again)
        main([*again, "--tokenizer_name=tok", "--output_dir=third"])  # with the tokens of the first
    transformers = pytest.importorskip("transformers")
    model = getattr(transformers, auto).from_pretrained(out)
    assert sum(one.numel() for one in model.parameters()) > 0
    assert transformers.AutoTokenizer.from_pretrained(out)("the cat")["input_ids"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "words", "results"),
    [
        (OLD, ["--mlm", "--do_eval", "--eval_data_file=t.txt", "--whole_word_mask"], "eval_results_lm.txt"),
        (OLDER, ["--mlm", "--line_by_line"], ""),
    ],
)
def test_a_run_of_the_old_program(pieces: Path, name: str, words: list[str], results: str) -> None:
    """Only the file of --eval_data_file is evaluated; its perplexity is in the original's file."""
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    transformers.BertForMaskedLM(transformers.BertConfig(vocab_size=14, **sizes)).save_pretrained(pieces / "bert")
    main(
        [
            "as",
            CODE,
            name,
            "--model_name_or_path=bert",
            "--tokenizer_name=tok",
            "--train_data_file=t.txt",
            "--do_train",
            "--max_steps=2",
            "--use_cpu",
            "--block_size=16",
            "--output_dir=out",
            *words,
        ]
    )
    whole = json.loads((pieces / "out" / "all_results.json").read_text())
    assert {path.name for path in (pieces / "out").glob("eval_results*.txt")} == ({results} if results else set())
    if results:
        assert (pieces / "out" / results).read_text() == f"perplexity = {whole['perplexity']}\n"
    else:
        assert "eval_loss" not in whole
    transformers.AutoModelForMaskedLM.from_pretrained(pieces / "out")


def test_the_recipe_is_what_is_performed(folder: Path) -> None:
    program = find(CODE, MLM)
    call = called(CODE, MLM, *BASE, "--output_dir=o", "--overwrite_output_dir")
    assert perform.words(program, call) == ["pretrain", "work/as/o/pretrain.toml", "--anew"]
    corpus, encode, pretrain = written = perform.recipes(program, call, [])
    assert pretrain == Path("work/as/o/pretrain.toml")
    assert (corpus.parent.parent, encode.parent.parent) == (Path("work/as"), Path("work/as"))
    assert f'corpus = "{corpus}"' in written[encode]


@pytest.fixture
def small(pieces: Path) -> Path:
    """Fine-tune a network made by transformers on a table of text pairs and on questions."""
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    transformers.BertModel(transformers.BertConfig(vocab_size=14, **sizes)).save_pretrained(pieces / "bert")
    (pieces / "bert" / "vocab.txt").write_text((pieces / "tok" / "vocab.txt").read_text())
    rows = [f"the {'cat' if n % 3 else 'mat'} sat,rain fell,{'yes' if n % 3 else 'no'}" for n in range(12)]
    (pieces / "two.csv").write_text("\n".join(["sentence1,sentence2,label", *rows, ""]))
    text = "the cat sat on a mat while rain fell"
    asked = [
        {
            "id": f"q{n}",
            "context": text,
            "question": "on a",
            "title": "",
            "answers": {"text": ["mat"], "answer_start": [text.index("mat")]},
        }
        for n in range(6)
    ]
    (pieces / "t.json").write_text(json.dumps({"data": asked}))
    return pieces


LEARNS = [
    "--model_name_or_path=bert",
    "--do_train",
    "--do_eval",
    "--do_predict",
    "--max_steps=2",
    "--use_cpu",
    "--max_seq_length=32",
    "--output_dir=out",
]


@pytest.mark.long
def test_classes_leave_what_theirs_leave(small: Path) -> None:
    main(["as", CODE, GLUE, *LEARNS, "--train_file=two.csv", "--validation_file=two.csv", "--test_file=two.csv"])
    whole = json.loads((small / "out" / "all_results.json").read_text())
    assert 0 <= whole["eval_accuracy"] <= 1
    assert whole["train_samples"] == 12
    lines = (small / "out" / "predict_results_None.txt").read_text().splitlines()
    assert lines[0] == "index\tprediction"
    assert [line.split("\t")[0] for line in lines[1:]] == [str(n) for n in range(12)]
    assert {line.split("\t")[1] for line in lines[1:]} <= {"yes", "no"}
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(small / "out")
    assert model.config.id2label == {0: "no", 1: "yes"}
    again = [word for word in LEARNS if word not in ("--do_train", "--do_predict", "--model_name_or_path=bert")]
    main(
        [
            "as",
            CODE,
            GLUE,
            "--model_name_or_path=out",
            *again[:-1],
            "--output_dir=judged",
            "--train_file=two.csv",
            "--validation_file=two.csv",
        ]
    )
    judged = json.loads((small / "judged" / "eval_results.json").read_text())
    assert judged["eval_accuracy"] == whole["eval_accuracy"]
    assert judged["eval_loss"] == pytest.approx(whole["eval_loss"], rel=1e-5)


@pytest.mark.long
def test_losses_of_numbers_are_in_the_unit_of_transformers(small: Path) -> None:
    """With a learning rate near 0, all losses are those of the final model on a full batch."""
    rows = [f"the {'cat' if n % 3 else 'mat'} sat,rain fell,{n / 2 + 3}" for n in range(12)]
    (small / "n.csv").write_text("\n".join(["sentence1,sentence2,label", *rows, ""]))
    main(
        [
            "as",
            CODE,
            GLUE,
            *(word for word in LEARNS if word != "--do_predict"),
            "--learning_rate=1e-30",
            "--per_device_train_batch_size=12",
            "--train_file=n.csv",
            "--validation_file=n.csv",
            "--logging_steps=1",
            "--eval_strategy=epoch",
        ]
    )
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(small / "out").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(small / "out")
    pairs = [row.split(",")[:2] for row in rows]
    labels = torch.tensor([float(row.split(",")[2]) for row in rows])
    loss = model(**tokenizer(pairs, padding=True, return_tensors="pt"), labels=labels).loss.item()
    whole = json.loads((small / "out" / "all_results.json").read_text())
    history = json.loads((small / "out" / "trainer_state.json").read_text())["log_history"]
    assert [whole["eval_loss"], whole["eval_mse"]] == pytest.approx([loss] * 2, rel=1e-4)
    assert [one["eval_loss"] for one in history if "eval_loss" in one] == pytest.approx([loss] * 2, rel=1e-4)
    losses = [whole["train_loss"], *(one["loss"] for one in history if "loss" in one)]
    assert losses == pytest.approx([loss] * 3, rel=0.1), "with dropout"


@pytest.mark.long
def test_xnli_leaves_what_theirs_leaves(small: Path, entailed: Path) -> None:
    main(["as", CODE, XNLI, *LEARNS, "--data_dir=x", "--language=de"])
    whole = json.loads((small / "out" / "all_results.json").read_text())
    assert {"eval_accuracy", "predict_accuracy", "train_loss"} <= set(whole)
    lines = (small / "out" / "predictions.txt").read_text().splitlines()
    assert lines[0] == "index\tprediction"
    assert [line.split("\t")[0] for line in lines[1:]] == ["0", "1"], "of German rows alone"


@pytest.mark.long
def test_the_best_check_stands_in_the_state(small: Path) -> None:
    """As transformers writes it: from the validations of the history, between 0 and 1, with an existing checkpoint."""
    main(
        [
            "as",
            CODE,
            GLUE,
            *LEARNS[:3],
            "--num_train_epochs=3",
            *LEARNS[5:],
            "--eval_strategy=epoch",
            "--load_best_model_at_end",
            "--metric_for_best_model=eval_macro_f1",
            "--save_total_limit=9",
            "--train_file=two.csv",
            "--validation_file=two.csv",
        ]
    )
    state = json.loads((small / "out" / "trainer_state.json").read_text())
    checks = [one for one in state["log_history"] if "eval_loss" in one]
    assert len(checks) == 3
    assert state["best_metric"] == max(one["eval_macro_f1"] for one in checks) <= 1
    assert state["best_global_step"] == next(
        one["step"] for one in checks if one["eval_macro_f1"] == state["best_metric"]
    )
    assert state["best_model_checkpoint"] == f"out/checkpoints/step-{state['best_global_step']:09d}"
    assert (small / state["best_model_checkpoint"]).is_dir()
    whole = json.loads((small / "out" / "eval_results.json").read_text())
    assert whole["eval_macro_f1"] == state["best_metric"], "the model is the best of the validations"
    best = next(one for one in checks if one["step"] == state["best_global_step"])
    assert best["eval_loss"] == pytest.approx(whole["eval_loss"], rel=1e-4)


CHECKS = [
    {"step": 2, "loss": 2.0, "rate": 0.1},
    {"step": 2, "validation": 0.9, "accuracy": 80.0},
    {"step": 4, "validation": 0.5, "accuracy": 90.0},
    {"step": 6, "validation": 0.6, "accuracy": 90.0},
]


@pytest.mark.parametrize(
    ("flags", "best", "wanted"),
    [
        ([], "", (None, None, None)),
        ([], "accuracy", (90.0, 4, "out/checkpoints/step-000000004")),  # the first one of equals
        (["--metric_for_best_model=eval_loss"], "accuracy", (0.5, 4, "out/checkpoints/step-000000004")),
        (["--metric_for_best_model=accuracy"], "", (90.0, 4, "out/checkpoints/step-000000004")),
        (["--metric_for_best_model=f1"], "", (None, None, None)),
    ],
)
def test_which_check_is_the_best(
    flags: list[str], best: str, wanted: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    out = Path("out")
    (out / "checkpoints/step-000000004").mkdir(parents=True)
    (out / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in CHECKS))
    values = find(CODE, GLUE).read([*CLASS_BASE, *flags], ProcessInfo(), {})
    trainer.write_state(out, values, best)
    state = json.loads((out / "trainer_state.json").read_text())
    assert tuple(state[f"best_{name}"] for name in ("metric", "global_step", "model_checkpoint")) == wanted
    shutil.rmtree(out / "checkpoints")
    trainer.write_state(out, values, best)
    assert json.loads((out / "trainer_state.json").read_text())["best_model_checkpoint"] is None


@pytest.mark.long
def test_questions_leave_what_theirs_leave(small: Path) -> None:
    files = ["--train_file=t.json", "--validation_file=t.json", "--test_file=t.json"]
    main(["as", CODE, QA, *LEARNS, *files, "--doc_stride=8"])
    whole = json.loads((small / "out" / "all_results.json").read_text())
    assert {"eval_exact_match", "eval_f1", "predict_f1", "train_loss"} <= set(whole)
    answers = json.loads((small / "out" / "eval_predictions.json").read_text())
    assert answers == json.loads((small / "out" / "predict_predictions.json").read_text())
    assert set(answers) == {f"q{n}" for n in range(6)}
    assert (small / "out" / "eval_nbest_predictions.json").is_file()
    pytest.importorskip("transformers").AutoModelForQuestionAnswering.from_pretrained(small / "out")
