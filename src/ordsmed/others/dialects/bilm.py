"""The original ELMo codes for TensorFlow 1, bilm-tf and simple_elmo_training: training, perplexity, weights, words.

Users of the originals edit a dictionary of options in train_elmo.py. Here it is a JSON file, --options, such as the
options.json that the originals write next to checkpoints. Its default is the dictionary of bilm-tf, or that of
simple_elmo_training if --size, --epochs or --maxchar is given. The run is in --save_dir; a restart of a finished run
is in SAVE_DIR-restart-1.
"""

from __future__ import annotations

import functools
import glob
import json
import re
import shutil
import sys
from collections import Counter
from pathlib import Path

from ordsmed.base import files, settings
from ordsmed.base.arguments import UsageError
from ordsmed.base.binary import bundle
from ordsmed.base.folder import RECIPE, FolderKind, kind_of_folder, read_status
from ordsmed.base.say import many
from ordsmed.others.translate.program import Call, Flag, Program, Table, Values, joint, of_table
from ordsmed.text import read
from ordsmed.text.vocabulary import SIGNS

OPTIONS, LISTS = "options.json", ("vocab.txt", "vocab.txt.gz")
UIO = {"lstm.dim": 2048, "n_epochs": 3, "batch_size": 192, "n_negative_samples_batch": 4096}  # simple_elmo_training
GPUS, GPUS_UIO = 3, 2  # number of GPUs in the scripts
CHARACTERS = "leave it out: this ELMo is bidirectional and reads characters"
FILTERS = [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]]
DICTIONARY = (
    Flag("bidirectional", True, refused=CHARACTERS, within="--options"),
    *(
        Flag(name, default, goes, joint=True, within="--options")
        for name, default, goes in (
            ("char_cnn.activation", "relu", "model.activation"),
            ("char_cnn.embedding.dim", 16, "model.letter"),
            ("char_cnn.filters", list, "model.filters"),
            ("char_cnn.max_characters_per_token", 50, "model.longest_word"),
            ("char_cnn.n_highway", 2, "model.highways"),
            ("dropout", 0.1, "model.dropout"),
            ("lstm.cell_clip", 3.0, "model.cell_clip"),
            ("lstm.dim", 4096, "model.cells"),
            ("lstm.n_layers", 2, "model.layers"),
            ("lstm.proj_clip", 3.0, "model.projection_clip"),
            ("lstm.projection_dim", 512, "model.width"),
            ("lstm.use_skip_connections", True, "model.residual"),
            ("all_clip_norm_val", 10.0, "clip"),
            ("n_epochs", 10, "phase.epochs"),
            ("n_train_tokens", int, "phase.steps"),
            ("batch_size", 128, "phase.batch"),
            ("unroll_steps", 20, "phase.length"),
            ("n_negative_samples_batch", 8192, "objective.samples"),
            ("sample_softmax", True, "objective.samples"),
            ("learning_rate", 0.2, "phase.learning_rate"),
        )
    ),
    Flag(
        "char_cnn.n_characters", 261, nothing="characters are always bytes and five special symbols", within="--options"
    ),
    Flag("n_tokens_vocab", int, nothing="read from the vocabulary", within="--options"),
    Flag("share_embedding_softmax", False, refused=CHARACTERS, within="--options"),
)
DEFAULTS = {flag.name: flag.default for flag in DICTIONARY} | {"char_cnn.filters": FILTERS}  # too long for `--flags`
MISSING = {  # values of keys that an options.json does not have
    "lstm.n_layers": 1,
    "lstm.use_skip_connections": False,
    "lstm.cell_clip": None,
    "lstm.proj_clip": None,
    "char_cnn.n_highway": None,
    "n_tokens_vocab": None,
}
SETTINGS = {
    flag.name: flag.goes
    for flag in DICTIONARY
    if flag.goes and flag.name not in ("n_epochs", "n_train_tokens", "batch_size", "sample_softmax")
}
RECIPE_SETS = (
    "corpus:sentences=lines corpus:duplicates=keep corpus:validation=0.0 corpus:normalise=none encode:corpus=<corpus> "
    "encode:tokenizer=<tokenizer> data=<encode> model.kind=elmo optimizer.kind=adagrad optimizer.initial=1.0 "
    "phase.schedule=constant save=1250 keep=2 validate=0 log=100"
)
TEXTS = (
    Flag("--save_dir", str, "out", joint=True, required=True),
    Flag("--vocab_file", str, "tokenizer: tokenizer.file", joint=True, required=True),
    Flag("--train_prefix", str, "corpus: source.path", joint=True, required=True),
)
TRAINING = (
    *TEXTS,
    Flag("--size", int, "phase.steps", joint=True),
    Flag("--epochs", 3, "phase.epochs", joint=True),
    Flag("--maxchar", 50, "model.longest_word", joint=True),
    Flag("--options", str, "each key is a flag; users of the original edit the script instead", joint=True),
    *DICTIONARY,
)
RESTARTING = (
    *TEXTS,
    *joint("phase.batch", "--n_gpus=1 --batch_size=0"),
    Flag("--n_train_tokens", 0, "phase.steps", joint=True),
    Flag("--n_epochs", 0, "phase.epochs", joint=True),
)


def training(values: Values, call: Call) -> None:
    uio = bool({"size", "epochs", "maxchar"} & values.explicit)
    options = DEFAULTS | {name: values.of[name] for name in DEFAULTS.keys() & values.explicit}
    options |= {name: value for name, value in UIO.items() if uio and name not in values.explicit}
    if not values.options:
        code = "simple_elmo_training" if uio else "bilm-tf"
        call.notes.append(f"the options are those in train_elmo.py of {code}; `--options FILE.json` changes them")
    keys = {"epochs": "n_epochs", "maxchar": "char_cnn.max_characters_per_token", "size": "n_train_tokens"}
    options |= {key: values.of[flag] for flag, key in keys.items() if flag in values.explicit}
    _put_recipe(values, call, options, values.save_dir, GPUS_UIO if uio else GPUS)


def _put_recipe(values: Values, call: Call, options: Table, out: str, gpus: int) -> None:
    for key in ("batch_size", "unroll_steps", "n_epochs"):
        if (options[key] or 0) < 1:
            raise UsageError(key, f"found {options[key]}", "1 or more")
    call.put("corpus: source", {"kind": "text", "path": _pattern(values.train_prefix)})
    call.put("tokenizer: tokenizer", {"kind": "words", "file": values.vocab_file, "split": "spaces"})
    call.set(RECIPE_SETS)
    call.put("out", out)
    call.put("objective", {"kind": "bilm", "together": False, "scale": float(options["unroll_steps"])})
    for key, location in SETTINGS.items():
        call.put(location, 0 if options[key] is None else options[key])
    if not options["sample_softmax"]:
        call.put("objective.samples", 0)
    _put_steps(values, call, options, gpus)
    call.after.append(functools.partial(_write_options, Path(values.out_override or out), options))


def _put_steps(values: Values, call: Call, options: Table, gpus: int) -> None:
    """Set batch and steps. Compute the steps from the number of words if it is given, else from the text."""
    batch, epochs, words = options["batch_size"] * gpus, options["n_epochs"], options["n_train_tokens"]
    call.put("phase.batch", batch)
    call.notes.append(
        f"a step has {options['batch_size']} x {gpus} GPUs = {many(batch, 'row')}; `--devices N` uses N devices"
    )
    if words is None:
        call.put("phase.epochs", epochs)
        return
    steps = words // (batch * options["unroll_steps"])
    if steps < 1:
        words_per_step = batch * options["unroll_steps"]
        flag = "--size" if "size" in values.explicit else "n_train_tokens"
        remedy = f"a smaller batch_size: `{'--options FILE.json' if 'options' in values.of else '--batch_size N'}`"
        raise UsageError(flag, f"found {words:,} words", f"at least the {words_per_step:,} of a step", remedy)
    call.put("phase.steps", epochs * steps)


def _pattern(prefix: str) -> str:
    """Return a folder or glob pattern as it is; turn a file prefix into a pattern."""
    return prefix if Path(prefix).exists() or re.search(r"[*?\[]", prefix) else f"{prefix}*"


def _write_options(out: Path, options: Table) -> None:
    """Write options.json next to the checkpoints like the original, without the number of words if it is unknown."""
    table: Table = {}
    for key, value in (options | {"n_tokens_vocab": len(files.split_lines(out / "tokenizer/vocab.txt"))}).items():
        *tables, last = key.split(".")
        if (key, value) != ("n_train_tokens", None):
            functools.reduce(lambda inner, name: inner.setdefault(name, {}), tables, table)[last] = value
    files.write_json(out / OPTIONS, table)


def restarting(values: Values, call: Call) -> None:
    """Resume an interrupted run. For a finished run or a TensorFlow checkpoint, start a new run from its weights."""
    location = _newest(values.save_dir)
    if values.n_gpus > 1 and values.place.world == 1:
        call.devices = values.n_gpus
    is_run = kind_of_folder(location) is FolderKind.PRETRAINING
    if is_run and read_status(location).get("state") != "done" and _matches(values, _recipe_of(location)):
        call.words = [str(location)]
        call.notes.append(f"{location} was interrupted: it resumes with the next rows")
        call.after.append(functools.partial(_write_options, location, _options_of(location)))
        return
    options = _options_of(location)
    _copy_vocabulary(values, call, location, options["n_tokens_vocab"])
    options |= {key: values.of[key] for key in ("n_train_tokens", "n_epochs", "batch_size") if values.of[key] > 0}
    if options["n_epochs"] is None:
        raise UsageError(
            "--n_epochs", f"missing, and {location} has no number of epochs", "`--n_epochs N --n_train_tokens WORDS`"
        )
    out = f"{Path(values.save_dir)}-restart-{_number(location) + 1}"
    _put_recipe(values, call, options, out, values.n_gpus)
    call.put("init", str(location))
    start = "the weights and the optimizer state" if is_run else "the weights, but not the optimizer state,"
    call.notes.append(f"{out}: a new run that starts from {start} of {location}")


def _newest(save_dir: str) -> Path:
    """Return the folder of the last restart, or `save_dir` if there is none."""
    path = Path(save_dir)
    if not path.is_dir():
        raise UsageError(
            "--save_dir", f"found {save_dir}, which does not exist", "a folder that train_elmo.py has written"
        )
    return max([path, *path.parent.glob(f"{glob.escape(path.name)}-restart-*")], key=_number)


def _number(path: Path) -> int:
    last = re.search(r"-restart-(\d+)\Z", path.name)
    return int(last[1]) if last else 0


def _recipe_of(path: Path) -> Table:
    recipe = settings.flat(settings.read(path / RECIPE))
    if recipe["model.kind"] != "elmo":
        raise UsageError("--save_dir", f"{path} is a run of {recipe['model.kind']}", "a run of elmo")
    return recipe


def _matches(values: Values, recipe: Table) -> bool:
    """Return whether the command line matches an existing run: its text, words, batch and steps."""
    batch, length = recipe["phase[1].batch"], recipe["phase[1].length"]
    pattern = _pattern(values.train_prefix)
    if _translated_recipe(recipe, "corpus").get("source.path", pattern) != pattern:
        return False
    if values.batch_size > 0 and values.batch_size * values.n_gpus != batch:
        return False
    if values.n_epochs > 0 and values.n_train_tokens > 0:
        return bool(recipe["phase[1].steps"] == values.n_epochs * (values.n_train_tokens // (batch * length)))
    return values.n_train_tokens <= 0 and values.n_epochs in (0, _epochs(recipe))


def _translated_recipe(recipe: Table, name: str) -> Table:
    """Return the recipe that `ordsmed as` wrote for the run. The recipe in the run's folder has steps, not epochs."""
    path = Path(str(recipe["data"])).with_name(f"{name}.toml")
    return settings.flat(settings.read(path)) if path.is_file() else {}


def _epochs(recipe: Table) -> int | None:
    epochs = _translated_recipe(recipe, "pretrain").get("phase[1].epochs")
    return None if epochs is None else int(epochs)


def _options_of(path: Path) -> Table:
    """Return the options that a model was trained with, from its options.json or from the run's recipe."""
    if (path / OPTIONS).is_file():
        known = {name.partition(".")[0] for name in DEFAULTS}  # ignore other keys, as the original does
        table = {key: value for key, value in files.read_table(path / OPTIONS).items() if key in known}
        return DEFAULTS | MISSING | of_table(f"{path / OPTIONS}", json.dumps(table), DICTIONARY)
    if kind_of_folder(path) is not FolderKind.PRETRAINING:
        raise UsageError("--save_dir", f"{path} has no {OPTIONS}", "a folder that train_elmo.py has written")
    recipe = _recipe_of(path)
    options = {key: recipe[setting.replace("phase.", "phase[1].")] for key, setting in SETTINGS.items()}
    return DEFAULTS | options | {"batch_size": recipe["phase[1].batch"], "n_epochs": _epochs(recipe)}


def _copy_vocabulary(values: Values, call: Call, path: Path, words: int | None) -> None:
    """Copy the vocabulary next to a TensorFlow checkpoint without one: its softmax cannot be imported otherwise."""
    if bundle.find(path) is None or any((path / name).is_file() for name in LISTS):
        return
    source, target = Path(values.vocab_file), path / LISTS[0]
    lines = list(read.lines(source))
    if words not in (None, len(lines)):
        wanted = f"the {words:,} of its training, as in {path / OPTIONS}"
        raise UsageError("--vocab_file", f"{source} lists {len(lines):,} words", wanted)
    call.notes.append(f"{source} is copied to {target}: the words of the checkpoint's softmax")
    call.before.append(lambda: files.write_text(target, "\n".join([*lines, ""])))


TESTING = (
    Flag("--save_dir", str, "model", joint=True, required=True),
    Flag("--vocab_file", str, "words of a checkpoint", joint=True, required=True),
    Flag("--test_prefix", str, "files", joint=True, required=True),
    Flag("--batch_size", 256, nothing="the number of lines per batch is chosen by device memory"),
)


def testing(values: Values, call: Call) -> None:
    location, pattern = _newest(values.save_dir), _pattern(values.test_prefix)
    texts = [str(path) for path in read.files(pattern)]
    if (location / OPTIONS).is_file():
        _copy_vocabulary(values, call, location, _options_of(location)["n_tokens_vocab"])
    if not call.before:
        call.notes.append("--vocab_file: not needed here: the model has a vocabulary")
    call.words = [str(location), "--out", f"{location}/test", "--probe", "perplexity", *texts, "way=mean"]
    call.notes.append("each line starts with zero LSTM states; the original keeps the states of 256 streams of lines")
    call.after.append(functools.partial(_print_perplexity, location / "test", texts))


def _print_perplexity(folder: Path, texts: list[str]) -> None:
    paths = [path for path in folder.glob("perplexity-*.json") if files.read_table(path)["files"] == texts]
    newest = max(paths, key=lambda path: path.stat().st_mtime_ns)
    print(f"FINISHED!  AVERAGE PERPLEXITY = {files.read_table(newest)['perplexity']}")


DUMPING = (
    Flag("--save_dir", str, "model", joint=True, required=True),
    Flag("--outfile", str, "file, and a folder next to it", joint=True, required=True),
)


def dumping(values: Values, call: Call) -> None:
    """Export the weights as HDF5, and a folder next to it that simple_elmo and AllenNLP open."""
    if not Path(values.outfile).name:
        raise UsageError("--outfile", f"found {values.outfile or 'nothing'}", "a file name")
    outfile = Path(values.outfile)
    folder = outfile.with_name(f"{outfile.stem}-elmo")
    call.words = [str(_newest(values.save_dir)), str(folder), "--anew"]
    call.notes.append(f"{folder}: the model with {OPTIONS} and vocab.txt, for simple_elmo and AllenNLP")
    call.after.append(lambda: shutil.copyfile(folder / "model.hdf5", outfile))


COUNTING = (Flag("words", int, "number of words to print", joint=True, required=True),)


def counting(values: Values, call: Call) -> None:
    if values.words < 1:
        raise UsageError("vocabulary.py", f"found {values.words} words", "1 or more")
    call.after.append(functools.partial(_count, values.words))


def _count(limit: int) -> None:
    """Print the most frequent words of standard input. Those of equal frequency are in the order of occurrence."""
    counts = Counter(word for line in sys.stdin for word in line.split())
    print("\n".join([*SIGNS, *(word for word, _ in counts.most_common(limit))]))


def embedding(values: Values, call: Call) -> None:
    raise UsageError("this program", "is an example of bilm-tf in Python", "`ordsmed embed MODEL TEXTS OUT.h5`")


PROGRAMS = (
    *(
        Program(f"{name}.py", doc, flags, call, verb, f"bin/{name}.py", also=(f"bilm/{name}.py",))
        for name, doc, flags, call, verb in (
            ("train_elmo", "train an ELMo", TRAINING, training, "pretrain"),
            ("restart", "resume an ELMo, also on other text", RESTARTING, restarting, "pretrain"),
            ("run_test", "compute the perplexity of held-out text", TESTING, testing, "evaluate"),
            ("dump_weights", "export weights as HDF5", DUMPING, dumping, "export"),
        )
    ),
    Program("vocabulary.py", "print the most frequent words of standard input", COUNTING, counting),
    *(
        Program(name, "refused: `ordsmed embed` writes vectors", (), embedding)
        for name in ("usage_cached.py", "usage_character.py", "usage_token.py", "testchar.py")
    ),
)
