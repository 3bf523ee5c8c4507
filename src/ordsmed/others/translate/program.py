"""Programs of other codes: their flags, the translation of each flag, and the resulting call.

--num-layers 24  ->  model.layers = 24          set by the flag's row
--no_cuda        ->  layout.device = "cpu"      the value is converted by `by` of the row
--tokens 8       ->  --tokens 8                 an argument of the command, or an environment variable
--lr 1e-4        ->  phase.learning_rate        `joint`: set by the program's function, which combines several flags
--lazy-loader    ->  no effect                  a note gives the reason
--eval-hf        ->  refused                    the error has a remedy

A module in `dialects` has a tuple `PROGRAMS`, and each flag of the original has a row. `INSTEAD`, if present, names
programs that are not translated, with alternatives.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ordsmed.base import files, menu, settings
from ordsmed.base.arguments import Parser, UsageError
from ordsmed.base.errors import DataError, nearest
from ordsmed.base.other_names import answers
from ordsmed.base.ranks import ProcessInfo

MENU = "dialects"
DEPENDENCIES = ("corpus", "tokenizer", "encode")  # recipes that a call may run first; `<encode>` refers to one
BOOLEANS = dict.fromkeys(("true", "t", "yes", "y", "1"), True) | dict.fromkeys(("false", "f", "no", "n", "0"), False)
JSON_TYPES = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    list: "a list",
    dict: "a table",
}
TRAININGS = ("pretrain", "finetune")
ANEW = "ORDSMED_ANEW"  # 1: add --anew to every training that a script starts
SETTING = re.compile(r"[a-z_]+(\.[a-z_]+|\[\d+\])*=")  # a setting after positional arguments: key.path=value
FLAG_WITH_TYPE = re.compile(r"([\w.-]+)(?::(str|int|float|bool)|=(\S*))")  # NAME=DEFAULT or NAME:TYPE
KINDS: dict[str, type] = {"str": str, "int": int, "float": float, "bool": bool}
Table = dict[str, Any]


def key_of(flag: str) -> str:
    return flag.lstrip("-").replace("-", "_")


@dataclass(frozen=True)
class Flag:
    """A flag, a positional argument (a name without dashes) or an environment variable (in capitals)."""

    name: str
    default_or_type: object = None  # default of the original; False: a switch; a type: no default
    goes: str = ""  # target: a setting (`corpus: source.path`), an argument (`--tokens`) or a variable (in capitals)
    by: Callable[[Any], object] | Mapping[Any, object] | None = None  # converts the value; None: the target is not set
    explicit: bool = False  # set the target only if the flag is given
    needs: str = ""  # flag without which it has no effect, as in the original
    joint: bool = False  # set by the program's function, together with others
    nothing: str = ""  # reason why it has no effect here
    refused: str = ""  # remedy for a flag that is refused
    several: bool = False  # takes one value or more
    required: bool = False
    valued: bool = False  # a switch that takes True or False
    alone: str = ""  # value if the flag is given without one
    one_of: tuple[str, ...] = ()
    also: tuple[str, ...] = ()  # further names
    implies: str = ""  # switch that a value other than the default turns on
    within: str = ""  # flag whose JSON table or file has this name as a key

    def __post_init__(self) -> None:
        if bool(self.goes) + bool(self.nothing) + bool(self.refused) != 1:
            raise ValueError(f"{self.name}: needs exactly one of `goes`, `nothing` and `refused`")

    @property
    def key(self) -> str:
        return key_of(self.name)

    @property
    def spelling(self) -> str:
        return f"{self.within} {self.name}" if self.within else self.name

    @property
    def kind(self) -> type:
        value = self.default_or_type
        return value if isinstance(value, type) else str if value is None else type(value)

    @property
    def default(self) -> Any:
        return None if isinstance(self.default_or_type, type) else self.default_or_type

    def setting(self, value: Any) -> object:
        """Return the converted value; None if the target should not be set."""
        return self.by.get(value) if isinstance(self.by, Mapping) else self.by(value) if self.by else value


def joint(goes: str, names: str) -> tuple[Flag, ...]:
    """Return flags that the program's function combines into one setting: `--beta1=0.9 --x:str` (default or type)."""
    return tuple(Flag(name, default, goes, joint=True) for name, default in _names_with_types(names))


def idle(reason: str, names: str) -> tuple[Flag, ...]:
    return tuple(Flag(name, default, nothing=reason) for name, default in _names_with_types(names))


def refused(remedy: str, names: str) -> tuple[Flag, ...]:
    return tuple(Flag(name, default, refused=remedy) for name, default in _names_with_types(names))


def _names_with_types(names: str) -> Iterator[tuple[str, Any]]:
    for word in names.split():
        match = FLAG_WITH_TYPE.fullmatch(word)
        if match is None:
            raise ValueError(f"{word}: must be NAME=DEFAULT or NAME:TYPE")
        yield match[1], KINDS[match[2]] if match[2] else _literal(match[3])


def _literal(text: str) -> bool | int | float | str:
    with contextlib.suppress(ValueError, SyntaxError):
        value = ast.literal_eval(text)
        return value if isinstance(value, bool | int | float) else text
    return text


class RecordedValues(dict[str, Any]):
    """Values by flag that record which of them were read."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__(values)
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: object = None) -> Any:
        self.read.add(name)
        return super().get(name, default)


@dataclass(frozen=True)
class Values:
    """The values of a command line by flag. `explicit` contains the flags that were given."""

    of: RecordedValues
    explicit: frozenset[str]
    place: ProcessInfo  # rank and number of processes
    devices: int = 0  # processes to start
    overrides: tuple[str, ...] = ()
    anew: bool = False  # restart the training, even if the folder has a run with other settings
    program: str = ""

    def says(self, flag: str) -> bool:
        return key_of(flag) in self.explicit

    def require(self, *flags: str) -> None:
        for flag in flags:
            if not self.of[key_of(flag)]:
                raise UsageError(self.program, f"no {flag}", f"`{self.program} {flag} ...`")

    def refuse_both(self, flag: str, other_flag: str) -> None:
        if self.of[key_of(flag)] and self.of[key_of(other_flag)]:
            raise UsageError(flag, f"found with {other_flag}", "one of the two")

    @property
    def out_override(self) -> str | None:
        """Folder of a setting `out=` on the command line, which replaces the original's folder."""
        return next((word[4:] for word in reversed(self.overrides) if word.startswith("out=")), None)

    def read_later(self, *names: str) -> None:
        """Mark flags as read that will be read after the run."""
        self.of.read.update(names)

    def __getattr__(self, name: str) -> Any:
        try:
            return self.of[name]
        except KeyError:
            raise AttributeError(name) from None


@dataclass
class Call:
    """The translation of a command line: recipes, and the command that runs the last one or has only arguments."""

    verb: str  # the command, such as `pretrain`; empty: only run `before`, `after` and the calls in `then`
    recipes: dict[str, Table] = field(default_factory=dict)  # by verb: corpus, tokenizer, encode, and that of `verb`
    words: list[str] = field(default_factory=list)  # further arguments of the command
    writes: str = ""  # output folder, if no recipe names it
    environment: dict[str, str] = field(default_factory=dict)
    devices: int = 0  # processes that the original starts
    gpus: int = 0  # required GPUs, if the command starts the processes itself
    notes: list[str] = field(default_factory=list)  # differences that users of the original should know
    before: list[Callable[[], object]] = field(default_factory=list)  # prepare files, in each process
    shared: dict[str, Path] = field(default_factory=dict)  # by recipe: folder, named by content, that calls share
    after: list[Callable[[], object]] = field(default_factory=list)  # write the original's files after the run
    tells: Callable[[dict[str, Any]], list[str]] | None = None  # formats metrics as the original's log lines
    then: list[Call] = field(default_factory=list)  # calls that run after it

    def set(self, words: str) -> None:
        """Set values given as text: `corpus:sentences=lines optimizer.epsilon=1e-6`."""
        for word in words.split():
            location, _, text = word.partition("=")
            self.put(location.replace(":", ": "), settings.override({}, [f"value={text}"])["value"])

    def carry(self, goes: str, value: object) -> None:
        """Set the target `goes` of a flag: an argument of the command, an environment variable or a setting."""
        if goes.startswith("--"):
            shown = f"{value:g}" if isinstance(value, float) else str(value)
            self.words += [] if value is False else [goes] if value is True else [goes, shown]
        elif goes.isupper():
            self.environment[goes] = str(value)
        else:
            self.put(goes, value)

    def note_idle(self, values: Values, reason: str, *flags: str) -> None:
        """Add a note for each of these flags that was given although it has no effect."""
        self.notes += [f"{flag}: has no effect {reason}" for flag in flags if values.says(flag)]

    def put(self, location: str, value: object) -> None:
        recipe, _, path = location.rpartition(": ")
        table = self.recipes.setdefault(recipe or self.verb, {})
        *tables, key = path.split(".")
        for name in tables:
            table = table.setdefault(name, {}) if name != "phase" else table.setdefault(name, [{}])[0]
        table[key] = value

    def holds(self, location: str, value: object) -> bool:
        """Return whether a setting still has this value, or the command's arguments contain it."""
        if value is None or location.startswith("--") or location.isupper():
            return value is None or location in self.words or location in self.environment
        recipe, _, path = location.rpartition(": ")
        setting: object = self.recipes.get(recipe or self.verb, {})
        for name in path.split("."):
            setting = setting[0] if isinstance(setting, list) else setting
            setting = setting.get(name) if isinstance(setting, dict) else None
        return bool(setting == value) or f"{path}={settings.literal(value)}" in self.words


@dataclass(frozen=True)
class Program:
    name: str
    doc: str  # one line of description
    flags: tuple[Flag, ...]
    call: Callable[[Values, Call], None]  # sets what depends on several flags
    verb: str = ""  # command of ordsmed; empty: `call` sets it
    path: str = ""  # path in the original code; empty: `name`
    also: tuple[str, ...] = ()  # further paths, in forks of the original
    absl: bool = False  # a switch may be --NAME, --noNAME or --NAME=false
    fields: bool = False  # flags are dataclass fields: see `_add_field`; or in a JSON file
    sets: str = ""  # constant settings: `objective.kind=rtd corpus:sentences=lines`

    def translated(self, values: Values) -> Call:
        call, reasons = Call(self.verb, devices=values.devices), dict[str, list[str]]()
        for flag in self.flags:
            if flag.key in values.explicit and flag.nothing:
                reasons.setdefault(flag.nothing, []).append(flag.spelling)
        call.notes += [f"{', '.join(names)}: not needed here: {reason}" for reason, names in reasons.items()]
        try:
            for flag in self.flags:
                self._apply(flag, values, call)
            call.set(self.sets)
            self.call(values, call)
        except ZeroDivisionError:
            zeros = [
                flag.spelling
                for flag in self.flags
                if flag.key in values.explicit and str(values.of[flag.key]) in ("0", "0.0")
            ]
            raise UsageError(", ".join(zeros) or self.name, "found 0", "more than 0") from None
        if unused := self.unused(values, call):
            call.notes.append(f"{', '.join(unused)}: not used by this call")
        calls = [call, *call.then]
        for part in calls:
            if part.verb in TRAININGS and part.verb in part.recipes:  # the originals do not choose a precision
                part.recipes[part.verb].setdefault("layout", {}).setdefault("precision", "fp32")
            if part.verb == "pretrain" and part.verb in part.recipes:  # they keep the last weights, not the best
                part.recipes[part.verb].setdefault("keep_best", False)
        if values.overrides and not any(part.verb in part.recipes for part in calls):
            if not call.verb:
                raise UsageError(values.overrides[0], "found a setting without a recipe", "only flags")
            for part in calls:  # a command without a recipe accepts or refuses settings as arguments
                part.words += values.overrides
        if values.anew and call.verb in TRAININGS and "--anew" not in call.words:
            call.words.append("--anew")
        return call

    def _apply(self, flag: Flag, values: Values, call: Call) -> None:
        """Apply a flag's row, without marking its value as read."""
        value, is_explicit = dict.__getitem__(values.of, flag.key), flag.key in values.explicit
        if is_explicit and flag.refused and value != flag.default:
            raise UsageError(flag.spelling, "is not supported", "", flag.refused)
        if flag.needs and not dict.__getitem__(values.of, key_of(flag.needs)):
            if is_explicit:
                call.notes.append(f"{flag.spelling}: has no effect without {flag.needs}")
            return
        if not flag.goes or flag.joint or (flag.explicit and not is_explicit) or (value is None and not is_explicit):
            return
        if (setting := flag.setting(value)) is not None:
            call.carry(flag.goes, copy.deepcopy(setting))

    def unused(self, values: Values, call: Call) -> list[str]:
        """Return the flags that were given but neither read, nor applied, nor reported."""
        plain, calls = dict(values.of), [call, *call.then]
        known = {flag.within for flag in self.flags}  # keys of a table have their own flags
        known |= {name for note in call.notes for name in note.partition(": ")[0].split(", ")}
        unread = [flag for flag in self.flags if flag.goes and flag.key in values.explicit - values.of.read]
        return [
            flag.spelling
            for flag in unread
            if not {flag.name, flag.spelling} & known
            and (flag.joint or not any(part.holds(flag.goes, flag.setting(plain[flag.key])) for part in calls))
        ]

    def read(self, words: Sequence[str], process: ProcessInfo, environment: Mapping[str, str]) -> Values:
        parser = _Parser(self.name, owners=lambda flag: "", add_help=False, argument_default=argparse.SUPPRESS)
        parser.allow_abbrev = True  # as in the original: --fp32-em
        free = False
        if self.fields and words and words[0].endswith(".json"):
            words = [*_arguments_in(words[0]), *words[1:]]
        for flag in self.flags:
            options: dict[str, Any] = {"dest": flag.key}
            if flag.name.isupper() or flag.within:
                continue
            if self.fields:
                _add_field(parser, flag)
            elif flag.kind is bool and self.absl:
                parser.add_argument(flag.name, nargs="?", const=True, type=_read_as(bool), **options)
                parser.add_argument(f"--no{flag.key}", action="store_false", **options)
            elif flag.kind is bool and not flag.valued:
                parser.add_argument(flag.name, *flag.also, action="store_true", **options)
            elif flag.name.startswith("-"):
                options |= {"nargs": "+"} if flag.several else {}
                options |= {"nargs": "?", "const": flag.alone} if flag.alone else {}
                parser.add_argument(flag.name, *flag.also, type=_read_as(flag.kind), **options)
            else:
                free = free or flag.several or not flag.required
                many = "+" if flag.several else None if flag.required else "?"
                parser.add_argument(flag.key, type=_read_as(flag.kind), nargs=many)
        rest: list[str] = []
        if not free:
            parser.add_argument("overrides", nargs="*", metavar="key.path=value")
        elif not any(flag.several and not flag.name.startswith("-") for flag in self.flags):
            rest = [word for word in words if SETTING.match(word)]
            words = [word for word in words if not SETTING.match(word)]
        parser.add_argument("--devices", type=int, help="processes, which are started here")
        if self.verb in TRAININGS:
            parser.add_argument("--anew", action="store_true", default=environment.get(ANEW) == "1")
        args = vars(parser.read(words))
        devices, anew = args.pop("devices", 0), args.pop("anew", False)
        process = ProcessInfo(0, devices) if devices and process.world == 1 else process
        overrides = args.pop("overrides", rest)
        for word in overrides:
            if "=" not in word:
                raise UsageError(self.name, f"found `{word}`", "flags, and settings as key.path=value")
        args.pop("verb", None)
        for flag in self.flags:
            if flag.name.isupper() and (text := environment.get(flag.name, "")):
                args[flag.key] = _value(flag, text)
            if flag.key not in args and flag.required:
                raise UsageError(self.name, f"no {flag.name}", f"`{self.name} {flag.name} ...`")
        for flag in self.flags:
            if not flag.within and flag.key in args and (inner := [f for f in self.flags if f.within == flag.name]):
                args |= of_table(flag.name, args[flag.key], inner)
        self._check_choices(args)
        by_flag = {flag.key: args.get(flag.key, flag.default) for flag in self.flags}
        implying = {flag.key: flag.implies for flag in self.flags if flag.implies and by_flag[flag.key] != flag.default}
        by_flag |= {key_of(implied): True for implied in implying.values()}
        values = Values(RecordedValues(by_flag), frozenset(args), process, devices, tuple(overrides), anew, self.name)
        values.read_later(*implying)
        moved = {flag.key: values.out_override for flag in self.flags if flag.goes == "out" and not flag.joint}
        return replace(values, of=RecordedValues(by_flag | moved)) if values.out_override else values

    def _check_choices(self, args: Mapping[str, Any]) -> None:
        for flag in self.flags:
            if flag.one_of and args.get(flag.key, flag.default) not in (*flag.one_of, flag.default):
                where = flag.spelling if flag.spelling.startswith("-") else f"{self.name}: {flag.name}"
                raise UsageError(where, f"found {args[flag.key]}", ", ".join(flag.one_of))


def of_table(location: str, text: str, inner: Sequence[Flag]) -> Table:
    """Return the values by key of a JSON table, given as text or file. Join the keys of nested tables by dots."""
    known = {flag.name: flag for flag in inner}
    try:
        table = files.read_table(Path(text)) if text.endswith(".json") else json.loads(text)
    except ValueError as error:
        wanted = """a table such as '{"KEY": 1}', or a .json file with a table"""
        raise UsageError(location, f"is not JSON ({error})", wanted) from None
    if not isinstance(table, dict):
        raise UsageError(location, f"found {text}", """a table such as '{"KEY": 1}'""")
    table = _flat(table, known)
    for name, value in table.items():
        if name not in known:
            raise UsageError(location, f"has no key `{name}`", "", nearest(name, known))
        if known[name].kind is int and isinstance(value, float) and value.is_integer():
            table[name] = value = int(value)  # 1e6
        kinds = (int, float) if known[name].kind is float else (known[name].kind,)
        if value is not None and (not isinstance(value, kinds) or isinstance(value, bool) is not (kinds == (bool,))):
            raise UsageError(f"{location} {name}", f"found {json.dumps(value)}", JSON_TYPES[kinds[-1]])
    return {known[name].key: value for name, value in table.items()}


def _flat(table: Table, known: Mapping[str, Flag], before: str = "") -> Table:
    flat: Table = {}
    for key, value in table.items():
        inner = isinstance(value, dict) and f"{before}{key}" not in known
        flat |= _flat(value, known, f"{before}{key}.") if inner else {f"{before}{key}": value}
    return flat


class _Parser(Parser):
    def _form(self) -> str:
        """Return the usage line without the prefix `ordsmed`."""
        return super()._form().removeprefix("ordsmed ").removesuffix(" [key.path=value ...]")

    def _more(self) -> str:
        return f"`{self.verb} --flags` lists the flags and their targets"


def _add_field(parser: Parser, flag: Flag) -> None:
    """Add a flag as HfArgumentParser does: a switch may have True or False after it, or be --no_NAME if it is on."""
    spelled = [flag.name, *flag.also]
    spelled += ["--" + name[2:].replace("_", "-") for name in spelled if "_" in name]
    options: dict[str, Any] = (
        {"nargs": "?", "const": True} if flag.kind is bool else {"nargs": "+"} if flag.several else {}
    )
    parser.add_argument(*spelled, dest=flag.key, type=_read_as(flag.kind), **options)
    if flag.default is True:
        parser.add_argument(
            f"--no_{flag.key}", f"--no-{flag.key.replace('_', '-')}", dest=flag.key, action="store_false"
        )


def _arguments_in(path: str) -> list[str]:
    """Return the fields in a JSON file as arguments."""
    if not isinstance(table := files.read_json(Path(path)), dict):
        raise DataError(path, "is not a JSON object", '{"learning_rate": 1e-4, ...}')
    words = []
    for name, value in table.items():
        if isinstance(value, list):
            words += [f"--{name}", *map(str, value)]
        elif value is not None:
            words.append(f"--{name}={json.dumps(value) if isinstance(value, dict) else value}")
    return words


def _value(flag: Flag, text: str) -> object:
    try:
        return _read_as(flag.kind)(text)
    except (ValueError, argparse.ArgumentTypeError):
        raise UsageError(flag.name, f"found {text}", f"as {flag.default}") from None


def _read_as(kind: type) -> Callable[[str], object]:
    """Return a function that converts an argument to `kind`. Integers may be written as 1e4."""

    def read(text: str) -> object:
        if text is argparse.SUPPRESS:  # a positional argument that is missing
            return text
        try:
            if kind is bool:
                return BOOLEANS[text.lower()]
            return int(float(text)) if kind is int and float(text).is_integer() else kind(text)
        except (KeyError, ValueError, OverflowError):
            wanted = {bool: "True or False", int: "a whole number", float: "a number"}[kind]
            raise argparse.ArgumentTypeError(f"found {text}; wanted {wanted}") from None

    return read


def names() -> list[str]:
    return menu.entries(MENU)


def programs(dialect: str) -> dict[str, Program]:
    if dialect not in names():
        instead = next(answers("kinds", dialect, [MENU]), "") or nearest(dialect, names())
        raise UsageError(f"`{dialect}`", "is not a code whose command lines ordsmed can run", "", instead)
    return {program.name: program for program in menu.import_choice(MENU, dialect).PROGRAMS}


def find(dialect: str, name: str) -> Program:
    """Return a program by its file name, with or without folders and extension."""
    known, file = programs(dialect), name.rpartition("/")[2]
    file = getattr(menu.import_choice(MENU, dialect), "ALSO", {}).get(file, file)
    for program in known.values():
        if file in (program.name, program.name.rpartition(".")[0]):
            return program
    remedies: Mapping[str, str] = getattr(menu.import_choice(MENU, dialect), "INSTEAD", {})
    if remedy := remedies.get(file) or remedies.get(f"{file}.py"):
        raise UsageError(f"`{name}`", "has no translation", "", remedy)
    raise UsageError(f"`{name}`", f"no program of {dialect}", "", nearest(file, known))
