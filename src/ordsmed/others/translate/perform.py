"""Write the recipes of a translated command line to files, and print or run the call.

Call -> work/as/NAME/corpus.toml, tokenizer.toml, encode.toml, pretrain.toml -> `ordsmed pretrain .../pretrain.toml`
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ordsmed.base import files, menu, run, settings, snapshots
from ordsmed.base.ending import STOP_AT
from ordsmed.base.errors import OrdsmedError, RecipeError
from ordsmed.base.keys import value_key
from ordsmed.base.machine import host
from ordsmed.base.say import many, say
from ordsmed.base.screen import command
from ordsmed.others.translate.program import DEPENDENCIES, TRAININGS, Call, Program, Values
from ordsmed.text import read

FOLDER = Path("work/as")


def folder(program: Program, call: Call) -> Path:
    """Return the folder for the recipes of a call, named after its output folder or its program."""
    out = call.recipes.get(call.verb, {}).get("out") or call.writes
    return folder_for(out, program.name.rpartition(".")[0] or program.name)


def folder_for(out: str | Path, default: str = "") -> Path:
    return FOLDER / ("-".join(Path(out).parts).strip("/-.") or default)


def run_of(program: Program, values: Values, call: Call) -> Path:
    return Path(values.out_override or call.recipes[call.verb].get("out") or folder(program, call) / call.verb)


def stop_at(program: Program, values: Values, call: Call, step: Callable[[int], int]) -> None:
    """Make a training save and stop early. `step` returns the step to stop at, given the last saved step."""
    saved = 0 if values.anew else max(snapshots.steps(run_of(program, values, call) / "checkpoints"), default=0)
    call.environment[STOP_AT] = str(step(saved))


def recipe_at(program: Program, call: Call, name: str) -> Path:
    """Return the path of a call's recipe. Recipes in `call.shared` have a path that other calls share."""
    shared = call.shared.get(name) if name != call.verb else None
    return (shared or folder(program, call)) / f"{name}.toml"


def recipes(program: Program, call: Call, overrides: Sequence[str]) -> dict[Path, str]:
    """Return the recipes as TOML by path, dependencies first. Each can be run separately."""
    location = folder(program, call)
    written = {}
    for name in (*DEPENDENCIES, call.verb):
        if name not in call.recipes:
            continue
        table = call.recipes[name]
        if name in (*DEPENDENCIES, *TRAININGS):
            table = {"out": str(location / name), **table}  # default output folder
        if name == "encode":
            table = {"max_unknown": 1.0, **table}  # report unknown words but do not refuse them
        if name == call.verb:
            table = settings.override(table, overrides)
        for key, value in table.items():
            if value in [f"<{verb}>" for verb in DEPENDENCIES]:
                table[key] = str(recipe_at(program, call, value[1:-1]))
        table = {  # `kind` comes first
            key: dict(sorted(value.items(), key=lambda item: item[0] != "kind")) if isinstance(value, dict) else value
            for key, value in table.items()
        }
        head = f"# recipe for `ordsmed {name}`, translated from {program.name}"
        written[recipe_at(program, call, name)] = "\n".join([head, *settings.lines(table), ""])
    return written


def share_by_content(call: Call, *paths: str) -> None:
    """Name the folders of texts and tokens after their files and recipes, so that calls with equal ones share them."""
    existing = [Path(path) for path in paths if Path(path).is_file()]
    stamps = [[str(path.resolve()), *stamp[1:]] for path, stamp in zip(existing, read.stamp(existing), strict=True)]
    tables = dict[str, Any]()
    for name in ("corpus", "encode"):
        tables[name] = dict(call.recipes[name])
        call.shared[name] = FOLDER / f"{name}-{value_key([stamps, tables], 8)}"
        call.put(f"{name}: out", str(call.shared[name] / name))


def keep_former_results(program: Program, call: Call) -> None:
    """Use a new folder for texts and tokens if the call's folder holds those of other files or flags."""
    names = [name for name in DEPENDENCIES if name in call.recipes and name not in call.shared and name != call.verb]
    trains_tokenizer = "tokenizer" in names  # then the texts belong to the tokenizer in the call's folder
    names = names[-1:] if trains_tokenizer else names
    texts = {path.stem: text for path, text in recipes(program, call, ()).items()}
    for position, name in enumerate(names):
        if (mark := _key_if_changed(name, texts[name], inputs=not trains_tokenizer)) is None:
            continue
        key = value_key([mark, [call.recipes[later] for later in names[position:]]], 8)
        home = folder(program, call)
        for later in names[position:]:
            call.shared[later] = home.with_name(f"{home.name}-{key}")
            call.put(f"{later}: out", str(call.shared[later] / later))
        return


def _key_if_changed(name: str, text: str, *, inputs: bool) -> str | None:
    """Return a key of the recipe if its folder has the result of another recipe or of other inputs, else None."""
    table = tomllib.loads(text)
    made_run = run.Run(Path(table["out"]))
    if made_run.status.get("state") != "done":
        return None
    kind = menu.recipe_class(name)
    try:
        recipe = settings.decode(kind, table, name)
        return run.difference(made_run, recipe, inputs=inputs)
    except OrdsmedError:
        return None  # a run of the recipe reports the error


def put_processes(call: Call, flag: str, count: int, *keys: str) -> None:
    """Set the number of processes, at most one per core: more would only need memory."""
    cores = host.cores()
    if count > cores:
        call.notes.append(f"{flag} {count}: uses {many(cores, 'process')}, one per core")
    for key in keys:
        call.put(key, min(count, cores))


def recipe_lines(program: Program, values: Values, call: Call) -> list[str]:
    """Return the recipes and the command as lines. Raise an error for a recipe with an invalid setting."""
    lines = [f"# {note}" for note in call.notes]
    for path, text in recipes(program, call, values.overrides).items():
        if path.stem in (*DEPENDENCIES, *TRAININGS):
            settings.decode(menu.recipe_class(path.stem), tomllib.loads(text), path.stem)
        lines += [f"# --- {path}", *text.splitlines(), ""]
    if call.verb:
        lines.append(f"# {command(*words(program, call))}")
    return [*lines, *(line for later in call.then for line in recipe_lines(program, values, later))]


def words(program: Program, call: Call) -> list[str]:
    recipe = [str(recipe_at(program, call, call.verb))] if call.verb in call.recipes else []
    devices = ["--devices", str(call.devices)] if call.devices and "RANK" not in os.environ else []
    paths = {f"<{name}>": str(recipe_at(program, call, name)) for name in DEPENDENCIES}
    return [*call.verb.split(), *recipe, *(paths.get(word, word) for word in call.words), *devices]


def count_gpus() -> int:
    import torch

    return torch.cuda.device_count()


def check_devices(program: Program, devices: int) -> None:
    """Raise an error if this machine has fewer GPUs (without any: fewer cores) than the requested processes."""
    if devices < 2 or "RANK" in os.environ:
        return
    gpus = count_gpus()
    limit = gpus or max(2, host.cores())  # without GPUs, allow at least two processes for experiments
    if devices > limit:
        available = many(gpus, "GPU") if gpus else f"no GPU and {many(host.cores(), 'core')}"
        problem = f"{program.name} requests {devices} GPUs; this machine has {available}"
        raise RecipeError("--devices", problem, f"at most {limit}", "give the script a lower number of GPUs")


def lacks_fp16() -> bool:
    """Return whether this CPU has no units for products in fp16."""
    import torch

    ops = torch.ops.mkldnn
    known = torch.backends.mkldnn.is_available() and hasattr(ops, "_is_mkldnn_fp16_supported")
    return not (known and ops._is_mkldnn_fp16_supported())


def use_fp32_without_fp16(values: Values, call: Call) -> None:
    """Replace fp16 by fp32 if the call runs on a CPU without fp16 support."""
    layout = call.recipes.get(call.verb, {}).get("layout", {})
    as_argument = " --precision fp16 " in f" {' '.join(call.words)} "
    is_overridden = any(word.startswith("layout.precision=") for word in values.overrides)
    if is_overridden or not (as_argument or layout.get("precision") == "fp16"):
        return
    import torch

    on_gpu = torch.cuda.is_available() and layout.get("device") != "cpu" and "cpu" not in call.words
    if on_gpu or not lacks_fp16():
        return
    if layout:
        layout |= {"precision": "fp32", "exact": [], "reduce": "fp32"}
    if as_argument:
        call.words[call.words.index("--precision") + 1] = "fp32"
    remedy = "; `layout.precision=fp16` after the flags keeps fp16" if layout else ""
    call.notes.append(f"fp16: computes in fp32, because no GPU is used and this CPU has no fp16 units{remedy}")


def prepare(program: Program, values: Values, call: Call) -> list[str]:
    """Write the recipes, set the environment variables and print the notes. Return the words of the command."""
    check_devices(program, max(call.devices, call.gpus))
    if call.gpus and not count_gpus():
        call.notes.append("this machine has no GPU: the CPU is measured")
    use_fp32_without_fp16(values, call)
    for path, text in recipes(program, call, values.overrides).items():
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_text(path, text)
    os.environ |= call.environment
    command_words = words(program, call)
    for line in (*call.notes, *([command(*command_words)] if command_words else [])) if values.place.rank == 0 else ():
        say(line)
    return command_words
