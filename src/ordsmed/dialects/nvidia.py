"""NVIDIA's ELECTRA for TensorFlow 2: pretraining in two phases, SQuAD with a joint head, its scripts and machines.

Defaults are those of its code; where its README says otherwise, the README is taken and the difference is told.
"""

from __future__ import annotations

from pathlib import Path

from ordsmed.base.arguments import UsageError
from ordsmed.translate.program import Call, Flag, Program, Values

WIDTHS = {"small": 256, "base": 768, "large": 1024}
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
    Flag("--restore_checkpoint", str, "init", joint=True),
    Flag("--phase2", False, "init", joint=True),
    Flag("--load_weights", False, "init", joint=True),
    Flag("--weights_dir", str, "init", joint=True),
    Flag("--steps_this_run", -1, refused="end it with `--deadline`, or with Ctrl-C: it is saved, and goes on later"),
    Flag("--skip_checkpoint", False, refused="a run keeps its last checkpoint: without it nothing could be made of it"),
    Flag("--log_dir", str, nothing=LOGS),
    Flag("--json-summary", str, nothing=LOGS),
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
    call.put("objective.generator", {"width": _generator(values)})
    call.put("data", "<encode>")
    call.put("encode: records", values.pretrain_tfrecords.split(","))
    call.put("validate", 0)
    _steps(values, call)
    _weights(values, call)
    call.put("layout.precision", "fp16" if values.amp else "fp32")
    if values.fp16_compression:
        call.put("layout.reduce", "fp16")


def _generator(values: Values) -> int:
    width = WIDTHS[values.model_size] * values.generator_hidden_size
    if width != int(width) or not 0 < values.generator_hidden_size <= 1:
        wanted = f"a share of {WIDTHS[values.model_size]} that is a whole number, such as 0.25"
        raise UsageError("--generator_hidden_size", f"found {values.generator_hidden_size:g}", wanted)
    return int(width)


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
    call.notes.append(f"a step is {values.train_batch_size} x {values.gradient_accumulation_steps} x "
                      f"{values.place.world} = {batch:,} rows")  # fmt: skip


def _weights(values: Values, call: Call) -> None:
    """Where it writes and what it begins with: a folder goes on by itself; phase 2 begins with that of phase 1."""
    first = Path(values.results_dir) / "models" / values.model_name
    restore = values.restore_checkpoint
    if values.phase2 and restore in (None, "", "false"):
        raise UsageError("--phase2", "found without --restore_checkpoint", "`--restore_checkpoint latest`, or a path")
    if values.load_weights:
        if restore:
            raise UsageError("--load_weights", "found with --restore_checkpoint", "one of the two")
        call.put("init", values.weights_dir or str(first / "weights"))
    call.put("out", f"{first}-phase2" if values.phase2 else str(first))
    if values.phase2:
        call.put("init", str(first) if restore == "latest" else restore)
    elif restore not in (None, "", "false", "latest"):
        call.put("init", restore)


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
    Flag("--gradient_accumulation_steps", 1, "batch", joint=True),
    Flag("--learning_rate", 1e-4, "rate"),
    Flag("--num_train_epochs", 3.0, "epochs", joint=True),
    Flag("--max_steps", -1, "steps", joint=True),
    Flag("--warmup_proportion", 0.1, "warmup"),
    Flag("--weight_decay_rate", 0.01, "optimizer.decay"),
    Flag("--layerwise_lr_decay", 0.8, "layer_decay"),
    Flag("--seed", 42, "seed"),
    Flag("--amp", False, "layout.precision", joint=True),
    Flag("--xla", False, "layout.compile"),
    Flag("--fp16_all_reduce", False, "layout.reduce", joint=True),
    Flag("--log_freq", 50, "log"),
    Flag("--no_cuda", False, "layout.device", joint=True),
    Flag("--vocab_file", str, "tokenizer", joint=True),
    Flag("--cache_dir", str, "features", joint=True),
    Flag("--skip_cache", False, "features", joint=True),
    Flag("--predict_batch_size", 8, nothing="windows are computed together as fits the device"),
    Flag("--verbose_logging", False, nothing=LOGS),
    Flag("--eval_script", str, nothing="official scores are our own, digit for digit"),
    Flag("--json-summary", str, nothing=LOGS),
    Flag("--disable-progress-bar", False, nothing="there is none where nobody looks"),
    Flag("--skip_checkpoint", False, nothing="the best checkpoint stays: it is the model"),
    Flag("--local_rank", int, nothing="the launcher's variables say it"),
    Flag("--use_env", False, nothing="the launcher's variables say it"),
    Flag("--ci", False, nothing=LOGS),
)


def squad(values: Values, call: Call) -> None:
    """Fine-tune, predict, or both: theirs does nothing without a --do_ flag."""
    version = "2.0" if values.version_2_with_negative else "1.1"
    if not values.do_train:
        _predictions(values, call, version)
        return
    if not values.output_dir:
        raise UsageError("run_tf_squad.py", "no --output_dir", "`--output_dir FOLDER`, where the run is kept")
    _truth(values, call)
    call.put("init", values.init_checkpoint or values.electra_model)
    call.put("out", values.output_dir)
    call.put("task.kind", "squad")
    call.put("task.version", version)
    call.put("task.head", "joint" if values.joint_head else "independent")
    if values.joint_head:
        call.put("task.form", "nvidia")
    call.put("task.train", _file(values, "train", values.train_file, version))
    if values.do_predict or values.do_eval:
        call.put("task.dev", _file(values, "dev", values.predict_file, version))
    call.put("batch", values.train_batch_size * values.gradient_accumulation_steps * values.place.world)
    call.put("layout.micro", values.train_batch_size)
    if values.max_steps > 0:
        call.put("steps", values.max_steps)
    else:
        call.put("epochs", values.num_train_epochs)
    call.put("optimizer.kind", "adamw")
    call.put("optimizer.flavour", "keras")
    call.put("optimizer.epsilon", 1e-6)
    call.put("layout.precision", "fp16" if values.amp else "fp32")
    if values.fp16_all_reduce:
        call.put("layout.reduce", "fp16")
    if values.no_cuda:
        call.put("layout.device", "cpu")
    if values.vocab_file:
        call.put("tokenizer", values.vocab_file)
    if values.skip_cache:
        call.put("features", "")
    elif values.cache_dir:
        call.put("features", values.cache_dir)


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
    if not values.init_checkpoint:
        raise UsageError("run_tf_squad.py", "no --init_checkpoint", "the fine-tuned model that is to predict")
    call.recipes.pop("finetune", None)
    call.verb = "predict"
    out = Path(values.output_dir or values.init_checkpoint) / "predictions"
    call.words = [values.init_checkpoint, _file(values, "dev", values.predict_file, version), str(out), "--anew"]
    call.notes.append(f"{out / 'predictions.json'}: what is predicted")
    for name, key in (("n_best_size", "n_best"), ("max_answer_length", "longest_answer"), ("beam_size", "beam"),
                      ("null_score_diff_threshold", "threshold")):  # fmt: skip
        if name in values.given:
            call.words.append(f"task.{key}={getattr(values, name)}")
    call.words += ["--scores"] if values.do_eval else []
    call.words += ["--precision", "fp16"] if values.amp else []


INFERENCE = (
    Flag("--electra_model", "google/electra-base-discriminator", nothing="the fine-tuned model says it"),
    Flag("--init_checkpoint", str, "the model's folder", joint=True),
    Flag("--question", str, "the question", joint=True),
    Flag("--context", str, "the context", joint=True),
    Flag("--joint_head", True, nothing="the fine-tuned model says it", valued=True),
    Flag("--beam_size", 4, "task.beam", joint=True),
    Flag("--n_best_size", 20, "task.n_best", joint=True),
    Flag("--max_answer_length", 30, "task.longest_answer", joint=True),
    Flag("--version_2_with_negative", False, nothing="the fine-tuned model says it"),
    Flag("--null_score_diff_threshold", 0.0, "task.threshold", joint=True),
    Flag("--do_lower_case", False, nothing="the model's tokenizer says it"),
    Flag("--max_seq_length", 384, "task.length", joint=True),
    Flag("--doc_stride", 128, "task.stride", joint=True),
    Flag("--max_query_length", 64, "task.longest_question", joint=True),
)


def inference(values: Values, call: Call) -> None:
    """One question of one context."""
    if not values.init_checkpoint:
        raise UsageError("run_inference.py", "no --init_checkpoint", "a fine-tuned model")
    if bool(values.question) != bool(values.context):
        raise UsageError("run_inference.py", f"no --{'context' if values.question else 'question'}", "both, or none")
    call.words = [values.init_checkpoint, *([values.question, values.context] if values.question else [])]
    call.words += [f"{flag.goes}={getattr(values, flag.key)}" for flag in INFERENCE
                   if flag.goes.startswith("task.") and flag.key in values.given]  # fmt: skip


POSTPROCESSING = (
    Flag("--pretrained_checkpoint", str, "the run", joint=True),
    Flag("--output_dir", str, "the folder that is written", joint=True),
    Flag("--amp", False, nothing="weights are kept in fp32"),
)


def postprocessing(values: Values, call: Call) -> None:
    """The discriminator of a run as a folder for Hugging Face; a checkpoint's file means its run at that step."""
    if not values.pretrained_checkpoint or not values.output_dir:
        missing = "--output_dir" if values.pretrained_checkpoint else "--pretrained_checkpoint"
        raise UsageError("postprocess_pretrained_ckpt.py", f"no {missing}", "a run, and a folder to write")
    place = Path(values.pretrained_checkpoint)
    step = []
    if place.parent.name == "checkpoints":
        step = ["--step", str(int(digits))] if (digits := place.name.split("-")[-1]).isdigit() else []
        place = place.parent.parent
    call.words = [str(place), values.output_dir, *step]


BUILDING = (
    Flag("--corpus-dir", str, "corpus: source.path", joint=True),
    Flag("--vocab-file", str, "encode: tokenizer", joint=True),
    Flag("--output-dir", str, "the folder that is written", joint=True),
    Flag("--max-seq-length", 128, "--length", joint=True),
    Flag("--num-processes", 1, "encode: processes"),
    Flag("--num-out-files", 1000, "--files", joint=True),
    Flag("--blanks-separate-docs", True, "corpus: source", joint=True, valued=True),
    Flag("--do-lower-case", False, nothing="the vocabulary's tokenizer says it", also=("--no-lower-case",)),
    Flag("--seed", 1314, "--seed", joint=True),
)


def building(values: Values, call: Call) -> None:
    """Records of ELECTRA's examples, of texts with a sentence a line."""
    for name in ("corpus_dir", "vocab_file", "output_dir"):
        if not getattr(values, name):
            raise UsageError("build_pretraining_dataset.py", f"no --{name.replace('_', '-')}", "a folder or file")
    if not values.blanks_separate_docs:
        raise UsageError("--blanks-separate-docs", "found False", "True", "write a blank line between documents")
    call.put("corpus: source", {"kind": "text", "path": values.corpus_dir})
    call.put("corpus: sentences", "lines")
    call.put("corpus: duplicates", "keep")
    call.put("corpus: validation", 0.0)
    call.put("encode: corpus", "<corpus>")
    call.put("encode: tokenizer", values.vocab_file)
    call.words = ["<encode>", values.output_dir, "rtd", "--length", str(values.max_seq_length), "--files",
                  str(values.num_out_files), "--seed", str(values.seed)]  # fmt: skip


PROGRAMS = (
    Program("run_pretraining.py", "pretrain an ELECTRA from records, a phase a call", PRETRAINING, pretraining,
            "pretrain"),
    Program("run_tf_squad.py", "fine-tune an ELECTRA on SQuAD, and predict", SQUAD, squad, "finetune"),
    Program("run_inference.py", "answer one question", INFERENCE, inference, "answer"),
    Program("postprocess_pretrained_ckpt.py", "the discriminator for Hugging Face", POSTPROCESSING, postprocessing,
            "export"),
    Program("build_pretraining_dataset.py", "records of ELECTRA's examples", BUILDING, building, "encode records",
            "data/build_pretraining_dataset.py"),
)  # fmt: skip
