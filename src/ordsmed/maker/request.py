"""What is asked of `make`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ordsmed.base.errors import RecipeError
from ordsmed.base.say import duration
from ordsmed.maker import networks

Purpose = Literal["", "fill", "write", "embed", "both"]
SHORTEST_HOURS, LONGEST_HOURS = 0.02, 24 * 60.0


@dataclass(frozen=True)
class MakeRequest:
    """What is asked for."""

    texts: tuple[str, ...]
    out: str
    hours: float = 1.0
    purpose: Purpose = ""  # empty: what the kind is for, else to fill gaps
    kind: str = ""
    start: str = ""  # a model to go on from
    devices: int = 0
    site: str = ""

    def __post_init__(self) -> None:
        if not SHORTEST_HOURS <= self.hours <= LONGEST_HOURS:
            wanted = f"{SHORTEST_HOURS:g} ({duration(SHORTEST_HOURS * 3600)}) to {LONGEST_HOURS:,.0f} (60 days)"
            raise RecipeError("--hours", f"found {self.hours:g}", wanted)
        known = networks.families()
        if self.kind and self.kind not in known:
            raise RecipeError("--kind", f"found {self.kind}", f"one of {' '.join(known)}")
        if not self.purpose:
            object.__setattr__(self, "purpose", known[self.kind].purposes[0] if self.kind else "fill")
        if self.kind and self.purpose not in known[self.kind].purposes:
            wanted = f"one of {' '.join(name for name, family in known.items() if self.purpose in family.purposes)}"
            remedy = f"{self.kind} is for {' or '.join(known[self.kind].purposes)}"
            raise RecipeError("--kind", f"{self.kind} beside --for {self.purpose}", wanted, remedy)
        if self.kind and self.start:
            raise RecipeError("--kind", f"{self.kind} beside --from", "one of them", "a model goes on as what it is")

    @property
    def family(self) -> str:
        return self.kind or networks.usual(self.purpose)
