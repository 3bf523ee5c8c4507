"""Google's BERT for TensorFlow 1: records, pretraining, sentence classification and question answering.

Its texts have a sentence per line and a blank line between documents. Its records contain no vocabulary: `vocab.txt` is
looked up in the folders of the records, of --init_checkpoint and of --bert_config_file.
"""

from __future__ import annotations

import glob
import shutil
from pathlib import Path
from typing import Any

from ordsmed.base import files, settings
from ordsmed.base.arguments import UsageError
from ordsmed.base.folder import kind_of_folder
from ordsmed.others.translate import perform
from ordsmed.others.translate.converters import SQUAD_VERSION, listed
from ordsmed.others.translate.lengths import check_length
from ordsmed.others.translate.program import Call, Flag, Program, Values, idle, joint
from ordsmed.others.translate.standing import check_tokenizer, put_start, run_of, task_arguments
from ordsmed.text.labelled import glue
from ordsmed.weights import foreign, google

TASKS = ("cola", "mnli", "mrpc", "sst-2", "qqp", "qnli", "rte", "xnli")
CHINESE = "zh"  # language of XNLI in the original's code
FITS = "the number of examples per batch is chosen by device memory"

MACHINES = (
    *idle(
        "devices are detected",
        "--use_tpu=False --tpu_name:str --tpu_zone:str --gcp_project:str --master:str --num_tpu_cores=8",
    ),
    Flag("--iterations_per_loop", 1000, nothing="the recipe sets when checkpoints are evaluated"),
)

RECORDS = (
    Flag("--input_file", str, "corpus: source.path", by=listed, required=True),
    Flag("--output_file", str, "output folder", joint=True, required=True),
    Flag("--vocab_file", str, "tokenizer: tokenizer.file", required=True),
    Flag("--do_lower_case", True, "tokenizer: tokenizer.lowercase"),
    Flag("--do_whole_word_mask", False, "unit", joint=True),
    Flag("--max_seq_length", 128, "--length"),
    Flag("--max_predictions_per_seq", 20, "most", joint=True),
    Flag("--masked_lm_prob", 0.15, "mask_prob", joint=True),
    Flag("--short_seq_prob", 0.1, "short", joint=True),
    Flag("--dupe_factor", 10, "--times"),
    Flag("--random_seed", 12345, "--seed"),
)


def records(values: Values, call: Call) -> None:
    options = [f"mask_prob={values.masked_lm_prob:g}", f"most={values.max_predictions_per_seq}"]
    options += [f"short={values.short_seq_prob:g}", *["unit=word"] * values.do_whole_word_mask]
    names = listed(values.output_file)
    call.writes = names[0]
    folder = perform.folder_for(names[0]) / "records"
    call.after.append(lambda: move_records(folder, [Path(name) for name in names]))
    call.words = ["<encode>", str(folder), "mlm_nsp", *options, *call.words, "--files", str(len(names)), "--anew"]


def move_records(folder: Path, targets: list[Path]) -> None:
    """Move the records to the named files. Copy the vocabulary next to the first one if none exists there."""
    for path, target in zip(sorted(folder.glob("*.tfrecord*")), targets, strict=True):
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(path, target)  # possibly on another file system
    if not (vocabulary := targets[0].parent / "vocab.txt").exists():
        shutil.copyfile(folder / "vocab.txt", vocabulary)


PRETRAINING = (
    Flag("--bert_config_file", str, "model", joint=True, required=True),
    Flag("--input_file", str, "encode: records", joint=True, required=True),
    Flag("--output_dir", str, "out", required=True),
    Flag("--init_checkpoint", str, "init", joint=True),
    Flag("--max_seq_length", 128, "phase.length"),
    Flag("--max_predictions_per_seq", 20, nothing="the records contain the masked positions"),
    Flag("--do_train", False, "pretrain", joint=True),
    Flag("--do_eval", False, "encode: validation_records", joint=True),
    Flag("--train_batch_size", 32, "phase.batch"),
    *joint("validation_rows", "--eval_batch_size=8 --max_eval_steps=100"),
    Flag("--learning_rate", 5e-5, "phase.learning_rate"),
    Flag("--num_train_steps", 100_000, "phase.steps"),
    Flag("--num_warmup_steps", 10_000, "phase.warmup"),
    Flag("--save_checkpoints_steps", 1000, "save"),
    *MACHINES,
)


def pretraining(values: Values, call: Call) -> None:
    """Pretrain a BERT from records, with Google's Adam and its schedule, which drops when the warmup ends."""
    if not values.do_train:
        problem = "found without --do_train" if values.do_eval else "missing, and --do_eval"
        flag = "--do_eval" if values.do_eval else "--do_train"
        wanted = "--do_train, which resumes the run in --output_dir and validates at its end"
        raise UsageError(flag, problem, wanted)
    config = files.read_table(Path(values.bert_config_file))
    if (activation := config.get("hidden_act")) in google.ACTIVATIONS:
        config["hidden_act"] = google.ACTIVATIONS[activation]  # Google's `gelu` is the tanh approximation
    call.put("model", dict(settings.without_defaults(foreign.meant("bert", config, Path(values.bert_config_file)))))
    if values.init_checkpoint:
        put_start(call, values.init_checkpoint)
    records = [inner for name in listed(values.input_file) for inner in _files(name)]
    call.put("encode: records", records)
    remedy = "create_pretraining_data.py with that --max_seq_length"
    call.before.append(lambda: check_length(records, values.max_seq_length, "--max_seq_length", remedy))
    paths = (listed(values.input_file)[0], values.init_checkpoint, values.bert_config_file)
    call.put("encode: tokenizer", str(_vocabulary(*paths)))
    if values.do_eval:
        call.put("encode: validation_records", records)  # the original also evaluates on its training data
        call.put("validation_rows", values.max_eval_steps * values.eval_batch_size)
        call.after.append(lambda: write_validation(Path(values.output_dir)))


ADAM = "optimizer.kind=adamw optimizer.variant=bert optimizer.epsilon=1e-6 optimizer.decay=0.01"


def _files(name: str) -> list[str]:
    """Return patterns for folders that `ordsmed encode records` wrote; return a file or pattern unchanged."""
    folders = [path for path in sorted(glob.glob(name)) if Path(path).is_dir()]
    return [f"{path}/*tfrecord*" for path in folders] or [name]


def write_validation(folder: Path) -> None:
    last = [line for line in files.read_lines(folder / "metrics.jsonl") if "validation" in line][-1]
    _write_results(
        folder,
        {
            "global_step": last["step"],
            "loss": last["validation"],
            "masked_lm_accuracy": last["mlm_right"],
            "masked_lm_loss": last["mlm"],
            "next_sentence_accuracy": last["pair_right"],
            "next_sentence_loss": last["pair"],
        },
    )


def _write_results(folder: Path, results: dict[str, Any]) -> None:
    files.write_text(folder / "eval_results.txt", "".join(f"{key} = {results[key]}\n" for key in sorted(results)))


def _vocabulary(*paths: str | None) -> Path:
    parents = [Path(path) if Path(path).is_dir() else Path(path).parent for path in paths if path]
    for folder in parents:
        if (folder / "vocab.txt").is_file():
            return folder / "vocab.txt"
    folders = ", ".join(dict.fromkeys(map(str, parents)))
    raise UsageError(
        "run_pretraining.py", f"no vocab.txt in {folders}", "a vocab.txt in the folder of the records or the checkpoint"
    )


LEARNING = (
    Flag("--bert_config_file", str, nothing="read from the folder of --init_checkpoint"),
    *joint("tokenizer", "--vocab_file:str --do_lower_case=True"),
    Flag("--init_checkpoint", str, "init", joint=True, required=True),
    Flag("--output_dir", str, "out", required=True),
    Flag("--do_train", False, "finetune", joint=True),
    Flag("--do_predict", False, "predict", joint=True),
    Flag("--train_batch_size", 32, "batch"),
    Flag("--predict_batch_size", 8, nothing=FITS),
    Flag("--learning_rate", 5e-5, "learning_rate"),
    Flag("--num_train_epochs", 3.0, "epochs"),
    Flag("--warmup_proportion", 0.1, "warmup"),
    Flag("--save_checkpoints_steps", 1000, "save"),
    *MACHINES,
)
CLASSES = (
    *LEARNING,
    Flag("--data_dir", str, "task.train", joint=True, required=True),
    Flag("--task_name", str, "task.name", joint=True, required=True),
    Flag("--max_seq_length", 128, "task.length"),
    Flag("--do_eval", False, "task.dev", joint=True),
    Flag("--eval_batch_size", 8, nothing=FITS),
)
QUESTIONS = (
    *LEARNING,
    Flag("--train_file", str, "task.train", joint=True),
    Flag("--predict_file", str, "task.dev", joint=True),
    Flag("--max_seq_length", 384, "task.length"),
    Flag("--doc_stride", 128, "task.stride"),
    Flag("--max_query_length", 64, "task.longest_question"),
    Flag("--n_best_size", 20, "task.n_best"),
    Flag("--max_answer_length", 30, "task.longest_answer"),
    Flag("--null_score_diff_threshold", 0.0, "task.threshold"),
    Flag("--version_2_with_negative", False, "task.version", by=SQUAD_VERSION),
    Flag("--verbose_logging", False, nothing="every run writes log.txt to its folder"),
)


def classes(values: Values, call: Call) -> None:
    name, out = values.task_name.lower(), Path(values.output_dir)
    if name not in TASKS:
        raise UsageError("--task_name", f"found {values.task_name}", ", ".join(TASKS))
    train, dev, test = (f"{values.data_dir}/{end}" for end in _splits(name, values))
    if not (values.do_train or values.do_eval or values.do_predict):
        raise UsageError("--do_train", "missing, as are the other --do_ flags", "at least one of them")
    calls = [call] if values.do_train else []
    call.put("task.name", name)
    if name == "xnli":
        call.put("task.language", CHINESE)
    task = [] if values.do_train else task_arguments(call.recipes["finetune"]["task"])
    if values.do_train:
        _put_finetuning(values, call)
        if name == "mrpc":
            call.put("task.unordered", False)
        call.put("task.train", train)
        if values.do_eval:
            call.put("task.dev", dev)
            call.after.append(lambda: write_scores(out, out / "scores.json"))
    elif values.do_eval:
        evaluation = _prediction(values, dev, out / "judged", [*task, "--scores"])
        evaluation.after.append(lambda: write_scores(out, out / "judged" / "scores.json"))
        calls.append(evaluation)
    if values.do_predict:
        predicted = _prediction(values, test, out / "predicted", task)
        predicted.after.append(lambda: write_classes(out))
        calls.append(predicted)
    _run_in_order(calls, call)


def _splits(name: str, values: Values) -> tuple[str, ...]:
    if name != "xnli":
        return "train.tsv", *(("dev_matched.tsv", "test_matched.tsv") if name == "mnli" else ("dev.tsv", "test.tsv"))
    if values.do_predict:
        raise UsageError("--do_predict", "found with XNLI", "--do_eval: the original has no test set of XNLI either")
    folder, known = Path(values.data_dir), glue.named(name).files
    defaults = {"train": "multinli/multinli.train.{}.tsv", "dev": "xnli.dev.tsv"}
    ends = [
        next((end for end in known[split] if (folder / end.format(CHINESE)).is_file()), path)
        for split, path in defaults.items()
    ]
    return *(end.format(CHINESE) for end in ends), ""


def write_scores(folder: Path, path: Path) -> None:
    """Write eval_results.txt with the scores between 0 and 1, like the original."""
    table = files.read_table(path)
    results = {f"eval_{key}": table[key] / 100 for key in ("accuracy", "f1", "matthews") if key in table}
    if "validation" in table:
        results |= {"eval_loss": table["validation"], "loss": table["validation"]}
    if table.get("step") is not None:
        results["global_step"] = table["step"]
    folder.mkdir(parents=True, exist_ok=True)
    _write_results(folder, results)


def write_classes(folder: Path) -> None:
    """Write test_results.tsv: one row of class probabilities per example, with the classes sorted by name."""
    head, *lines = (line.split("\t") for line in files.split_lines(folder / "predicted" / "predictions.tsv"))
    order = sorted(range(3, len(head)), key=lambda column: head[column])
    text = "".join("\t".join(line[column] for column in order) + "\n" for line in lines)
    files.write_text(folder / "test_results.tsv", text)


def questions(values: Values, call: Call) -> None:
    out = Path(values.output_dir)
    if not values.do_train and not values.do_predict:
        raise UsageError("--do_train", "missing, as is --do_predict", "at least one of them")
    if values.do_predict:
        values.require("--predict_file")
    if not values.do_train:
        task = task_arguments(call.recipes["finetune"]["task"])
        predicted = _prediction(values, values.predict_file, out / "predictions", task)
        predicted.after.append(lambda: copy_answers(out))
        _run_in_order([predicted], call)
        return
    values.require("--train_file")
    _put_finetuning(values, call)
    call.put("task.train", values.train_file)
    if values.do_predict:
        call.put("task.dev", values.predict_file)
        call.after.append(lambda: copy_answers(out))


def copy_answers(folder: Path) -> None:
    """Copy predictions.json, nbest_predictions.json and null_odds.json to the folder where the original writes them."""
    for path in sorted((folder / "predictions").glob("*.json")):
        if path.name != "scores.json":
            shutil.copyfile(path, folder / path.name)


def _prediction(values: Values, path: str, out: Path, words: list[str]) -> Call:
    """Return a call of `predict` for the model in --output_dir or, if that has none, --init_checkpoint."""
    model, step = values.output_dir, None
    call = Call("predict", writes=str(out))
    if not values.do_train and not kind_of_folder(model).run:
        model, step = run_of(values.init_checkpoint, call)
    if not values.do_train:
        lowercase = values.do_lower_case if values.says("--do_lower_case") else None
        check_tokenizer(call, model, values.vocab_file, lowercase)
    call.words = [model, path, str(out), "--anew", *words, *([] if step is None else ["--step", str(step)])]
    return call


def _run_in_order(calls: list[Call], call: Call) -> None:
    """Replace `call` by the first call, and run the other calls after it."""
    if calls[0] is not call:
        call.recipes.clear()
        first = calls[0]
        call.verb, call.words, call.writes, call.after = first.verb, first.words, first.writes, first.after
        call.before += first.before
        call.notes += first.notes
    call.then = calls[1:]


def _put_finetuning(values: Values, call: Call) -> None:
    put_start(call, values.init_checkpoint)
    if values.vocab_file:
        vocabulary = {"kind": "wordpiece", "file": values.vocab_file, "lowercase": values.do_lower_case}
        call.put("tokenizer: tokenizer", vocabulary)
        call.put("tokenizer", "<tokenizer>")
    elif values.says("--do_lower_case"):
        check_tokenizer(call, call.recipes["finetune"]["init"], None, values.do_lower_case)
    call.set(f"layer_decay=1.0 epoch_steps=records schedule.kind=linear schedule.since=jump {ADAM}")


INSTEAD = {
    "extract_features.py": "`ordsmed embed MODEL TEXT OUT.h5 --layers -1,-2,-3,-4` writes vectors of words",
    "run_classifier_with_tfhub.py": "`run_classifier.py`, with a checkpoint's folder instead of a TF Hub module",
}
PROGRAMS = (
    Program(
        "create_pretraining_data.py",
        "write records of BERT's examples",
        RECORDS,
        records,
        "encode records",
        absl=True,
        sets="corpus:source.kind=text corpus:sentences=lines corpus:duplicates=keep corpus:validation=0.0 "
        "encode:corpus=<corpus> encode:tokenizer=<tokenizer> tokenizer:tokenizer.kind=wordpiece",
    ),
    Program(
        "run_pretraining.py",
        "pretrain a BERT from records",
        PRETRAINING,
        pretraining,
        "pretrain",
        absl=True,
        sets="objective.kind=mlm_nsp objective.examples=masked data=<encode> validate=0 phase.pack=false "
        f"phase.schedule.kind=linear phase.schedule.since=jump {ADAM}",
    ),
    Program(
        "run_classifier.py",
        "fine-tune on a task of GLUE, and predict",
        CLASSES,
        classes,
        "finetune",
        absl=True,
        sets="task.kind=classify",
    ),
    Program(
        "run_squad.py",
        "fine-tune on SQuAD, and predict",
        QUESTIONS,
        questions,
        "finetune",
        absl=True,
        sets="task.kind=squad task.search=tops",
    ),
)
