"""Steps on CUDA without a GPU: fake tensors of it go through families, objectives, tasks, precisions, optimizers.

What this proves: nothing of a step lies on another device or in another type than it should, the host waits for the
device nowhere that is not listed, and launches and bytes of real sizes stay under bounds, which may only fall. It
proves neither kernels nor numbers; those are for tests/gpu.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from kit.once import once

HERE = Path(__file__).parent
FAMILIES = {
    "electra": ("rtd", "rtd, never right", "rtd, doubled", "rtd, nothing shared", "mlm"),
    "bert": ("mlm", "mlm_nsp", "diffusion"),
    "roberta": ("mlm",),
    "megatron_bert": ("mlm", "mlm_nsp"),
    "modern": ("mlm", "hybrid"),
    "gpt2": ("clm", "hybrid"),
    "elmo": ("bilm, exact", "bilm, fused", "bilm, all words"),
}
CASES = [f"{family} {objective}" for family, objectives in FAMILIES.items() for objective in objectives]
TASKS = {
    "bert": (
        "classify",
        "classify, weighted",
        "classify, mean",
        "classify, max",
        "number",
        "tag",
        "tag, weighted",
        "tag, mixed",
        "tag, recurrent",
        "squad",
        "squad, joint",
        "squad, google",
    ),
    "electra": ("squad",),
    "roberta": ("classify",),
    "gpt2": ("classify",),
    "modern": ("tag",),
    "elmo": ("classify", "tag", "squad, joint"),
}
TUNED = [f"{family} {task}" for family, tasks in TASKS.items() for task in tasks]
TYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
JUDGED = {"hybrid": ["nonzero"] * 2, "bilm": ["_local_scalar_dense"]}  # where a validation waits: once a batch

Found = Callable[[str], dict[str, Any]]


@pytest.fixture(scope="session")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if not compiler:
        pytest.skip("a device is pretended by a few lines of C++, and here is no compiler of it")

    def build(folder: Path) -> str:
        include, library = Path(torch.__file__).parent / "include", folder / "hooks.so"
        words = [f"-I{include}", f"-I{include / 'torch/csrc/api/include'}", str(HERE / "hooks.cpp"), "-o", str(library)]
        subprocess.run([compiler, "-std=c++20", "-O1", "-shared", "-fPIC", *words], check=True)
        return str(library)

    def run(what: str) -> Any:
        library = once(tmp_path_factory, "hooks", build)
        paths = [str(HERE), str(HERE.parents[1] / "src"), os.environ.get("PYTHONPATH", "")]
        done = subprocess.run(
            [sys.executable, str(HERE / "steps.py"), library, what],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return json.loads(done.stdout.splitlines()[-1])

    return lambda what: once(tmp_path_factory, f"fake-{what}", lambda _: run(what))  # type: ignore[no-any-return]


def types_and_waits(told: Any, case: str, how: str) -> None:
    assert "error" not in told, told["error"]
    # an LSTM's recurrence goes on in fp32 whatever its products are made in, where it is not torch's own kernel
    loose = {TYPES[how], "float32"} if case.startswith("elmo") else {TYPES[how]}
    assert set(told["types"]) <= loose
    assert TYPES[how] in told["types"]
    assert told["step"]["waits"] == (["_local_scalar_dense"] if how == "fp16" else [])  # did the gradient run over?


@pytest.mark.long
@pytest.mark.parametrize("how", TYPES)
@pytest.mark.parametrize("case", CASES)
def test_a_step_and_a_validation_stay_on_the_device_and_in_their_type(found: Found, case: str, how: str) -> None:
    told = found("cases")[f"{case}, {how}"]
    types_and_waits(told, case, how)
    objective = case.split()[1].rstrip(",")
    assert told["judged"] == JUDGED.get(objective, [])


@pytest.mark.long
@pytest.mark.parametrize("how", TYPES)
@pytest.mark.parametrize("case", TUNED)
def test_no_task_waits_for_the_device(found: Found, case: str, how: str) -> None:
    told = found("tasks")[f"{case}, {how}"]
    types_and_waits(told, case, how)
    assert told["judged"] == []


@pytest.mark.long
@pytest.mark.parametrize("case", [case for case in CASES if not case.startswith("elmo")])
def test_products_in_8_bits_are_the_device_s_own_and_wait_for_nothing(found: Found, case: str) -> None:
    told = found("in_8_bits")[case]
    assert "error" not in told, told["error"]
    assert set(told["types"]) == {"bfloat16"}
    assert told["step"]["waits"] == []


DIFFERENT = ("electra rtd", "megatron_bert mlm", "modern mlm", "gpt2 clm")  # in what their blocks are
STREAMS = {  # the types that blocks hand on, where some of them are more than that of products
    "exact norms": {"electra rtd": "float32", "modern mlm": "float32"},
    "exact embeddings": {"megatron_bert mlm": "float32", "gpt2 clm": "float32"},
}
HOWS = {
    "recomputed": "bf16",
    "recomputed in fp8": "bf16",
    "exact norms": "bf16",
    "exact embeddings": "fp16",
    "accumulated": "bf16",
    "fp16": "fp16",
    "fp8": "bf16",
    "V100": "fp16",
    "AMD": "bf16",
}


def stays(told: Any, case: str, how: str) -> None:
    """No error, the type of the stream, and no wait but fp16's."""
    assert "error" not in told, told["error"]
    assert told["types"] == [STREAMS.get(how, {}).get(case, TYPES[HOWS[how]])]
    assert told["step"]["waits"] == (["_local_scalar_dense"] if HOWS[how] == "fp16" else [])
    assert told["judged"] == []


@pytest.mark.long
@pytest.mark.parametrize("how", ["recomputed", "recomputed in fp8", "exact norms", "exact embeddings", "accumulated"])
@pytest.mark.parametrize("case", DIFFERENT)
def test_layouts_wait_for_nothing_and_keep_exact_what_is_asked(found: Found, case: str, how: str) -> None:
    told = found("layouts")
    stays(told[f"{case}, {how}"], case, how)
    once, thrice = (told[f"{case}, {each}"]["launches"] for each in ("exact norms", "accumulated"))
    assert 2.5 * once < thrice < 3.5 * once, "three micro-batches"


@pytest.mark.long
@pytest.mark.parametrize("how", ["V100", "AMD"])
@pytest.mark.parametrize("case", DIFFERENT)
def test_gpus_without_kernels_for_texts_of_any_length(found: Found, case: str, how: str) -> None:
    stays(found("older")[f"{case}, {how}"], case, how)


@pytest.mark.long
@pytest.mark.parametrize("how", ["fp16", "fp8", "recomputed", "exact norms", "exact embeddings"])
@pytest.mark.parametrize("case", DIFFERENT)
def test_kernels_of_ours_in_either_16_bits_and_beside_8(found: Found, case: str, how: str) -> None:
    pytest.importorskip("triton")
    told = found("kernels_in_16_bits")[f"{case}, {how}"]
    stays(told, case, how)
    assert {"cross_entropy", "residual_norm", "residual_norm_backward"} <= set(told["step"]["names"])


@pytest.mark.long
@pytest.mark.parametrize("name", ["adamw", "adamw bert", "lamb", "muon", "stableadamw", "adagrad"])
def test_every_optimizer_steps_without_a_wait(found: Found, name: str) -> None:
    told = found("optimizers")[name]
    assert "error" not in told, told["error"]
    assert told["step"]["waits"] == []
    assert told["step"]["launches"] > told["launches"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("case", "launches", "traffic", "step"),
    [
        # of a micro-batch of 65,536 tokens, forward and back: kernels, and GB beside products and attention; and the
        # kernels of the whole step. What is measured, and no more: these bounds may only fall.
        # (Launches of torch's form rose once, by five a chunk of scores: a confident target's 1 is subtracted early.)
        ("electra-base at 128", 1_216, 134.7, 1_233),
        ("gpt2-345m at 1024", 1_158, 303.1, 1_175),
        ("modern-base at 1024", 1_503, 357.3, 1_520),
        ("elmo, 128 x 20 words", 3_880, 31.5, 4_047),
    ],
)
def test_launches_and_bytes_only_fall(found: Found, case: str, launches: int, traffic: float, step: int) -> None:
    told = found("ledger")[case]
    assert "error" not in told, told["error"]
    assert told["launches"] <= launches
    assert told["traffic"] <= traffic, told["most"]
    assert told["step"]["launches"] <= step
    assert told["waits"] == told["step"]["waits"] == []


@pytest.mark.long
@pytest.mark.parametrize(
    ("case", "launches", "traffic", "step"),
    [
        ("electra-base at 128", 945, 95.9, 962),
        ("gpt2-345m at 1024", 927, 190.3, 944),
        ("modern-base at 1024", 1_417, 330.1, 1_434),
    ],
)
def test_kernels_of_ours_move_less(found: Found, case: str, launches: int, traffic: float, step: int) -> None:
    pytest.importorskip("triton")
    told = found("by_kernels")[case]
    assert "error" not in told, told["error"]
    assert told["launches"] <= launches
    assert told["traffic"] <= traffic, told["most"]
    assert told["step"]["launches"] <= step
    assert told["waits"] == told["step"]["waits"] == []


@pytest.mark.long
def test_texts_end_to_end_are_looked_at_without_a_mask(found: Found) -> None:
    """The attention that moves most is that of kernels for texts of any length, and no other."""
    names = {name for name, _, _ in found("ledger")["electra-base at 128"]["most"]}
    assert "_flash_attention_backward" in names
    assert not {"attention", "attention_backward"} & names
