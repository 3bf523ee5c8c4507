"""Google's BERT for TensorFlow 1: records, pretraining, sentences and questions.

Its texts have a sentence a line and a blank line between documents. Its records hold no vocabulary: `vocab.txt` is
looked for beside them, beside --init_checkpoint and beside --bert_config_file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ordsmed.base import files, menu, settings
from ordsmed.base.arguments import UsageError
from ordsmed.translate.program import Call, Flag, Program, Values

TPU = "which devices there are is seen"
TASKS = {"cola": "cola", "mnli": "mnli", "mrpc": "mrpc", "sst-2": "sst-2", "qqp": "qqp", "qnli": "qnli", "rte": "rte"}
STEPS = "checkpoints are judged as the recipe says"

MACHINES = (
    Flag("--use_tpu", False, nothing=TPU), Flag("--tpu_name", str, nothing=TPU), Flag("--tpu_zone", str, nothing=TPU),
    Flag("--gcp_project", str, nothing=TPU), Flag("--master", str, nothing=TPU),
    Flag("--num_tpu_cores", 8, nothing=TPU), Flag("--iterations_per_loop", 1000, nothing=STEPS),
)  # fmt: skip

RECORDS = (
    Flag("--input_file", str, "corpus: source.path", joint=True),
    Flag("--output_file", str, "the folder that is written", joint=True),
    Flag("--vocab_file", str, "encode: tokenizer", joint=True),
    Flag("--do_lower_case", True, "encode: tokenizer", joint=True),
    Flag("--do_whole_word_mask", False, "unit", joint=True),
    Flag("--max_seq_length", 128, "--length", joint=True),
    Flag("--max_predictions_per_seq", 20, "hide", joint=True),
    Flag("--masked_lm_prob", 0.15, "hide", joint=True),
    Flag("--short_seq_prob", 0.1, "short", joint=True),
    Flag("--dupe_factor", 10, "--times", joint=True),
    Flag("--random_seed", 12345, "--seed", joint=True),
)


def records(values: Values, call: Call) -> None:
    """Examples of pairs with their masks; a folder of records takes the place of the file."""
    _needs(values, "create_pretraining_data.py", "input_file", "output_file", "vocab_file")
    call.put("corpus: source", {"kind": "text", "path": values.input_file.split(",")})
    call.put("corpus: sentences", "lines")
    call.put("corpus: duplicates", "keep")
    call.put("corpus: validation", 0.0)
    call.put("encode: corpus", "<corpus>")
    call.put("encode: tokenizer", _tokenizer(values.vocab_file, values.do_lower_case, call))
    hide = min(values.masked_lm_prob, values.max_predictions_per_seq / values.max_seq_length)
    how = [f"hide={hide:g}", f"short={values.short_seq_prob:g}"]
    how += ["unit=word"] if values.do_whole_word_mask else []
    call.writes = values.output_file
    call.words = ["<encode>", values.output_file, "mlm_nsp", *how, "--length", str(values.max_seq_length),
                  "--times", str(values.dupe_factor), "--seed", str(values.random_seed)]  # fmt: skip


def _tokenizer(vocabulary: str, lower: bool, call: Call) -> str:
    """A vocabulary's file, read as the flag says."""
    call.put("tokenizer: tokenizer", {"kind": "wordpiece", "file": vocabulary, "lowercase": lower})
    return "<tokenizer>"


PRETRAINING = (
    Flag("--bert_config_file", str, "model", joint=True),
    Flag("--input_file", str, "encode: records", joint=True),
    Flag("--output_dir", str, "out", joint=True),
    Flag("--init_checkpoint", str, "init"),
    Flag("--max_seq_length", 128, "phase.length"),
    Flag("--max_predictions_per_seq", 20, nothing="records say which places are hidden"),
    Flag("--do_train", False, nothing="it trains"),
    Flag("--do_eval", False, "validate", joint=True),
    Flag("--train_batch_size", 32, "phase.batch"),
    Flag("--eval_batch_size", 8, nothing="rows are judged together as fits the device"),
    Flag("--max_eval_steps", 100, "validation_rows", joint=True),
    Flag("--learning_rate", 5e-5, "phase.rate"),
    Flag("--num_train_steps", 100_000, "phase.steps"),
    Flag("--num_warmup_steps", 10_000, "phase.warmup"),
    Flag("--save_checkpoints_steps", 1000, "save"),
    *MACHINES,
)


def pretraining(values: Values, call: Call) -> None:
    """Masked words and pairs of records, with Google's Adam and the jump of its schedule."""
    _needs(values, "run_pretraining.py", "bert_config_file", "input_file", "output_dir")
    call.put("model", _model(values.bert_config_file))
    call.put("objective.kind", "mlm_nsp")
    call.put("objective.examples", "masked")
    call.put("out", values.output_dir)
    call.put("data", "<encode>")
    call.put("encode: records", [_of_a_folder(name) for name in values.input_file.split(",")])
    beside = (values.input_file.split(",")[0], values.init_checkpoint, values.bert_config_file)
    call.put("encode: tokenizer", str(_vocabulary(*beside)))
    call.put("validate", 0)
    if values.do_eval:
        call.put("validation_rows", values.max_eval_steps * 8)
    call.put("phase.pack", False)
    call.put("phase.schedule", {"kind": "linear", "since": "jump"})
    _adam(call)


def _adam(call: Call) -> None:
    call.put("optimizer", {"kind": "adamw", "flavour": "bert", "epsilon": 1e-6, "decay": 0.01})


def _model(path: str) -> dict[str, Any]:
    """The settings of a bert_config.json."""
    network = menu.load("models", "bert").from_hugging_face(files.read_table(Path(path)))
    return dict(settings.changed(network))


def _of_a_folder(name: str) -> str:
    """What create_pretraining_data.py wrote is a folder here."""
    return f"{name}/*tfrecord*" if Path(name).is_dir() else name


def _vocabulary(*beside: str | None) -> Path:
    """The vocabulary that stands beside one of these."""
    looked = [Path(name) if Path(name).is_dir() else Path(name).parent for name in beside if name]
    for place in looked:
        if (place / "vocab.txt").is_file():
            return place / "vocab.txt"
    folders = ", ".join(dict.fromkeys(map(str, looked)))
    raise UsageError("run_pretraining.py", f"no vocab.txt in {folders}", "one beside the records or the checkpoint")


LEARNING = (
    Flag("--bert_config_file", str, nothing="the folder of --init_checkpoint says it"),
    Flag("--vocab_file", str, "tokenizer", joint=True),
    Flag("--init_checkpoint", str, "init", joint=True),
    Flag("--output_dir", str, "out", joint=True),
    Flag("--do_lower_case", True, "tokenizer", joint=True),
    Flag("--do_train", False, "finetune", joint=True),
    Flag("--do_predict", False, "predict", joint=True),
    Flag("--train_batch_size", 32, "batch"),
    Flag("--predict_batch_size", 8, nothing="examples are computed together as fits the device"),
    Flag("--learning_rate", 5e-5, "rate"),
    Flag("--num_train_epochs", 3.0, "epochs"),
    Flag("--warmup_proportion", 0.1, "warmup"),
    Flag("--save_checkpoints_steps", 1000, "save"),
    *MACHINES,
)
CLASSES = (
    *LEARNING,
    Flag("--data_dir", str, "task.train", joint=True),
    Flag("--task_name", str, "task.name", joint=True),
    Flag("--max_seq_length", 128, "task.length"),
    Flag("--do_eval", False, "task.dev", joint=True),
    Flag("--eval_batch_size", 8, nothing="examples are computed together as fits the device"),
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
    Flag("--version_2_with_negative", False, "task.version", joint=True),
    Flag("--null_score_diff_threshold", 0.0, "task.threshold"),
    Flag("--verbose_logging", False, nothing="every run writes log.txt into its folder"),
)


def classes(values: Values, call: Call) -> None:
    """A task of GLUE by its name."""
    _needs(values, "run_classifier.py", "task_name", "data_dir", "init_checkpoint", "output_dir")
    name = values.task_name.lower()
    if name not in TASKS:
        raise UsageError("--task_name", f"found {values.task_name}", ", ".join(TASKS))
    ends = {"mnli": "dev_matched.tsv"}
    train, dev = f"{values.data_dir}/train.tsv", f"{values.data_dir}/{ends.get(name, 'dev.tsv')}"
    if not values.do_train:
        _predictions(values, call, f"{values.data_dir}/test.tsv" if values.do_predict else dev,
                     scores=not values.do_predict)  # fmt: skip
        return
    _learning(values, call)
    call.put("task.kind", "classify")
    call.put("task.name", TASKS[name])
    call.put("task.train", train)
    if values.do_eval:
        call.put("task.dev", dev)


def questions(values: Values, call: Call) -> None:
    """SQuAD with starts and ends apart."""
    _needs(values, "run_squad.py", "init_checkpoint", "output_dir")
    if not values.do_train:
        _needs(values, "run_squad.py", "predict_file")
        _predictions(values, call, values.predict_file, scores=False)
        return
    _needs(values, "run_squad.py", "train_file")
    _learning(values, call)
    call.put("task.kind", "squad")
    call.put("task.version", "2.0" if values.version_2_with_negative else "1.1")
    call.put("task.search", "tops")
    call.put("task.train", values.train_file)
    if values.do_predict and values.predict_file:
        call.put("task.dev", values.predict_file)


def _learning(values: Values, call: Call) -> None:
    call.put("init", values.init_checkpoint)
    call.put("out", values.output_dir)
    if values.vocab_file:
        call.put("tokenizer", _tokenizer(values.vocab_file, values.do_lower_case, call))
    call.put("layer_decay", 1.0)
    call.put("schedule", {"kind": "linear", "since": "jump"})
    _adam(call)


def _predictions(values: Values, call: Call, path: str, *, scores: bool) -> None:
    """Of the model that stands in --output_dir, as theirs looks for its newest checkpoint there."""
    if not values.do_predict and not values.of.get("do_eval"):
        raise UsageError("--do_train", "missing, and every other --do_ flag", "one of them at least")
    call.recipes.pop("finetune", None)
    call.verb = "predict"
    call.words = [values.output_dir, path, f"{values.output_dir}/predictions", "--anew", *(["--scores"] * scores)]


def _needs(values: Values, program: str, *names: str) -> None:
    for name in names:
        if not getattr(values, name):
            raise UsageError(program, f"no --{name}", f"`--{name}=...`")


PROGRAMS = (
    Program("create_pretraining_data.py", "records of BERT's examples", RECORDS, records, "encode records", absl=True),
    Program("run_pretraining.py", "pretrain a BERT from records", PRETRAINING, pretraining, "pretrain", absl=True),
    Program("run_classifier.py", "fine-tune on a task of GLUE, and predict", CLASSES, classes, "finetune", absl=True),
    Program("run_squad.py", "fine-tune on SQuAD, and predict", QUESTIONS, questions, "finetune", absl=True),
)
