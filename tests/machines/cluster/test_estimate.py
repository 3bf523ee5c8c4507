"""Estimates: from steps, measurements or a share of the peak; what range; what is refused; published times."""

from __future__ import annotations

import dataclasses
import json
import statistics
from pathlib import Path
from typing import Any

import pytest
import torch

from kit.makers import make_store
from kit.measurements import measurement
from ordsmed.base import measurements
from ordsmed.base.errors import OrdsmedError, RecipeError
from ordsmed.base.launch import gpus
from ordsmed.base.machine import devices, host, speed
from ordsmed.cli import main
from ordsmed.machines.cluster import claims, survey
from ordsmed.machines.cluster import estimate as machinery
from ordsmed.machines.cluster.estimate import Estimate, Margin, estimate
from ordsmed.train import step_times as step_timing
from ordsmed.train.job import Job

PEAK = 1e12


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(speed, "measured_peak", lambda *_: PEAK)
    monkeypatch.setattr(host, "age", lambda: 0.0)
    return tmp_path


def here(*overrides: str, name: str = "tiny/bert", **how: Any) -> Estimate:
    return estimate(name, overrides, **how)


def likeness(**changes: Any) -> measurements.Measurement:
    """Of tiny/bert on this machine."""
    own = here()
    speed = changes.get("flops_per_second", 5e9)
    same = {
        "family": "bert",
        "task": "mlm",
        "optimizer": "adamw",
        "device": devices.name_of(torch.device("cpu")),
        "kind": "cpu",
        "precision": "fp32",
        "software": "ordsmed",
        "measure": "training",
        "processes": 1,
        "threads": own_threads(),
        "batch": 64,
        "length": 32,
        "flops_per_second": 5e9,
        "step_seconds": 1.0,
        "step_seconds_least": 1.0,
        "step_seconds_most": 1.0,
        "recompute": False,
        "compile": False,
        "tokens_per_second": speed * own.tokens / work_of()[1],
        "energy": None,
    }
    return measurement(**{**same, **changes})


def own_threads() -> int:
    return torch.get_num_threads()


def work_of(*overrides: str) -> tuple[int, float, float, float]:
    """Steps, their FLOPs, those of validations, tokens."""
    plan, _ = machinery._plan_and_devices("tiny/bert", overrides, "pretrain", "", 1, None, one_device=False, make=False)
    return machinery._work(plan, "tiny/bert")


def test_a_share_of_the_peak_where_nothing_was_measured() -> None:
    found, share = here(), machinery.OF_CPU
    begun = found.seconds.likely - found.flops / (PEAK * share.likely)
    assert begun == pytest.approx(found.seconds.least - found.flops / (PEAK * share.most))
    assert begun > 0
    assert found.speed.flops.least == PEAK * share.least
    assert found.speed.flops.most == PEAK * share.most
    assert found.seconds.least < found.seconds.likely < found.seconds.most
    shortest = dataclasses.replace(found, start=5.0, seconds=Margin(5.01, 5.02, 5.03)).lines()
    assert "  time: 5 s; of it 5 s per training to start and end" in shortest, "no range of no width"
    assert found.kilowatt_hours is None
    assert "55% of its measured peak" in found.speed.basis
    assert any(line.startswith("  energy: not known") for line in found.lines())
    assert any("not counted: data: " in line for line in found.lines())


def test_twice_the_steps_are_twice_the_work() -> None:
    """Validations counted: they are as many more."""
    one, two = here("phase.steps=500"), here("phase.steps=1000")
    assert (one.steps, two.steps) == (1000, 2000)  # of two phases
    assert two.flops == pytest.approx(2 * one.flops, rel=1e-6)
    assert here("phase.steps=500", "validate=0").flops < one.flops  # judged at the end alone
    assert here("phase.steps=500", "validate=50").flops > one.flops


def test_what_validations_cost() -> None:
    """One at the end, and one at each step that has its own; each a third of a step's work a row: no backward pass."""
    plan, _ = machinery._plan_and_devices(
        "tiny/bert", ("validate=0",), "pretrain", "", 1, None, one_device=False, make=False
    )
    phase, rows = plan.recipe.phases[-1], plan.recipe.validation_rows
    one = rows * plan.flops(len(plan.recipe.phases) - 1) / phase.batch / 3
    steps, work, judging, _ = work_of("validate=0")
    assert judging == pytest.approx(one)
    assert work_of(f"validate={steps // 4}")[:2] == (steps, work)
    assert work_of(f"validate={steps // 4}")[2] == pytest.approx(4 * one)
    assert work_of("validate=0", f"validation_rows={2 * rows}")[2] == pytest.approx(2 * one)
    assert here("validate=0").flops == pytest.approx(work + one)


def test_a_measurement_like_it_is_taken_as_it_is(folder: Path) -> None:
    measurements.add(measurements.DEFAULT_PATH, [likeness()])
    found = here()
    assert found.speed.flops.likely == 5e9
    assert found.speed.flops.most == pytest.approx(5e9 * 1.1)
    assert found.speed.reasons == ("total uncertainty: 10%",)


@pytest.mark.parametrize(
    ("changes", "more"),
    [
        ({"family": "gpt2"}, 0.2),
        ({"task": "rtd"}, 0.1),
        ({"length": 64}, 0.1),
        ({"batch": 16}, 0.1),
        ({"threads": 99}, 0.2),
        ({"recompute": True}, 0.2),
        ({"step_seconds_most": 1.2}, 0.1),
    ],
)
def test_what_differs_makes_it_less_sure(folder: Path, changes: dict[str, Any], more: float) -> None:
    measurements.add(folder / "m.jsonl", [likeness(**changes)])
    found = here(file=folder / "m.jsonl").speed.flops
    assert found.most / found.likely == pytest.approx(1.1 + more)
    assert found.likely / found.least == pytest.approx(1.1 + more)


def test_the_nearest_measurement_is_taken(folder: Path) -> None:
    measurements.add(
        folder / "m.jsonl",
        [
            likeness(family="gpt2", flops_per_second=1e9, tokens_per_second=1e4),
            likeness(),
            likeness(length=128, flops_per_second=2e9),
        ],
    )
    assert here(file=folder / "m.jsonl").speed.flops.likely == 5e9


@pytest.mark.parametrize(
    "changes", [{"device": "other"}, {"precision": "bf16"}, {"software": "transformers"}, {"measure": "predict"}]
)
def test_what_tells_nothing_of_it_is_not_taken(folder: Path, changes: dict[str, Any]) -> None:
    measurements.add(folder / "m.jsonl", [likeness(**changes)])
    with pytest.raises(RecipeError, match=r"--measurements: .* has no similar measurement; wanted a training"):
        here(file=folder / "m.jsonl")
    measurements.add(measurements.DEFAULT_PATH, [likeness(**changes)])
    assert "its measured peak" in here().speed.basis


def test_energy_that_was_measured(folder: Path) -> None:
    """36 J for a step of 5 GFLOP."""
    measurements.add(folder / "m.jsonl", [likeness(energy=36.0)])
    found = here(file=folder / "m.jsonl")
    assert found.kilowatt_hours is not None
    assert found.kilowatt_hours.likely == pytest.approx(36 * found.flops / 5e9 / 3.6e6)


def test_a_measurement_of_one_gpu_tells_of_a_cluster_of_them(folder: Path) -> None:
    one = likeness(device="NVIDIA A100-SXM4-80GB", kind="cuda", precision="bf16", flops_per_second=1e14)
    measurements.add(folder / "m.jsonl", [one])
    found = here(site="saga:a100", nodes=2, file=folder / "m.jsonl").speed
    assert found.flops.likely == pytest.approx(8e14 * machinery.BETWEEN_NODES.likely)
    alone = here(site="saga:a100", per_node=1, file=folder / "m.jsonl").speed
    assert alone.flops.likely == 1e14


def test_a_site_by_its_gpus() -> None:
    found = here(name="pretrain/electra-base-lamb", site="saga:a100", nodes=2)
    whole = 8 * 312e12 * machinery.TENSOR_CORES.likely * machinery.BETWEEN_NODES.likely
    assert found.speed.flops.likely == pytest.approx(whole)
    assert found.devices == 8
    assert found.device_hours.likely == pytest.approx(found.seconds.likely * 8 / 3600)
    assert found.kilowatt_hours is not None
    assert found.kilowatt_hours.likely == pytest.approx(found.device_hours.likely * 0.4 * 0.75)
    assert "of the GPUs only" in "\n".join(found.lines())
    slower = here("layout.precision=fp32", name="pretrain/electra-base-lamb", site="saga:a100", nodes=2)
    assert slower.seconds.likely > 3 * found.seconds.likely


def test_trials_are_so_many_runs(folder: Path) -> None:
    (folder / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\n")
    (folder / "train.tsv").write_text("text\tlabel\n" + "a b\tx\nb b\ty\n" * 40)
    (folder / "one.toml").write_text("""
tokenizer = "vocab.txt"
epochs = 10
batch = 16
[model]
kind = "bert"
width = 32
layers = 1
heads = 2
positions = 16
[task]
kind = "classify"
train = "train.tsv"
length = 16
""")
    one, six = here(name="one.toml"), here("seeds=[1,2,3]", "grid.learning_rate=[1e-4,1e-3]", name="one.toml")
    assert (one.steps, six.steps, six.trials) == (50, 50, 6)
    assert six.flops == pytest.approx(6 * one.flops)
    at_once = here("seeds=[1,2,3]", "grid.learning_rate=[1e-4,1e-3]", name="one.toml", site="saga:a100")
    assert at_once.device_hours.likely == pytest.approx(at_once.seconds.likely * 3 / 3600)  # two turns of four


@pytest.mark.long
def test_steps_are_timed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So many of each phase, from its first on; nothing is left behind."""
    real, timed = machinery.step_times, []

    def spy(job: Job, start: int, most: int) -> list[float]:
        timed.append((start, real(job, start, most)))
        return timed[-1][1]

    monkeypatch.setattr(machinery, "step_times", spy)
    monkeypatch.setattr(step_timing, "LONG", 0.0)
    words = (
        f"data={make_store(folder / 'data')}",
        "model.width=32",
        "model.layers=1",
        "model.heads=2",
        "phase.steps=40",
        "phase.warmup=0",
        "phase.batch=4",
    )
    found = here(*words, measure=True)
    assert [(start, len(steps)) for start, steps in timed] == [(0, step_timing.TIMED), (40, step_timing.TIMED)]
    assert all(second > 0 for _, steps in timed for second in steps)
    seconds = 40 * sum(statistics.fmean(steps) for _, steps in timed)
    assert found.speed.flops.likely == pytest.approx(work_of(*words)[1] / seconds)
    assert [path.name for path in folder.iterdir()] == ["data"]
    monkeypatch.setattr(step_timing, "LONG", 1e9)
    timed.clear()
    here(*words, "validate=10", measure=True)
    assert [len(steps) for _, steps in timed] == [40 - 3 - step_timing.WARM] * 2  # to its end, without validations


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["tiny/bert", "--site", "sage"], "--site: found sage; did you mean `saga`"),
        (["tiny/bert", "--site", "saga:a200"], "--site: found partition a200; did you mean `a100`"),
        (["tiny/bert", "--site", "puhti"], "--site: found puhti, which is retired since 2026-07-31; use roihu"),
        (["tiny/bert", "--site", "saga", "--gpus", "5"], "--gpus: found 5 per node; wanted at most 4 on accel of saga"),
        (["tiny/bert", "layout.precision=bf16", "--site", "saga"], "found bf16, which P100 has no units for"),
        (["tiny/bert", "--nodes", "2"], "--nodes: found 2, of this machine; wanted 1; name a cluster with `--site`"),
        (["tiny/bert", "--site", "saga", "--measure"], "--measure: found with --site saga; wanted no site"),
        (["tiny/bert", "--gpus", "2", "--measure"], "--measure: found with 2 processes; wanted one"),
        (["tiny/bert", "--measurements", "none.jsonl"], "none.jsonl: "),
        (["corpus/stdlib"], "corpus/stdlib: is a recipe of `corpus`; wanted one of pretrain or finetune"),
        (
            ["tiny/bert", "phase.steps=0", "phase.epochs=3"],
            "does not say how many steps it takes; wanted `steps`, or data",
        ),
        ([], "found none of them, or several"),
        (["tiny/bert", "--claims"], "found none of them, or several"),
    ],
)
def test_what_cannot_be_estimated_is_refused(
    words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["estimate", *words])
    error = " ".join(capsys.readouterr().err.split())
    assert complaint in error


def validated(folder: Path, *, tflops: float, month: int = 1, site: str = "", **facts: str) -> None:
    """A report of `validate` with the speed of products."""
    row = {"item": "speeds", "case": "products fp32", "state": "ok", "figures": {"TFLOP/s": tflops}}
    report = {"host": "n1", "site": site, "made": f"2026-{month:02}-01 08:00:00", "facts": facts, "items": [row]}
    folder.mkdir(parents=True)
    (folder / "report.json").write_text(json.dumps(report))


def test_a_folder_of_reports_tells_how_fast_products_are(tmp_path: Path) -> None:
    """Of the same GPU wherever it is, of a CPU at the same place; the median of the last five."""
    words = ["layout.precision=fp32"]
    for month, tflops in enumerate((9.0, 8.0, 8.0, 8.0, 20.0), 1):
        facts = {"device": "cuda", "GPUs": "NVIDIA A100-SXM4-80GB"}
        validated(tmp_path / f"reports/{month}", tflops=tflops, month=month, site="olivia:accel", **facts)
    reports = tmp_path / "reports"
    times = estimate("tiny/bert", words, site="saga:a100", per_node=2, file=reports)
    assert times.speed.basis == f"{machinery.OF_GPU.likely:.0%} of the peak that `validate` measured, 16 TFLOP/s"
    assert times.speed.reasons[0] == f"median of 5 reports, the last of olivia:accel on 2026-05-01 in {reports}"
    share = machinery.OF_GPU.likely * machinery.IN_A_NODE.likely
    assert times.speed.flops.likely == pytest.approx(16e12 * share)
    with pytest.raises(RecipeError, match="has no similar measurement"):
        estimate("tiny/bert", words, site="saga:accel", file=reports)
    with pytest.raises(RecipeError, match="has no similar measurement"):
        estimate("tiny/bert", file=reports)
    validated(tmp_path / "reports/cpu", tflops=0.5, device="cpu", processor=devices.name_of(torch.device("cpu")))
    validated(tmp_path / "cpu", tflops=0.1, device="cpu", GPUs="NVIDIA A100-SXM4-80GB", processor="another")
    with pytest.raises(RecipeError, match="has no similar measurement"):
        estimate("tiny/bert", words, site="saga:a100", file=tmp_path / "cpu")
    with pytest.raises(RecipeError, match="has no similar measurement"):
        estimate("tiny/bert", words, file=tmp_path / "cpu")
    here = estimate("tiny/bert", words, file=reports / "cpu/report.json")
    assert here.speed.flops.likely == pytest.approx(0.5e12 * machinery.OF_CPU.likely)
    with pytest.raises(RecipeError, match=r"--measurements: .*none.json: no such file"):
        estimate("tiny/bert", words, file=tmp_path / "none.json")


def test_a_partition_without_gpus_is_as_fast_as_a_report_of_it_says(tmp_path: Path) -> None:
    """Of that partition of a site, wherever its file is; each node does as much."""
    site = tmp_path / "here.toml"
    site.write_text(
        'source = "a page"\nscheduler = "slurm"\n[[partition]]\nname = "cpu"\n[[partition]]\nname = "big"\n'
    )
    validated(tmp_path / "reports/1", tflops=0.5, site="/elsewhere/here.toml:cpu", device="cpu")
    times = estimate("tiny/bert", ["layout.precision=fp32"], site=f"{site}:cpu", nodes=2, file=tmp_path / "reports")
    assert times.speed.flops.likely == pytest.approx(
        2 * 0.5e12 * machinery.OF_CPU.likely * machinery.BETWEEN_NODES.likely
    )
    with pytest.raises(RecipeError, match="has no similar measurement"):
        estimate("tiny/bert", ["layout.precision=fp32"], site=f"{site}:big", file=tmp_path / "reports")


def test_measurements_that_were_collected_come_first(tmp_path: Path) -> None:
    """A training that was measured says more than products do."""
    processor = devices.name_of(torch.device("cpu"))
    validated(tmp_path / "reports/1", tflops=0.5, device="cpu", processor=processor)
    measurements.add(tmp_path / "reports/bench/measurements.jsonl", [likeness()])
    assert estimate("tiny/bert", ["layout.precision=fp32"], file=tmp_path / "reports").speed.basis.startswith(
        "measured: "
    )


def test_it_is_printed_for_people_and_programs(capsys: pytest.CaptureFixture[str]) -> None:
    main(["estimate", "tiny/bert", "--site", "saga", "--json"])
    facts = json.loads(capsys.readouterr().out)
    assert facts["devices"] == 4
    assert facts["hours"]["likely"] == pytest.approx(facts["seconds"]["likely"] / 3600)
    main(["estimate", "tiny/bert", "--site", "saga"])
    assert "tiny/bert on saga: 1 node, 4 x P100, fp32" in capsys.readouterr().out


# --- what others reported


def test_times_that_were_reported_lie_in_our_range() -> None:
    """NVIDIA's and Megatron's do; what is far off is so for reasons that their sources do not tell."""
    outside = {
        claim.code
        for claim in survey.claims()
        if (ours := claims.estimated(claim)) and not ours.least <= claim.hours[0] <= ours.most
    }
    assert outside == {"huggingface-bert", "google-electra"}


def test_claims_are_printed_with_what_is_not_reported(capsys: pytest.CaptureFixture[str]) -> None:
    main(["estimate", "--claims"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "google-bert: 3.3 G words x 40 epochs: 4 days on 4 to 16 TPUs, 384 to 1536 device hours" in shown
    assert "not estimated: TPU is not a known GPU" in shown
    assert "fairseq-roberta: not reported" in shown
    main(["estimate", "--claims", "--json"])
    facts = json.loads(capsys.readouterr().out)
    assert facts["others"]["fairseq-roberta"] == "not reported"
    assert len(facts["claims"]) == len(survey.claims())
    main(["estimate", "--claims", "--markdown"])
    page = capsys.readouterr().out.splitlines()
    assert len(page) == 2 + len(facts["claims"]) + len(facts["others"])


def test_a_range_turns_round() -> None:
    assert Margin(1, 2, 4).seconds_for(8) == Margin(2, 4, 8)


def test_gpus_by_what_torch_calls_them() -> None:
    names = {
        "NVIDIA A100-SXM4-80GB": "A100-80",
        "NVIDIA A100-SXM4-40GB": "A100",
        "Tesla V100-SXM2-32GB": "V100-32",
        "NVIDIA GH200 480GB": "GH200",
        "AMD Instinct MI250X": "MI250X",
        "NVIDIA RTX 3090": "",
    }
    assert {device: gpus.named(device) for device in names} == names


def test_an_error_names_its_place() -> None:
    with pytest.raises(OrdsmedError, match="did you mean `tiny/bert`"):
        here(name="tiny/bertt")
