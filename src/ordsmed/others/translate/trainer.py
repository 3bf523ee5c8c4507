"""Hugging Face's Trainer: where its arguments go, in versions 4 and 5 together, and the files that it leaves.

per_device_train_batch_size, learning_rate, ...  ->  phase.batch, phase.rate, layout.micro, ...
run's folder  ->  config.json, model.safetensors, tokenizer, NAME_results.json beside what the run wrote
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ordsmed.base import files, snapshots
from ordsmed.base.arguments import UsageError
from ordsmed.base.errors import nearest
from ordsmed.learn.schedules import warmup_steps
from ordsmed.learn.score.seeds import is_number
from ordsmed.others.translate.program import YES_OR_NO, Call, Flag, Values

Scores = Mapping[str, Any]

LESS_IS_BETTER = ("loss", "mse")  # how the names end of what is the better the smaller it is
SCHEDULES = ("linear", "cosine", "constant", "constant_with_warmup", "polynomial", "cosine_with_restarts",
             "cosine_with_min_lr", "inverse_sqrt", "warmup_stable_decay")  # fmt: skip
LOGS = "a run logs into its folder: metrics.jsonl, log.txt, TensorBoard's"
SHOWN = "lines are shown where somebody looks"
SCORES = "scores are our own, over all files at once"
FITS = "rows are judged together as fits the device"
WORKERS = "workers look after that themselves"
RANKS = "the launcher's variables and the devices that there are say it"
COPIES = "copies of a network are kept alike without it"
SPLIT = "blocks are split one by one"
HUB = "nothing is sent; `huggingface-cli upload` takes output_dir"
SAVED = "a checkpoint is whole, to go on from"
FORMER = "of a former version, and without use by now"


def arguments(phase: str, judged: str) -> tuple[Flag, ...]:
    """TrainingArguments; `phase`: where a recipe has its rate, `judged`: the setting of how often it is judged."""
    return (
        Flag("--output_dir", "trainer_output", "out"),
        Flag("--overwrite_output_dir", False, "--anew", joint=True),
        Flag("--do_train", False, "the training", joint=True),
        Flag("--do_eval", False, "eval_results.json", joint=True),
        Flag("--do_predict", False, "predictions", joint=True),
        Flag("--resume_from_checkpoint", str, "out", joint=True),
        *_steps(phase), *_updates(), *_arithmetic(), *_reports(), *_judging(judged), *_saving(), *_machines(),
    )  # fmt: skip


def _steps(phase: str) -> tuple[Flag, ...]:
    return (
        Flag("--per_device_train_batch_size", 8, f"{phase}batch", joint=True, also=("--per_gpu_train_batch_size",)),
        Flag("--gradient_accumulation_steps", 1, f"{phase}batch", joint=True),
        Flag("--auto_find_batch_size", False, "layout.micro", joint=True),
        Flag("--num_train_epochs", 3.0, f"{phase}epochs", joint=True),
        Flag("--max_steps", -1, f"{phase}steps", joint=True),
        Flag("--learning_rate", 5e-5, f"{phase}rate"),
        Flag("--lr_scheduler_type", "linear", f"{phase}schedule", joint=True),
        Flag("--lr_scheduler_kwargs", str, f"{phase}schedule", joint=True),
        Flag("--warmup_steps", 0.0, f"{phase}warmup", joint=True),
        Flag("--warmup_ratio", 0.0, f"{phase}warmup", joint=True),
    )


def _updates() -> tuple[Flag, ...]:
    usual = "leave it out: --optim names what is known here"
    return (
        Flag("--optim", "adamw_torch_fused", "optimizer.kind", joint=True),
        Flag("--adafactor", False, refused="leave it out, or `optimizer.kind=stableadamw` behind the flags"),
        Flag("--optim_args", str, refused="name settings behind the flags: `optimizer.epsilon=1e-6`"),
        Flag("--optim_target_modules", str, refused=usual, several=True),
        Flag("--weight_decay", 0.0, "optimizer.decay"),
        Flag("--adam_beta1", 0.9, "optimizer.betas", joint=True),
        Flag("--adam_beta2", 0.999, "optimizer.betas", joint=True),
        Flag("--adam_epsilon", 1e-8, "optimizer.epsilon", joint=True),
        Flag("--max_grad_norm", 1.0, "clip"),
        Flag("--average_tokens_across_devices", True, nothing="a loss is the mean over what all devices predict"),
        Flag("--label_smoothing_factor", 0.0, refused="leave it out: losses are those of the labels themselves"),
        Flag("--neftune_noise_alpha", 0.0, refused="leave it out: nothing is added to embeddings"),
        Flag("--seed", 42, "seed"),
        Flag("--data_seed", int, refused="leave it out: --seed is that of the data too"),
        Flag("--full_determinism", False, "layout.deterministic"),
        Flag("--train_sampling_strategy", "random", refused="leave it out: the order is random, by --seed"),
        Flag("--group_by_length", False, nothing="short texts share a row, or padding is not computed"),
        Flag("--length_column_name", "length", nothing="lengths are counted"),
        Flag("--ignore_data_skip", False, nothing="a run goes on with the next rows"),
        Flag("--remove_unused_columns", True, nothing="columns that are not asked for are not read"),
        Flag("--label_names", str, nothing="the task says where labels stand", several=True),
    )


def _arithmetic() -> tuple[Flag, ...]:
    autocast = "products in 16 bits are torch's own"
    computes = "a validation is computed in the precision of the training"
    again = "blocks are computed again, each alone"
    kernels = "kernels of our own are taken where they are equal: layout.kernels"
    return (
        Flag("--bf16", False, "layout.precision", joint=True),
        Flag("--fp16", False, "layout.precision", joint=True),
        Flag("--tf32", bool, "layout.precision", joint=True),
        Flag("--fp16_opt_level", "O1", nothing=autocast),
        Flag("--fp16_backend", "auto", nothing=autocast),
        Flag("--half_precision_backend", "auto", nothing=autocast),
        Flag("--bf16_full_eval", False, nothing=computes),
        Flag("--fp16_full_eval", False, nothing=computes),
        Flag("--gradient_checkpointing", False, "layout.recompute", joint=True),
        Flag("--activation_checkpointing", False, "layout.recompute", joint=True),
        Flag("--gradient_checkpointing_kwargs", str, nothing=again),
        Flag("--activation_checkpointing_kwargs", str, nothing=again),
        Flag("--torch_compile", False, "layout.compile", joint=True),
        Flag("--torch_compile_backend", str, "layout.compile", joint=True),
        Flag("--torch_compile_mode", str, "layout.compile", joint=True),
        Flag("--torchdynamo", str, "layout.compile", joint=True),
        Flag("--use_liger_kernel", False, nothing=kernels),
        Flag("--liger_kernel_config", str, nothing=kernels),
        Flag("--use_cache", False, nothing="a training keeps no keys and values"),
        Flag("--torch_empty_cache_steps", int, nothing="memory is given back where it is short"),
    )


def _reports() -> tuple[Flag, ...]:
    return (
        Flag("--logging_steps", 500.0, "log", joint=True),
        Flag("--logging_strategy", "steps", nothing="metrics.jsonl has a line for every step"),
        Flag("--logging_first_step", False, nothing="metrics.jsonl has a line for every step"),
        Flag("--logging_dir", str, nothing=LOGS), Flag("--log_on_each_node", True, nothing=LOGS),
        Flag("--logging_nan_inf_filter", True, nothing="a loss that is no number is told: `trouble`"),
        Flag("--include_num_input_tokens_seen", "no", nothing=LOGS),
        Flag("--include_tokens_per_second", False, nothing=LOGS),
        Flag("--log_level", "passive", nothing=SHOWN), Flag("--log_level_replica", "warning", nothing=SHOWN),
        Flag("--disable_tqdm", bool, nothing=SHOWN), Flag("--report_to", "none", nothing=LOGS, several=True),
        Flag("--run_name", str, nothing=LOGS), Flag("--project", str, nothing=LOGS),
        Flag("--trackio_space_id", str, nothing=LOGS), Flag("--trackio_bucket_id", str, nothing=LOGS),
        Flag("--trackio_static_space_id", str, nothing=LOGS), Flag("--debug", "", nothing=LOGS, several=True),
        Flag("--skip_memory_metrics", True, nothing="log.txt tells memory before the first step"),
        Flag("--push_to_hub", False, refused=f"leave it out: {HUB}"),
        Flag("--hub_model_id", str, nothing=HUB), Flag("--hub_strategy", "every_save", nothing=HUB),
        Flag("--hub_token", str, nothing=HUB), Flag("--hub_private_repo", bool, nothing=HUB),
        Flag("--hub_always_push", False, nothing=HUB), Flag("--hub_revision", str, nothing=HUB),
        Flag("--push_to_hub_model_id", str, nothing=HUB), Flag("--push_to_hub_organization", str, nothing=HUB),
        Flag("--push_to_hub_token", str, nothing=HUB),
    )  # fmt: skip


def _judging(judged: str) -> tuple[Flag, ...]:
    return (
        Flag("--eval_strategy", "no", judged, joint=True, one_of=("no", "steps", "epoch"),
             also=("--evaluation_strategy",)),
        Flag("--eval_steps", float, judged, joint=True),
        Flag("--eval_delay", 0.0, refused="leave it out: early checks change nothing"),
        Flag("--eval_on_start", False, refused="`ordsmed evaluate RUN --step 0` judges what it began with"),
        Flag("--per_device_eval_batch_size", 8, nothing=FITS, also=("--per_gpu_eval_batch_size",)),
        Flag("--eval_accumulation_steps", int, nothing=FITS), Flag("--prediction_loss_only", False, nothing=SCORES),
        Flag("--eval_do_concat_batches", True, nothing=SCORES), Flag("--eval_use_gather_object", False, nothing=SCORES),
        Flag("--include_for_metrics", str, nothing=SCORES, several=True),
        Flag("--include_inputs_for_metrics", False, nothing=SCORES),
        Flag("--batch_eval_metrics", False, nothing=SCORES),
        Flag("--load_best_model_at_end", False, "best", joint=True),
        Flag("--metric_for_best_model", str, "best", joint=True),
        Flag("--greater_is_better", bool, nothing="it is known of each score"),
    )  # fmt: skip


def _saving() -> tuple[Flag, ...]:
    return (
        Flag("--save_strategy", "steps", "save", joint=True, one_of=("no", "steps", "epoch", "best")),
        Flag("--save_steps", 500.0, "save", joint=True),
        Flag("--save_total_limit", int, "keep"),
        Flag("--save_safetensors", True, nothing="weights are safetensors"),
        Flag("--save_on_each_node", False, nothing="a run's folder is one that all machines see"),
        Flag("--save_only_model", False, nothing=SAVED),
        Flag("--enable_jit_checkpoint", False, nothing=SAVED),
        Flag("--restore_callback_states_from_checkpoint", False, nothing=SAVED),
    )


def _machines() -> tuple[Flag, ...]:
    split = "`layout.shard=N` behind the flags splits all over N devices"
    return (
        Flag("--use_cpu", False, "layout.device", joint=True, also=("--no_cuda",)),
        Flag("--use_mps_device", False, refused="leave it out: devices are CPUs and NVIDIA's GPUs"),
        Flag("--local_rank", -1, nothing=RANKS), Flag("--ddp_backend", str, nothing=RANKS),
        Flag("--xpu_backend", str, nothing=RANKS), Flag("--tpu_num_cores", int, nothing=RANKS),
        Flag("--ddp_timeout", 1800, "layout.patience", joint=True),
        Flag("--ddp_find_unused_parameters", bool, nothing=COPIES), Flag("--ddp_bucket_cap_mb", int, nothing=COPIES),
        Flag("--ddp_broadcast_buffers", bool, nothing=COPIES), Flag("--ddp_static_graph", bool, nothing=COPIES),
        Flag("--fsdp", str, "layout.shard", joint=True, several=True),
        Flag("--fsdp_config", str, nothing=SPLIT), Flag("--fsdp_min_num_params", 0, nothing=SPLIT),
        Flag("--fsdp_transformer_layer_cls_to_wrap", str, nothing=SPLIT),
        Flag("--tp_size", 0, "layout.tensor", joint=True),
        Flag("--deepspeed", str, refused=split), Flag("--sharded_ddp", "", refused=split, several=True),
        Flag("--parallelism_config", str, refused=split), Flag("--accelerator_config", str, refused=split),
        Flag("--split_batches", bool, refused="leave it out: a batch is of one device"),
        Flag("--dispatch_batches", bool, nothing=WORKERS),
        Flag("--dataloader_num_workers", 0, "layout.workers", joint=True),
        Flag("--dataloader_drop_last", False, nothing="every step is full: rows go on over the end of the data"),
        Flag("--dataloader_pin_memory", True, nothing=WORKERS),
        Flag("--dataloader_persistent_workers", False, nothing=WORKERS),
        Flag("--dataloader_prefetch_factor", int, nothing=WORKERS),
        Flag("--dataloader_multiprocessing_context", str, nothing=WORKERS),
        Flag("--dataloader_in_order", True, nothing=WORKERS),
        Flag("--jit_mode_eval", False, nothing=FORMER), Flag("--use_ipex", False, nothing=FORMER),
        Flag("--tpu_metrics_debug", False, nothing=FORMER), Flag("--past_index", -1, nothing=FORMER),
        Flag("--use_legacy_prediction_loop", False, nothing=FORMER), Flag("--mp_parameters", "", nothing=FORMER),
        Flag("--ray_scope", "last", nothing=FORMER),
    )  # fmt: skip


def put_arguments(values: Values, call: Call, phase: str) -> None:
    """Put into a call what these arguments say of steps, arithmetic and machines."""
    rows = values.per_device_train_batch_size * values.gradient_accumulation_steps * values.place.world
    call.put(f"{phase}batch", rows)
    if not values.auto_find_batch_size:
        call.put("layout.micro", values.per_device_train_batch_size)
    if values.max_steps > 0:
        call.put(f"{phase}steps", values.max_steps)
    else:
        call.put(f"{phase}epochs", values.num_train_epochs)
    call.put(f"{phase}schedule", _schedule(values))
    call.put(f"{phase}warmup", _warmup(values))
    call.put("layout.precision", _precision(values))
    call.put("layout.recompute", values.gradient_checkpointing or values.activation_checkpointing)
    call.put("layout.compile", _compiled(values))
    if (logged := interval("--logging_steps", values.logging_steps, values)) >= 1:
        call.put("log", logged)
    if values.use_cpu:
        call.put("layout.device", "cpu")
    if "ddp_timeout" in values.given:
        call.put("layout.patience", float(values.ddp_timeout))
    if "dataloader_num_workers" in values.given:
        call.put("layout.workers", values.dataloader_num_workers)
    if values.tp_size > 1:
        call.put("layout.tensor", values.tp_size)
    _split(values, call)
    if values.overwrite_output_dir:
        call.words.append("--anew")
    _resumed(values)


def interval(flag: str, every: float, values: Values) -> float:
    """Steps; or a share of all below 1, as long as nobody knows how many these are. None: 0, as what is below it."""
    if every >= 1:
        if every % 1:
            raise UsageError(flag, f"found {every:g}", "steps, or a share of all below 1")
        return int(every)
    return math.ceil(every * values.max_steps) if every > 0 and values.max_steps > 0 else max(every, 0)


def of_an_epoch(flag: str, values: Values) -> float:
    """Its share of all steps; 0, which is the end, where there is but one."""
    if values.max_steps > 0:
        raise UsageError(flag, "found epoch with --max_steps", "no or steps", f"`{flag} steps`")
    return 1 / values.num_train_epochs if values.num_train_epochs > 1 else 0


def _warmup(values: Values) -> float:
    """Steps, or a share of all; a constant rate has none."""
    return 0.0 if values.lr_scheduler_type == "constant" else float(values.warmup_steps or values.warmup_ratio)


def _schedule(values: Values) -> dict[str, Any]:
    kind, place = values.lr_scheduler_type, "--lr_scheduler_type"
    try:
        how = json.loads(values.lr_scheduler_kwargs or "{}")
    except json.JSONDecodeError:
        raise UsageError("--lr_scheduler_kwargs", f"found {values.lr_scheduler_kwargs}", "JSON: {...}") from None
    if kind not in SCHEDULES:
        raise UsageError(place, f"found {kind}", f"one of {', '.join(SCHEDULES)}", nearest(kind, SCHEDULES))
    known, rate = dict[str, Any](), values.learning_rate
    if kind in ("linear", "constant", "constant_with_warmup"):
        known = {"kind": kind.partition("_")[0]}
    elif kind in ("cosine", "cosine_with_restarts") and how.pop("num_cycles", 1) in (0.5, 1):
        known = {"kind": "cosine"}
    elif kind == "inverse_sqrt":
        known = {"kind": kind}
    elif kind == "polynomial":
        known = {"kind": kind, "power": float(how.pop("power", 1.0)), "end": how.pop("lr_end", 1e-7) / rate}
    elif kind == "cosine_with_min_lr" and len({"min_lr", "min_lr_rate"} & set(how)) == 1:
        least, share = how.pop("min_lr", 0.0), how.pop("min_lr_rate", 0.0)
        known = {"kind": "cosine", "end": least / rate or share}
    elif kind == "warmup_stable_decay" and how.get("num_decay_steps") and values.max_steps > 0:
        shapes = {"linear": "linear", "1-sqrt": "sqrt"}
        level = values.max_steps - warmup_steps(_warmup(values), values.max_steps)
        if (shape := how.pop("decay_type", "cosine")) in shapes:
            known = {"kind": "wsd", "decay": how.pop("num_decay_steps") / level, "shape": shapes[shape],
                     "end": how.pop("min_lr_ratio", 0.0)}  # fmt: skip
    if not known or how:
        asked = f"found {kind} with {values.lr_scheduler_kwargs or 'no kwargs'}"
        raise UsageError(place, asked, "a course that is known here", f"leave {', '.join(how) or 'it'} out, or set "
                         "`phase.schedule` behind the flags")  # fmt: skip
    return known


def _precision(values: Values) -> str:
    if values.bf16 and values.fp16:
        raise UsageError("--bf16", "found with --fp16", "one of the two")
    return "bf16" if values.bf16 else "fp16" if values.fp16 else "tf32" if values.tf32 else "fp32"


def _compiled(values: Values) -> bool:
    """A backend or mode asks for it as well."""
    backend, mode = values.torch_compile_backend or values.torchdynamo, values.torch_compile_mode
    if backend not in (None, "inductor"):
        raise UsageError("--torch_compile_backend", f"found {backend}", "inductor", "leave it out")
    if mode not in (None, "default"):
        raise UsageError("--torch_compile_mode", f"found {mode}", "default", "leave it out")
    return bool(values.torch_compile or backend or mode)


def _split(values: Values, call: Call) -> None:
    """What FSDP splits over all devices."""
    how = set(" ".join(values.fsdp or []).lower().split()) - {"auto_wrap", "true", "false", "no_shard"}
    if not how and {"true", "True"} & set(values.fsdp or []):
        how = {"full_shard"}
    if not how:
        return
    if left := sorted(how - {"full_shard", "shard_grad_op"}):
        remedy = (
            "`layout.shard=N layout.replicate=M` behind the flags" if left[0].startswith("hybrid_") else "leave it out"
        )
        raise UsageError("--fsdp", f"found {left[0]}", "full_shard or shard_grad_op", remedy)
    call.put("layout.shard", values.place.world)
    call.put("layout.reshard", "full_shard" in how)


def _resumed(values: Values) -> None:
    """A folder goes on by itself; another one's checkpoint is not taken over in silence."""
    named = values.resume_from_checkpoint
    if named is None or named.lower() in YES_OR_NO:
        return
    if Path(values.output_dir) not in (Path(named), Path(named).parent):
        remedy = f"`--output_dir {Path(named).parent}` goes on there, `--model_name_or_path` begins with its weights"
        raise UsageError("--resume_from_checkpoint", f"found {named}", f"one of {values.output_dir}", remedy)
    digits, newest = (
        Path(named).name.rpartition("-")[2],
        max(snapshots.steps(Path(values.output_dir) / "checkpoints"), default=0),
    )
    if digits.isdigit() and newest > int(digits) and Path(named) != Path(values.output_dir):
        remedy = f"leave it out; or delete the newer ones in {values.output_dir}/checkpoints"
        raise UsageError("--resume_from_checkpoint", f"found {named}", f"the newest, of step {newest}", remedy)


def add_export(out: Path) -> None:
    """Put a run's network and tokenizer, as transformers reads them, beside what the run wrote."""
    from ordsmed.weights.export import export

    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as beside:
        for path in sorted(export(out, Path(beside) / out.name).iterdir()):
            if path.name != "ordsmed.json" and path.is_file():
                path.replace(out / path.name)


def course(out: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """A run's steps, and its checks."""
    lines = files.read_lines(out / "metrics.jsonl")
    return [one for one in lines if "loss" in one], [one for one in lines if "loss" not in one]


def train_results(steps: Sequence[Mapping[str, Any]], epochs: float | None) -> dict[str, Any]:
    seconds, rows = sum(one["seconds"] for one in steps), sum(one["rows"] for one in steps)
    return {
        **({} if epochs is None else {"epoch": epochs}),
        "train_loss": sum(one["loss"] for one in steps) / max(len(steps), 1),
        "train_runtime": round(seconds, 4),
        "train_samples_per_second": round(rows / max(seconds, 1e-9), 3),
        "train_steps_per_second": round(len(steps) / max(seconds, 1e-9), 3),
    }


def write_results(out: Path, scores: Mapping[str, Mapping[str, Any]]) -> None:
    """NAME_results.json of each, and all_results.json of them all."""
    for name, own in scores.items():
        files.write_json(out / f"{name}_results.json", own)
    files.write_json(out / "all_results.json", {key: value for own in scores.values() for key, value in own.items()})


def by_name(scores: Scores) -> dict[str, Any]:
    """A check's scores by the names that theirs gives them."""
    return {f"eval_{name}": value for name, value in scores.items()}


def write_state(
    out: Path, values: Values, best: str | None = None, named: Callable[[Scores], Scores] = by_name
) -> None:
    """trainer_state.json: the course of a run, as far as it is of steps that theirs logs, its checks, and the best.

    `best`: what checks were compared by where no --metric_for_best_model says it; `named`: their scores as theirs.
    """
    steps, checks = course(out)
    last = steps[-1]["step"] if steps else 0
    every = values.logging_steps if values.logging_steps >= 1 else max(1, math.ceil(values.logging_steps * last))
    history = [
        {"step": one["step"], "loss": one["loss"], "grad_norm": one.get("norm"), "learning_rate": one["rate"]}
        for one in steps
        if one["step"] % every == 0 or one["step"] == last
    ]
    for check in checks:
        judged = named({name: value for name, value in check.items() if name not in ("step", "phase", "validation")})
        loss = {"eval_loss": check["validation"]} if "validation" in check else {}
        history.append({"step": check["step"], **judged, **loss})
    metric = values.metric_for_best_model or best
    files.write_json(out / "trainer_state.json", {
        "global_step": last, "max_steps": last, "num_train_epochs": values.num_train_epochs,
        "train_batch_size": values.per_device_train_batch_size, "logging_steps": values.logging_steps,
        "save_steps": values.save_steps, "log_history": sorted(history, key=lambda one: one["step"]),
        **_best(out, history, f"eval_{metric.removeprefix('eval_')}" if metric else ""), "is_world_process_zero": True,
    })  # fmt: skip


def _best(out: Path, history: Sequence[Mapping[str, Any]], metric: str) -> dict[str, Any]:
    """The best check, the first one of equals, and its checkpoint where it still stands; null: none was compared."""
    sign = 1 if metric.endswith(LESS_IS_BETTER) else -1
    checks = [one for one in history if is_number(one.get(metric))]
    best = min(checks, key=lambda one: (sign * one[metric], one["step"]), default={})
    step = best.get("step")
    place = snapshots.path_of(out / "checkpoints", step or 0)
    return {
        "best_metric": best.get(metric),
        "best_global_step": step,
        "best_model_checkpoint": str(place) if step and place.exists() else None,
    }
