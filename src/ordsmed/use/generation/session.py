"""Session: a terminal in which a prompt follows the other, and settings change between them.

> Once upon a            the text goes on, as it is made; Ctrl-C ends the text, not the session
>                        an empty line: the model begins by itself
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
KINDS: dict[str, Callable[[str], Any]] = {
    "tokens": int, "temperature": float, "best": int, "share": float, "typical": float, "seed": int, "penalty": float,
    "samples": int, "together": int, "order": str,
}  # fmt: skip
HELP = """a line is a prompt; an empty one: the model begins; //text for a prompt that begins with a slash
  /tokens N         at most so many new ones
  /temperature X    0: always the likeliest; /greedy does the same
  /best N           (/top-k) draw among so many of the likeliest; 0: all
  /share X          (/top-p) draw among the likeliest with this share together
  /typical X        (/typical-p) draw among the most typical with this share together
  /penalty X        (/repetition-penalty) tokens that were there are less likely; 1: no
  /stop TEXT        texts end before it; without TEXT: nowhere
  /seed N           of the next text; each one adds 1
  /samples N        texts a prompt
  /together N, /order certain|chance   of models that fill: tokens a pass, and which
  /settings         what they are now
  /quit             or Ctrl-D: ends; Ctrl-C ends a text"""


@dataclass
class Session:
    """Asks for prompts and writes texts until nobody wants any more."""

    write: Callable[[str, SamplingOptions, int], Iterable[str]]  # a prompt and which of its samples -> pieces of text
    how: SamplingOptions
    ask: Callable[[str], str] = input
    tell: Callable[[str], None] = field(default=print)
    after: Callable[[], None] = field(default=lambda: None)  # when a text stands whole

    until: str = ""  # a line that holds this ends it too

    def run(self) -> None:
        """Until /quit or the end of the input."""
        self.tell(f"a prompt, or /help; {f'{self.until}, ' if self.until else ''}/quit or Ctrl-D ends")
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
        """What a line behind a slash says; settings are changed."""
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
            self.tell(f"/{name}: no such setting; {f'did you mean /{like[0]}?' if like else '/help lists them'}")
        return name

    def _number(self, name: str, value: str) -> Any:
        try:
            return KINDS[name](value)
        except ValueError:
            return None

    def _change(self, name: str, value: Any) -> None:
        if value is None:
            wanted = "a whole number" if KINDS[name] is int else "a number"
            self.tell(f"/{name}: wanted {wanted}, as /{name} {getattr(self.how, name)}")
            return
        self.how = dataclasses.replace(self.how, **{name: value})
        self.tell(f"{name} {getattr(self.how, name)}")
