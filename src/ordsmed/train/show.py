"""Show: what a recipe would do or a run did, before any hour of a machine is spent; how two differ; what a step saw."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ordsmed.apply.trained import standing
from ordsmed.base import run, settings
from ordsmed.base.errors import OrdsmedError, RecipeError
from ordsmed.base.run import Run
from ordsmed.base.say import duration
from ordsmed.data.encode import Encoded, Encoding
from ordsmed.learn.phases import Stretch, locate, total
from ordsmed.nn import foreign, weights
from ordsmed.text.folder import origin
from ordsmed.text.pipeline import Corpus
from ordsmed.text.training import Training, read_tokenizer
from ordsmed.train import job as jobs
from ordsmed.train.bench import Bench
from ordsmed.train.layout import Layout, arithmetic, memory, parse, site_layout
from ordsmed.train.parallel import held_by_rank
from ordsmed.train.pretrain import where
from ordsmed.train.recipe import Pretraining
from ordsmed.train.training import named

if TYPE_CHECKING:
    from ordsmed.base.ranks import Ranks

DEEDS: dict[str, Any] = {d.verb: d for d in (Corpus, Training, Encoding, Pretraining, Bench)}


def show(
    name: str, overrides: Sequence[str] = (), verb: str = "", *, layout: str = "", site: str = "", devices: int = 0
) -> list[str]:
    """A recipe or a run in lines; of an imported folder its settings and size."""
    if Path(name).is_dir() and foreign.is_imported(Path(name)):
        if overrides:
            raise RecipeError(name, f"is a folder, but {overrides[0]} is given", "no override")
        size = sum(math.prod(shape) for shape in weights.shapes(Path(name) / foreign.WEIGHTS).values())
        text = (Path(name) / foreign.SETTINGS).read_text(encoding="utf-8")
        return [
            f"{name}: weights, of no run that stands here",
            *_indent(text.rstrip().splitlines()),
            f"{size:,} numbers",
        ]
    deed, kind = read(name, overrides, verb, site=site)
    if isinstance(deed, Pretraining) and layout not in ("", "auto"):
        deed = dataclasses.replace(deed, layout=parse(layout, deed.layout))
    lines = [f"{name}: {kind}", *_indent(settings.write(deed).rstrip().splitlines())]
    if isinstance(deed, Pretraining):
        with named(name, Pretraining):
            lines += _cost(deed, devices)
    status = Run(Path(name)).status if Path(name).is_dir() else {}
    return lines + (_stand(Path(name), status) if status else [])


def layout(
    name: str, overrides: Sequence[str] = (), *, layout: str = "", site: str = "", devices: int = 0
) -> list[str]:
    """Mesh, batch arithmetic and memory of a pretraining on so many devices."""
    deed, _ = read(name, overrides, site=site)
    if not isinstance(deed, Pretraining):
        raise RecipeError(name, "is no pretraining", "a recipe or run of `ordsmed pretrain`")
    if layout:
        deed = dataclasses.replace(deed, layout=parse(layout, deed.layout))
    with named(name, Pretraining):
        return _spread(deed, devices, *_network(deed)[1:])


def difference(one: str, other: str) -> list[str]:
    """The settings in which two recipes or runs differ."""
    flats = [settings.flat(settings.plain(read(name)[0])) for name in (one, other)]
    keys = [k for k in dict.fromkeys([*flats[0], *flats[1]]) if flats[0].get(k) != flats[1].get(k)]
    if not keys:
        return [f"{one} and {other}: the same settings"]
    wide = max(map(len, keys))
    lines = [f"{'':{wide}}  {one} | {other}"]
    return lines + [f"{k:{wide}}  {_said(flats[0].get(k))} | {_said(flats[1].get(k))}" for k in keys]


def documents(name: str, step: int) -> list[str]:
    """Which documents a step of a run saw, with where each stands in its corpus and how it begins."""
    folder = Path(name)
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
    lines = [
        f"{name}: step {step} (phase {index + 1}, its step {inner + 1}): {batch} rows, {len(spans)} pieces of documents"
    ]
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
        other = [word for word in overrides if not word.startswith("layout.")]
        if other:
            raise RecipeError(name, f"is a folder, but {other[0]} is given", "a recipe to change, or no override")
        path = Path(name) / "recipe.toml"
    else:
        path, verb = _find(name, verb)
    table = run.read_table(path, verb or "pretrain")
    if site:
        table["layout"] = {**table.get("layout", {}), **site_layout(site)}
    table = settings.override(table, overrides)
    verb = verb or _verb(table, name)
    return settings.decode(DEEDS[verb], table, name), verb


def _find(name: str, verb: str) -> tuple[Path, str]:
    """The file of a recipe: `bert-base`, `pretrain/bert-base` or a path."""
    if verb or Path(name).is_file():
        return run.find_recipe(name, verb), verb
    for guess in DEEDS:
        if name in run.recipe_names(guess):
            return run.find_recipe(name, guess), guess if name not in run.recipe_names() else ""
    return run.find_recipe(name, ""), ""


def _verb(table: dict[str, Any], name: str) -> str:
    for verb, sign in (("bench", "measure"), ("pretrain", "phase"), ("corpus", "source")):
        if sign in table:
            return verb
    if "tokenizer" in table:
        return "tokenizer" if isinstance(table["tokenizer"], dict) else "encode"
    raise RecipeError(name, f"keys {', '.join(table)}", "those of a " + ", ".join(DEEDS))


def _cost(recipe: Pretraining, devices: int) -> list[str]:
    """Parameters, FLOPs, tokens, batch arithmetic; inputs that would have to be made."""
    if all(run.finished(standing(name), "encode") for name in recipe.sources):
        recipe = jobs.counted(recipe)
    lines, objective, tokenizer = _network(recipe)
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
        lines.append(f"in all: {total(recipe.phase):,} steps, {tokens:,.0f} tokens, {flops:.3g} FLOPs")
    else:
        lines.append("in all: how many steps epochs are is known when the data stand")
    return lines + _spread(recipe, devices, objective, tokenizer)


def _network(recipe: Pretraining) -> tuple[list[str], Any, Any]:
    """What the inputs are, the objective without its weights, and the tokenizer."""
    import torch

    model = jobs.model_settings(recipe)
    lines, tokenizer = _inputs(recipe)
    with torch.device("meta"):
        return lines, recipe.objective.build(model, tokenizer), tokenizer


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


def _planned(layout: Layout, devices: int) -> Ranks:
    """This process and its device; GPUs that are named with their number may stand elsewhere: a login node has none."""
    import torch

    from ordsmed.base.ranks import Ranks, prepare

    if devices and layout.device.startswith("cuda") and not torch.cuda.is_available():
        return Ranks(torch.device("cuda"))
    return prepare(layout.device, layout.threads or None)


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
    return deed.tokenizer.load() or SimpleNamespace(vocabulary=deed.tokenizer.size, pad=0, mask=0)


def _stand(folder: Path, status: dict[str, Any]) -> list[str]:
    """How a folder stands."""
    lines = [f"state: {status.get('state')}"]
    if status.get("verb") == "pretrain":
        lines.append(where(folder))
        if status.get("deadline"):
            lines.append(f"deadline {duration(status['deadline'])}: steps were fitted from {status.get('steps_asked')}")
        if (folder / "loss.svg").exists():
            lines.append(f"picture: {folder / 'loss.svg'}")
    hidden = ("verb", "state", "parts", "deadline", "steps_asked", "phases_before", "data", "layouts")
    return lines + [f"  {k}: {_said(v)}" for k, v in status.items() if k not in hidden]


def _origin(encoded: Any, document: int) -> str:
    """Where a document of a store stands in the corpus it was encoded from, if that still stands."""
    try:
        corpus = run.obtain(Corpus, run.read_recipe(Encoding, encoded.folder).corpus)
        return f" ({origin(corpus, 'train', document)})"
    except (OrdsmedError, OSError):
        return ""


def _said(value: Any) -> str:
    return "-" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _indent(lines: Sequence[str]) -> list[str]:
    return [f"  {line}" if line else "" for line in lines]
