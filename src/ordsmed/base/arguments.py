"""The argument parser of commands, with errors of one line and suggestions, and checked number types."""

import argparse
import contextlib
import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

from ordsmed.base import other_names
from ordsmed.base.errors import OrdsmedError, meant, same_name
from ordsmed.base.say import say, seconds

PLAIN = "\0"  # marks words after `--`, which are never flags; a shell cannot pass this character
NEVER_MEANT = ("--anew", "--help")  # never suggested when another flag is misspelled
MAX_SEEDS = 1_000  # more are probably a mistake
FILES = "<files>"  # placeholder for all files and folders in shell completions


class UsageError(OrdsmedError):
    """The words do not form a valid command. The exit status is 2."""

    status = 2


class Parser(argparse.ArgumentParser):
    """argparse without abbreviated flags, which raises UsageError."""

    def __init__(
        self,
        verb: str,
        *,
        owners: Callable[[str], str],
        settings: Iterable[str] = (),
        elsewhere: Callable[[str], Iterable[str]] = lambda _: (),
        **options: Any,
    ) -> None:
        self.offers: dict[str, Callable[[], Iterable[str]]] = {}  # shell completions by argument
        self.former: dict[str, str] = {}  # former names of flags, which still work
        super().__init__(f"ordsmed {verb}", allow_abbrev=False, **options)
        self.verb, self.owners, self.settings = verb, owners, tuple(settings)
        self.behind = ""  # name of the words after `--`, if they are passed to another program unchanged
        self.elsewhere = elsewhere  # finds the settings of the recipe that have a name in other codes

    def add_argument(
        self, *words: str, offers: Callable[[], Iterable[str]] | None = None, former: str = "", **options: Any
    ) -> argparse.Action:
        """Add an argument as argparse does. `offers` lists its shell completions; `former` is a name that still works.

        After a tab, a completion may have a description.
        """
        action = super().add_argument(*words, **options)
        if former:
            self.former[former] = words[0]
        if offers:
            self.offers[action.dest] = offers
        return action

    def read(self, words: Sequence[str]) -> argparse.Namespace:
        """Parse the words of a command. Flags may be anywhere among them."""
        if "" in words and not any(action.dest == "text" for action in self._actions):
            raise UsageError(self.verb, "an empty word", f"`{self._form()}`", "is a shell variable not set?")
        end = words.index("--") if "--" in words else len(words)
        if alone := next((word for word in words[:end] if re.fullmatch(r"--?[\w-]+=--", word)), None):
            raise UsageError(alone.removesuffix("=--"), "found --", "a value", self._more())  # argparse drops the `--`
        plain = [] if self.behind else [PLAIN + word for word in words[end + 1 :]]
        args, rest = self.parse_known_intermixed_args([*map(self._present, words[:end]), *plain])
        for name, value in vars(args).items():
            setattr(args, name, _unmarked(value))
        flag = next((word for word in rest if word.startswith("-")), None)
        if flag is not None:
            raise UsageError(self.verb, f"{_short(flag)}: no such flag", "", self._near(flag.partition("=")[0]))
        if rest:
            problem = f"`{_short(rest[0].removeprefix(PLAIN))}` is one argument too many"
            raise UsageError(self.verb, problem, f"`{self._form()}`")
        args.verb = self.verb
        if self.behind:
            setattr(args, self.behind, list(words[end + 1 :]))
        return args

    def _present(self, word: str) -> str:
        """Replace the former name of a flag by its present name, and print a note about it."""
        flag, equals, value = word.partition("=")
        if flag not in self.former:
            return word
        say(f"{self.verb}: `{flag}` is called `{self.former[flag]}` now; the former name works until version 1.0")
        return f"{self.former[flag]}{equals}{value}"

    def error(self, message: str) -> NoReturn:
        message = re.sub(r"^argument ", "", message)
        if missing := re.match(r"the following arguments are required: (.*)", message):
            free = [action.metavar for action in self._actions if action.nargs in ("*", "?")]
            names = [name for name in missing[1].split(", ") if name not in free]
            raise UsageError(self.verb, f"no {' and no '.join(names)}", f"`{self._form()}`", self._more())
        location, _, complaint = message.partition(": ")
        if choices := re.match(r"invalid choice: (.*) \(choose from (.*)\)", complaint):
            options = [option.strip("' ") for option in choices[2].split(",")]
            remedy = meant(choices[1].strip("'"), options)
            raise UsageError(location, f"found {choices[1]}", f"one of {choices[2]}", remedy)
        if re.match("expected .* argument", complaint):
            raise UsageError(self.verb, f"{location} has no value", f"`{self._value(location)}`", self._more())
        if explicit := re.match("ignored explicit argument '(.*)'", complaint):
            raise UsageError(location, f"found {_short(explicit[1])}", "no value, because it is a switch")
        problem, _, wanted = complaint.partition("; wanted ")
        raise UsageError(location if complaint else self.verb, problem or message, wanted)

    def flags(self) -> list[str]:
        return [word for action in self._actions for word in action.option_strings if word.startswith("--")]

    def _near(self, flag: str) -> str:
        """Return a suggestion for an unknown flag. Flags in NEVER_MEANT are not suggested."""
        key, known = flag.lstrip("-").replace("-", "_"), [flag for flag in self.flags() if flag not in NEVER_MEANT]
        if same := next((word for word in known if same_name(flag, word)), ""):
            return f"did you mean `{same}`?"
        groups = [self.verb, *(["training"] if "layout" in self.settings else [])]
        if instead := self._instead(key, groups):
            return instead
        if suggestion := meant(flag, known):
            return suggestion
        if self.behind:
            return f"after `--` it is passed on: `-- {flag}`"
        if key in self.settings:
            return f"a setting is written `{key}=...`"
        if paths := list(self.elsewhere(key)):
            return f"a setting is written {' or '.join(f'`{path}=...`' for path in paths[:3])}"
        return self._instead(key, ["any"]) or self.owners(flag) or self._more()

    def _instead(self, key: str, groups: Sequence[str]) -> str:
        """Return the first suggestion in other_names.toml whose flags and settings this verb has; "" if none."""
        for answer in other_names.answers("options", key, groups):
            form, needed = self._form(), re.search(r"\{form (.*?)\}", answer)
            codes = [code for code in re.findall(r"`(.+?)`", answer) if not code.startswith(("ordsmed ", "{"))]
            flags = [code.split()[0] for code in codes if code.startswith("--")]
            settings = [code.partition("=")[0].partition(".")[0] for code in codes if re.match(r"[a-z_.]+=", code)]
            fits = not needed or any(name in form for name in needed[1].split("|"))
            if fits and set(flags) <= set(self.flags()) and set(settings) <= set(self.settings):
                return re.sub(r"\{form .*?\}", form, answer)
        return ""

    def _value(self, location: str) -> str:
        action = next((a for a in self._actions if location.split("/")[-1] in a.option_strings), None)
        metavar = (
            " ".join(action.metavar) if action and isinstance(action.metavar, tuple) else action and action.metavar
        )
        return f"{location} {metavar or 'N'}" if action else location

    def _form(self) -> str:
        formatter = argparse.HelpFormatter(self.prog, width=1000)
        formatter.add_usage(None, [a for a in self._actions if not a.option_strings], [], prefix="")
        return formatter.format_help().strip()

    def _more(self) -> str:
        return f"see `ordsmed help {self.verb}`"


def whole(least: int, most: int = 10**15) -> Callable[[str], int]:
    """Return a parser of integers from `least` to `most`."""
    wanted = f"{least} or more" if most == 10**15 else f"{least} to {most:,}"

    def read(text: str) -> int:
        digits = text.replace("_", "")
        if not (digits.isascii() and digits.isdigit() and len(digits) < 16 and least <= int(digits) <= most):
            raise argparse.ArgumentTypeError(f"found {_short(text)}; wanted a whole number, {wanted}")
        return int(digits)

    return read


def seeds(text: str) -> tuple[int, ...]:
    """Parse a list of different seeds, which may contain ranges: 1..5,7."""
    numbers: list[int] = []
    for part in text.split(","):
        first, dots, last = (end.strip() for end in part.partition(".."))
        ends = [first, last] if dots else [first]
        if not all(end.isascii() and end.isdigit() and len(end) < 16 for end in ends) or int(ends[0]) > int(ends[-1]):
            raise argparse.ArgumentTypeError(f"found {_short(text)}; wanted seeds such as 1..5 or 1,2,7")
        if int(ends[-1]) - int(ends[0]) >= MAX_SEEDS:
            raise argparse.ArgumentTypeError(f"found {_short(text)}; wanted at most {MAX_SEEDS:,} seeds")
        numbers += range(int(ends[0]), int(ends[-1]) + 1)
    if len(set(numbers)) < len(numbers):
        raise argparse.ArgumentTypeError(f"found {_short(text)}; wanted different seeds")
    return tuple(numbers)


def number(text: str) -> float:
    """Parse a finite number. The caller checks its range."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"found {_short(text)}; wanted a number")
    return value


def hours(text: str) -> float:
    """Parse hours as a number, or a time such as 90m or 1h30m."""
    with contextlib.suppress(ValueError):
        return float(text) if re.fullmatch(r"[\d._]+", text) else seconds(text) / 3600
    raise argparse.ArgumentTypeError(f"found {_short(text)}; wanted hours such as 1.5, or a time such as 90m or 1h30m")


def _unmarked(value: object) -> object:
    if isinstance(value, list):
        return [_unmarked(word) for word in value]
    return value.removeprefix(PLAIN) if isinstance(value, str) else value


def _short(text: str) -> str:
    return text if 0 < len(text) < 60 else f"{text[:57]}..." if text else "nothing"
