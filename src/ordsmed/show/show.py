"""Show: what a recipe would do or a run did, before any hour of a machine is spent; how two differ; what a step saw."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ordsmed.apply.trained import standing, unfinished
from ordsmed.base import hub, run, settings
from ordsmed.base.errors import OrdsmedError, RecipeError
from ordsmed.base.menu import kind_of
from ordsmed.base.ranks import place_of
from ordsmed.base.run import Run
from ordsmed.base.say import many, size
from ordsmed.base.screen import command
from ordsmed.bench.bench import Bench
from ordsmed.corpus.folder import origin
from ordsmed.corpus.pipeline import Corpus
from ordsmed.data.encode import Encoded, Encoding
from ordsmed.data.tokenizer_training import Training, read_tokenizer
from ordsmed.finetune import trials
from ordsmed.finetune.finetune import OfTask, Start, prepared, start
from ordsmed.finetune.recipe import Finetuning
from ordsmed.learn.objective import built
from ordsmed.learn.phases import Stretch, locate, total
from ordsmed.mesh.layout import Layout, arithmetic, memory, parse, site_layout
from ordsmed.mesh.parallel import held_by_rank
from ordsmed.nn import foreign, weights
from ordsmed.show import state
from ordsmed.text import read as reading
from ordsmed.train import checkpoint, room
from ordsmed.train import job as jobs
from ordsmed.train.recipe import Pretraining
from ordsmed.train.session import asked_of_layout, laid
from ordsmed.train.training import MAY_CHANGE, check_seed, named

if TYPE_CHECKING:
    from ordsmed.base.ranks import Ranks

DEEDS: dict[str, Any] = {d.verb: d for d in (Corpus, Training, Encoding, Pretraining, Finetuning, Bench)}
FETCHED = "work/fetch/"  # where `ordsmed fetch` puts what recipes name
SPLITS = ("train", "dev")
SAID = 3  # trials that are named


def show(
    name: str, overrides: Sequence[str] = (), verb: str = "", *, layout: str = "", site: str = "", devices: int = 0,
    all_settings: bool = False,
) -> list[str]:  # fmt: skip
    """A recipe or a run in lines, of a run first how it stands; of an imported folder its settings and size.

    `verb`: it is about to be started so, and what would be refused then is refused.
    """
    if Path(name).is_dir() and foreign.is_imported(Path(name)):
        if overrides:
            raise RecipeError(name, f"is a folder, but {overrides[0]} is given", "no override")
        count = sum(math.prod(shape) for shape in weights.shapes(Path(name) / foreign.WEIGHTS).values())
        text = (Path(name) / foreign.SETTINGS).read_text(encoding="utf-8")
        return [
            f"{name}: weights, of no run that stands here",
            *_indent(text.rstrip().splitlines()),
            many(count, "number"),
        ]
    with run.at_home(name) as own:
        deed, kind = read(own, overrides, verb, site=site)
        folder = Path(own) if Path(own).is_dir() else None
        stands = state.lines(folder) if folder else []
        try:
            deed, told = _told(deed, own, folder, overrides, verb, layout, site, devices)
        except OrdsmedError as error:
            if folder is None or verb:
                raise
            told = [f"cost: not known, for {error}"]  # data that are gone are no reason not to show how it stands
    table = _indent(settings.write(deed).rstrip().splitlines())
    if folder is None:
        return [f"{name}: {kind}", *table, *told]
    more = table if all_settings else [f"settings: `{command('show', name, '--settings')}` tells all"]
    return [f"{name}: {kind}", *stands, *told, *more]


def _told(
    deed: Any, name: str, folder: Path | None, overrides: Sequence[str], verb: str, layout: str, site: str, devices: int
) -> tuple[Any, list[str]]:
    """A training as it would lie on the processes that are meant, and what it costs; of other deeds nothing."""
    if not isinstance(deed, Pretraining | Finetuning):
        return deed, []
    here = bool(verb) and not devices
    deed, devices, changed = _laid(deed, folder, overrides, verb, layout, site, devices)
    with named(name, type(deed)):
        if isinstance(deed, Finetuning):
            deed, told = _fine_tuning(deed, name, devices, here=here)
        else:
            told = _cost(deed, devices, here=here)
    return deed, [*told, *changed]


def _laid(
    deed: Any, folder: Path | None, overrides: Sequence[str], verb: str, layout: str, site: str, devices: int
) -> tuple[Any, int, list[str]]:
    """With the layout that is asked for, on how many processes, and what of a run's own layout would change.

    What is only shown lies on as many processes as its layout is for, or lay on last.
    """
    if layout not in ("", "auto"):
        deed = dataclasses.replace(deed, layout=parse(layout, deed.layout))
    asked = asked_of_layout(overrides, layout, site)
    before = Run(folder).status.get("layouts", []) if folder else []
    if not devices and not verb:
        last = before[-1]["processes"] if before and not asked & {"replicate", "shard", "tensor"} else 0
        devices = last if last and last % deed.layout.meant() == 0 else deed.layout.meant()
    if folder is None:
        return deed, devices, []
    deed, changed = laid(deed, folder, devices or place_of(os.environ).world, asked)
    return deed, devices, [changed] if changed else []


def layout(
    name: str, overrides: Sequence[str] = (), *, layout: str = "", site: str = "", devices: int = 0
) -> list[str]:
    """Mesh, batch arithmetic and memory of a training on so many devices."""
    with run.at_home(name) as own:
        deed, _ = read(own, overrides, site=site)
        if not isinstance(deed, Pretraining | Finetuning):
            raise RecipeError(name, "is no training", "a recipe or run of `ordsmed pretrain` or `finetune`")
        folder = Path(own) if Path(own).is_dir() else None
        deed, devices, changed = _laid(deed, folder, overrides, "", layout, site, devices)
        with named(own, type(deed)):
            if isinstance(deed, Finetuning):
                return [*_fine_tuning(deed, own, devices)[1], *changed]
            return [*_spread(deed, devices, *_network(deed, devices)[1:]), *changed]


def difference(one: str, other: str, overrides: Sequence[str] = ()) -> list[str]:
    """The settings in which two recipes or runs differ; the overrides are the second one's."""
    both = (read(one)[0], read(other, overrides)[0])
    flats = [settings.flat(settings.plain(deed)) for deed in both]
    keys = [k for k in dict.fromkeys([*flats[0], *flats[1]]) if flats[0].get(k) != flats[1].get(k)]
    if not keys:
        return [f"{one} and {other}: the same settings"]
    wide = max(map(len, keys))
    lines = [f"{'':{wide}}  {one} | {other}"]
    return lines + [f"{k:{wide}}  {_said(flats[0].get(k))} | {_said(flats[1].get(k))}" for k in keys]


def documents(name: str, step: int) -> list[str]:
    """Which documents a step of a run saw, with where each stands in its corpus and how it begins."""
    with run.at_home(name) as own:
        return _documents(name, Path(own), step)


def _documents(name: str, folder: Path, step: int) -> list[str]:
    if Run(folder).status.get("verb") != "pretrain":
        raise RecipeError(name, "is no run", "the folder of an `ordsmed pretrain`")
    recipe = run.read_recipe(Pretraining, folder)
    if not 1 <= step <= total(recipe.phase):
        raise RecipeError("--step", f"found {step}", f"1 to {total(recipe.phase)}")
    index, inner = locate(recipe.phase, step - 1)
    data = [Encoded(run.obtain(Encoding, source)) for source in recipe.sources]
    phases_before = int(Run(folder).status.get("phases_before", 0))
    rows = recipe.objective.rows(
        [d.train for d in data], list(recipe.sources.values()), data[0].tokenizer, recipe.phase[index],
        recipe.seed, index + phases_before, stretch=Stretch.of(recipe.phase, index),
    )  # fmt: skip
    batch = recipe.phase[index].batch
    spans = rows.spans(np.arange(inner * batch, (inner + 1) * batch))
    place = f"{name}: step {step} (phase {index + 1}, its step {inner + 1})"
    lines = [f"{place}: {many(batch, 'row')}, {many(len(spans), 'piece')} of documents"]
    for span in spans:
        store, source = data[span.source], list(recipe.sources)[span.source]
        ids = np.asarray(store.train.tokens[span.start : min(span.stop, span.start + 24)])
        lexicon = store.train.lexicon
        words = [] if lexicon is None else [lexicon.word(number).decode() for number in ids]
        text = " ".join(words) or store.tokenizer.decode(ids)
        begin = span.start - int(store.train.document_starts[span.document])
        lines.append(
            f"  row {span.number}: {source} document {span.document}{_origin(store, span.document)}, "
            f"tokens {begin} to {begin + span.stop - span.start}: {' '.join(text.split())[:80]}"
        )
    return lines


def read(name: str, overrides: Sequence[str] = (), verb: str = "", *, site: str = "") -> tuple[Any, str]:
    """The recipe of a name, a file or a folder, and the verb it belongs to."""
    if Path(name).is_dir() and (Path(name) / "recipe.toml").exists():
        verb = str(Run(Path(name)).status.get("verb", ""))
        if verb not in DEEDS:
            raise RecipeError(name, "is no folder of a deed", "one made by " + ", ".join(DEEDS))
        other = [word for word in overrides if not word.startswith(MAY_CHANGE)]
        if other:
            raise RecipeError(name, f"is a folder, but {other[0]} is given", "a recipe to change, or no override")
        path = Path(name) / "recipe.toml"
    else:
        path, verb = _find(name, verb)
    table = _table(path, verb)
    if site:
        table["layout"] = {**table.get("layout", {}), **site_layout(site)}
    table = settings.override(table, overrides)
    verb = verb or _verb(table, name)
    deed = settings.decode(DEEDS[verb], table, name)
    if verb in ("pretrain", "finetune") and not Path(name).is_dir():
        check_seed(deed, name)
    return deed, verb


def _table(path: Path, verb: str) -> dict[str, Any]:
    """A recipe's table; where its verb is not said, what it is `like` may be of either training."""
    try:
        return run.read_table(path, verb or "pretrain")
    except RecipeError:
        if verb:
            raise
        with contextlib.suppress(RecipeError):
            return run.read_table(path, "finetune")
        raise


def _find(name: str, verb: str) -> tuple[Path, str]:
    """The file of a recipe: `bert-base`, `pretrain/bert-base` or a path."""
    if verb or Path(name).is_file():
        return run.find_recipe(name, verb), verb
    for guess in DEEDS:
        if name in run.recipe_names(guess):
            return run.find_recipe(name, guess), guess if name not in run.recipe_names() else ""
    return run.find_recipe(name, ""), ""


def _verb(table: dict[str, Any], name: str) -> str:
    signs = (("bench", "measure"), ("pretrain", "phase"), ("finetune", "task"), ("corpus", "source"))
    for verb, sign in signs:
        if sign in table:
            return verb
    if "tokenizer" in table:
        return "tokenizer" if isinstance(table["tokenizer"], dict) else "encode"
    raise RecipeError(name, f"keys {', '.join(table)}", "those of a " + ", ".join(DEEDS))


def _cost(recipe: Pretraining, devices: int, *, here: bool) -> list[str]:
    """Parameters, FLOPs, tokens, batch arithmetic; inputs that would have to be made."""
    if all(run.finished(standing(name), "encode") for name in recipe.sources):
        recipe = jobs.counted(recipe)
    lines, objective, tokenizer = _network(recipe, devices, here=here)
    sizes = _sizes(objective)
    body = sum(n for name, n in sizes.items() if name.startswith("model."))
    lines.append(
        f"network: {sum(sizes.values()):,} parameters, {body:,} without heads; vocabulary {tokenizer.vocabulary:,}"
    )
    flops = tokens = 0.0
    for index, phase in enumerate(recipe.phase):
        step = objective.flops(phase.batch, phase.length)
        flops, tokens = flops + step * phase.steps, tokens + phase.rows * phase.length
        lines.append(f"phase {index + 1}: {step:.3g} FLOPs a step")
    if all(phase.steps for phase in recipe.phase):
        lines.append(f"in all: {many(total(recipe.phase), 'step')}, {tokens:,.0f} tokens, {flops:.3g} FLOPs")
    else:
        lines.append("in all: how many steps epochs are is known when the data stand")
    return lines + _spread(recipe, devices, objective, tokenizer)


def _fine_tuning(recipe: Finetuning, name: str, devices: int, *, here: bool = False) -> tuple[Finetuning, list[str]]:
    """The recipe with what its network and data tell, as far as they stand; and what would be read, learned, held."""
    folder = Path(name) if Run(Path(name)).status else None
    lines = _trials(recipe, name) if recipe.several and folder is None else []
    begun, told = _start(recipe, folder)
    lines += told
    one = dataclasses.replace(recipe, seeds=(), grid={}, step=None)
    if begun is not None:
        lines += [] if one.settled else [_filled_in(one, begun.network)]
        one = one.settle(begun.network)
    lines += _files(one)
    ranks = _planned(one.layout, devices)
    ranks = dataclasses.replace(ranks, world=devices or ranks.world, shape=one.layout.shape(devices or ranks.world))
    if begun is not None:
        OfTask().check(one, begun.network, ranks)
        if not one.examples and all(_there(path) for split in SPLITS for path in one.task.paths(split)):
            one, read_of = _read(one, begun)
            lines.append(read_of)
        body, tokenizer = begun.network, begun.tokenizer
        _fits(one, body, devices, lambda model: model.build(tokenizer.vocabulary), here=here)
        lines += _learned(one, begun)
    phase = one.phases[0]
    share = one.layout.share(phase, 1, ranks.device.type, 0, ranks.data_world)
    lines += [f"layout: {one.layout.told(ranks.world)}", arithmetic(phase, 1, share)]
    return (recipe if recipe.several else one), lines


def _trials(recipe: Finetuning, name: str) -> list[str]:
    """Which trials would be made."""
    if recipe.step == "all" and not hub.folder(recipe.init or "").is_dir():
        return ["trials: one from each checkpoint of `init`, and for each setting and seed"]
    titles = [trial.name for trial in trials.plan(recipe, run.place(recipe, run.title(name)), name)]
    more = f" ... and {len(titles) - SAID} others" if len(titles) > SAID else ""
    return [f"trials: {len(titles)}, each a run on a device of its own: {' '.join(titles[:SAID])}{more}"]


def _start(recipe: Finetuning, folder: Path | None) -> tuple[Start | None, list[str]]:
    """What it starts from, if that stands; nothing is made."""
    if folder and (folder / "tokenizer").is_dir() and recipe.examples:
        return start(recipe, folder), []
    if recipe.init is not None and not hub.folder(recipe.init).is_dir():
        hint = hub.remedy(recipe.init)
        left = "what its family fills in and its size are told when it stands"
        return None, [f"init: {recipe.init} does not stand here{f' ({hint})' if hint else ''}; {left}"]
    if recipe.tokenizer and not _is_made(Path(recipe.tokenizer)):
        return None, [f"tokenizer: {recipe.tokenizer} does not stand yet; it will be made when it is needed"]
    begun = start(dataclasses.replace(recipe, step=None) if recipe.step == "all" else recipe)
    weights_of = "random weights" if recipe.init is None or recipe.fresh else recipe.init
    head = f"; its {begun.head} head goes on" if begun.head == recipe.task.role else ""
    pieces = many(begun.tokenizer.vocabulary, "piece")
    return begun, [f"init: {weights_of}, {kind_of(begun.network)}; {pieces}{head}"]


def _is_made(tokenizer: Path) -> bool:
    """Does it stand as it is named, not as a recipe?"""
    if tokenizer.is_dir():
        return Run(tokenizer).status.get("state", "done") == "done"
    return tokenizer.is_file() and tokenizer.suffix != ".toml"


def _filled_in(recipe: Finetuning, network: Any) -> str:
    """What the recipe leaves to the family."""
    left = [key for key in ("rate", "warmup", "layer_decay", "freeze", "optimizer") if getattr(recipe, key) is None]
    usual = settings.plain(recipe.settle(network))
    told = ", ".join(f"{key} {_said(usual[key])}" for key in left)
    return f"left to the family, as {kind_of(network)} is usually fine-tuned: {told}"


def _there(path: str) -> list[Path]:
    with contextlib.suppress(OrdsmedError, OSError):
        return reading.files(path)
    return []


def _files(recipe: Finetuning) -> list[str]:
    """The task's files: how large, or that they lack."""
    lines = []
    for split in SPLITS:
        for path in recipe.task.paths(split):
            if found := _there(path):
                count = f"{many(len(found), 'file')}, " if len(found) > 1 else ""
                lines.append(f"task.{split}: {path}, {count}{size(reading.size(found))}")
                continue
            name = path.removeprefix(FETCHED).partition("/")[0] if path.startswith(FETCHED) else ""
            lines.append(
                f"task.{split}: {path} is not there" + (f"; `{command('fetch', name)}` gets it" if name else "")
            )
    if not recipe.task.paths("dev"):
        lines.append("task.dev: none, so the last checkpoint is left, and no score is told")
    return lines


def _read(recipe: Finetuning, begun: Start) -> tuple[Finetuning, str]:
    """The recipe with what its files tell, read and checked as for a run; and how many examples there are."""
    way = OfTask()
    way.begun = begun
    found = way.obtain(dataclasses.replace(recipe, features=""))
    assert way.material is not None
    sizes, dev = way.material.train.features.sizes, way.material.dev
    told = f"examples: {len(sizes):,} of {sizes.mean():.1f} tokens (the longest has {int(sizes.max()):,})"
    judged = f"; {len(dev.features):,} to be judged by" if dev is not None else ""
    return dataclasses.replace(found, features=recipe.features), told + judged


def _learned(recipe: Finetuning, begun: Start) -> list[str]:
    """How large the network is, how much of it learns, and what a rank holds for that."""
    import torch

    with torch.device("meta"):
        if not recipe.examples:  # what the head tells apart is known by the data
            body = begun.network.build(begun.tokenizer.vocabulary)
            return [f"network: {sum(t.numel() for t in body.parameters()):,} parameters without a head"]
        task = prepared(built(recipe.task, begun.network, begun.tokenizer), recipe)
    sizes = [(tensor.numel(), tensor.requires_grad) for tensor in task.parameters()]
    count, learned = sum(n for n, _ in sizes), sum(n for n, learns in sizes if learns)
    held, moments = 4 * held_by_rank(task, recipe.layout), recipe.optimizer.moments + (recipe.average > 0)
    if learned == count:
        return [f"network: {count:,} parameters with its head", memory(held, moments)]
    beside = size(held * learned / count * (1 + moments))
    return [
        f"network: {count:,} parameters with its head, of which {learned:,} learn",
        f"memory a rank: weights {size(held)}, gradients and moments {beside}, and activations",
    ]


def _network(recipe: Pretraining, devices: int, *, here: bool = False) -> tuple[list[str], Any, Any]:
    """What the inputs are, the objective without its weights, and the tokenizer."""
    import torch

    if recipe.init and here:
        jobs.check_init(recipe.init)
    model = jobs.model_settings(recipe)
    lines, tokenizer = _inputs(recipe)
    if recipe.init and Run(begun := hub.folder(recipe.init)).status:
        saved = checkpoint.steps(begun / "checkpoints")
        lines += [f"init: {left}"] if saved and (left := unfinished(begun, saved[-1])) else []
    _fits(recipe, model, devices, lambda model: recipe.objective.build(model, tokenizer), here=here)
    with torch.device("meta"):
        return lines, built(recipe.objective, model, tokenizer), tokenizer


def _spread(recipe: Pretraining, devices: int, objective: Any, tokenizer: Any) -> list[str]:
    """Mesh, batch arithmetic of every phase, and what a rank holds of weights, gradients and moments."""
    layout = recipe.layout
    ranks = _planned(layout, devices)
    world = devices or ranks.world
    shape = layout.shape(world)
    ranks = dataclasses.replace(ranks, world=world, shape=shape)
    jobs.check(recipe, objective.model_settings, ranks)
    lines = [f"layout: {layout.told(world)}", *objective.told(ranks.device.type)]
    for index, phase in enumerate(recipe.phase):
        share = layout.share(phase, index + 1, ranks.device.type, 0, ranks.data_world)
        lines.append(arithmetic(phase, index + 1, share))
    held = 4 * held_by_rank(objective, layout)
    return [*lines, memory(held, recipe.optimizer.moments + (recipe.average > 0))]


def _fits(recipe: Any, model: Any, devices: int, make: room.Make, *, here: bool) -> None:
    """Refuse what no machine holds, or not this one (`here`)."""
    layout, ranks = recipe.layout, _planned(recipe.layout, devices)
    world = max(devices or ranks.world, layout.shard * layout.tensor)
    ranks = dataclasses.replace(ranks, world=world, shape=(1, layout.shard, layout.tensor))
    room.check(recipe, model, ranks, make, here=here)


def _planned(layout: Layout, devices: int) -> Ranks:
    """This process and its device; GPUs that are named with their number may stand elsewhere: a login node has none."""
    import torch

    from ordsmed.base.ranks import Ranks, plan

    if devices and layout.device.startswith("cuda") and not torch.cuda.is_available():
        return Ranks(torch.device("cuda"))
    return plan(layout.device)


def _sizes(objective: Any) -> dict[str, int]:
    return {name: t.numel() for name, t in jobs.weights.own_tensors(objective).items()}


def _inputs(recipe: Pretraining) -> tuple[list[str], Any]:
    """The tokenizer of the data; one that is not made yet is stood in for by what its recipe says."""
    lines, tokenizer = [], None
    for name in recipe.sources:
        try:
            deed, folder = _encoding(name)
        except OrdsmedError:
            lines.append(f"data: {name}: neither a folder nor a recipe")
            raise
        if run.finished(folder, "encode"):
            encoded = Encoded(folder)
            lines.append(
                f"data: {folder}, {encoded.train.token_count:,} tokens in {encoded.train.document_count:,} documents"
            )
            tokenizer = tokenizer or encoded.tokenizer
        else:
            lines.append(f"data: {folder} does not stand yet; it will be made from {name}")
            tokenizer = tokenizer or _expected(deed.tokenizer)
    return lines, tokenizer


def _encoding(name: str) -> tuple[Any, Path]:
    if Path(name).is_dir():
        return run.read_recipe(Encoding, Path(name)), Path(name)
    deed, title = run.load(Encoding, name)
    return deed, run.place(deed, title)


def _expected(name: str) -> Any:
    """A tokenizer that is not made yet, as far as its recipe tells."""
    from types import SimpleNamespace

    path = Path(name)
    if path.is_dir() or (path.is_file() and path.suffix != ".toml"):
        if Run(path).status.get("state", "done") == "done":
            return read_tokenizer(name)
        deed = run.read_recipe(Training, path)
    else:
        deed, title = run.load(Training, name)
        folder = run.place(deed, title)
        if run.finished(folder, "tokenizer"):
            return read_tokenizer(str(folder))
    if (own := deed.tokenizer.load()) is not None:
        return own
    if not hasattr(deed.tokenizer, "size"):  # one of somebody's own, which learns as many as it likes
        raise RecipeError(name, "is not made yet, and does not say how many pieces it will have", "",
                          f"`{command('tokenizer', name)}` makes it")  # fmt: skip
    return SimpleNamespace(vocabulary=deed.tokenizer.size, pad=0, mask=0)


def _origin(encoded: Any, document: int) -> str:
    """Where a document of a store stands in the corpus it was encoded from, if that still stands."""
    try:
        with run.at_home(encoded.folder) as own:
            corpus = run.obtain(Corpus, run.read_recipe(Encoding, Path(own)).corpus)
            return f" ({origin(corpus, 'train', document)})"
    except (OrdsmedError, OSError):
        return ""


def _said(value: Any) -> str:
    return "-" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _indent(lines: Sequence[str]) -> list[str]:
    return [f"  {line}" if line else "" for line in lines]
