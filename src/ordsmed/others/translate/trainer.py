"""Hugging Face's Trainer: translation of its arguments (transformers 4 and 5), and the files that it writes.

per_device_train_batch_size, learning_rate, ...  ->  phase.batch, phase.learning_rate, layout.micro, ...
the run's folder also gets config.json, model.safetensors, the tokenizer and NAME_results.json
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ordsmed.base import files, settings, snapshots
from ordsmed.base.arguments import UsageError
from ordsmed.base.errors import nearest
from ordsmed.learn.schedules import ROOT_UNIT, warmup_steps
from ordsmed.learn.score.seeds import is_number
from ordsmed.others.translate.converters import CPU
from ordsmed.others.translate.program import BOOLEANS, Call, Flag, Table, Values, idle, joint, refused

Scores = Mapping[str, Any]

LESS_IS_BETTER = ("loss", "mse")  # endings of the names of scores for which lower is better
SCHEDULES = (
    "linear",
    "cosine",
    "constant",
    "constant_with_warmup",
    "polynomial",
    "cosine_with_restarts",
    "cosine_with_min_lr",
    "inverse_sqrt",
    "warmup_stable_decay",
)
SPLIT = "`layout.shard=N` after the flags shards the model over N devices"
HUB = "nothing is uploaded; `huggingface-cli upload` can upload output_dir"
FITS = "the number of rows per batch is chosen by device memory"
LOGS = "a run logs to its folder: metrics.jsonl and log.txt"
SCORES = "ordsmed computes the scores itself, over all files together"
RATES = (
    *joint("schedule", "--lr_scheduler_type=linear --lr_scheduler_kwargs:str"),
    *joint("warmup", "--warmup_steps=0.0 --warmup_ratio=0.0"),
)
UPDATES = (
    Flag("--optim", "adamw_torch_fused", "optimizer.kind", joint=True),
    Flag("--adafactor", False, refused="leave it out, or `optimizer.kind=stableadamw` after the flags"),
    Flag("--optim_args", str, refused="give settings after the flags: `optimizer.epsilon=1e-6`"),
    Flag("--optim_target_modules", str, refused="leave it out: no optimizer here has targets", several=True),
    Flag("--weight_decay", 0.0, "optimizer.decay"),
    *joint("optimizer.betas", "--adam_beta1=0.9 --adam_beta2=0.999"),
    Flag("--adam_epsilon", 1e-8, "optimizer.epsilon", joint=True),
    Flag("--max_grad_norm", 1.0, "clip"),
    Flag("--average_tokens_across_devices", True, nothing="a loss is the mean over the predictions of all devices"),
    Flag("--label_smoothing_factor", 0.0, refused="leave it out: labels are not smoothed"),
    Flag("--neftune_noise_alpha", 0.0, refused="leave it out: no noise is added to embeddings"),
    Flag("--seed", 42, "seed"),
    Flag("--data_seed", int, refused="leave it out: --seed also seeds the data"),
    Flag("--full_determinism", False, "layout.deterministic"),
    Flag("--train_sampling_strategy", "random", refused="leave it out: the order is random, from --seed"),
    Flag("--group_by_length", False, nothing="short texts share a row, or padding is not computed"),
    Flag("--length_column_name", "length", nothing="lengths are counted"),
    Flag("--ignore_data_skip", False, nothing="a resumed run continues with the next rows"),
    Flag("--remove_unused_columns", True, nothing="other columns are not read"),
    Flag("--label_names", str, nothing="the task determines the labels", several=True),
)
ARITHMETIC = (
    *joint("layout.precision", "--bf16=False --fp16=False --tf32:bool"),
    *idle("16-bit arithmetic is PyTorch's", "--fp16_opt_level=O1 --fp16_backend=auto --half_precision_backend=auto"),
    *idle("validation uses the precision of training", "--bf16_full_eval=False --fp16_full_eval=False"),
    *joint("layout.recompute", "--gradient_checkpointing=False --activation_checkpointing=False"),
    *idle(
        "blocks are recomputed one at a time",
        "--gradient_checkpointing_kwargs:str --activation_checkpointing_kwargs:str",
    ),
    *joint(
        "layout.compile", "--torch_compile=False --torch_compile_backend:str --torch_compile_mode:str --torchdynamo:str"
    ),
    *idle("the setting layout.kernels chooses fused kernels", "--use_liger_kernel=False --liger_kernel_config:str"),
    Flag("--use_cache", False, nothing="training caches no keys and values"),
    Flag("--torch_empty_cache_steps", int, nothing="memory is freed when it runs short"),
)
REPORTS = (
    Flag("--logging_steps", 500.0, "log", joint=True),
    *idle("metrics.jsonl has a line for every step", "--logging_strategy=steps --logging_first_step=False"),
    *idle(
        LOGS,
        "--logging_dir:str --log_on_each_node=True --include_num_input_tokens_seen=no "
        "--include_tokens_per_second=False --run_name:str --project:str --trackio_space_id:str "
        "--trackio_bucket_id:str --trackio_static_space_id:str",
    ),
    Flag("--report_to", "none", nothing=LOGS, several=True),
    Flag("--debug", "", nothing=LOGS, several=True),
    Flag("--logging_nan_inf_filter", True, nothing="a loss that is NaN is reported as `trouble`"),
    *idle("progress is shown on a terminal", "--log_level=passive --log_level_replica=warning --disable_tqdm:bool"),
    Flag("--skip_memory_metrics", True, nothing="log.txt reports memory before the first step"),
    Flag("--push_to_hub", False, refused=f"leave it out: {HUB}"),
    *idle(
        HUB,
        "--hub_model_id:str --hub_strategy=every_save --hub_token:str --hub_private_repo:bool --hub_always_push=False "
        "--hub_revision:str --push_to_hub_model_id:str --push_to_hub_organization:str --push_to_hub_token:str",
    ),
)
VALIDATION = (
    Flag("--eval_delay", 0.0, refused="leave it out: early validations do not change the training"),
    Flag("--eval_on_start", False, refused="`ordsmed evaluate RUN --step 0` evaluates the initial weights"),
    Flag("--per_device_eval_batch_size", 8, nothing=FITS, also=("--per_gpu_eval_batch_size",)),
    Flag("--eval_accumulation_steps", int, nothing=FITS),
    *idle(
        SCORES,
        "--prediction_loss_only=False --eval_do_concat_batches=True --eval_use_gather_object=False "
        "--include_inputs_for_metrics=False --batch_eval_metrics=False",
    ),
    Flag("--include_for_metrics", str, nothing=SCORES, several=True),
    *joint("best", "--load_best_model_at_end=False --metric_for_best_model:str"),
    Flag("--greater_is_better", bool, nothing="known for every score"),
)
SAVING = (
    Flag("--save_strategy", "steps", "save", joint=True, one_of=("no", "steps", "epoch", "best")),
    Flag("--save_steps", 500.0, "save", joint=True),
    Flag("--save_total_limit", int, "keep"),
    Flag("--save_safetensors", True, nothing="weights are safetensors"),
    Flag("--save_on_each_node", False, nothing="all machines share the run's folder"),
    *idle(
        "a checkpoint has everything that a resumed run needs",
        "--save_only_model=False --enable_jit_checkpoint=False --restore_callback_states_from_checkpoint=False",
    ),
)
MACHINES = (
    Flag("--use_cpu", False, "layout.device", by=CPU, also=("--no_cuda",)),
    Flag("--use_mps_device", False, refused="leave it out: devices are CPUs and NVIDIA GPUs"),
    *idle(
        "the launcher's environment and the machine's devices decide",
        "--local_rank=-1 --ddp_backend:str --xpu_backend:str --tpu_num_cores:int",
    ),
    Flag("--ddp_timeout", 1800, "layout.patience", by=float, explicit=True),
    *idle(
        "data parallelism needs no such setting",
        "--ddp_find_unused_parameters:bool --ddp_bucket_cap_mb:int --ddp_broadcast_buffers:bool "
        "--ddp_static_graph:bool",
    ),
    Flag("--fsdp", str, "layout.shard", joint=True, several=True),
    *idle(
        "every block is sharded separately",
        "--fsdp_config:str --fsdp_min_num_params=0 --fsdp_transformer_layer_cls_to_wrap:str",
    ),
    Flag("--tp_size", 0, "layout.tensor", by=lambda count: count if count > 1 else None),
    *refused(SPLIT, "--deepspeed:str --parallelism_config:str --accelerator_config:str"),
    Flag("--sharded_ddp", "", refused=SPLIT, several=True),
    Flag("--split_batches", bool, refused="leave it out: the batch size is that of one device"),
    Flag("--dataloader_num_workers", 0, "layout.workers", explicit=True),
    Flag("--dataloader_drop_last", False, nothing="every step is full: rows continue across the end of the data"),
    *idle(
        "the data workers need no such setting",
        "--dispatch_batches:bool --dataloader_pin_memory=True --dataloader_persistent_workers=False "
        "--dataloader_prefetch_factor:int --dataloader_multiprocessing_context:str --dataloader_in_order=True",
    ),
    *idle(
        "obsolete: of a former version of transformers",
        "--jit_mode_eval=False --use_ipex=False --tpu_metrics_debug=False --past_index=-1 "
        "--use_legacy_prediction_loop=False --mp_parameters= --ray_scope=last",
    ),
)


def arguments(phase: str, checks: str) -> tuple[Flag, ...]:
    """Return the flags of TrainingArguments.

    `phase` is the prefix of settings of a phase, and `checks` the setting for the number of validations.
    """
    return (
        Flag("--output_dir", "trainer_output", "out"),
        Flag("--overwrite_output_dir", False, "--anew", joint=True),
        Flag("--do_train", False, "whether to train", joint=True),
        Flag("--do_eval", False, "eval_results.json", joint=True),
        Flag("--do_predict", False, "predictions", joint=True),
        Flag("--resume_from_checkpoint", str, "out", joint=True),
        Flag("--per_device_train_batch_size", 8, f"{phase}batch", joint=True, also=("--per_gpu_train_batch_size",)),
        Flag("--gradient_accumulation_steps", 1, f"{phase}batch", joint=True),
        Flag("--auto_find_batch_size", False, "layout.micro", joint=True),
        Flag("--num_train_epochs", 3.0, f"{phase}epochs", joint=True),
        Flag("--max_steps", -1, f"{phase}steps", joint=True),
        Flag("--learning_rate", 5e-5, f"{phase}learning_rate"),
        *(replace(flag, goes=f"{phase}{flag.goes}") for flag in RATES),
        *UPDATES,
        *ARITHMETIC,
        *REPORTS,
        Flag(
            "--eval_strategy",
            "no",
            checks,
            joint=True,
            one_of=("no", "steps", "epoch"),
            also=("--evaluation_strategy",),
            implies="--do_eval",
        ),
        Flag("--eval_steps", float, checks, joint=True),
        *VALIDATION,
        *SAVING,
        *MACHINES,
    )


def put_arguments(values: Values, call: Call, phase: str) -> None:
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
    values.refuse_both("--bf16", "--fp16")
    call.put(
        "layout.precision", "bf16" if values.bf16 else "fp16" if values.fp16 else "tf32" if values.tf32 else "fp32"
    )
    call.put("layout.recompute", values.gradient_checkpointing or values.activation_checkpointing)
    backend, mode = values.torch_compile_backend or values.torchdynamo, values.torch_compile_mode
    if backend not in (None, "inductor"):
        raise UsageError("--torch_compile_backend", f"found {backend}", "inductor", "leave it out")
    if mode not in (None, "default"):
        raise UsageError("--torch_compile_mode", f"found {mode}", "default", "leave it out")
    call.put("layout.compile", bool(values.torch_compile or backend or mode))
    if (logged := interval("--logging_steps", values.logging_steps, values)) >= 1:
        call.put("log", logged)
    _put_sharding(values, call)
    if values.overwrite_output_dir:
        call.words.append("--anew")
    _check_resumed(values)


def interval(flag: str, every: float, values: Values) -> float:
    """Return a number of steps, or a share below 1 of all steps if their number is not known yet."""
    if every >= 1:
        if every % 1:
            raise UsageError(flag, f"found {every:g}", "a number of steps, or a share of all steps below 1")
        return int(every)
    return math.ceil(every * values.max_steps) if every > 0 and values.max_steps > 0 else max(every, 0)


def share_of_an_epoch(flag: str, values: Values) -> float:
    """Return the length of an epoch as a share of all steps; 0 for a single epoch, which means only at the end."""
    if values.max_steps > 0:
        raise UsageError(flag, "found epoch with --max_steps", "no or steps", f"`{flag} steps`")
    return 1 / values.num_train_epochs if values.num_train_epochs > 1 else 0


def _warmup(values: Values) -> float:
    """Return the warmup as steps or as a share of all steps; 0 for a constant learning rate."""
    return 0.0 if values.lr_scheduler_type == "constant" else float(values.warmup_steps or values.warmup_ratio)


def _schedule(values: Values) -> dict[str, Any]:
    kind, flag = values.lr_scheduler_type, "--lr_scheduler_type"
    if kind not in SCHEDULES:
        raise UsageError(flag, f"found {kind}", f"one of {', '.join(SCHEDULES)}", nearest(kind, SCHEDULES))
    kwargs, schedule, rate = _scheduler_kwargs(values), dict[str, Any](), values.learning_rate
    if kind in ("linear", "constant", "constant_with_warmup"):
        schedule = {"kind": kind.partition("_")[0]}
    elif kind == "cosine":
        schedule = {"kind": kind, **_cycles(kwargs, 0.5)}
    elif kind == "cosine_with_restarts":
        schedule = {"kind": "restarts", **_cycles(kwargs, 1)}
    elif kind == "inverse_sqrt":
        schedule = {"kind": kind}
        if kwargs.get("timescale") in (None, int(_warmup(values)) or ROOT_UNIT):
            kwargs.pop("timescale", None)
    elif kind == "polynomial":
        schedule = {"kind": kind, "power": float(kwargs.pop("power", 1.0)), "end": kwargs.pop("lr_end", 1e-7) / rate}
    elif kind == "cosine_with_min_lr" and len({"min_lr", "min_lr_rate"} & set(kwargs)) == 1:
        end, share = kwargs.pop("min_lr", 0.0), kwargs.pop("min_lr_rate", 0.0)
        schedule = {"kind": "cosine", "end": end / rate or share, **_cycles(kwargs, 0.5)}
    elif kind == "warmup_stable_decay" and kwargs.get("num_decay_steps") and values.max_steps > 0:
        schedule = _stable_schedule(kwargs, values.max_steps - warmup_steps(_warmup(values), values.max_steps))
    if not schedule or kwargs:
        problem = f"found {kind} with {values.lr_scheduler_kwargs or 'no kwargs'}"
        remedy = f"leave {', '.join(kwargs) or 'it'} out, or set `phase.schedule` after the flags"
        raise UsageError(flag, problem, "a schedule that ordsmed has", remedy)
    return schedule


def _scheduler_kwargs(values: Values) -> dict[str, Any]:
    """Return the table of --lr_scheduler_kwargs: numbers, and names for decay_type and warmup_type."""
    text = values.lr_scheduler_kwargs or "{}"
    try:
        kwargs = json.loads(text)
    except json.JSONDecodeError:
        kwargs = None
    if not isinstance(kwargs, dict) or not all(_is_scheduler_value(*item) for item in kwargs.items()):
        raise UsageError("--lr_scheduler_kwargs", f"found {text}", 'JSON of numbers: {"num_cycles": 1}')
    return {name: value for name, value in kwargs.items() if value is not None}


def _is_scheduler_value(name: str, value: object) -> bool:
    if name in ("decay_type", "warmup_type"):
        return isinstance(value, str)
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value))


def _cycles(kwargs: dict[str, Any], default: float) -> dict[str, float]:
    """Remove num_cycles from `kwargs` and return it as a setting, unless it is the default."""
    cycles = kwargs.pop("num_cycles", default)
    if not cycles > 0:
        raise UsageError("--lr_scheduler_kwargs", f"found num_cycles {cycles:g}", "more than 0")
    return {} if cycles == default else {"cycles": float(cycles)}


def _stable_schedule(kwargs: dict[str, Any], level: int) -> dict[str, Any]:
    """Return the schedule of warmup_stable_decay over the `level` steps after warmup; {} if ordsmed has none."""
    shapes, decay = {"linear": "linear", "1-sqrt": "sqrt", "cosine": "cosine"}, kwargs["num_decay_steps"]
    stable = kwargs.get("num_stable_steps", level - decay)
    if kwargs.get("decay_type", "cosine") not in shapes or stable + decay != level or stable < 0:
        return {}
    kwargs.pop("num_stable_steps", None)
    shape = shapes[kwargs.pop("decay_type", "cosine")]
    if kwargs.get("warmup_type") == "linear":
        kwargs.pop("warmup_type")
    cycles = _cycles(kwargs, 0.5) if shape == "cosine" else {}
    if not cycles:
        kwargs.pop("num_cycles", None)  # transformers uses it only for cosine
    end = kwargs.pop("min_lr_ratio", 0.0)
    return {"kind": "wsd", "decay": kwargs.pop("num_decay_steps") / level, "shape": shape, "end": end, **cycles}


def _put_sharding(values: Values, call: Call) -> None:
    options = set(" ".join(values.fsdp or []).lower().split()) - {"auto_wrap", "true", "false", "no_shard"}
    if not options and {"true", "True"} & set(values.fsdp or []):
        options = {"full_shard"}
    if not options:
        return
    if unknown := sorted(options - {"full_shard", "shard_grad_op"}):
        remedy = (
            "`layout.shard=N layout.replicate=M` after the flags"
            if unknown[0].startswith("hybrid_")
            else "leave it out"
        )
        raise UsageError("--fsdp", f"found {unknown[0]}", "full_shard or shard_grad_op", remedy)
    call.put("layout.shard", values.place.world)
    call.put("layout.reshard", "full_shard" in options)


def _check_resumed(values: Values) -> None:
    """Raise an error unless --resume_from_checkpoint is the last checkpoint in output_dir, where runs resume anyway."""
    checkpoint = values.resume_from_checkpoint
    if checkpoint is None or checkpoint.lower() in BOOLEANS:
        return
    path, out = Path(checkpoint), Path(values.output_dir)
    if out not in (path, path.parent):
        remedy = f"`--output_dir {path.parent}` resumes that run, `--model_name_or_path` starts from its weights"
        wanted = f"a checkpoint in {values.output_dir}"
        raise UsageError("--resume_from_checkpoint", f"found {checkpoint}", wanted, remedy)
    digits = path.name.rpartition("-")[2]
    newest = max(snapshots.steps(out / "checkpoints"), default=0)
    if digits.isdigit() and newest > int(digits) and path != out:
        remedy = f"leave it out, or delete the newer ones in {values.output_dir}/checkpoints"
        raise UsageError("--resume_from_checkpoint", f"found {checkpoint}", f"the last one, of step {newest}", remedy)


def add_export(out: Path) -> None:
    """Export a run's network and tokenizer for transformers into the run's folder."""
    from ordsmed.weights.export import export

    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as parent:
        for path in sorted(export(out, Path(parent) / out.name).iterdir()):
            if path.name != "ordsmed.json" and path.is_file():
                path.replace(out / path.name)


def metrics(out: Path) -> tuple[list[Table], list[Table]]:
    """Return a run's lines of metrics for steps and for validations, with losses in the original's unit."""
    unit = _loss_unit(out)
    lines = [
        {key: value * unit if key in ("loss", "validation") else value for key, value in line.items()}
        for line in files.read_lines(out / "metrics.jsonl")
    ]
    return [line for line in lines if "loss" in line], [line for line in lines if "loss" not in line]


def _loss_unit(out: Path) -> float:
    """Return the factor from a run's loss to the original's, which does not scale regression targets to 0..1."""
    path = out / "recipe.toml"
    task = settings.read(path).get("task", {}) if path.is_file() else {}
    low, high = task["scale"] if task.get("number") else (0.0, 1.0)
    return float((high - low) ** 2)


def train_results(steps: Sequence[Mapping[str, Any]], epochs: float | None) -> dict[str, Any]:
    seconds, rows = sum(line["seconds"] for line in steps), sum(line["rows"] for line in steps)
    return {
        **({} if epochs is None else {"epoch": epochs}),
        "train_loss": sum(line["loss"] for line in steps) / max(len(steps), 1),
        "train_runtime": round(seconds, 4),
        "train_samples_per_second": round(rows / max(seconds, 1e-9), 3),
        "train_steps_per_second": round(len(steps) / max(seconds, 1e-9), 3),
    }


def write_results(out: Path, scores: Mapping[str, Mapping[str, Any]]) -> None:
    for name, table in scores.items():
        files.write_json(out / f"{name}_results.json", table)
    merged = {key: value for table in scores.values() for key, value in table.items()}
    files.write_json(out / "all_results.json", merged)


def by_name(scores: Scores) -> dict[str, Any]:
    return {f"eval_{name}": value for name, value in scores.items()}


def write_state(
    out: Path, values: Values, best: str | None = None, rename: Callable[[Scores], Scores] = by_name
) -> None:
    """Write trainer_state.json: the steps that the original would log, the validations and the best one.

    `best` is the score that is compared without --metric_for_best_model. `rename` gives scores the original's names.
    """
    steps, checks = metrics(out)
    last = steps[-1]["step"] if steps else 0
    every = values.logging_steps if values.logging_steps >= 1 else max(1, math.ceil(values.logging_steps * last))
    history = [
        {"step": line["step"], "loss": line["loss"], "grad_norm": line.get("norm"), "learning_rate": line["rate"]}
        for line in steps
        if line["step"] % every == 0 or line["step"] == last
    ]
    for check in checks:
        scores = rename({name: value for name, value in check.items() if name not in ("step", "phase", "validation")})
        loss = {"eval_loss": check["validation"]} if "validation" in check else {}
        history.append({"step": check["step"], **scores, **loss})
    metric = values.metric_for_best_model or best
    files.write_json(
        out / "trainer_state.json",
        {
            "global_step": last,
            "max_steps": last,
            "num_train_epochs": values.num_train_epochs,
            "train_batch_size": values.per_device_train_batch_size,
            "logging_steps": values.logging_steps,
            "save_steps": values.save_steps,
            "log_history": sorted(history, key=lambda line: line["step"]),
            **_best(out, history, f"eval_{metric.removeprefix('eval_')}" if metric else ""),
            "is_world_process_zero": True,
        },
    )


def _best(out: Path, history: Sequence[Mapping[str, Any]], metric: str) -> dict[str, Any]:
    """Return the best validation (of equal ones the first), and its checkpoint if it still exists."""
    sign = 1 if metric.endswith(LESS_IS_BETTER) else -1
    checks = [line for line in history if is_number(line.get(metric))]
    best = min(checks, key=lambda line: (sign * line[metric], line["step"]), default={})
    step = best.get("step")
    checkpoint = snapshots.path_of(out / "checkpoints", step or 0)
    return {
        "best_metric": best.get(metric),
        "best_global_step": step,
        "best_model_checkpoint": str(checkpoint) if step and checkpoint.exists() else None,
    }
