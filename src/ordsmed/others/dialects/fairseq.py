"""fairseq's RoBERTa: tokenization, and pretraining by flags or by hydra's YAML.

`fairseq-preprocess` writes a token store of ordsmed, and dict.txt next to it. It tokenizes the texts itself, so the
step before it, multiprocessing_bpe_encoder.py, only copies the texts to its outputs.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path

from ordsmed.base import files
from ordsmed.base.arguments import UsageError
from ordsmed.base.errors import RecipeError
from ordsmed.base.folder import FolderKind, kind_of_folder
from ordsmed.base.say import many, say
from ordsmed.others.translate import perform
from ordsmed.others.translate.converters import CPU, listed, positive, unless_empty
from ordsmed.others.translate.program import BOOLEANS, Call, Flag, Program, Values, idle, joint, key_of, refused

SIZES = {"roberta": "base", "roberta_base": "base", "roberta_large": "large"}
BREAKS = {"none": "anywhere", "complete": "full_sentences", "complete_doc": "doc_sentences", "eos": "one_sentence"}
HALF, WIDE = ("--fp16", "--memory-efficient-fp16", "--amp"), ("--bf16", "--memory-efficient-bf16")
BACKENDS = ("pytorch_ddp", "legacy_ddp", "c10d", "no_c10d", "fully_sharded")  # all give the same gradients
LINES = re.compile(r"[\d ]*\n?")  # lines of a file of token ids

LOGS = "a run logs to its folder: metrics.jsonl and log.txt"
RANKS = "the launcher's environment and the machine's devices decide"
EPOCHS = "rows continue across the end of an epoch"
ONE_LANGUAGE = "there is only one language"
ORDER = "the order of rows is random, from --seed"
OTHERS = "it belongs to networks other than RoBERTa"
LEAVE = "leave it out: ordsmed has no such setting"

ENCODING = (
    Flag("--encoder-json", str, "tokenizer.file", joint=True, required=True),
    Flag("--vocab-bpe", str, "tokenizer.file", joint=True, required=True),
    Flag("--inputs", str, "files to copy", joint=True, several=True, required=True),
    Flag("--outputs", str, "files to copy", joint=True, several=True, required=True),
    Flag("--keep-empty", False, nothing="empty lines are kept: they separate documents"),
    Flag("--workers", 20, nothing="the texts are only copied"),
)


def encoding(values: Values, call: Call) -> None:
    """Copy the texts to the output files; `fairseq-preprocess` tokenizes them."""
    if len(values.inputs) != len(values.outputs) or "-" in (*values.inputs, *values.outputs):
        raise UsageError(
            "--inputs", f"found {len(values.inputs)}", f"{many(len(values.outputs), 'file')}, one per output"
        )
    call.put("tokenizer", {"kind": "bytebpe", "file": [values.encoder_json, values.vocab_bpe]})
    call.notes.append("the outputs are copies of the texts: `fairseq-preprocess` tokenizes them")

    def copy() -> None:
        for source, target in zip(values.inputs, values.outputs, strict=True):
            shutil.copyfile(source, target)

    call.after.append(copy)


PREPROCESSING = (
    Flag("--only-source", False, "corpus: source", joint=True),
    Flag("--trainpref", str, "corpus: source.path", by=listed, required=True),
    Flag("--validpref", str, "corpus: given.validation", joint=True),
    Flag("--testpref", str, "corpus: given.test", joint=True),
    Flag("--srcdict", str, "tokenizer"),
    Flag("--destdir", "data-bin", "out", joint=True),
    Flag("--workers", 1, "processes", joint=True),
    Flag("--source-lang", str, refused=ONE_LANGUAGE, also=("-s",)),
    Flag("--target-lang", str, refused=ONE_LANGUAGE, also=("-t",)),
    *refused(ONE_LANGUAGE, "--tgtdict:str --align-suffix:str --alignfile:str --thresholdtgt=0 --nwordstgt=-1"),
    Flag("--thresholdsrc", 0, refused="`ordsmed tokenizer` trains a vocabulary: its setting `least`"),
    Flag("--nwordssrc", -1, refused="`ordsmed tokenizer` trains a vocabulary: its setting `size`"),
    Flag("--dict-only", False, refused="`ordsmed tokenizer` trains a vocabulary"),
    Flag("--joined-dictionary", False, nothing=ONE_LANGUAGE),
    Flag("--dataset-impl", "mmap", nothing="token stores are memory-mapped"),
    Flag("--padding-factor", 8, nothing="dict.txt is used with the padding that it has"),
    Flag("--task", "translation", nothing="tokenization does not depend on the task"),
    *idle("read from the vocabulary", "--bpe:str --tokenizer:str"),
    Flag("--seed", 1, nothing="tokenization uses no random numbers"),
    *idle(LOGS, "--log-format:str --log-interval=100 --no-progress-bar=False"),
)


def preprocessing(values: Values, call: Call) -> None:
    """Tokenize text files with a sentence per line and blank lines between documents into a store."""
    if not values.only_source:
        raise UsageError("--only-source", "missing", "a single language", "`fairseq-preprocess --only-source`")
    if not values.srcdict:
        remedy = "`ordsmed tokenizer` trains one on texts: give its folder; labels of tasks need no vocabulary"
        raise UsageError("--srcdict", "missing", "a vocabulary", remedy)
    prefixes = {"train": values.trainpref, "validation": values.validpref, "test": values.testpref}
    paths = {split: listed(text) for split, text in prefixes.items() if text}
    all_paths = [path for part in paths.values() for path in part]
    for path in all_paths:
        _refuse_token_ids(path)
    splits = {name: {"kind": "text", "path": part} for name, part in paths.items() if name != "train"}
    call.put("corpus: given", splits)
    perform.put_processes(call, "--workers", values.workers, "processes", "corpus: processes")
    perform.share_by_content(call, *all_paths)
    call.put("out", values.destdir)
    call.words.append("--anew")
    vocabulary = Path(values.srcdict)
    if vocabulary.is_file():
        call.after.append(lambda: shutil.copyfile(vocabulary, Path(values.destdir) / "dict.txt"))


def _refuse_token_ids(path: str) -> None:
    if not Path(path).is_file():
        return
    with Path(path).open(encoding="utf-8", errors="replace") as file:
        lines = [line for _, line in zip(range(20), file, strict=False) if line.strip()]
    if lines and all(LINES.fullmatch(line) for line in lines):
        remedy = "give the original texts; `--srcdict` with encoder.json and vocab.bpe next to it tokenizes them"
        raise UsageError(path, "contains token ids", "texts", remedy)


NETWORK = (
    Flag("--arch", str, "model.size", joint=True, also=("-a",)),
    Flag("--encoder-layers", int, "model.layers"),
    Flag("--encoder-embed-dim", int, "model.width"),
    Flag("--encoder-ffn-embed-dim", int, "model.inner"),
    Flag("--encoder-attention-heads", int, "model.heads"),
    Flag("--activation-fn", "gelu", "model.activation", one_of=("gelu", "relu")),
    Flag("--dropout", 0.1, "model.dropout"),
    Flag("--attention-dropout", 0.1, "model.attention_dropout"),
    Flag("--max-positions", 512, "model.positions"),
    Flag("--untie-weights-roberta", False, "model.tied", by={False: True, True: False}),
    *refused(
        LEAVE,
        "--activation-dropout=0.0 --encoder-layerdrop=0.0 --encoder-layers-to-keep:str --quant-noise-pq=0.0 "
        "--quant-noise-pq-block-size=8 --quant-noise-scalar=0.0 --mha-reg-scale-factor=0.0 --ffn-reg-scale-factor=0.0 "
        "--mha-heads-to-keep=-1 --ffn-blocks-to-remove=-1",
    ),
    Flag("--encoder-normalize-before", False, refused="`model.kind=modern` and megatron_bert have pre-norm layers"),
    Flag("--layernorm-embedding", False, nothing="embeddings are always normalized"),
    *idle(
        "the model has no classification head",
        "--pooler-dropout=0.0 --pooler-activation-fn=tanh --load-checkpoint-heads=False "
        "--spectral-norm-classification-head=False",
    ),
)
DATA = (
    Flag("--batch-size", int, "phase.batch", joint=True, also=("--max-sentences",)),
    Flag("--max-tokens", int, "phase.batch", joint=True),
    Flag("--update-freq", "1", "phase.batch", joint=True),
    Flag("--num-workers", 1, "layout.workers", explicit=True),
    Flag("--required-batch-size-multiple", 8, nothing="a batch has exactly the requested number of rows"),
    Flag("--required-seq-len-multiple", 1, nothing="all rows have the same length"),
    Flag("--skip-invalid-size-inputs-valid-test", False, nothing="texts that are too long are cut"),
    *idle("token stores are memory-mapped", "--dataset-impl:str --use-plasma-view=False --plasma-path=/tmp/plasma"),
    Flag("--train-subset", "train", refused="give another folder: each has a single training split"),
    Flag("--valid-subset", "valid", refused="leave it out: the validation split is evaluated"),
    Flag("--combine-valid-subsets", False, nothing="a store has a single validation split", also=("--combine-val",)),
    Flag("--ignore-unused-valid-subsets", False, nothing="a store has a single validation split"),
    # by default the original validates at the end of each epoch; here the recipe's default applies
    Flag("--validate-interval-updates", 0, "validate", by=unless_empty),
    Flag("--disable-validation", False, "validation_rows", joint=True),
    Flag("--batch-size-valid", int, "validation_rows", joint=True, also=("--max-sentences-valid",)),
    Flag("--max-valid-steps", int, "validation_rows", joint=True, also=("--nval",)),
    Flag("--max-tokens-valid", int, nothing="the number of rows per batch is chosen by device memory"),
    *idle(EPOCHS, "--validate-interval=1 --validate-after-updates=0"),
    Flag("--fixed-validation-seed", int, nothing="all validations use the same masks"),
    Flag("--curriculum", 0, refused=f"leave it out: {ORDER}"),
    Flag("--gen-subset", "test", nothing="training generates no text"),
    *idle(
        ORDER,
        "--data-buffer-size=10 --grouped-shuffling=False --update-epoch-batch-itr=False "
        "--update-ordered-indices-seed=False",
    ),
)
UPDATES = (
    Flag("--max-update", 0, "phase.steps, phase.max_steps", joint=True),
    Flag("--max-epoch", 0, "phase.epochs", joint=True),
    Flag("--clip-norm", 0.0, "clip"),
    Flag("--lr", "0.25", "phase.learning_rate", joint=True),
    Flag("--optimizer", str, "optimizer.kind", joint=True),
    Flag("--adam-betas", "(0.9, 0.999)", "optimizer.betas", joint=True),
    Flag("--adam-eps", 1e-8, "optimizer.epsilon"),
    Flag("--weight-decay", 0.0, "optimizer.decay", joint=True),
    *joint("phase.schedule", "--lr-scheduler=fixed --power=1.0 --end-learning-rate=0.0 --total-num-update=0"),
    Flag("--warmup-updates", 0, "phase.warmup", by=float),
    Flag("--warmup-init-lr", -1.0, "phase.warmup", joint=True),
    Flag("--lr-shrink", 0.1, nothing="it applies only with --force-anneal, which is refused"),
    Flag("--force-anneal", int, refused="leave it out: --lr-scheduler polynomial_decay sets the schedule"),
    Flag("--stop-time-hours", 0.0, refused="`ordsmed pretrain RUN --deadline 3h` ends in time"),
    *refused("leave it out: --max-update sets the end", "--stop-min-lr=-1.0 --patience=-1"),
    Flag("--sentence-avg", False, refused="leave it out: a loss is the mean over the predictions"),
    Flag("--skip-remainder-batch", False, nothing="every batch is full"),
    Flag("--use-old-adam", False, nothing="it gives the same result"),
    Flag("--fp16-adam-stats", False, nothing="moments are stored in fp32"),
    *joint("average", "--store-ema=False --ema-decay=0.9999"),
    *refused(LEAVE, "--ema-start-update=0 --ema-seed-model:str --ema-update-freq=1"),
    Flag("--ema-fp32", False, nothing="the average is stored in fp32"),
)
CHECKPOINTS = (
    Flag("--save-dir", "checkpoints", "out"),
    *joint("init", "--restore-file=checkpoint_last.pt --finetune-from-model:str --reset-optimizer=False"),
    Flag("--continue-once", str, refused="use `--restore-file`; a run in the output folder resumes without a flag"),
    *idle(
        "a start from other weights resets these; a run keeps its optimizer state",
        "--reset-dataloader=False --reset-lr-scheduler=False --reset-meters=False",
    ),
    Flag("--optimizer-overrides", "{}", refused=LEAVE),
    Flag("--save-interval-updates", 0, "save", by=unless_empty),
    Flag("--keep-interval-updates", -1, "keep", by=positive),
    Flag("--keep-interval-updates-pattern", -1, refused="`revisions=N` after the flags keeps weights permanently"),
    *refused("leave it out: a run always keeps its last checkpoint", "--no-save=False --no-last-checkpoints=False"),
    Flag("--no-save-optimizer-state", False, refused="leave it out: a resumed run needs the optimizer state"),
    *idle(EPOCHS, "--save-interval=1 --no-epoch-checkpoints=False --keep-last-epochs=-1"),
    *idle(
        "`revisions=N` keeps weights of every N steps",
        "--keep-best-checkpoints=-1 --best-checkpoint-metric=loss --maximize-best-checkpoint-metric=False",
    ),
    Flag("--checkpoint-suffix", "", nothing="checkpoints are named by their step"),
    *idle(
        "every rank writes and reads its part of a checkpoint",
        "--checkpoint-shard-count=1 --load-checkpoint-on-all-dp-ranks=False",
    ),
    Flag(
        "--write-checkpoints-asynchronously",
        False,
        nothing="checkpoints are always written while training continues",
        also=("--save-async",),
    ),
)
MACHINES = (
    Flag("--distributed-world-size", 0, "--devices", joint=True),
    Flag("--ddp-backend", "pytorch_ddp", "layout.shard", joint=True, one_of=BACKENDS),
    Flag("--no-reshard-after-forward", False, "layout.reshard", joint=True),
    Flag("--checkpoint-activations", False, "layout.recompute"),
    Flag("--offload-activations", False, "layout.recompute", by={True: True}),
    Flag("--device-id", 0, nothing=RANKS, also=("--local_rank", "--local-rank")),
    *idle(
        RANKS,
        "--distributed-num-procs:int --distributed-rank=0 --distributed-backend=nccl --distributed-init-method:str "
        "--distributed-port=-1 --distributed-no-spawn=False --nprocs-per-node:int --heartbeat-timeout=-1 "
        "--num-shards=1 --shard-id=0 --all-gather-list-size=16384",
    ),
    *idle(
        "data parallelism needs no such setting",
        "--ddp-comm-hook=none --bucket-cap-mb=25 --fix-batches-to-gpus=False --find-unused-parameters=False "
        "--gradient-as-bucket-view=False --fast-stat-sync=False --broadcast-buffers=False --fp32-reduce-scatter=False "
        "--use-sharded-state=False --not-fsdp-flatten-parameters=False",
    ),
    Flag("--min-params-to-wrap", 0, nothing="every block is sharded separately"),
    *refused(LEAVE, "--slowmo-momentum:float --slowmo-base-algorithm=localsgd --localsgd-frequency=3 --use-bmuf=False"),
    *refused(
        "`layout.shard=N` after the flags shards the model over N devices",
        "--zero-sharding=none --cpu-offload=False --pipeline-model-parallel=False --pipeline-chunks=0 "
        "--pipeline-checkpoint=never --pipeline-balance:str --pipeline-devices:str --pipeline-encoder-balance:str "
        "--pipeline-encoder-devices:str --pipeline-decoder-balance:str --pipeline-decoder-devices:str",
    ),
)
COMMON = (
    Flag("--seed", 1, "seed"),
    Flag("--cpu", False, "layout.device", by=CPU),
    *(Flag(name, False, "layout.precision", joint=True) for name in (*HALF, *WIDE)),
    *joint("layout.scale", "--fp16-init-scale=128 --amp-init-scale=128"),
    *joint("layout.scale_window", "--fp16-scale-window:int --amp-scale-window:int"),
    Flag("--model-parallel-size", 1, "layout.tensor"),
    Flag("--log-interval", 100, "log"),
    *idle("fp16 and bf16 use fp32 master weights", "--fp16-no-flatten-grads=False --on-cpu-convert-precision=False"),
    *idle(
        "`layout.scale` describes when the scale is halved and doubled",
        "--fp16-scale-tolerance=0.0 --min-loss-scale=1e-4 --threshold-loss-scale:float --amp-batch-retries=2",
    ),
    *idle(
        LOGS,
        "--no-progress-bar=False --log-format:str --log-file:str --tensorboard-logdir:str --wandb-project:str "
        "--azureml-logging=False --aim-repo:str --aim-run-hash:str --reset-logging=False --suppress-crashes=False "
        "--debug-param-names=False",
    ),
    Flag("--profile", False, refused="leave it out: `ordsmed bench` measures speed"),
    Flag("--tpu", False, refused="leave it out: devices are CPUs and NVIDIA GPUs"),
    Flag("--user-dir", str, refused="a recipe can use your own Python module: `objective.kind=my_lab.objective`"),
    Flag("--quantization-config-path", str, refused=LEAVE),
    Flag("--empty-cache-freq", 0, nothing="memory is freed when it runs short"),
)
TRAINING = (
    Flag("data", str, "data", joint=True, required=True),
    *joint("objective.kind", "--task=translation --criterion=cross_entropy"),
    Flag("--sample-break-mode", "none", "objective.cut", by=BREAKS, one_of=tuple(BREAKS)),
    Flag("--tokens-per-sample", 1024, "phase.length"),
    Flag("--mask-prob", 0.15, "objective.mask_prob"),
    Flag("--leave-unmasked-prob", 0.1, "objective.keep"),
    Flag("--random-token-prob", 0.1, "objective.swap"),
    Flag("--mask-whole-words", False, "objective.unit", by={True: "word"}),
    Flag("--freq-weighted-replacement", False, refused="leave it out: random replacements are drawn uniformly"),
    *refused("`objective.unit=span` after the flags masks spans", "--mask-multiple-length=1 --mask-stdev=0.0"),
    *idle("long lines are split into rows", "--shorten-method=none --shorten-data-split-list="),
    *refused(OTHERS, "--include-target-tokens=False --skip-masking=False --d2v2-multi=False"),
    Flag("--include-index", True, nothing=OTHERS, valued=True),
    Flag("--scoring", "bleu", nothing=OTHERS),
    *idle("read from the vocabulary of the data", "--bpe:str --tokenizer:str"),
    *refused(
        "`ordsmed finetune`, for example with task.name=mrpc, trains classifiers",
        "--num-classes:int --init-token:int --separator-token:int --regression-target=False "
        "--classification-head-name:str --no-shuffle=False",
    ),
    Flag("--max-option-length", int, refused="leave it out: ordsmed has no multiple-choice head"),
    *NETWORK,
    *DATA,
    *UPDATES,
    *CHECKPOINTS,
    *MACHINES,
    *COMMON,
)


def training(values: Values, call: Call) -> None:
    for flag in ("--task", "--criterion"):
        if (value := values.of[flag[2:]]) != "masked_lm":
            remedy = (
                f"`{flag} masked_lm`; `ordsmed finetune`, for example with task.name=mrpc, does sentence_prediction"
            )
            raise UsageError(flag, f"found {value}" if values.says(flag) else "missing", "masked_lm", remedy)
    if values.arch not in SIZES:
        problem = f"found {values.arch}" if values.arch else "missing"
        raise UsageError("--arch", problem, ", ".join(SIZES), "`--arch roberta_base`")
    folders = values.data.split(":")
    for folder in folders:
        if kind_of_folder(folder) not in (FolderKind.STORE, FolderKind.ABSENT):
            remedy = "`ordsmed as fairseq fairseq-preprocess --only-source ...` makes one from texts"
            raise UsageError(folder, "is not a token store of ordsmed", "a token store", remedy)
    call.put("data", values.data if len(folders) == 1 else dict.fromkeys(folders, 1.0))
    call.recipes["pretrain"]["model"] |= {"kind": "roberta", "size": SIZES[values.arch]}
    _put_batch(values, call)
    _put_steps(values, call)
    _put_optimizer(values, call)
    _put_start(values, call)
    _put_layout(values, call)
    call.after.append(lambda: _write_checkpoints(Path(values.save_dir)))


def _world(values: Values) -> int:
    return int(max(values.place.world, values.distributed_world_size))


def _put_batch(values: Values, call: Call) -> None:
    """Set the batch: rows per device (from --batch-size or --max-tokens) x accumulation steps x devices."""
    if not values.batch_size and not values.max_tokens:
        raise UsageError("--batch-size", "missing, as is --max-tokens", "one of them", "`--batch-size 16`")
    by_tokens = values.max_tokens // values.tokens_per_sample if values.max_tokens else values.batch_size
    rows = min(values.batch_size or by_tokens, by_tokens)
    if not rows:
        wanted = f"at least the {values.tokens_per_sample} of --tokens-per-sample"
        raise UsageError("--max-tokens", f"found {values.max_tokens}", wanted)
    passes, world = _whole("--update-freq", values.update_freq), _world(values)
    call.put("phase.batch", rows * passes * world)
    call.put("layout.micro", rows)
    call.notes.append(f"a step has {rows} x {passes} x {world} = {many(rows * passes * world, 'row')}")
    if values.max_valid_steps:
        call.put("validation_rows", values.max_valid_steps * (values.batch_size_valid or rows) * world)


def _single(flag: str, text: str) -> str:
    """Return the single value of a flag that may be a list: 16 for `[16]` or `16`."""
    values = text.strip("[]() ").split(",")
    if len(values) != 1 or not values[0]:
        raise UsageError(flag, f"found {text}", "a single value", "each `[[phase]]` of a recipe can have another")
    return values[0]


def _whole(flag: str, text: str) -> int:
    try:
        return int(_single(flag, text))
    except ValueError:
        raise UsageError(flag, f"found {text}", "a whole number") from None


def _put_steps(values: Values, call: Call) -> None:
    try:
        rate = float(_single("--lr", values.lr))
    except ValueError:
        raise UsageError("--lr", f"found {values.lr}", "a number") from None
    if not values.max_update and not values.max_epoch:
        raise UsageError("--max-update", "missing, as is --max-epoch", "one of them", "`--max-update 125000`")
    if values.max_epoch:
        call.put("phase.epochs", values.max_epoch / len(values.data.split(":")))  # epochs over one folder
        call.put("phase.max_steps", values.max_update)
    else:
        call.put("phase.steps", values.max_update)
    call.put("phase.learning_rate", rate)
    call.put("phase.pack", values.sample_break_mode == "none")
    if values.warmup_init_lr > 0:
        raise UsageError("--warmup-init-lr", f"found {values.warmup_init_lr:g}", "0: warmup starts at 0")
    kind = values.lr_scheduler
    if kind == "fixed":
        call.put("phase.schedule", {"kind": "constant"})
    elif kind == "polynomial_decay":
        schedule = {"kind": "polynomial", "power": values.power, "end": values.end_learning_rate / rate}
        total = values.total_num_update or values.max_update
        if total and (values.max_epoch or total != values.max_update):
            schedule["over"] = total
        call.put("phase.schedule", schedule)
    elif kind == "inverse_sqrt":
        call.put("phase.schedule", {"kind": kind})
        if not values.says("--warmup-updates"):
            call.put("phase.warmup", 4000.0)
    else:
        remedy = "or `phase.schedule=cosine` after the flags"
        raise UsageError("--lr-scheduler", f"found {kind}", "polynomial_decay, inverse_sqrt or fixed", remedy)
    if kind != "polynomial_decay":
        reason = f"for --lr-scheduler {kind}"
        call.note_idle(values, reason, "--power", "--end-learning-rate", "--total-num-update")


def _put_optimizer(values: Values, call: Call) -> None:
    """Set the optimizer. Its weight decay includes biases and norms, as in the original."""
    if values.optimizer not in ("adam", "adagrad"):
        problem = f"found {values.optimizer}" if values.optimizer else "missing"
        raise UsageError("--optimizer", problem, "adam", "`--optimizer adam`")
    if values.optimizer == "adagrad":
        call.recipes["pretrain"]["optimizer"] = {"kind": "adagrad", "initial": 0.0, "epsilon": 1e-10}
    else:
        betas = re.findall(r"[\d.]+(?:e-?\d+)?", values.adam_betas)
        if len(betas) != 2:
            raise UsageError("--adam-betas", f"found {values.adam_betas}", '"(0.9, 0.98)"')
        call.put("optimizer.kind", "adamw")
        call.put("optimizer.betas", [float(text) for text in betas])
    call.put("optimizer.decay", values.weight_decay)
    if values.weight_decay:
        call.put("group", [{"match": ".", "decay": True}])
    if values.store_ema:
        call.put("average", values.ema_decay)


def _put_start(values: Values, call: Call) -> None:
    """Set the initial weights if the flags name a checkpoint outside of the output folder, where a run resumes."""
    restored = values.restore_file
    inside = Path(restored).parent in (Path(), Path(values.save_dir)) and Path(restored).name.startswith("checkpoint_")
    if values.finetune_from_model and "restore_file" in values.explicit:
        raise UsageError("--finetune-from-model", "found with --restore-file", "one of the two")
    start = values.finetune_from_model or ("" if inside else restored)
    if not start:
        return
    run = Path(start).parent if Path(start).name.startswith("checkpoint_") else Path(start)
    start = str(run) if kind_of_folder(run).run else start
    weights_only = values.reset_optimizer or values.finetune_from_model
    call.put("init", f"{start}/weights" if weights_only and kind_of_folder(start).run else start)


def _put_layout(values: Values, call: Call) -> None:
    half, wide = (any(values.of[key_of(flag)] for flag in flags) for flags in (HALF, WIDE))
    if half and wide:
        raise UsageError("--fp16", "found with --bf16", "one of the two")
    call.put("layout.precision", "fp16" if half else "bf16" if wide else "fp32")
    if half:
        prefix = "amp" if values.amp else "fp16"
        call.put("layout.scale", float(getattr(values, f"{prefix}_init_scale")))
        if window := getattr(values, f"{prefix}_scale_window"):
            call.put("layout.scale_window", window)
    if values.offload_activations:
        call.notes.append("--offload-activations: activations are recomputed instead of being stored in host memory")
    if values.ddp_backend == "fully_sharded":
        call.put("layout.shard", _world(values))
        call.put("layout.reshard", not values.no_reshard_after_forward)
    if values.disable_validation:
        call.put("validation_rows", 1)
        call.put("validate", 0)
    if values.distributed_world_size > 1 and values.place.world == 1:
        call.devices = values.distributed_world_size


def _write_checkpoints(out: Path) -> None:
    """Write checkpoint_last.pt and checkpoint_best.pt, which RobertaModel.from_pretrained reads."""
    from ordsmed.weights.export import export

    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as parent:
        try:
            folder = export(out, Path(parent) / out.name, to="fairseq_roberta")
        except RecipeError as error:
            say(f"checkpoint_last.pt is not written: {error}")
            return
        for name in ("checkpoint_best.pt", "checkpoint_last.pt"):
            shutil.copyfile(folder / "model.pt", out / name)


HYDRA = (
    Flag("settings", str, "flags of fairseq-train", joint=True, several=True, required=True),
    *joint("flags of fairseq-train", "--config-dir:str --config-name=config"),
    Flag("--multirun", False, nothing="there is always a single run", also=("-m",)),
)


def hydra(values: Values, call: Call) -> None:
    """Translate settings of a YAML file and of the command line into flags of fairseq-train."""
    table = _yaml(Path(values.config_dir or ".") / f"{values.config_name}.yaml")
    for word in values.settings:
        if word.startswith("hydra"):
            call.notes.append(f"{word}: not needed here: {LOGS}")
            continue
        key, equals, text = word.lstrip("+").partition("=")
        if not equals or ("." not in key and key not in ("task", "model", "criterion", "optimizer", "lr_scheduler")):
            raise UsageError("fairseq-hydra-train", f"found {word}", "group.name=value", "`task.data=data-bin/x`")
        table[key if "." in key else f"{key}._name"] = text
    program = next(program for program in PROGRAMS if program.name == "fairseq-train")
    inner = program.translated(program.read(_flags(program, table), values.place, {}))
    call.verb, call.recipes, call.devices = inner.verb, inner.recipes, call.devices or inner.devices
    call.notes += inner.notes
    call.after += inner.after


def _flags(program: Program, table: dict[str, str]) -> list[str]:
    """Return the settings as flags: `optimization.lr = [0.0005]` becomes --lr=0.0005."""
    known = {flag.key: flag for flag in program.flags}
    words = []
    for path, text in table.items():
        group, _, name = path.rpartition(".")
        name = {"model": "arch"}.get(group, group) if name == "_name" else name
        text = text.strip("'\"")
        if text in ("null", "None"):
            continue
        if text == "???":
            raise UsageError(path, "found ???", "a value", f"`{path}=...` after the flags")
        flag = known.get(name)
        if flag is not None and flag.kind is bool and not flag.valued:
            words += [flag.name] if BOOLEANS.get(text.lower(), False) else []
        else:
            words += [text] if name == "data" else [f"--{name.replace('_', '-')}={text}"]
    return words


def _yaml(path: Path) -> dict[str, str]:
    if not path.is_file():
        raise UsageError("--config-name", f"{path} is not a file", "a file: --config-dir DIR --config-name NAME")
    table, group = dict[str, str](), ""
    for number, line in enumerate(files.split_lines(path), 1):
        line = re.sub(r"(^|\s)#.*", "", line).rstrip()
        if not line:
            continue
        match = re.fullmatch(r"(\s*)([\w-]+):\s*(.*)", line)
        if match is None or (match[1] and not group):
            raise UsageError(f"{path}:{number}", f"found {line.strip()}", "`group:`, and below it `name: value`")
        if match[1]:
            table[f"{group}.{match[2]}"] = match[3]
        elif match[3]:
            table[f"{match[2]}._name"] = match[3]
        else:
            group = match[2]
    return table


INSTEAD = {
    "fairseq-validate": "training ends with a validation: see scores.json in its folder",
    "fairseq-eval-lm": "`ordsmed evaluate MODEL --probe perplexity FILE`",
    "fairseq-generate": "ordsmed has no encoder-decoder models; `ordsmed generate RUN` continues texts with a GPT-2",
    "fairseq-interactive": "ordsmed has no encoder-decoder models; `ordsmed generate RUN` continues texts with a GPT-2",
    "fairseq-score": "ordsmed has no encoder-decoder models",
}
PROGRAMS = (
    Program(
        "multiprocessing_bpe_encoder.py",
        "copy texts for fairseq-preprocess",
        ENCODING,
        encoding,
        "tokenizer",
        path="examples/roberta/multiprocessing_bpe_encoder.py",
    ),
    Program(
        "fairseq-preprocess",
        "tokenize texts",
        PREPROCESSING,
        preprocessing,
        "encode",
        sets="corpus=<corpus> "
        "corpus:source.kind=text corpus:sentences=lines corpus:duplicates=keep corpus:validation=0.0",
    ),
    Program(
        "fairseq-train",
        "pretrain a RoBERTa",
        TRAINING,
        training,
        "pretrain",
        sets="objective.kind=mlm objective.swap_from=text objective.over=row objective.rounding=chance "
        "objective.signs=true",
    ),
    Program("fairseq-hydra-train", "pretrain a RoBERTa by a YAML file", HYDRA, hydra, "pretrain"),
)
