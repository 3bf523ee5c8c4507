"""NVIDIA's ELECTRA for TensorFlow 2: pretraining in two phases, SQuAD with a joint head, its scripts and machines.

Defaults are those of its code. Where its README differs, the README counts and a note says so.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ordsmed.base import files, run, snapshots
from ordsmed.base.arguments import UsageError
from ordsmed.base.machine.devices import card_of, has_tf32
from ordsmed.base.say import many, say
from ordsmed.base.screen import command
from ordsmed.data.tokenizer_training import is_tokenizer, read_tokenizer
from ordsmed.others.translate import dllogger, perform
from ordsmed.others.translate.converters import CPU, FP16, JOINT_HEAD, SQUAD_VERSION, listed, positive
from ordsmed.others.translate.dllogger import Logged, Window
from ordsmed.others.translate.lengths import check_length
from ordsmed.others.translate.program import Call, Flag, Program, Values, find, idle, joint
from ordsmed.others.translate.standing import check_tokenizer, task_arguments

WIDTHS = {"small": 256, "base": 768, "large": 1024}
HEAD_WIDTH = 64
GENERATOR_SHARE = 0.3333333  # generator width / discriminator width in the original's scripts
NONE = (None, "", "None")
LOGS = "every run writes metrics.jsonl and log.txt to its folder"

PRETRAINING = (
    Flag("--model_name", str, "out", joint=True, required=True),
    Flag("--model_size", "base", "model.size", one_of=tuple(WIDTHS)),
    Flag("--pretrain_tfrecords", str, "encode: records", by=listed, required=True),
    Flag("--vocab_file", "vocab/vocab.txt", "encode: tokenizer"),
    Flag("--results_dir", "results", "out", joint=True),
    Flag("--max_seq_length", 128, "phase.length"),
    Flag("--mask_prob", 0.15, "objective.mask_prob"),
    Flag("--disc_weight", 50.0, "objective.detect_weight"),
    Flag("--gen_weight", 1.0, "objective.guess_weight"),
    Flag("--generator_hidden_size", 0.25, "objective.generator", joint=True),
    *joint("phase.batch", "--train_batch_size=128 --gradient_accumulation_steps=1"),
    Flag("--learning_rate", 5e-4, "phase.learning_rate"),
    Flag("--num_train_steps", 1_000_000, "phase.steps"),
    Flag("--num_warmup_steps", 10_000, "phase.warmup"),
    *joint("phase.schedule", "--lr_decay_power=0.5 --end_lr=0.0"),
    Flag("--optimizer", "adam", "optimizer.kind", joint=True, one_of=("adam", "lamb")),
    Flag("--skip_adaptive", False, "optimizer.adapt", joint=True),
    *joint("optimizer.betas", "--opt_beta_1=0.878 --opt_beta_2=0.974"),
    Flag("--weight_decay_rate", 0.01, "optimizer.decay"),
    Flag("--seed", 42, "seed"),
    Flag("--amp", False, "layout.precision", by=FP16),
    Flag("--xla", False, "layout.compile"),
    Flag("--fp16_compression", False, "layout.reduce", by={True: "fp16"}, needs="--amp"),
    Flag("--log_freq", 10, "log"),
    Flag("--save_checkpoints_steps", 1000, "save"),
    Flag("--keep_checkpoint_max", 5, "keep"),
    Flag("--restore_checkpoint", str, "init", joint=True, alone="latest"),  # as in the original's run.sub
    *joint("init", "--phase2=False --load_weights=False --weights_dir:str"),
    Flag("--steps_this_run", -1, "ORDSMED_STOP_AT", joint=True),
    Flag("--skip_checkpoint", False, refused="leave it out: a run always keeps its last checkpoint"),
    Flag("--log_dir", str, "folder of dllogger.log", joint=True),
    Flag("--json-summary", str, "file of DLLogger's lines", joint=True),
)


def pretraining(values: Values, call: Call) -> None:
    """Pretrain with replaced-token detection.

    Each phase is a separate run; the second starts from the weights of the first.
    """
    call.put("objective.generator", {"width": generator_width(values.model_size, values.generator_hidden_size)})
    remedy = "create_tfrecord_files with that --max_seq_length"
    records = listed(values.pretrain_tfrecords)
    call.before.append(lambda: check_length(records, values.max_seq_length, "--max_seq_length", remedy))
    _put_steps(values, call)
    _put_folders(values, call)
    _put_tf32(values, call)
    if values.steps_this_run != -1:
        if values.steps_this_run < 1:
            raise UsageError("--steps_this_run", f"found {values.steps_this_run}", "a number of steps, or -1: all")
        perform.stop_at(_program(call), values, call, lambda saved: saved + values.steps_this_run)
    call.tells = _log_lines(values.log_freq)
    call.after.append(lambda: _write_pretraining_files(values, _run_of(values, call)))
    values.read_later("log_dir", "json_summary")


def _put_tf32(values: Values, call: Call) -> None:
    """Without --amp, use TF32 if the GPU supports it, because the original's container does."""
    if values.amp or any(word.startswith("layout.precision=") for word in values.overrides):
        return
    import torch

    on_cpu = values.of.get("no_cuda") or any(re.fullmatch('layout.device="?cpu"?', word) for word in values.overrides)
    card = None if on_cpu else card_of(torch.device("cuda"))
    if card and has_tf32(card.capability):
        call.put("layout.precision", "tf32")
        call.notes.append(
            f"without --amp: computes in TF32 on {card.name}, as in the original's container; "
            "`layout.precision=fp32` after the flags computes in fp32"
        )
    else:
        reason = f"{card.name} has no TF32" if card else "no GPU is used"
        call.notes.append(
            f"without --amp: computes in fp32, because {reason}; the original uses TF32 on an A100 or newer"
        )


def generator_width(size: str, share: float) -> int:
    """Return the generator's width, rounded up to a multiple of 64.

    `share` is generator width / discriminator width; 1/3 gives 256 for base (768) and 384 for large (1024).
    """
    width = -round(WIDTHS[size] * share) // HEAD_WIDTH * -HEAD_WIDTH
    if width < HEAD_WIDTH:
        wanted = f"a share of {WIDTHS[size]} that gives a width of 1 or more, such as 0.25"
        raise UsageError("--generator_hidden_size", f"found {share:g}", wanted)
    return width


def _program(call: Call) -> Program:
    return find("nvidia", "run_pretraining.py" if call.verb == "pretrain" else "run_tf_squad.py")


def _run_of(values: Values, call: Call) -> Path | None:
    """Return the folder of the finished run; None if it has no metrics, because it consists of several trials."""
    folder = perform.run_of(_program(call), values, call)
    if (folder / dllogger.METRICS).exists():
        return folder
    say(f"{folder}: no {dllogger.METRICS}, so the files that the original's scripts read are not written")
    return None


def _write_pretraining_files(values: Values, folder: Path | None) -> None:
    """Write dllogger.log, and link the checkpoints as ckpt-10000 (phase 1) and ckpt-p2-930 (phase 2)."""
    if folder is None:
        return
    log = Path(
        values.json_summary
        or Path(values.log_dir or Path(values.results_dir) / "models" / values.model_name / "logs") / "dllogger.log"
    )
    dllogger.write(log, [*_logged_pretraining(values, folder)], (folder / dllogger.METRICS).stat().st_mtime)
    stem = "ckpt-p2" if values.phase2 else "ckpt"
    names = Path(values.results_dir) / values.model_name / "checkpoints"
    for name in names.glob(f"{stem}-[0-9]*"):
        if name.is_symlink() and not name.exists():
            name.unlink()  # its checkpoint was deleted
    for step in snapshots.steps(folder / "checkpoints"):
        path = snapshots.path_of(folder / "checkpoints", step)
        _link(names / f"{stem}-{step}", path)
        _link(names / f"{stem}-{step}.index", path / "state.json")  # the original's scripts look for *.index


def _logged_pretraining(values: Values, folder: Path) -> Iterator[Logged]:
    yield from dllogger.parameters(values.of)
    for window in dllogger.windows(dllogger.steps(folder), values.log_freq):
        data = _means(window)
        yield Logged([window.lines[-1]["step"]], data, window.seconds)
    last = {
        "training_sequences_per_second": data["train_perf"],
        "final_loss": data["total_loss"],
        "e2e_train_time": window.seconds,
    }
    yield Logged([], {**data, **last}, window.seconds)


def _means(window: Window) -> dict[str, float]:
    return {
        "train_perf": window.rate,
        "total_loss": window.mean("loss"),
        "masked_lm_loss": window.mean("guess"),
        "disc_loss": window.mean("detect"),
    }


def _log_lines(every: int) -> Callable[[dllogger.Line], list[str]]:
    """Return a function that formats metrics as DLLogger's lines, as means over `every` steps."""
    waiting: list[dllogger.Line] = []

    def lines_of(line: dllogger.Line) -> list[str]:
        if "seconds" not in line:
            return []
        waiting.append(line)
        if line["step"] % every:
            return []
        data = _means(Window(waiting))
        waiting.clear()
        return [dllogger.console_line(f"Training Iteration: {line['step']} ", data, time.time())]

    return lines_of


def _link(name: Path, to: Path) -> None:
    """Link `name`, which the original's scripts read, to `to`. Keep a file or folder that exists there."""
    if name.exists() and not name.is_symlink():
        say(f"{name}: exists and is not replaced by a link to {to}")
        return
    name.parent.mkdir(parents=True, exist_ok=True)
    name.unlink(missing_ok=True)
    name.symlink_to(os.path.relpath(to, name.parent))


def _model_of(path: str) -> tuple[str, list[str]]:
    """Return the run's folder for a path of the original, and `--step N` if it is a checkpoint such as ckpt-p2-930."""
    from ordsmed.base.binary import bundle

    target = Path(path)
    if target.is_symlink():
        target = Path(os.path.relpath(target.resolve())) if not target.is_absolute() else target.resolve()
    digits = target.name.rpartition("-")[2]
    if target.parent.name != "checkpoints" or not digits.isdigit() or bundle.find(target):
        return str(target), []
    folder = target.parent.parent
    if target.name.startswith("ckpt-p2"):
        folder = folder.with_name(f"{folder.name}-phase2")
    return str(folder), ["--step", str(int(digits))]


def _put_steps(values: Values, call: Call) -> None:
    """Set batch, schedule and optimizer. The original's batch is per GPU and accumulation step, not the total."""
    rows, passes, world = values.train_batch_size, values.gradient_accumulation_steps, values.place.world
    call.notes.append(f"a step has {rows} x {passes} x {world} = {many(rows * passes * world, 'row')}")
    call.put("phase.batch", rows * passes * world)
    call.put("layout.micro", rows)
    if values.num_warmup_steps > values.num_train_steps:
        wanted = f"at most the {values.num_train_steps:,} of --num_train_steps"
        raise UsageError("--num_warmup_steps", f"found {values.num_warmup_steps:,}", wanted)
    end = values.end_lr / values.learning_rate
    call.put("phase.schedule", {"kind": "polynomial", "power": values.lr_decay_power, **({"end": end} if end else {})})
    if values.optimizer == "lamb":
        call.put("optimizer.kind", "lamb")
        call.put("optimizer.adapt", "matrices" if values.skip_adaptive else "all")
    else:
        call.set("optimizer.kind=adamw optimizer.variant=keras")
        call.note_idle(values, "with adam", "--skip_adaptive")
    call.put("optimizer.betas", [values.opt_beta_1, values.opt_beta_2])


def _put_folders(values: Values, call: Call) -> None:
    """Set the output folder and the initial weights: a run resumes in its folder, phase 2 starts from phase 1."""
    first = Path(values.results_dir) / "models" / values.model_name
    restore = "" if values.restore_checkpoint == "false" else values.restore_checkpoint or ""
    if values.phase2 and not restore:
        raise UsageError("--phase2", "found without --restore_checkpoint", "`--restore_checkpoint latest`, or a path")
    if values.load_weights:
        if restore:
            raise UsageError("--load_weights", "found with --restore_checkpoint", "one of the two")
        call.put("init", values.weights_dir or str(first / "weights"))
    out = f"{first}-phase2" if values.phase2 else str(first)
    call.put("out", out)
    init = str(first) if restore == "latest" else _last_checkpoint(restore) if restore else ""
    if init and Path(init).resolve() != Path(out).resolve():  # a run resumes from its folder anyway
        call.put("init", init)
    elif init and values.anew:
        raise UsageError("--anew", "found with --restore_checkpoint of the same run", "one of the two")


def _last_checkpoint(path: str) -> str:
    """Return the run whose last checkpoint is at `path`, or another model. Raise an error for an earlier checkpoint."""
    folder, step = _model_of(path)
    steps = snapshots.steps(Path(folder) / "checkpoints")
    if step and steps and int(step[1]) != steps[-1]:
        remedy = f"`{command('export', folder, 'FOLDER', *step)}`, and give FOLDER"
        problem = f"found {path}; a run resumes from the last checkpoint of {folder}, which is of step {steps[-1]}"
        raise UsageError("--restore_checkpoint", problem, "", remedy)
    return folder


SQUAD = (
    *joint("init", "--electra_model=google/electra-base-discriminator --init_checkpoint:str"),
    *joint("task.train", "--data_dir:str --train_file:str"),
    Flag("--predict_file", str, "task.dev", joint=True),
    Flag("--output_dir", str, "out", joint=True),
    Flag("--do_train", False, "finetune", joint=True),
    Flag("--do_predict", False, "predict", joint=True),
    Flag("--do_eval", False, "predict --scores", joint=True),
    Flag("--evaluate_during_training", False, nothing="the dev file is evaluated at each epoch's end"),
    Flag("--max_seq_length", 384, "task.length"),
    Flag("--doc_stride", 128, "task.stride"),
    Flag("--max_query_length", 64, "task.longest_question"),
    Flag("--n_best_size", 20, "task.n_best"),
    Flag("--max_answer_length", 30, "task.longest_answer"),
    Flag("--joint_head", True, "task.head", by=JOINT_HEAD, valued=True),
    Flag("--beam_size", 4, "task.beam"),
    Flag("--do_lower_case", False, "task.lowercase"),
    Flag("--version_2_with_negative", False, "task.version", by=SQUAD_VERSION),
    Flag("--null_score_diff_threshold", 0.0, "task.threshold"),
    Flag("--train_batch_size", 32, "batch", joint=True),
    Flag("--gradient_accumulation_steps", 1, nothing="the original never reads it: each batch is a step"),
    Flag("--learning_rate", 1e-4, "learning_rate"),
    Flag("--num_train_epochs", 3.0, "epochs"),
    Flag("--max_steps", -1, "steps", by=positive),
    Flag("--warmup_proportion", 0.1, "warmup"),
    Flag("--weight_decay_rate", 0.01, "optimizer.decay"),
    Flag("--layerwise_lr_decay", 0.8, "layer_decay"),
    Flag("--seed", 42, "seed"),
    Flag("--amp", False, "layout.precision", by=FP16),
    Flag("--xla", False, "layout.compile"),
    Flag("--fp16_all_reduce", False, nothing="the original never reads it: gradients are reduced in fp16 with --amp"),
    Flag("--log_freq", 50, "log"),
    Flag("--no_cuda", False, "layout.device", by=CPU),
    Flag("--vocab_file", str, "tokenizer", joint=True),
    *joint("features", "--cache_dir:str --skip_cache=False"),
    Flag("--json-summary", "results/dllogger.json", "file of DLLogger's lines", joint=True),
    *joint("checkpoints/", "--skip_checkpoint=False --ci=False"),
    Flag("--predict_batch_size", 8, nothing="the number of windows per batch is chosen by device memory"),
    Flag("--verbose_logging", False, nothing=LOGS),
    Flag("--eval_script", str, nothing="ordsmed computes the official scores itself"),
    Flag("--disable-progress-bar", False, nothing="the progress bar is shown only on a terminal"),
    *idle("read from the launcher's environment variables", "--local_rank:int --use_env=False"),
)


def squad(values: Values, call: Call) -> None:
    """Fine-tune, predict, or both, as the --do_ flags say."""
    if not values.joint_head:
        call.put("task.search", "tops")
    version = SQUAD_VERSION[values.version_2_with_negative]
    if not values.do_train:
        _put_prediction(values, call, version)
        return
    values.require("--output_dir")
    if values.says("--joint_head") and not values.joint_head:  # the original takes any word for true
        call.notes.append("--joint_head False: the head is independent; the original reads the word False as true")
    call.put("init", values.electra_model)
    if values.init_checkpoint not in NONE:
        call.notes.append(
            "--init_checkpoint: used only without --do_train, as in the original; "
            "a training starts from --electra_model"
        )
    call.put("out", str(Path(values.output_dir) / f"squad_v{version}"))
    if values.joint_head:
        call.put("task.form", "nvidia")
    call.put("task.train", _file(values, "train", values.train_file, version))
    if values.do_predict or values.do_eval:
        call.put("task.dev", _file(values, "dev", values.predict_file, version))
    call.put("batch", values.train_batch_size * values.place.world)
    call.put("layout.micro", values.train_batch_size)
    call.set("epoch_steps=down course=epochs optimizer.kind=adamw optimizer.variant=keras optimizer.epsilon=1e-6")
    _put_tf32(values, call)
    if values.amp:
        call.put("layout.reduce", "fp16")
    if values.vocab_file:
        listing = {"kind": "wordpiece", "file": values.vocab_file, "lowercase": values.do_lower_case}
        call.put("tokenizer: tokenizer", listing)
        call.put("tokenizer", "<tokenizer>")
    if values.skip_cache or values.cache_dir:
        call.put("features", "" if values.skip_cache else values.cache_dir)
    call.after.append(lambda: _write_squad_files(values, _run_of(values, call)))
    values.read_later("json_summary", "skip_checkpoint", "ci")


def _write_squad_files(values: Values, folder: Path | None) -> None:
    """Write predictions.json, DLLogger's lines and links to checkpoints at the original's paths."""
    if folder is None:
        return
    _copy_predictions(folder / "predictions", Path(values.output_dir))
    lines = dllogger.steps(folder)
    epochs = 1 if values.max_steps > 0 else max(1, int(values.num_train_epochs))
    ends = [round(lines[-1]["step"] * number / epochs) for number in range(1, epochs + 1)]
    logged = [*dllogger.parameters({"SEED": values.seed}), *_logged_squad(values, lines, ends)]
    if values.do_eval and (scores := _scores(folder / "scores.json")):
        logged.append(Logged([], scores, logged[-1].seconds))
    dllogger.write(Path(values.json_summary), logged, (folder / dllogger.METRICS).stat().st_mtime)
    if values.skip_checkpoint:
        return
    path = Path(values.output_dir if values.ci else "checkpoints")
    for step in snapshots.steps(folder / "checkpoints"):
        if step in ends:
            name = f"electra_base_qa_v2_{values.version_2_with_negative}_epoch_{ends.index(step) + 1}_ckpt"
            _link(path / name, snapshots.path_of(folder / "checkpoints", step))


def _logged_squad(values: Values, lines: Sequence[dllogger.Line], ends: Sequence[int]) -> Iterator[Logged]:
    for epoch, (first, end) in enumerate(itertools.pairwise([0, *ends])):
        if not (steps := [line for line in lines if first < line["step"] <= end]):
            continue  # fewer steps than epochs
        for number in range(0, len(steps), values.log_freq):
            window = Window(steps[: number + 1])
            data = {"step_loss": steps[number]["loss"], "train_perf": window.rate}
            yield Logged([epoch, number], data, window.seconds)
        whole = Window(steps)
        rates = {"e2e_train_time": whole.seconds, "training_sequences_per_second": whole.rate}
        yield Logged([], {**rates, "final_loss": whole.mean("loss")}, whole.seconds)


def _scores(path: Path) -> dict[str, float]:
    scores = files.read_table(path) if path.exists() else {}
    exact = scores.get("exact_match", scores.get("exact"))
    return {} if exact is None else {"exact_match": exact, "F1": scores["f1"]}


def _copy_predictions(folder: Path, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for path in sorted(folder.glob("*.json")):
        shutil.copyfile(path, out / path.name)


def _file(values: Values, split: str, name: str | None, version: str) -> str:
    if name:
        return str(Path(values.data_dir or "") / name)
    if not values.data_dir:
        flag = "train_file" if split == "train" else "predict_file"
        raise UsageError("run_tf_squad.py", f"no --data_dir and no --{flag}", "one of the two")
    return str(Path(values.data_dir) / f"{split}-v{version}.json")


def _put_prediction(values: Values, call: Call, version: str) -> None:
    if not (values.do_predict or values.do_eval):
        raise UsageError("run_tf_squad.py", "no --do_train, --do_eval or --do_predict", "at least one of them")
    if values.init_checkpoint in NONE:
        raise UsageError("run_tf_squad.py", "no --init_checkpoint", "the fine-tuned model that predicts")
    task = call.recipes.pop("finetune")["task"]
    call.verb, call.devices = "predict", 0  # the original predicts in its first process
    folder, step = _model_of(values.init_checkpoint)
    out = Path(values.output_dir or folder)
    call.words = [folder, _file(values, "dev", values.predict_file, version), str(out / "predictions"), "--anew", *step]
    call.notes.append(f"{out / 'predictions.json'}: the predictions")
    start = time.time()
    call.after.append(lambda: _write_prediction_files(values, out, start))
    values.read_later("json_summary")
    call.note_idle(values, "without --do_train, because prediction uses no random numbers", "--seed")
    call.words += task_arguments(task, *(["head"] if values.says("--joint_head") else []))
    check_tokenizer(call, folder, values.vocab_file, values.do_lower_case if values.vocab_file else None)
    call.words += ["--scores"] if values.do_eval else []
    call.words += ["--device", "cpu"] if values.no_cuda else []
    call.words += ["--precision", "fp16"] if values.amp else []


def _write_prediction_files(values: Values, out: Path, start: float) -> None:
    _copy_predictions(out / "predictions", out)
    end = time.time()
    logged = [Logged([], {"e2e_inference_time": end - start}, end - start)]
    if values.do_eval and (scores := _scores(out / "predictions" / "scores.json")):
        logged.append(Logged([], scores, end - start))
    dllogger.write(Path(values.json_summary), [*dllogger.parameters({"SEED": values.seed}), *logged], end)


INFERENCE = (
    Flag("--electra_model", "google/electra-base-discriminator", nothing="read from the fine-tuned model"),
    Flag("--init_checkpoint", str, "folder of the model", joint=True),
    Flag("--question", str, "the question", joint=True),
    Flag("--context", str, "the context", joint=True),
    Flag("--joint_head", True, "task.head", by=JOINT_HEAD, valued=True),
    Flag("--beam_size", 4, "task.beam"),
    Flag("--n_best_size", 20, "task.n_best"),
    Flag("--max_answer_length", 30, "task.longest_answer"),
    Flag("--version_2_with_negative", False, "task.version", by=SQUAD_VERSION),
    Flag("--null_score_diff_threshold", 0.0, "task.threshold"),
    Flag("--do_lower_case", False, nothing="read from the model's tokenizer"),
    Flag("--max_seq_length", int, "task.length"),
    Flag("--doc_stride", int, "task.stride"),
    Flag("--max_query_length", int, "task.longest_question"),
)


def inference(values: Values, call: Call) -> None:
    if values.init_checkpoint in NONE:
        raise UsageError("run_inference.py", "no --init_checkpoint", "a fine-tuned model")
    if bool(values.question) != bool(values.context):
        raise UsageError("run_inference.py", f"no --{'context' if values.question else 'question'}", "both or neither")
    folder, step = _model_of(values.init_checkpoint)
    call.words = [folder, *([values.question, values.context] if values.question else []), *step]
    if not values.joint_head:
        call.put("task.search", "tops")
    call.words += task_arguments(call.recipes.pop("answer")["task"], *(["head"] if values.says("--joint_head") else []))


POSTPROCESSING = (
    Flag("--pretrained_checkpoint", str, "the run", joint=True, required=True),
    Flag("--output_dir", str, "output folder", joint=True, required=True),
    Flag("--amp", False, nothing="weights are stored in fp32"),
)


def postprocessing(values: Values, call: Call) -> None:
    """Export the discriminator and the generator of a run's checkpoint for Hugging Face."""
    folder, step = _model_of(values.pretrained_checkpoint)
    out = Path(values.output_dir)
    call.words = [folder, str(out / "discriminator"), "--anew", *step]
    call.after.append(lambda: _link(out / "generator", out / "discriminator" / "generator"))


SEED = 1314
BUILDING = (
    Flag("--corpus-dir", str, "corpus: source.path", joint=True, required=True),
    Flag("--vocab-file", str, "encode: tokenizer", joint=True, required=True),
    Flag("--output-dir", str, "output folder", joint=True, required=True),
    Flag("--max-seq-length", 128, "--length", joint=True),
    Flag("--num-processes", 1, "encode: processes"),
    Flag("--num-out-files", 1000, "--files", joint=True),
    Flag("--blanks-separate-docs", True, "corpus: source", joint=True, valued=True),
    *joint("tokenizer: tokenizer.lowercase", "--do-lower-case=False --no-lower-case=False"),
    Flag("--seed", SEED, "--seed", joint=True),
)


def building(values: Values, call: Call) -> None:
    if not values.blanks_separate_docs:
        raise UsageError("--blanks-separate-docs", "found False", "True", "write a blank line between documents")
    values.refuse_both("--no-lower-case", "--do-lower-case")
    lowercase = values.do_lower_case if values.do_lower_case or values.no_lower_case else None
    call.writes = values.output_dir
    _records(call, values.corpus_dir, values.output_dir, values.max_seq_length, values.num_out_files, values.seed)
    call.put("encode: tokenizer", _cased(call, values.vocab_file, lowercase, "--no-lower-case"))


def _cased(call: Call, vocabulary: str, lowercase: bool | None, otherwise: str) -> str:
    """Return the vocabulary, or a tokenizer that reads it in the requested case.

    Without a flag, lowercase the texts if the vocabulary has only lowercase tokens; the original keeps capitals.
    """
    vocabulary_lowercase = read_tokenizer(vocabulary).lowercase if is_tokenizer(vocabulary) else None
    if vocabulary_lowercase and lowercase is None:
        call.notes.append(f"{vocabulary}: texts are lowercased, as its tokens are; {otherwise} keeps capitals")
    if vocabulary_lowercase is None or lowercase in (None, vocabulary_lowercase):
        return vocabulary
    call.put("tokenizer: tokenizer", {"kind": "wordpiece", "file": vocabulary, "lowercase": lowercase})
    return "<tokenizer>"


def _records(call: Call, corpus: str, out: str, length: int, parts: int, seed: int) -> None:
    """Write TFRecords of ELECTRA's unmasked examples, and replace existing ones like the original."""
    call.put("corpus: source", {"kind": "text", "path": corpus})
    call.set("corpus:sentences=lines corpus:duplicates=keep corpus:validation=0.0 encode:corpus=<corpus>")
    call.words = ["<encode>", out, "rtd", "--length", str(length), "--files", str(parts), "--seed", str(seed), "--anew"]


FETCHED = {  # data set of the original -> name for `ordsmed fetch`
    "wikicorpus_en": "wikipedia-en",
    "wikicorpus_zh": "wikipedia-zh",
    "bookscorpus": "books",
    "squad": "squad",
    "mrpc": "glue",
}
ACTIONS = ("download", "text_formatting", "sharding", "create_tfrecord_files", "create_hdf5_files")
BOTH = "books_wiki_en_corpus"
WEIGHTS = ("google_pretrained_weights", "nvidia_pretrained_weights")
PREPARATION = (
    Flag(
        "--action",
        str,
        "command: fetch, corpus, corpus shards, encode records",
        joint=True,
        required=True,
        one_of=ACTIONS,
    ),
    Flag("--dataset", str, "names of the folders", joint=True, required=True, one_of=(*FETCHED, BOTH, *WEIGHTS, "all")),
    Flag("--input_files", str, "corpora to shard", joint=True),
    Flag("--n_training_shards", 2048, "--train, --files", joint=True),
    Flag("--n_test_shards", 2048, "--test, --files", joint=True),
    Flag("--fraction_test_set", 0.1, "--fraction", joint=True),
    Flag("--max_seq_length", 512, "--length", joint=True),
    Flag("--vocab_file", str, "encode: tokenizer", joint=True),
    Flag("--do_lower_case", 0, "name of the folder, tokenizer: tokenizer.lowercase", joint=True),
    Flag("--random_seed", 12345, "name of the folder", joint=True),
    Flag("--skip_wikiextractor", 0, "corpus: source.path", joint=True),
    Flag("DATA_PREP_WORKING_DIR", "data", "parent folder", joint=True),
    Flag("--segmentation_method", "nltk", nothing="ordsmed splits sentences by its own rules, without NLTK"),
    Flag("--n_processes", 4, nothing="one process per core, or a single one for small data"),
    Flag("--dupe_factor", 5, nothing="masks are drawn again each time a row is used"),
    Flag("--masked_lm_prob", 0.15, nothing="records are not masked; set --mask_prob of run_pretraining.py"),
    Flag("--interactive_json_config_generator", str, refused="leave it out: the original never reads it"),
)


def preparation(values: Values, call: Call) -> None:
    """Run one step from a dump to records. The result may be a folder where the original writes a file."""
    if values.dataset in WEIGHTS:
        remedy = "`ordsmed import CHECKPOINT FOLDER` imports a checkpoint that you have; models.toml gives it a name"
        raise UsageError("--dataset", f"found {values.dataset}, which cannot be downloaded", "", remedy)
    if values.action == "create_hdf5_files":
        problem = "found create_hdf5_files, which the original does not support either"
        raise UsageError("--action", problem, "create_tfrecord_files")
    home = Path(values.DATA_PREP_WORKING_DIR)
    step = {"download": _download, "text_formatting": _formatting, "sharding": _sharding}
    step.get(values.action, _record_files)(values, call, home)


def _download(values: Values, call: Call, home: Path) -> None:
    """Download data sets that do not exist yet. Skip books that cannot be downloaded, as the original does."""
    several = {"all": [name for name in FETCHED if name != "wikicorpus_zh"], BOTH: ["bookscorpus", "wikicorpus_en"]}
    folder = home / "download"
    for name in several.get(values.dataset, [values.dataset]):
        if (target := folder / (f"{name}/v1.1" if name == "squad" else name)).exists():
            call.notes.append(f"{target}: exists and is not downloaded again")
            continue
        fetching = Call("fetch", words=[FETCHED[name], "--out", str(folder)])
        fetching.words += ["--allow-missing"] if name == "bookscorpus" else []
        link = functools.partial(_link, folder / name, folder / FETCHED[name])
        fetching.after.append(functools.partial(_by_version, folder / name) if name == "squad" else link)
        call.then.append(fetching)


def _by_version(folder: Path) -> None:
    for path in sorted(folder.glob("*-v[12].*")):
        _link(folder / path.stem.rpartition("-")[2] / path.name, path)


def _formatting(values: Values, call: Call, home: Path) -> None:
    if values.dataset not in ("wikicorpus_en", "bookscorpus"):
        raise UsageError(
            "--dataset",
            f"found {values.dataset} with text_formatting",
            "wikicorpus_en or bookscorpus",
            "`ordsmed corpus wikipedia source.path=DUMP out=FOLDER` reads other languages",
        )
    call.verb = "corpus"
    if values.dataset == "bookscorpus":
        call.put("source", {"kind": "books", "path": str(home / "download" / "bookscorpus"), "broken": "skip"})
    else:
        read = home / ("extracted" if values.skip_wikiextractor else "download") / "wikicorpus_en"
        call.put("source", {"kind": "wikipedia", "path": str(read)})
    call.set("shortest=1 duplicates=keep validation=0.0")
    call.put("out", str(_formatted(home, values.dataset)))


def _formatted(home: Path, dataset: str) -> Path:
    return home / "formatted_one_article_per_line" / dataset


def _sharded(values: Values, home: Path) -> Path:
    numbers = f"training_shards_{values.n_training_shards}_test_shards_{values.n_test_shards}"
    return home / f"sharded_{numbers}_fraction_{values.fraction_test_set}" / values.dataset


def _sharding(values: Values, call: Call, home: Path) -> None:
    """Distribute complete articles and books over files of equal length, with both corpora in each file."""
    names = ["bookscorpus", "wikicorpus_en"] if values.dataset == BOTH else [values.dataset]
    if values.dataset not in (BOTH, "bookscorpus", "wikicorpus_en") and not values.input_files:
        raise UsageError("--dataset", f"found {values.dataset} with sharding", f"wikicorpus_en, bookscorpus or {BOTH}")
    sources = values.input_files.split(",") if values.input_files else [str(_formatted(home, name)) for name in names]
    if wrong := next((path for path in sources if Path(path).is_file()), None):
        raise UsageError(
            "--input_files",
            f"found {wrong}, a file",
            "folders of corpora",
            "`ordsmed corpus folder source.path=TEXTS out=FOLDER` makes one",
        )
    out = _sharded(values, home)
    call.verb = "corpus shards"
    call.words = [
        *sources,
        str(out / "shards"),
        "--train",
        str(values.n_training_shards),
        "--test",
        str(values.n_test_shards),
        "--fraction",
        str(values.fraction_test_set),
        "--anew",
    ]
    call.after.append(lambda: _by_side(out))


def _by_side(out: Path) -> None:
    """Link the shards in train/ and test/ as the original has them. Delete corpora encoded from former shards."""
    for former in (out / "corpus", *out.glob("encoded_lower_case_*")):
        shutil.rmtree(former, ignore_errors=True)
    for side in ("train", "test"):
        shutil.rmtree(out / side, ignore_errors=True)
        for path in sorted((out / "shards").glob(f"{side}-*.txt")):
            _link(out / side / path.name, path)


def _record_files(values: Values, call: Call, home: Path) -> None:
    """Write the records of train and test. Keep the encoded texts to write records of another length later."""
    case = f"lower_case_{values.do_lower_case}"
    out = home / f"tfrecord_{case}_seq_len_{values.max_seq_length}_random_seed_{values.random_seed}" / values.dataset
    shards, vocabulary = _sharded(values, home), values.vocab_file or str(home / "vocab.txt")
    lowercase = bool(values.do_lower_case) if "do_lower_case" in values.explicit else None
    for side, parts in (("train", values.n_training_shards), ("test", values.n_test_shards)):
        part = call if side == "train" else Call("encode records")
        part.verb, part.writes = "encode records", str(out / side)
        _records(part, str(shards / side), str(out / side), values.max_seq_length, parts, SEED)
        part.put("encode: tokenizer", _cased(part, vocabulary, lowercase, "--do_lower_case=0"))
        encoded = shards / f"encoded_{case}"
        folders = {"corpus": shards / "corpus" / side, "encode": encoded / side, "tokenizer": encoded / "tokenizer"}
        for name in folders.keys() & part.recipes.keys():
            part.put(f"{name}: out", str(folders[name]))
            part.shared[name] = perform.folder_for(folders[name])  # shared by calls with other lengths
        if side == "test" and parts:
            call.then.append(part)


PRECISIONS = {"amp": "fp16", "tf32": "tf32", "fp32": "fp32"}
BENCH_PRETRAINING = (
    Flag("train_batch_size_p1", 176, "table.cells", joint=True),
    Flag("precision", "amp", "layout.precision", by=PRECISIONS, one_of=tuple(PRECISIONS)),
    Flag("xla", "xla", "layout.compile", by={"xla": True, "no_xla": False}, one_of=("xla", "no_xla")),
    Flag("num_gpus", 8, "table.devices", by=lambda count: [count]),
    Flag("accumulate_gradients", "true", "table.cells", joint=True, one_of=("true", "false")),
    Flag("gradient_accumulation_steps_p1", 48, "table.cells", joint=True),
    Flag("train_batch_size_p2", 24, "table.cells", joint=True),
    Flag("gradient_accumulation_steps_p2", 144, "table.cells", joint=True),
    Flag("electra_model", "base", "model.size", one_of=tuple(WIDTHS)),
)


def bench_pretraining(values: Values, call: Call) -> None:
    _lay_over(call, "electra-nvidia")
    cells = []
    for length, rows, passes in (
        (128, values.train_batch_size_p1, values.gradient_accumulation_steps_p1),
        (512, values.train_batch_size_p2, values.gradient_accumulation_steps_p2),
    ):
        batch = rows * (passes if values.accumulate_gradients == "true" else 1)
        cells.append([f"length={length}", f"batch={batch}", f"layout.micro={rows}"])
    call.put("objective.generator", {"width": generator_width(values.electra_model, GENERATOR_SHARE)})
    call.put("table.cells", cells)
    call.gpus, call.devices = values.num_gpus, 0
    call.notes.append("the table has the batch per GPU, and rows per second of all GPUs")


def _lay_over(call: Call, recipe: str) -> None:
    """Apply the settings from flags to the built-in bench recipe `recipe`."""
    whole = run.read_table(run.find_recipe(recipe, "bench"), "bench")
    call.recipes["bench"] = run.merge_tables(whole, call.recipes["bench"])


BENCH_SQUAD = (
    Flag("mode", "train", "the recipe", joint=True, one_of=("train", "eval")),
    Flag("num_gpu", 8, "table.devices", joint=True),
    Flag("batch_size", 16, "batch", joint=True),
    Flag("infer_batch_size", int, "batches", joint=True),
    Flag("precision", "amp", "layout.precision", by=PRECISIONS, one_of=tuple(PRECISIONS)),
    Flag("squad_version", "1.1", "task.version"),
    Flag("squad_dir", str, "task.train", joint=True),
    Flag("out_dir", "results", nothing="the results are printed as a table and written to measurements.jsonl"),
    Flag("init_checkpoint", "None", "init", joint=True),
    Flag("cache_dir", str, nothing="a benchmark caches no examples"),
)


def bench_squad(values: Values, call: Call) -> None:
    """Measure training speed or latency, on SQuAD or on random windows of the same lengths."""
    _lay_over(call, f"squad-{values.mode}-nvidia")
    if values.mode == "train":
        call.put("batch", values.batch_size)
        call.put("table.devices", [values.num_gpu])
        call.gpus, call.devices = values.num_gpu, 0
        call.notes.append("the table has the batch per GPU, and examples per second of all GPUs")
    else:
        batch = values.infer_batch_size or values.batch_size
        call.put("batches", [[batch, dict(call.recipes["bench"]["batches"]).get(batch, 20)]])
        call.gpus = 1 if perform.count_gpus() else values.num_gpu
        if values.num_gpu > 1:
            call.notes.append(f"{values.num_gpu} GPUs: only one is measured, as in the original")
    if values.init_checkpoint not in NONE:
        call.put("init", _model_of(values.init_checkpoint)[0])
        call.recipes["bench"].pop("model", None)
    if values.squad_dir:
        call.put("task.train", str(Path(values.squad_dir) / f"train-v{values.squad_version}.json"))
        call.put("tokenizer", "vocab/vocab.txt")
    else:
        call.notes.append("windows are random, as long as those of SQuAD 1.1; the 7th argument is SQuAD's folder")


ALSO = {"inference.py": "run_inference.py", "inference": "run_inference.py"}  # names in the original's documentation
PROGRAMS = (
    Program(
        "run_pretraining.py",
        "pretrain an ELECTRA from records, one phase per call",
        PRETRAINING,
        pretraining,
        "pretrain",
        sets="model.kind=electra objective.kind=rtd objective.examples=given data=<encode> validate=0 "
        "phase.pack=false optimizer.epsilon=1e-6",
    ),
    Program(
        "run_tf_squad.py",
        "fine-tune an ELECTRA on SQuAD, and predict",
        SQUAD,
        squad,
        "finetune",
        sets="task.kind=squad",
    ),
    Program("run_inference.py", "answer one question", INFERENCE, inference, "answer", sets="task.kind=squad"),
    Program(
        "postprocess_pretrained_ckpt.py",
        "export the discriminator for Hugging Face",
        POSTPROCESSING,
        postprocessing,
        "export",
    ),
    Program(
        "build_pretraining_dataset.py",
        "write records of ELECTRA's examples",
        BUILDING,
        building,
        "encode records",
        "data/build_pretraining_dataset.py",
    ),
    Program(
        "dataPrep.py",
        "one step of data preparation: download, format, shard, write records",
        PREPARATION,
        preparation,
        path="data/dataPrep.py",
    ),
    Program(
        "benchmark_pretraining.sh",
        "measure rows per second of both phases",
        BENCH_PRETRAINING,
        bench_pretraining,
        "bench",
        "scripts/benchmark_pretraining.sh",
    ),
    Program(
        "benchmark_squad.sh",
        "measure examples per second on SQuAD, training or predicting",
        BENCH_SQUAD,
        bench_squad,
        "bench",
        "scripts/benchmark_squad.sh",
    ),
)
