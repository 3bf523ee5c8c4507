"""An interactive terminal session: prompts, and commands that change sampling settings.

> Once upon a            the text continues while it is generated; Ctrl-C ends the text, not the session
>                        an empty line: the model begins
> /temperature 0.8       a setting; /help lists them; /quit or Ctrl-D ends
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ordsmed.base.ending import Ended
from ordsmed.base.errors import OrdsmedError, near
from ordsmed.use.generation.options import SamplingOptions
from ordsmed.use.generation.prompts import before, checked, print_pieces

NAMES = {"top-k": "best", "top-p": "share", "typical-p": "typical", "repetition-penalty": "penalty"}
INTEGERS = dict.fromkeys(("tokens", "best", "seed", "samples", "together"), int)
KINDS: dict[str, Callable[[str], Any]] = {
    **INTEGERS,
    **dict.fromkeys(("temperature", "share", "typical", "penalty"), float),
    "order": str,
}
HELP = """a line is a prompt; for an empty one the model begins; write //text for a prompt that begins with a slash
  /tokens N         most new tokens
  /temperature X    0: always the likeliest token, like /greedy
  /best N           (/top-k) draw among the N likeliest tokens; 0: all
  /share X          (/top-p) draw among the likeliest tokens whose probabilities sum to X
  /typical X        (/typical-p) draw among the most typical tokens whose probabilities sum to X
  /penalty X        (/repetition-penalty) makes tokens of the text less likely; 1: off
  /stop TEXT        texts end before it; without TEXT: no stop string
  /seed N           seed of the next text; each text adds 1
  /samples N        texts per prompt
  /together N, /order certain|chance   models that fill masks: tokens per pass, and which come first
  /settings         print the settings
  /quit             or Ctrl-D: end the session; Ctrl-C ends a text"""


@dataclass
class Session:
    write: Callable[[str, SamplingOptions, int], Iterable[str]]  # prompt, options, number of the sample -> pieces
    how: SamplingOptions
    ask: Callable[[str], str] = input
    tell: Callable[[str], None] = field(default=print)
    after: Callable[[], None] = field(default=lambda: None)  # called after each text
    until: str = ""  # a line that contains this also ends the session

    def run(self) -> None:
        self.tell(f"type a prompt or /help; {f'{self.until}, ' if self.until else ''}/quit or Ctrl-D ends")
        for line in before(self.until, self._lines()):
            try:
                if line.startswith("/") and not line.startswith("//"):
                    if self._obey(line[1:].split(maxsplit=1)) == "quit":
                        return
                else:
                    self._write(line.removeprefix("/") if line.startswith("//") else line)
            except OrdsmedError as error:
                self.tell(str(error).replace("--", "/", 1) if str(error).startswith("--") else str(error))

    def _lines(self) -> Iterator[str]:
        while True:
            try:
                yield self.ask("> ")
            except EOFError:
                self.tell("")
                return
            except UnicodeDecodeError as error:
                self.tell(f"invalid UTF-8 at byte {error.start + 1} of the line; wanted UTF-8 text")
            except KeyboardInterrupt as stop:
                if isinstance(stop, Ended):
                    raise
                self.tell("\n/quit or Ctrl-D ends")

    def _write(self, prompt: str) -> None:
        checked(prompt, repr(prompt[:40]))
        for sample in range(self.how.samples):
            try:
                print_pieces([prompt])
                print_pieces(self.write(prompt, self.how, sample))
            except KeyboardInterrupt as stop:
                if isinstance(stop, Ended):
                    raise
                self.tell(" (ended)")
                self.after()
                return
            self.tell("")
            self.after()
        self.how = dataclasses.replace(self.how, seed=self.how.seed + 1)

    def _obey(self, words: list[str]) -> str:
        """Run a command, the words after a slash, and return its name."""
        name, value = (words[0] if words else "help"), (words[1].strip() if words[1:] else "")
        name = NAMES.get(name, name)
        if name in ("quit", "exit", "q"):
            return "quit"
        if name == "help":
            self.tell(HELP)
        elif name == "settings":
            self.tell(", ".join(f"{k} {v!r}" if k == "stop" else f"{k} {v}" for k, v in vars(self.how).items()))
        elif name == "stop":
            self._change("stop", (*self.how.stop, value.replace("\\n", "\n")) if value else ())
        elif name == "greedy":
            self._change("temperature", 0.0)
        elif name in KINDS:
            self._change(name, self._number(name, value))
        else:
            like = near(name, [*KINDS, *NAMES, "stop", "help", "settings", "quit"])
            self.tell(f"/{name}: no such command; {f'did you mean /{like[0]}?' if like else '/help lists them'}")
        return name

    def _number(self, name: str, value: str) -> Any:
        try:
            return KINDS[name](value)
        except ValueError:
            return None

    def _change(self, name: str, value: Any) -> None:
        if value is None:
            wanted = "a whole number" if KINDS[name] is int else "a number"
            self.tell(f"/{name}: wanted {wanted}, such as /{name} {getattr(self.how, name)}")
            return
        self.how = dataclasses.replace(self.how, **{name: value})
        self.tell(f"{name} {getattr(self.how, name)}")
