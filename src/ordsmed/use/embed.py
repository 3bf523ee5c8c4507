"""Embed texts of any length: a vector for every word, or one for every line.

    1,000 lines, sorted by length -> reader -> layers chosen or mixed -> words | mean of a line -> writer, in order

Each line gives one entry, even an empty line. Memory use does not grow with the text (except for .npz, which keeps a
list of its entries).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import numpy as np
import torch

from ordsmed.base import files
from ordsmed.base.errors import DataError, RecipeError, meant
from ordsmed.base.say import Progress, many, say
from ordsmed.base.screen import command
from ordsmed.learn.task import Embedding, LateInteraction, Reranking
from ordsmed.nn.mix import ScalarMix
from ordsmed.text import read as texts
from ordsmed.use import vectors
from ordsmed.use.fill import lines
from ordsmed.use.readers import EmbeddingReader, Floats, Read, TransformerReader, layers_of
from ordsmed.use.vector_reader import LEARNED, TokenReader, VectorReader
from ordsmed.weights.trained_model import Trained, opened

Source = str | Path | IO[bytes]
BUFFER_LINES = 1_000  # lines that are sorted by length together, at most
BLANK = "have no text that the model can read: their vectors are meaningless"
BUFFER_BYTES = 256 << 20  # bytes of vectors in memory
CHOICES = {
    "of": ("words", "sentences", "tokens"),
    "pieces": ("mean", "first", "last"),
    "pool": ("", "mean", "words", "first", "last", "tokens"),
    "prompt": ("", "query", "passage"),
    "dtype": ("float32", "float16"),
}


@dataclass(frozen=True)
class Form:
    """What is made of each line."""

    of: str = "words"  # words [T, D] | sentences [D] | tokens [T, W], for models that learned vectors of tokens
    layers: str = ""  # top | all | mean | numbers (several give one more axis, in front); "": top, or all of an ELMo
    mix: str = ""  # JSON file with the weights of all layers
    pieces: str = "mean"  # tokens of a word: mean | first | last
    pool: str = ""  # sentences: mean (or tokens), first or last of all tokens | words: mean of words
    prompt: str = ""  # the group of texts whose learned prompt is used: query | passage
    dtype: str = "float32"
    batch: int = 64  # lines per batch
    carry: bool = False  # ELMo: continue the states of the previous line
    cut: bool = False  # ELMo: separate words by the tokenizer, not at white space

    def __post_init__(self) -> None:
        for name, known in CHOICES.items():
            if getattr(self, name) not in known:
                value = str(getattr(self, name))
                wanted = [word for word in known if word]
                raise RecipeError(f"--{name}", f"found {value}", " or ".join(wanted), meant(value, wanted))
        if self.batch < 1:
            raise RecipeError("--batch", f"found {self.batch}", "1 or more")
        if self.mix and self.layers:
            raise RecipeError("--mix", "mixes all layers, but --layers chooses some", "one of the two")
        for name, value, of in (("pool", self.pool, "words tokens"), ("prompt", self.prompt, "words")):
            if value not in ("", "mean") and self.of in of.split():
                raise RecipeError(f"--{name}", f"found {value} with --of {self.of}", "--of sentences")

    def for_model(self, trained: Trained) -> Form:
        """Return the form with the default pool: the learned one (LEARNED) if the model has it, or the mean.

        Raise an error if the model cannot make vectors of this form.
        """
        if self.of == "tokens":
            return self._of_tokens(trained)
        learned = isinstance(trained.objective, Embedding)
        if isinstance(trained.objective, Reranking | LateInteraction) and self.of == "sentences":
            problem = "scores pairs of texts (a cross-encoder), and makes no vectors of texts"
            if isinstance(trained.objective, LateInteraction):
                problem = "makes vectors of tokens (late interaction), not of texts"
            remedy = f"use it as `{command('search', 'INDEX', 'QUESTION', '--rerank', trained.folder)}`"
            raise RecipeError(trained.folder, problem, "a model that learned vectors from pairs", remedy)
        if self.prompt and not learned:
            problem = f"found {self.prompt}, but {trained.folder} did not learn vectors of texts"
            raise RecipeError("--prompt", problem, "a model that `ordsmed finetune` trained on pairs of texts")
        changed = self.mix or self.carry or self.cut or self.layers not in ("", "top")
        as_learned = learned and self.of == "sentences" and not changed
        if self.prompt and (self.pool or not as_learned):
            problem = f"found {self.prompt} with a pool, a mix or layers, which use no prompt"
            raise RecipeError("--prompt", problem, "--prompt alone", "leave out the other options")
        return self if self.pool or as_learned else replace(self, pool="mean")

    def _of_tokens(self, trained: Trained) -> Form:
        """Return this form, or raise an error if the model has no token vectors or the form sets other options."""
        if not isinstance(trained.objective, LateInteraction):
            problem = f"found tokens, but {trained.folder} learned no vectors of tokens (late interaction)"
            raise RecipeError("--of", problem, "words or sentences")
        if replace(self, prompt="", dtype=Form.dtype, batch=Form.batch) != Form(of="tokens"):
            problem = "found with layers, pieces, a pool or a mix, which do not apply to learned vectors of tokens"
            raise RecipeError("--of tokens", problem, "only --prompt, --dtype or --batch with it")
        return self

    @property
    def mixed(self) -> bool:
        return bool(self.mix) or self.layers == "mean"


@dataclass(frozen=True)
class Embedded:
    text: str
    words: tuple[str, ...]
    vectors: Floats  # words [T, D] or sentence [D]; several layers add an axis in front


@dataclass(frozen=True)
class Embedder:
    """Makes vectors of lines in the form that was chosen."""

    reader: EmbeddingReader
    finish: Callable[[int, Read], Floats]
    form: Form

    @staticmethod
    def of(trained: Trained, form: Form, mix: ScalarMix | None = None) -> Embedder:
        """Return the embedder for a model. `mix` has the weights of layers, if the form mixes them."""
        form = form.for_model(trained)
        reader = reader_of(trained, form)
        return Embedder(reader, finisher(form, reader, mix, trained.folder), form)

    @property
    def shape(self) -> vectors.Shape:
        """Return the shape of an entry, with None for the number of words."""
        layers = [self.reader.layers] if _has_layers(self.form, self.reader) else []
        return (*layers, *([] if self.form.of == "sentences" else [None]), self.reader.width)

    def entries(self, lines: Iterable[str]) -> Iterator[tuple[Read, Callable[[], Floats]]]:
        """Yield for each line, in order, what was read and a function that makes its vectors."""
        for number, read in enumerate(entries(self.reader, lines, self.form), 1):
            yield read, partial(self.finish, number, read)


def embedded(trained: Trained, texts: Sequence[str], form: Form) -> list[Embedded]:
    with torch.inference_mode(), trained.within():
        embedder = Embedder.of(trained, form, read_mix(Path(form.mix)) if form.mix else None)
        rows = [*embedder.entries(texts)]
        if form.of == "sentences" and (blank := sum(read.blank for read, _ in rows)):
            say(f"{blank:,} of {many(len(texts), 'text')} {BLANK}")
        return [Embedded(text, tuple(read.words), finish()) for text, (read, finish) in zip(texts, rows, strict=True)]


def prepared(source: Source, out: str | Path, form: Form, *, anew: bool) -> tuple[Path, ScalarMix | None]:
    """Return the file to write and the mix of layers. Raise errors before a model is opened."""
    target = Path(out)
    if not hasattr(source, "readline") and Path(str(source)).exists() and not Path(str(source)).is_file():
        raise RecipeError(str(source), "is not a regular file", "a text file", "use - for standard input")
    vectors.check(target, even=form.of == "sentences", anew=anew)
    return target, read_mix(Path(form.mix)) if form.mix else None


def embed(
    run: Trained | str | Path,
    source: Source,
    out: str | Path,
    form: Form,
    *,
    step: int | None = None,
    anew: bool = False,
) -> str:
    """Write a file of vectors, whole or not at all, and return a line that describes it."""
    target, mix = prepared(source, out, form, anew=anew)
    total = None if hasattr(source, "readline") else count(Path(str(source)))
    trained = opened(run, step=step)
    with torch.inference_mode(), trained.within():
        embedder = Embedder.of(trained, form, mix)
        shape = embedder.shape
        shown_until = bare = blank = long = cut = number = words = 0
        bar = Progress("embed", total, "lines") if total else contextlib.nullcontext()
        with vectors.writing(target, shape, form.dtype) as writer, bar as shown:
            for number, (read, finish) in enumerate(embedder.entries(lines_of(source)), 1):
                with files.survive_disk(target):
                    writer.add(number - 1, read.words, finish())
                words, bare, long = words + len(read.words), bare + read.bare, long + (read.windows > 1)
                cut, blank = cut + read.cut, blank + read.blank
                if shown and number - shown_until >= form.batch:
                    shown.add(number - shown_until)
                    shown_until = number
    if blank and form.of == "sentences":
        say(f"{blank:,} of {many(number, 'line')} {BLANK}")
    elif bare:
        say(f"{bare:,} of {words:,} words have no token: their vectors are zeros")
    if cut:
        say(f"{cut:,} of {words:,} words are longer than the model reads: truncated")
    if long:
        say(f"{many(long, 'line', 'is', 'are')} longer than {_long_line_note(trained, embedder.form)}")
    size = " x ".join("words" if length is None else f"{length:,}" for length in shape)
    return f"{target}: {many(number, 'line')}, {many(words, 'word')}; an entry is {size} numbers of {form.dtype}"


def _long_line_note(trained: Trained, form: Form) -> str:
    """Return the end of the message "N lines are longer than ...": the limit, and how the model reads such lines."""
    if form.pool == LEARNED:
        return f"the {trained.learned.length:,} tokens that the model was trained to read: truncated"
    whole = form.of == "words" or form.pool == "words"
    read_as = "read in windows" if whole else f"their vectors (--pool {form.pool}) use only the first ones"
    return f"the model's {trained.settings.longest():,} positions: {read_as}"


def reader_of(trained: Trained, form: Form) -> EmbeddingReader:
    if form.of == "tokens":
        return TokenReader(trained, form.prompt)
    if form.pool == LEARNED and not (form.carry or form.cut):
        return VectorReader(trained, form.prompt)
    wanted_layers = "all" if form.mixed else form.layers
    if trained.settings.capabilities.state:
        from ordsmed.use.elmo_reader import ElmoReader

        if form.pieces != "mean":
            raise RecipeError("--pieces", f"{trained.folder} reads whole words", "leave it out")
        reader: EmbeddingReader = ElmoReader(trained, carry=form.carry, cut=form.cut, batch=form.batch)
        return Chosen(reader, numbers(wanted_layers or "all", reader.layers))
    if form.carry:
        raise RecipeError("--carry", f"{trained.folder} ({trained.kind}) has no state to carry", "an ELMo")
    if form.cut:
        problem = f"{trained.folder} ({trained.kind}) always separates words by its tokenizer"
        raise RecipeError("--cut", problem, "an ELMo", "leave it out")
    chosen = numbers(wanted_layers or "top", layers_of(trained))
    pool = form.pool if form.of == "sentences" else "words"
    return TransformerReader(trained, chosen, pieces=form.pieces, pool=pool, batch=form.batch)


class Chosen:
    """A reader that returns some of another reader's layers."""

    def __init__(self, reader: EmbeddingReader, wanted: list[int]) -> None:
        self.reader, self.wanted = reader, wanted
        self.layers, self.width, self.pools = len(wanted), reader.width, reader.pools

    def read(self, lines: list[str]) -> list[Read]:
        return [
            replace(
                words,
                vectors=words.vectors[self.wanted],
                pooled=None if words.pooled is None else words.pooled[self.wanted],
            )
            for words in self.reader.read(lines)
        ]


def numbers(text: str, count: int) -> list[int]:
    """Return the layer numbers that `text` names, out of `count`: 0 is the embeddings, -1 the last layer."""
    if text in ("all", "top"):
        return [*range(count)] if text == "all" else [count - 1]
    try:
        return [range(count)[int(word)] for word in text.split(",")]
    except (ValueError, IndexError):
        wanted = f"top, all, mean or numbers from {-count} to {count - 1}, such as --layers=0,-1"
        raise RecipeError("--layers", f"found {text}", wanted) from None


def read_mix(path: Path) -> ScalarMix:
    """Read the weights of layers from a file, as ELMo's mix learns them: the softmax of them is used."""
    table = files.read_json(path)
    try:
        if set(table) - {"weights", "gamma"}:
            raise ValueError
        mix = ScalarMix(len(table["weights"]))
        with torch.no_grad():
            mix.weights.copy_(torch.tensor(table["weights"]))
            mix.gamma.copy_(torch.tensor(float(table.get("gamma", 1.0))))
    except (TypeError, ValueError, KeyError, RuntimeError):
        wanted = '{"weights": [one number per layer], "gamma": 1.0}'
        raise DataError(path, "is not a mix of layers", wanted) from None
    return mix


def finisher(form: Form, reader: EmbeddingReader, mix: ScalarMix | None, folder: Path) -> Callable[[int, Read], Floats]:
    """Return a function that makes an entry of a read line: pooled, mixed and converted to its type."""
    if form.pool not in reader.pools:
        problem = f"found {form.pool}, but {folder} has no such token that attends to the whole line"
        raise RecipeError("--pool", problem, " or ".join(reader.pools))
    if mix is not None and len(mix.weights) != reader.layers:
        wanted = f"{reader.layers}, one per layer of {folder}, including the embeddings"
        raise DataError(form.mix, f"{len(mix.weights)} weights", wanted)
    mixer = (mix or ScalarMix(reader.layers)) if form.mixed else None

    def finish(number: int, read: Read) -> Floats:
        array: Any = read.vectors
        if form.of == "sentences":
            by_words = form.pool == "words" or read.pooled is None  # an ELMo's tokens are its words
            array = array.sum(1) / max(len(read.words) - read.bare, 1) if by_words else read.pooled
        if mixer is not None:
            array = mixer(torch.from_numpy(np.ascontiguousarray(array))).numpy()
        elif not _has_layers(form, reader):
            array = array[0]
        try:
            with np.errstate(over="raise"):
                return array.astype(form.dtype, copy=False)
        except FloatingPointError:
            raise DataError(f"line {number}", "a number that float16 cannot hold", "", "use --dtype float32") from None

    return finish


def entries(reader: EmbeddingReader, lines: Iterable[str], form: Form) -> Iterator[Read]:
    """Yield the result of each line in order. Within a buffer, lines of similar length are read together."""
    for buffer in _buffers(lines, reader, form):
        order = range(len(buffer)) if form.carry else sorted(range(len(buffer)), key=lambda n: len(buffer[n]))
        reads: dict[int, Read] = {}
        for at in range(0, len(buffer), form.batch):
            chosen = order[at : at + form.batch]
            reads.update(zip(chosen, reader.read([buffer[n] for n in chosen]), strict=True))
        for n in range(len(buffer)):
            yield reads.pop(n)


def lines_of(source: str | Path | IO[bytes]) -> Iterator[str]:
    """Yield the lines of a file, plain or compressed, or of a byte stream, without a byte order mark."""
    if hasattr(source, "readline"):
        decoded = lines(source)  # type: ignore[arg-type]
    else:
        split = _split(texts.blocks(Path(source)))
        decoded = lines(SimpleNamespace(readline=lambda: next(split, b"")), str(source))  # type: ignore[arg-type]
    for number, line in enumerate(decoded):
        yield line if number else line.removeprefix("\ufeff")


def count(path: Path) -> int:
    ends, last = 0, b"\n"
    for block in texts.blocks(path):
        ends, last = ends + block.count(b"\n"), block[-1:]
    return ends + (last != b"\n")


def _split(blocks: Iterable[bytes]) -> Iterator[bytes]:
    rest = b""
    for block in blocks:
        *whole, rest = (rest + block).split(b"\n")
        yield from (line + b"\n" for line in whole)
    if rest:
        yield rest


def _buffers(texts: Iterable[str], reader: EmbeddingReader, form: Form) -> Iterator[list[str]]:
    """Yield lists of HELD_LINES lines, fewer if their vectors are large. If state is carried, a list is one batch."""
    most = BUFFER_BYTES // (4 * reader.layers * reader.width)
    buffer: list[str] = []
    words = 0
    for line in texts:
        buffer.append(line)
        words += len(line.split())
        if len(buffer) == form.batch if form.carry else len(buffer) == BUFFER_LINES or words >= most:
            yield buffer
            buffer, words = [], 0
    if buffer:
        yield buffer


def _has_layers(form: Form, reader: EmbeddingReader) -> bool:
    return not form.mixed and (reader.layers > 1 or form.layers == "all")
