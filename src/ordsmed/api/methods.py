"""The methods of a model for texts, and the JSON in which `ordsmed serve` answers them.

model.fill(texts, best=3)  ->  OpenModel: the trained model in this process
                           ->  RemoteModel: FillRequest as JSON -> the server's OpenModel -> list[Filled] as JSON
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar, Unpack, overload

import msgspec
import numpy as np
from msgspec import Meta, Struct

from ordsmed.api.options import EmbedOptions, Texts, WritingOptions, embed_form, sampling_options, text_of, texts_of
from ordsmed.learn.score.answers import Answered
from ordsmed.measure.likelihood.surprisal import Scored
from ordsmed.use.embed import Embedded
from ordsmed.use.fill import Filled
from ordsmed.use.generation.options import Generated, SamplingOptions
from ordsmed.use.predict import Classified, Tagged

Count = Annotated[int, Meta(ge=1, le=4_096)]
Step = Annotated[int, Meta(ge=0)]
Share = Annotated[float, Meta(gt=0, le=1)]
Factor = Annotated[float, Meta(gt=0, le=100)]
Way = Literal["", "causal", "masked", "word", "detect", "forward", "backward", "mean"]
Result = TypeVar("Result")


class MethodRequest(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The body of a request: first the inputs, then the options of the method."""


class TextsRequest(MethodRequest):
    texts: str | list[str]


class FillRequest(TextsRequest):
    best: Count = 5
    targets: tuple[str, ...] = ()


class GenerateRequest(TextsRequest):
    tokens: Count = 40
    temperature: Annotated[float, Meta(ge=0, le=100)] = 1.0
    best: Step = 0
    share: Share = 1.0
    typical: Share = 1.0
    seed: Annotated[int, Meta(ge=0, le=1 << 62)] = 0
    penalty: Factor = 1.0
    stop: tuple[Annotated[str, Meta(min_length=1)], ...] = ()
    samples: Annotated[int, Meta(ge=1, le=128)] = 1
    together: Count = 1
    order: Literal["certain", "chance"] = "certain"
    start: bool = True
    stream: bool = False


class VectorsRequest(TextsRequest):
    of: Literal["words", "sentences", "tokens"] = "words"
    layers: Annotated[str, Meta(max_length=100)] = ""
    pieces: Literal["mean", "first", "last"] = "mean"
    pool: Literal["", "mean", "words", "first", "last", "tokens"] = ""
    prompt: Literal["", "query", "passage"] = ""
    dtype: Literal["float32", "float16"] = "float32"
    cut: bool = False


class AnswerRequest(MethodRequest):
    questions: list[str]
    contexts: list[str]
    best: Count = 3


class ClassifyRequest(TextsRequest):
    seconds: list[str] = []


class TagRequest(MethodRequest):
    sentences: list[str | list[str]]  # words between white space, or a list of words


class ScoreRequest(TextsRequest):
    way: Way = ""
    models: list[str] = []  # names of served models; empty: the one in the path
    steps: Literal["all"] | list[Step] | None = None  # checkpoints of the run


class ModelScores(Struct):
    model: str
    scores: list[Scored]
    step: int | None = None


class PackedVectors(Struct):
    text: str
    words: list[str]
    shape: list[int]
    dtype: str
    vectors: str  # little-endian, in base64

    def unpacked(self) -> Embedded:
        numbers = np.frombuffer(base64.b64decode(self.vectors), np.dtype(self.dtype).newbyteorder("<"))
        return Embedded(self.text, tuple(self.words), numbers.astype(self.dtype).reshape(self.shape))


@dataclass(frozen=True)
class Method:
    """A method over HTTP."""

    path: str
    request: type[MethodRequest]
    answer: object  # type of the answer's JSON
    inputs: int = 1  # the first fields of the request, which hold one entry for each result
    results: Callable[[Any], list[Any]] = list  # returns the results in an answer

    def split(self, request: MethodRequest) -> tuple[list[Any], dict[str, Any]]:
        """Return the inputs of a request and its options by name."""
        fields = msgspec.structs.asdict(request)
        inputs = [fields.pop(name) for name in request.__struct_fields__[: self.inputs]]
        return [[value] if isinstance(value, str) else value for value in inputs], fields


METHODS = {
    "fill": Method("api/fill", FillRequest, list[Filled]),
    "generate": Method("api/generate", GenerateRequest, list[Generated]),
    "embed": Method(
        "api/embed", VectorsRequest, list[PackedVectors], 1, lambda answer: [packed.unpacked() for packed in answer]
    ),
    "answer": Method("api/answer", AnswerRequest, list[Answered], 2),
    "classify": Method("api/classify", ClassifyRequest, list[Classified], 2),
    "tag": Method("api/tag", TagRequest, list[Tagged]),
    "score": Method("score", ScoreRequest, list[ModelScores], 1, lambda answer: answer[0].scores),
}


class ModelMethods:
    """The methods of an opened or served model. A text gives one result, a list of texts a list of results."""

    def _results(self, method: str, *inputs: list[Any], **options: object) -> list[Any]:
        """Return a result for each input. The inputs and options are fields of the method's request."""
        raise NotImplementedError

    def _stream(self, prompt: str, options: SamplingOptions) -> Iterator[str]:
        raise NotImplementedError

    @overload
    def fill(self, texts: str, *, best: int = 5, targets: Sequence[str] = ()) -> Filled: ...
    @overload
    def fill(self, texts: Texts, *, best: int = 5, targets: Sequence[str] = ()) -> list[Filled]: ...
    def fill(self, texts: str | Texts, *, best: int = 5, targets: Sequence[str] = ()) -> Filled | list[Filled]:
        """Return the best guesses for each [MASK] of a text. `targets` restricts them to these tokens.

        model.fill("it is [MASK].").masks[0][0].text
        """
        return _like(texts, self._results("fill", texts_of("fill", texts), best=best, targets=tuple(targets)))

    @overload
    def generate(self, prompts: str = "", **options: Unpack[WritingOptions]) -> Generated: ...
    @overload
    def generate(self, prompts: Texts, **options: Unpack[WritingOptions]) -> list[Generated]: ...
    def generate(self, prompts: str | Texts = "", **options: Unpack[WritingOptions]) -> Generated | list[Generated]:
        """Return how the model continues a text; it begins an empty one itself. Masked models fill masks.

        Several prompts, or `samples`, give a list with all samples of each prompt.

            model.generate("The value of", tokens=20, share=0.9).text
        """
        texts = texts_of("generate", prompts)
        return _like(prompts, self._results("generate", texts, **vars(sampling_options(options))))

    def stream(self, prompt: str = "", **options: Unpack[WritingOptions]) -> Iterator[str]:
        """Yield the text after the prompt in pieces, as they are generated.

        for piece in model.stream("The value of"): print(piece, end="", flush=True)
        """
        return self._stream(text_of("stream", prompt), sampling_options(options))

    @overload
    def embed(self, texts: str, **options: Unpack[EmbedOptions]) -> Embedded: ...
    @overload
    def embed(self, texts: Texts, **options: Unpack[EmbedOptions]) -> list[Embedded]: ...
    def embed(self, texts: str | Texts, **options: Unpack[EmbedOptions]) -> Embedded | list[Embedded]:
        """Return a vector for each word of a text, or one for the whole text (of="sentences").

        `ordsmed help embed` explains the options.

            model.embed("it is old", of="sentences").vectors.shape
        """
        return _like(texts, self._results("embed", texts_of("embed", texts), **vars(embed_form(options))))

    @overload
    def answer(self, question: str, context: str, *, best: int = 3) -> Answered: ...
    @overload
    def answer(self, question: Texts, context: Texts, *, best: int = 3) -> list[Answered]: ...
    def answer(self, question: str | Texts, context: str | Texts, *, best: int = 3) -> Answered | list[Answered]:
        """Return the part of a text that answers a question, with its probability and other candidates.

        model.answer("What does it raise?", "It takes bytes and raises a key error.").text
        """
        questions, contexts = texts_of("answer", question), texts_of("answer", context)
        return _like(question, self._results("answer", questions, contexts, best=best))

    @overload
    def classify(self, texts: str, seconds: str = "") -> Classified: ...
    @overload
    def classify(self, texts: Texts, seconds: Texts = ()) -> list[Classified]: ...
    def classify(self, texts: str | Texts, seconds: str | Texts = ()) -> Classified | list[Classified]:
        """Return the class of a text, or its predicted number. A model for pairs needs a second text.

        model.classify("the fox mends the gate").label
        """
        pairs = texts_of("classify", seconds) if seconds else []
        return _like(texts, self._results("classify", texts_of("classify", texts), pairs))

    @overload
    def tag(self, sentences: str) -> Tagged: ...
    @overload
    def tag(self, sentences: Texts | Sequence[Texts]) -> list[Tagged]: ...
    def tag(self, sentences: str | Texts | Sequence[Texts]) -> Tagged | list[Tagged]:
        """Return a tag for each word of a sentence: a text, split at white space, or a list of words.

        model.tag("Newts swim in Bergen").tags
        """
        several = sentences if isinstance(sentences, list | tuple) else texts_of("tag", sentences)
        words = [sentence.split() if isinstance(sentence, str) else texts_of("tag", sentence) for sentence in several]
        return _like(sentences, self._results("tag", words))

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
        return _like(texts, self._results("score", texts_of("score", texts), way=way))


def _like(texts: object, results: list[Result]) -> Result | list[Result]:
    """Return the only result of a single text, or else the list."""
    return results[0] if isinstance(texts, str) and len(results) == 1 else results
