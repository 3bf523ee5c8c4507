"""fairseq's RoBERTa: texts to tokens, and the pretraining, by flags or by the YAML of its hydra.

What `fairseq-preprocess` writes is a store of ours, dict.txt beside it. Its inputs are the texts themselves: the step
before, GPT-2's pieces as numbers in a text file, hands them on as they are, for tokens are made here at once.
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
from ordsmed.base.say import say
from ordsmed.others.translate import perform
from ordsmed.others.translate.program import YES_OR_NO, Call, Flag, Program, Values

SIZES = {"roberta": "base", "roberta_base": "base", "roberta_large": "large"}
BREAKS = {"none": "anywhere", "complete": "full_sentences", "complete_doc": "doc_sentences", "eos": "one_sentence"}
LINES = re.compile(r"[\d ]*\n?")  # of a file of pieces as numbers

LOGS = "a run logs into its folder: metrics.jsonl, log.txt, TensorBoard's"
RANKS = "the launcher's variables and the devices that there are say it"
COPIES = "copies of a network are kept alike without it"
SCALE = "the scale is halved and doubled as `layout.scale` says"
LAST = "the last weights are the model; `revisions=N` keeps more"
EPOCHS = "an epoch has no end here: rows go on over it"
AGAIN = "a start from other weights begins anew, but for the moments of a run"
ONE = "there is one language"
SPLIT = "`layout.shard=N` behind the flags splits all over N devices"
CLASSES = "`ordsmed finetune` with task.name=mrpc and the like learns classes"
OTHERS = "of other networks than RoBERTa"
LEAVE = "leave it out: it is not known here"

ENCODING = (
    Flag("--encoder-json", str, "tokenizer.file", joint=True),
    Flag("--vocab-bpe", str, "tokenizer.file", joint=True),
    Flag("--inputs", str, "the files that are handed on", joint=True, several=True),
    Flag("--outputs", str, "the files that are handed on", joint=True, several=True),
    Flag("--keep-empty", False, nothing="an empty line parts documents"),
    Flag("--workers", 20, nothing="nothing is computed yet"),
)


def encoding(values: Values, call: Call) -> None:
    """The texts under the names of the outputs: `fairseq-preprocess` makes tokens of them."""
    _needs(values, "multiprocessing_bpe_encoder.py", "--encoder-json", "--vocab-bpe", "--inputs", "--outputs")
    if len(values.inputs) != len(values.outputs) or "-" in (*values.inputs, *values.outputs):
        raise UsageError("--inputs", f"found {len(values.inputs)}", f"{len(values.outputs)} files, one an output")
    call.put("tokenizer", {"kind": "bytebpe", "file": [values.encoder_json, values.vocab_bpe]})
    call.notes.append("the outputs hold the texts: `fairseq-preprocess` makes tokens of them")

    def hand_on() -> None:
        for source, target in zip(values.inputs, values.outputs, strict=True):
            shutil.copyfile(source, target)

    call.after.append(hand_on)


PREPROCESSING = (
    Flag("--only-source", False, "corpus: source", joint=True),
    Flag("--trainpref", str, "corpus: source.path", joint=True),
    Flag("--validpref", str, "corpus: given.validation", joint=True),
    Flag("--testpref", str, "corpus: given.test", joint=True),
    Flag("--srcdict", str, "tokenizer"),
    Flag("--destdir", "data-bin", "out", joint=True),
    Flag("--workers", 1, "processes", joint=True),
    Flag("--source-lang", str, refused=ONE, also=("-s",)), Flag("--target-lang", str, refused=ONE, also=("-t",)),
    Flag("--tgtdict", str, refused=ONE), Flag("--align-suffix", str, refused=ONE),
    Flag("--alignfile", str, refused=ONE), Flag("--thresholdtgt", 0, refused=ONE), Flag("--nwordstgt", -1, refused=ONE),
    Flag("--thresholdsrc", 0, refused="`ordsmed tokenizer` learns a vocabulary: `least`"),
    Flag("--nwordssrc", -1, refused="`ordsmed tokenizer` learns a vocabulary: `size`"),
    Flag("--dict-only", False, refused="`ordsmed tokenizer` learns a vocabulary"),
    Flag("--joined-dictionary", False, nothing=ONE), Flag("--dataset-impl", "mmap", nothing="stores are mapped"),
    Flag("--padding-factor", 8, nothing="dict.txt has its own padding, and is taken as it is"),
    Flag("--task", "translation", nothing="texts are texts"), Flag("--bpe", str, nothing="the vocabulary says it"),
    Flag("--tokenizer", str, nothing="the vocabulary says it"), Flag("--seed", 1, nothing="nothing is drawn"),
    Flag("--log-format", str, nothing=LOGS), Flag("--log-interval", 100, nothing=LOGS),
    Flag("--no-progress-bar", False, nothing=LOGS),
)  # fmt: skip


def preprocessing(values: Values, call: Call) -> None:
    """A sentence a line, blank lines between documents, encoded into a store."""
    if not values.only_source:
        raise UsageError("--only-source", "missing", "it: there is one language", "`fairseq-preprocess --only-source`")
    _needs(values, "fairseq-preprocess", "--trainpref")
    if not values.srcdict:
        remedy = "`ordsmed tokenizer` learns one of texts: name its folder; labels need none, a task reads them"
        raise UsageError("--srcdict", "missing", "a vocabulary", remedy)
    prefixes = {name: getattr(values, f"{name}pref") for name in ("train", "valid", "test")}
    paths = {name: text.split(",") for name, text in prefixes.items() if text}
    for path in (path for several in paths.values() for path in several):
        _no_numbers(path)
    call.put("corpus: source", {"kind": "text", "path": paths["train"]})
    call.put("corpus: sentences", "lines")
    call.put("corpus: duplicates", "keep")
    given = {
        ours: {"kind": "text", "path": paths[theirs]}
        for ours, theirs in (("validation", "valid"), ("test", "test"))
        if theirs in paths
    }
    call.put("corpus: given", given)
    call.put("corpus: validation", 0.0)
    perform.put_processes(call, "--workers", values.workers, "processes", "corpus: processes")
    call.put("corpus", "<corpus>")
    perform.keep_by_content(call, *(path for several in paths.values() for path in several))
    call.put("out", values.destdir)
    call.words.append("--anew")
    listing = Path(values.srcdict)
    if listing.is_file():
        call.after.append(lambda: shutil.copyfile(listing, Path(values.destdir) / "dict.txt"))


def _no_numbers(path: str) -> None:
    """Refuse pieces as numbers, which are no text."""
    if not Path(path).is_file():
        return
    with Path(path).open(encoding="utf-8", errors="replace") as file:
        lines = [line for _, line in zip(range(20), file, strict=False) if line.strip()]
    if lines and all(LINES.fullmatch(line) for line in lines):
        remedy = "name the texts that they were made of; `--srcdict` with encoder.json and vocab.bpe beside it encodes"
        raise UsageError(path, "holds numbers of pieces", "texts", remedy)


def _common() -> tuple[Flag, ...]:
    fp16 = "fp16 and bf16 are computed from weights in fp32"
    return (
        Flag("--seed", 1, "seed"), Flag("--cpu", False, "layout.device", joint=True),
        Flag("--fp16", False, "layout.precision", joint=True), Flag("--bf16", False, "layout.precision", joint=True),
        Flag("--amp", False, "layout.precision", joint=True),
        Flag("--memory-efficient-fp16", False, "layout.precision", joint=True),
        Flag("--memory-efficient-bf16", False, "layout.precision", joint=True),
        Flag("--fp16-init-scale", 128, "layout.scale", joint=True),
        Flag("--amp-init-scale", 128, "layout.scale", joint=True),
        Flag("--fp16-scale-window", int, "layout.scale_window", joint=True),
        Flag("--amp-scale-window", int, "layout.scale_window", joint=True),
        Flag("--model-parallel-size", 1, "layout.tensor"),
        Flag("--log-interval", 100, "log"),
        Flag("--fp16-no-flatten-grads", False, nothing=fp16), Flag("--on-cpu-convert-precision", False, nothing=fp16),
        Flag("--fp16-scale-tolerance", 0.0, nothing=SCALE), Flag("--min-loss-scale", 1e-4, nothing=SCALE),
        Flag("--threshold-loss-scale", float, nothing=SCALE), Flag("--amp-batch-retries", 2, nothing=SCALE),
        Flag("--no-progress-bar", False, nothing=LOGS), Flag("--log-format", str, nothing=LOGS),
        Flag("--log-file", str, nothing=LOGS), Flag("--tensorboard-logdir", str, nothing=LOGS),
        Flag("--wandb-project", str, nothing=LOGS), Flag("--azureml-logging", False, nothing=LOGS),
        Flag("--aim-repo", str, nothing=LOGS), Flag("--aim-run-hash", str, nothing=LOGS),
        Flag("--reset-logging", False, nothing=LOGS), Flag("--suppress-crashes", False, nothing=LOGS),
        Flag("--profile", False, refused="`ordsmed bench` measures"),
        Flag("--tpu", False, refused="leave it out: devices are CPUs and NVIDIA's GPUs"),
        Flag("--user-dir", str, refused="a module of yours is named in the recipe, `objective.kind=my_lab.objective`"),
        Flag("--quantization-config-path", str, refused=LEAVE),
        Flag("--empty-cache-freq", 0, nothing="memory is given back where it is short"),
        Flag("--all-gather-list-size", 16384, nothing=RANKS),
        Flag("--use-plasma-view", False, nothing="stores are mapped"),
        Flag("--plasma-path", "/tmp/plasma", nothing="stores are mapped"),
    )  # fmt: skip


def _machines() -> tuple[Flag, ...]:
    pipeline = [
        f"--pipeline-{name}"
        for name in ("balance", "devices", "encoder-balance", "encoder-devices", "decoder-balance", "decoder-devices")
    ]
    return (
        Flag("--distributed-world-size", 0, "--devices", joint=True),
        Flag("--ddp-backend", "pytorch_ddp", "layout.shard", joint=True),
        Flag("--zero-sharding", "none", refused=SPLIT), Flag("--cpu-offload", False, refused=SPLIT),
        Flag("--no-reshard-after-forward", False, "layout.reshard", joint=True),
        Flag("--checkpoint-activations", False, "layout.recompute"),
        *(Flag(f"--{name}", usual, nothing=RANKS) for name, usual in (
            ("distributed-num-procs", int), ("distributed-rank", 0), ("distributed-backend", "nccl"),
            ("distributed-init-method", str), ("distributed-port", -1), ("distributed-no-spawn", False),
            ("nprocs-per-node", int), ("heartbeat-timeout", -1))),
        Flag("--device-id", 0, nothing=RANKS, also=("--local_rank", "--local-rank")),
        *(Flag(f"--{name}", usual, nothing=COPIES) for name, usual in (
            ("ddp-comm-hook", "none"), ("bucket-cap-mb", 25), ("fix-batches-to-gpus", False),
            ("find-unused-parameters", False), ("gradient-as-bucket-view", False), ("fast-stat-sync", False),
            ("broadcast-buffers", False), ("fp32-reduce-scatter", False), ("use-sharded-state", False),
            ("not-fsdp-flatten-parameters", False))),
        Flag("--min-params-to-wrap", 0, nothing="blocks are split one by one"),
        Flag("--slowmo-momentum", float, refused=LEAVE), Flag("--slowmo-base-algorithm", "localsgd", refused=LEAVE),
        Flag("--localsgd-frequency", 3, refused=LEAVE), Flag("--use-bmuf", False, refused=LEAVE),
        Flag("--pipeline-model-parallel", False, refused=SPLIT), Flag("--pipeline-chunks", 0, refused=SPLIT),
        Flag("--pipeline-checkpoint", "never", refused=SPLIT), *(Flag(name, str, refused=SPLIT) for name in pipeline),
    )  # fmt: skip


def _data() -> tuple[Flag, ...]:
    order = "the order is drawn from --seed"
    return (
        Flag("--batch-size", int, "phase.batch", joint=True, also=("--max-sentences",)),
        Flag("--max-tokens", int, "phase.batch", joint=True),
        Flag("--update-freq", "1", "phase.batch", joint=True),
        Flag("--num-workers", 1, "layout.workers", joint=True),
        Flag("--required-batch-size-multiple", 8, nothing="a step has as many rows as are asked for"),
        Flag("--required-seq-len-multiple", 1, nothing="rows are of one length"),
        Flag("--skip-invalid-size-inputs-valid-test", False, nothing="what is too long is cut"),
        Flag("--dataset-impl", str, nothing="stores are mapped"), Flag("--data-buffer-size", 10, nothing=order),
        Flag("--train-subset", "train", refused="name another folder: each has one training split"),
        Flag("--valid-subset", "valid", refused="leave it out: the validation split is judged"),
        Flag("--combine-valid-subsets", False, nothing="a store has one validation split", also=("--combine-val",)),
        Flag("--ignore-unused-valid-subsets", False, nothing="a store has one validation split"),
        Flag("--validate-interval-updates", 0, "validate", joint=True),
        Flag("--disable-validation", False, "validation_rows", joint=True),
        Flag("--batch-size-valid", int, "validation_rows", joint=True, also=("--max-sentences-valid",)),
        Flag("--max-valid-steps", int, "validation_rows", joint=True, also=("--nval",)),
        Flag("--max-tokens-valid", int, nothing="rows are judged together as fits the device"),
        Flag("--validate-interval", 1, nothing=EPOCHS), Flag("--validate-after-updates", 0, nothing=EPOCHS),
        Flag("--fixed-validation-seed", int, nothing="a validation's masks are the same every time"),
        Flag("--curriculum", 0, refused="leave it out: " + order), Flag("--gen-subset", "test", nothing="it trains"),
        Flag("--num-shards", 1, nothing=RANKS), Flag("--shard-id", 0, nothing=RANKS),
        Flag("--grouped-shuffling", False, nothing=order), Flag("--update-epoch-batch-itr", False, nothing=order),
        Flag("--update-ordered-indices-seed", False, nothing=order),
    )  # fmt: skip


def _updates() -> tuple[Flag, ...]:
    return (
        Flag("--max-update", 0, "phase.steps, phase.most_steps", joint=True),
        Flag("--max-epoch", 0, "phase.epochs", joint=True),
        Flag("--clip-norm", 0.0, "clip"), Flag("--lr", "0.25", "phase.rate", joint=True),
        Flag("--optimizer", str, "optimizer.kind", joint=True),
        Flag("--adam-betas", "(0.9, 0.999)", "optimizer.betas", joint=True),
        Flag("--adam-eps", 1e-8, "optimizer.epsilon"), Flag("--weight-decay", 0.0, "optimizer.decay", joint=True),
        Flag("--lr-scheduler", "fixed", "phase.schedule", joint=True),
        Flag("--warmup-updates", 0, "phase.warmup", joint=True),
        Flag("--power", 1.0, "phase.schedule", joint=True),
        Flag("--end-learning-rate", 0.0, "phase.schedule", joint=True),
        Flag("--total-num-update", 0, "phase.schedule", joint=True),
        Flag("--force-anneal", int, refused="leave it out: --lr-scheduler polynomial_decay says the course"),
        Flag("--stop-time-hours", 0.0, refused="`ordsmed pretrain RUN --deadline 3h` ends in time"),
        Flag("--stop-min-lr", -1.0, refused="leave it out: --max-update says the end"),
        Flag("--sentence-avg", False, refused="leave it out: a loss is the mean over what is predicted"),
        Flag("--skip-remainder-batch", False, nothing="every step is full"),
        Flag("--debug-param-names", False, nothing=LOGS), Flag("--use-old-adam", False, nothing="it computes the same"),
        Flag("--fp16-adam-stats", False, nothing="moments are kept in fp32"),
        Flag("--store-ema", False, "average", joint=True), Flag("--ema-decay", 0.9999, "average", joint=True),
        Flag("--ema-start-update", 0, refused=LEAVE), Flag("--ema-seed-model", str, refused=LEAVE),
        Flag("--ema-update-freq", 1, refused=LEAVE), Flag("--ema-fp32", False, nothing="it is kept in fp32"),
    )  # fmt: skip


def _checkpoints() -> tuple[Flag, ...]:
    whole = "a run keeps its last checkpoint: without it nothing could be made of it"
    return (
        Flag("--save-dir", "checkpoints", "out"),
        Flag("--restore-file", "checkpoint_last.pt", "init", joint=True),
        Flag("--finetune-from-model", str, "init", joint=True),
        Flag("--reset-optimizer", False, "init", joint=True),
        Flag("--continue-once", str, refused="`--restore-file`: a folder goes on by itself"),
        Flag("--reset-dataloader", False, nothing=AGAIN), Flag("--reset-lr-scheduler", False, nothing=AGAIN),
        Flag("--reset-meters", False, nothing=AGAIN), Flag("--optimizer-overrides", "{}", refused=LEAVE),
        Flag("--save-interval-updates", 0, "save", joint=True), Flag("--keep-interval-updates", -1, "keep", joint=True),
        Flag("--keep-interval-updates-pattern", -1, refused="`revisions=N` behind the flags keeps weights for good"),
        Flag("--no-save", False, refused=whole), Flag("--no-last-checkpoints", False, refused=whole),
        Flag("--no-save-optimizer-state", False, refused="leave it out: moments are kept, to go on"),
        Flag("--save-interval", 1, nothing=EPOCHS), Flag("--no-epoch-checkpoints", False, nothing=EPOCHS),
        Flag("--keep-last-epochs", -1, nothing=EPOCHS), Flag("--keep-best-checkpoints", -1, nothing=LAST),
        Flag("--best-checkpoint-metric", "loss", nothing=LAST),
        Flag("--maximize-best-checkpoint-metric", False, nothing=LAST),
        Flag("--patience", -1, refused="leave it out: --max-update says the end"),
        Flag("--checkpoint-suffix", "", nothing="checkpoints have names of their own"),
        Flag("--checkpoint-shard-count", 1, nothing="every rank writes and reads its part"),
        Flag("--load-checkpoint-on-all-dp-ranks", False, nothing="every rank writes and reads its part"),
        Flag("--write-checkpoints-asynchronously", False, nothing="they are written while training goes on",
             also=("--save-async",)),
    )  # fmt: skip


def _network() -> tuple[Flag, ...]:
    heads = "there is no head of classes"
    return (
        Flag("--arch", str, "model.size", joint=True, also=("-a",)),
        Flag("--encoder-layers", int, "model.layers"), Flag("--encoder-embed-dim", int, "model.width"),
        Flag("--encoder-ffn-embed-dim", int, "model.inner"), Flag("--encoder-attention-heads", int, "model.heads"),
        Flag("--activation-fn", "gelu", "model.activation", joint=True),
        Flag("--dropout", 0.1, "model.dropout"), Flag("--attention-dropout", 0.1, "model.attention_dropout"),
        Flag("--max-positions", 512, "model.positions"),
        Flag("--untie-weights-roberta", False, "model.tied", joint=True),
        Flag("--activation-dropout", 0.0, refused=LEAVE), Flag("--encoder-layerdrop", 0.0, refused=LEAVE),
        Flag("--encoder-layers-to-keep", str, refused=LEAVE),
        Flag("--encoder-normalize-before", False, refused="`model.kind=modern`, or megatron_bert, has norms before"),
        Flag("--layernorm-embedding", False, nothing="there is a norm behind embeddings"),
        Flag("--pooler-dropout", 0.0, nothing=heads), Flag("--pooler-activation-fn", "tanh", nothing=heads),
        Flag("--load-checkpoint-heads", False, nothing=heads),
        Flag("--spectral-norm-classification-head", False, nothing=heads),
        *(Flag(f"--{name}", usual, refused=LEAVE) for name, usual in (
            ("quant-noise-pq", 0.0), ("quant-noise-pq-block-size", 8), ("quant-noise-scalar", 0.0),
            ("mha-reg-scale-factor", 0.0), ("ffn-reg-scale-factor", 0.0), ("mha-heads-to-keep", -1),
            ("ffn-blocks-to-remove", -1))),
    )  # fmt: skip


TRAINING = (
    Flag("data", str, "data", joint=True, required=True),
    Flag("--task", "translation", "objective.kind", joint=True),
    Flag("--criterion", "cross_entropy", "objective.kind", joint=True),
    Flag("--sample-break-mode", "none", "objective.cut", joint=True),
    Flag("--tokens-per-sample", 1024, "phase.length"),
    Flag("--mask-prob", 0.15, "objective.hide"),
    Flag("--leave-unmasked-prob", 0.1, "objective.keep"),
    Flag("--random-token-prob", 0.1, "objective.swap"),
    Flag("--mask-whole-words", False, "objective.unit", joint=True),
    Flag("--freq-weighted-replacement", False, refused="leave it out: any word may be shown for another"),
    Flag("--mask-multiple-length", 1, refused="`objective.unit=span` behind the flags hides spans"),
    Flag("--mask-stdev", 0.0, refused="`objective.unit=span` behind the flags hides spans"),
    Flag("--shorten-method", "none", nothing="lines that are too long are cut into rows"),
    Flag("--shorten-data-split-list", "", nothing="lines that are too long are cut into rows"),
    Flag("--include-target-tokens", False, refused=OTHERS), Flag("--skip-masking", False, refused=OTHERS),
    Flag("--d2v2-multi", False, refused=OTHERS), Flag("--include-index", True, nothing=OTHERS, valued=True),
    Flag("--bpe", str, nothing="the data's vocabulary says it"),
    Flag("--tokenizer", str, nothing="the data's vocabulary says it"), Flag("--scoring", "bleu", nothing=OTHERS),
    *(Flag(f"--{name}", usual, refused=CLASSES) for name, usual in (
        ("num-classes", int), ("init-token", int), ("separator-token", int), ("regression-target", False),
        ("classification-head-name", str), ("no-shuffle", False))),
    Flag("--max-option-length", int, refused="leave it out: no head ranks options here"),
    *_network(), *_data(), *_updates(), *_checkpoints(), *_machines(), *_common(),
)  # fmt: skip


def training(values: Values, call: Call) -> None:
    """Masked words of whole lines, as RoBERTa's authors trained."""
    for flag, wanted in (("task", "masked_lm"), ("criterion", "masked_lm")):
        if (asked := getattr(values, flag)) != wanted:
            beside = f"`--{flag} {wanted}`; `ordsmed finetune` with task.name=mrpc is their sentence_prediction"
            raise UsageError(f"--{flag}", f"found {asked}" if flag in values.given else "missing", wanted, beside)
    if values.arch not in SIZES:
        asked = f"found {values.arch}" if values.arch else "missing"
        raise UsageError("--arch", asked, ", ".join(SIZES), "`--arch roberta_base`")
    if values.sample_break_mode not in BREAKS:
        remedy = "`--sample-break-mode complete`"
        raise UsageError("--sample-break-mode", f"found {values.sample_break_mode}", ", ".join(BREAKS), remedy)
    folders = values.data.split(":")
    for folder in folders:
        _check_folder(folder)
    call.put("data", values.data if len(folders) == 1 else dict.fromkeys(folders, 1.0))
    own = call.recipes["pretrain"]
    own["objective"] |= {"kind": "mlm", "cut": BREAKS[values.sample_break_mode], "swap_from": "text", "over": "row",
                         "rounding": "chance", "signs": True}  # fmt: skip
    if values.mask_whole_words:
        call.put("objective.unit", "word")
    own["model"] = {"kind": "roberta", "size": SIZES[values.arch], **own["model"]}
    if values.activation_fn not in ("gelu", "relu"):
        raise UsageError("--activation-fn", f"found {values.activation_fn}", "gelu or relu")
    call.put("model.activation", values.activation_fn)
    call.put("model.tied", not values.untie_weights_roberta)
    _rows(values, call)
    _course(values, call)
    _adam(values, call)
    _start(values, call)
    _machine(values, call)
    call.after.append(lambda: _left(Path(values.save_dir)))


def _check_folder(name: str) -> None:
    """The data must be a store of ours, if they stand."""
    if kind_of_folder(name) not in (FolderKind.STORE, FolderKind.ABSENT):
        remedy = "`ordsmed as fairseq fairseq-preprocess --only-source ...` makes them of the texts"
        raise UsageError(name, "holds no tokens of ours", "what `fairseq-preprocess` writes here", remedy)


def _world(values: Values) -> int:
    return int(max(values.place.world, values.distributed_world_size))


def _rows(values: Values, call: Call) -> None:
    """Rows of a device, by number or by tokens, times passes and devices."""
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
    call.notes.append(f"a step is {rows} x {passes} x {world} = {rows * passes * world:,} rows")
    if values.max_valid_steps:
        call.put("validation_rows", values.max_valid_steps * (values.batch_size_valid or rows) * world)


def _single(flag: str, text: str) -> str:
    """One value of what may be a list: [16], 16."""
    values = text.strip("[]() ").split(",")
    if len(values) != 1 or not values[0]:
        raise UsageError(flag, f"found {text}", "one value", "`[[phase]]` in the recipe has one each")
    return values[0]


def _whole(flag: str, text: str) -> int:
    try:
        return int(_single(flag, text))
    except ValueError:
        raise UsageError(flag, f"found {text}", "a whole number") from None


def _course(values: Values, call: Call) -> None:
    """How long, and at which rates."""
    try:
        rate = float(_single("--lr", values.lr))
    except ValueError:
        raise UsageError("--lr", f"found {values.lr}", "a number") from None
    if not values.max_update and not values.max_epoch:
        raise UsageError("--max-update", "missing, as is --max-epoch", "one of them", "`--max-update 125000`")
    if values.max_epoch:
        call.put("phase.epochs", values.max_epoch / len(values.data.split(":")))  # theirs is over one of the folders
        call.put("phase.most_steps", values.max_update)
    else:
        call.put("phase.steps", values.max_update)
    call.put("phase.rate", rate)
    call.put("phase.warmup", float(values.warmup_updates))
    call.put("phase.pack", values.sample_break_mode == "none")
    kind = values.lr_scheduler
    if kind == "fixed":
        call.put("phase.schedule", {"kind": "constant"})
    elif kind == "polynomial_decay":
        how = {"kind": "polynomial", "power": values.power, "end": values.end_learning_rate / rate}
        total = values.total_num_update or values.max_update
        if total and (values.max_epoch or total != values.max_update):
            how["over"] = total
        call.put("phase.schedule", how)
    elif kind == "inverse_sqrt":
        call.put("phase.schedule", {"kind": kind})
        if "warmup_updates" not in values.given:
            call.put("phase.warmup", 4000.0)
    else:
        remedy = "or `phase.schedule=cosine` behind the flags"
        raise UsageError("--lr-scheduler", f"found {kind}", "polynomial_decay, inverse_sqrt or fixed", remedy)
    for flag in ("power", "end_learning_rate", "total_num_update"):
        if flag in values.given and kind != "polynomial_decay":
            call.notes.append(f"--{flag.replace('_', '-')}: does nothing for --lr-scheduler {kind}")


def _adam(values: Values, call: Call) -> None:
    """Adam that corrects its moments and decays all weights, biases and norms among them."""
    if values.optimizer not in ("adam", "adagrad"):
        asked = f"found {values.optimizer}" if values.optimizer else "missing"
        raise UsageError("--optimizer", asked, "adam", "`--optimizer adam`")
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


def _start(values: Values, call: Call) -> None:
    """A folder goes on by itself; other weights begin it."""
    restored = values.restore_file
    inside = Path(restored).parent in (Path(), Path(values.save_dir)) and Path(restored).name.startswith("checkpoint_")
    if values.finetune_from_model and "restore_file" in values.given:
        raise UsageError("--finetune-from-model", "found with --restore-file", "one of the two")
    start = values.finetune_from_model or ("" if inside else restored)
    if not start:
        return
    run = Path(start).parent if Path(start).name.startswith("checkpoint_") else Path(start)
    start = str(run) if kind_of_folder(run).run else start
    anew = values.reset_optimizer or values.finetune_from_model
    call.put("init", f"{start}/weights" if anew and kind_of_folder(start).run else start)


def _machine(values: Values, call: Call) -> None:
    half = values.fp16 or values.memory_efficient_fp16 or values.amp
    wide = values.bf16 or values.memory_efficient_bf16
    if half and wide:
        raise UsageError("--fp16", "found with --bf16", "one of the two")
    call.put("layout.precision", "fp16" if half else "bf16" if wide else "fp32")
    if half:
        named = "amp" if values.amp else "fp16"
        call.put("layout.scale", float(getattr(values, f"{named}_init_scale")))
        if window := getattr(values, f"{named}_scale_window"):
            call.put("layout.scale_window", window)
    if values.cpu:
        call.put("layout.device", "cpu")
    if values.ddp_backend == "fully_sharded":
        call.put("layout.shard", _world(values))
        call.put("layout.reshard", not values.no_reshard_after_forward)
    if "num_workers" in values.given:
        call.put("layout.workers", values.num_workers)
    for key, steps in (("save", values.save_interval_updates), ("validate", values.validate_interval_updates)):
        if steps:  # else each epoch's end there, and as often as usual here
            call.put(key, steps)
    if values.disable_validation:
        call.put("validation_rows", 1)
        call.put("validate", 0)
    if values.keep_interval_updates > 0:
        call.put("keep", values.keep_interval_updates)
    if values.distributed_world_size > 1 and values.place.world == 1:
        call.devices = values.distributed_world_size


def _left(out: Path) -> None:
    """checkpoint_last.pt and checkpoint_best.pt, as RobertaModel.from_pretrained reads them."""
    from ordsmed.weights.export import export

    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as beside:
        try:
            folder = export(out, Path(beside) / out.name, to="fairseq_roberta")
        except RecipeError as error:
            say(f"no checkpoint_last.pt: {error}")
            return
        for name in ("checkpoint_best.pt", "checkpoint_last.pt"):
            shutil.copyfile(folder / "model.pt", out / name)


HYDRA = (
    Flag("settings", str, "flags of fairseq-train", joint=True, several=True, required=True),
    Flag("--config-dir", str, "flags of fairseq-train", joint=True),
    Flag("--config-name", "config", "flags of fairseq-train", joint=True),
    Flag("--multirun", False, nothing="one run is made", also=("-m",)),
)


def hydra(values: Values, call: Call) -> None:
    """Settings of a YAML file and of the command line, as fairseq-train's flags."""
    table = _yaml(Path(values.config_dir or ".") / f"{values.config_name}.yaml")
    for word in values.settings:
        if word.startswith("hydra"):
            call.notes.append(f"{word}: not needed here: {LOGS}")
            continue
        key, equals, text = word.lstrip("+").partition("=")
        if not equals or ("." not in key and key not in ("task", "model", "criterion", "optimizer", "lr_scheduler")):
            raise UsageError("fairseq-hydra-train", f"found {word}", "group.name=value", "`task.data=data-bin/x`")
        table[key if "." in key else f"{key}._name"] = text
    program = next(one for one in PROGRAMS if one.name == "fairseq-train")
    inner = program.read(_flags(program, table), values.place, {})
    meant = program.translated(inner)
    call.verb, call.recipes, call.devices = meant.verb, meant.recipes, call.devices or meant.devices
    call.notes += meant.notes
    call.after += meant.after


def _flags(program: Program, table: dict[str, str]) -> list[str]:
    """`optimization.lr = [0.0005]` as --lr=0.0005."""
    known = {flag.key: flag for flag in program.flags}
    words = []
    for path, text in table.items():
        group, _, name = path.rpartition(".")
        name = {"model": "arch"}.get(group, group) if name == "_name" else name
        text = text.strip("'\"")
        if text in ("null", "None"):
            continue
        if text == "???":
            raise UsageError(path, "must be said", f"`{path}=...` behind the flags")
        flag = known.get(name)
        if flag is not None and flag.kind is bool and not flag.valued:
            words += [flag.name] if YES_OR_NO.get(text.lower(), False) else []
        else:
            words += [text] if name == "data" else [f"--{name.replace('_', '-')}={text}"]
    return words


def _yaml(path: Path) -> dict[str, str]:
    """Groups of settings, two deep, as their configurations are written."""
    if not path.is_file():
        raise UsageError("--config-name", f"{path} is no file", "a configuration: --config-dir DIR --config-name NAME")
    table, group = dict[str, str](), ""
    for number, line in enumerate(files.lines_of(path), 1):
        line = re.sub(r"(^|\s)#.*", "", line).rstrip()
        if not line:
            continue
        matched = re.fullmatch(r"(\s*)([\w-]+):\s*(.*)", line)
        if matched is None or (matched[1] and not group):
            raise UsageError(f"{path}:{number}", f"found {line.strip()}", "group:, and below it name: value")
        if matched[1]:
            table[f"{group}.{matched[2]}"] = matched[3]
        elif matched[3]:
            table[f"{matched[2]}._name"] = matched[3]
        else:
            group = matched[2]
    return table


def _needs(values: Values, program: str, *names: str) -> None:
    for name in names:
        if not getattr(values, name[2:].replace("-", "_")):
            raise UsageError(program, f"no {name}", f"`{program} {name} ...`")


INSTEAD = {
    "fairseq-validate": "a training is judged at its end: scores.json in its folder",
    "fairseq-eval-lm": "`ordsmed evaluate MODEL --probe perplexity FILE`",
    "fairseq-generate": "there are no encoders with decoders here; `ordsmed generate RUN` writes on",
    "fairseq-interactive": "there are no encoders with decoders here; `ordsmed generate RUN` writes on",
    "fairseq-score": "there are no encoders with decoders here",
}
PROGRAMS = (
    Program("multiprocessing_bpe_encoder.py", "hands texts on to fairseq-preprocess", ENCODING, encoding, "tokenizer",
            path="examples/roberta/multiprocessing_bpe_encoder.py"),
    Program("fairseq-preprocess", "texts to tokens", PREPROCESSING, preprocessing, "encode"),
    Program("fairseq-train", "pretrain a RoBERTa", TRAINING, training, "pretrain"),
    Program("fairseq-hydra-train", "pretrain a RoBERTa by a YAML file", HYDRA, hydra, "pretrain"),
)  # fmt: skip
