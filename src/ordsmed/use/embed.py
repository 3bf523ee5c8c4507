"""Embed: a vector for every word, or one for every line, of a text of any length.

    1,000 lines, sorted by length -> Reader -> layers chosen or mixed -> words | mean of a line -> Writer, in order

One line is one entry, an empty one too; what is held in memory does not grow with the text (.npz lists its entries).
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
from ordsmed.weights.trained import Trained, opened

Source = str | Path | IO[bytes]
HELD_LINES = 1_000
BLANK = "hold nothing that the model reads: their vectors mean nothing"
HELD_BYTES = 256 << 20  # of vectors that wait for their turn
CHOICES = {
    "of": ("words", "sentences", "tokens"),
    "pieces": ("mean", "first", "last"),
    "pool": ("", "mean", "words", "first", "last", "tokens"),
    "prompt": ("", "query", "passage"),
    "dtype": ("float32", "float16"),
}


@dataclass(frozen=True)
class Form:
    """What is made of a line."""

    of: str = "words"  # words [T, D] | sentences [D] | tokens [T, W], of a network that learned vectors of these
    layers: str = ""  # top | all | mean | numbers; several: an axis more, in front; "": top, of an ELMo all
    mix: str = ""  # a JSON file with the weights of all layers
    pieces: str = "mean"  # of a word: mean | first | last
    pool: str = ""  # of a sentence: mean (also called tokens), first or last of its tokens | words: mean of its words
    prompt: str = ""  # of a network that learned vectors of texts: what a text is, query | passage
    dtype: str = "float32"
    batch: int = 64  # lines the network reads at once
    carry: bool = False  # an ELMo goes on from the line before
    cut: bool = False  # an ELMo's words are those of its tokenizer, not what stands between white space

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
        """With the pool that is meant where none is named: LEARNED by the network for vectors of texts, or the mean."""
        if self.of == "tokens":
            return self._of_tokens(trained)
        learned = isinstance(trained.objective, Embedding)
        if isinstance(trained.objective, Reranking | LateInteraction) and self.of == "sentences":
            problem = "scores two texts that are read together (a cross-encoder), and has no vectors of texts"
            if isinstance(trained.objective, LateInteraction):
                problem = "gives each token a vector (late interaction), and texts none"
            remedy = f"`{command('search', 'INDEX', 'QUESTION', '--rerank', trained.folder)}` asks it"
            raise RecipeError(trained.folder, problem, "a model that learned vectors from pairs", remedy)
        if self.prompt and not learned:
            problem = f"found {self.prompt}, but {trained.folder} did not learn vectors of texts"
            raise RecipeError("--prompt", problem, "a model that `ordsmed finetune` trained on pairs of texts")
        otherwise = self.mix or self.carry or self.cut or self.layers not in ("", "top")
        as_learned = learned and self.of == "sentences" and not otherwise
        if self.prompt and (self.pool or not as_learned):
            problem = f"found {self.prompt} beside a pool, a mix or layers, which read no prompt"
            raise RecipeError("--prompt", problem, "the vectors as they were learned", "leave these out")
        return self if self.pool or as_learned else replace(self, pool="mean")

    def _of_tokens(self, trained: Trained) -> Form:
        """Refused of a network that did not learn them, and in another form than it did."""
        if not isinstance(trained.objective, LateInteraction):
            problem = f"found tokens, but {trained.folder} learned no vectors of them (late interaction)"
            raise RecipeError("--of", problem, "words or sentences")
        if replace(self, prompt="", dtype=Form.dtype, batch=Form.batch) != Form(of="tokens"):
            problem = "found beside layers, pieces, a pool or a mix; vectors of tokens are as they were learned"
            raise RecipeError("--of tokens", problem, "--prompt, --dtype or --batch")
        return self

    @property
    def mixed(self) -> bool:
        """Does one vector come of all layers?"""
        return bool(self.mix) or self.layers == "mean"


@dataclass(frozen=True)
class Embedded:
    """A text's vectors."""

    text: str
    words: tuple[str, ...]
    vectors: Floats  # a row a word [T, D]; of a sentence [D]; of several layers an axis more, in front


@dataclass(frozen=True)
class Embedder:
    """Lines to vectors, in the form that is asked for."""

    reader: EmbeddingReader
    finish: Callable[[int, Read], Floats]
    form: Form

    @staticmethod
    def of(trained: Trained, form: Form, mix: ScalarMix | None = None) -> Embedder:
        """By what a model reads; `mix`: the weights of its layers, if the form wants them mixed by some."""
        form = form.for_model(trained)
        reader = reader_of(trained, form)
        return Embedder(reader, finisher(form, reader, mix, trained.folder), form)

    @property
    def shape(self) -> vectors.Shape:
        """Of what becomes of a line; None: as many as it has words."""
        layers = [self.reader.layers] if _many(self.form, self.reader) else []
        return (*layers, *([] if self.form.of == "sentences" else [None]), self.reader.width)

    def entries(self, lines: Iterable[str]) -> Iterator[tuple[Read, Callable[[], Floats]]]:
        """What is read of each line, in their order, and what makes its vectors of that."""
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
    """The file to write and what mixes layers; refused what cannot be, before a model is opened."""
    target = Path(out)
    if not hasattr(source, "readline") and Path(str(source)).exists() and not Path(str(source)).is_file():
        raise RecipeError(str(source), "is no plain file", "a text, an entry a line", "use - and standard input")
    vectors.check(target, even=form.of == "sentences", anew=anew)
    return target, read_mix(Path(form.mix)) if form.mix else None


def embed(
    run: Trained | str | Path, source: Source, out: str | Path, form: Form, *, step: int | None = None,
    anew: bool = False,
) -> str:  # fmt: skip
    """Write a file of vectors, whole or not at all; a line that tells of it."""
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
        say(f"{bare:,} of {words:,} words are no piece of the tokenizer's: zeros stand for them")
    if cut:
        say(f"{cut:,} of {words:,} words are longer than the model reads them: cut")
    if long:
        say(f"{many(long, 'line', 'is', 'are')} longer than {_of_long(trained, embedder.form)}")
    size = " x ".join("words" if length is None else f"{length:,}" for length in shape)
    return f"{target}: {many(number, 'line')}, {many(words, 'word')}; an entry is {size} numbers of {form.dtype}"


def _of_long(trained: Trained, form: Form) -> str:
    """What is read of lines that are too long, in words."""
    if form.pool == LEARNED:
        return f"the {trained.learned.length:,} tokens that the model learned to read: cut"
    whole = form.of == "words" or form.pool == "words"
    read_as = "read in windows" if whole else f"their vectors (--pool {form.pool}) are of the first ones alone"
    return f"the model's {trained.settings.longest():,} places: {read_as}"


def reader_of(trained: Trained, form: Form) -> EmbeddingReader:
    """Who reads for this family: just the layers that are asked for."""
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
        raise RecipeError("--carry", f"{trained.folder} ({trained.kind}) carries nothing from line to line", "an ELMo")
    if form.cut:
        problem = f"{trained.folder} ({trained.kind}) cuts words into pieces by itself"
        raise RecipeError("--cut", problem, "an ELMo", "leave it out")
    chosen = numbers(wanted_layers or "top", layers_of(trained))
    pool = form.pool if form.of == "sentences" else "words"
    return TransformerReader(trained, chosen, pieces=form.pieces, pool=pool, batch=form.batch)


class Chosen:
    """Another reader's layers, some of them."""

    def __init__(self, reader: EmbeddingReader, wanted: list[int]) -> None:
        self.reader, self.wanted = reader, wanted
        self.layers, self.width, self.pools = len(wanted), reader.width, reader.pools

    def read(self, lines: list[str]) -> list[Read]:
        return [replace(words, vectors=words.vectors[self.wanted],
                        pooled=None if words.pooled is None else words.pooled[self.wanted])
                for words in self.reader.read(lines)]  # fmt: skip


def numbers(text: str, count: int) -> list[int]:
    """The layers that are meant, of so many: 0 is the embeddings, -1 the last."""
    if text in ("all", "top"):
        return [*range(count)] if text == "all" else [count - 1]
    try:
        return [range(count)[int(word)] for word in text.split(",")]
    except (ValueError, IndexError):
        wanted = f"top, all, mean or numbers from {-count} to {count - 1}, as --layers=0,-1"
        raise RecipeError("--layers", f"found {text}", wanted) from None


def read_mix(path: Path) -> ScalarMix:
    """The weights of layers, as a file tells them and ELMo's mix learns them: a softmax is taken of them."""
    table = files.read_json(path)
    try:
        if set(table) - {"weights", "gamma"}:
            raise ValueError
        mix = ScalarMix(len(table["weights"]))
        with torch.no_grad():
            mix.weights.copy_(torch.tensor(table["weights"]))
            mix.gamma.copy_(torch.tensor(float(table.get("gamma", 1.0))))
    except (TypeError, ValueError, KeyError, RuntimeError):
        raise DataError(path, "is no mix", '{"weights": [a number a layer], "gamma": 1.0}') from None
    return mix


def finisher(form: Form, reader: EmbeddingReader, mix: ScalarMix | None, folder: Path) -> Callable[[int, Read], Floats]:
    """What makes an entry of what was read of a line: pooled, mixed, in its number type."""
    if form.pool not in reader.pools:
        problem = f"found {form.pool}, but {folder} has no such token that sees a line"
        raise RecipeError("--pool", problem, " or ".join(reader.pools))
    if mix is not None and len(mix.weights) != reader.layers:
        wanted = f"{reader.layers}, one a layer of {folder}, its embeddings counted"
        raise DataError(form.mix, f"{len(mix.weights)} weights", wanted)
    mixer = (mix or ScalarMix(reader.layers)) if form.mixed else None

    def finish(number: int, read: Read) -> Floats:
        array: Any = read.vectors
        if form.of == "sentences":
            by_words = form.pool == "words" or read.pooled is None  # an ELMo's tokens are its words
            array = array.sum(1) / max(len(read.words) - read.bare, 1) if by_words else read.pooled
        if mixer is not None:
            array = mixer(torch.from_numpy(np.ascontiguousarray(array))).numpy()
        elif not _many(form, reader):
            array = array[0]
        try:
            with np.errstate(over="raise"):
                return array.astype(form.dtype, copy=False)
        except FloatingPointError:
            raise DataError(f"line {number}", "a number that float16 cannot hold", "", "use --dtype float32") from None

    return finish


def entries(reader: EmbeddingReader, found: Iterable[str], form: Form) -> Iterator[Read]:
    """One result a line, in their order; inside a buffer lines of about one length are read together."""
    for held in _buffers(found, reader, form):
        order = range(len(held)) if form.carry else sorted(range(len(held)), key=lambda n: len(held[n]))
        reads: dict[int, Read] = {}
        for at in range(0, len(held), form.batch):
            chosen = order[at : at + form.batch]
            reads.update(zip(chosen, reader.read([held[n] for n in chosen]), strict=True))
        for n in range(len(held)):
            yield reads.pop(n)


def lines_of(source: str | Path | IO[bytes]) -> Iterator[str]:
    """Lines of a file, packed or plain, or of a stream of bytes; without a byte order mark."""
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
    """Lines with their ends."""
    rest = b""
    for block in blocks:
        *whole, rest = (rest + block).split(b"\n")
        yield from (line + b"\n" for line in whole)
    if rest:
        yield rest


def _buffers(texts: Iterable[str], reader: EmbeddingReader, form: Form) -> Iterator[list[str]]:
    """So many lines, fewer where their vectors are large; where state is carried exactly a batch."""
    most = HELD_BYTES // (4 * reader.layers * reader.width)
    buffer: list[str] = []
    words = 0
    for line in texts:
        buffer.append(line)
        words += len(line.split())
        if len(buffer) == form.batch if form.carry else len(buffer) == HELD_LINES or words >= most:
            yield buffer
            buffer, words = [], 0
    if buffer:
        yield buffer


def _many(form: Form, reader: EmbeddingReader) -> bool:
    """Do entries have an axis for their layers?"""
    return not form.mixed and (reader.layers > 1 or form.layers == "all")
