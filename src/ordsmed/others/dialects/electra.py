"""Google's ELECTRA for TensorFlow 1: records, pretraining, and fine-tuning on GLUE, SQuAD and chunking.

DATA/vocab.txt, openwebtext/, pretrain_tfrecords/   inputs of pretraining
DATA/finetuning_data/TASK/train.tsv, dev.tsv        inputs of fine-tuning
DATA/models/NAME/                                   a run of ordsmed, or a checkpoint of Google's, which is imported
DATA/models/NAME/finetuning_models/TASK_model_1/    a run of ordsmed
DATA/models/NAME/results/TASK_results.txt           its scores in the original's format; answers in TASK_qa/

Both training programs have their settings in the JSON table of --hparams: each key is a flag here.
"""

from __future__ import annotations

import functools
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from ordsmed.base import files, settings
from ordsmed.base.arguments import UsageError
from ordsmed.base.binary import bundle
from ordsmed.base.errors import nearest
from ordsmed.base.folder import kind_of_folder
from ordsmed.base.say import many
from ordsmed.learn.task import NO_SCORES
from ordsmed.others.translate import perform
from ordsmed.others.translate.lengths import check_length
from ordsmed.others.translate.program import Call, Flag, Program, Values, idle, joint, refused
from ordsmed.others.translate.standing import check_tokenizer, put_start, run_of, task_arguments
from ordsmed.weights import foreign

SIZES = {"small": (256, 12), "base": (768, 12), "large": (1024, 24)}  # width, layers
NETWORK = {  # the original's BertConfig
    "hidden_size": 0,
    "num_hidden_layers": 0,
    "num_attention_heads": 0,
    "intermediate_size": 0,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "initializer_range": 0.02,
    "vocab_size": 30522,
}
QUICK = {"num_train_steps": 20, "train_batch_size": 8, "num_eval_steps": 2, "eval_batch_size": 4}  # of debug
QUICK_NETWORK = {"num_hidden_layers": 3, "hidden_size": 144, "intermediate_size": 576, "num_attention_heads": 4}
ALL = 10**6  # checkpoints
ADAM = "optimizer.kind=adamw optimizer.variant=bert optimizer.epsilon=1e-6"
RECORDS_SETS = (
    "corpus:sentences=lines corpus:duplicates=keep corpus:validation=0.0 encode:corpus=<corpus> "
    "encode:tokenizer=<tokenizer> tokenizer:tokenizer.kind=wordpiece"
)
LOOP = "the training loop needs no such setting"
CASE = (
    Flag("--do-lower-case", True, "tokenizer: tokenizer.lowercase"),
    Flag("--no-lower-case", False, "tokenizer: tokenizer.lowercase", joint=True),
    *joint("tokenizer: tokenizer.strip_accents", "--do-strip-accents=True --no-strip-accents=False"),
)
RECORDS = (Flag("--max-seq-length", 128, "--length"), Flag("--num-processes", 1, "encode: processes", joint=True))
BUILDING = (
    Flag("--corpus-dir", str, "corpus: source.path", required=True),
    Flag("--vocab-file", str, "tokenizer: tokenizer.file", required=True),
    Flag("--output-dir", str, "output folder", joint=True, required=True),
    *RECORDS,
    Flag("--blanks-separate-docs", True, "corpus: source.apart", by={False: "file"}, valued=True),
    *CASE,
)
WEB = (
    Flag("--data-dir", str, "corpus: source.path", by=lambda folder: f"{folder}/openwebtext", required=True),
    *RECORDS,
    *CASE,
)


def building(values: Values, call: Call) -> None:
    call.put("corpus: source.kind", "text")
    if not values.blanks_separate_docs:
        call.notes.append(
            "--blanks-separate-docs False: each file is a document; the original reads the word False as true"
        )
    _records(values, call, values.output_dir)


def web(values: Values, call: Call) -> None:
    """Write records from the archives of OpenWebText; each page is a document."""
    call.put("corpus: source.kind", "tar")
    call.put("tokenizer: tokenizer.file", f"{values.data_dir}/vocab.txt")
    _records(values, call, f"{values.data_dir}/pretrain_tfrecords")


def _records(values: Values, call: Call, out: str) -> None:
    perform.put_processes(call, "--num-processes", values.num_processes, "encode: processes", "corpus: processes")
    for key in ("lower_case", "strip_accents"):
        if values.of[f"no_{key}"] or not values.of[f"do_{key}"]:
            call.put(f"tokenizer: tokenizer.{key.replace('_case', 'case')}", False)
    call.writes = out
    call.words = ["<encode>", out, "rtd", *call.words, "--files", "1000", "--anew"]


def _keys(*flags: Flag) -> tuple[Flag, ...]:
    return tuple(replace(flag, within="--hparams") for flag in flags)


RUN = (
    Flag("--data-dir", str, "folder of all files", joint=True, required=True),
    Flag("--model-name", str, "folder of the model", joint=True, required=True),
    Flag("--hparams", "{}", "each key is a flag", joint=True),
)
MACHINES = idle(
    "devices are detected", "use_tpu=False num_tpu_cores=1 tpu_job_name:str tpu_name:str tpu_zone:str gcp_project:str"
)
PRETRAINING = (
    *RUN,
    *_keys(
        *joint("model", "debug=False model_size=small"),
        Flag("do_train", True, "pretrain", joint=True),
        Flag("do_eval", False, "encode: validation_records", joint=True),
        Flag("electra_objective", True, refused="masked language models: `ordsmed as google run_pretraining.py`"),
        Flag("electric_objective", False, refused="leave it out: ordsmed has no Electric, only ELECTRA"),
        Flag("gen_weight", 1.0, "objective.guess_weight"),
        Flag("disc_weight", 50.0, "objective.detect_weight"),
        Flag("mask_prob", 0.15, "objective.mask_prob"),
        Flag("learning_rate", 5e-4, "phase.learning_rate", joint=True),
        Flag("lr_decay_power", 1.0, "phase.schedule", joint=True),
        Flag("weight_decay_rate", 0.01, "optimizer.decay"),
        Flag("num_warmup_steps", 10_000, "phase.warmup", joint=True),
        Flag("iterations_per_loop", 200, nothing=LOOP),
        Flag("save_checkpoints_steps", 1000, "save"),
        Flag("num_train_steps", 1_000_000, "phase.steps", joint=True),
        *joint("validation_rows", "num_eval_steps=100 eval_batch_size=128"),
        Flag("keep_checkpoint_max", 5, "keep", by=lambda count: count or ALL),
        Flag("model_hparam_overrides", {}, "model", joint=True),
        Flag("embedding_size", int, "model.embedding", joint=True),
        Flag("vocab_size", 30522, nothing="read from the vocabulary"),
        Flag("do_lower_case", True, "tokenizer: tokenizer.lowercase"),
        Flag("uniform_generator", False, refused="leave it out: the generator is always trained"),
        Flag("two_tower_generator", False, refused="leave it out: it belongs to Electric, which ordsmed does not have"),
        *joint("objective.share", "untied_generator_embeddings=False untied_generator=True"),
        Flag("generator_layers", 1.0, "objective.generator.layers", joint=True),
        Flag("generator_hidden_size", 0.25, "objective.generator.width", joint=True),
        Flag("disallow_correct", False, "objective.never_right"),
        Flag("temperature", 1.0, "objective.temperature"),
        Flag("max_seq_length", 128, "phase.length"),
        Flag("train_batch_size", 128, "phase.batch", joint=True),
        *MACHINES,
        Flag("pretrain_tfrecords", str, "encode: records", joint=True),
        Flag("vocab_file", str, "tokenizer: tokenizer.file", joint=True),
        Flag("model_dir", str, "out", joint=True),
        *idle("the original writes nothing to it either: no scores in pretraining", "results_txt:str results_pkl:str"),
    ),
)


def pretraining(values: Values, call: Call) -> None:
    """Pretrain with replaced-token detection from records, or resume an existing run."""
    if not values.do_train:
        raise UsageError("--hparams do_train", "found false", "true; with do_eval the training ends with an evaluation")
    out = values.model_dir or f"{values.data_dir}/models/{values.model_name}"
    if not kind_of_folder(out).made and bundle.find(Path(out)):
        remedy = f"`--model-name NEW`, and `init={out}` after the flags, starts from its weights at step 1"
        raise UsageError(out, "holds a TensorFlow checkpoint", "a run of ordsmed, or a new folder", remedy)
    model = _network(values)
    embedding = values.embedding_size or (128 if values.model_size == "small" else model["hidden_size"])
    path = Path("--hparams model_hparam_overrides")
    call.put(
        "model", dict(settings.without_defaults(foreign.meant("electra", {**model, "embedding_size": embedding}, path)))
    )
    if not values.untied_generator:
        call.put("objective.share", "all")
    else:
        width = round(model["hidden_size"] * values.generator_hidden_size)
        layers = round(model["num_hidden_layers"] * values.generator_layers)
        for key, size in (("generator_hidden_size", width), ("generator_layers", layers)):
            if size < 1:
                raise UsageError(f"--hparams {key}", f"found {values.of[key]:g}", "a share that gives 1 or more")
        call.put("objective.generator", {"width": width, "layers": layers})
        call.put("objective.share", "none" if values.untied_generator_embeddings else "embeddings")
    records = values.pretrain_tfrecords or f"{values.data_dir}/pretrain_tfrecords/pretrain_data.tfrecord*"
    call.put("encode: records", records)
    flag, remedy = "--hparams max_seq_length", "build_pretraining_dataset.py with that --max-seq-length"
    call.before.append(lambda: check_length([records], values.max_seq_length, flag, remedy))
    if values.do_eval:
        call.put("encode: validation_records", records)  # the original also evaluates on its training data
        steps, rows = (_size(values, name) for name in ("num_eval_steps", "eval_batch_size"))
        call.put("validation_rows", steps * rows)
    call.put("tokenizer: tokenizer.file", values.vocab_file or f"{values.data_dir}/vocab.txt")
    call.put("out", out)
    _put_steps(values, call)
    if values.debug:
        call.words = ["--anew"]  # the original also empties the folder


def _put_steps(values: Values, call: Call) -> None:
    """Set steps and learning rate. If the warmup is longer than the training, set the learning rate reached by then."""
    steps, batch = (_size(values, name) for name in ("num_train_steps", "train_batch_size"))
    rate, warmup = values.learning_rate, values.num_warmup_steps
    if warmup > steps:
        call.notes.append(
            f"{many(warmup, 'step')} of warmup exceed the {steps:,} of training, which ends at a lower learning rate"
        )
        rate, warmup = rate * steps / warmup, steps
    power = values.lr_decay_power
    schedule = {"kind": "linear"} if power == 1 else {"kind": "polynomial", "power": power}
    phase = {
        "steps": steps,
        "batch": batch,
        "learning_rate": rate,
        "warmup": warmup,
        "schedule": schedule | {"since": "start"},
    }
    for key, value in phase.items():
        call.put(f"phase.{key}", value)


def _size(values: Values, name: str) -> int:
    """Return a flag's number of steps or rows; its smaller default if `debug` is set."""
    return int(QUICK[name] if values.debug and name not in values.explicit else values.of[name])


def _network(values: Values) -> dict[str, Any]:
    if values.model_size not in SIZES:
        raise UsageError("--hparams model_size", f"found {values.model_size}", ", ".join(SIZES))
    overrides = values.model_hparam_overrides or {}
    for name in overrides:
        if name not in NETWORK:
            raise UsageError("--hparams model_hparam_overrides", f"has no key `{name}`", "", nearest(name, NETWORK))
    sizes = dict(zip(("hidden_size", "num_hidden_layers"), SIZES[values.model_size], strict=True))
    known = NETWORK | sizes | overrides
    width = known["hidden_size"]
    if not isinstance(width, int):
        raise UsageError("--hparams model_hparam_overrides", f"hidden_size: found {width}", "a whole number")
    known |= {"num_attention_heads": max(1, width // 64), "intermediate_size": 4 * width} | overrides
    return known | (QUICK_NETWORK if values.debug else {})


GLUE = {
    "cola": "cola",
    "mrpc": "mrpc",
    "mnli": "mnli",
    "sst": "sst-2",
    "rte": "rte",
    "qnli": "qnli",
    "qqp": "qqp",
    "sts": "sts-b",
}
SQUAD = {"squad": "2.0", "squadv1": "1.1"}
TASKS = (*GLUE, *SQUAD, "chunk")
UNORDERED = ("mrpc", "sts")
OUR_NAMES = {"mcc": "matthews", "loss": "validation"}  # scores that have another name here
SCORES = {
    "cola": ("mcc", "loss"),
    "sts": ("pearson", "spearman", "loss"),
    "chunk": ("precision", "recall", "f1", "loss"),
}
QA_RESULTS = {"qa_preds_file": "preds", "qa_na_file": "null_odds", "qa_eval_file": "eval"}
FINETUNING = (
    *RUN,
    *_keys(
        Flag("debug", False, refused="add `steps=20` after the flags for a short training"),
        Flag("log_examples", False, nothing="`ordsmed show` shows examples"),
        Flag("num_trials", 1, "seeds", joint=True),
        Flag("do_train", True, "finetune", joint=True),
        Flag("do_eval", True, "task.dev", joint=True),
        Flag("keep_all_models", True, nothing="every trial keeps its weights"),
        Flag("model_size", "small", "learning_rate, layer_decay", joint=True, one_of=tuple(SIZES)),
        Flag("task_names", ["chunk"], "task", joint=True),
        Flag("model_hparam_overrides", {}, nothing="read from the model"),
        *idle("read from the model", "embedding_size:int vocab_size=30522"),
        Flag("do_lower_case", True, "tokenizer: tokenizer.lowercase", joint=True),
        Flag("learning_rate", 1e-4, "learning_rate", joint=True),
        Flag("weight_decay_rate", 0.01, "optimizer.decay"),
        Flag("layerwise_lr_decay", 0.8, "layer_decay", joint=True),
        Flag("num_train_epochs", 3.0, "epochs", joint=True),
        Flag("warmup_proportion", 0.1, "warmup"),
        Flag("save_checkpoints_steps", 1_000_000, "save"),
        Flag("iterations_per_loop", 1000, nothing=LOOP),
        *joint("features", "use_tfrecords_if_existing=True preprocessed_data_dir:str"),
        Flag("write_test_outputs", False, refused="use `ordsmed predict MODEL FILE... OUT` on the test files"),
        *idle("`ordsmed predict` predicts test files", "n_writes_test=5 test_predictions:str"),
        Flag("max_seq_length", 128, "task.length", joint=True),
        Flag("train_batch_size", 32, "batch"),
        *idle("the number of rows per batch is chosen by device memory", "eval_batch_size=32 predict_batch_size=32"),
        Flag("double_unordered", True, "task.unordered", joint=True),
        Flag("max_query_length", 64, "task.longest_question", joint=True),
        Flag("doc_stride", 128, "task.stride", joint=True),
        Flag("n_best_size", 20, "task.n_best", joint=True),
        Flag("max_answer_length", 30, "task.longest_answer", joint=True),
        *refused(
            "leave it out: a classifier always decides this",
            "answerable_classifier=True answerable_uses_start_logits=True",
        ),
        Flag("answerable_weight", 0.5, "task.answerable_weight", joint=True),
        Flag("joint_prediction", True, "task.head", joint=True),
        Flag("beam_size", 20, "task.beam", joint=True),
        Flag("qa_na_threshold", -2.75, "task.threshold", joint=True),
        *MACHINES,
        Flag("raw_data_dir", str, refused="leave it out, and give the files by `task.train=...` after the flags"),
        Flag("vocab_file", str, "tokenizer: tokenizer.file", joint=True),
        Flag("init_checkpoint", str, "init", joint=True),
        Flag("model_dir", str, "out", joint=True),
        Flag("results_txt", str, "file of scores", joint=True),
        Flag("results_pkl", str, nothing="scores are in results_txt and in OUT/scores.json"),
        Flag("qa_eval_file", str, "file of question answering scores", joint=True),
        Flag("qa_preds_file", str, "file of answers", joint=True),
        Flag("qa_na_file", str, "file of null odds", joint=True),
    ),
)


def finetuning(values: Values, call: Call) -> None:
    """Fine-tune on one task, always in a new run, and evaluate on its validation file."""
    task = _task_name(values)
    if values.num_trials < 1:
        raise UsageError("--hparams num_trials", f"found {values.num_trials}", "1 or more")
    if not values.do_train and not values.do_eval:
        raise UsageError("--hparams do_train", "found false, and do_eval false", "at least one of them true")
    top = Path(values.data_dir) / "models" / values.model_name
    several = values.num_trials > 1
    out = f"{values.model_dir or f'{top}/finetuning_models/{task}_model'}{'' if several else '_1'}"
    out = values.out_override or out if values.do_train else out
    if values.do_eval:
        call.after.append(functools.partial(_write_results, values, task, top, Path(out)))
        values.read_later("results_txt", *(QA_RESULTS if task in SQUAD else ()))
    ending = "txt" if task == "chunk" else "json" if task in SQUAD else "tsv"
    folder = Path(values.data_dir) / "finetuning_data" / task
    dev = str(folder / f"{'dev_matched' if task == 'mnli' else 'dev'}.{ending}")
    if not values.do_train:
        head = ["head"] if values.says("joint_prediction") else []
        words = task_arguments(_task(values, task), *head)
        _put_evaluation(values, call, out, [dev, f"{out}/predicted", "--scores", "--anew", *words])
        return
    if values.init_checkpoint:
        put_start(call, values.init_checkpoint)
    else:
        call.put("init", str(top))
    call.put("out", out)
    call.put("task", _task(values, task) | {"train": str(folder / f"train.{ending}")})
    if values.do_eval:
        call.put("task.dev", dev)
    if several:
        call.put("seeds", list(range(1, values.num_trials + 1)))
    if values.vocab_file:
        chosen = {"kind": "wordpiece", "file": values.vocab_file, "lowercase": values.do_lower_case}
        call.put("tokenizer: tokenizer", chosen)
        call.put("tokenizer", "<tokenizer>")
    elif "do_lower_case" in values.explicit:
        check_tokenizer(call, call.recipes["finetune"]["init"], None, values.do_lower_case)
    if not values.use_tfrecords_if_existing:
        call.put("features", "")
    elif values.preprocessed_data_dir:
        call.put("features", values.preprocessed_data_dir)
    _put_learning_rate(values, call, task)
    call.words = ["--anew"]  # the original also empties the folder


def _put_evaluation(values: Values, call: Call, out: str, words: list[str]) -> None:
    model, step = run_of(values.init_checkpoint, call) if values.init_checkpoint else (out, None)
    check_tokenizer(call, model, values.vocab_file, values.do_lower_case if values.says("do_lower_case") else None)
    call.verb = "predict"
    call.recipes.clear()
    call.words = [model, *words, *([] if step is None else ["--step", str(step)])]


def _task_name(values: Values) -> str:
    """Return the name of the task. Raise an error for several tasks, which the original trains with one network."""
    names = values.task_names or []
    for name in names:
        if name not in TASKS:
            raise UsageError("--hparams task_names", f"found `{name}`", "a task", nearest(str(name), TASKS))
    if len(names) != 1:
        remedy = "call the program once per task: a network is trained on one task"
        raise UsageError("--hparams task_names", f"found {many(len(names), 'task')}", "one", remedy)
    return str(names[0])


def _task(values: Values, task: str) -> dict[str, Any]:
    default = 256 if task == "chunk" else 512 if task in SQUAD else 128
    length = values.max_seq_length if "max_seq_length" in values.explicit else default
    if task == "chunk":
        return {"kind": "tag", "column": -1, "scheme": "IOBES", "length": length}
    if task in GLUE:
        double = {"unordered": values.double_unordered} if task in UNORDERED and values.do_train else {}
        return {"kind": "classify", "name": GLUE[task], "length": length} | double
    joint = {"head": "joint", "form": "google", "beam": values.beam_size}
    unanswerable = {"threshold": values.qa_na_threshold} if task == "squad" else {}
    if unanswerable and values.do_train:
        unanswerable["answerable_weight"] = values.answerable_weight
    return (
        {
            "kind": "squad",
            "version": SQUAD[task],
            "length": length,
            "stride": values.doc_stride,
            "longest_question": values.max_query_length,
            "n_best": values.n_best_size,
            "longest_answer": values.max_answer_length,
        }
        | (joint if values.joint_prediction else {"head": "independent", "search": "tops"})
        | unanswerable
    )


def _put_learning_rate(values: Values, call: Call, task: str) -> None:
    """Set learning rate, layer-wise decay and epochs; the original's defaults depend on size and task."""
    large = values.model_size == "large"
    defaults = {
        "learning_rate": 5e-5 if large else 1e-4,
        "layerwise_lr_decay": 0.9 if large else 0.8,
        "num_train_epochs": 10.0 if task in ("rte", "sts") else 2.0 if task in SQUAD else 3.0,
    }
    chosen = {key: values.of[key] if key in values.explicit else value for key, value in defaults.items()}
    call.put("learning_rate", chosen["learning_rate"])
    call.put("layer_decay", chosen["layerwise_lr_decay"] if chosen["layerwise_lr_decay"] > 0 else 1.0)
    call.put("epochs", chosen["num_train_epochs"])
    call.set(f"epoch_steps=up schedule.kind=linear schedule.since=start {ADAM}")


def _write_results(values: Values, task: str, top: Path, out: Path) -> None:
    """Write scores, with a line per trial, and answers to the original's files."""
    trained = values.do_train
    trials = [out]
    if trained and values.num_trials > 1:
        trials = sorted((out / "trials").glob("*/"), key=lambda trial: int(trial.name.rpartition("-")[2]))  # seed-10
    lines = []
    for trial in trials:
        scores = files.read_table(trial / ("scores.json" if trained else "predicted/scores.json"))
        lines.append(f"{task}: " + " - ".join(f"{name}: {value:.2f}" for name, value in _renamed(task, scores).items()))
    results = Path(values.results_txt or top / "results" / f"{task}_results.txt")
    results.parent.mkdir(parents=True, exist_ok=True)
    files.write_text(results, "\n".join([*lines, ""]))
    if task in SQUAD:
        answers = trials[-1] / ("predictions" if trained else "predicted")
        _write_answers(values, task, top / "results" / f"{task}_qa", answers, _renamed(task, scores))


def _renamed(task: str, scores: dict[str, Any]) -> dict[str, float]:
    if task in SQUAD:
        omitted = (*NO_SCORES, "validation", *(["exact_match"] if task == "squad" else []))
        return {name: value for name, value in sorted(scores.items()) if name not in omitted}
    named = {name: scores.get(OUR_NAMES.get(name, name)) for name in SCORES.get(task, ("accuracy", "loss"))}
    return {name: value for name, value in named.items() if value is not None}


def _write_answers(values: Values, task: str, folder: Path, source: Path, scores: dict[str, float]) -> None:
    target = {
        key: Path((values.of[key] or f"{folder}/{{}}_{name}.json").format(task)) for key, name in QA_RESULTS.items()
    }
    for path in target.values():
        path.parent.mkdir(parents=True, exist_ok=True)
    files.write_json(target["qa_eval_file"], scores)
    for key, name in (("qa_preds_file", "predictions.json"), ("qa_na_file", "null_odds.json")):
        if (source / name).exists():
            shutil.copyfile(source / name, target[key])


INSTEAD = {"flops_computation.py": "`ordsmed estimate RECIPE` counts floating-point operations"}
PROGRAMS = (
    Program(
        "build_pretraining_dataset.py",
        "write records of ELECTRA's examples",
        BUILDING,
        building,
        "encode records",
        sets=RECORDS_SETS,
    ),
    Program(
        "build_openwebtext_pretraining_dataset.py",
        "write records of ELECTRA's examples from OpenWebText's archives",
        WEB,
        web,
        "encode records",
        sets=RECORDS_SETS,
    ),
    Program(
        "run_pretraining.py",
        "pretrain an ELECTRA from records",
        PRETRAINING,
        pretraining,
        "pretrain",
        sets="objective.kind=rtd objective.examples=given data=<encode> encode:tokenizer=<tokenizer> "
        f"tokenizer:tokenizer.kind=wordpiece validate=0 phase.pack=false {ADAM}",
    ),
    Program("run_finetuning.py", "fine-tune on a task of GLUE, SQuAD or chunking", FINETUNING, finetuning, "finetune"),
)
