"""Megatron-LM of 2019: pretraining of BERT and GPT-2, evaluation, generation, and its scripts for JSON lines.

Defaults are those of its arguments.py. Its batch size is per GPU; the batch size of a recipe is that of all GPUs.
"""

from __future__ import annotations

import ast
import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ordsmed.base import files, hub, run, settings
from ordsmed.base.arguments import UsageError
from ordsmed.base.folder import kind_of_folder
from ordsmed.base.say import many
from ordsmed.others.translate import perform
from ordsmed.others.translate.converters import unless_empty
from ordsmed.others.translate.program import Call, Flag, Program, Table, Values, find, idle, joint

CORPORA = {"wikipedia": "data/wikipedia/wikidump_lines.json", "webtext": "data/webtext/data.json"}  # of corpora.py
ALIASES, ORIGINAL_ALIASES = "corpora.toml", Path("data_utils", "corpora.py")
TRACKER = "latest_checkpointed_iteration.txt"
LOG, SPIECE = "log-megatron.txt", "spiece.model"
TERMS = {"mlm": "LM", "clm": "LM", "pair": "NSP"}  # our name -> the original's name
TOKENIZERS = ("BertWordPieceTokenizer", "GPT2BPETokenizer", "SentencePieceTokenizer", "CharacterLevelTokenizer")
IN_THE_MODEL = "read from the model's folder"
LAUNCHED = "read from the launcher's environment variables"
BACKENDS = "NCCL on GPUs, Gloo on CPUs"
BATCHING = "the number of windows per batch is chosen by device memory"

MODEL = (
    Flag("--num-layers", 24, "model.layers"),
    Flag("--hidden-size", 1024, "model.width"),
    Flag("--num-attention-heads", 16, "model.heads"),
    Flag("--intermediate-size", int, "model.inner", by=unless_empty),
    Flag("--max-position-embeddings", 512, "model.positions"),
    Flag("--layernorm-epsilon", 1e-5, "model.epsilon"),
    Flag("--hidden-dropout", 0.1, "model.dropout"),
    Flag("--attention-dropout", 0.1, "model.attention_dropout"),
    Flag("--deep-init", False, "model.deep"),
    Flag("--pretrained-bert", False, "init", joint=True),
    Flag("--vocab-size", 30_522, "tokenizer: tokenizer.size", joint=True),
    Flag("--make-vocab-size-divisible-by", 128, "layout.divisible"),
)
PRECISION = (
    Flag("--fp16", False, "layout.precision", by={True: "fp16"}),
    Flag("--fp32-embedding", False, "layout.exact", joint=True, needs="--fp16"),
    Flag("--fp32-layernorm", False, "layout.exact", joint=True, needs="--fp16"),
    Flag("--fp32-tokentypes", False, "layout.exact", joint=True, needs="--fp16"),
    Flag("--fp32-allreduce", False, "layout.reduce", by={True: "fp32", False: "fp16"}, needs="--fp16"),
    Flag("--loss-scale", float, "layout.scale", needs="--fp16"),
    Flag("--loss-scale-window", 1000, "layout.scale_window", joint=True, needs="--fp16"),
    Flag("--hysteresis", 2, nothing="the first gradient that overflows halves the scale"),
    Flag("--min-scale", 1.0, nothing="a scale below 1 stops the run with an error"),
)
TRAINING = (
    Flag("--batch-size", 4, "phase.batch", joint=True),
    Flag("--train-iters", 1_000_000, "phase.steps"),
    Flag("--lr", 1e-4, "phase.learning_rate"),
    Flag(
        "--lr-decay-style",
        "linear",
        "phase.schedule",
        joint=True,
        one_of=("constant", "linear", "cosine", "exponential"),
    ),
    Flag("--lr-decay-iters", int, "phase.schedule", joint=True),
    Flag("--warmup", 0.01, "phase.warmup", joint=True),
    Flag("--weight-decay", 0.01, "optimizer.decay"),
    Flag("--clip-grad", 1.0, "clip"),
    Flag("--seed", 1234, "seed"),
    Flag("--checkpoint-activations", False, "layout.recompute"),
    Flag("--checkpoint-num-layers", 1, nothing="blocks are recomputed one at a time"),
    Flag("--log-interval", 100, "log"),
    Flag("--exit-interval", int, "ORDSMED_STOP_AT", joint=True),
    Flag("--save", str, "out", joint=True),
    Flag("--save-interval", 5000, "save"),
    *joint("init", "--load:str --finetune=False --no-load-optim=False"),
    Flag("--no-save-optim", False, nothing="checkpoints are complete: a resumed run is bit-exact"),
    *idle("random numbers depend only on the seed and the step", "--no-save-rng=False --no-load-rng=False"),
    Flag("--resume-dataloader", False, nothing="a resumed run always continues with the next rows"),
    *joint("objective.separate", "--reset-position-ids=False --reset-attention-mask=False"),
    Flag("--distributed-backend", "nccl", nothing=BACKENDS),
    Flag("USE_TORCH_DDP", False, "layout.overlap", explicit=True),
    Flag(
        "--DDP-impl",
        "local",
        "layout.overlap",
        by={"torch": True, "local": False},
        explicit=True,
        one_of=("local", "torch"),
    ),
    Flag("--local_rank", int, nothing=LAUNCHED, also=("--local-rank",)),
    Flag("--model-parallel-size", 1, "layout.tensor"),
    Flag("ORDSMED_EXPORT", False, "iter_N/mp_rank_NN/model_optim_rng.pt in --save", joint=True),
)
VALIDATION = (
    *joint("validation_rows", "--eval-iters=100 --eval-batch-size:int"),
    Flag("--eval-interval", 1000, "validate"),
    Flag("--eval-seq-length", int, nothing="validation rows are as long as training rows"),
    Flag("--eval-max-preds-per-seq", int, nothing="validation masks as training does"),
    Flag("--eval-text-key", str, "corpus: given.validation.text_key", joint=True),
)
DATA = (
    Flag("--train-data", str, "corpus: source", joint=True, several=True),
    Flag("--valid-data", str, "corpus: given.validation", joint=True, several=True),
    Flag("--test-data", str, "corpus: given.test", joint=True, several=True),
    Flag("--split", "1000,1,1", "corpus: split"),
    Flag("--text-key", "sentence", "corpus: source.text_key", joint=True),
    Flag("--use-tfrecords", False, "encode: records", joint=True),
    Flag("--presplit-sentences", False, "corpus: sentences", joint=True),
    Flag("--seq-length", 512, "phase.length"),
    Flag("--max-preds-per-seq", int, "objective.most", joint=True),
    Flag("--tokenizer-type", "BertWordPieceTokenizer", "encode: tokenizer", joint=True, one_of=TOKENIZERS),
    *joint("encode: tokenizer", "--tokenizer-model-type=bert-large-uncased --tokenizer-path:str"),
    Flag("--cache-dir", str, "ORDSMED_CACHE", by=unless_empty),
    Flag("--num-workers", 2, "layout.workers"),
    Flag("--lazy-loader", False, nothing="texts are tokenized once and read from disk"),
    *idle("the input is always JSON lines", "--loose-json=False --delim=,"),
    Flag("--shuffle", False, nothing="every epoch has a new order of rows"),
    Flag("--use-npy-data-loader", False, refused="use --train-data, or nanoGPT's .bin files by `encode: records`"),
    Flag("--train-data-path", str, refused="it belongs to --use-npy-data-loader: give texts by --train-data"),
    Flag("--val-data-path", str, refused="it belongs to --use-npy-data-loader: give texts by --valid-data"),
    Flag("--test-data-path", str, refused="it belongs to --use-npy-data-loader: give texts by --test-data"),
    Flag("--input-data-sizes-file", "sizes.txt", refused="leave it out: it belongs to --use-npy-data-loader"),
)


BERT = "model.kind=bert objective.kind=mlm_nsp objective.short=0.01 objective.mask_prob=0.15 phase.pack=false"
GPT2 = "model.kind=gpt2 model.positions_initializer_std=0.02 model.deep=true objective.kind=clm"


def pretrain_bert(values: Values, call: Call) -> None:
    """Pretrain a BERT with sentence pairs; its layer norms follow the residual addition, as in the code of 2019."""
    limit = values.max_preds_per_seq
    if limit is not None and limit < 0.15 * values.seq_length and not values.use_tfrecords:  # else never reached
        call.put("objective.most", limit)
    call.note_idle(values, "for BERT, because a row is a single pair", "--reset-position-ids", "--reset-attention-mask")
    _training(values, call, sentences=True)
    if values.use_tfrecords:
        call.put("objective.examples", "masked")


def pretrain_gpt2(values: Values, call: Call) -> None:
    if values.says("--deep-init"):
        call.notes.append("--deep-init: not needed here: GPT-2 is always initialized so")
    call.put("objective.separate", values.reset_attention_mask)
    if values.reset_position_ids != values.reset_attention_mask:
        wanted = "with --reset-attention-mask: both separate the documents of a row, or neither does"
        raise UsageError("--reset-position-ids", "found alone", wanted)
    call.note_idle(values, "for GPT-2", "--max-preds-per-seq")
    if values.use_tfrecords:
        raise UsageError("--use-tfrecords", "found for GPT-2", "text files", "records contain BERT's sentence pairs")
    _training(values, call, sentences=False)


def _training(values: Values, call: Call, *, sentences: bool) -> None:
    world, split = values.place.world, values.model_parallel_size
    if world % split:
        problem = f"found {split} with {many(world, 'process')}"
        raise UsageError("--model-parallel-size", problem, f"{many(split, 'process')}, or a multiple")
    replicas = world // split
    call.put("optimizer.kind", "adamw")
    call.put("phase.batch", values.batch_size * replicas)
    call.put("validation_rows", values.eval_iters * (values.eval_batch_size or values.batch_size) * replicas)
    _put_learning_rate(values, call)
    _put_precision(values, call)
    _put_folders(values, call)
    _put_data(values, call, sentences)
    if values.says("--exit-interval"):
        if (every := values.exit_interval) < 1:
            raise UsageError("--exit-interval", f"found {every}", "a number of steps, 1 or more")
        perform.stop_at(_program(call), values, call, lambda saved: (saved // every + 1) * every)
    call.tells = log_lines(values.log_interval, values.train_iters)
    if values.save:
        folder = Path(values.out_override or values.save)
        call.after.append(lambda: write_log(folder, every=values.log_interval))
        if values.ORDSMED_EXPORT:
            call.after.append(lambda: write_checkpoint(folder, ranks=values.model_parallel_size))
    elif values.ORDSMED_EXPORT:
        raise UsageError("ORDSMED_EXPORT", "found without --save", "`--save FOLDER`, where the checkpoint is written")


def _program(call: Call) -> Program:
    return find("megatron", f"pretrain_{call.recipes['pretrain']['model']['kind']}.py")


def _put_learning_rate(values: Values, call: Call) -> None:
    """Set warmup and schedule. The original's learning rate decays for --lr-decay-iters steps after the warmup."""
    steps = values.train_iters
    decay = steps if values.lr_decay_iters is None else values.lr_decay_iters
    if decay < 1:
        flag = "--train-iters" if values.lr_decay_iters is None else "--lr-decay-iters"
        raise UsageError(flag, f"found {decay}", "a number of steps, 1 or more")
    warmup = round(values.warmup * decay)
    call.put("phase.warmup", warmup)
    kind = values.lr_decay_style
    if kind == "exponential":
        kind = "constant"
        call.notes.append("--lr-decay-style exponential: the learning rate is constant, as in the original's code")
    schedule: Table = {"kind": kind}
    end = decay + warmup  # step at which the original's learning rate reaches 0
    if kind == "linear" and warmup <= steps < end:  # in this form, because recipes of former runs have it
        schedule["end"] = 1 - (steps - warmup) / decay
    elif end != steps and (kind != "constant" or warmup > steps):
        schedule["over"] = end
    if kind != "constant" and end < steps:
        change = "becomes negative" if kind == "linear" else "rises again"
        call.notes.append(f"--lr-decay-iters: the learning rate stays 0 after step {end:,}; the original's {change}")
    call.put("phase.schedule", schedule if len(schedule) > 1 else kind)


def _put_precision(values: Values, call: Call) -> None:
    if not values.fp16:
        return
    exact = {"embeddings": values.fp32_embedding, "norms": values.fp32_layernorm, "types": values.fp32_tokentypes}
    call.put("layout.exact", [name for name, on in exact.items() if on])
    call.put("layout.scale_window", values.loss_scale_window if values.loss_scale is None else 0)
    if values.loss_scale is not None:
        call.note_idle(values, "with --loss-scale, which is constant", "--loss-scale-window")


def _put_folders(values: Values, call: Call) -> None:
    """Set the output folder and the initial weights. A run resumes if --load is --save; another --load is imported."""
    if values.save:
        call.put("out", values.save)
    weights_only = "--finetune" if values.finetune else "--no-load-optim" if values.no_load_optim else ""
    resumes = values.load and values.load == values.save
    if resumes and (Path(values.save) / TRACKER).is_file() and not kind_of_folder(Path(values.save)).run:
        problem = f"{values.save} contains checkpoints of Megatron-LM, not a run of ordsmed"
        raise UsageError("--save", problem, f"another folder; `--load {values.load}` imports the weights")
    if values.load and not resumes:
        from ordsmed.weights import import_folder

        if not import_folder.exists(hub.folder(values.load)):
            call.notes.append(f"--load {values.load}: does not exist; the weights start at random, as in the original")
        else:
            call.put("init", _weights(_with_heads(values.load, values, call), weights_only))
    if values.finetune and not values.load:
        raise UsageError("--finetune", "found without --load", "`--load MODEL`, the initial weights")
    if weights_only and resumes and kind_of_folder(Path(values.save)).run:
        problem = f"found with {values.save} for --load and --save, which resumes that run"
        raise UsageError(weights_only, problem, "another --save")
    if values.pretrained_bert:
        call.put("init", values.tokenizer_model_type)


def _with_heads(name: str, values: Values, call: Call) -> str:
    """Return the model's folder; for a checkpoint of the original, the folder into which it is imported.

    The checkpoint does not contain the number of attention heads, so the import needs the flag.
    """
    path = Path(name)
    if not values.says("--num-attention-heads") or kind_of_folder(path).run:
        return name
    step = (path / TRACKER).read_text(encoding="utf-8").strip() if (path / TRACKER).is_file() else ""
    if not step and path.name != "model_optim_rng.pt" and not any(path.glob("mp_rank_*")):
        return name
    parts = [part for part in (*path.parts, step) if part.strip("/.")]
    target = perform.FOLDER / "taken" / "-".join([*parts, f"{values.num_attention_heads}-heads"])
    call.notes.append(f"{name}: a checkpoint of Megatron-LM, which is imported into {target}")
    call.before.append(lambda: import_checkpoint(path, target, values.num_attention_heads))
    return str(target)


def _weights(model: str, flag: str) -> str:
    """Return the run, which restores the optimizer state too; with `flag`, the folder of its weights only."""
    if not flag or not kind_of_folder(Path(model)).run:
        return model
    if not (weights := Path(model) / "weights").is_dir():
        raise UsageError(
            flag,
            f"found with {model}, an unfinished run",
            "a finished run",
            "finish it, or export a checkpoint with `ordsmed export` and give that by --load",
        )
    return str(weights)


def import_checkpoint(path: Path, target: Path, heads: int) -> None:
    from ordsmed.weights.importing import take_over

    with run.locked(target):
        if not kind_of_folder(target).model:
            take_over(path, target, [f"model.heads={heads}"])


def _put_data(values: Values, call: Call, sentences: bool) -> None:
    """Set the corpus, its encoding and the tokenizer, which exists or is trained."""
    call.put("data", "<encode>")
    call.put("encode: sentences", sentences)
    if not values.train_data:
        raise UsageError("--train-data", "missing", "the name of a corpus, or files of JSON lines")
    if values.use_tfrecords:
        call.recipes.pop("corpus", None)
        call.put("encode: records", values.train_data)
        if values.valid_data:
            call.put("encode: validation_records", values.valid_data)
        reason = "for TFRecords, which contain token ids"
        call.note_idle(values, f"{reason}; `ordsmed evaluate` can evaluate a file of them later", "--test-data")
        call.note_idle(
            values, reason, "--text-key", "--eval-text-key", "--split", "--presplit-sentences", "--max-preds-per-seq"
        )
    else:
        _put_corpus(values, call, sentences)
    _put_tokenizer(values, call)


def _put_corpus(values: Values, call: Call, sentences: bool) -> None:
    call.set("encode:corpus=<corpus> corpus:exact=true corpus:duplicates=keep")
    call.put("corpus: source", [_source(name, values.text_key, call) for name in values.train_data])
    call.put("corpus: sentences", "none" if not sentences else "presplit" if values.presplit_sentences else "rules")
    call.put("corpus: seed", values.seed)
    for flag, names, split in (
        ("--valid-data", values.valid_data, "validation"),
        ("--test-data", values.test_data, "test"),
    ):
        if names:
            key = values.eval_text_key or values.text_key
            sources = [_source(name, key, call) for name in names]
            first = sources[0]
            parts = "names" if first["kind"] == "named" else "path"
            if any({**source, parts: ""} != {**first, parts: ""} for source in sources):
                wanted = f"names of {ALIASES}, where each has its `text_key`"
                raise UsageError(flag, "found corpora with different text keys", wanted)
            call.put(
                f"corpus: given.{split}",
                first if len(sources) == 1 else {**first, parts: [source[parts] for source in sources]},
            )


def _source(name: str, key: str, call: Call) -> Table:
    if Path(ALIASES).is_file() and name in settings.read(Path(ALIASES)):
        return {"kind": "named", "names": name, "file": ALIASES}
    if ORIGINAL_ALIASES.is_file() and (source := _source_of_original(name, key)):
        return source
    if name in CORPORA:
        if not Path(CORPORA[name]).exists():
            example = f'[{name}] kind = "jsonl", path = "...", text_key = "text"'
            call.notes.append(f"{name}: {CORPORA[name]} does not exist; set its path in {ALIASES}: {example}")
        return {"kind": "jsonl", "path": CORPORA[name], "text_key": "text"}
    if name.endswith((".csv", ".tsv")):
        raise UsageError("--train-data", f"found {name}", "JSON lines", 'write one {"text": ...} per line')
    if ".json" not in name:
        known = ", ".join(CORPORA)
        raise UsageError("--train-data", f"found {name}", f"{known}, a name in {ALIASES}, or files of JSON lines")
    return {"kind": "jsonl", "path": name, "text_key": key}


def _source_of_original(name: str, key: str) -> Table | None:
    """Return the source of a name in the user's copy of corpora.py, which is parsed and not executed."""
    try:
        tree = ast.parse(ORIGINAL_ALIASES.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError) as error:
        remedy = f"correct it, or list the corpora in {ALIASES}"
        raise UsageError(str(ORIGINAL_ALIASES), f"is not Python ({error})", remedy) from None
    tables = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Dict)
        and "NAMED_CORPORA" in map(ast.unparse, node.targets)
    ]
    classes = {
        key.value: kind.id
        for table in tables
        for key, kind in zip(table.keys, table.values, strict=True)
        if isinstance(key, ast.Constant) and isinstance(kind, ast.Name)
    }
    source = {"kind": "jsonl", "path": "", "text_key": key}
    for kind in (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == classes.get(name)):
        for node in ast.walk(kind):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
                target = node.targets[0]
                if isinstance(target, ast.Name) and target.id == "PATH":
                    source["path"] = str(node.value.value)
                if isinstance(target, ast.Subscript) and ast.unparse(target.slice) == "'text_key'":
                    source["text_key"] = str(node.value.value)
    return source if source["path"] else None


def _put_tokenizer(values: Values, call: Call) -> None:
    kind, path = values.tokenizer_type, values.tokenizer_path
    if kind == "CharacterLevelTokenizer":
        remedy = "GPT2BPETokenizer has a token for every byte"
        raise UsageError("--tokenizer-type", f"found {kind}", ", ".join(TOKENIZERS[:3]), remedy)
    if kind == "SentencePieceTokenizer":
        _put_sentencepiece(values, call, path or "tokenizer.model")
        return
    if path and values.says("--tokenizer-type") and (other_kind := _other_kind(kind, Path(path))):
        raise UsageError(
            "--tokenizer-path", f"found {path}, {other_kind}", f"files of a {kind}", "another --tokenizer-type"
        )
    published = kind == "GPT2BPETokenizer" and not values.says("--tokenizer-model-type")
    call.put("encode: tokenizer", path or ("gpt2" if published else values.tokenizer_model_type))
    call.note_idle(values, "except for a SentencePieceTokenizer that is trained", "--vocab-size")


def _other_kind(kind: str, path: Path) -> str:
    """Return a description of the tokenizer at `path` if it cannot be of `kind`, else an empty text."""
    words, merges = path.suffix == ".txt" and path.name != "merges.txt", path.name == "merges.txt"
    if path.is_dir():
        words, merges = (path / "vocab.txt").is_file(), (path / "merges.txt").is_file()
    if path.suffix == ".model":
        return "a model of SentencePiece"
    if kind == "GPT2BPETokenizer":
        return "a vocabulary of WordPiece" if words and not merges else ""
    return "merges of byte-level BPE" if merges and not words else ""


def _put_sentencepiece(values: Values, call: Call, path: str) -> None:
    """Use the SentencePiece model at `path`, or train one and copy it there."""
    target = Path(path if path.endswith(".model") else f"{path}.model")  # as the original names it
    folder = perform.folder(_program(call), call) / "tokenizer"
    for model in (Path(path), target):
        if model.is_file() and not _same(model, folder / SPIECE):
            call.put("encode: tokenizer", str(model))
            return
    call.after.append(lambda: copy_sentencepiece(folder, target))
    kind = values.tokenizer_model_type if values.says("--tokenizer-model-type") else "bpe"
    if kind not in ("bpe", "unigram"):
        raise UsageError("--tokenizer-model-type", f"found {kind}", "bpe or unigram, or an existing --tokenizer-path")
    call.set("encode:tokenizer=<tokenizer> tokenizer:corpus=<corpus>")
    size = {"kind": "sentencepiece", "model": kind, "size": values.vocab_size, "coverage": 1.0}
    call.put("tokenizer: tokenizer", size)
    if not target.is_file():
        call.notes.append(f"{target} does not exist: a {kind} model of {values.vocab_size:,} tokens is trained")


def _same(path: Path, copy: Path) -> bool:
    return copy.is_file() and path.read_bytes() == copy.read_bytes()


def copy_sentencepiece(folder: Path, target: Path) -> None:
    """Copy the trained model and its vocabulary to --tokenizer-path. Existing files are kept."""
    for name, path in ((SPIECE, target), ("spiece.vocab", target.with_suffix(".vocab"))):
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(folder / name, path)


def write_log(folder: Path, *, every: int) -> None:
    """Write the original's log lines of the training to log-megatron.txt, and print those of the last validation."""
    metrics = files.read_lines(folder / "metrics.jsonl")
    status = files.read_table(folder / "status.json")
    format_lines = log_lines(every, sum(status["steps_asked"]))
    lines = [text for line in metrics for text in format_lines(line)]
    validations = [line for line in metrics if "validation" in line]
    if validations and status.get("state") != "stopped":
        end = _validation_lines(validations[-1], "the end of training for val data")
        print("\n".join(end), flush=True)
        lines += end
    files.write_text(folder / LOG, "".join(f"{line}\n" for line in lines))


def log_lines(every: int, steps: int) -> Callable[[dict[str, Any]], list[str]]:
    """Return a function that formats metrics as the original's log lines, with means over `every` steps."""
    waiting: list[dict[str, Any]] = []

    def lines_of(line: dict[str, Any]) -> list[str]:
        if "validation" in line:
            return _validation_lines(line, f"iteration {line['step']}")
        waiting.append(line)
        if line["step"] % every:
            return []
        text = _step_line(waiting, steps)
        waiting.clear()
        return [text]

    return lines_of


def _step_line(lines: list[dict[str, Any]], steps: int) -> str:
    last, count = lines[-1], len(lines)
    parts = [f" iteration {last['step']:8d}/{steps:8d} |"]
    parts.append(f" elapsed time per iteration (ms): {sum(line['seconds'] for line in lines) * 1000 / count:.1f} |")
    parts.append(f" learning rate {last['rate']:.3E} |")
    for term, name in TERMS.items():
        if term in last:
            parts.append(f" {name.lower()} loss {sum(line[term] for line in lines) / count:.6E} |")
    if "scale" in last:
        parts.append(f" loss scale {last['scale']:.1f} |")
    return "".join(parts)


def _validation_lines(line: dict[str, Any], when: str) -> list[str]:
    losses = [f"{name} loss: {line[term]:.6E}" for term, name in TERMS.items() if term in line]
    last = (
        f"total loss: {line['validation']:.6E}" if "pair" in line else f"LM PPL: {math.exp(min(20, line['clm'])):.6E}"
    )
    text = f" validation loss at {when} | " + " | ".join([*losses, last])
    return ["-" * (len(text) + 1), text, "-" * (len(text) + 1)]


def write_checkpoint(folder: Path, *, ranks: int) -> None:
    """Export the weights for the original, which loads them with --finetune or --no-load-optim --no-load-rng."""
    from ordsmed.weights.export import export

    part = folder / "megatron.part"
    export(folder, part, to="megatron", overrides=["style=2019", "release=false", f"ranks={ranks}"])
    for path in sorted(part.iterdir()):
        target = folder / path.name
        if path.name.startswith("iter_"):
            shutil.rmtree(target, ignore_errors=True)
            path.rename(target)
        elif path.name == TRACKER:
            path.replace(target)
    shutil.rmtree(part)


def _with_training_flags(flags: tuple[Flag, ...]) -> tuple[Flag, ...]:
    """Add the flags of training as idle ones: the original's programs share a parser."""
    names = {flag.name for flag in flags}
    return flags + tuple(
        replace(flag, goes="", joint=False, refused="", needs="", nothing="used only by training")
        for flag in (*MODEL, *PRECISION, *TRAINING, *VALIDATION, *DATA)
        if flag.name.startswith("-") and flag.name not in names
    )


EVALUATION = (
    Flag("--model-path", str, "models", joint=True, required=True),
    Flag("--data-path", str, "probe.files", joint=True, required=True),
    *joint("probe.kind", "--cloze-eval=False --webtext-eval=False"),
    Flag("--eval-iters", 5000, "probe.iterations", joint=True),
    Flag("--batch-size", 4, "probe.batch", joint=True),
    Flag("--seq-length", 1024, "probe.window", joint=True),
    Flag("--overlapping-eval", 32, "probe.overlap", joint=True),
    Flag("--text-key", "text", "probe.key", joint=True),
    Flag("--cache-dir", "cache", "ORDSMED_CACHE", by=unless_empty),
    Flag("--model-parallel-size", 1, "--layout", joint=True),
    *idle(IN_THE_MODEL, "--num-layers=12 --hidden-size=768"),
    Flag("--num-attention-heads", 12, "model.heads", joint=True),
    Flag("--load-openai", False, nothing="the format of the weights is recognized"),
)


def evaluation(values: Values, call: Call) -> None:
    values.refuse_both("--webtext-eval", "--cloze-eval")
    kind = "cloze" if values.cloze_eval else "perplexity" if values.webtext_eval else "wikitext"
    probe: Table = {"kind": kind, "files": [values.data_path]}
    if kind == "wikitext":
        probe |= {"overlap": values.overlapping_eval}
    elif kind == "cloze":
        probe["key"] = values.text_key
    else:
        probe |= {"key": values.text_key, "overlap": 0, "batch": values.batch_size, "iterations": values.eval_iters}
    if values.says("--seq-length") and kind != "cloze":
        probe["window"] = values.seq_length
    _put_probe(values, call, values.model_path, probe)
    read = {
        "wikitext": ("--overlapping-eval", "--seq-length"),
        "cloze": ("--text-key",),
        "perplexity": ("--eval-iters", "--seq-length", "--text-key"),
    }
    unread = [flag for flags in read.values() for flag in flags if flag not in read[kind]]
    call.note_idle(values, f"for {kind}", *dict.fromkeys(unread))
    if values.says("--batch-size") and kind != "perplexity":
        call.notes.append(f"--batch-size: not needed here: {BATCHING}")


def _put_probe(values: Values, call: Call, name: str, probe: Table) -> None:
    """Run a probe on a model, on several devices if the flags say so, and print the original's result line."""
    model = _with_heads(name, values, call)
    call.put("models", [model])
    call.recipes["evaluate"]["probe"] = [probe]
    call.after.append(lambda: print_result(model, probe))
    if values.model_parallel_size > 1:
        call.words += ["--layout", f"1x1x{values.model_parallel_size}"]
        call.devices = values.model_parallel_size


# the original's shared parser accepts these in all programs
OF_EVALUATION = idle(
    "used only by evaluate_gpt2.py", "--overlapping-eval=32 --cloze-eval=False --eval-hf=False --load-openai=False"
)
OF_GENERATION = idle("used only by generate_samples.py", "--temperature=1.0 --top_p=0.0 --top_k=0 --out-seq-length=256")
DIRECT_EVALUATION = (
    Flag("--load", str, "models", joint=True),
    Flag("--valid-data", str, "probe.files", joint=True, several=True),
    Flag("--cloze-eval", False, "probe.kind", joint=True),
    Flag("--seq-length", 512, "probe.window", joint=True),
    Flag("--overlapping-eval", 32, "probe.overlap", joint=True),
    Flag("--cache-dir", str, "ORDSMED_CACHE", by=unless_empty),
    Flag("--model-parallel-size", 1, "--layout", joint=True),
    Flag("--num-attention-heads", 16, "model.heads", joint=True),
    *(Flag(name, False, "models", joint=True) for name in ("--eval-hf", "--load-openai")),
    *idle(BATCHING, "--eval-batch-size:int --batch-size=4"),
    *OF_GENERATION,
)
DIRECT_EVALUATION = _with_training_flags(DIRECT_EVALUATION)


def direct_evaluation(values: Values, call: Call) -> None:
    """Evaluate on WikiText or LAMBADA, as run_gpt2_eval.py calls it."""
    model = values.load or ("gpt2" if values.eval_hf or values.load_openai else "")
    if not model or not values.valid_data:
        missing = "--valid-data" if model else "--load"
        raise UsageError("evaluate_gpt2.py", f"no {missing}", "`--load MODEL --valid-data FILE`")
    if more := values.valid_data[1:]:
        call.notes.append(f"--valid-data: {', '.join(more)}: not read; the original also reads only the first file")
    probe: Table = {"kind": "cloze", "files": values.valid_data[:1], "key": "text"}
    if values.cloze_eval:
        call.note_idle(values, "for cloze", "--overlapping-eval", "--seq-length")
    else:
        probe = {
            "kind": "wikitext",
            "files": values.valid_data[:1],
            "overlap": values.overlapping_eval,
            "window": values.seq_length,
        }
    _put_probe(values, call, model, probe)


def print_result(model: str, probe: Table) -> None:
    from ordsmed.weights.origin import Origin

    probe_settings = {key: value for key, value in probe.items() if key not in ("kind", "files")}.items()
    paths = (Origin.of(model).folder / "scores").glob(f"{probe['kind']}-*.json")
    tables = [files.read_table(path) for path in sorted(paths, key=lambda path: path.stat().st_mtime)]
    results = [
        table for table in tables if table["files"] == probe["files"] and probe_settings <= table["settings"].items()
    ]
    text = result_line(probe["kind"], results[-1])
    print("-" * (len(text) + 1), text, "-" * (len(text) + 1), sep="\n")


def result_line(kind: str, result: Table) -> str:
    """Return a probe's result as the original's log line. The adjusted perplexity is per word of the file."""
    if kind == "cloze":
        accuracy, count = result["last_token"] / 100, result["examples"]  # the probe reports a percentage
        return (
            f" validation results on wiki | number correct: {accuracy * count:.4E} | total examples: {count:.4E} | "
            f"avg accuracy: {accuracy:.4E}"
        )
    perplexity = result["perplexity"]
    loss = math.log(perplexity)
    if kind == "perplexity":
        when = "the end of training for test data"
        return f" validation loss at {when} | LM loss: {loss:.6E} | LM PPL: {perplexity:.6E}"
    ratio = (result["tokens"] - 1) / (result["original_tokens"] - 1)
    return (
        f" validation results on wiki | avg loss: {loss:.4E} | ppl: {perplexity:.4E} | "
        f"adjusted ppl: {result['adjusted_perplexity']:.4E} | token ratio: {ratio} |"
    )


GENERATION = (
    Flag("--load", str, "folder of the model", joint=True),
    Flag("--out-seq-length", 256, "--tokens"),
    Flag("--seed", 1234, "--seed"),
    Flag("--temperature", 1.0, "--temperature", joint=True),
    Flag("--greedy", False, "--greedy", joint=True),
    Flag("--top_k", 0, "--top-k", by=unless_empty),
    Flag("--top_p", 0.0, "--top-p", by=unless_empty),
    Flag("--fp16", False, "--precision", by={True: "fp16"}),
    Flag("--cache-dir", str, "ORDSMED_CACHE", by=unless_empty),
    Flag("--model-parallel-size", 1, "--devices", joint=True),
    Flag("--num-attention-heads", 16, "model.heads", joint=True),
    Flag("--recompute", False, nothing="keys and values are cached; the texts are the same"),
    *idle(
        IN_THE_MODEL,
        "--num-layers=24 --hidden-size=1024 --intermediate-size:int --max-position-embeddings=512 "
        "--layernorm-epsilon=1e-5 --vocab-size=30522 --make-vocab-size-divisible-by=128 "
        "--tokenizer-model-type=bert-large-uncased --tokenizer-path=tokenizer.model --seq-length=512",
    ),
    Flag("--tokenizer-type", "BertWordPieceTokenizer", nothing=IN_THE_MODEL, one_of=TOKENIZERS),
    Flag("--batch-size", 4, nothing="prompts are processed one at a time, as in the original"),
    *idle("generation has no dropout", "--hidden-dropout=0.1 --attention-dropout=0.1"),
    *idle("--fp16 alone sets the precision", "--fp32-embedding=False --fp32-layernorm=False --fp32-tokentypes=False"),
    Flag("--distributed-backend", "nccl", nothing=BACKENDS),
    Flag("--local_rank", int, nothing=LAUNCHED, also=("--local-rank",)),
    *OF_EVALUATION,
)
GENERATION = _with_training_flags(GENERATION)


def generation(values: Values, call: Call) -> None:
    if not values.load:
        raise UsageError("generate_samples.py", "no --load", "`--load MODEL`; for the script, CHECKPOINT_PATH")
    if values.greedy and (values.top_k or values.top_p):
        raise UsageError("--greedy", "found with --top_k or --top_p", "one of them")
    greedy = values.greedy
    if {"top_k", "top_p"} <= values.explicit and not (values.top_k or values.top_p):
        greedy = True
        call.notes.append(
            "--top_k 0 --top_p 0: always the most probable token, as generate_text.sh documents; leave both out "
            "to sample from all tokens, as the original's code does"
        )
    sampling = ["--greedy"] if greedy else ["--temperature", f"{values.temperature:g}"]
    call.words = [
        _with_heads(values.load, values, call),
        *call.words[:4],
        "--until",
        "stop",
        *sampling,
        *call.words[4:],
    ]
    if values.model_parallel_size > 1:
        call.devices = values.model_parallel_size


PRETRAINING = (*MODEL, *PRECISION, *TRAINING, *VALIDATION, *DATA, *OF_EVALUATION, *OF_GENERATION)
OF_BERT = {"--layernorm-epsilon": "epsilon", "--intermediate-size": "inner"}  # the original's GPT-2 ignores these
PRETRAINING_GPT2 = tuple(
    replace(
        flag,
        goes="",
        by=None,
        nothing=f"fixed for GPT-2, as in the original; or `model.{OF_BERT[flag.name]}=N` after the flags",
    )
    if flag.name in OF_BERT
    else flag
    for flag in PRETRAINING
)
PRESPLIT = (
    Flag("input", str, "FILE", joint=True, required=True),
    Flag("output", str, "OUT", joint=True, required=True),
)
SPLIT = (
    Flag("--input_files", str, "FILE...", joint=True, several=True, required=True),
    Flag("--output_dir", str, "OUT", joint=True, required=True),
    Flag("--test_percent", float, "--dev, --test", joint=True, several=True),
)


def presplit(values: Values, call: Call) -> None:
    call.words = [values.input, values.output, "--anew"]


def split(values: Values, call: Call) -> None:
    """Write train, dev and test files. The split is fixed; the original draws a new one and shuffles the lines."""
    dev, *test = values.test_percent or [0.05]
    if len(test) > 1:
        wanted = "a share for dev.json, and optionally one for test.json"
        raise UsageError("--test_percent", f"found {len(test) + 1} numbers", wanted)
    call.words = [
        *values.input_files,
        values.output_dir,
        "--dev",
        f"{dev:g}",
        "--test",
        f"{test[0] if test else 0:g}",
        "--anew",
    ]
    if dev + sum(test) >= 1:
        problem = f"found {dev + sum(test):g} in total"
        raise UsageError("--test_percent", problem, "less than 1", "give shares, such as 0.05")


PROGRAMS = (
    Program("pretrain_bert.py", "pretrain a BERT on pairs", PRETRAINING, pretrain_bert, "pretrain", sets=BERT),
    Program("pretrain_gpt2.py", "pretrain a GPT-2", PRETRAINING_GPT2, pretrain_gpt2, "pretrain", sets=GPT2),
    Program(
        "run_gpt2_eval.py",
        "evaluate on WikiText, LAMBADA or the perplexity of a text",
        EVALUATION,
        evaluation,
        "evaluate",
        "scripts/run_gpt2_eval.py",
    ),
    Program("evaluate_gpt2.py", "evaluate on WikiText or LAMBADA", DIRECT_EVALUATION, direct_evaluation, "evaluate"),
    Program("generate_samples.py", "continue texts with a GPT-2", GENERATION, generation, "generate"),
    Program(
        "presplit_sentences_json.py",
        "split the texts of JSON lines into one sentence per line",
        PRESPLIT,
        presplit,
        "corpus presplit",
        "scripts/presplit_sentences_json.py",
    ),
    Program(
        "split_json.py",
        "split JSON lines into train, dev and test files",
        SPLIT,
        split,
        "corpus split",
        "scripts/split_json.py",
    ),
)
