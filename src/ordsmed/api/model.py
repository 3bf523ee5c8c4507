"""OpenModel: a trained model opened by `ordsmed.open`; the commands use its methods as well.

model = ordsmed.open("work/quickstart/model")
model.fill("the default [MASK] is used.").masks[0][0]     ->  Guess(text='value', probability=0.31)
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Unpack, cast

from ordsmed.api.example_files import evaluated_files
from ordsmed.api.methods import ModelMethods
from ordsmed.api.options import EmbedOptions, Texts, embed_form, text_of, texts_of
from ordsmed.base import hub
from ordsmed.base import settings as recipes
from ordsmed.base.errors import OrdsmedError, RecipeError
from ordsmed.base.files import errors_in_one_line
from ordsmed.base.menu import kind_of
from ordsmed.base.screen import command, html_table
from ordsmed.data.unknown import MOST
from ordsmed.learn.task import Task
from ordsmed.measure.evaluation.evaluate import ask
from ordsmed.measure.evaluation.recipe import named
from ordsmed.measure.evaluation.results import table
from ordsmed.measure.likelihood import surprisal
from ordsmed.use import answer, embed, fill, generate, predict
from ordsmed.use.embed import Source
from ordsmed.use.generation.network import writing
from ordsmed.use.generation.options import SamplingOptions
from ordsmed.use.generation.unmasking import fill_all
from ordsmed.use.predict import Evaluated, Predicted
from ordsmed.weights.trained_model import Trained, at_steps, opened


@errors_in_one_line()
def open(  # shadows the builtin in this module, because users call it ordsmed.open
    name: str | Path,
    *,
    step: int | None = None,
    device: str = "auto",
    precision: str = "fp32",
    threads: int | None = None,
) -> OpenModel:
    """Open a model: a folder of a run, of trials, of an import or of Hugging Face, or a published name (models.toml).

    `step` selects a checkpoint instead of the last (0: before the first step). `device` is auto, cpu or cuda.
    `precision` of matrix products is fp32, bf16, fp16 or int8. `threads` are CPU threads.

        model = ordsmed.open("work/pretrain/tiny-bert")
        model.fill("it is [MASK].")

    An address (`http://host:8000/name`) opens a model of `ordsmed serve`, with the same methods over HTTP.
    """
    if hub.is_address(name):
        from ordsmed.api.remote import RemoteModel

        if (step, device, precision, threads) != (None, "auto", "fp32", None):
            raise RecipeError(name, "found options with an address", "none", "give them to `ordsmed serve`")
        return cast(OpenModel, RemoteModel.of(str(name)))
    return OpenModel(opened(name, step=step, device=device, precision=precision, threads=threads))


@dataclass(frozen=True)
class OpenModel(ModelMethods):
    """A trained model, opened. A text gives one result, a list of texts a list of results."""

    trained: Trained

    @property
    def folder(self) -> Path:
        """Return the folder that it was opened from."""
        return self.trained.folder

    @property
    def family(self) -> str:
        """Return its architecture: bert, gpt2, elmo..."""
        return self.trained.kind

    @property
    def step(self) -> int | None:
        """Return the step of its checkpoint, or None if it is not from a run."""
        return self.trained.step

    @property
    def labels(self) -> tuple[str, ...]:
        """Return its classes or tags."""
        return self.trained.objective.labels if isinstance(self.trained.objective, Task) else ()

    @property
    def pairs(self) -> bool:
        """Return whether `classify` needs two texts."""
        return bool(getattr(self.trained.learned, "pairs", False))

    @property
    def can(self) -> tuple[str, ...]:
        """Return the names of the methods that it supports."""
        methods = [name for name, check in CHECKS.items() if _passes(check, self.trained)]
        learned = self.trained.learned if isinstance(self.trained.objective, Task) else None
        task = getattr(learned, "method", "") or getattr(learned, "METHOD", "")
        return (*methods, *([task] if task and not self.trained.bare else []), "embed")

    def __repr__(self) -> str:
        at = f", step {self.step:,}" if self.step is not None else ""
        return f"<{self.family} from {self.folder}{at}: {', '.join(self.can)}>"

    def _repr_html_(self) -> str:
        weights = sum(tensor.numel() for tensor in self.trained.objective.networks()[""].tensors().values())
        step, vocabulary = "" if self.step is None else f"{self.step:,}", f"{self.trained.tokenizer.vocabulary:,}"
        names = "family", "folder", "step", "weights", "vocabulary", "labels", "can"
        facts = self.family, self.folder, step, f"{weights:,}", vocabulary, ", ".join(self.labels), ", ".join(self.can)
        rows = zip(names, facts, strict=True)
        return html_table(row for row in rows if row[1])

    def _results(self, method: str, *inputs: list[Any], **options: object) -> list[Any]:
        self.check(method)
        return RUN[method](self.trained, *inputs, **options)

    def _stream(self, prompt: str, options: SamplingOptions) -> Iterator[str]:
        self.check("generate")
        return generate.stream(writing(self.trained), prompt, options)

    def fill_all(self, text: str, *, together: int = 1) -> str:
        """Return a text with all masks filled.

        Each pass of the model fills `together` masks: those whose best token has the highest probability.

        model.fill_all("the [MASK] of the [MASK]")
        """
        self.check("fill")
        return fill_all(self.trained, text_of("fill_all", text), SamplingOptions(temperature=0, together=together))

    def at_steps(self, steps: Literal["all"] | Sequence[int] = "all") -> Iterator[OpenModel]:
        """Yield the model at each checkpoint of its run, opened with the same options.

        [(model.step, model.score("it is old").log_likelihood) for model in model.at_steps()]
        """
        trained = self.trained
        opening = at_steps(
            trained.folder,
            steps,
            device=trained.device.type,
            precision=trained.precision,
            threads=trained.ranks.threads,
        )
        yield from map(OpenModel, opening)

    @errors_in_one_line()
    def predict(
        self,
        files: str | Texts,
        out: str | Path,
        *,
        overrides: Sequence[str] = (),
        anew: bool = False,
        scores: bool = False,
        **task: object,
    ) -> Predicted:
        """Write the predictions for files of its task to a folder, in the format of the task's official scorer.

        `scores` also scores them. `anew` moves the present folder aside. Keywords are settings of the task.

            model.predict("dev.tsv", "work/predictions", scores=True).scores["accuracy"]
        """
        words = [*overrides, *recipes.words(task, "task.")]
        return predict.predict(self.trained, texts_of("predict", files), out, words, anew=anew, scores=scores)

    @errors_in_one_line()
    def evaluate(
        self,
        files: object = (),
        *,
        probe: str = "",
        overrides: Sequence[str] = (),
        out: str | Path | None = None,
        anew: bool = False,
        max_unknown: float = MOST,
        **settings: object,
    ) -> Evaluated:
        """Score the model on files of its task (default: the run's dev files), or with a probe.

        `files` may also be examples, as `finetune` takes them: a dict of lists or a `datasets.Dataset`. Keywords are
        settings of the task or the probe. The results of a probe are saved in `scores/` in the model's folder, or in
        `out`, and `anew` computes them again. `max_unknown` is the largest accepted share of unknown tokens.

            model.evaluate("dev.tsv").scores["accuracy"]
            model.evaluate("texts.txt", probe="perplexity").lines
        """
        if not probe:
            with evaluated_files(self.trained, files) as (named_files, read_by):
                words = [*overrides, *read_by, *recipes.words(settings, "task.")]
                paths = texts_of("evaluate", named_files)
                return predict.evaluate(self.trained, paths, words, max_unknown=max_unknown)
        paths = texts_of("evaluate", files)
        words = [probe, *paths, *overrides, *recipes.words(settings)]
        result = ask(
            self.trained, named([words])[0], out=None if out is None else str(out), anew=anew, max_unknown=max_unknown
        )
        return Evaluated(result.plain(), [*table([result]), f"{result.path}: written"])

    @errors_in_one_line()
    def embed_file(
        self, source: Source, out: str | Path, *, anew: bool = False, **options: Unpack[EmbedOptions]
    ) -> str:
        """Write the vectors of every line of a file (plain, compressed or a stream) to .h5, .npz, .npy or .parquet.

        model.embed_file("texts.txt", "vectors.h5", layers="all")
        """
        return embed.embed(self.trained, source, out, embed_form(options), anew=anew)

    def check(self, method: str) -> None:
        """Raise an error that lists what the model can do, if it does not support a method."""
        if method in self.can:
            return
        if check := CHECKS.get(method):
            check(self.trained)
        self.trained.check_heads()
        learned = kind_of(self.trained.learned) if self.trained.learned is not None else "something else"
        cannot, wanted = f"cannot {method}: it is a {self.family} that learned {learned}", "a model fine-tuned for that"
        verb = VERBS.get(self.can[0], self.can[0])
        remedy = f"this one can {', '.join(self.can)}: `{command(verb, self.folder)}`"
        raise RecipeError(self.folder, cannot, wanted, remedy)


VERBS = {"score": "surprisal"}  # commands with another name than the method
RUN: dict[str, Callable[..., list[Any]]] = {  # (trained model, inputs, options) -> results
    "fill": fill.fill_each,
    "generate": lambda trained, prompts, **options: [
        *generate.generate_all(writing(trained), prompts, SamplingOptions(**options))
    ],
    "embed": lambda trained, texts, **options: embed.embedded(trained, texts, embed.Form(**options)),
    "answer": answer.answer_each,
    "classify": predict.classified,
    "tag": predict.tagged,
    "score": surprisal.score_each,
}
CHECKS: dict[str, Callable[[Trained], object]] = {
    "fill": fill.check,
    "generate": generate.check,
    "score": surprisal.check,
}


def _passes(check: Callable[[Trained], object], trained: Trained) -> bool:
    with contextlib.suppress(OrdsmedError):
        check(trained)
        return True
    return False
