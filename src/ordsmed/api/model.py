"""OpenModel: a trained model opened by `ordsmed.open`; the commands use its methods as well.

model = ordsmed.open("work/quickstart/model")
model.fill("the default [MASK] is used.").masks[0][0]     ->  Guess(text='value', probability=0.31)
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Unpack, cast, overload

from ordsmed.api.example_files import evaluated_files
from ordsmed.api.options import EmbedOptions, Texts, WritingOptions, embed_form, sampling_options, text_of, texts_of
from ordsmed.base import hub
from ordsmed.base import settings as recipes
from ordsmed.base.errors import OrdsmedError, RecipeError
from ordsmed.base.files import errors_in_one_line
from ordsmed.base.menu import kind_of
from ordsmed.base.screen import command, html_table
from ordsmed.data.unknown import MOST
from ordsmed.learn.score.answers import Answered
from ordsmed.learn.task import Task
from ordsmed.measure.evaluation.evaluate import ask
from ordsmed.measure.evaluation.recipe import named
from ordsmed.measure.evaluation.results import table
from ordsmed.measure.likelihood import surprisal
from ordsmed.measure.likelihood.surprisal import Scored
from ordsmed.use import answer, embed, fill, generate, predict
from ordsmed.use.embed import Embedded, Source
from ordsmed.use.fill import Filled
from ordsmed.use.generation.network import writing
from ordsmed.use.generation.options import Generated, SamplingOptions
from ordsmed.use.generation.unmasking import fill_all
from ordsmed.use.predict import Classified, Evaluated, Predicted, Tagged
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
class OpenModel:
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

    @overload
    def fill(self, texts: str, *, best: int = 5, targets: Sequence[str] = ()) -> Filled: ...
    @overload
    def fill(self, texts: Texts, *, best: int = 5, targets: Sequence[str] = ()) -> list[Filled]: ...
    def fill(self, texts: str | Texts, *, best: int = 5, targets: Sequence[str] = ()) -> Filled | list[Filled]:
        """Return the best guesses for each [MASK] of a text. `targets` restricts them to these tokens.

        model.fill("it is [MASK].").masks[0][0].text
        """
        self.check("fill")
        filled = fill.fill_each(self.trained, texts_of("fill", texts), best, targets)
        return filled[0] if isinstance(texts, str) else filled

    def fill_all(self, text: str, *, together: int = 1) -> str:
        """Return a text with all masks filled.

        Each pass of the model fills `together` masks: those whose best token has the highest probability.

        model.fill_all("the [MASK] of the [MASK]")
        """
        self.check("fill")
        return fill_all(self.trained, text_of("fill_all", text), SamplingOptions(temperature=0, together=together))

    @overload
    def generate(self, prompts: str = "", **options: Unpack[WritingOptions]) -> Generated: ...
    @overload
    def generate(self, prompts: Texts, **options: Unpack[WritingOptions]) -> list[Generated]: ...
    def generate(self, prompts: str | Texts = "", **settings: Unpack[WritingOptions]) -> Generated | list[Generated]:
        """Return how the model continues a text; it begins an empty one itself. Masked models fill masks.

        Several prompts, or `samples`, give a list with all samples of each prompt.

            model.generate("The value of", tokens=20, share=0.9).text
        """
        self.check("generate")
        options = sampling_options(settings)
        texts = list(generate.generate_all(writing(self.trained), texts_of("generate", prompts), options))
        return texts[0] if isinstance(prompts, str) and options.samples == 1 else texts

    def stream(self, prompt: str = "", **options: Unpack[WritingOptions]) -> Iterator[str]:
        """Yield the text after the prompt in pieces, as they are generated.

        for piece in model.stream("The value of"): print(piece, end="", flush=True)
        """
        self.check("generate")
        return generate.stream(writing(self.trained), text_of("stream", prompt), sampling_options(options))

    @overload
    def embed(self, texts: str, **options: Unpack[EmbedOptions]) -> Embedded: ...
    @overload
    def embed(self, texts: Texts, **options: Unpack[EmbedOptions]) -> list[Embedded]: ...
    def embed(self, texts: str | Texts, **options: Unpack[EmbedOptions]) -> Embedded | list[Embedded]:
        """Return a vector for each word of a text, or one for the whole text (of="sentences").

        `ordsmed help embed` explains the options.

            model.embed("it is old", of="sentences").vectors.shape
        """
        rows = embed.embedded(self.trained, texts_of("embed", texts), embed_form(options))
        return rows[0] if isinstance(texts, str) else rows

    @overload
    def answer(self, question: str, context: str, *, best: int = 3) -> Answered: ...
    @overload
    def answer(self, question: Texts, context: Texts, *, best: int = 3) -> list[Answered]: ...
    def answer(self, question: str | Texts, context: str | Texts, *, best: int = 3) -> Answered | list[Answered]:
        """Return the part of a text that answers a question, with its probability and other candidates.

        model.answer("What does it raise?", "It takes bytes and raises a key error.").text
        """
        self.check("answer")
        answered = answer.answer_each(self.trained, texts_of("answer", question), texts_of("answer", context), best)
        return answered[0] if isinstance(question, str) else answered

    @overload
    def classify(self, texts: str, seconds: str = "") -> Classified: ...
    @overload
    def classify(self, texts: Texts, seconds: Texts = ()) -> list[Classified]: ...
    def classify(self, texts: str | Texts, seconds: str | Texts = ()) -> Classified | list[Classified]:
        """Return the class of a text, or its predicted number. A model for pairs needs a second text.

        model.classify("the fox mends the gate").label
        """
        self.check("classify")
        pairs = texts_of("classify", seconds) if seconds else []
        labelled = predict.classified(self.trained, texts_of("classify", texts), pairs)
        return labelled[0] if isinstance(texts, str) else labelled

    @overload
    def tag(self, sentences: str) -> Tagged: ...
    @overload
    def tag(self, sentences: Texts | Sequence[Texts]) -> list[Tagged]: ...
    def tag(self, sentences: str | Texts | Sequence[Texts]) -> Tagged | list[Tagged]:
        """Return a tag for each word of a sentence: a text, split at white space, or a list of words.

        model.tag("Newts swim in Bergen").tags
        """
        self.check("tag")
        several = sentences if isinstance(sentences, list | tuple) else texts_of("tag", sentences)
        words = [sentence.split() if isinstance(sentence, str) else texts_of("tag", sentence) for sentence in several]
        tagged = predict.tagged(self.trained, words)
        return tagged[0] if isinstance(sentences, str) else tagged

    @overload
    def score(self, texts: str, *, way: str = "") -> Scored: ...
    @overload
    def score(self, texts: Texts, *, way: str = "") -> list[Scored]: ...
    def score(self, texts: str | Texts, *, way: str = "") -> Scored | list[Scored]:
        """Return the log likelihood of a text, and the surprisal of each token and word in bits.

        `way` is causal, masked (each token masked by itself), word (with the word's tokens to the right of it), detect
        (how real an ELECTRA finds each token), forward, backward or mean (ELMo). Empty is the model's usual way.

            model.score("Newts swim in Bergen").words[0].bits
        """
        self.check("score")
        results = surprisal.score_each(self.trained, texts_of("score", texts), way)
        return results[0] if isinstance(texts, str) else results

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
