"""The folder of a run: found by name, made once under a lock, reused if its fingerprint fits.

    a name in a recipe -> an existing folder?  -> use it
                       -> a recipe?            -> if its `out` folder exists and fits, use it; else make it

A recipe is a frozen dataclass with `verb`, `out`, `stamp()` and `perform(run)`.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import platform
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from ordsmed.base import files, menu, settings, stages
from ordsmed.base.ending import Stopped
from ordsmed.base.errors import MAX_LISTED, DataError, OrdsmedError, RecipeError, RunError, meant, nearest
from ordsmed.base.folder import EXAMPLES, RECIPE, STATUS, FolderKind, kind_of_folder, read_status
from ordsmed.base.identity import identity
from ordsmed.base.keys import value_key
from ordsmed.base.other_names import recipe_instead
from ordsmed.base.ranks import Ranks, on_rank0, process_info
from ordsmed.base.say import detail, log_to, say
from ordsmed.base.screen import command

if TYPE_CHECKING:
    from filelock import BaseFileLock as FileLock


class Recipe(Protocol):
    """The attributes of a recipe that determine the path and the fingerprint of its output folder."""

    @property
    def verb(self) -> str:
        """Return the command that makes the folder."""

    @property
    def out(self) -> str | None:
        """Return the requested output folder; None: a folder named after the recipe."""

    def stamp(self) -> object:
        """Return the identity of the recipe's inputs: their fingerprints, or sizes and modification times."""


class Runnable(Recipe, Protocol):
    """A recipe that `obtain` can run."""

    def perform(self, run: Run) -> dict[str, Any]:
        """Do the work in the folder, and return facts for `status.json`."""


BUILT_IN = menu.PACKAGE_ROOT / "recipes"
STAGES = ("corpus", "tokenizer", "encode", "pretrain", "finetune")  # verbs whose recipes make folders for each other
GENERAL_FOLDERS = ("tiny", "laptop", "desk")  # folders of recipes for all stages up to a pretrained model
VARIANTS = "variants.toml"  # in a folder of built-in recipes: recipes written as another recipe plus overrides
STEPS = "steps"  # in a run's folder: intermediate results, found by their keys and kept when the recipe changes
LOCK_PATIENCE = 1.0  # seconds that a process with the lock may take to write down its group

R = TypeVar("R", bound=Recipe)
D = TypeVar("D", bound=Runnable)
T = TypeVar("T")
_announced: set[Path] = set()  # folders for which "reused" was printed, or that this process made
# fingerprints of finished folders that were checked under their lock, by this process or by rank 0
_checked_fingerprints: dict[str, str] = {}
_trusts_rank0 = ContextVar("trusted", default=False)  # whether to use folders checked by rank 0 without a lock
_only_checks = ContextVar("only_checks", default=False)
_in_progress: list[Path] = []  # stack of the folders that are being made; each is an input of the previous one


def _is_foreign(name: str) -> bool:
    """Return whether a file shows that a folder without a status was not made by ordsmed."""
    return name not in (STEPS, EXAMPLES) and not name.startswith(f".{STATUS}.")


class NotMade(Exception):
    """Raised instead of making a missing folder, inside `without_making`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(str(folder))
        self.folder = folder


@contextlib.contextmanager
def without_making() -> Iterator[None]:
    """In this block, `obtain` raises the same errors as usual, but raises NotMade instead of making a folder."""
    before = _only_checks.set(True)
    try:
        yield
    finally:
        _only_checks.reset(before)


def check_if_made(act: Callable[[], object]) -> None:
    """Run a check that needs an input. Skip it if the input has not been made yet."""
    with contextlib.suppress(NotMade):
        act()


def only_checks() -> bool:
    return _only_checks.get()


class Run:
    """A folder with `recipe.toml`, `environment.json`, `status.json`, `log.txt` and results."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def status(self) -> dict[str, Any]:
        """Return the contents of `status.json`, empty if there is none."""
        return read_status(self.path)

    def set(self, **facts: object) -> None:
        """Change facts in `status.json` atomically. None removes a fact."""
        files.write_json(self.path / STATUS, {k: v for k, v in {**self.status, **facts}.items() if v is not None})

    def begin(self, recipe: Recipe, **facts: object) -> None:
        """Write the recipe, the status and the environment before the work begins."""
        self.check_place()
        begun = {"verb": recipe.verb, "state": "running", "why": None, "fingerprint": fingerprint(recipe)}
        known: dict[str, object] = {**begun, **self._where(), **facts}
        with files.survive_disk(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        self.set(**known)  # the status first: it marks the folder as one that may be made again
        files.write_text(self.path / RECIPE, settings.write(recipe))
        files.write_json(self.path / "environment.json", environment())

    @contextlib.contextmanager
    def failure_noted(self) -> Iterator[None]:
        """If this block raises an error or is interrupted, record that in `status.json`."""
        try:
            yield
        except Stopped:
            raise  # the training loop has already recorded its step
        except (Exception, KeyboardInterrupt) as error:
            stopped = isinstance(error, KeyboardInterrupt)
            reason = {} if stopped else {"why": str(error) or type(error).__name__}
            facts = {"state": "stopped" if stopped else "failed", **reason}
            with contextlib.suppress(OrdsmedError):  # a full disk may be what failed
                try:
                    self.set(**facts)
                except RuntimeError:  # torch's SIGCHLD handler may raise in any line when a data worker dies
                    self.set(**facts)
            raise

    def check_place(self) -> None:
        """Raise an error if the folder is not writable, or has files that ordsmed did not make."""
        with files.survive_disk(self.path):
            if self.status.get("state") != "done":  # a finished folder may be read-only
                files.refuse_unwritable(self.path)
            if self.path.is_dir() and not self.status and any(_is_foreign(p.name) for p in self.path.iterdir()):
                problem = "has files that were not made by `ordsmed`"
                raise RecipeError(self.path, problem, "a new or empty folder", "name another `out=`")

    def _where(self) -> dict[str, str]:
        """Return the entries of `status.json` for the current folder and for the path of this folder from there."""
        with contextlib.suppress(OSError):
            return {"stood_in": str(Path.cwd()), "folder": str(self.path)}
        return {}

    @property
    def home(self) -> Path | None:
        """Return the folder in which the command was started, even if it was moved together with this one.

        Paths in the recipe are relative to it. Older runs do not record it; for them it is the parent of `work/`, if
        the run is in the default folder. None: unknown.
        """
        status = self.status
        recorded = status.get("stood_in")
        folder = Path(status.get("folder", f"work/{status.get('verb')}/{self.path.name}"))
        if recorded and (Path(recorded) / folder).resolve() == self.path.resolve():
            return Path(recorded)
        for path in (self.path.absolute(), self.path.resolve()):
            if not folder.is_absolute() and path.parts[-len(folder.parts) :] == folder.parts:
                return Path(*path.parts[: -len(folder.parts)])
        return Path(recorded) if recorded and Path(recorded).is_dir() else None


@contextlib.contextmanager
def in_start_folder(name: str | Path) -> Iterator[str]:
    """In this block, work in the folder where a run was started. Yield the run's path; other names are unchanged."""
    home = Run(Path(name)).home if kind_of_folder(name).made else None
    if home is None or home.resolve() == Path.cwd().resolve():
        yield str(name)
        return
    folder = str(Path(name).resolve())
    with contextlib.chdir(home):
        yield folder


def fingerprint(recipe: Recipe) -> str:
    """Return a 16-digit hash of the recipe and its inputs. Output folder and layout do not count."""
    return _fingerprint_of(recipe, essence(recipe))


def _fingerprint_of(recipe: Recipe, table: object) -> str:
    return value_key([recipe.verb, table, recipe.stamp()], 16, any_order=True)


def essence(recipe: Recipe) -> settings.Table:
    return {k: v for k, v in settings.plain(recipe, essence=True).items() if k not in ("out", "layout")}


def recipe_key(recipe: Recipe) -> str:
    """Return a 16-digit hash of a recipe without its inputs, which may not exist yet."""
    return value_key([recipe.verb, essence(recipe)], 16, any_order=True)


def environment() -> dict[str, Any]:
    from importlib.metadata import PackageNotFoundError, version

    versions = {}
    for name in ("torch", "numpy", "tokenizers", "safetensors"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "absent"
    code = {"ordsmed": str(identity()), "code": identity().digest, "python": platform.python_version()}
    machine = {"machine": platform.machine(), "system": platform.system(), "host": platform.node()}
    return {**code, **versions, **machine, "command": " ".join(sys.argv)}


class Variant(NamedTuple):
    """A built-in recipe that is another recipe with overrides."""

    like: str  # name of the other recipe
    headline: str
    words: str  # the overrides
    notes: list[str]


@functools.cache
def _variants(folder: Path) -> dict[str, Variant]:
    table = settings.read(folder / VARIANTS) if (folder / VARIANTS).is_file() else {}
    return {name: Variant(like, row[0], row[1], row[2:]) for like, rows in table.items() for name, row in rows.items()}


def _variant(path: Path) -> Variant | None:
    """Return the variant at a path of a built-in recipe, or None."""
    return _variants(path.parent).get(path.stem) if path.is_relative_to(BUILT_IN) and path.suffix == ".toml" else None


def find_recipe(name: str, verb: str) -> Path:
    """Return the path of a recipe file or of a built-in recipe. The path of a variant is not a file."""
    for path in (Path(name), BUILT_IN / verb / f"{name}.toml", BUILT_IN / f"{name}.toml"):
        if path.is_file() or _variant(path):
            return path
    is_folder = kind_of_folder(name) is not FolderKind.ABSENT  # a file was returned above
    if name.endswith(".toml") or is_folder:
        by_verb = f"is the folder of a `{read_status(Path(name)).get('verb')}`" if kind_of_folder(name).made else ""
        problem = by_verb or ("is not a folder of a finished `ordsmed` command" if is_folder else "no such file")
        texts = kind_of_folder(name) is FolderKind.FOREIGN
        remedy = f"`{command('make', name, 'OUT')}` makes a model from texts" if texts else ""
        raise RecipeError(name, problem, f"a recipe or the folder of a finished `ordsmed {verb or 'VERB'}`", remedy)
    # projects in the survey that cannot train: a user may expect a recipe for them
    table = settings.read(menu.PACKAGE_ROOT / "survey.toml")
    if name in {code["name"] for code in table["code"] if code.get("use") == "inference only"}:
        raise RecipeError(f"`{name}`", "does not train models", "", "`ordsmed survey` lists projects that do")
    if Path(f"{name}.toml").is_file():
        raise RecipeError(f"`{name}`", "no such file", "", f"did you mean `{name}.toml`?")
    if Path(name).parts[:1] == ("work",):  # the default output folder
        remedy = "a relative path starts at the current folder; change to where it was made, or give an absolute path"
        raise RecipeError(name, "no such folder", "a recipe or a run's folder", remedy)
    problem = f"no recipe of `{verb}` and no file" if verb else "no built-in recipe and no file"
    known = recipe_names("" if "/" in name else verb)
    general = [recipe for recipe in recipe_names() if recipe.split("/")[0] in GENERAL_FOLDERS]
    stages = [stage for stage in STAGES if name in recipe_names(stage)]
    if stages and not verb:
        suggestion = f"did you mean {' or '.join(f'`{stage}/{name}`' for stage in stages)}?"
    elif stages:
        suggestion = " or ".join(f"`{command(stage, name)}`" for stage in stages)
    else:
        suggestion = recipe_instead(verb, name) or meant(name, [*known, *general])
    raise RecipeError(
        f"`{name}`",
        problem,
        "",
        suggestion or (_list_command(verb) if len(known) > MAX_LISTED else nearest(name, known)),
    )


def _list_command(verb: str) -> str:
    return f"`{command('recipes', *[verb] * (verb in os.listdir(BUILT_IN)))}` lists them"


def recipe_names(verb: str = "") -> list[str]:
    """Return the built-in recipes of a verb, or all with their folders."""
    folder = BUILT_IN / verb if verb and (BUILT_IN / verb).is_dir() else BUILT_IN
    paths = [path for path in folder.rglob("*.toml") if path.name != VARIANTS]
    paths += [path.with_name(f"{name}.toml") for path in folder.rglob(VARIANTS) for name in _variants(path.parent)]
    names = sorted(str(path.relative_to(folder).with_suffix("")) for path in paths)
    return [name for name in names if not name.startswith("fetch/")]  # files in fetch/ are lists of URLs, not recipes


def recipe_text(path: Path) -> str:
    """Return the text of a recipe file, or all settings of a variant as TOML."""
    if (variant := _variant(path)) is None:
        settings.read(path)  # raises an error if it is not TOML
        return path.read_text(encoding="utf-8")
    comments = itertools.takewhile(
        lambda line: line.startswith("#"), recipe_text(path.with_name(f"{variant.like}.toml")).splitlines()
    )
    head = [variant.headline, f"`{variant.like}` with {variant.words}", *variant.notes]
    head = [*(f"# {line}" for line in head), *itertools.islice(comments, 1, None)]
    return "\n".join([*head, *settings.lines(read_table(path, path.parent.name)), ""])


def load(cls: type[R], name: str, overrides: Sequence[str] = ()) -> tuple[R, str]:
    table = table_of(name, getattr(cls, "verb", ""))
    return settings.decode(cls, settings.override(table, overrides), name), title(name)


def table_of(name: str, verb: str) -> settings.Table:
    """Return the table of a recipe of `verb`, or raise an error if it is a recipe of another verb."""
    table = read_table(find_recipe(name, verb), verb)
    right = next((known for key, known in (("phase", "pretrain"), ("task", "finetune")) if key in table), verb)
    if right != verb and verb in STAGES:
        raise RecipeError(name, f"is a recipe of `{right}`", f"one of `{verb}`", f"use `{command(right, name)}`")
    return table


def read_table(path: Path, verb: str, seen: tuple[Path, ...] = ()) -> settings.Table:
    """Return the table of a recipe, merged over the recipe that `like = "NAME"` names.

    NAME is a file next to the recipe, or any name that `find_recipe` accepts.
    """
    if variant := _variant(path):
        return settings.override(read_table(path.with_name(f"{variant.like}.toml"), verb), variant.words.split())
    table = settings.read(path)
    if "like" not in table:
        return table
    like = table.pop("like")
    if not isinstance(like, str):
        raise RecipeError(f"{path}: like", f"found {like!r}", "the name or file of a recipe")
    neighbor = path.parent / like
    below = neighbor if neighbor.is_file() else find_recipe(like, verb)
    if below in (path, *seen):
        raise RecipeError(f"{path}: like", f"{like} is based on itself", "another recipe")
    return merge_tables(read_table(below, verb, (*seen, path)), table)


def merge_tables(below: settings.Table, table: settings.Table) -> settings.Table:
    """Return `below` with the values of `table`. Nested tables of the same kind are merged; lists are replaced."""
    below = {key: value for key, value in below.items() if settings.other_name(key) not in table}
    both = [key for key, value in table.items() if isinstance(value, dict) and isinstance(below.get(key), dict)]
    other_kind = [key for key in both if "kind" in table[key] and table[key]["kind"] != below[key].get("kind")]
    return {**below, **table, **{key: merge_tables(below[key], table[key]) for key in both if key not in other_kind}}


def title(name: str) -> str:
    return Path(name).stem if Path(name).is_file() else name.replace("/", "-")


def output_folder(recipe: Recipe, title: str) -> Path:
    return check_out(Path(recipe.out or f"work/{recipe.verb}/{title}"))


def check_out(folder: Path) -> Path:
    """Return the folder; raise if it is a file, or has no name."""
    if folder.exists() and not folder.is_dir():
        raise RecipeError("out", f"found {folder}, a file", "a folder", "name another")
    files.with_name(folder)
    return folder


def parse_part(text: str | None) -> tuple[int, int]:
    """Parse `--part 3/16` to the index of the part (2) and the number of parts (16). None means part 1/1."""
    match = re.fullmatch(r"(\d+)/(\d+)", text or "1/1")
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise RecipeError("--part", f"found {text}", "I/N, such as 1/16 for the first of sixteen, to 16/16")
    return int(match[1]) - 1, int(match[2])


def finished(path: Path, verb: str) -> bool:
    """Return whether the folder was finished by this verb. Raise an error if another verb made it."""
    return finished_by(Run(path).status, path, verb)


def finished_by(status: Mapping[str, Any], path: Path, verb: str) -> bool:
    """Do the same as `finished` with a status that was already read."""
    if status and status.get("verb") != verb:
        raise RecipeError(path, f"is the folder of a `{status.get('verb')}`", f"that of a `{verb}`")
    return status.get("state") == "done"


def obtain(cls: type[D], name: str, overrides: Sequence[str] = (), *, anew: bool = False) -> Path:
    """Return the finished folder for the name of a recipe or folder.

    If it does not exist, one process makes it while the others wait.
    """
    verb, status = getattr(cls, "verb", ""), read_status(Path(name)) if os.path.isdir(name) else {}
    if status.get("verb") == FolderKind.MAKE.value:
        name = stages.stage(name, stages.BY_VERB.get(verb, ""))
        status = read_status(Path(name))
    if status:
        if overrides:
            raise RecipeError(name, f"is a folder, but {overrides[0]} is given", "a recipe to change, or no override")
        if finished_by(status, Path(name), verb) and not anew:
            return Path(name)
        with in_start_folder(name) as folder:
            return _obtain(Path(folder), read_recipe(cls, Path(folder)), folder, (), anew)
    recipe, title = load(cls, name, overrides)
    return _obtain(output_folder(recipe, title), recipe, name, overrides, anew)


def make(recipe: Runnable, *, anew: bool = False) -> Path:
    """Return the finished folder of a recipe given as an object, which must set `out`."""
    return _obtain(output_folder(recipe, ""), recipe, "", (), anew)


def _obtain(folder: Path, recipe: Runnable, name: str, overrides: Sequence[str], anew: bool) -> Path:
    if folder.resolve() in _in_progress:
        raise RecipeError(folder, f"is made from itself, by {name}", "another input")
    _in_progress.append(folder.resolve())
    try:
        return _make(folder, recipe, name, overrides, anew)
    finally:
        _in_progress.pop()


def _make(folder: Path, recipe: Runnable, name: str, overrides: Sequence[str], anew: bool) -> Path:
    """Return a folder that fits the recipe; make it under its lock if it does not exist."""
    verb = recipe.verb
    if only_checks():
        return _check(folder, recipe, name, overrides, anew)
    if anew or not finished(folder, verb):
        check_free(folder)
        with without_making():  # find missing inputs before another input takes hours to make
            _check_inputs(recipe)
    if _trusts_rank0.get() and not anew and _is_as_checked(folder, verb):
        return folder
    with locked(folder, anew=anew):
        run = Run(folder)
        if run.status and not fits(run, recipe):
            if finished(folder, verb) and not anew:  # an unfinished folder of another recipe is emptied below
                raise mismatch(folder, recipe, name, overrides)
            files.set_aside(folder, stay=STEPS) if anew else clear(folder)
        elif anew and run.status:
            files.set_aside(folder)
        if finished(folder, verb):
            if folder.resolve() not in _announced:
                (detail if _in_progress[1:] else say)(f"{folder}: exists, reused")  # for inputs, only in the log
            _announced.add(folder.resolve())
            _checked_fingerprints[str(folder.resolve())] = run.status["fingerprint"]
            return folder
        run.begin(recipe, began=time.time())
        with run.failure_noted(), log_to(folder / "log.txt"):
            facts = recipe.perform(run)
        _announced.add(folder.resolve())
        run.set(state="done", seconds=round(time.time() - run.status["began"], 1), **facts)
        if tidy := getattr(recipe, "tidy", None):
            tidy(run)  # removes temporary files
        _checked_fingerprints[str(folder.resolve())] = run.status["fingerprint"]
    return folder


def rank0_first(ranks: Ranks, act: Callable[[], T]) -> T:
    """Run `act` on rank 0, which makes and checks folders under their locks, then on the other ranks without locks.

    Another rank waits for a folder's lock only if the fingerprint in its status is not the one that rank 0 checked.
    """
    if ranks.store is None:
        return act()
    done: list[T] = []

    def first() -> dict[str, str]:
        done.append(act())
        return _checked_fingerprints

    marks = on_rank0(ranks, first)
    if ranks.first:
        return done[0]
    _checked_fingerprints.update(marks)
    before = _trusts_rank0.set(True)
    try:
        return act()
    finally:
        _trusts_rank0.reset(before)


def _is_as_checked(folder: Path, verb: str) -> bool:
    """Return whether the folder is finished and has the fingerprint that rank 0 checked."""
    mark = _checked_fingerprints.get(str(folder.resolve()))
    return mark is not None and finished(folder, verb) and Run(folder).status.get("fingerprint") == mark


def _check(folder: Path, recipe: Runnable, name: str, overrides: Sequence[str], anew: bool) -> Path:
    """Do the checks of `_make`. Return a folder that fits the recipe, or raise NotMade."""
    if finished(folder, recipe.verb) and not anew:
        try:
            fitting = fits(Run(folder), recipe)
        except NotMade:  # an input was deleted, so the fingerprint is unknown
            fitting = essence(read_recipe(type(recipe), folder)) == essence(recipe)
        if not fitting:
            raise mismatch(folder, recipe, name, overrides)
        return folder
    check_free(folder)
    _check_inputs(recipe)
    raise NotMade(folder)


def check_free(folder: Path) -> None:
    """Raise an error if the folder cannot be used. Skip the check while another process has the folder's lock."""
    if not is_locked(folder):
        Run(folder).check_place()


def _check_inputs(recipe: Runnable) -> None:
    if check := getattr(recipe, "check_inputs", None):
        check_if_made(check)


def clear(folder: Path) -> None:
    """Delete the contents of a folder except STEPS and EXAMPLES.

    The status is deleted last: without it, the folder would count as one that ordsmed did not make.
    """
    with files.survive_disk(folder):
        for path in sorted(folder.iterdir(), key=lambda path: path.name == STATUS):
            if path.name not in (STEPS, EXAMPLES):
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def mismatch(folder: Path, recipe: Runnable, name: str, overrides: Sequence[str]) -> RecipeError:
    """Return the error for a finished folder that was made from another recipe or from inputs that have changed."""
    if essence(read_recipe(type(recipe), folder)) == essence(recipe):
        problem, advice = "its inputs have changed since it was made", ""
    else:
        problem = "was made from another recipe"
        advice = f"`{command('show', folder, name, *overrides)}` shows the difference; "
    again = f"make it again with `{command(recipe.verb, name, *overrides, '--anew')}`, or name another `out=`"
    wanted = ""
    with contextlib.suppress(NotMade):  # without its inputs the fingerprint is unknown
        wanted = f"fingerprint {fingerprint(recipe)}"
    return RecipeError(folder, problem, wanted, advice + again)


def fits(run: Run, recipe: Recipe) -> bool:
    """Return whether the folder was made from this recipe and its present inputs.

    Settings that did not exist when the folder was made must have their defaults.
    """
    finished(run.path, recipe.verb)
    mark, path = run.status.get("fingerprint"), run.path / RECIPE
    if mark is None or mark == fingerprint(recipe):
        return mark is not None
    try:
        stored = settings.renamed(settings.read(path), settings.FORMER) if path.exists() else None
        return bool(
            stored and essence(read_recipe(type(recipe), run.path)) == essence(recipe)
        ) and mark == _fingerprint_of(recipe, _shared_entries(essence(recipe), stored))
    except RecipeError:  # made by a version with other settings
        return False


def difference(run: Run, recipe: Recipe, *, inputs: bool) -> str | None:
    """Return a key of the recipe if another recipe made this folder, or with `inputs` other inputs; else None."""
    wanted = essence(recipe)
    if essence(read_recipe(type(recipe), run.path)) != wanted:
        return value_key(wanted, 16)
    return fingerprint(recipe) if inputs and not fits(run, recipe) else None


def _shared_entries(new: object, old: object) -> object:
    """Return the entries of a table that another table has as well."""
    if isinstance(new, dict) and isinstance(old, dict):
        return {key: _shared_entries(value, old[key]) for key, value in new.items() if key in old}
    if isinstance(new, list) and isinstance(old, list) and len(new) == len(old):
        return [_shared_entries(*both) for both in zip(new, old, strict=True)]
    return new


def locked(folder: Path, *, anew: bool = False) -> contextlib.AbstractContextManager[object]:
    """Lock a folder for this process. While another process has the lock, wait.

    A line is printed about the wait, unless both processes belong to the same command. A finished read-only folder is
    not locked, because it does not change, except with `anew`. If the block raises an error, new folders that are still
    empty are removed.
    """
    import filelock

    folder = files.with_name(folder)
    lock = filelock.FileLock(folder.with_name(f".{folder.name}.lock"), thread_local=False, is_singleton=True)
    note, (group, rank) = folder.with_name(f".{folder.name}.holder"), _started_together(os.environ)
    absent = files.missing_folders(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=LOCK_PATIENCE if group else 0)  # then the other process has written down its group
        except filelock.Timeout:
            _refuse_lockless(folder, Path(lock.lock_file))
            if not rank and not (group and note.exists() and note.read_text(encoding="utf-8") == group):
                say(f"{folder}: waiting for another process that works on it")
            lock.acquire()
        stack = _lock_stack(lock, note, group)
        stack.push(lambda error, *_: _remove_traces(folder, absent, Path(lock.lock_file)) if error else None)
        return stack
    except RunError:
        files.remove_empty(absent)
        raise
    except OSError as error:
        if not anew and files.is_read_only(error) and Run(folder).status.get("state") == "done":
            return contextlib.nullcontext()
        with files.survive_disk(folder):
            raise


def _remove_traces(folder: Path, absent: Sequence[Path], lock: Path) -> None:
    """Remove the new folders that are still empty, and the lock file if its folder contains nothing else."""
    files.remove_empty(path for path in absent if path == folder)
    if folder.parent in absent and folder.parent.is_dir() and set(folder.parent.iterdir()) <= {lock}:
        lock.unlink(missing_ok=True)
        files.remove_empty(path for path in absent if path != folder)


def _refuse_lockless(folder: Path, lock: Path) -> None:
    """Raise an error if the file system has no locks. `filelock` would wait forever."""
    import fcntl

    try:
        with lock.open("ab") as file, contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        if files.is_read_only(error):
            raise  # handled like any read-only folder
        wanted = "a folder on a disk that supports locks"
        problem = f"no lock can be made next to it: {error.strerror}"
        raise RunError(folder, problem, wanted, "name another") from error


def is_locked(folder: Path) -> bool | None:
    """Return whether a process has the lock of a folder; None: unknown."""
    import fcntl

    folder = files.with_name(folder)
    try:
        with folder.with_name(f".{folder.name}.lock").open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    return False


def is_abandoned(folder: Path, host: object) -> bool:
    """Return whether certainly no process works in a folder whose run was started on the machine `host`."""
    return host == platform.node() and is_locked(folder) is False


def _lock_stack(lock: FileLock, note: Path, group: str) -> contextlib.ExitStack:
    """Return a context that releases the lock at its end. While it is open, `note` has the name of the group."""
    stack = contextlib.ExitStack()
    stack.callback(lock.release)
    if lock.lock_counter == 1:
        with contextlib.suppress(OSError):
            if group:
                note.write_text(group, encoding="utf-8")
                stack.callback(note.unlink, missing_ok=True)
            else:
                note.unlink(missing_ok=True)  # a killed process may have left one
    return stack


def _started_together(variables: Mapping[str, str]) -> tuple[str, int]:
    """Return a name shared by all processes of this command ("" if there is only one), and this process's rank."""
    try:
        location = process_info(variables)
    except RecipeError:  # a training reports the error; other verbs do not need the rank
        return "", 0
    words = (variables.get(name, "") for name in ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "SLURM_STEP_ID"))
    return ("/".join((f"{location.address}:{location.port}", *words)) if location.world > 1 else ""), location.rank


def read_recipe(cls: type[R], folder: Path, name: str = RECIPE) -> R:
    path = folder / name
    if not path.exists():
        raise DataError(folder, f"has no {name}", f"a folder of `ordsmed {getattr(cls, 'verb', '')}`")
    return settings.decode(cls, as_recorded(cls, settings.read(path)), str(path))


def as_recorded(cls: type, table: settings.Table) -> settings.Table:
    meant: Callable[[settings.Table], settings.Table] = getattr(cls, "as_recorded", dict)
    return meant(table)
