"""The served models by name: opening, methods and reloading.

work/pretrain/tiny-bert  ->  tiny-bert          de=work/other  ->  de          google/electra-small  ->  the same
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ordsmed.api.model import OpenModel
from ordsmed.api.options import OpeningOptions
from ordsmed.base import stages
from ordsmed.base.errors import OrdsmedError, RecipeError, nearest
from ordsmed.measure.likelihood import ways
from ordsmed.serve.refusal import Refusal
from ordsmed.serve.writing import ContinuingWriter
from ordsmed.use.generation.network import fills, writing
from ordsmed.weights.trained_model import Trained, at_steps, opened

OPENING = threading.Lock()  # opening a run changes the working directory of the process
FORBIDDEN = frozenset("?#%{} ")  # characters that are not allowed in a name
RESERVED = ("v1", "models", "pipeline", "admin", "api", "page")  # first parts of URL paths


@dataclass(eq=False)
class ServedModel:
    """A model and its name. After a reload, `model` is another object."""

    name: str
    source: str  # a folder, or a published name
    options: OpeningOptions
    model: OpenModel
    folder: Path  # of the opened model
    hidden: dict[str, str] = field(default_factory=dict)  # path of this machine -> text that replaces it in errors
    _writer: ContinuingWriter | None = None

    @staticmethod
    def opened(word: str, options: OpeningOptions) -> ServedModel:
        """Open a model given on the command line as MODEL or `NAME=MODEL`."""
        name, equals, source = word.partition("=")
        name, source = (name, source) if equals else (_default_name(word), word)
        if not name or name.split("/")[0] in RESERVED or set(name) & FORBIDDEN:
            raise RecipeError(word, f"found the name `{name}`", "a name that is valid in a URL", "give NAME=RUN")
        with OPENING:
            trained = opened(stages.stage(source, *stages.VECTORS), **options)
        hidden = {str(path): name for path in (trained.folder.resolve(), trained.folder) if len(path.parts) > 1}
        return ServedModel(name, source, options, _named(trained, name), trained.folder, hidden)

    def at_steps(self, steps: Literal["all"] | Sequence[int]) -> Iterator[ServedModel]:
        """Yield the model with the weights of checkpoints of its run, opened one at a time."""
        trained = self.model.trained
        checkpoints = at_steps(
            self.source,
            steps,
            device=trained.device.type,
            precision=trained.precision,
            threads=trained.ranks.threads,
            key="steps",
        )
        while True:
            with OPENING:
                checkpoint = next(checkpoints, None)
            if checkpoint is None:
                return
            yield dataclasses.replace(self, model=_named(checkpoint, self.name), _writer=None)

    def reload(self) -> None:
        """Open the model again. Until it is open, the old one answers requests."""
        reopened = ServedModel.opened(f"{self.name}={self.source}", self.options)
        self.model, self.folder, self._writer = reopened.model, reopened.folder, None

    @property
    def is_run(self) -> bool:
        return self.model.trained.recipe is not None

    @property
    def facts(self) -> dict[str, object]:
        model = self.model
        attributes = {name: getattr(model, name) for name in ("family", "step", "labels", "pairs", "can")}
        return {"name": self.name, **attributes, "ways": ways.of(model.trained), "run": self.is_run}

    @property
    def writer(self) -> ContinuingWriter | None:
        """The writer that continues texts; None if the model generates by filling masks."""
        self.check("generate")
        if self._writer is None and not fills(self.model.trained):
            self._writer = ContinuingWriter(writing(self.model.trained))
        return self._writer

    @property
    def can(self) -> tuple[str, ...]:
        return self.model.can

    def check(self, method: str) -> None:
        try:
            self.model.check(method)
        except OrdsmedError as error:
            raise Refusal.of(error, self.hidden, "cannot") from None


@dataclass(frozen=True)
class ModelCall:
    """A method of a model with its options; the batcher computes calls that are equal together."""

    served: ServedModel
    method: str
    options: tuple[tuple[str, object], ...]
    arguments: int  # number of arguments in each item

    def __call__(self, items: list[tuple[object, ...]]) -> Sequence[object]:
        columns = [list(column) for column in zip(*items, strict=True)]
        results: Sequence[object] = getattr(self.served.model, self.method)(*columns, **dict(self.options))
        return results


@dataclass(frozen=True)
class ServedModels:
    by_name: dict[str, ServedModel]

    @staticmethod
    def opened(words: Iterable[str], options: OpeningOptions) -> ServedModels:
        by_name: dict[str, ServedModel] = {}
        for word in words:
            served = ServedModel.opened(word, options)
            if served.name in by_name:
                problem = f"found `{served.name}` twice"
                raise RecipeError(word, problem, "different names", f"give NAME={served.source}")
            by_name[served.name] = served
        return ServedModels(by_name)

    def reload(self) -> None:
        for served in self.by_name.values():
            try:
                served.reload()
            except OrdsmedError as error:
                raise Refusal.of(error, served.hidden, "cannot") from None

    def find(self, name: str, method: str = "") -> ServedModel:
        """Return the model `name`; without a name, the first that has the method. Refuse an unknown name or method."""
        if name and name not in self.by_name:
            raise Refusal("unknown", f"no model `{name}`", "", nearest(name, self.by_name), "model")
        able = [served for served in self.by_name.values() if not method or method in served.can]
        served = self.by_name[name] if name else (able or [*self.by_name.values()])[0]
        if method:
            served.check(method)
        return served


def _named(trained: Trained, name: str) -> OpenModel:
    """Return the opened model with `name` as its folder, so that errors do not show the real folder."""
    return OpenModel(dataclasses.replace(trained, folder=Path(name)))


def _default_name(word: str) -> str:
    """Return the last part of a folder's path, changed to be valid in a URL. Return a published name unchanged."""
    path = Path(word)
    if not path.exists():
        return word
    name = "".join(
        "-" if character in FORBIDDEN or character.isspace() else character for character in path.resolve().name
    )
    return f"{name}-model" if name in RESERVED else name
