"""NVIDIA's ELECTRA for TensorFlow 2: pretraining in two phases, SQuAD with a joint head, its scripts and machines.

Defaults are those of its code; where its README says otherwise, the README is taken and the difference is told.
"""

from __future__ import annotations

import itertools
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ordsmed.base import files, run, snapshots
from ordsmed.base.arguments import UsageError
from ordsmed.base.say import say
from ordsmed.base.screen import command
from ordsmed.data.tokenizer_training import is_tokenizer, read_tokenizer
from ordsmed.others.translate import dllogger, perform
from ordsmed.others.translate.dllogger import Logged, Window
from ordsmed.others.translate.lengths import check_length
from ordsmed.others.translate.program import Call, Flag, Program, Values, find
from ordsmed.others.translate.standing import asked_by, check_tokenizer

WIDTHS = {"small": 256, "base": 768, "large": 1024}
HEAD = 64  # numbers of a head
SHARE = 0.3333333  # of the network's width, which a generator has in their scripts
NONE = (None, "", "None")
LOGS = "every run writes metrics.jsonl, and log.txt, into its folder"

PRETRAINING = (
    Flag("--model_name", str, "out", joint=True),
    Flag("--model_size", "base", "model.size", joint=True, one_of=tuple(WIDTHS)),
    Flag("--pretrain_tfrecords", str, "encode: records", joint=True),
    Flag("--vocab_file", "vocab/vocab.txt", "encode: tokenizer"),
    Flag("--results_dir", "results", "out", joint=True),
    Flag("--max_seq_length", 128, "phase.length"),
    Flag("--mask_prob", 0.15, "objective.hide"),
    Flag("--disc_weight", 50.0, "objective.detect_weight"),
    Flag("--gen_weight", 1.0, "objective.guess_weight"),
    Flag("--generator_hidden_size", 0.25, "objective.generator", joint=True),
    Flag("--train_batch_size", 128, "phase.batch", joint=True),
    Flag("--gradient_accumulation_steps", 1, "phase.batch", joint=True),
    Flag("--learning_rate", 5e-4, "phase.rate"),
    Flag("--num_train_steps", 1_000_000, "phase.steps"),
    Flag("--num_warmup_steps", 10_000, "phase.warmup", joint=True),
    Flag("--lr_decay_power", 0.5, "phase.schedule", joint=True),
    Flag("--end_lr", 0.0, "phase.schedule", joint=True),
    Flag("--optimizer", "adam", "optimizer.kind", joint=True, one_of=("adam", "lamb")),
    Flag("--skip_adaptive", False, "optimizer.adapt", joint=True),
    Flag("--opt_beta_1", 0.878, "optimizer.betas", joint=True),
    Flag("--opt_beta_2", 0.974, "optimizer.betas", joint=True),
    Flag("--weight_decay_rate", 0.01, "optimizer.decay"),
    Flag("--seed", 42, "seed"),
    Flag("--amp", False, "layout.precision", joint=True),
    Flag("--xla", False, "layout.compile"),
    Flag("--fp16_compression", False, "layout.reduce", joint=True),
    Flag("--log_freq", 10, "log"),
    Flag("--save_checkpoints_steps", 1000, "save"),
    Flag("--keep_checkpoint_max", 5, "keep"),
    Flag("--restore_checkpoint", str, "init", joint=True, alone="latest"),  # as their run.sub says it
    Flag("--phase2", False, "init", joint=True),
    Flag("--load_weights", False, "init", joint=True),
    Flag("--weights_dir", str, "init", joint=True),
    Flag("--steps_this_run", -1, "ORDSMED_STOP_AT", joint=True),
    Flag("--skip_checkpoint", False, refused="a run keeps its last checkpoint: without it nothing could be made of it"),
    Flag("--log_dir", str, "the folder of dllogger.log", joint=True),
    Flag("--json-summary", str, "the file of DLLogger's lines", joint=True),
)


def pretraining(values: Values, call: Call) -> None:
    """Replaced-token detection; each phase is a run of its own, the second begins with the first's weights."""
    if not values.model_name or not values.pretrain_tfrecords:
        missing = "--model_name" if not values.model_name else "--pretrain_tfrecords"
        raise UsageError("run_pretraining.py", f"no {missing}", "`--model_name NAME --pretrain_tfrecords FILES`")
    call.put("model.kind", "electra")
    call.put("model.size", values.model_size)
    call.put("objective.kind", "rtd")
    call.put("objective.examples", "given")
    call.put("objective.generator", {"width": generator_width(values.model_size, values.generator_hidden_size)})
    call.put("data", "<encode>")
    call.put("encode: records", values.pretrain_tfrecords.split(","))
    call.put("validate", 0)
    remedy = "create_tfrecord_files with that --max_seq_length"
    files_of = values.pretrain_tfrecords.split(",")
    call.before.append(lambda: check_length(files_of, values.max_seq_length, "--max_seq_length", remedy))
    _steps(values, call)
    _weights(values, call)
    _precision_of(values, call)
    if values.fp16_compression and values.amp:
        call.put("layout.reduce", "fp16")
    elif values.fp16_compression:
        call.notes.append("--fp16_compression: does nothing without --amp, as in their code")
    if values.steps_this_run != -1:
        if values.steps_this_run < 1:
            raise UsageError("--steps_this_run", f"found {values.steps_this_run}", "a number of steps, or -1: all")
        perform.stop_at(_program(call), values, call, lambda saved: saved + values.steps_this_run)
    call.tells = _teller(values.log_freq)
    call.after.append(lambda: _leave_pretraining(values, _run_of(values, call)))
    values.read_later("log_dir", "json_summary")


def _precision_of(values: Values, call: Call) -> None:
    """Their scripts say nothing of tf32 to a program: it is what their container does by itself."""
    call.put("layout.precision", "fp16" if values.amp else "fp32")
    if not values.amp and not any(word.startswith("layout.precision=") for word in values.overrides):
        call.notes.append(
            "without --amp: fp32; their container computes in TF32 on an A100 or newer, which here is "
            "`layout.precision=tf32` behind the words"
        )


def generator_width(size: str, share: float) -> int:
    """Whole heads of 64: their scripts say 0.3333333, which is 256 of 768, and 384 of 1024."""
    width = -round(WIDTHS[size] * share) // HEAD * -HEAD
    if width < HEAD:
        wanted = f"a share of {WIDTHS[size]} that leaves 1 or more, such as 0.25"
        raise UsageError("--generator_hidden_size", f"found {share:g}", wanted)
    return width


def _program(call: Call) -> Program:
    return find("nvidia", "run_pretraining.py" if call.verb == "pretrain" else "run_tf_squad.py")


def _run_of(values: Values, call: Call) -> Path | None:
    """The folder of the run that is done; trials of several settings leave no steps that theirs would know."""
    folder = perform.run_of(_program(call), values, call)
    if (folder / dllogger.METRICS).exists():
        return folder
    say(f"{folder}: no {dllogger.METRICS}, so nothing is written that their scripts would look for")
    return None


def _leave_pretraining(values: Values, folder: Path | None) -> None:
    """dllogger.log, and names of theirs for the checkpoints: results/NAME/checkpoints/ckpt-10000, ckpt-p2-930."""
    if folder is None:
        return
    log = Path(values.json_summary or Path(values.log_dir or _model(values) / "logs") / "dllogger.log")
    dllogger.write(log, [*_logged_pretraining(values, folder)], (folder / dllogger.METRICS).stat().st_mtime)
    stem = "ckpt-p2" if values.phase2 else "ckpt"
    names = Path(values.results_dir) / values.model_name / "checkpoints"
    for name in names.glob(f"{stem}-[0-9]*"):
        if name.is_symlink() and not name.exists():
            name.unlink()  # of a checkpoint that was not kept
    for step in snapshots.steps(folder / "checkpoints"):
        path = snapshots.path_of(folder / "checkpoints", step)
        _link(names / f"{stem}-{step}", path)
        _link(names / f"{stem}-{step}.index", path / "state.json")  # their scripts look for *.index


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
    return {"train_perf": window.rate, "total_loss": window.mean("loss"), "masked_lm_loss": window.mean("guess"),
            "disc_loss": window.mean("detect")}  # fmt: skip


def _teller(every: int) -> Callable[[dllogger.Line], list[str]]:
    """DLLogger's lines on the screen while a training goes on."""
    waiting: list[dllogger.Line] = []

    def tell(line: dllogger.Line) -> list[str]:
        if "seconds" not in line:
            return []
        waiting.append(line)
        if line["step"] % every:
            return []
        data = _means(Window(waiting))
        waiting.clear()
        return [dllogger.spoken(f"Training Iteration: {line['step']} ", data, time.time())]

    return tell


def _link(name: Path, to: Path) -> None:
    """A link where their scripts look; what stands there and is no link is left."""
    if name.exists() and not name.is_symlink():
        say(f"{name}: stands there, and is left; {to} is what is meant")
        return
    name.parent.mkdir(parents=True, exist_ok=True)
    name.unlink(missing_ok=True)
    name.symlink_to(os.path.relpath(to, name.parent))


def _model_of(path: str) -> tuple[str, list[str]]:
    """The run that a path of theirs means, and its step where it names a checkpoint: ckpt-10000, ckpt-p2-930."""
    from ordsmed.base.binary import bundle

    place = Path(path)
    if place.is_symlink():
        place = Path(os.path.relpath(place.resolve())) if not place.is_absolute() else place.resolve()
    digits = place.name.rpartition("-")[2]
    if place.parent.name != "checkpoints" or not digits.isdigit() or bundle.find(place):
        return str(place), []
    folder = place.parent.parent
    if place.name.startswith("ckpt-p2"):
        folder = folder.with_name(f"{folder.name}-phase2")
    return str(folder), ["--step", str(int(digits))]


def _steps(values: Values, call: Call) -> None:
    """Their batch is of one GPU and one pass; a step of ours is over all."""
    batch = values.train_batch_size * values.gradient_accumulation_steps * values.place.world
    call.put("phase.batch", batch)
    call.put("layout.micro", values.train_batch_size)
    call.put("phase.pack", False)
    call.put("phase.warmup", values.num_warmup_steps)
    if values.num_warmup_steps > values.num_train_steps:
        wanted = f"at most the {values.num_train_steps:,} of --num_train_steps"
        raise UsageError("--num_warmup_steps", f"found {values.num_warmup_steps:,}", wanted)
    end = values.end_lr / values.learning_rate
    call.put("phase.schedule", {"kind": "polynomial", "power": values.lr_decay_power, **({"end": end} if end else {})})
    if values.optimizer == "lamb":
        call.put("optimizer.kind", "lamb")
        call.put("optimizer.adapt", "matrices" if values.skip_adaptive else "all")
    else:
        call.put("optimizer.kind", "adamw")
        call.put("optimizer.flavour", "keras")
        if values.skip_adaptive:
            call.notes.append("--skip_adaptive: does nothing with adam")
    call.put("optimizer.betas", [values.opt_beta_1, values.opt_beta_2])
    call.put("optimizer.epsilon", 1e-6)
    call.notes.append(
        f"a step is {values.train_batch_size} x {values.gradient_accumulation_steps} x "
        f"{values.place.world} = {batch:,} rows"
    )


def _weights(values: Values, call: Call) -> None:
    """Where it writes and what it begins with: a folder goes on by itself; phase 2 begins with that of phase 1."""
    first = _model(values)
    restore = values.restore_checkpoint
    if values.phase2 and restore in (None, "", "false"):
        raise UsageError("--phase2", "found without --restore_checkpoint", "`--restore_checkpoint latest`, or a path")
    if values.load_weights:
        if restore:
            raise UsageError("--load_weights", "found with --restore_checkpoint", "one of the two")
        call.put("init", values.weights_dir or str(first / "weights"))
    call.put("out", f"{first}-phase2" if values.phase2 else str(first))
    init = "" if restore in (None, "", "false") else str(first) if restore == "latest" else _restored(restore)
    if (
        init and Path(init).resolve() != Path(call.recipes["pretrain"]["out"]).resolve()
    ):  # a run goes on from its own folder by itself
        call.put("init", init)
    elif init and values.anew:
        raise UsageError("--anew", "found with --restore_checkpoint of the same run", "one of the two")


def _restored(path: str) -> str:
    """The run whose last checkpoint this is, or another model."""
    folder, step = _model_of(path)
    kept = snapshots.steps(Path(folder) / "checkpoints")
    if step and kept and int(step[1]) != kept[-1]:
        remedy = f"`{command('export', folder, 'FOLDER', *step)}`, and name FOLDER"
        wish = f"found {path}; a training goes on from the last checkpoint of {folder}, that of step {kept[-1]}"
        raise UsageError("--restore_checkpoint", wish, "", remedy)
    return folder


def _model(values: Values) -> Path:
    return Path(values.results_dir) / "models" / values.model_name


def _put_questions(values: Values, call: Call) -> None:
    """What SQuAD it is, and with which head."""
    call.put("task.kind", "squad")
    call.put("task.version", "2.0" if values.version_2_with_negative else "1.1")
    call.put("task.head", "joint" if values.joint_head else "independent")
    if not values.joint_head:
        call.put("task.search", "tops")


def _truth(values: Values, call: Call) -> None:
    """Theirs takes any word behind --joint_head for true, `False` too."""
    if "joint_head" in values.given and not values.joint_head:
        call.notes.append("--joint_head False: the head is independent; theirs takes the word False for true")


SQUAD = (
    Flag("--electra_model", "google/electra-base-discriminator", "init", joint=True),
    Flag("--init_checkpoint", str, "init", joint=True),
    Flag("--data_dir", str, "task.train", joint=True),
    Flag("--train_file", str, "task.train", joint=True),
    Flag("--predict_file", str, "task.dev", joint=True),
    Flag("--output_dir", str, "out", joint=True),
    Flag("--do_train", False, "finetune", joint=True),
    Flag("--do_predict", False, "predict", joint=True),
    Flag("--do_eval", False, "predict --scores", joint=True),
    Flag("--evaluate_during_training", False, nothing="the dev file is judged at each epoch's end"),
    Flag("--max_seq_length", 384, "task.length"),
    Flag("--doc_stride", 128, "task.stride"),
    Flag("--max_query_length", 64, "task.longest_question"),
    Flag("--n_best_size", 20, "task.n_best"),
    Flag("--max_answer_length", 30, "task.longest_answer"),
    Flag("--joint_head", True, "task.head", joint=True, valued=True),
    Flag("--beam_size", 4, "task.beam"),
    Flag("--do_lower_case", False, "task.lowercase"),
    Flag("--version_2_with_negative", False, "task.version", joint=True),
    Flag("--null_score_diff_threshold", 0.0, "task.threshold"),
    Flag("--train_batch_size", 32, "batch", joint=True),
    Flag("--gradient_accumulation_steps", 1, nothing="theirs reads it nowhere: each batch is a step"),
    Flag("--learning_rate", 1e-4, "rate"),
    Flag("--num_train_epochs", 3.0, "epochs", joint=True),
    Flag("--max_steps", -1, "steps", joint=True),
    Flag("--warmup_proportion", 0.1, "warmup"),
    Flag("--weight_decay_rate", 0.01, "optimizer.decay"),
    Flag("--layerwise_lr_decay", 0.8, "layer_decay"),
    Flag("--seed", 42, "seed"),
    Flag("--amp", False, "layout.precision", joint=True),
    Flag("--xla", False, "layout.compile"),
    Flag("--fp16_all_reduce", False, nothing="theirs reads it nowhere: gradients travel in fp16 with --amp"),
    Flag("--log_freq", 50, "log"),
    Flag("--no_cuda", False, "layout.device", joint=True),
    Flag("--vocab_file", str, "tokenizer", joint=True),
    Flag("--cache_dir", str, "features", joint=True),
    Flag("--skip_cache", False, "features", joint=True),
    Flag("--json-summary", "results/dllogger.json", "the file of DLLogger's lines", joint=True),
    Flag("--skip_checkpoint", False, "checkpoints/", joint=True),
    Flag("--ci", False, "checkpoints/", joint=True),
    Flag("--predict_batch_size", 8, nothing="windows are computed together as fits the device"),
    Flag("--verbose_logging", False, nothing=LOGS),
    Flag("--eval_script", str, nothing="official scores are our own, digit for digit"),
    Flag("--disable-progress-bar", False, nothing="there is none where nobody looks"),
    Flag("--local_rank", int, nothing="the launcher's variables say it"),
    Flag("--use_env", False, nothing="the launcher's variables say it"),
)


def squad(values: Values, call: Call) -> None:
    """Fine-tune, predict, or both: theirs does nothing without a --do_ flag."""
    _put_questions(values, call)
    version = call.recipes["finetune"]["task"]["version"]
    if not values.do_train:
        _predictions(values, call, version)
        return
    if not values.output_dir:
        raise UsageError("run_tf_squad.py", "no --output_dir", "`--output_dir FOLDER`, where the run is kept")
    _truth(values, call)
    call.put("init", values.electra_model)
    if values.init_checkpoint not in NONE:
        call.notes.append(
            "--init_checkpoint: is read where nothing is trained, as in their code; a training begins "
            "with --electra_model"
        )
    call.put("out", str(Path(values.output_dir) / f"squad_v{version}"))
    if values.joint_head:
        call.put("task.form", "nvidia")
    call.put("task.train", _file(values, "train", values.train_file, version))
    if values.do_predict or values.do_eval:
        call.put("task.dev", _file(values, "dev", values.predict_file, version))
    call.put("batch", values.train_batch_size * values.place.world)
    call.put("layout.micro", values.train_batch_size)
    if values.max_steps > 0:
        call.put("steps", values.max_steps)
    for key, value in (("epochs", values.num_train_epochs), ("epoch_steps", "down"), ("course", "epochs")):
        call.put(key, value)
    call.put("optimizer.kind", "adamw")
    call.put("optimizer.flavour", "keras")
    call.put("optimizer.epsilon", 1e-6)
    _precision_of(values, call)
    if values.amp:
        call.put("layout.reduce", "fp16")
    if values.no_cuda:
        call.put("layout.device", "cpu")
    if values.vocab_file:
        call.put(
            "tokenizer: tokenizer", {"kind": "wordpiece", "file": values.vocab_file, "lowercase": values.do_lower_case}
        )
        call.put("tokenizer", "<tokenizer>")
    if values.skip_cache:
        call.put("features", "")
    elif values.cache_dir:
        call.put("features", values.cache_dir)
    call.after.append(lambda: _leave_squad(values, _run_of(values, call)))
    values.read_later("json_summary", "skip_checkpoint", "ci")


def _leave_squad(values: Values, folder: Path | None) -> None:
    """predictions.json where theirs has it, DLLogger's lines, and checkpoints by their names."""
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
    place = Path(values.output_dir if values.ci else "checkpoints")
    for step in snapshots.steps(folder / "checkpoints"):
        if step in ends:
            name = f"electra_base_qa_v2_{values.version_2_with_negative}_epoch_{ends.index(step) + 1}_ckpt"
            _link(place / name, snapshots.path_of(folder / "checkpoints", step))


def _logged_squad(values: Values, lines: Sequence[dllogger.Line], ends: Sequence[int]) -> Iterator[Logged]:
    """Steps of every epoch, and its sum."""
    for epoch, (first, end) in enumerate(itertools.pairwise([0, *ends])):
        if not (own := [line for line in lines if first < line["step"] <= end]):
            continue  # fewer steps than epochs
        for number in range(0, len(own), values.log_freq):
            window = Window(own[: number + 1])
            data = {"step_loss": own[number]["loss"], "train_perf": window.rate}
            yield Logged([epoch, number], data, window.seconds)
        whole = Window(own)
        data = {
            "e2e_train_time": whole.seconds,
            "training_sequences_per_second": whole.rate,
            "final_loss": whole.mean("loss"),
        }
        yield Logged([], data, whole.seconds)


def _scores(path: Path) -> dict[str, float]:
    """By their names; SQuAD 2.0's evaluator says `exact`."""
    scores = files.read_table(path) if path.exists() else {}
    exact = scores.get("exact_match", scores.get("exact"))
    return {} if exact is None else {"exact_match": exact, "F1": scores["f1"]}


def _copy_predictions(folder: Path, out: Path) -> None:
    """Of the folder in which they were made, whole or not at all, to where theirs has them."""
    out.mkdir(parents=True, exist_ok=True)
    for path in sorted(folder.glob("*.json")):
        shutil.copyfile(path, out / path.name)


def _file(values: Values, which: str, named: str | None, version: str) -> str:
    """The file of a part: by its name, else SQuAD's in the data's folder."""
    if named:
        return str(Path(values.data_dir or "") / named)
    if not values.data_dir:
        flag = "train_file" if which == "train" else "predict_file"
        raise UsageError("run_tf_squad.py", f"no --data_dir and no --{flag}", "one of the two")
    return str(Path(values.data_dir) / f"{which}-v{version}.json")


def _predictions(values: Values, call: Call, version: str) -> None:
    if not (values.do_predict or values.do_eval):
        raise UsageError("run_tf_squad.py", "no --do_train, --do_eval or --do_predict", "one of them at least")
    if values.init_checkpoint in NONE:
        raise UsageError("run_tf_squad.py", "no --init_checkpoint", "the fine-tuned model that is to predict")
    task = call.recipes.pop("finetune")["task"]
    call.verb, call.devices = "predict", 0  # theirs asks by its first process alone
    folder, step = _model_of(values.init_checkpoint)
    out = Path(values.output_dir or folder)
    call.words = [folder, _file(values, "dev", values.predict_file, version), str(out / "predictions"), "--anew", *step]
    call.notes.append(f"{out / 'predictions.json'}: what is predicted")
    began = time.time()
    call.after.append(lambda: _leave_predictions(values, out, began))
    values.read_later("json_summary", "seed")
    call.words += asked_by(task, *_head(values))
    check_tokenizer(call, folder, values.vocab_file, values.do_lower_case if values.vocab_file else None)
    call.words += ["--scores"] if values.do_eval else []
    call.words += ["--device", "cpu"] if values.no_cuda else []
    call.words += ["--precision", "fp16"] if values.amp else []


def _head(values: Values) -> list[str]:
    """Its setting, where it is said: a model that learned another one refuses it."""
    return ["head"] if "joint_head" in values.given else []


def _leave_predictions(values: Values, out: Path, began: float) -> None:
    """predictions.json where theirs has it, and DLLogger's lines."""
    _copy_predictions(out / "predictions", out)
    ended = time.time()
    logged = [Logged([], {"e2e_inference_time": ended - began}, ended - began)]
    if values.do_eval and (scores := _scores(out / "predictions" / "scores.json")):
        logged.append(Logged([], scores, ended - began))
    dllogger.write(Path(values.json_summary), [*dllogger.parameters({"SEED": values.seed}), *logged], ended)


INFERENCE = (
    Flag("--electra_model", "google/electra-base-discriminator", nothing="the fine-tuned model says it"),
    Flag("--init_checkpoint", str, "the model's folder", joint=True),
    Flag("--question", str, "the question", joint=True),
    Flag("--context", str, "the context", joint=True),
    Flag("--joint_head", True, "task.head", joint=True, valued=True),
    Flag("--beam_size", 4, "task.beam"),
    Flag("--n_best_size", 20, "task.n_best"),
    Flag("--max_answer_length", 30, "task.longest_answer"),
    Flag("--version_2_with_negative", False, "task.version", joint=True),
    Flag("--null_score_diff_threshold", 0.0, "task.threshold"),
    Flag("--do_lower_case", False, nothing="the model's tokenizer says it"),
    Flag("--max_seq_length", int, "task.length"),
    Flag("--doc_stride", int, "task.stride"),
    Flag("--max_query_length", int, "task.longest_question"),
)


def inference(values: Values, call: Call) -> None:
    """One question of one context."""
    if values.init_checkpoint in NONE:
        raise UsageError("run_inference.py", "no --init_checkpoint", "a fine-tuned model")
    if bool(values.question) != bool(values.context):
        raise UsageError("run_inference.py", f"no --{'context' if values.question else 'question'}", "both, or none")
    folder, step = _model_of(values.init_checkpoint)
    call.words = [folder, *([values.question, values.context] if values.question else []), *step]
    _put_questions(values, call)
    call.words += asked_by(call.recipes.pop("answer")["task"], *_head(values))


POSTPROCESSING = (
    Flag("--pretrained_checkpoint", str, "the run", joint=True),
    Flag("--output_dir", str, "the folder that is written", joint=True),
    Flag("--amp", False, nothing="weights are kept in fp32"),
)


def postprocessing(values: Values, call: Call) -> None:
    """A run as folders for Hugging Face, discriminator and generator; a checkpoint means its run at that step."""
    if not values.pretrained_checkpoint or not values.output_dir:
        missing = "--output_dir" if values.pretrained_checkpoint else "--pretrained_checkpoint"
        raise UsageError("postprocess_pretrained_ckpt.py", f"no {missing}", "a run, and a folder to write")
    folder, step = _model_of(values.pretrained_checkpoint)
    out = Path(values.output_dir)
    call.words = [folder, str(out / "discriminator"), "--anew", *step]
    call.after.append(lambda: _link(out / "generator", out / "discriminator" / "generator"))


SEED = 1314
BUILDING = (
    Flag("--corpus-dir", str, "corpus: source.path", joint=True),
    Flag("--vocab-file", str, "encode: tokenizer", joint=True),
    Flag("--output-dir", str, "the folder that is written", joint=True),
    Flag("--max-seq-length", 128, "--length", joint=True),
    Flag("--num-processes", 1, "encode: processes"),
    Flag("--num-out-files", 1000, "--files", joint=True),
    Flag("--blanks-separate-docs", True, "corpus: source", joint=True, valued=True),
    Flag("--do-lower-case", False, "tokenizer: tokenizer.lowercase", joint=True),
    Flag("--no-lower-case", False, "tokenizer: tokenizer.lowercase", joint=True),
    Flag("--seed", SEED, "--seed", joint=True),
)


def building(values: Values, call: Call) -> None:
    """Records of ELECTRA's examples, of texts with a sentence a line."""
    for name in ("corpus_dir", "vocab_file", "output_dir"):
        if not getattr(values, name):
            raise UsageError("build_pretraining_dataset.py", f"no --{name.replace('_', '-')}", "a folder or file")
    if not values.blanks_separate_docs:
        raise UsageError("--blanks-separate-docs", "found False", "True", "write a blank line between documents")
    if values.do_lower_case and values.no_lower_case:
        raise UsageError("--no-lower-case", "found with --do-lower-case", "one of the two")
    lowercase = values.do_lower_case if values.do_lower_case or values.no_lower_case else None
    call.writes = values.output_dir
    _records(call, values.corpus_dir, values.output_dir, values.max_seq_length, values.num_out_files, values.seed)
    call.put("encode: tokenizer", _cased(call, values.vocab_file, lowercase, "--no-lower-case"))


def _cased(call: Call, vocabulary: str, lowercase: bool | None, otherwise: str) -> str:
    """A vocabulary, as it stands where its pieces have the case that is said, else read in that case.

    Theirs leaves capitals where nothing is said, of which a vocabulary without any knows no word.
    """
    own = read_tokenizer(vocabulary).lowercase if is_tokenizer(vocabulary) else None
    if own and lowercase is None:
        call.notes.append(f"{vocabulary}: capitals are lost, as in its pieces; {otherwise} leaves them, as theirs does")
    if own is None or lowercase in (None, own):
        return vocabulary
    call.put("tokenizer: tokenizer", {"kind": "wordpiece", "file": vocabulary, "lowercase": lowercase})
    return "<tokenizer>"


def _records(call: Call, corpus: str, out: str, length: int, parts: int, seed: int) -> None:
    """TFRecords of ELECTRA's examples, which the training masks itself; what stands is replaced, as theirs does."""
    call.put("corpus: source", {"kind": "text", "path": corpus})
    call.put("corpus: sentences", "lines")
    call.put("corpus: duplicates", "keep")
    call.put("corpus: validation", 0.0)
    call.put("encode: corpus", "<corpus>")
    call.words = ["<encode>", out, "rtd", "--length", str(length), "--files", str(parts), "--seed", str(seed), "--anew"]


FETCHED = {  # names of `ordsmed fetch`, and of the folder that theirs has for them
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
    Flag("--action", str, "the verb: fetch, corpus, corpus shards, encode records", joint=True, one_of=ACTIONS),
    Flag("--dataset", str, "the folders of it", joint=True, one_of=(*FETCHED, BOTH, *WEIGHTS, "all")),
    Flag("--input_files", str, "corpora that are shared out", joint=True),
    Flag("--n_training_shards", 2048, "--train, --files", joint=True),
    Flag("--n_test_shards", 2048, "--test, --files", joint=True),
    Flag("--fraction_test_set", 0.1, "--fraction", joint=True),
    Flag("--max_seq_length", 512, "--length", joint=True),
    Flag("--vocab_file", str, "encode: tokenizer", joint=True),
    Flag("--do_lower_case", 0, "the folder's name, tokenizer: tokenizer.lowercase", joint=True),
    Flag("--random_seed", 12345, "the folder's name", joint=True),
    Flag("--skip_wikiextractor", 0, "corpus: source.path", joint=True),
    Flag("DATA_PREP_WORKING_DIR", "data", "the folder of all of them", joint=True),
    Flag("--segmentation_method", "nltk", nothing="sentences are told apart by rules of ours; NLTK is not needed"),
    Flag("--n_processes", 4, nothing="one a core, or one where little is to be read"),
    Flag("--dupe_factor", 5, nothing="a row is masked anew each time that it is learned from"),
    Flag("--masked_lm_prob", 0.15, nothing="records are not masked; --mask_prob of run_pretraining.py says it"),
    Flag("--interactive_json_config_generator", str, refused="leave it out: theirs reads it nowhere"),
)


def preparation(values: Values, call: Call) -> None:
    """A step from a dump to records; a folder of ours stands where theirs has a file."""
    for name in ("action", "dataset"):
        if not getattr(values, name):
            raise UsageError("dataPrep.py", f"no --{name}", "`--action ACTION --dataset NAME`")
    if values.dataset in WEIGHTS:
        remedy = "`ordsmed import CHECKPOINT FOLDER` takes over what you have; models.toml gives it a name"
        raise UsageError("--dataset", f"found {values.dataset}, which is nowhere to be had", "", remedy)
    if values.action == "create_hdf5_files":
        raise UsageError(
            "--action", "found create_hdf5_files, which theirs does not do either", "create_tfrecord_files"
        )
    home = Path(values.DATA_PREP_WORKING_DIR)
    step = {"download": _download, "text_formatting": _formatting, "sharding": _sharding}
    step.get(values.action, _record_files)(values, call, home)


def _download(values: Values, call: Call, home: Path) -> None:
    """What stands is not fetched again, whoever put it there; books that cannot be had are counted, as theirs does."""
    known = [*FETCHED] if values.dataset == "all" else ["bookscorpus", "wikicorpus_en"]
    named = [one for one in known if one != "wikicorpus_zh"] if values.dataset in ("all", BOTH) else [values.dataset]
    place, calls = home / "download", []
    for name in named:
        if (stands := place / (f"{name}/v1.1" if name == "squad" else name)).exists():
            call.notes.append(f"{stands}: stands, and is not fetched again")
            continue
        one = Call("fetch", words=[FETCHED[name], "--out", str(place)])
        one.words += ["--allow-missing"] if name == "bookscorpus" else []
        one.after.append(
            (lambda: _by_version(place / "squad"))
            if name == "squad"
            else lambda own=name: _link(place / own, place / FETCHED[own])  # type: ignore[misc]
        )
        calls.append(one)
    call.then = calls


def _by_version(place: Path) -> None:
    """squad/v1.1/train-v1.1.json, as theirs has it."""
    for path in sorted(place.glob("*-v[12].*")):
        version = path.stem.rpartition("-")[2]
        _link(place / version / path.name, path)


def _formatting(values: Values, call: Call, home: Path) -> None:
    if values.dataset not in ("wikicorpus_en", "bookscorpus"):
        raise UsageError("--dataset", f"found {values.dataset} with text_formatting", "wikicorpus_en or bookscorpus",
                         "`ordsmed corpus wikipedia source.path=DUMP out=FOLDER` reads other languages")  # fmt: skip
    call.verb = "corpus"
    if values.dataset == "bookscorpus":
        call.put("source", {"kind": "books", "path": str(home / "download" / "bookscorpus"), "broken": "skip"})
    else:
        read = home / ("extracted" if values.skip_wikiextractor else "download") / "wikicorpus_en"
        call.put("source", {"kind": "wikipedia", "path": str(read)})
    for key, value in (("shortest", 1), ("duplicates", "keep"), ("validation", 0.0)):
        call.put(key, value)
    call.put("out", str(_formatted(home, values.dataset)))


def _formatted(home: Path, dataset: str) -> Path:
    return home / "formatted_one_article_per_line" / dataset


def _sharded(values: Values, home: Path) -> Path:
    numbers = f"training_shards_{values.n_training_shards}_test_shards_{values.n_test_shards}"
    return home / f"sharded_{numbers}_fraction_{values.fraction_test_set}" / values.dataset


def _sharding(values: Values, call: Call, home: Path) -> None:
    """Articles and books whole, dealt out over files of equal length; of both corpora in each."""
    named = ["bookscorpus", "wikicorpus_en"] if values.dataset == BOTH else [values.dataset]
    if values.dataset not in (BOTH, "bookscorpus", "wikicorpus_en") and not values.input_files:
        raise UsageError("--dataset", f"found {values.dataset} with sharding", f"wikicorpus_en, bookscorpus or {BOTH}")
    sources = values.input_files.split(",") if values.input_files else [str(_formatted(home, one)) for one in named]
    if wrong := next((path for path in sources if Path(path).is_file()), None):
        raise UsageError("--input_files", f"found {wrong}, a file", "folders of corpora",
                         "`ordsmed corpus folder source.path=TEXTS out=FOLDER` makes one")  # fmt: skip
    out = _sharded(values, home)
    call.verb = "corpus shards"
    call.words = [*sources, str(out / "shards"), "--train", str(values.n_training_shards), "--test",
                  str(values.n_test_shards), "--fraction", str(values.fraction_test_set), "--anew"]  # fmt: skip
    call.after.append(lambda: _by_side(out))


def _by_side(out: Path) -> None:
    """train/ and test/ as theirs has them: links to the files; what was encoded of former ones goes."""
    for former in (out / "corpus", *out.glob("encoded_lower_case_*")):
        shutil.rmtree(former, ignore_errors=True)
    for side in ("train", "test"):
        shutil.rmtree(out / side, ignore_errors=True)
        for path in sorted((out / "shards").glob(f"{side}-*.txt")):
            _link(out / side / path.name, path)


def _record_files(values: Values, call: Call, home: Path) -> None:
    """Of both sides; what encodes them is kept, for records of another length."""
    case = f"lower_case_{values.do_lower_case}"
    out = home / f"tfrecord_{case}_seq_len_{values.max_seq_length}_random_seed_{values.random_seed}" / values.dataset
    shards, vocabulary = _sharded(values, home), values.vocab_file or str(home / "vocab.txt")
    lowercase = bool(values.do_lower_case) if "do_lower_case" in values.given else None
    for side, parts in (("train", values.n_training_shards), ("test", values.n_test_shards)):
        one = call if side == "train" else Call("encode records")
        one.verb, one.writes = "encode records", str(out / side)
        _records(one, str(shards / side), str(out / side), values.max_seq_length, parts, SEED)
        one.put("encode: tokenizer", _cased(one, vocabulary, lowercase, "--do_lower_case=0"))
        encoded = shards / f"encoded_{case}"
        kept = {"corpus": shards / "corpus" / side, "encode": encoded / side, "tokenizer": encoded / "tokenizer"}
        for name in kept.keys() & one.recipes.keys():
            one.put(f"{name}: out", str(kept[name]))
            one.kept[name] = perform.folder_for(kept[name])  # one recipe, whatever the length of the records
        if side == "test" and parts:
            call.then.append(one)


PRECISIONS = {"amp": "fp16", "tf32": "tf32", "fp32": "fp32"}
ACCUMULATED = {"true": True, "false": False}
BENCH_PRETRAINING = (
    Flag("train_batch_size_p1", 176, "table.cells", joint=True),
    Flag("precision", "amp", "layout.precision", joint=True),
    Flag("xla", "xla", "layout.compile", joint=True),
    Flag("num_gpus", 8, "table.devices", joint=True),
    Flag("accumulate_gradients", "true", "table.cells", joint=True),
    Flag("gradient_accumulation_steps_p1", 48, "table.cells", joint=True),
    Flag("train_batch_size_p2", 24, "table.cells", joint=True),
    Flag("gradient_accumulation_steps_p2", 144, "table.cells", joint=True),
    Flag("electra_model", "base", "model.size", joint=True),
)


def bench_pretraining(values: Values, call: Call) -> None:
    """Ten steps of each phase, on made-up rows: rows a second beside theirs."""
    name = "benchmark_pretraining.sh"
    precision, compiled = _precision(values, name), _one_of(values, name, "xla", {"xla": True, "no_xla": False})
    accumulates = _one_of(values, name, "accumulate_gradients", ACCUMULATED)
    table = run.read_table(run.find_recipe("electra-nvidia", "bench"), "bench")
    cells = []
    for length, rows, passes in (
        (128, values.train_batch_size_p1, values.gradient_accumulation_steps_p1),
        (512, values.train_batch_size_p2, values.gradient_accumulation_steps_p2),
    ):
        batch = rows * (passes if accumulates else 1)
        cells.append([f"length={length}", f"batch={batch}", f"layout.micro={rows}"])
    call.recipes["bench"] = table
    call.put("model.size", _one_of(values, name, "electra_model", {size: size for size in WIDTHS}))
    call.put("objective.generator", {"width": generator_width(values.electra_model, SHARE)})
    call.put("layout.precision", precision)
    call.put("layout.compile", compiled)
    call.put("table.cells", cells)
    call.put("table.devices", [values.num_gpus])
    call.gpus, call.devices = values.num_gpus, 0
    call.notes.append("a batch in the table is of one GPU; the table has rows a second of all of them")


BENCH_SQUAD = (
    Flag("mode", "train", "the recipe", joint=True),
    Flag("num_gpu", 8, "table.devices", joint=True),
    Flag("batch_size", 16, "batch", joint=True),
    Flag("infer_batch_size", int, "batches", joint=True),
    Flag("precision", "amp", "layout.precision", joint=True),
    Flag("squad_version", "1.1", "task.version", joint=True),
    Flag("squad_dir", str, "task.train", joint=True),
    Flag("out_dir", "results", nothing="a table is printed, and measurements.jsonl kept"),
    Flag("init_checkpoint", "None", "init", joint=True),
    Flag("cache_dir", str, nothing="a measurement keeps no examples"),
)


def bench_squad(values: Values, call: Call) -> None:
    """Steps of fine-tuning, or latencies; of made-up windows as long as SQuAD's, or of the data's folder if said."""
    name = "benchmark_squad.sh"
    mode, precision = _one_of(values, name, "mode", {"train": "train", "eval": "eval"}), _precision(values, name)
    table = run.read_table(run.find_recipe(f"squad-{mode}-nvidia", "bench"), "bench")
    call.recipes["bench"] = table
    call.put("layout.precision", precision)
    call.put("task.version", values.squad_version)
    if mode == "train":
        call.put("batch", values.batch_size)
        call.put("table.devices", [values.num_gpu])
        call.gpus, call.devices = values.num_gpu, 0
        call.notes.append("a batch in the table is of one GPU; the table has examples a second of all of them")
    else:
        batch = values.infer_batch_size or values.batch_size
        usual = {one: times for one, times in table["batches"]}
        call.put("batches", [[batch, usual.get(batch, 20)]])
        if values.num_gpu > 1:
            call.notes.append(f"{values.num_gpu} GPUs: one is asked, as theirs asks its first alone")
    if values.init_checkpoint not in NONE:
        call.put("init", _model_of(values.init_checkpoint)[0])
        call.recipes["bench"].pop("model", None)
    if values.squad_dir:
        call.put("task.train", str(Path(values.squad_dir) / f"train-v{values.squad_version}.json"))
        call.put("tokenizer", "vocab/vocab.txt")
    else:
        call.notes.append("windows are made up, as long as those of SQuAD 1.1; the 7th word names SQuAD's folder")


def _precision(values: Values, name: str) -> str:
    return str(_one_of(values, name, "precision", PRECISIONS))


def _one_of(values: Values, name: str, word: str, known: dict[str, Any]) -> Any:
    """What a word by its place means."""
    if (value := getattr(values, word)) not in known:
        raise UsageError(f"{name}: {word}", f"found {value}", ", ".join(known))
    return known[value]


PROGRAMS = (
    Program("run_pretraining.py", "pretrain an ELECTRA from records, a phase a call", PRETRAINING, pretraining,
            "pretrain"),
    Program("run_tf_squad.py", "fine-tune an ELECTRA on SQuAD, and predict", SQUAD, squad, "finetune"),
    Program("run_inference.py", "answer one question", INFERENCE, inference, "answer"),
    Program("postprocess_pretrained_ckpt.py", "the discriminator for Hugging Face", POSTPROCESSING, postprocessing,
            "export"),
    Program("build_pretraining_dataset.py", "records of ELECTRA's examples", BUILDING, building, "encode records",
            "data/build_pretraining_dataset.py"),
    Program("dataPrep.py", "a step of data: fetch, format, share out, write records", PREPARATION, preparation,
            path="data/dataPrep.py"),
    Program("benchmark_pretraining.sh", "rows a second of both phases", BENCH_PRETRAINING, bench_pretraining, "bench",
            "scripts/benchmark_pretraining.sh"),
    Program("benchmark_squad.sh", "examples a second on SQuAD, learning or asked", BENCH_SQUAD, bench_squad, "bench",
            "scripts/benchmark_squad.sh"),
)  # fmt: skip
