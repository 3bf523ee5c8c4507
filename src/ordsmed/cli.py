"""The command `ordsmed`: one short function a verb; what a verb needs is imported inside it, never at start-up."""

from __future__ import annotations

import argparse
import difflib
import json
import os
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ordsmed import __version__
from ordsmed.base import ending, menu
from ordsmed.base.arguments import Parser, UsageError, number, whole
from ordsmed.base.errors import DataError, OrdsmedError, RecipeError, RunError, nearest
from ordsmed.base.screen import columns, command, fitted, table

Arguments = argparse.Namespace
SETTINGS = {  # verb -> where its recipe's settings stand
    "corpus": ("ordsmed.corpus.pipeline", "Corpus"),
    "tokenizer": ("ordsmed.data.tokenizer_training", "Training"),
    "encode": ("ordsmed.data.encode", "Encoding"),
    "pretrain": ("ordsmed.train.recipe", "Pretraining"),
    "finetune": ("ordsmed.finetune.recipe", "Finetuning"),
    "bench": ("ordsmed.bench.bench", "Bench"),
}
TRAINED = ("pretrain", "finetune")
LAYOUT = ("ordsmed.mesh.layout", "Layout")
PHASES = {"phase": ("ordsmed.learn.phases", "Phase"), "phase.schedule": ("ordsmed.learn.schedules", "Schedule")}
MORE = {"group": ("ordsmed.learn.groups", "Rule"), "trouble": ("ordsmed.train.guard", "Guard")}
NEAR = {"near": ("ordsmed.corpus.near", "Near"), "held_out": ("ordsmed.corpus.held_out", "Decontaminate")}
GIVEN = {"given": ("ordsmed.corpus.pipeline", "Given")}
TUNING = {"schedule": PHASES["phase.schedule"], "adapters": ("ordsmed.nn.adapters", "Adapters"),
          "task.top": ("ordsmed.learn.upper_layers", "Top")}  # fmt: skip
INNER = {
    "corpus": {**NEAR, **GIVEN}, "pretrain": {**PHASES, **MORE, "layout": LAYOUT},
    "finetune": {**TUNING, **MORE, "layout": LAYOUT}, "bench": {"layout": LAYOUT},
}  # fmt: skip
FIRST_STEPS = (
    ("ordsmed quickstart", "a small BERT on the documentation of your Python, in a few minutes"),
    ("ordsmed recipes", "the built-in recipes; with a name: its text, to begin your own with"),
    ("ordsmed pretrain tiny/bert", "a recipe's corpus, tokenizer, store and run; --dry-run: only tell"),
    ("ordsmed help pretrain", "the words, flags and settings of a verb"),
)


def fetch(asked: Arguments) -> None:
    """get published data: dumps, book and URL lists, SQuAD, GLUE ...; without a name: what there is"""
    from ordsmed.web import fetch as deed

    if not asked.names:
        _print(deed.listing())
        return
    how = {key: getattr(asked, key) for key in ("mirror", "allow_missing", "private", "timeout", "slowest", "attempts")}
    _print(deed.fetch(asked.names, out=asked.out, **how))


def corpus(asked: Arguments) -> None:
    """clean text, drop duplicates, split it into sentences, and hold some documents out"""
    from ordsmed.base.run import find_recipe
    from ordsmed.corpus.pipeline import Corpus, partly

    inner = [verb.removeprefix("corpus ") for verb in VERBS if verb.startswith("corpus ")]
    if meant := difflib.get_close_matches(asked.name, inner, n=1, cutoff=0.7):
        try:
            find_recipe(asked.name, "corpus")
        except RecipeError as error:
            raise RecipeError(error.place, error.found, "", f"did you mean `{command('corpus', meant[0])}`?") from None
    if asked.part or asked.until:
        if asked.anew:
            raise RecipeError("--anew", "beside --part or --until", "one of them", "`--anew` alone begins again")
        _print(partly(asked.name, asked.overrides, part=asked.part, until=asked.until))
        return
    _make(Corpus, asked)


def corpus_stats(asked: Arguments) -> None:
    """documents, sentences, words, lengths, duplicates and languages of a corpus, and what each step dropped"""
    from ordsmed.show.stats import stats

    _print(stats(asked.folder, tokenizer=asked.tokenizer, wide=columns(sys.stdout)))


def corpus_shards(asked: Arguments) -> None:
    """share the documents of corpora out over text files of equal length, for training and for tests"""
    from ordsmed.corpus.shards import shards

    *folders, out = asked.folders
    if not folders:
        raise RecipeError("corpus shards", f"found one folder, {out}", "FOLDER... OUT")
    how = {"train": asked.train, "test": asked.test, "fraction": asked.fraction, "splits": asked.splits}
    _print(shards(folders, out, **how, anew=asked.anew))


def corpus_presplit(asked: Arguments) -> None:
    """JSON lines of a corpus, a document's sentences each on a line of its text"""
    from ordsmed.corpus.presplit import presplit

    _print(presplit(asked.folder, asked.out, anew=asked.anew))


def corpus_addresses(asked: Arguments) -> None:
    """the addresses of lists and Reddit dumps that are worth getting, one a line; nothing is downloaded"""
    from ordsmed.web.urls import Rules, write_list

    *inputs, out = asked.files
    if not inputs:
        raise RecipeError("corpus addresses", f"found one file, {out}", "FILE... OUT")
    try:
        rules = Rules(asked.score, asked.over_18, asked.blacklist or ["usual"], asked.pattern or [])
    except ValueError as error:
        raise RecipeError("corpus addresses", str(error)) from None
    _print(write_list(inputs, out, rules, private=asked.private, anew=asked.anew))


def tokenizer(asked: Arguments) -> None:
    """train a tokenizer on a corpus, or take over one you have"""
    from ordsmed.data.tokenizer_training import Training

    _make(Training, asked)


def encode(asked: Arguments) -> None:
    """turn a corpus into token ids on disk"""
    from ordsmed.data.encode import Encoding

    _make(Encoding, asked)


def pretrain(asked: Arguments) -> None:
    """train a network: a new run from a recipe, or go on with a run's folder"""
    from ordsmed.pretrain.pretrain import pretrain as deed

    folder = _trained(asked, deed)
    if folder and _first():
        _print([f"{folder}: done; {folder}/loss.svg shows its course", f"next: {command('show', folder)}"])


def finetune(asked: Arguments) -> None:
    """teach a pretrained network a task: questions, classes, tags; or go on with a run's folder"""
    from ordsmed.finetune.finetune import finetune as deed

    folder = _trained(asked, deed)
    if folder and _first():
        from ordsmed.finetune.trials import ended

        _print(ended(folder))


def _trained(asked: Arguments, deed: Callable[..., Any]) -> Any:
    """The folder of a training that is done; None where it was only told, or done by other processes."""
    if asked.threads:
        asked.overrides.append(f"layout.threads={asked.threads}")
    if asked.devices and not asked.dry_run and "RANK" not in os.environ:
        from ordsmed.launch.local import start

        sys.exit(start(_without(asked.words, "--devices", "--restarts"), asked.devices, restarts=asked.restarts))
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # a lost rank is told in a line, not in the others' stacks
    from ordsmed.base.say import seconds
    from ordsmed.show import show
    from ordsmed.train.loop import Stopped

    how = {"layout": asked.layout, "site": asked.site}
    try:
        deadline = seconds(asked.deadline) if asked.deadline is not None else None
    except ValueError as error:
        raise RecipeError("--deadline", str(error)) from None
    if deadline and asked.dry_run and asked.verb == "finetune":
        raise RecipeError("--deadline", "found for a fine-tuning, which goes by epochs", "", "set `steps` or `epochs`")
    if asked.dry_run:
        _print(show.show(asked.name, asked.overrides, verb=asked.verb, devices=asked.devices, **how))
        return None
    try:
        return deed(asked.name, asked.overrides, deadline=deadline, anew=asked.anew, **how)
    except Stopped as stopped:
        sys.exit(128 + stopped.by)


def evaluate(asked: Arguments) -> None:
    """the scores of a fine-tuned model on files, or on those it was judged by, with tables"""
    from ordsmed.apply.predict import evaluate as act

    files, overrides = _apart(asked.files)
    facts, lines = act(asked.run, files, overrides, **_how(asked))
    _print_or_json(facts, lines, asked)


def predict(asked: Arguments) -> None:
    """what a fine-tuned model says of files, right answers known or not: predictions.json, .tsv, CoNLL"""
    from ordsmed.apply.predict import predict as act

    (*sources, out), overrides = _apart(asked.files)
    if not sources:
        raise RecipeError("predict", f"found one path, {out}", "RUN FILE... OUT")
    _print(act(asked.run, sources, out, overrides, anew=asked.anew, scores=asked.scores, **_how(asked)))


def answer(asked: Arguments) -> None:
    """which part of a text answers a question, and how sure the model is; without either you are asked for both"""
    from ordsmed.apply.answer import answer_lines

    overrides = [word for word in asked.text if word.startswith("task.") and "=" in word]
    words = [word for word in asked.text if word not in overrides]
    how = {**_how(asked), "file": asked.file, "best": asked.best, "as_json": asked.json}
    for line in answer_lines(asked.run, words, sys.stdin.buffer, overrides, **how):
        print(line, flush=True)


def score(asked: Arguments) -> None:
    """the official numbers of a file of predictions, whoever made it"""
    from ordsmed.apply.score import score as act

    (*data, predictions), overrides = _apart(asked.files)
    if not data:
        raise RecipeError("score", f"found one file, {predictions}", "TASK DATA... PREDICTIONS")
    found = act(asked.task, data, predictions, overrides)
    _print_or_json(found, [f"{name}: {value}" for name, value in found.items()], asked)


def _apart(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Files, and settings of the task among them."""
    overrides = [word for word in words if word.startswith("task.") and "=" in word]
    files = [word for word in words if word not in overrides]
    return files or [""], overrides


def _how(asked: Arguments) -> dict[str, Any]:
    """How a fine-tuned model is opened."""
    return {"step": asked.step, "device": asked.device, "threads": asked.threads, "precision": asked.precision}


def fill(asked: Arguments) -> None:
    """a model's best guesses for every [MASK] in a text, or in each line of standard input"""
    from ordsmed.apply.fill import fill_lines

    how = {"step": asked.step, "threads": asked.threads}
    for line in fill_lines(asked.run, asked.text or sys.stdin.buffer, asked.best, **how):
        print(line, flush=True)


def generate(asked: Arguments) -> None:
    """a causal model goes on with a text, or with each line of standard input; an empty one it begins itself"""
    from ordsmed.apply.generate import Way, generate_lines

    way = Way(asked.tokens, asked.temperature, asked.best, asked.share, asked.seed)
    how = {"step": asked.step, "threads": asked.threads}
    for line in generate_lines(asked.run, asked.text or sys.stdin.buffer, way, **how):
        print(line, flush=True)


def embed(asked: Arguments) -> None:
    """vectors of the words or sentences of every line of a text, as HDF5, NumPy or Parquet"""
    from ordsmed.apply.embed import Form
    from ordsmed.apply.embed import embed as write

    names = ("of", "layers", "mix", "pieces", "pool", "dtype", "batch", "device", "threads", "carry", "cut")
    form = Form(**{name: getattr(asked, name) for name in names})
    source = sys.stdin.buffer if asked.input == "-" else asked.input
    _print([write(asked.run, source, asked.out, form, step=asked.step, anew=asked.anew)])


def import_(asked: Arguments) -> None:
    """take over a model from files of another format: a folder that embed, export and `init` take"""
    from ordsmed.apply.importing import take_over

    _print(take_over(asked.source, asked.out, asked.overrides, anew=asked.anew))


def export(asked: Arguments) -> None:
    """write a folder that others load (transformers; an ELMo: simple_elmo, AllenNLP), with a model card"""
    from ordsmed.apply.export import export as write
    from ordsmed.apply.export import export_all, readers

    how = {"anew": asked.anew, "licence": asked.licence}
    if asked.step == "all":
        _print([f"{out}: written" for out in export_all(asked.run, asked.out, **how)])
        return
    out = write(asked.run, asked.out, step=asked.step, **how)
    _print([f"{out}: written; {readers(out)}"])


def show(asked: Arguments) -> None:
    """a recipe or a run: settings, size, cost; two of them: how they differ; --step: which documents a step saw"""
    from ordsmed.show import show as tell

    if asked.step is not None:
        _print(tell.documents(asked.name, asked.step))
    elif asked.other and "=" not in asked.other[0]:
        other, *overrides = asked.other
        if more := next((word for word in overrides if "=" not in word), ""):
            raise RecipeError(f"`{more}`", "one name too many", "two recipes or runs to compare")
        _print(tell.difference(asked.name, other, overrides))
    elif asked.layout is not None:
        how = {"layout": asked.layout, "site": asked.site, "devices": asked.devices}
        _print(tell.layout(asked.name, asked.other, **how))
    else:
        how = {"site": asked.site, "devices": asked.devices, "all_settings": asked.settings}
        _print(tell.show(asked.name, asked.other, **how))


def menus(asked: Arguments) -> None:
    """what a recipe can choose from; one menu or one entry: with all settings"""
    for name in [asked.menu] if asked.menu else menu.MENUS:
        if name not in menu.MENUS:
            raise RecipeError(f"`{name}`", "no such menu", "", nearest(name, menu.MENUS))
        if asked.kind not in (None, *menu.entries(name)):
            if "." not in asked.kind:
                raise RecipeError(f"`{asked.kind}`", f"is not in {name}", "", nearest(asked.kind, menu.entries(name)))
            menu.load(name, asked.kind, place="menus")  # a module of one's own: what is wrong with it is told
        _print([name])
        for kind in [asked.kind] if asked.kind else menu.entries(name):
            module = menu.module_of(name, kind)
            _print([f"  {kind:<13}  {menu.headline(module)}"])
            if asked.menu:
                _print(_told(menu.lines(module), "      "))


def recipes(asked: Arguments) -> None:
    """the built-in recipes; with a name: its text"""
    from ordsmed.base.run import find_recipe, recipe_names
    from ordsmed.base.settings import read

    if asked.name:
        path = find_recipe(asked.name, asked.name.split("/")[0] if "/" in asked.name else "")
        read(path)  # what is no recipe is refused
        print(path.read_text(encoding="utf-8"), end="")
        return
    for name in recipe_names():
        first = find_recipe(name, "").read_text(encoding="utf-8").splitlines()[0]
        _print([f"  {name:<28}  {first.lstrip('# ')}"])


def bench(asked: Arguments) -> None:
    """measure: training steps, the loader, encoding, the index map"""
    from ordsmed.bench.bench import bench as measure
    from ordsmed.train.loop import Stopped

    try:
        for line in measure(asked.name, asked.overrides, json_line=asked.json):
            print(line)
    except Stopped as stopped:
        sys.exit(128 + stopped.by)


def quickstart(asked: Arguments) -> None:
    """from the embedded corpus to a small BERT that fills masks, in a few minutes"""
    from ordsmed.pretrain.quickstart import quickstart as walk

    walk()


def help_(asked: Arguments) -> None:
    """what there is; with a verb: its words, flags and settings"""
    name = " ".join(asked.of)
    if name in VERBS:
        _parser(name, helped=True).print_help()
        return
    if name:
        raise UsageError(f"`{name}`", "no such verb", "", nearest(name, VERBS))
    _print([f"ordsmed {__version__}: from raw text to a language model that Hugging Face loads.", ""])
    _print(table([(name, act.__doc__ or "") for name, act in VERBS.items()]))
    _print(["", "`ordsmed help VERB` tells its flags and settings; the README begins with the first steps."])


def version(asked: Arguments) -> None:
    """which version this is"""
    _print([f"ordsmed {__version__}"])


def _begin() -> None:
    """What one sees who types `ordsmed` alone."""
    _print([f"ordsmed {__version__}: from raw text to a language model that Hugging Face loads.", "", "First steps:"])
    lines = table(FIRST_STEPS)
    if max(map(len, lines)) > columns(sys.stdout):  # what a command does stands below it
        lines = [line for verb, does in FIRST_STEPS for line in (f"  {verb}", f"      {does}")]
    _print(lines)
    _print(["", "Verbs (`ordsmed help` tells what each does, `ordsmed help VERB` its flags and settings):"])
    _print(["  " + " · ".join(VERBS)])


VERBS: dict[str, Callable[[Arguments], None]] = {
    f.__name__.rstrip("_").replace("_", " "): f
    for f in (quickstart, fetch, corpus, corpus_stats, corpus_shards, corpus_presplit, corpus_addresses, tokenizer,
              encode, pretrain, finetune, evaluate, predict, answer, score, fill, generate, embed, import_, export,
              show, menus, recipes, bench, help_, version)
}  # fmt: skip


def main(words: Sequence[str] | None = None) -> None:
    """Run one verb; what a user can mend is one line: exit status 2 where the words are wrong, else 1."""
    words = list(sys.argv[1:] if words is None else words)
    try:
        with ending.heard():
            _run(words)
    except OrdsmedError as error:
        status = 2 if isinstance(error, UsageError) else 1
        if error.echo or (isinstance(error, RecipeError | UsageError) and not _first()):  # all find the same
            sys.exit(status)
        _fail(str(error), status)
    except BrokenPipeError:  # the reader went away, as `head` does: nobody is left to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except OSError as error:
        from ordsmed.base.files import refusal

        found, remedy = refusal(error)
        _fail(str(RunError(error.filename or "disk", found, "", remedy)), 1)
    except RecursionError as error:
        if "JSON" not in str(error):
            raise
        _fail(str(DataError("a file of JSON", "is nested too deeply to be read", "a file as this verb takes it")), 1)
    except KeyboardInterrupt as stopped:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # once more: at once
        status = 128 + (stopped.number if isinstance(stopped, ending.Ended) else signal.SIGINT)
        name = _verb(words) if words else ""
        if not _first():
            sys.exit(status)
        _fail(ending.told(name, words[len(name.split()) :]), status)


def _run(words: list[str]) -> None:
    if not words:
        _begin()
        return
    words = {"-h": ["help"], "--help": ["help"], "--version": ["version"]}.get(words[0], [words[0]]) + words[1:]
    name = _verb(words)
    if name.startswith("-"):
        raise UsageError(
            f"`{name}`", "no such verb", "`ordsmed VERB`, and flags behind it", "`ordsmed help` lists them"
        )
    if name not in VERBS:
        raise UsageError(f"`{name}`", "no such verb", "", nearest(name, VERBS))
    rest = words[len(name.split()) :]
    asked = _parser(name, helped="-h" in rest or "--help" in rest).read(rest)
    asked.words = [name, *rest]
    VERBS[name](asked)


def _verb(words: Sequence[str]) -> str:
    """The verb that words begin with: the longest there is."""
    two = " ".join(words[:2])
    return two if two in VERBS else words[0]


def _parser(name: str, *, helped: bool = False) -> Parser:
    settings = [line.name for line in menu.lines(*SETTINGS[name])] if name in SETTINGS else []
    parser = Parser(name, others=_owners, settings=settings, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.description = "\n".join(fitted(VERBS[name].__doc__ or "", columns(sys.stdout)))
    parser.epilog = _epilog(name) if helped else ""
    _arguments(name, parser)
    return parser


def _owners(flag: str) -> str:
    """Which verbs know a flag, or one much like it."""
    known = {name: _parser(name).flags() for name in VERBS}
    near = difflib.get_close_matches(flag, {word for words in known.values() for word in words}, n=1, cutoff=0.8)
    verbs = [f"`{name}`" for name, words in known.items() if near and near[0] in words]
    return f"{near[0]} is a flag of {', '.join(verbs)}" if near else ""


def _arguments(name: str, verb: Parser) -> None:
    if name in SETTINGS:
        either = "a recipe (a built-in one by name, or a TOML file)" + (
            ", or a run's folder" if name in TRAINED else ""
        )
        verb.add_argument("name", metavar="RECIPE|RUN" if name in TRAINED else "RECIPE", help=either)
        verb.add_argument(
            "overrides", nargs="*", metavar="key.path=value", help="change a setting; phase[2].rate=... one phase"
        )
    if name == "import":
        verb.add_argument("source", metavar="FOLDER|FILE", help="a model in a format of `ordsmed menus formats`")
        verb.add_argument("out", metavar="OUT", help="the folder to write")
        verb.add_argument("overrides", nargs="*", metavar="model.key=value", help="change a setting of the model")
    if name == "fetch":
        verb.add_argument("names", nargs="*", metavar="NAME", help="built-in names, or TOML files of your own")
        verb.add_argument("--out", default="work/fetch", help="where to; a folder a name (default work/fetch)")
        verb.add_argument("--mirror", metavar="FOLDER|URL", help="where NAME/FILE lies, instead of the addresses")
        verb.add_argument("--allow-missing", action="store_true", help="leave out and count what cannot be had")
        verb.add_argument("--private", action="store_true", help="addresses of private networks are allowed")
        verb.add_argument(
            "--timeout", type=float, default=20.0, metavar="SECONDS", help="for an answer and each next piece (20)"
        )
        verb.add_argument(
            "--slowest", type=int, default=1000, metavar="BYTES", help="a second; slower servers are given up (1000)"
        )
        verb.add_argument(
            "--attempts", type=int, default=3, metavar="N", help="tries of a file; a MB earns new ones (3)"
        )
    if name == "corpus":
        verb.add_argument("--part", metavar="I/N", help="read and clean one of N parts, as a job of an array does")
        verb.add_argument("--until", metavar="read|match", help="stop after this step; the same command goes on")
    if name == "corpus stats":
        verb.add_argument("folder", metavar="FOLDER")
        verb.add_argument("--tokenizer", help="folder, file or recipe of one: count its tokens as well")
    if name == "corpus shards":
        verb.add_argument(
            "folders", nargs="+", metavar="FOLDER... OUT", help="finished corpora, and the folder to write"
        )
        verb.add_argument("--train", type=whole(1), metavar="N", default=256, help="files for training (default 256)")
        verb.add_argument("--test", type=whole(0), metavar="N", default=0, help="files for tests (default none)")
        verb.add_argument(
            "--fraction", type=number, metavar="X", default=0.1, help="of the sentences, in tests (default 0.1)"
        )
        verb.add_argument(
            "--splits", default="train", help="of the corpora: train (default), validation, test, some of them or all"
        )
    if name == "corpus presplit":
        verb.add_argument("folder", metavar="FOLDER")
        verb.add_argument("out", metavar="OUT", help="the folder to write")
    if name == "corpus addresses":
        lists = "lists of addresses or dumps of Reddit submissions, packed or not, and the file to write"
        verb.add_argument("files", nargs="+", metavar="FILE... OUT", help=lists)
        verb.add_argument("--score", type=int, metavar="N", default=3, help="points a submission needs (default 3)")
        verb.add_argument("--over-18", action="store_true", help="keep the submissions that are marked so")
        verb.add_argument(
            "--blacklist", action="append", metavar="FILE", help="domains to leave out, instead of `usual`"
        )
        verb.add_argument(
            "--pattern", action="append", metavar="REGEX", help="leave out addresses in which it is found"
        )
        verb.add_argument("--private", action="store_true", help="keep hosts of private networks")
    anew = (
        "corpus",
        "corpus shards",
        "corpus presplit",
        "corpus addresses",
        "tokenizer",
        "encode",
        *TRAINED,
        "import",
        "export",
    )
    if name in anew:
        verb.add_argument("--anew", action="store_true", help="delete what stands in the folder and make it again")
    if name in TRAINED:
        verb.add_argument("--dry-run", action="store_true", help="check and tell, make nothing")
        verb.add_argument(
            "--deadline",
            metavar="3h",
            help="fewer steps if needed to end in this time; fitted again as it goes",
        )
        verb.add_argument(
            "--restarts",
            type=whole(0),
            metavar="N",
            default=0,
            help="with --devices: begin again so often after a failure",
        )
        verb.add_argument(
            "--layout", default="", metavar="auto|RxSxT", help="replicate x shard x tensor; auto: measure"
        )
    if name in (*TRAINED, "show"):
        verb.add_argument(
            "--devices", type=whole(1), metavar="N", default=0, help="processes, one a GPU (or share of the CPU)"
        )
        verb.add_argument("--site", default="", help="a machine's layout: a shipped site or a TOML file")
    if name in ("fill", "generate", "embed", "export"):
        verb.add_argument("run", metavar="RUN", help="the folder of a run or an import, or a Hugging Face folder")
    if name in ("fill", "generate", "embed"):
        verb.add_argument(
            "--step", type=whole(0), metavar="N", help="of this checkpoint, not the last; 0: before the first step"
        )
    if name in ("evaluate", "predict", "score"):
        shapes = {"evaluate": ("*", "FILE"), "predict": ("+", "FILE... OUT"), "score": ("+", "DATA... PREDICTIONS")}
        first = ("task", "TASK") if name == "score" else ("run", "RUN")
        verb.add_argument(first[0], metavar=first[1], help="squad-1.1, squad-2.0, a GLUE task, classify or tag"
                          if name == "score" else "the folder of a fine-tuning, or a Hugging Face folder")  # fmt: skip
        verb.add_argument(
            "files", nargs=shapes[name][0], metavar=shapes[name][1], help="files of the task; and task.key=value"
        )
    if name == "answer":
        verb.add_argument("run", metavar="RUN", help="the folder of a fine-tuning, or a Hugging Face folder")
        verb.add_argument(
            "text", nargs="*", metavar="QUESTION CONTEXT", help="of a context a file may be named; and task.key=value"
        )
        verb.add_argument("--file", default="", help="questions: SQuAD's JSON, JSON lines, question<TAB>context; or -")
        verb.add_argument("--best", type=whole(1), metavar="N", default=3, help="possible answers told (default 3)")
    if name in ("evaluate", "predict", "answer"):
        verb.add_argument("--step", type=whole(0), metavar="N", help="of this checkpoint, not the best")
        verb.add_argument("--device", default="auto", metavar="auto|cpu|cuda", help="auto: a GPU where there is one")
        verb.add_argument("--precision", default="fp32", metavar="fp32|bf16|fp16", help="of products (default fp32)")
    if name in (*TRAINED, "evaluate", "predict", "answer", "fill", "generate", "embed"):
        verb.add_argument(
            "--threads",
            type=whole(1, 1024),
            metavar="N",
            help="of the CPU; left out: OMP_NUM_THREADS, or the idle cores",
        )
    if name == "predict":
        verb.add_argument("--scores", action="store_true", help="score them as well, where the files say what is right")
        verb.add_argument("--anew", action="store_true", help="replace the folder that stands")
    if name == "generate":
        verb.add_argument("text", nargs="*", metavar="TEXT", help="texts to go on with; none: lines of standard input")
        verb.add_argument(
            "--tokens", type=whole(1), metavar="N", default=40, help="at most so many new ones (default 40)"
        )
        verb.add_argument(
            "--temperature", type=number, metavar="X", default=1.0, help="0: always the likeliest token (default 1)"
        )
        verb.add_argument(
            "--best", type=whole(0), metavar="N", default=0, help="draw among so many of the likeliest (0: all)"
        )
        verb.add_argument(
            "--share", type=number, metavar="X", default=1.0, help="draw among the likeliest with this share together"
        )
        verb.add_argument("--seed", type=whole(0), metavar="N", default=0, help="of the draws (default 0)")
    if name == "fill":
        verb.add_argument("text", nargs="*", metavar="TEXT", help="texts with [MASK]; none: lines of standard input")
        verb.add_argument("--best", type=whole(1), metavar="N", default=5, help="guesses a mask (default 5)")
    if name == "embed":
        verb.add_argument("input", metavar="INPUT", help="text, plain or packed, an entry a line; -: standard input")
        verb.add_argument("out", metavar="OUT", help="to write, by its ending: .h5 .hdf5 .npz .npy .parquet")
        verb.add_argument("--anew", action="store_true", help="replace the file that stands")
        verb.add_argument("--of", default="words", metavar="words|sentences", help="a vector a word, or a line")
        verb.add_argument(
            "--layers", default="", metavar="top|all|mean|0,-1",
            help="0: embeddings, -1: the last; several: an axis more, in front (default top, of an ELMo all)",
        )  # fmt: skip
        verb.add_argument(
            "--mix", default="", metavar="JSON", help='{"weights": [...], "gamma": 1.0}: of all layers, by a softmax'
        )
        verb.add_argument("--pieces", default="mean", metavar="mean|first|last", help="of a word (default mean)")
        verb.add_argument(
            "--pool", default="mean", metavar="mean|first", help="of a sentence: its words, or the sign before them"
        )
        verb.add_argument("--dtype", default="float32", metavar="float32|float16", help="of the numbers written")
        verb.add_argument(
            "--batch", type=whole(1), metavar="N", default=64, help="lines the network reads at once (default 64)"
        )
        verb.add_argument("--device", default="auto", metavar="auto|cpu|cuda", help="auto: a GPU where there is one")
        verb.add_argument(
            "--carry", action="store_true",
            help="ELMo: a line goes on from the one at its place of the batch before (--batch 1: from the last one)",
        )  # fmt: skip
        verb.add_argument("--cut", action="store_true", help="ELMo: cut lines into words as its tokenizer does")
    if name == "export":
        verb.add_argument("out", metavar="FOLDER", help="where to write")
        verb.add_argument("--step", type=_step, metavar="N|all", help="of this step, 0 included; all: a folder each")
        verb.add_argument("--licence", help="of the model, for its card")
    if name == "show":
        verb.add_argument("name", metavar="RECIPE|RUN")
        verb.add_argument("other", nargs="*", metavar="RECIPE|RUN|key.path=value", help="a second one, or overrides")
        verb.add_argument("--step", type=whole(1), metavar="N", help="tell which documents this step of the run saw")
        verb.add_argument(
            "--layout", nargs="?", const="", metavar="RxSxT", help="mesh, batch arithmetic and memory on --devices"
        )
        verb.add_argument("--settings", action="store_true", help="of a run: all settings as well")
    if name == "menus":
        verb.add_argument("menu", nargs="?", metavar="MENU", help=" ".join(menu.MENUS))
        verb.add_argument("kind", nargs="?", metavar="KIND", help="one entry")
    if name == "recipes":
        verb.add_argument("name", nargs="?", metavar="NAME", help="print this one")
    if name == "help":
        verb.add_argument("of", nargs="*", metavar="VERB", help="one of them, with all it takes")
    if name in ("bench", "evaluate", "answer", "score"):
        verb.add_argument("--json", action="store_true", help="one line of JSON")


def _step(text: str) -> int | str:
    """A step's number, or all of them."""
    return text if text == "all" else whole(0)(text)


def _epilog(verb: str) -> str:
    """The settings of a verb's recipe, from the settings themselves."""
    if verb not in SETTINGS:
        return ""
    parts = ["settings of the recipe:", *_told(menu.lines(*SETTINGS[verb]), "  ")]
    for key, place in INNER.get(verb, {}).items():
        parts += ["", f"{key}:", *_told(menu.lines(*place), "  ")]
    return "\n".join([*parts, "", "`ordsmed menus NAME` prints what stands behind `one of ...`"])


def _told(lines: Iterable[menu.Line], indent: str) -> list[str]:
    wide, found = columns(sys.stdout) or 100 + len(indent) + 4, []
    for line in lines:
        found += fitted(f"{indent}{line.name} ({line.type}, {line.default})", columns(sys.stdout))
        found += fitted(f"{indent}    {line.doc}", wide)
    return found


def _make(deed: type, asked: Arguments) -> None:
    from ordsmed.base.run import Run, obtain

    folder = obtain(deed, asked.name, asked.overrides, anew=asked.anew)
    if (folder / "report.md").exists():
        _print(
            [
                f"{folder}: done; {folder}/report.md tells what it is made of",
                f"next: {command('corpus', 'stats', folder)}",
            ]
        )
        return
    hidden = ("verb", "state", "fingerprint", "began", "parts", "checksums", "stood_in", "folder")
    facts = [f"  {k}: {_in_words(v)}" for k, v in Run(folder).status.items() if k not in hidden]
    _print([f"{folder}: done", *facts])


def _in_words(value: Any) -> str:
    """A fact for a person: tables as names with their values."""
    return ", ".join(f"{k} {_in_words(v)}" for k, v in value.items()) if isinstance(value, dict) else str(value)


def _without(words: Sequence[str], *flags: str) -> list[str]:
    """A command's words without these flags and their numbers."""
    kept, drop = [], False
    for word in words:
        if not drop and not any(word.startswith(f"{flag}=") for flag in flags) and word not in flags:
            kept.append(word)
        drop = word in flags
    return kept


def _first() -> bool:
    """Is this the process of several that speaks?"""
    from ordsmed.base.ranks import place_of

    try:
        return place_of(os.environ).rank == 0
    except RecipeError:  # then that is what is told, by every process: none knows which it is
        return True


def _print(lines: Iterable[str]) -> None:
    wide = columns(sys.stdout)
    for line in lines:
        print("\n".join(fitted(line, wide)))


def _print_or_json(facts: Any, lines: Iterable[str], asked: Arguments) -> None:
    if asked.json:
        print(json.dumps(facts))
    else:
        _print(lines)


def _fail(line: str, status: int) -> None:
    rank = f" rank {os.environ['RANK']}:" if os.environ.get("RANK", "0") != "0" else ""
    print("\n".join(fitted(f"ordsmed:{rank} {line}", columns(sys.stderr))), file=sys.stderr)
    sys.exit(status)
