"""The folder of a run: found by name, made once under a lock, reused when its fingerprint fits.

    a name in a recipe -> a folder that stands?  -> use it
                       -> a recipe?              -> its `out` folder stands and fits: use it; else make it

What makes one is a frozen dataclass (the recipe) with `verb`, `out`, `stamp()` and `perform(run)`.
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
from ordsmed.base.errors import MANY, DataError, OrdsmedError, RecipeError, RunError, meant, nearest
from ordsmed.base.folder import EXAMPLES, RECIPE, STATUS, FolderKind, kind_of_folder, read_status
from ordsmed.base.identity import identity
from ordsmed.base.keys import value_key
from ordsmed.base.other_names import recipe_instead
from ordsmed.base.ranks import Ranks, first_alone, place_of
from ordsmed.base.say import detail, logged, say
from ordsmed.base.screen import command

if TYPE_CHECKING:
    from filelock import BaseFileLock as FileLock


class Recipe(Protocol):
    """What a recipe class offers so that a folder can be named and marked by it."""

    @property
    def verb(self) -> str:
        """The command that makes it."""

    @property
    def out(self) -> str | None:
        """The folder asked for; None: one named after the recipe."""

    def stamp(self) -> object:
        """What the result depends on beside the recipe: fingerprints of inputs, sizes and times of source files."""


class Runnable(Recipe, Protocol):
    """A recipe whose folder is made in one go."""

    def perform(self, run: Run) -> dict[str, Any]:
        """Do it, into the folder; what is returned stands in `status.json`."""


SHIPPED = menu.HOUSE / "recipes"
STAGES = ("corpus", "tokenizer", "encode", "pretrain", "finetune")  # verbs whose recipes make folders for each other
GENERAL = ("tiny", "laptop", "desk")  # folders of recipes that hold all stages to a pretrained model
VARIANTS = "variants.toml"  # in a folder of built-in recipes: those that are another one in all but a few settings
STEPS = "steps"  # in a run's folder: what is half done, and outlives a change of the recipe; it has keys of its own
LOOK = 1.0  # seconds after which a process that holds a lock has noted who it is

R = TypeVar("R", bound=Recipe)
D = TypeVar("D", bound=Runnable)
T = TypeVar("T")
_announced: set[Path] = set()  # folders that were announced as reused or made
# finished folders that were checked under their lock, here or by the first rank: their marks
_whole: dict[str, str] = {}
_trusted = ContextVar("trusted", default=False)  # is what the first rank checked taken without a lock?
_only_checks = ContextVar("only_checks", default=False)
_under_way: list[Path] = []  # folders that are being made, each for the one before


def _is_foreign(name: str) -> bool:
    """Is it none of what a folder holds before it has a status?"""
    return name not in (STEPS, EXAMPLES) and not name.startswith(f".{STATUS}.")


class NotMade(Exception):
    """A folder is missing that would be made now, while making is switched off."""

    def __init__(self, folder: Path) -> None:
        super().__init__(str(folder))
        self.folder = folder


@contextlib.contextmanager
def nothing_made() -> Iterator[None]:
    """Switch making off: `obtain` checks what it would make as far as recipes say, refuses alike, raises NotMade."""
    before = _only_checks.set(True)
    try:
        yield
    finally:
        _only_checks.reset(before)


def checked(act: Callable[[], object]) -> None:
    """Do what needs an input; one that is only not made yet is right."""
    with contextlib.suppress(NotMade):
        act()


def only_checks() -> bool:
    """Is making switched off?"""
    return _only_checks.get()


class Run:
    """One folder with `recipe.toml`, `environment.json`, `status.json`, `log.txt` and what was made."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def status(self) -> dict[str, Any]:
        """What `status.json` says; empty where there is none."""
        return read_status(self.path)

    def set(self, **facts: object) -> None:
        """Change `status.json`, whole or not at all; None takes a fact out."""
        files.write_json(self.path / STATUS, {k: v for k, v in {**self.status, **facts}.items() if v is not None})

    def begin(self, recipe: Recipe, **facts: object) -> None:
        """Write what is going to be done and where."""
        self.check_place()
        begun = {"verb": recipe.verb, "state": "running", "why": None, "fingerprint": fingerprint(recipe)}
        known: dict[str, object] = {**begun, **self._where(), **facts}
        with files.survive_disk(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        self.set(**known)  # the status first: by it the folder is known as ours, and may be made anew
        files.write_text(self.path / RECIPE, settings.write(recipe))
        files.write_json(self.path / "environment.json", environment())

    @contextlib.contextmanager
    def failure_noted(self) -> Iterator[None]:
        """Write into `status.json` how the work in here ended, if it did not end well."""
        try:
            yield
        except Stopped:
            raise  # which has noted its step
        except (Exception, KeyboardInterrupt) as error:
            stopped = isinstance(error, KeyboardInterrupt)
            reason = {} if stopped else {"why": str(error) or type(error).__name__}
            with contextlib.suppress(OrdsmedError):  # a full disk may be what failed
                self.set(state="stopped" if stopped else "failed", **reason)
            raise

    def check_place(self) -> None:
        """Refuse a folder that cannot be made or written to, and one with files in which no command of ours worked."""
        with files.survive_disk(self.path):
            if self.status.get("state") != "done":  # what is done may be only read
                files.refuse_unwritable(self.path)
            if self.path.is_dir() and not self.status and any(_is_foreign(p.name) for p in self.path.iterdir()):
                problem = "holds files that no `ordsmed` command made"
                raise RecipeError(self.path, problem, "a new or empty folder", "name another `out=`")

    def _where(self) -> dict[str, str]:
        """Where one stood, to which the paths of the recipe are relative; and what the folder was called from there."""
        with contextlib.suppress(OSError):
            return {"stood_in": str(Path.cwd()), "folder": str(self.path)}
        return {}

    @property
    def home(self) -> Path | None:
        """The folder to which the paths are relative that stand in this one, also when both were moved; None: unknown.

        Older ones do not say it: there it is where `work/` stands, if this is where a run is put that names no `out`.
        """
        status = self.status
        stood = status.get("stood_in")
        called = Path(status.get("folder", f"work/{status.get('verb')}/{self.path.name}"))
        if stood and (Path(stood) / called).resolve() == self.path.resolve():
            return Path(stood)
        for path in (self.path.absolute(), self.path.resolve()):
            if not called.is_absolute() and path.parts[-len(called.parts) :] == called.parts:
                return Path(*path.parts[: -len(called.parts)])
        return Path(stood) if stood and Path(stood).is_dir() else None


@contextlib.contextmanager
def at_home(name: str | Path) -> Iterator[str]:
    """Stand where a folder was made from, so that the paths in it lead where they did; yields its name from there.

    Other names (of recipes, of files) are left as they are.
    """
    home = Run(Path(name)).home if kind_of_folder(name).made else None
    if home is None or home.resolve() == Path.cwd().resolve():
        yield str(name)
        return
    folder = str(Path(name).resolve())
    with contextlib.chdir(home):
        yield folder


def fingerprint(recipe: Recipe) -> str:
    """Recipe and inputs in 16 hexadecimal digits; where the result is put and how machines do it do not count."""
    return _mark(recipe, essence(recipe))


def _mark(recipe: Recipe, table: object) -> str:
    return value_key([recipe.verb, table, recipe.stamp()], 16, any_order=True)


def essence(recipe: Recipe) -> settings.Table:
    """A recipe without what makes no difference to its result."""
    return {k: v for k, v in settings.plain(recipe, essence=True).items() if k not in ("out", "layout")}


def recipe_key(recipe: Recipe) -> str:
    """A recipe alone in 16 hexadecimal digits, which are known before any of its inputs is made."""
    return value_key([recipe.verb, essence(recipe)], 16, any_order=True)


def environment() -> dict[str, Any]:
    """Versions and machine, as `environment.json` keeps them."""
    from importlib.metadata import PackageNotFoundError, version

    versions = {}
    for name in ("torch", "numpy", "tokenizers", "safetensors"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "absent"
    return {
        "ordsmed": str(identity()), "code": identity().digest, "python": platform.python_version(), **versions,
        "machine": platform.machine(), "system": platform.system(), "host": platform.node(),
        "command": " ".join(sys.argv),
    }  # fmt: skip


class Variant(NamedTuple):
    """A built-in recipe that is another one with words behind it."""

    like: str
    headline: str
    words: str
    notes: list[str]


@functools.cache
def _variants(folder: Path) -> dict[str, Variant]:
    """The rows of a folder's table of variants, by name."""
    table = settings.read(folder / VARIANTS) if (folder / VARIANTS).is_file() else {}
    return {name: Variant(like, row[0], row[1], row[2:]) for like, rows in table.items() for name, row in rows.items()}


def _variant(path: Path) -> Variant | None:
    """The row that a built-in recipe is which has no file of its own."""
    return _variants(path.parent).get(path.stem) if path.is_relative_to(SHIPPED) and path.suffix == ".toml" else None


def find_recipe(name: str, verb: str) -> Path:
    """A built-in recipe is named, a file is a path; of a variant the path is where its file would be."""
    for path in (Path(name), SHIPPED / verb / f"{name}.toml", SHIPPED / f"{name}.toml"):
        if path.is_file() or _variant(path):
            return path
    is_folder = kind_of_folder(name) is not FolderKind.ABSENT  # a file was taken above
    if name.endswith(".toml") or is_folder:
        by_verb = f"is the folder of a `{read_status(Path(name)).get('verb')}`" if kind_of_folder(name).made else ""
        problem = by_verb or ("is a folder that no `ordsmed` command finished" if is_folder else "no such file")
        texts = kind_of_folder(name) is FolderKind.FOREIGN
        remedy = f"`{command('make', name, 'OUT')}` makes a model from texts" if texts else ""
        raise RecipeError(name, problem, f"a recipe or the folder of a finished `ordsmed {verb or 'VERB'}`", remedy)
    # codes of the survey that somebody may ask for, and that cannot train
    table = settings.read(menu.HOUSE / "survey.toml")
    if name in {code["name"] for code in table["code"] if code.get("use") == "inference only"}:
        raise RecipeError(f"`{name}`", "only applies models, and trains none", "", "`ordsmed survey` says which train")
    if Path(f"{name}.toml").is_file():
        raise RecipeError(f"`{name}`", "no such file", "", f"did you mean `{name}.toml`?")
    if Path(name).parts[:1] == ("work",):  # where runs are put that name no `out`
        remedy = "a relative path is from the current folder; go to where it was made, or give the whole path"
        raise RecipeError(name, "no such folder", "a recipe or a run's folder", remedy)
    problem = f"no recipe of `{verb}` and no file" if verb else "no built-in recipe and no file"
    known = recipe_names("" if "/" in name else verb)
    general = [recipe for recipe in recipe_names() if recipe.split("/")[0] in GENERAL]
    stages = [stage for stage in STAGES if name in recipe_names(stage)]
    if stages and not verb:
        suggestion = f"did you mean {' or '.join(f'`{stage}/{name}`' for stage in stages)}?"
    elif stages:
        suggestion = " or ".join(f"`{command(stage, name)}`" for stage in stages)
    else:
        suggestion = recipe_instead(verb, name) or meant(name, [*known, *general])
    raise RecipeError(
        f"`{name}`", problem, "", suggestion or (_listed(verb) if len(known) > MANY else nearest(name, known))
    )


def _listed(verb: str) -> str:
    """The command that lists the recipes of a verb, or all."""
    return f"`{command('recipes', *[verb] * (verb in os.listdir(SHIPPED)))}` lists them"


def recipe_names(verb: str = "") -> list[str]:
    """The built-in recipes: of one verb as it names them, or all with their folders."""
    folder = SHIPPED / verb if verb and (SHIPPED / verb).is_dir() else SHIPPED
    paths = [path for path in folder.rglob("*.toml") if path.name != VARIANTS]
    paths += [path.with_name(f"{name}.toml") for path in folder.rglob(VARIANTS) for name in _variants(path.parent)]
    names = sorted(str(path.relative_to(folder).with_suffix("")) for path in paths)
    return [name for name in names if not name.startswith("fetch/")]  # tables of addresses, which are no recipes


def recipe_text(path: Path) -> str:
    """A recipe as a file has it; of a variant all that it says."""
    if (variant := _variant(path)) is None:
        settings.read(path)  # what is no recipe is refused
        return path.read_text(encoding="utf-8")
    comments = itertools.takewhile(
        lambda line: line.startswith("#"), recipe_text(path.with_name(f"{variant.like}.toml")).splitlines()
    )
    head = [variant.headline, f"`{variant.like}` with {variant.words}", *variant.notes]
    head = [*(f"# {line}" for line in head), *itertools.islice(comments, 1, None)]
    return "\n".join([*head, *settings.lines(read_table(path, path.parent.name)), ""])


def load(cls: type[R], name: str, overrides: Sequence[str] = ()) -> tuple[R, str]:
    """A recipe by name or path, decoded; and the title its folder gets."""
    table = table_of(name, getattr(cls, "verb", ""))
    return settings.decode(cls, settings.override(table, overrides), name), title(name)


def table_of(name: str, verb: str) -> settings.Table:
    """Return the table of a recipe of `verb`; one of another verb is refused."""
    table = read_table(find_recipe(name, verb), verb)
    right = next((known for key, known in (("phase", "pretrain"), ("task", "finetune")) if key in table), verb)
    if right != verb and verb in STAGES:
        raise RecipeError(name, f"is a recipe of `{right}`", f"one of `{verb}`", f"use `{command(right, name)}`")
    return table


def read_table(path: Path, verb: str, seen: tuple[Path, ...] = ()) -> settings.Table:
    """A recipe's table; `like = "NAME"` lays it over another recipe: tables key by key, lists as a whole.

    A file that is named so is looked for beside the recipe first.
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
        raise RecipeError(f"{path}: like", f"{like} is, in the end, like itself", "another recipe")
    return lay_over(read_table(below, verb, (*seen, path)), table)


def lay_over(below: settings.Table, table: settings.Table) -> settings.Table:
    """A table over another: tables key by key but where they are of another kind, lists as a whole."""
    both = [key for key, value in table.items() if isinstance(value, dict) and isinstance(below.get(key), dict)]
    other_kind = [key for key in both if "kind" in table[key] and table[key]["kind"] != below[key].get("kind")]
    return {**below, **table, **{key: lay_over(below[key], table[key]) for key in both if key not in other_kind}}


def title(name: str) -> str:
    """What the folder of a recipe is called."""
    return Path(name).stem if Path(name).is_file() else name.replace("/", "-")


def place(recipe: Recipe, title: str) -> Path:
    """Where a run's folder stands."""
    folder = Path(recipe.out or f"work/{recipe.verb}/{title}")
    if folder.exists() and not folder.is_dir():
        raise RecipeError("out", f"found {folder}, a file", "a folder", "name another")
    files.named(folder)
    return folder


def part(text: str | None) -> tuple[int, int]:
    """`--part 3/16` as the third of sixteen, counted from 0; left out: the whole."""
    match = re.fullmatch(r"(\d+)/(\d+)", text or "1/1")
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise RecipeError("--part", f"found {text}", "I/N, such as 1/16 for the first of sixteen, to 16/16")
    return int(match[1]) - 1, int(match[2])


def finished(path: Path, verb: str) -> bool:
    """Does a finished folder of this verb stand here? A folder of another verb is refused."""
    return finished_by(Run(path).status, path, verb)


def finished_by(status: Mapping[str, Any], path: Path, verb: str) -> bool:
    """The same of a folder that has this status; of thousands each file that is read counts."""
    if status and status.get("verb") != verb:
        raise RecipeError(path, f"is the folder of a `{status.get('verb')}`", f"that of a `{verb}`")
    return status.get("state") == "done"


def obtain(cls: type[D], name: str, overrides: Sequence[str] = (), *, anew: bool = False) -> Path:
    """The finished folder that a name stands for; what is missing is made once, by one process, while others wait."""
    verb, status = getattr(cls, "verb", ""), read_status(Path(name)) if os.path.isdir(name) else {}
    if status.get("verb") == FolderKind.MAKE.value:
        name = stages.stage(name, stages.BY_VERB.get(verb, ""))
        status = read_status(Path(name))
    if status:
        if overrides:
            raise RecipeError(name, f"is a folder, but {overrides[0]} is given", "a recipe to change, or no override")
        if finished_by(status, Path(name), verb) and not anew:
            return Path(name)
        with at_home(name) as folder:
            return _obtained(Path(folder), read_recipe(cls, Path(folder)), folder, (), anew)
    recipe, title = load(cls, name, overrides)
    return _obtained(place(recipe, title), recipe, name, overrides, anew)


def made(recipe: Runnable, *, anew: bool = False) -> Path:
    """The finished folder of a recipe that no file holds, and that names its `out`."""
    return _obtained(place(recipe, ""), recipe, "", (), anew)


def _obtained(folder: Path, recipe: Runnable, name: str, overrides: Sequence[str], anew: bool) -> Path:
    if folder.resolve() in _under_way:
        raise RecipeError(folder, f"is made from itself, by {name}", "another input")
    _under_way.append(folder.resolve())
    try:
        return _made(folder, recipe, name, overrides, anew)
    finally:
        _under_way.pop()


def _made(folder: Path, recipe: Runnable, name: str, overrides: Sequence[str], anew: bool) -> Path:
    """Make a folder, or find it made, under its lock."""
    verb = recipe.verb
    if only_checks():
        return _checked(folder, recipe, name, overrides, anew)
    if anew or not finished(folder, verb):
        check_free(folder)
        with nothing_made():  # one input may take hours to make before another is found to be missing
            _check_inputs(recipe)
    if _trusted.get() and not anew and _stands_as_checked(folder, verb):
        return folder
    with locked(folder, anew=anew):
        run = Run(folder)
        if run.status and not fits(run, recipe):
            if finished(folder, verb) and not anew:  # what is not finished holds nothing that anybody waits for
                raise misfit(folder, recipe, name, overrides)
            files.set_aside(folder, stay=STEPS) if anew else clear(folder)
        elif anew and run.status:
            files.set_aside(folder)
        if finished(folder, verb):
            if folder.resolve() not in _announced:
                (detail if _under_way[1:] else say)(f"{folder}: exists, reused")  # of inputs the log tells
            _announced.add(folder.resolve())
            _whole[str(folder.resolve())] = run.status["fingerprint"]
            return folder
        run.begin(recipe, began=time.time())
        with run.failure_noted(), logged(folder / "log.txt"):
            facts = recipe.perform(run)
        _announced.add(folder.resolve())
        run.set(state="done", seconds=round(time.time() - run.status["began"], 1), **facts)
        if tidy := getattr(recipe, "tidy", None):
            tidy(run)  # what the finished folder needs no more
        _whole[str(folder.resolve())] = run.status["fingerprint"]
    return folder


def once_for_all(ranks: Ranks, act: Callable[[], T]) -> T:
    """Do it on the first rank, which makes and checks folders under their locks; then on the others, without locks.

    These see by its status that the same folder stands; one that does not, or is made again, they wait for as ever.
    """
    if ranks.store is None:
        return act()
    done: list[T] = []

    def first() -> dict[str, str]:
        done.append(act())
        return _whole

    marks = first_alone(ranks, first)
    if ranks.first:
        return done[0]
    _whole.update(marks)
    before = _trusted.set(True)
    try:
        return act()
    finally:
        _trusted.reset(before)


def _stands_as_checked(folder: Path, verb: str) -> bool:
    """Is it the finished folder that the first rank checked?"""
    mark = _whole.get(str(folder.resolve()))
    return mark is not None and finished(folder, verb) and Run(folder).status.get("fingerprint") == mark


def _checked(folder: Path, recipe: Runnable, name: str, overrides: Sequence[str], anew: bool) -> Path:
    """What `_made` does, without making: a folder that fits, the same refusals, or NotMade once inputs are checked."""
    if finished(folder, recipe.verb) and not anew:
        try:
            fitting = fits(Run(folder), recipe)
        except NotMade:  # an input is gone, and would be made again
            fitting = essence(read_recipe(type(recipe), folder)) == essence(recipe)
        if not fitting:
            raise misfit(folder, recipe, name, overrides)
        return folder
    check_free(folder)
    _check_inputs(recipe)
    raise NotMade(folder)


def check_free(folder: Path) -> None:
    """Refuse a folder that cannot be worked in, before its lock is taken; where another process works, it can."""
    if not is_held(folder):
        Run(folder).check_place()


def _check_inputs(recipe: Runnable) -> None:
    """Refuse inputs that are missing and cannot be made, where a recipe has any."""
    if check := getattr(recipe, "check_inputs", None):
        checked(check)


def clear(folder: Path) -> None:
    """Empty a folder of ours, but for steps and examples of a next run; its status, by which it is ours, goes last."""
    with files.survive_disk(folder):
        for path in sorted(folder.iterdir(), key=lambda path: path.name == STATUS):
            if path.name not in (STEPS, EXAMPLES):
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def misfit(folder: Path, recipe: Runnable, name: str, overrides: Sequence[str]) -> RecipeError:
    """Why a finished folder is not taken: another recipe, or inputs that changed since."""
    if essence(read_recipe(type(recipe), folder)) == essence(recipe):
        problem, tell = "its inputs have changed since it was made", ""
    else:
        problem = "was made from another recipe"
        tell = f"`{command('show', folder, name, *overrides)}` shows the difference; "
    again = f"make it again with `{command(recipe.verb, name, *overrides, '--anew')}`, or name another `out=`"
    wanted = ""
    with contextlib.suppress(NotMade):  # of inputs that are not made the fingerprint is not known
        wanted = f"fingerprint {fingerprint(recipe)}"
    return RecipeError(folder, problem, wanted, tell + again)


def fits(run: Run, recipe: Recipe) -> bool:
    """Was this folder made by this recipe from these inputs? Settings that came since stand at what they begin with."""
    finished(run.path, recipe.verb)
    mark, path = run.status.get("fingerprint"), run.path / RECIPE
    if mark is None or mark == fingerprint(recipe):
        return mark is not None
    try:
        stored = settings.renamed(settings.read(path), settings.FORMER) if path.exists() else None
        return bool(stored and essence(read_recipe(type(recipe), run.path)) == essence(recipe)) and mark == _mark(
            recipe, _within(essence(recipe), stored)
        )
    except RecipeError:  # of a version that knew other settings
        return False


def _within(new: object, old: object) -> object:
    """What of a table was there when another was written."""
    if isinstance(new, dict) and isinstance(old, dict):
        return {key: _within(value, old[key]) for key, value in new.items() if key in old}
    if isinstance(new, list) and isinstance(old, list) and len(new) == len(old):
        return [_within(*both) for both in zip(new, old, strict=True)]
    return new


def locked(folder: Path, *, anew: bool = False) -> contextlib.AbstractContextManager[object]:
    """A lock beside a folder: one process works in it, others wait and say so, unless they were started with it.

    A finished folder that may only be read needs none, for nobody changes it, unless it is to be made anew. Of what was
    refused before it left anything, no empty folder stays.
    """
    import filelock

    folder = files.named(folder)
    lock = filelock.FileLock(folder.with_name(f".{folder.name}.lock"), thread_local=False, is_singleton=True)
    note, (group, rank) = folder.with_name(f".{folder.name}.holder"), _started_together(os.environ)
    absent = files.absent(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=LOOK if group else 0)  # by then who holds it has noted its group
        except filelock.Timeout:
            _refuse_lockless(folder, Path(lock.lock_file))
            if not rank and not (group and note.exists() and note.read_text(encoding="utf-8") == group):
                say(f"{folder}: another process works on it; waiting")
            lock.acquire()
        stack = _held(lock, note, group)
        stack.push(lambda error, *_: _leave_nothing(folder, absent, Path(lock.lock_file)) if error else None)
        return stack
    except RunError:
        files.remove_empty(absent)
        raise
    except OSError as error:
        if not anew and files.unwritable(error) and Run(folder).status.get("state") == "done":
            return contextlib.nullcontext()
        with files.survive_disk(folder):
            raise


def _leave_nothing(folder: Path, absent: Sequence[Path], lock: Path) -> None:
    """Remove what is empty of folders that were made under a lock, which goes where it would be all that is left."""
    files.remove_empty(path for path in absent if path == folder)
    if folder.parent in absent and folder.parent.is_dir() and set(folder.parent.iterdir()) <= {lock}:
        lock.unlink(missing_ok=True)
        files.remove_empty(path for path in absent if path != folder)


def _refuse_lockless(folder: Path, lock: Path) -> None:
    """Refuse a place where no lock can ever be had, for which `filelock` waits as for one that another holds."""
    import fcntl

    try:
        with lock.open("ab") as file, contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        if files.unwritable(error):
            raise  # as of any folder
        wanted = "a place on a disk that takes files and locks"
        raise RunError(folder, f"no lock can be made beside it: {error.strerror}", wanted, "name another") from error


def is_held(folder: Path) -> bool | None:
    """Does a process work in a folder, by its lock? None: that is not known."""
    import fcntl

    folder = files.named(folder)
    try:
        with folder.with_name(f".{folder.name}.lock").open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    return False


def is_left(folder: Path, host: object) -> bool:
    """Is it known that no process works on what one of this machine, by its name, began? Of another's it is not."""
    return host == platform.node() and is_held(folder) is False


def _held(lock: FileLock, note: Path, group: str) -> contextlib.ExitStack:
    """A lock that is held, with a note beside it while a group of processes works under it."""
    stack = contextlib.ExitStack()
    stack.callback(lock.release)
    if lock.lock_counter == 1:
        with contextlib.suppress(OSError):
            if group:
                note.write_text(group, encoding="utf-8")
                stack.callback(note.unlink, missing_ok=True)
            else:
                note.unlink(missing_ok=True)  # of one that was killed
    return stack


def _started_together(variables: Mapping[str, str]) -> tuple[str, int]:
    """What the processes of one command share ("" where there is but one), and which of them this is."""
    try:
        place = place_of(variables)
    except RecipeError:  # who trains is told of it; who makes a corpus needs no others
        return "", 0
    words = (variables.get(name, "") for name in ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "SLURM_STEP_ID"))
    return ("/".join((f"{place.address}:{place.port}", *words)) if place.world > 1 else ""), place.rank


def read_recipe(cls: type[R], folder: Path, name: str = RECIPE) -> R:
    """The recipe a folder was made by."""
    path = folder / name
    if not path.exists():
        raise DataError(folder, f"holds no {name}", f"the folder of an `ordsmed {getattr(cls, 'verb', '')}`")
    return settings.decode(cls, as_recorded(cls, settings.read(path)), str(path))


def as_recorded(cls: type, table: settings.Table) -> settings.Table:
    """What a recipe in a folder meant when it was written there: what it does not name may have another default now."""
    meant: Callable[[settings.Table], settings.Table] = getattr(cls, "as_recorded", dict)
    return meant(table)
