"""NVIDIA's scripts: every documented command line, the machines, and the files that the scripts read."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kit.dialects import called, flat, resolved
from kit.task_files import task_files
from ordsmed.base import snapshots
from ordsmed.base.arguments import UsageError
from ordsmed.base.binary import examples, records
from ordsmed.base.errors import RecipeError
from ordsmed.base.machine import host
from ordsmed.base.ranks import ProcessInfo
from ordsmed.others.translate import install, perform
from ordsmed.others.translate.program import find

CODE = "nvidia"
P, F, B = "pretrain: ", "finetune: ", "bench: "
WORDS_END = "\x1f"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the programs, and a `python`, an `srun` and a `docker` that print their arguments."""
    place = tmp_path_factory.mktemp("nvidia")
    install.install(CODE, str(place))
    (place / "bin").mkdir(exist_ok=True)
    for name in ("python", "srun", "docker"):
        teller = place / "bin" / name
        teller.write_text(f"#!/usr/bin/env bash\nprintf '%s{WORDS_END}' {name} \"$@\"\necho\n")
        teller.chmod(0o755)
    (place / "results" / "base" / "checkpoints" / "ckpt-10000").mkdir(parents=True)
    return place


def shell(folder: Path, command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name not in ("DATA_PREP_WORKING_DIR", "SITE")}
    env |= {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", **environment}
    return subprocess.run(["bash", "-c", command], cwd=folder, env=env, capture_output=True, text=True, timeout=60)


def told(folder: Path, command: str, **environment: str) -> list[list[str]]:
    """Return the arguments that a command of the original passes to `python`."""
    done = shell(folder, command, **environment)
    assert done.returncode == 0, done.stderr
    return [line.removesuffix(WORDS_END).split(WORDS_END) for line in done.stdout.splitlines() if WORDS_END in line]


def ours(words: Sequence[str]) -> tuple[str, list[str]]:
    """Return the program and its arguments from those of `python`."""
    rest = list(words[1:] if words[0] == "python" else words)
    rest = rest[4:] if rest[:4] == ["-m", "ordsmed", "as", CODE] else rest
    return rest[0].rpartition("/")[2], rest[1:]


def meant(words: Sequence[str], world: int = 1) -> dict[str, Any]:
    name, rest = ours(words)
    return resolved(CODE, name, *rest, world=world)


CONFIG = "$(source scripts/configs/{}_config.sh && {})"
PRETRAIN = "bash scripts/run_pretraining.sh"
SQUAD = "bash scripts/run_squad.sh"
PHASES = {P + "phase[1].steps": 10_000, P + "phase[1].batch": 67_584, P + "layout.precision": "fp16"}
ONE_GPU = "google/electra-base-discriminator 2 16 4e-4 amp 8 1 1.1 data/squad results"
ASKED = {"predict": "results/squad_v1.1 data/download/squad/v1.1/dev-v1.1.json results/predictions --anew"}
STEPS = ["download", "download", "text_formatting", "sharding", "create_tfrecord_files", "create_tfrecord_files"]
QUESTIONS_OF = {  # the settings that evaluate an existing model, from flags and defaults
    "predict": {
        f"task.{one}"
        for one in (
            'version="1.1"',
            "length=384",
            "stride=128",
            "longest_question=64",
            "n_best=20",
            "longest_answer=30",
            "beam=5",
            "lowercase=false",
            "threshold=0.0",
            'head="joint"',
        )
    },
    "answer": {f"task.{one}" for one in ('version="1.1"', "n_best=20", "longest_answer=30", "beam=4", "threshold=0.0")},
}
# every command line of their documents -> of its calls: settings of the recipe, or our verb and its words
S1: dict[str, list[dict[str, Any]]] = {
    "bash scripts/docker/build.sh": [{"install": "--by docker --site a100 --out scripts/docker/ordsmed --yes"}],
    "bash data/create_datasets_from_start.sh": [{"action": step} for step in STEPS],
    "bash data/create_datasets_from_start.sh wiki_only": [{"action": step} for step in STEPS],
    "bash data/create_datasets_from_start.sh wiki_books": [
        {"action": step} for step in ("download", *STEPS[:3], "text_formatting", *STEPS[3:])
    ],
    PRETRAIN: [PHASES, {P + "phase[1].steps": 930, P + "phase[1].batch": 27_648, P + "init": "results/models/base"}],
    f"{PRETRAIN} {CONFIG.format('pretrain', 'dgxa100_8gpu_amp')}": [PHASES, {P + "phase[1].batch": 27_648}],
    f"{PRETRAIN} {CONFIG.format('pretrain', 'dgx2_16gpu_amp')}": [PHASES, {P + "phase[1].batch": 27_648}],
    f"{PRETRAIN} {CONFIG.format('pretrain', 'dgx1_8gpu_amp')}": [PHASES, {P + "phase[1].batch": 27_648}],
    "checkpoints=results/base/checkpoints bash scripts/finetune_ckpts_on_squad.sh": [
        {"export": "results/base results/base/squad/ckpt-10000/discriminator --anew --step 10000"},
        {
            F + "init": "results/base/squad/ckpt-10000/discriminator",
            F + "batch": 128,
            F + "epochs": 2.0,
            F + "out": "results/base/squad/ckpt-10000/squad_v1.1",
        },
    ],
    SQUAD: [
        {
            F + "init": "google/electra-base-discriminator",
            F + "batch": 128,
            F + "learning_rate": 4e-4,
            F + "epochs": 2.0,
            F + "layout.precision": "fp16",
            F + "layout.compile": True,
            F + "task.head": "joint",
            F + "seed": 1,
            F + "task.beam": 5,
            F + "warmup": 0.05,
            F + "layer_decay": 0.8,
            F + "out": "results/squad_v1.1",
            F + "task.train": "data/download/squad/v1.1/train-v1.1.json",
        }
    ],
    f"{SQUAD} {CONFIG.format('squad', 'dgxa100_8gpu_amp')} train_eval": [{F + "batch": 256, F + "learning_rate": 8e-4}],
    f"{SQUAD} {CONFIG.format('squad', 'dgx2_16gpu_amp')} train_eval": [{F + "batch": 512, F + "learning_rate": 1e-3}],
    f"{SQUAD} {CONFIG.format('squad', 'dgx1_8gpu_amp')} train_eval": [{F + "batch": 128, F + "learning_rate": 4e-4}],
    f"{SQUAD} {ONE_GPU} None train": [{F + "task.train": "data/squad/train-v1.1.json", F + "task.dev": []}],
    f"{SQUAD} {ONE_GPU} None train_eval": [{F + "task.dev": "data/squad/dev-v1.1.json"}],
    f"{SQUAD} {ONE_GPU.replace('data/squad', 'data/download/squad/v1.1')} None eval": [
        {"predict": ASKED["predict"] + " --scores --precision fp16"}
    ],
    f"{SQUAD} {ONE_GPU.replace('data/squad', 'data/download/squad/v1.1')} run/checkpoints/step-000000007 prediction": [
        {"predict": ASKED["predict"].replace("results/squad_v1.1", "run") + " --step 7 --precision fp16"}
    ],
    f"{SQUAD} {CONFIG.format('squad', 'dgxa100_8gpu_amp')} eval": [
        {
            "predict": ASKED["predict"].replace(
                "results/squad_v1.1", "checkpoints/electra_base_qa_v2_False_epoch_2_ckpt"
            )
            + " --scores --precision fp16"
        }
    ],
    "python run_inference.py --electra_model google/electra-base-discriminator --init_checkpoint run "
    '--question="What food does Harry like?" --context="My name is Harry. I love apples."': [
        {"answer": "run|What food does Harry like?|My name is Harry. I love apples."}
    ],
    "bash scripts/benchmark_pretraining.sh 88 amp xla 8 true 2 12 4 base": [
        {
            B + "table.cells": [
                ["length=128", "batch=176", "layout.micro=88"],
                ["length=512", "batch=48", "layout.micro=12"],
            ],
            B + "table.devices": [8],
            B + "steps": 10,
            B + "layout.precision": "fp16",
            B + "layout.compile": True,
            B + "optimizer.kind": "lamb",
            B + "model.width": 768,
            B + "objective.generator.width": 256,
        }
    ],
    "bash scripts/benchmark_pretraining.sh 176 tf32 no_xla 2 false 48 24 144 large": [
        {
            B + "table.cells": [
                ["length=128", "batch=176", "layout.micro=176"],
                ["length=512", "batch=24", "layout.micro=24"],
            ],
            B + "table.devices": [2],
            B + "layout.precision": "tf32",
            B + "layout.compile": False,
            B + "model.width": 1024,
        }
    ],
    "bash scripts/benchmark_squad.sh train 8 16 16 fp32 2.0 data/squad results/ model cache": [
        {
            B + "batch": 16,
            B + "steps": 200,
            B + "table.devices": [8],
            B + "layout.precision": "fp32",
            B + "task.version": "2.0",
            B + "task.train": "data/squad/train-v2.0.json",
            B + "init": "model",
        }
    ],
    "bash scripts/benchmark_squad.sh train 8 16": [
        {
            B + "measure": "finetune",
            B + "batch": 16,
            B + "steps": 200,
            B + "table.devices": [8],
            B + "layout.precision": "fp16",
            B + "model.width": 768,
            B + "task.length": 384,
        }
    ],
    "bash scripts/benchmark_squad.sh eval 8 256": [
        {B + "measure": "predict", B + "batches": [[256, 20]], B + "layout.precision": "fp16", B + "model.width": 768}
    ],
}


@pytest.mark.parametrize("command", S1)
def test_a_command_line_of_their_documents(folder: Path, command: str) -> None:
    calls = told(folder, command)
    assert len(calls) == len(S1[command])
    for words, wanted in zip(calls, S1[command], strict=True):
        if "install" in wanted:
            assert words == ["python", "-m", "ordsmed", "install", *wanted["install"].split()]
            continue
        name, rest = ours(words)
        if "action" in wanted:
            assert rest[:2] == ["--action", wanted["action"]]
        elif ": " not in next(iter(wanted)):
            ((verb, text),) = wanted.items()
            own = perform.words(find(CODE, name), called(CODE, name, *rest))
            settings = [word for word in own if word.startswith("task.")]
            assert [word for word in own if word not in settings] == [verb, *text.split("|" if "|" in text else None)]
            assert set(settings) == QUESTIONS_OF.get(verb, set())
        else:
            got = meant(words)  # --devices says how many
            assert {key: got[key] for key in wanted} == wanted


def test_help_tells_where_each_flag_goes(capsys: pytest.CaptureFixture[str]) -> None:
    from ordsmed.cli import main

    for name in ("run_pretraining.py", "run_tf_squad.py"):
        main(["as", CODE, name, "--help"])
        text = capsys.readouterr().out
        assert all(flag.name in text for flag in find(CODE, name).flags)


MACHINES = {  # rows a GPU and passes of both phases, and GPUs
    "dgxa100_8gpu_amp": (176, 48, 24, 144, 8),
    "dgxa100_8gpu_tf32": (88, 96, 12, 288, 8),
    "dgx2_16gpu_amp": (176, 24, 24, 72, 16),
    "dgx2_16gpu_fp32": (88, 48, 12, 144, 16),
    "dgx1_8gpu_amp": (88, 96, 12, 288, 8),
    "dgx1_8gpu_fp32": (40, 211, 6, 576, 8),
    "dgxa100_1gpu_amp": (176, 384, 24, 1152, 1),
    "dgxa100_1gpu_tf32": (88, 768, 12, 2304, 1),
    "dgx2_1gpu_amp": (176, 384, 24, 1152, 1),
    "dgx2_1gpu_fp32": (88, 768, 12, 2304, 1),
    "dgx1_1gpu_amp": (88, 768, 12, 2304, 1),
    "dgx1_1gpu_fp32": (40, 1689, 6, 4608, 1),
}


@pytest.mark.parametrize("name", MACHINES)
def test_their_machines_make_the_same_batches(folder: Path, name: str) -> None:
    """67,584 and 27,648 rows per step, except where the accumulation steps do not divide them."""
    batch1, passes1, batch2, passes2, gpus = MACHINES[name]
    calls = told(folder, f"{PRETRAIN} {CONFIG.format('pretrain', name)}")
    for words, batch, passes, steps, rows, rate, length in zip(
        calls,
        (batch1, batch2),
        (passes1, passes2),
        (10_000, 930),
        (67_584, 27_648),
        (6e-3, 4e-3),
        (128, 512),
        strict=True,
    ):
        assert words[words.index("--devices") + 1] == str(gpus)
        got = meant(words)
        assert (got[P + "layout.micro"], got[P + "phase[1].steps"]) == (batch, steps)
        assert (got[P + "phase[1].learning_rate"], got[P + "phase[1].length"]) == (rate, length)
        assert got[P + "phase[1].batch"] == batch * passes * gpus == pytest.approx(rows, rel=1e-3)
        assert (got[P + "optimizer.kind"], got[P + "optimizer.adapt"]) == ("lamb", "matrices")
        assert (got[P + "seed"], got[P + "objective.generator.width"]) == (42, 256)
        assert got[P + "layout.precision"] == {"amp": "fp16"}.get(name[-3:], name.rpartition("_")[2])


SQUAD_MACHINES = {  # epochs, rows a GPU, rate, GPUs
    "dgxa100_8gpu_amp": (2, 32, 8e-4, 8),
    "dgxa100_8gpu_tf32": (2, 32, 8e-4, 8),
    "dgx2_16gpu_amp": (2, 32, 1e-3, 16),
    "dgx2_16gpu_fp32": (2, 32, 1e-3, 16),
    "dgx1_8gpu_amp": (2, 16, 4e-4, 8),
    "dgx1_8gpu_fp32": (2, 8, 3e-4, 8),
    "dgx1_8gpu_amp_v2": (3, 16, 4e-4, 8),
    "dgxa100_1gpu_amp": (2, 32, 2e-4, 1),
    "dgxa100_1gpu_tf32": (2, 32, 2e-4, 1),
    "dgx2_1gpu_amp": (2, 32, 2e-4, 1),
    "dgx2_1gpu_fp32": (2, 32, 2e-4, 1),
    "dgx1_1gpu_amp": (2, 16, 1e-4, 1),
    "dgx1_1gpu_fp32": (2, 8, 1e-4, 1),
}


@pytest.mark.parametrize("name", SQUAD_MACHINES)
def test_their_machines_on_squad(folder: Path, name: str) -> None:
    epochs, rows, rate, gpus = SQUAD_MACHINES[name]
    version = "2.0" if name.endswith("v2") else "1.1"
    (words,) = told(folder, f"{SQUAD} {CONFIG.format('squad', name)} train_eval")
    got = meant(words)
    assert (got[F + "epochs"], got[F + "batch"], got[F + "learning_rate"]) == (epochs, rows * gpus, rate)
    assert (got[F + "layout.micro"], got[F + "task.version"], got[F + "task.beam"]) == (rows, version, 5)
    assert got[F + "init"] == "google/electra-base-discriminator"  # not what the training leaves
    assert got[F + "layout.precision"] == {"amp": "fp16"}.get(name.split("_")[2], name.rpartition("_")[2])


def test_words_by_place_as_their_document_has_them(folder: Path) -> None:
    """Fifteen arguments, without xla, optimizer, seed and job name; and twelve, without the batch size of inference."""
    short = f"{PRETRAIN} 8 1e-3 fp32 2 20 100 50 true true 3 4 2e-3 10 40 5"
    long = f"{PRETRAIN} 8 1e-3 fp32 2 xla 20 100 50 true lamb true 3 12439 job 4 2e-3 10 40 5 base"
    first, second = told(folder, short)
    assert [first, second] == told(folder, long)
    got, other = meant(first), meant(second)
    wanted = {
        "phase[1].batch": 48,
        "phase[1].learning_rate": 1e-3,
        "phase[1].warmup": 20.0,
        "phase[1].steps": 100,
        "save": 50,
        "layout.precision": "fp32",
        "layout.micro": 8,
        "seed": 12439,
    }
    assert {key: got[P + key] for key in wanted} == wanted
    wanted = {
        "phase[1].batch": 40,
        "phase[1].learning_rate": 2e-3,
        "phase[1].warmup": 10.0,
        "phase[1].steps": 40,
        "layout.micro": 4,
        "init": "results/models/base",
        "out": "results/models/base-phase2",
    }
    assert {key: other[P + key] for key in wanted} == wanted
    tail = "4e-4 amp 8 1 2.0 data out ckpt"
    assert told(folder, f"{SQUAD} model 2 16 {tail} eval") == told(folder, f"{SQUAD} model 2 16 256 {tail} eval")


def test_further_words_by_place(folder: Path) -> None:
    """The path of the code and the initial model; for SQuAD the launcher, the cache and the maximum of steps."""
    words = "8 1e-3 tf32 2 no_xla 20 100 50 false adam false 3 7 job 4 2e-3 10 40 5 large d1 d2 code start"
    first, second = told(folder, f"{PRETRAIN} {words}", restore_checkpoint="false")
    got, other = meant(first), meant(second)
    assert (got[P + "out"], got[P + "init"]) == ("code/results/models/large", "start")
    assert got[P + "optimizer.kind"] == "adamw"
    assert (got[P + "layout.compile"], got[P + "layout.precision"], got[P + "phase[1].batch"]) == (False, "tf32", 16)
    assert (got["encode: records"], other["encode: records"]) == (["d1"], ["d2"])
    assert other[P + "out"] == "code/results/models/large-phase2"
    assert not other.get(P + "init")
    assert got[P + "objective.generator.width"] == 384  # a third of 1024, and whole heads
    (line,) = told(folder, f"{SQUAD} m 1 16 256 8e-4 fp32 8 5 1.1 d out None train cluster cache 200")
    assert "--devices" not in line
    got = meant(line)
    assert (got[F + "features"], got[F + "steps"], got[F + "layout.compile"]) == ("cache", 200, False)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (f"{PRETRAIN} x", "BATCH1: found x; wanted rows a GPU"),
        (f"{PRETRAIN} 8 1e-3 fp8", "precision: found fp8; wanted amp, tf32 or fp32"),
        (f"{SQUAD} 2 16", "usage: bash scripts/run_squad.sh MODEL EPOCHS BATCH"),
        (f"{SQUAD} 2 16", "MODEL: found 2; wanted a model's name or folder"),
        (f"{SQUAD} m 2 16 4e-4 amp 8 1 3.0", "version: found 3.0; wanted 1.1 or 2.0"),
        (f"{SQUAD} m 2 16 4e-4 amp 8 1 1.1 d o None trian", "mode: found trian; wanted train, eval"),
        ("bash data/create_datasets_from_start.sh books", "found books; wanted wiki_only or wiki_books"),
        ("bash scripts/docker/launch.sh", "there is no image; run: bash scripts/docker/build.sh"),
        ("checkpoints=none bash scripts/finetune_ckpts_on_squad.sh", "none: no checkpoints; wanted ckpt-*"),
    ],
)
def test_wrong_words_of_a_script(folder: Path, command: str, said: str) -> None:
    done = shell(folder, command)
    assert done.returncode == 2
    assert said in done.stderr
    assert not done.stdout


def test_their_launcher_is_not_needed(folder: Path) -> None:
    """Commands of horovodrun start that many local processes; other machines are refused."""
    ((*words,),) = told(
        folder,
        "bin/horovodrun -np 3 -H localhost:3 python run_tf_squad.py --do_train --output_dir o "
        "--train_file t --train_batch_size 4",
    )
    assert words[-2:] == ["--devices", "3"]
    assert meant(words)[F + "batch"] == 12
    ((*words,),) = told(folder, "bin/horovodrun -np 1 python run_tf_squad.py --do_train")
    assert words == ["python", "run_tf_squad.py", "--do_train"]
    for said, wanted in (("bin/horovodrun", "no program"), ("bin/horovodrun -np", "-np: no value")):
        ended = shell(folder, said)
        assert (ended.returncode, f"horovodrun: {wanted}; wanted -np N" in ended.stderr) == (2, True)
    for said in ("-H host1:8,host2:8", "--verbose 1"):
        ended = shell(folder, f"bin/horovodrun -np 2 {said} python run_tf_squad.py")
        assert (ended.returncode, ended.stdout) == (2, "")
        assert f"horovodrun: {said.partition(' ')[0]}" in ended.stderr


def test_an_image_is_entered(folder: Path, tmp_path: Path) -> None:
    """The working folder is the original's; the image is that of build.sh's Dockerfile."""
    install.install(CODE, str(tmp_path))
    (tmp_path / "scripts/docker/ordsmed").mkdir()
    (tmp_path / "scripts/docker/ordsmed/Dockerfile").write_text("# ordsmed 9.8.7 for a machine\nFROM x\n")
    env = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
    (words,) = told(tmp_path, "bash scripts/docker/launch.sh 'ls results' 0", **env)
    assert words[:2] == ["docker", "run"]
    assert words[-3:] == ["ordsmed:9.8.7", "ls", "results"]
    assert words[words.index("--gpus") + 1] == "device=0"
    assert words[words.index("--volume") + 1] == f"{tmp_path}:/workspace/electra"


def test_a_phase_on_48_machines(folder: Path) -> None:
    """The original's example: as many rows as on one machine."""
    always = {"b1": "0.878", "b2": "0.974", "decay": "0.5", "skip_adaptive": "yes", "end_lr": "0.0"}
    for phase, batch, rate, passes, steps, warm, rows in (
        ("1", "176", "6e-3", "1", "10000", "2000", 67_584),
        ("2", "24", "4e-3", "3", "930", "200", 27_648),
    ):
        own = {
            "PHASE": phase,
            "BATCHSIZE": batch,
            "LR": rate,
            "GRAD_ACCUM_STEPS": passes,
            "STEPS": steps,
            "WARMUP": warm,
        }
        ((srun, *words),) = told(folder, "bash run.sub", **always, **own)
        got = meant(words, 384)
        assert srun == "srun"
        assert (got[P + "phase[1].batch"], got[P + "phase[1].learning_rate"]) == (rows, float(rate))
        assert (got[P + "phase[1].steps"], got[P + "phase[1].warmup"]) == (int(steps), float(warm))
        assert (got[P + "optimizer.betas"], got[P + "save"]) == ([0.878, 0.974], int(steps) // 10)
        assert bool(got.get(P + "init")) == (phase == "2")
    odd = {"b1": "0.8", "b2": "0.9", "decay": "1.0", "skip_adaptive": "no", "end_lr": "1e-4", "LR": "1e-3"}
    ((*words,),) = told(folder, "bash run.sub", IMAGE="i.sqsh", **odd)
    assert words[1] == "--container-image=i.sqsh"
    got = meant(words[words.index("python") :])
    assert (got[P + "optimizer.betas"], got[P + "optimizer.adapt"]) == ([0.8, 0.9], "all")
    assert (got[P + "phase[1].schedule.power"], got[P + "phase[1].schedule.end"]) == (1.0, pytest.approx(0.1))
    assert (got[P + "phase[1].steps"], got[P + "phase[1].warmup"], got[P + "layout.micro"]) == (57_450, 3750.0, 16)


DATA = ["--dataset", "wikicorpus_en"]
OUT = "w/sharded_training_shards_4_test_shards_3_fraction_0.2/wikicorpus_en"
RECORDS = "w/tfrecord_lower_case_1_seq_len_64_random_seed_7/wikicorpus_en"
ENCODED = f"work/as/{OUT.replace('/', '-')}-encoded_lower_case_1"
NUMBERS = "--n_training_shards 4 --n_test_shards 3 --fraction_test_set 0.2"
ACTIONS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "download --dataset wikicorpus_en": (["fetch wikipedia-en --out w/download"], {}),
    "download --dataset bookscorpus": (["fetch books --out w/download --allow-missing"], {}),
    "download --dataset squad": (["fetch squad --out w/download"], {}),
    "download --dataset mrpc": (["fetch glue --out w/download"], {}),
    "download --dataset books_wiki_en_corpus": (
        ["fetch books --out w/download --allow-missing", "fetch wikipedia-en --out w/download"],
        {},
    ),
    "download --dataset all": (
        [
            "fetch wikipedia-en --out w/download",
            "fetch books --out w/download --allow-missing",
            "fetch squad --out w/download",
            "fetch glue --out w/download",
        ],
        {},
    ),
    "text_formatting --dataset wikicorpus_en": (
        ["corpus work/as/w-formatted_one_article_per_line-wikicorpus_en/corpus.toml"],
        {
            "corpus: source.kind": "wikipedia",
            "corpus: source.path": "w/download/wikicorpus_en",
            "corpus: out": "w/formatted_one_article_per_line/wikicorpus_en",
        },
    ),
    "text_formatting --dataset wikicorpus_en --skip_wikiextractor 1": (
        ["corpus work/as/w-formatted_one_article_per_line-wikicorpus_en/corpus.toml"],
        {"corpus: source.path": "w/extracted/wikicorpus_en"},
    ),
    "text_formatting --dataset bookscorpus": (
        ["corpus work/as/w-formatted_one_article_per_line-bookscorpus/corpus.toml"],
        {"corpus: source.kind": "books", "corpus: source.path": "w/download/bookscorpus"},
    ),
    f"sharding --dataset wikicorpus_en {NUMBERS}": (
        [
            f"corpus shards w/formatted_one_article_per_line/wikicorpus_en {OUT}/shards --train 4 --test 3 "
            "--fraction 0.2 --anew"
        ],
        {},
    ),
    "sharding --dataset books_wiki_en_corpus": (
        [
            "corpus shards w/formatted_one_article_per_line/bookscorpus w/formatted_one_article_per_line/wikicorpus_en "
            "w/sharded_training_shards_2048_test_shards_2048_fraction_0.1/books_wiki_en_corpus/shards --train 2048 "
            "--test 2048 --fraction 0.1 --anew"
        ],
        {},
    ),
    f"sharding --dataset bookscorpus --input_files a,b {NUMBERS}": (
        [
            f"corpus shards a b {OUT.replace('wikicorpus_en', 'bookscorpus')}/shards --train 4 --test 3 --fraction 0.2 "
            "--anew"
        ],
        {},
    ),
    f"create_tfrecord_files --dataset wikicorpus_en {NUMBERS} --max_seq_length 64 --vocab_file v --do_lower_case=1 "
    "--random_seed 7": (
        [
            f"encode records {ENCODED}-train/encode.toml {RECORDS}/train rtd --length 64 --files 4 --seed 1314 --anew",
            f"encode records {ENCODED}-test/encode.toml {RECORDS}/test rtd --length 64 --files 3 --seed 1314 --anew",
        ],
        {
            "corpus: source.path": f"{OUT}/train",
            "corpus: sentences": "lines",
            "encode: tokenizer": "v",
            "encode: out": f"{OUT}/encoded_lower_case_1/train",
            "corpus: out": f"{OUT}/corpus/train",
        },
    ),
}


def test_records_of_two_lengths_are_of_one_store() -> None:
    """Both have the same recipe: another recipe for an existing store would be refused."""
    program, words = find(CODE, "dataPrep.py"), ["--action", "create_tfrecord_files", *DATA, "--max_seq_length"]
    short, long = (
        perform.recipes(program, called(CODE, program.name, *words, length), ()) for length in ("128", "512")
    )
    assert short == long
    assert [path.name for path in short] == ["corpus.toml", "encode.toml"]


def test_records_of_two_lengths_are_of_one_store_in_a_case_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nCat\n")
    program, words = find(CODE, "dataPrep.py"), ["--action", "create_tfrecord_files", *DATA, "--do_lower_case=1"]
    calls = [
        called(CODE, program.name, *words, "--vocab_file", f"{tmp_path}/v.txt", "--max_seq_length", length)
        for length in ("128", "512")
    ]
    short, long = (perform.recipes(program, call, ()) for call in calls)
    assert short == long
    tokenizers = {
        path
        for call in calls
        for one in (call, *call.then)
        for path in perform.recipes(program, one, ())
        if path.name == "tokenizer.toml"
    }
    assert len(tokenizers) == 1


@pytest.mark.parametrize("action", ACTIONS)
def test_a_step_of_data(action: str) -> None:
    commands, settings = ACTIONS[action]
    program = find(CODE, "dataPrep.py")
    call = called(CODE, program.name, "--action", *action.split(), DATA_PREP_WORKING_DIR="w")
    assert [" ".join(own) for one in (call, *call.then) if (own := perform.words(program, one))] == commands
    got = flat(program, call)
    assert {key: got[key] for key in settings} == settings


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--action sharding", "no --dataset"),
        ("--dataset squad", "no --action"),
        ("--action create_hdf5_files --dataset squad", "wanted create_tfrecord_files"),
        ("--action download --dataset google_pretrained_weights", "`ordsmed import CHECKPOINT FOLDER`"),
        ("--action text_formatting --dataset wikicorpus_zh", "wanted wikicorpus_en or bookscorpus"),
        ("--action sharding --dataset squad", "wanted wikicorpus_en, bookscorpus or books_wiki_en_corpus"),
        (f"--action sharding --dataset bookscorpus --input_files {__file__}", "wanted folders of corpora"),
        ("--action sharding --dataset bookscorpus --interactive_json_config_generator x", "leave it out"),
        ("--action create --dataset squad", "wanted download, text_formatting"),
    ],
)
def test_wrong_steps_of_data(words: str, said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        called(CODE, "dataPrep.py", *words.split())


@pytest.mark.parametrize(
    ("name", "words", "said"),
    [
        ("benchmark_pretraining.sh", ["88", "fp8"], "precision: found fp8; wanted amp, tf32, fp32"),
        ("benchmark_pretraining.sh", ["88", "amp", "yes"], "xla: found yes; wanted xla, no_xla"),
        ("benchmark_pretraining.sh", ["88", "amp", "xla", "8", "maybe"], "found maybe; wanted true, false"),
        (
            "benchmark_pretraining.sh",
            ["88", "amp", "xla", "8", "true", "2", "12", "4", "huge"],
            "wanted small, base, large",
        ),
        ("benchmark_pretraining.sh", ["many"], "wanted a whole number"),
        ("benchmark_squad.sh", ["test"], "mode: found test; wanted train, eval"),
    ],
)
def test_wrong_words_of_a_benchmark(name: str, words: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        called(CODE, name, *words)


def test_gpus_that_are_not_there_are_missed_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import torch

    from ordsmed.cli import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RANK", raising=False)
    program = find(CODE, "benchmark_squad.sh")
    monkeypatch.setattr(host, "cores", lambda: 2)
    for count, said in (
        (4, r"requests 8 GPUs; this machine has 4 GPUs; wanted at most 4"),
        (0, r"requests 8 GPUs; this machine has no GPU and 2 cores; wanted at most 2"),
    ):
        monkeypatch.setattr(torch.cuda, "device_count", lambda count=count: count)
        with pytest.raises(RecipeError, match=said):
            perform.check_devices(program, 8)
        perform.check_devices(program, count or 2)
        with pytest.raises(SystemExit):
            main(["as", CODE, program.name, "train", "8", "16"])
        assert not list(tmp_path.iterdir())
    assert called(CODE, program.name, "eval", "1", "256").gpus == 1
    with pytest.raises(SystemExit):
        main(["as", CODE, program.name, "eval", "8", "256"])
    assert not list(tmp_path.iterdir())
    call = called(CODE, program.name, "eval", "1", "256")
    perform.prepare(program, program.read(["eval", "1", "256"], ProcessInfo(), {}), call)
    assert "this machine has no GPU: the CPU is measured" in call.notes
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert called(CODE, program.name, "eval", "8", "256").gpus == 1, (
        "one GPU is enough: the original uses only the first"
    )


def logged(path: Path) -> Iterator[tuple[Any, dict[str, Any], float]]:
    """Return the entries of a DLLogger file."""
    for line in path.read_text().splitlines():
        assert line.startswith("DLLL ")
        table = json.loads(line.removeprefix("DLLL "))
        assert (table["type"], set(table)) == ("LOG", {"timestamp", "datetime", "elapsedtime", "type", "step", "data"})
        yield table["step"], table["data"], float(table["elapsedtime"])


def a_run(folder: Path, steps: int, saved: Sequence[int], *, rows: int = 8) -> Path:
    """Write the files of a run in which each step takes a tenth of a second more than the previous one."""
    lines = [
        {"step": n, "rows": rows, "seconds": n / 10, "loss": 10.0 - n, "guess": 2.0 * n, "detect": n / 4}
        for n in range(1, steps + 1)
    ]
    folder.mkdir(parents=True)
    found = [json.dumps(line) for line in lines] + [json.dumps({"step": steps, "validation": 1.0})]
    (folder / "metrics.jsonl").write_text("\n".join(found) + "\n")
    for step in saved:
        snapshots.path_of(folder / "checkpoints", step).mkdir(parents=True)
    return folder


def after(name: str, *words: str) -> None:
    for step in called(CODE, name, *words).after:
        step()


def test_what_a_pretraining_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Means over two steps; the remaining last step is the final entry."""
    monkeypatch.chdir(tmp_path)
    a_run(Path("results/models/m"), 5, (2, 4))
    words = ["--model_name", "m", "--pretrain_tfrecords", "x", "--log_freq", "2"]
    after("run_pretraining.py", *words)
    lines = [*logged(Path("results/models/m/logs/dllogger.log"))]
    steps = [line for line in lines if line[0] != "PARAMETER"]
    assert {"log_freq": 2} in [data for step, data, _ in lines if step == "PARAMETER"]
    assert [step for step, _, _ in steps] == [[2], [4], [5], []]
    assert [seconds for *_, seconds in steps] == pytest.approx([0.3, 1.0, 1.5, 1.5])
    data = steps[1][1]  # of steps 3 and 4
    assert data == {
        "train_perf": pytest.approx((8 / 0.3 + 8 / 0.4) / 2),
        "total_loss": 6.5,
        "masked_lm_loss": 7.0,
        "disc_loss": 0.875,
    }
    last = steps[-1][1]
    assert (last["final_loss"], last["training_sequences_per_second"]) == (5.0, pytest.approx(16.0))
    assert last["e2e_train_time"] == pytest.approx(1.5)
    (line,) = capsys.readouterr().out.splitlines()  # scripts look for these in what they kept of the screen
    assert line.startswith("DLL 20")
    assert "training_sequences_per_second : 16.0 sequences/s final_loss : 5.0 e2e_train_time : 1.5 s" in line
    names = Path("results/m/checkpoints")
    assert sorted(path.name for path in names.iterdir()) == ["ckpt-2", "ckpt-2.index", "ckpt-4", "ckpt-4.index"]
    assert (names / "ckpt-4").resolve() == snapshots.path_of(tmp_path / "results/models/m/checkpoints", 4)
    # resume: an old checkpoint is deleted, a new one added; the second phase has other names
    snapshots.path_of(Path("results/models/m/checkpoints"), 2).rmdir()
    snapshots.path_of(Path("results/models/m/checkpoints"), 5).mkdir()
    a_run(Path("results/models/m-phase2"), 3, (3,))
    after("run_pretraining.py", *words, "--json-summary", "sum.json")
    after("run_pretraining.py", *words, "--phase2", "--restore_checkpoint", "latest", "--log_dir", "logs")
    assert sorted(path.name for path in names.glob("*[0-9]")) == ["ckpt-4", "ckpt-5", "ckpt-p2-3"]
    assert sorted(path.stem for path in names.glob("*.index")) == ["ckpt-4", "ckpt-5", "ckpt-p2-3"]
    assert [step for step, _, _ in logged(Path("sum.json")) if step != "PARAMETER"] == [[2], [4], [5], []]
    assert [step for step, _, _ in logged(Path("logs/dllogger.log")) if step != "PARAMETER"] == [[2], [3], []]
    call = called(CODE, "run_inference.py", "--init_checkpoint", "results/m/checkpoints/ckpt-p2-3")
    assert call.words[:3] == ["results/models/m-phase2", "--step", "3"]
    restore = ["--restore_checkpoint", "results/m/checkpoints/ckpt-5"]
    assert "init" not in called(CODE, "run_pretraining.py", *words, *restore).recipes["pretrain"]  # its own
    same = ["--restore_checkpoint", str(Path("results/m/checkpoints/ckpt-5").absolute())]
    assert "init" not in called(CODE, "run_pretraining.py", *words, *same).recipes["pretrain"]
    with pytest.raises(UsageError, match="--anew: found with --restore_checkpoint"):
        called(CODE, "run_pretraining.py", *words, *restore, "--anew")
    other = called(CODE, "run_pretraining.py", *words, *restore, "--model_name", "n")
    assert other.recipes["pretrain"]["init"] == "results/models/m"
    with pytest.raises(UsageError, match="ordsmed export results/models/m FOLDER --step 4"):
        called(CODE, "run_pretraining.py", *words, "--restore_checkpoint", "results/m/checkpoints/ckpt-4")


def test_what_stands_where_a_name_is_wanted_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    a_run(Path("results/models/m"), 2, (2,))
    mine = Path("results/m/checkpoints/ckpt-2")
    mine.mkdir(parents=True)
    after("run_pretraining.py", "--model_name", "m", "--pretrain_tfrecords", "x")
    assert mine.is_dir()
    assert not mine.is_symlink()


def test_what_a_fine_tuning_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each epoch has its steps and a summary; scores, predictions and checkpoints have the original's names."""
    monkeypatch.chdir(tmp_path)
    run = a_run(Path("out/squad_v2.0"), 6, (3, 6))
    (run / "scores.json").write_text('{"exact": 61.5, "f1": 70.25, "step": 6}')
    (run / "predictions").mkdir()
    for name in ("predictions", "nbest_predictions", "null_odds"):
        (run / f"predictions/{name}.json").write_text('{"q": 1}')
    words = [
        "--do_train",
        "--do_predict",
        "--do_eval",
        "--data_dir",
        "d",
        "--output_dir",
        "out",
        "--num_train_epochs",
        "2",
        "--log_freq",
        "2",
        "--version_2_with_negative",
    ]
    after("run_tf_squad.py", *words, "--seed", "5")
    assert json.loads(Path("out/predictions.json").read_text()) == {"q": 1}
    assert {path.name for path in Path("out").glob("*.json")} >= {"nbest_predictions.json", "null_odds.json"}
    lines = [*logged(Path("results/dllogger.json"))]
    assert lines[0][:2] == ("PARAMETER", {"SEED": 5})
    assert [step for step, _, _ in lines[1:]] == [[0, 0], [0, 2], [], [1, 0], [1, 2], [], []]
    assert [line.split(" ", 5)[-1] for line in capsys.readouterr().out.splitlines()][
        -1
    ] == "exact_match : 61.5 F1 : 70.25"
    assert lines[2][1] == {"step_loss": 7.0, "train_perf": pytest.approx((80 + 40 + 80 / 3) / 3)}
    assert lines[6][1] == {
        "e2e_train_time": pytest.approx(2.1),
        "final_loss": 5.0,
        "training_sequences_per_second": pytest.approx((20 + 16 + 40 / 3) / 3),
    }
    assert lines[7][1] == {"exact_match": 61.5, "F1": 70.25}
    name = "electra_base_qa_v2_True_epoch_{}_ckpt"
    for number, step in ((1, 3), (2, 6)):
        own = Path("checkpoints") / name.format(number)
        assert own.resolve() == snapshots.path_of(tmp_path / run / "checkpoints", step)
    call = called(
        CODE,
        "run_tf_squad.py",
        "--do_predict",
        "--init_checkpoint",
        f"checkpoints/{name.format(1)}",
        "--predict_file",
        "p",
    )
    assert call.words[:3] == [str(run), "p", f"{run}/predictions"]
    assert call.words[4:6] == ["--step", "3"]
    after("run_tf_squad.py", *words, "--json-summary", "s", "--max_steps", "6", "--ci")
    assert [step for step, _, _ in logged(Path("s"))][1:] == [[0, 0], [0, 2], [0, 4], [], []]
    assert Path("out/electra_base_qa_v2_True_epoch_1_ckpt").resolve().name == "step-000000006"
    after("run_tf_squad.py", *words, "--skip_checkpoint", "--output_dir", "out", "--ci")
    assert not Path("out/electra_base_qa_v2_True_epoch_2_ckpt").exists()


def test_runs_elsewhere_short_ones_and_trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings after the flags count; trials have no steps to log."""
    monkeypatch.chdir(tmp_path)
    a_run(Path("mine"), 2, (2,))
    words = ["--do_train", "--train_file", "t", "--output_dir", "o", "--num_train_epochs", "3", "--json-summary", "s"]
    after("run_tf_squad.py", *words, "out=mine")
    assert [step for step, _, _ in logged(Path("s"))][1:] == [[0, 0], [], [2, 0], []]
    after("run_pretraining.py", "--model_name", "m", "--pretrain_tfrecords", "x", "out=mine")
    assert Path("results/m/checkpoints/ckpt-2").resolve().parents[1] == tmp_path / "mine"
    after("run_tf_squad.py", *words, "--json-summary", "none", "seeds=[1,2]")
    assert not Path("none").exists()


def test_what_is_fetched_stands_by_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "download" / "squad"
    place.mkdir(parents=True)
    names = [f"{part}-v{version}" for part in ("train", "dev", "evaluate") for version in ("1.1", "2.0")]
    for name in names:
        (place / f"{name}.{'py' if name.startswith('e') else 'json'}").write_text(name)
    call = called(
        CODE, "dataPrep.py", "--action", "download", "--dataset", "squad", DATA_PREP_WORKING_DIR=str(tmp_path)
    )
    for step in call.then[0].after:
        step()
    again = called(
        CODE, "dataPrep.py", "--action", "download", "--dataset", "squad", DATA_PREP_WORKING_DIR=str(tmp_path)
    )
    assert (again.verb, again.then) == ("", [])
    assert again.notes == [f"{place}/v1.1: exists and is not downloaded again"]
    for name in names:
        version = name.rpartition("-")[2]
        (found,) = (place / version).glob(f"{name}.*")
        assert found.read_text() == name


def test_records_of_another_length_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The original reads none of them; here half of each row would be padding."""
    monkeypatch.chdir(tmp_path)
    table = {name: np.ones((3, 128), np.int64) for name in ("input_ids", "input_mask", "segment_ids")}
    Path("a-0.tfrecord").write_bytes(b"".join(records.framed(examples.written(table))))
    words = ["--model_name", "m", "--pretrain_tfrecords", "a-*", "--max_seq_length"]
    (same,), (other,) = (called(CODE, "run_pretraining.py", *words, length).before for length in ("128", "512"))
    same()
    with pytest.raises(UsageError, match=r"--max_seq_length: found 512; the records of a-0.tfrecord have 128 tokens"):
        other()


def test_new_shards_take_the_place_of_former_ones(tmp_path: Path) -> None:
    """And the corpora encoded from them."""
    call = called(
        CODE, "dataPrep.py", "--action", "sharding", "--dataset", "bookscorpus", DATA_PREP_WORKING_DIR=str(tmp_path)
    )
    out = Path(call.words[1]).parent
    for folder in ("corpus/train", "encoded_lower_case_0/test", "train", "shards"):
        (out / folder).mkdir(parents=True)
    (out / "train/train-00001-of-00002.txt").symlink_to(out / "shards/train-00001-of-00002.txt")
    for name in ("train-00000-of-00001.txt", "test-00000-of-00001.txt", "manifest.json"):
        (out / "shards" / name).write_text(name)
    for step in call.after:
        step()
    assert sorted(path.name for path in out.iterdir()) == ["shards", "test", "train"]
    assert [path.name for path in (out / "train").iterdir()] == ["train-00000-of-00001.txt"]
    assert (out / "test/test-00000-of-00001.txt").read_text() == "test-00000-of-00001.txt"


WIKI = "<mediawiki><siteinfo><dbname>xwiki</dbname></siteinfo>{}</mediawiki>"
PAGE = "<page><title>T{0}</title><ns>0</ns><id>{0}</id><revision><id>{0}</id><text>{1}</text></revision></page>"
NETWORK = "model.layers=1 model.width=64 model.heads=1 model.inner=8 model.embedding=8"
TINY = f"""#!/usr/bin/env bash
# python, with networks that a CPU learns in no time
case "$1" in
run_pretraining.py) set -- "$@" {NETWORK} 'objective.generator={{width=8,layers=1,heads=1}}' layout.device=cpu \
    layout.compile=false layout.precision=fp32 layout.threads=1 ;;
run_tf_squad.py) if [[ "$*" = *--do_train* ]]; then set -- "$@" layout.device=cpu layout.compile=false \
    layout.precision=fp32 layout.threads=1; else set -- "${{@/--amp/--log_freq=50}}"; fi ;;
esac
exec {sys.executable} "$@"
"""


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder with the original's scripts, downloaded data, and a `python` that runs tiny networks."""
    place = tmp_path_factory.mktemp("workspace")
    install.install(CODE, str(place))
    (place / "bin").mkdir(exist_ok=True)
    (place / "bin/python").write_text(TINY)
    (place / "bin/python").chmod(0o755)
    squad = task_files(place / "vocab", train=12, dev=6)
    download = place / "data" / "download"
    for name in ("wikicorpus_en", "bookscorpus", "squad/v2.0"):
        (download / name).mkdir(parents=True)
    for part in ("train", "dev"):
        (squad / f"{part}.json").rename(download / f"squad/v2.0/{part}-v2.0.json")
    sentences = [" ".join(f"w{(n * k) % 97}" for k in range(1, 9)) + "." for n in range(1, 60)]
    pages = [PAGE.format(n, " ".join(sentences[n : n + 12])) for n in range(1, 9)]
    (download / "wikicorpus_en/x.xml").write_text(WIKI.format("".join(pages)))
    for n in range(3):
        (download / f"bookscorpus/{n}.txt").write_text("\n\n".join(sentences[n * 9 : n * 9 + 20]))
    return place


def done(workspace: Path, *commands: str, **environment: str) -> str:
    """Run commands of the original, and return their output."""
    whole = "\n".join(["set -e", *commands])
    ended = shell(workspace, whole, ORDSMED_CACHE="cache", OMP_NUM_THREADS="1", **environment)
    assert ended.returncode == 0, f"{ended.stdout[-2000:]}\n{ended.stderr[-4000:]}"
    return ended.stdout + ended.stderr


@pytest.mark.long
def test_from_texts_to_answers_by_their_scripts(workspace: Path) -> None:
    """Data, two phases with LAMB, every checkpoint on SQuAD, evaluation and inference, as documented."""
    step = "python data/dataPrep.py --dataset {} --n_training_shards 2 --n_test_shards 1 --action {}"
    both = "books_wiki_en_corpus"
    text = done(workspace, step.format(both, "download"))
    assert text.count("exists and is not downloaded again") == 2
    done(
        workspace,
        step.format("bookscorpus", "text_formatting"),
        step.format("wikicorpus_en", "text_formatting"),
        step.format(both, "sharding"),
    )
    records = "create_tfrecord_files --max_seq_length {} --vocab_file=vocab/vocab.txt --do_lower_case=1"
    done(workspace, step.format(both, records.format(128)), step.format(both, records.format(512)))
    shards = workspace / f"data/sharded_training_shards_2_test_shards_1_fraction_0.1/{both}"
    assert [len([*(shards / side).glob("*.txt")]) for side in ("train", "test")] == [2, 1]
    place = workspace / f"data/tfrecord_lower_case_1_seq_len_128_random_seed_12345/{both}"
    assert len([*(place / "train").glob("pretrain_data*")]) == 2
    assert (place / "test/pretrain_data.tfrecord").stat().st_size > 0

    phases = "4 6e-3 amp 1 xla 1 5 2 false lamb true 2 42 job 2 4e-3 1 2 1 base"
    done(workspace, f"bash scripts/run_pretraining.sh {phases}")
    text = (workspace / "results/models/base-phase2/log.txt").read_text()
    assert "weights and moments from results/models/base/checkpoints/step-000000005" in text
    names = workspace / "results/base/checkpoints"
    assert {path.name for path in names.glob("*[0-9]")} == {"ckpt-2", "ckpt-4", "ckpt-5", "ckpt-p2-2"}
    assert json.loads((names / "ckpt-4.index").read_text())["step"] == 4
    last = [*logged(workspace / "results/dllogger.log")][-1]
    assert last[0] == []
    assert {"training_sequences_per_second", "final_loss", "e2e_train_time"} <= set(last[1])

    for name in ("ckpt-2", "ckpt-4", "ckpt-5"):
        (names / name).unlink()  # one is enough
    tiny = {"gpus": "1", "epochs": "1", "batch": "4", "version": "2.0"}
    done(workspace, "bash scripts/finetune_ckpts_on_squad.sh", **tiny)
    own = workspace / "results/base/squad/ckpt-p2-2"
    predictions = json.loads((own / "predictions.json").read_text())
    assert set(predictions) == {f"q{n}" for n in range(6)}
    assert set(json.loads((own / "nbest_predictions.json").read_text())) == set(predictions)
    assert (own / "generator/config.json").exists()
    kinds = [set(data) for _, data, _ in logged(workspace / "results/dllogger.json")]
    assert {"exact_match", "F1"} in kinds
    assert {"training_sequences_per_second", "final_loss", "e2e_train_time"} in kinds

    words = (
        "model 1 4 4e-4 amp 1 1 2.0 data/download/squad/v2.0 results checkpoints/electra_base_qa_v2_True_epoch_1_ckpt"
    )
    text = done(workspace, f"bash scripts/run_squad.sh {words} eval")
    assert "f1" in text
    assert json.loads((workspace / "results/predictions.json").read_text()) == predictions
    model = (
        "python run_inference.py --electra_model x --init_checkpoint checkpoints/electra_base_qa_v2_True_epoch_1_ckpt"
    )
    text = done(
        workspace,
        f"{model} --question='w1 w2 ?' --context='w3 w4 w70 w71.'",
        f"printf 'w3 w4 w70.\\n\\nw1 ?\\n\\n' | {model}",
    )
    assert text.count("% (score") >= 2


@pytest.mark.long
def test_benchmarks_are_measured(workspace: Path) -> None:
    """Run tiny networks by settings after the flags."""
    words = "2 fp32 no_xla 1 true 1 1 1 base steps=1 rounds=1 vocabulary=300 tokens=4000 table.train=[]"
    generator = "'objective.generator={width=8,layers=1,heads=1}'"
    text = done(workspace, f"bash scripts/benchmark_pretraining.sh {words} {NETWORK} {generator}")
    rows = [line for line in text.splitlines() if re.match(r"\| *(128|512) ", line)]
    assert len(rows) == 2
    text = done(workspace, f"bash scripts/benchmark_squad.sh eval 1 2 2 fp32 {NETWORK} batches=[[2,1]]")
    assert len([line for line in text.splitlines() if re.match(r"\| *384 ", line)]) == 1
    assert "failed" not in text
