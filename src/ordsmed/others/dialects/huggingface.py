"""The example scripts of Hugging Face's transformers: masked and causal language models, GLUE, questions, tags.

Their flags are fields of three dataclasses; those of TrainingArguments are of versions 4 and 5 together. At the end
output_dir has the files of the original scripts: config.json, model.safetensors, the tokenizer, and *_results.json.
"""

from __future__ import annotations

import contextlib
import csv
import functools
import glob
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

from ordsmed.base import files, hub, menu, settings
from ordsmed.base.arguments import UsageError
from ordsmed.base.errors import nearest
from ordsmed.base.folder import kind_of_folder
from ordsmed.base.keys import value_key
from ordsmed.base.say import many
from ordsmed.base.screen import command
from ordsmed.data.tokenizer_training import read_tokenizer
from ordsmed.others.translate import fewer, perform, tagged_words, trainer
from ordsmed.others.translate.converters import SQUAD_VERSION, unless_empty
from ordsmed.others.translate.program import BOOLEANS, Call, Flag, Program, Table, Values, idle, joint, refused
from ordsmed.others.translate.standing import put_start, run_of, task_arguments
from ordsmed.text import read
from ordsmed.text.labelled import glue
from ordsmed.text.labelled.tables import table
from ordsmed.weights import foreign

FETCHED = {  # data sets of the hub that `ordsmed fetch` downloads: their training and validation files
    "squad": ("squad/train-v1.1.json", "squad/dev-v1.1.json"),
    "squad_v2": ("squad/train-v2.0.json", "squad/dev-v2.0.json"),
    **{
        f"wikitext {name}-v1": (f"wikitext/{name}/wiki.train.{end}", f"wikitext/{name}/wiki.valid.{end}")
        for name, end in (
            ("wikitext-2-raw", "raw"),
            ("wikitext-103-raw", "raw"),
            ("wikitext-2", "tokens"),
            ("wikitext-103", "tokens"),
        )
    },
}
ALL_ROWS = 10**9  # the original validates on all rows
LONGEST = 1024  # tokens per row if the tokenizer has no limit, as in the original
LONGEST_OF_WORDS = 512  # tokens per row of token classification; longer sentences are read in windows
NO_LIMIT = 10**9
ADAMS = ("adamw_torch", "adamw_torch_fused", "adamw_hf", "adamw_torch_xla", "adamw_torch_npu_fused", "adamw_apex_fused")
OPTIMIZERS = {**dict.fromkeys(ADAMS, "adamw"), "adagrad": "adagrad", "stable_adamw": "stableadamw"}
GLUE_NAMES = {"sst2": "sst-2", "stsb": "sts-b"}
NAMES = {
    "matthews": "matthews_correlation",
    "spearman": "spearmanr",
    "squared_error": "mse",
    "exact": "exact_match",
    "validation": "loss",
}
COMBINED = ("mrpc", "qqp", "sts-b")  # tasks for which the original also reports the mean of the two scores
NETWORK = "nothing is downloaded"
REMOTE_DEBUGGING = idle("ordsmed has no remote debugging", "--server_ip= --server_port=")
FILES_ONLY = refused(f"{NETWORK}: give the files by --train_file", "--dataset_name:str --dataset_config_name:str")
CORES = "texts are read by one thread per core"
MASKS = "objective.kind=mlm objective.swap_from=all objective.rounding=chance"
MASKED_TYPES = ("bert", "roberta", "distilbert", "camembert")  # model types that require --mlm

MODELS = (
    Flag("--model_name_or_path", str, "init", joint=True),
    Flag("--tokenizer_name", str, "tokenizer", joint=True),
    *idle(NETWORK, "--cache_dir:str --token:str --use_auth_token:bool"),
    Flag("--model_revision", "main", refused="give the folder of that revision"),
    Flag("--use_fast_tokenizer", True, nothing="ordsmed has only one kind of tokenizer"),
    Flag("--trust_remote_code", False, nothing="code in a model's folder is never run"),
    Flag(
        "--dtype",
        "float32",
        refused="leave it out: weights are stored in fp32; --bf16 computes in 16 bits",
        also=("--torch_dtype",),
    ),
    Flag("--low_cpu_mem_usage", False, nothing="weights are always read one tensor at a time"),
)
SAMPLES = "give a shorter file, made with `head -n 1000`"
DATA = (
    Flag("--overwrite_cache", False, nothing="caches of other files, flags or tokenizers have other folders"),
    Flag("--pad_to_max_length", bool, nothing="padding is never computed"),
)
TEXTS = (
    Flag("--model_type", str, "model.kind", joint=True),
    *joint("model", "--config_name:str --config_overrides:str"),
    *MODELS,
    *DATA,
    Flag("--max_train_samples", int, refused=SAMPLES),
    *joint("corpus: source", "--dataset_name:str --dataset_config_name:str --train_file:str"),
    Flag("--validation_file", str, "corpus: given.validation", joint=True),
    Flag("--validation_split_percentage", 5, "corpus: validation", joint=True),
    Flag("--preprocessing_num_workers", int, "corpus: processes", joint=True),
    Flag("--max_eval_samples", int, "validation_rows", by=unless_empty),
    Flag("--streaming", False, nothing="a corpus of any size is tokenized once and read from disk"),
    *trainer.arguments("phase.", "validate"),
)
MASKED = (
    Flag("--max_seq_length", int, "phase.length", joint=True),
    Flag("--mlm_probability", 0.15, "objective.mask_prob"),
    Flag("--line_by_line", False, "corpus: source.apart", joint=True),
    *TEXTS,
)
PERMUTATIONS = "it belongs to XLNet, which ordsmed does not have"
OLD = (  # the program that was later split into run_mlm.py and run_clm.py
    *joint("corpus: source", "--train_data_file:str --train_data_files:str"),
    Flag("--eval_data_file", str, "corpus: given.validation", joint=True),
    Flag("--mlm", False, "objective.kind", joint=True),
    Flag("--mlm_probability", 0.15, "objective.mask_prob", needs="--mlm"),
    Flag("--whole_word_mask", False, "objective.unit", by={True: "word"}, needs="--mlm"),
    Flag("--line_by_line", False, "corpus: source.apart", joint=True),
    Flag("--block_size", -1, "phase.length", joint=True),
    *refused(
        "leave it out: `objective.unit=word` after the flags masks whole words",
        "--train_ref_file:str --eval_ref_file:str",
    ),
    Flag("--plm_probability", 1 / 6, nothing=PERMUTATIONS),
    Flag("--max_span_length", 5, nothing=PERMUTATIONS),
    Flag("--evaluate_during_training", False, "validate", joint=True),
    Flag("--model_type", str, "model.kind", joint=True),
    Flag("--config_name", str, "model", joint=True),
    *MODELS,
    *DATA,
    *trainer.arguments("phase.", "validate"),
)
OLDER_DEFAULTS = {
    "--per_device_train_batch_size": 4,
    "--num_train_epochs": 1.0,
    "--logging_steps": 50.0,
    "--save_steps": 50.0,
    "--model_name_or_path": "bert-base-cased",
    "--model_type": "bert",
}
OLDER_TYPES = ("bert", "roberta", "distilbert", "camembert", "gpt2", "openai-gpt")
OLDER = (
    *(
        replace(
            flag,
            default_or_type=OLDER_DEFAULTS.get(flag.name, flag.default_or_type),
            one_of=OLDER_TYPES if flag.name == "--model_type" else flag.one_of,
        )
        for flag in OLD
    ),
    Flag("--do_lower_case", False, nothing="read from the tokenizer's folder"),
    Flag("--eval_all_checkpoints", False, refused="`ordsmed evaluate RUN --step all` evaluates each checkpoint"),
    *REMOTE_DEBUGGING,
)
CAUSAL = (
    Flag("--block_size", int, "phase.length", joint=True),
    Flag("--keep_linebreaks", True, refused="leave it out: line breaks are always kept"),
    *TEXTS,
)


LEARNING = (
    *MODELS,
    *DATA,
    Flag("--config_name", str, nothing="read from the folder of --model_name_or_path"),
    Flag("--ignore_mismatched_sizes", False, nothing="a head with other labels is always initialized at random"),
    *joint("task.train", "--train_file:str --max_train_samples:int"),
    *joint("task.dev", "--validation_file:str --max_eval_samples:int"),
    *joint("files to predict", "--test_file:str --max_predict_samples:int"),
    *trainer.arguments("", "checks"),
)
CLASSES = (
    Flag("--task_name", str, "task.name", joint=True),
    Flag("--dataset_name", str, refused=f"{NETWORK}: give the files by --train_file"),
    Flag("--dataset_config_name", str, refused=f"{NETWORK}: --task_name chooses a task of GLUE"),
    Flag("--max_seq_length", 128, "task.length"),
    *LEARNING,
)
ENTAILED = (
    Flag("--language", str, "task.language"),
    *joint("task.train", "--train_language:str --data_dir:str"),
    Flag("--max_seq_length", 128, "task.length"),
    Flag("--do_lower_case", False, nothing="read from the tokenizer's folder"),
    *REMOTE_DEBUGGING,
    *(flag for flag in LEARNING if flag.name not in ("--train_file", "--validation_file", "--test_file")),
)
QUESTIONS = (
    Flag("--dataset_name", str, "task.train", joint=True),
    Flag("--dataset_config_name", str, nothing="a data set of questions has a single configuration"),
    Flag("--max_seq_length", 384, "task.length"),
    Flag("--doc_stride", 128, "task.stride"),
    Flag("--n_best_size", 20, "task.n_best"),
    Flag("--max_answer_length", 30, "task.longest_answer"),
    Flag("--version_2_with_negative", False, "task.version", by=SQUAD_VERSION),
    Flag("--null_score_diff_threshold", 0.0, "task.threshold"),
    Flag("--preprocessing_num_workers", int, nothing=CORES),
    *LEARNING,
)


WORDS = (
    *joint("task.train", "--task_name=ner --text_column_name:str --label_column_name:str"),
    *FILES_ONLY,
    Flag("--max_seq_length", int, "task.length", joint=True),
    Flag("--label_all_tokens", False, refused="leave it out: the tag of a word belongs to its first token"),
    Flag("--return_entity_level_metrics", False, nothing="conlleval.txt has the scores of each entity type"),
    Flag("--preprocessing_num_workers", int, nothing=CORES),
    *LEARNING,
)


def masked(values: Values, call: Call) -> None:
    """Pretrain with masked language modeling.

    As in the original, random tokens may be special tokens, and the number of masks per row varies.
    """
    _put_training(values, call, values.max_seq_length)
    call.set(MASKS)
    if values.line_by_line:
        call.put("phase.pack", False)
    _write_after(values, call, "mlm_right")


def causal(values: Values, call: Call) -> None:
    _put_training(values, call, values.block_size)
    call.put("objective", {"kind": "clm", "separate": False})
    _write_after(values, call, "clm_right")


def language_modeling(values: Values, call: Call, results: str = "eval_results_lm.txt") -> None:
    """Pretrain with masked or causal language modeling by the script that was later split into two."""
    _require_do_train(values)
    pattern = values.train_data_files
    train = sorted(glob.glob(pattern)) if pattern else [values.train_data_file] if values.train_data_file else []
    if not train:
        flag = "--train_data_files" if pattern else "--train_data_file"
        problem = f"found {pattern}, which matches no file" if pattern else "missing"
        raise UsageError(flag, problem, "a text file", "`--train_data_file FILE --do_train`")
    values.refuse_both("--train_data_file", "--train_data_files")
    validation = values.eval_data_file
    if values.do_eval and not validation:
        raise UsageError("--eval_data_file", "missing", "a text file, because of --do_eval")
    lines = {"apart": "line"} if values.line_by_line else {}
    call.put("corpus: source", {"kind": "text", "path": train if len(train) > 1 else train[0], **lines})
    if validation:
        call.put("corpus: given", {"validation": {"kind": "text", "path": validation, **lines}})
    call.put("corpus: validation", 0.0)
    length = None if values.block_size <= 0 else min(values.block_size, _tokenizer_limit(values))
    if length and length < values.block_size:
        call.notes.append(f"--block_size {values.block_size}: rows have {length} tokens, the limit of the tokenizer")
    if not values.mlm and (values.model_type or _type_of_config(values)) in MASKED_TYPES:
        raise UsageError("--mlm", "missing", "--mlm for a bidirectional network", "`--mlm`")
    _put_language_model(values, call, [*train, validation or ""], length, validates=values.evaluate_during_training)
    if values.mlm:
        call.set(MASKS)
    else:
        call.put("objective", {"kind": "clm", "separate": values.line_by_line})
    if values.line_by_line:
        call.put("phase.pack", False)
    _write_after(values, call, "mlm_right" if values.mlm else "clm_right", results)


def _type_of_config(values: Values) -> str:
    path = hub.folder(values.config_name or values.model_name_or_path or "") / "config.json"
    return str(files.read_table(path).get("model_type", "")) if path.is_file() else ""


def _require_do_train(values: Values) -> None:
    if not values.do_train:
        remedy = "`ordsmed evaluate MODEL --probe perplexity FILE` evaluates without it"
        raise UsageError("--do_train", "missing", "--do_train", remedy)


def _put_training(values: Values, call: Call, length: int | None) -> None:
    """Set corpus, network, tokenizer and steps of a masked or causal language model."""
    _require_do_train(values)
    train, validation = _files(values, "wikitext")
    if not train:
        remedy = "`--train_file FILE --do_train`"
        raise UsageError("--train_file", "missing", "a text file: .txt, .csv or .json", remedy)
    call.put("corpus: source", _source(train, values))
    if validation:
        call.put("corpus: given", {"validation": _source(validation, values)})
    else:
        call.put("corpus: validation", values.validation_split_percentage / 100)
    _put_language_model(values, call, [train, validation or ""], length)
    if workers := values.preprocessing_num_workers:
        flag = "--preprocessing_num_workers"
        perform.put_processes(call, flag, workers, "corpus: processes", "encode: processes")


def _put_language_model(
    values: Values, call: Call, texts: Sequence[str], length: int | None, *, validates: bool = False
) -> None:
    """Set network, tokenizer and steps. With `validates`, validate every --eval_steps without --eval_strategy."""
    _put_network(values, call)
    call.set("corpus:sentences=none corpus:duplicates=keep encode:corpus=<corpus> encode:sentences=false")
    perform.share_by_content(call, *texts)
    call.put("data", "<encode>")
    call.put("phase.length", length or _row_length(values, call))
    trainer.put_arguments(values, call, "phase.")
    _put_optimizer(values, call)
    if values.save_strategy == "best":
        raise UsageError("--save_strategy", "found best", "no, steps or epoch", "`--save_steps N`")
    intervals = (("validate", "eval", values.eval_steps or values.logging_steps), ("save", "save", values.save_steps))
    for key, name, steps in intervals:
        strategy = "steps" if name == "eval" and validates else values.of[f"{name}_strategy"]
        at_steps = trainer.interval(f"--{name}_steps", steps, values) if strategy == "steps" else 0
        call.put(key, trainer.share_of_an_epoch(f"--{name}_strategy", values) if strategy == "epoch" else at_steps)
    call.recipes[call.verb].setdefault("validation_rows", ALL_ROWS)
    if values.load_best_model_at_end:
        remedy = "leave it out; `revisions=N` after the flags keeps the weights of every N steps"
        raise UsageError("--load_best_model_at_end", "found for a language model", "", remedy)


def _put_network(values: Values, call: Call) -> None:
    """Set the initial weights, or the configuration of a network with random weights."""
    sources = [name for name in ("model_name_or_path", "config_name", "model_type") if values.of[name]]
    if values.of.get("config_overrides") and sources[:1] != ["model_type"]:
        problem = f"found with --{sources[0]}" if sources else "found alone"
        raise UsageError("--config_overrides", problem, "--model_type", "`--model_type bert --config_overrides ...`")
    if not sources:
        remedy = "`--model_type bert --tokenizer_name FOLDER` starts at random"
        raise UsageError("--model_name_or_path", "missing", "a model", remedy)
    tokenizer = values.tokenizer_name or _model_of(values)
    if not tokenizer:
        remedy = "`ordsmed tokenizer` trains one on the texts"
        raise UsageError("--tokenizer_name", "missing", f"a tokenizer's folder with --{sources[0]}", remedy)
    call.put("encode: tokenizer", tokenizer)
    if values.model_name_or_path:
        _put_start(values, call)
    if values.config_name:
        folder = hub.folder(values.config_name)
        path = folder / "config.json" if folder.is_dir() else folder
        config = files.read_table(path)
        call.put(
            "model",
            dict(settings.without_defaults(foreign.meant(_family(str(config.get("model_type"))), config, path))),
        )
    elif not values.model_name_or_path:
        call.put("model", _config_with_overrides(values))


def _model_of(values: Values) -> str:
    """Return --model_name_or_path; for a checkpoint of a run, return the run."""
    return run_of(values.model_name_or_path, Call(""))[0] if values.model_name_or_path else ""


def _put_start(values: Values, call: Call) -> None:
    """Start from --model_name_or_path. From a checkpoint of a run, use only the weights, like the original."""
    model = str(values.model_name_or_path)
    if _model_of(values) == model:
        call.put("init", model)
    else:
        put_start(call, model)


def _family(kind: str) -> str:
    families = {name: menu.load("models", name) for name in menu.entries("models")}
    known = {
        type_name: name
        for name, family in families.items()
        if hasattr(family, "hugging_face")
        for type_name in (family.model_type, *family.other_types)
    }
    if kind not in known:
        raise UsageError("--model_type", f"found {kind}", f"one of {', '.join(sorted(known))}", nearest(kind, known))
    return known[kind]


def _config_with_overrides(values: Values) -> Table:
    """Return the default network of --model_type with the changes of --config_overrides."""
    family = _family(values.model_type)
    config = menu.load("models", family)().hugging_face(
        1, SimpleNamespace(pad=None, start=None, stop=None, end=None, separator=None)
    )
    config = {key: value for key, value in config.items() if not key.endswith("_token_id") and key != "vocab_size"}
    for pair in (values.of.get("config_overrides") or "").split(","):
        key, equals, text = pair.partition("=")
        if key == "vocab_size" or not pair:
            continue
        if key not in config or not equals:
            raise UsageError("--config_overrides", f"found {pair}", "KEY=VALUE", nearest(key, config))
        kind = type(config[key])
        try:
            config[key] = BOOLEANS[text.lower()] if kind is bool else int(text) if config[key] is None else kind(text)
        except (ValueError, KeyError):
            raise UsageError("--config_overrides", f"found {pair}", f"a value such as {config[key]}") from None
    config["vocab_size"] = 1  # replaced by the tokenizer's size
    return dict(settings.without_defaults(foreign.meant(family, config, Path("--config_overrides"))))


def _files(values: Values, *known: str) -> tuple[str | None, str | None]:
    """Return the training and validation files: those of the flags, or of a data set that `ordsmed fetch` downloads."""
    if not values.dataset_name:
        return values.train_file, values.validation_file
    if values.train_file or values.validation_file:
        raise UsageError("--dataset_name", "found with files", "one of the two")
    name = f"{values.dataset_name.rpartition('/')[2]} {values.dataset_config_name or ''}".strip()
    name = name if name in FETCHED else name.partition(" ")[0]  # `squad plain_text` is `squad`
    fetched = [key for key in FETCHED if key.startswith(known)]
    if name not in fetched:
        remedy = f"only `{command('fetch', *known)}` downloads: give files by --train_file"
        raise UsageError("--dataset_name", f"found {name}", ", ".join(fetched), remedy)
    train, validation = (read.FETCHED + path for path in FETCHED[name])
    return train, validation


def _source(path: str, values: Values) -> Table:
    kind = Path(path).suffix
    if kind in (".txt", ".raw", ".tokens"):
        return {"kind": "text", "path": path, **({"apart": "line"} if values.of.get("line_by_line") else {})}
    if kind not in (".csv", ".json", ".jsonl"):
        raise UsageError(path, f"has the ending {kind or 'of no format'}", ".txt, .csv or .json")
    names = _columns(path)
    text = "text" if "text" in names else names[0]
    return {"kind": "csv" if kind == ".csv" else "jsonl", "path": path, "text_key": text}


def _columns(path: str) -> list[str]:
    file_path = Path(path)
    if not file_path.is_file():
        raise UsageError(path, "no such file", "a file of examples")
    with file_path.open(encoding="utf-8-sig", newline="") as file:
        if file_path.suffix == ".csv":
            return next(csv.reader(file), [""])
        first = None
        with contextlib.suppress(json.JSONDecodeError):
            first = json.loads(file.readline())
        if not isinstance(first, dict):  # a JSON list, on one or several lines
            file.seek(0)
            with contextlib.suppress(json.JSONDecodeError, IndexError, KeyError, TypeError):
                first = json.load(file)[0]
    if not isinstance(first, dict) or not first:
        raise UsageError(f"{path}:1", "is not an object", 'an object per line: {"text": "..."}')
    return list(first)


def _row_length(values: Values, call: Call) -> int:
    """Return the default row length: what tokenizer and network support, at most LONGEST."""
    described = dict(call.recipes["pretrain"].get("model", {}))
    if described:
        network = settings.decode(menu.load("models", described.pop("kind")), described, "model")
        return min(LONGEST, _tokenizer_limit(values), network.longest())
    return min(LONGEST, _tokenizer_limit(values), _network_limit(values))


def _tokenizer_limit(values: Values) -> int:
    config = hub.folder(values.tokenizer_name or _model_of(values) or "") / "tokenizer_config.json"
    return int(files.read_table(config).get("model_max_length", NO_LIMIT) if config.is_file() else NO_LIMIT)


def _network_limit(values: Values) -> int:
    """Return the longest row of --model_name_or_path; NO_LIMIT if the model does not exist yet."""
    from ordsmed.weights.origin import Origin

    start = hub.folder(_model_of(values))
    return Origin.of(start).network().longest() if kind_of_folder(start).model else NO_LIMIT


def _put_optimizer(values: Values, call: Call) -> None:
    if values.optim not in OPTIMIZERS:
        remedy = nearest(values.optim, OPTIMIZERS)
        raise UsageError("--optim", f"found {values.optim}", f"one of {', '.join(OPTIMIZERS)}", remedy)
    kind = OPTIMIZERS[values.optim]
    adagrad = {"initial": 0.0, "epsilon": 1e-10}
    adam = {"betas": [values.adam_beta1, values.adam_beta2], "epsilon": values.adam_epsilon}
    call.recipes[call.verb]["optimizer"] |= {"kind": kind, **(adagrad if kind == "adagrad" else adam)}


def _write_after(values: Values, call: Call, accuracy: str, perplexity: str = "") -> None:
    """After training, write the original's files to output_dir, with the perplexity also to the file `perplexity`.

    `accuracy` is the name of the accuracy in the metrics of a validation.
    """
    out = Path(values.output_dir)

    def write() -> None:
        trainer.add_export(out)
        trainer.write_state(out, values)
        steps, checks = trainer.metrics(out)
        trained = trainer.train_results(steps, values.num_train_epochs if values.max_steps <= 0 else None)
        scores = {"train": trained}
        if values.do_eval and checks:
            loss = checks[-1]["validation"]
            scores["eval"] = {
                "eval_loss": loss,
                "eval_accuracy": checks[-1].get(accuracy),
                "perplexity": _perplexity(loss),
            }
            if perplexity:
                files.write_text(out / perplexity, f"perplexity = {_perplexity(loss)}\n")
        trainer.write_results(out, scores)

    call.after.append(write)


def _perplexity(loss: float) -> float:
    return math.exp(loss) if loss < 700 else math.inf


@dataclass(frozen=True)
class EvaluatedFiles:
    """Files that the fine-tuned model evaluates or predicts."""

    name: str  # prefix of the results: eval or predict
    files: tuple[str, ...]
    is_labelled: bool
    end: str = ""  # suffix of the names of scores

    def folder(self, out: Path) -> Path:
        return out / f"{self.name}{self.end}_predictions"


def classes(values: Values, call: Call) -> None:
    """Fine-tune on a task of GLUE, or on tables with one or two text columns and a column `label`."""
    if name := _glue_name(values):
        parts = _put_glue(values, call, name)
    else:
        if not values.train_file or not values.validation_file:
            raise UsageError("run_glue.py", "no --task_name and not both files", "`--train_file A --validation_file B`")
        for key, value in _table_settings(values.train_file).items():
            call.put(f"task.{key}", value)
        call.put("task.train", values.train_file)
        parts = [EvaluatedFiles("eval", (values.validation_file,), is_labelled=True)] if values.do_eval else []
        parts += _files_to_predict(values, is_labelled=False)
    _put_finetuning(values, call, parts)
    _put_pool(values, call)
    call.after.append(lambda: _write_classes(values, call, parts))


def _put_glue(values: Values, call: Call, name: str) -> list[EvaluatedFiles]:
    """Set the task and its files, downloaded by `ordsmed fetch`. Return the files to evaluate."""
    task = glue.named(name)
    if values.train_file or values.validation_file or values.test_file:
        raise UsageError("--task_name", "found with files", "one of the two")
    folder = Path(read.FETCHED) / task.fetched / task.folder
    call.put("task.name", name)
    if not task.labels:  # regression
        call.put("task.metrics", [*task.metrics, "squared_error"])  # the loss of the original
    if task.unordered:
        call.put("task.unordered", False)  # train on each pair in one order only
    call.put("task.train", str(folder / task.files["train"][0]))
    parts = []
    for split, part, wanted in (("dev", "eval", values.do_eval), ("test", "predict", values.do_predict)):
        for end in ("", "_mismatched") if name == "mnli" else ("",):
            if wanted:
                path = str(folder / task.files[split + end][0])
                parts.append(EvaluatedFiles(part, (path,), is_labelled=split == "dev", end=end and "_mm"))
    return parts


def entailed(values: Values, call: Call) -> None:
    task = glue.named("xnli")
    for flag, language in (("--language", values.language or ""), ("--train_language", values.train_language)):
        if language is not None and language not in task.languages:
            raise UsageError(flag, f"found {language}" if language else "missing", ", ".join(task.languages))
    path, trained = Path(values.data_dir or read.FETCHED + task.fetched), values.train_language or values.language
    call.put("task.train", str(path / task.files["train"][0].format(trained)))
    parts = [
        EvaluatedFiles(name, (str(path / task.files[split][0]),), is_labelled=True)
        for name, split, wanted in (("eval", "dev", values.do_eval), ("predict", "test", values.do_predict))
        if wanted
    ]
    _put_finetuning(values, call, parts)
    _put_pool(values, call)
    call.after.append(lambda: _write_classes(values, call, parts, "predictions.txt"))


def _put_pool(values: Values, call: Call) -> None:
    """Let a new classification head of ModernBERT pool as config.json says, like the original."""
    config = hub.folder(_model_of(values)) / "config.json"
    if values.do_train and config.is_file() and files.read_table(config).get("classifier_pooling") == "mean":
        call.put("task.pool", "mean")


def _table_settings(path: str) -> Table:
    """Return the task's settings for a table: its text columns, and regression if the labels are decimal numbers."""
    names = [name for name in _columns(path) if name != "label"]
    texts = ["sentence1", "sentence2"] if {"sentence1", "sentence2"} <= set(names) else names[:2]
    if not texts:
        raise UsageError(path, "has only the column `label`", "one or two columns of texts")
    labels = table(Path(path), {"label": "label"}, more=True, **_form(path)).columns["label"]
    number = any("." in label for label in labels) and all(_is_number(label) for label in labels)
    columns: Table = {"text": texts[0], **({"second": texts[1]} if len(texts) > 1 else {}), **_form(path)}
    return columns | ({"number": True, "metrics": ["pearson", "spearman", "squared_error"]} if number else {})


def _form(path: str) -> Table:
    """Return the format setting of a table: a .json file may be JSON lines or a list."""
    with Path(path).open(encoding="utf-8-sig") as file:
        return {"format": "jsonl"} if path.endswith(".json") and file.read(1) != "[" else {}


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def questions(values: Values, call: Call) -> None:
    """Fine-tune on questions in SQuAD's format, or in the original's: `data` with an object per question."""
    train, validation = _files(values, "squad")
    for flag, path in (("train", train), ("validation", validation), ("test", values.test_file)):
        if path and not path.endswith((".json", ".jsonl")):
            wanted = "a .json file: SQuAD's, or `data` with an object per question"
            raise UsageError(f"--{flag}_file", f"found {path}", wanted)
    call.put("task.longest_question", values.max_seq_length)  # the original truncates no question
    parts = [EvaluatedFiles("eval", (validation,), is_labelled=True)] if values.do_eval and validation else []
    parts += _files_to_predict(values, is_labelled=True)
    if values.do_train:
        if not train:
            raise UsageError("--train_file", "missing", "a file, because of --do_train")
        call.put("task.train", train)
    if values.do_eval and not validation:
        raise UsageError("--validation_file", "missing", "a file, because of --do_eval")
    _put_finetuning(values, call, parts)
    call.after.append(lambda: _write_questions(values, call, parts))


def words(values: Values, call: Call) -> None:
    """Fine-tune on token classification, from JSON with an object per sentence, or from CoNLL."""
    given = {"train": values.train_file, "eval": values.validation_file, "predict": values.test_file}
    wanted = {"train": values.do_train, "eval": values.do_eval, "predict": values.do_predict}
    flags = {"train": "--train_file", "eval": "--validation_file", "predict": "--test_file"}
    for name, path in given.items():
        if wanted[name] and not path:
            raise UsageError(flags[name], "missing", f"a file, because of --do_{name}", f"`{flags[name]} FILE`")
    paths = {name: _as_conll(str(path), values, call) for name, path in given.items() if wanted[name]}
    call.put("task.length", values.max_seq_length or LONGEST_OF_WORDS)
    parts = [EvaluatedFiles(name, (paths[name],), is_labelled=True) for name in ("eval", "predict") if name in paths]
    if values.do_train:
        call.put("task.train", paths["train"])
    _put_finetuning(values, call, parts)
    call.after.append(lambda: _write_words(values, call, parts))


def _as_conll(path: str, values: Values, call: Call) -> str:
    """Return the path of a CoNLL file. A JSON file will be converted to that path before training."""
    read.files([path])
    if Path(path).suffix == ".csv":
        raise UsageError(path, "is CSV, whose cells cannot be lists", ".json with an object per sentence, or CoNLL")
    if Path(path).suffix not in tagged_words.ENDINGS:
        return path
    names = _columns(path)
    words = values.text_column_name or ("tokens" if "tokens" in names else names[0])
    tags = values.label_column_name or f"{values.task_name.lower()}_tags"
    if tags not in names and not values.label_column_name:
        tags = next((name for name in names[1:] if name != words), "")
    for flag, name in (("--text_column_name", words), ("--label_column_name", tags)):
        if name not in names:
            raise UsageError(flag, f"found {name or 'none'}", f"one of {', '.join(names)}", nearest(name, names))
    target = (
        perform.FOLDER / f"words-{value_key([str(Path(path).resolve()), words, tags], 8)}" / f"{Path(path).stem}.conll"
    )
    call.before.append(lambda: tagged_words.as_conll(Path(path), target, words, tags))
    call.notes.append(f"{path}: `{words}` and `{tags}` are converted to CoNLL in {target}")
    return str(target)


def _files_to_predict(values: Values, *, is_labelled: bool) -> list[EvaluatedFiles]:
    if values.do_predict and not values.test_file:
        raise UsageError("--test_file", "missing", "a file, because of --do_predict")
    return [EvaluatedFiles("predict", (values.test_file,), is_labelled=is_labelled)] if values.do_predict else []


def _first_of(path: str, count: int | None, values: Values, call: Call) -> str:
    """Return a path to which the first `count` examples of a file will be copied before training."""
    if count is None:
        return path
    target = perform.FOLDER / f"first-{count}-{value_key([str(Path(path).resolve())], 8)}" / Path(path).name
    header = _glue_name(values) != "cola" or Path(path).stem == "test"
    call.notes.append(f"{path}: uses the first {many(count, 'example')}, copied to {target}")
    call.before.append(lambda: fewer.first(read.files([path])[0], target, count, header=header))
    return str(target)


def _put_finetuning(values: Values, call: Call, parts: list[EvaluatedFiles]) -> None:
    """Set fine-tuning and its evaluation; without --do_train, only the evaluation of an existing model."""
    if not values.model_name_or_path:
        raise UsageError("--model_name_or_path", "missing", "a pretrained model")
    if values.do_train and not call.before:  # else the call creates the files
        for part in parts:
            read.files(list(part.files))  # report a missing file before training, not after it
    limits = {"eval": values.max_eval_samples, "predict": values.max_predict_samples}
    parts[:] = [
        replace(part, files=tuple(_first_of(path, limits[part.name], values, call) for path in part.files))
        for part in parts
    ]
    if values.do_train:
        path = call.recipes[call.verb]["task"]["train"]
        call.put("task.train", _first_of(path, values.max_train_samples, values, call))
    longest = min(_tokenizer_limit(values), _network_limit(values))
    if (values.max_seq_length or LONGEST_OF_WORDS) > longest:
        if values.max_seq_length:
            call.notes.append(
                f"--max_seq_length {values.max_seq_length}: rows have {longest} tokens, the limit of the model"
            )
        call.put("task.length", longest)
    if not values.do_train:
        _put_prediction(values, call, parts)
        return
    _put_start(values, call)
    if values.tokenizer_name:
        call.put("tokenizer", values.tokenizer_name)
    call.set("layer_decay=1.0 freeze=false epoch_steps=whole")
    trainer.put_arguments(values, call, "")
    _put_optimizer(values, call)
    saved = trainer.interval("--save_steps", values.save_steps, values) if values.save_strategy == "steps" else 0
    if 0 < saved < 1:
        raise UsageError("--save_steps", f"found {saved:g}", "steps", "or `--save_strategy epoch`")
    call.put("save", saved)
    best = values.load_best_model_at_end
    if values.eval_strategy == "no":
        if best:
            remedy = "`--eval_strategy epoch`"
            raise UsageError("--load_best_model_at_end", "found without --eval_strategy", "both", remedy)
        return
    call.put("task.dev", next(path for part in parts if part.name == "eval" for path in part.files))
    call.put("checks", 1)
    if values.eval_strategy == "steps":
        call.notes.append(
            "--eval_strategy steps: validation is at the end of each epoch; `checks=N` validates N times per epoch"
        )
    if not best:
        call.notes.append("the model has the best weights of the validations, as with --load_best_model_at_end")
    if best and values.metric_for_best_model:
        name = values.metric_for_best_model.removeprefix("eval_")
        if name == "loss":
            raise UsageError("--metric_for_best_model", "found loss", "a score", "leave it out for the main score")
        call.put("best", {hf_name: our_name for our_name, hf_name in NAMES.items()}.get(name, name))


def _put_prediction(values: Values, call: Call, parts: Sequence[EvaluatedFiles]) -> None:
    """Predict the first file with a fine-tuned model. `_results` predicts the other files after the call."""
    if not parts:
        raise UsageError("--do_train", "missing, as are --do_eval and --do_predict", "at least one of them")
    task = task_arguments(call.recipes[call.verb]["task"])
    call.recipes.clear()
    call.verb = "predict"
    first, out = parts[0], Path(values.output_dir)
    model, step = run_of(values.model_name_or_path, call)
    call.words = [model, *first.files, str(first.folder(out)), "--anew", *["--scores"] * first.is_labelled, *task]
    call.words += ["--device", "cpu"] if values.use_cpu else []
    call.words += [] if step is None else ["--step", str(step)]
    if folder := values.tokenizer_name:
        call.notes.append(f"--tokenizer_name {folder}: must equal the tokenizer of {model}")
        call.before.append(lambda: _check_tokenizer(model, folder))


def _check_tokenizer(model: str, folder: str) -> None:
    if read_tokenizer(folder).fingerprint != read_tokenizer(model).fingerprint:
        remedy = "leave it out: an existing model has a tokenizer"
        raise UsageError("--tokenizer_name", f"found {folder}, which is not the tokenizer of {model}", "", remedy)


def _results(values: Values, call: Call, parts: Sequence[EvaluatedFiles]) -> tuple[dict[str, Table], Path]:
    """Predict the remaining files. Return the scores of training and of the evaluated files, and the output folder."""
    from ordsmed.base import run
    from ordsmed.use.predict import predict

    out, scores = Path(values.output_dir), dict[str, Table]()
    if values.do_train:
        trainer.add_export(out)
        dev = next((part for part in parts if part.name == "eval"), None)
        score = run.read_recipe(menu.recipe_class("finetune"), out).score if values.load_best_model_at_end else ""
        by_name = functools.partial(hf_scores, dev, values=values) if dev else trainer.by_name
        trainer.write_state(out, values, NAMES.get(score, score), by_name)
        steps, _ = trainer.metrics(out)
        epochs = values.num_train_epochs if values.max_steps <= 0 else None
        examples = files.read_table(out / "status.json").get("examples")
        scores["train"] = trainer.train_results(steps, epochs) | ({"train_samples": examples} if examples else {})
    model, step = (values.output_dir, None) if values.do_train else run_of(values.model_name_or_path, call)
    options: Table = {"device": "cpu"} if values.use_cpu else {}
    options |= {} if step is None else {"step": step}
    options["overrides"] = [] if values.do_train else [word for word in call.words if word.startswith("task.")]
    for number, part in enumerate(parts):
        if number or values.do_train:
            predict(model, part.files, part.folder(out), anew=True, scores=part.is_labelled, **options)
        path = part.folder(out) / "scores.json"
        if path.is_file():
            scores.setdefault(part.name, {}).update(hf_scores(part, files.read_table(path), values))
    return scores, out


def hf_scores(part: EvaluatedFiles, scores: Mapping[str, float], values: Values) -> dict[str, float]:
    """Return the scores under the original's names: between 0 and 1 and with the loss, except for questions.

    The original's loss of a regression is the squared error of unscaled targets.
    """
    table = {key: value for key, value in scores.items() if key != "validation"}
    if "exact" not in table:
        table = {key: value if key == "squared_error" else value / 100 for key, value in table.items()}
        loss = table.get("squared_error", scores.get("validation"))
        if _glue_name(values):
            table.pop("squared_error", None)
        if _glue_name(values) in COMBINED:
            table["combined_score"] = sum(table.values()) / len(table)
        table |= {} if loss is None else {"validation": loss}
    return {f"{part.name}_{NAMES.get(key, key)}{part.end}": value for key, value in table.items()}


def _glue_name(values: Values) -> str:
    name = (values.of.get("task_name") or "").lower()
    return GLUE_NAMES.get(name, name)


def _write_classes(values: Values, call: Call, parts: Sequence[EvaluatedFiles], predictions: str = "") -> None:
    scores, out = _results(values, call, parts)
    for part in parts:
        if part.name == "predict":
            rows = files.split_lines(part.folder(out) / "predictions.tsv")[1:]
            lines = [f"{number}\t{row.split(chr(9))[1]}" for number, row in enumerate(rows)]
            name = predictions or f"predict_results_{values.task_name}{part.end.replace('_', '-')}.txt"
            files.write_text(out / name, "\n".join(["index\tprediction", *lines, ""]))
    trainer.write_results(out, scores)


def _write_questions(values: Values, call: Call, parts: Sequence[EvaluatedFiles]) -> None:
    scores, out = _results(values, call, parts)
    for part in parts:
        for name in ("predictions.json", "nbest_predictions.json", "null_odds.json"):
            if (path := part.folder(out) / name).is_file():
                files.write_text(out / f"{part.name}_{name}", path.read_text(encoding="utf-8"))
    trainer.write_results(out, scores)


def _write_words(values: Values, call: Call, parts: Sequence[EvaluatedFiles]) -> None:
    scores, out = _results(values, call, parts)
    for part in parts:
        strict = f"{part.name}_strict"
        scores[part.name] = {key: value for key, value in scores[part.name].items() if not key.startswith(strict)}
        if part.name == "predict":
            tagged_words.write_predictions(
                out / "predictions.txt", sorted(part.folder(out).glob(Path(part.files[0]).name))
            )
    trainer.write_results(out, scores)


INSTEAD = {
    **{
        f"run_{name}_no_trainer.py": f"`run_{name}.py`, with the arguments of transformers' Trainer"
        for name in ("mlm", "clm", "glue", "qa", "ner")
    },
    "run_mlm_wwm.py": "`run_mlm.py`, with `objective.unit=word` after its flags",
    "run_classification.py": "`run_glue.py --train_file A --validation_file B`: a table with a column `label`",
    "run_plm.py": "ordsmed has no permutation language modeling: `run_mlm.py`, `run_clm.py`",
    "run_fim.py": "ordsmed has no fill-in-the-middle training: `run_clm.py`",
    "run_qa_beam_search.py": "`ordsmed finetune` with task.kind=squad and task.head=joint",
    "run_seq2seq_qa.py": "ordsmed has no encoder-decoder models: `run_qa.py`",
    "run_swag.py": "ordsmed has no multiple-choice head",
}
PROGRAMS = (
    Program(
        "run_mlm.py",
        "pretrain a masked language model on texts",
        MASKED,
        masked,
        "pretrain",
        fields=True,
        path="language-modeling/run_mlm.py",
    ),
    Program(
        "run_clm.py",
        "pretrain a causal language model on texts",
        CAUSAL,
        causal,
        "pretrain",
        fields=True,
        path="language-modeling/run_clm.py",
    ),
    Program(
        "run_language_modeling.py",
        "pretrain a masked or causal language model",
        OLD,
        language_modeling,
        "pretrain",
        fields=True,
        path="legacy/run_language_modeling.py",
        also=("run_language_modeling.py", "language-modeling/run_language_modeling.py"),
    ),
    Program(
        "run_lm_finetuning.py",
        "pretrain a masked or causal language model: the first version of run_language_modeling.py",
        OLDER,
        functools.partial(language_modeling, results="eval_results.txt"),
        "pretrain",
        fields=True,
    ),
    Program(
        "run_glue.py",
        "fine-tune on a task of GLUE or a table of texts, and predict",
        CLASSES,
        classes,
        "finetune",
        sets="task.kind=classify",
        fields=True,
        path="text-classification/run_glue.py",
    ),
    Program(
        "run_xnli.py",
        "fine-tune on XNLI in one of its languages, and predict",
        ENTAILED,
        entailed,
        "finetune",
        sets="task.kind=classify task.name=xnli",
        fields=True,
        path="text-classification/run_xnli.py",
    ),
    Program(
        "run_qa.py",
        "fine-tune on questions about texts, and predict",
        QUESTIONS,
        questions,
        "finetune",
        fields=True,
        sets="task.kind=squad task.search=tops task.overlap=true",
        path="question-answering/run_qa.py",
    ),
    Program(
        "run_ner.py",
        "fine-tune on tags of words, and predict",
        WORDS,
        words,
        "finetune",
        fields=True,
        sets="task.kind=tag task.column=-1",
        path="token-classification/run_ner.py",
    ),
)
