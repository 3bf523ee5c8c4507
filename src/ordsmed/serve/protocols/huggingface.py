"""Hugging Face's API: the tasks of its pipelines, as huggingface_hub.InferenceClient and curl send them.

{"inputs": ..., "parameters": {...}}  ->  /fill-mask and other tasks, or /: the request determines the task
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from ordsmed.base.errors import nearest
from ordsmed.serve.call import Endpoint, ServedCall, texts_of
from ordsmed.serve.models import ServedModel
from ordsmed.serve.refusal import ErrorForm, Refusal
from ordsmed.serve.sentences import Truncation, cosines, fit_pairs, sentence_vectors
from ordsmed.serve.streams import events, sampling
from ordsmed.serve.writing import PendingTexts, WrittenPiece
from ordsmed.use.fill import MASK, Filled
from ordsmed.use.generation.continuing import TokenLog
from ordsmed.use.generation.network import fills
from ordsmed.use.generation.options import SamplingOptions
from ordsmed.use.generation.unmasking import put_in
from ordsmed.use.predict import Classified, Tagged

Count = Annotated[int, Meta(ge=1, le=1_000)]
Texts = str | list[str]
Options = dict[str, Any] | None  # wait_for_model, use_cache: ignored, because they concern the hub's servers


class FillParameters(Struct, forbid_unknown_fields=True):
    top_k: Count | None = None
    targets: list[str] | None = None


class FillMaskRequest(Struct, forbid_unknown_fields=True):
    inputs: Texts
    parameters: FillParameters | None = None
    options: Options = None


class FilledMask(Struct):
    score: float
    token: int
    token_str: str
    sequence: str


async def fill_mask(call: ServedCall) -> list[Any]:
    request: FillMaskRequest = call.request
    served = call.model("fill")
    settings = request.parameters or FillParameters()
    texts = texts_of(request.inputs, "inputs")
    options: dict[str, object] = {"targets": tuple(settings.targets)} if settings.targets else {}
    filled = await call.compute(served, "fill", [(text,) for text in texts], best=settings.top_k or 5, **options)
    tokenizer = served.model.trained.tokenizer

    def masks(of: Filled) -> list[Any]:
        several = [
            [
                FilledMask(
                    guess.probability,
                    guess.token,
                    guess.text,
                    put_in(tokenizer, of.text, _fill_one_mask(number, guess.token, len(of.masks))),
                )
                for guess in guesses
            ]
            for number, guesses in enumerate(of.masks)
        ]
        return several[0] if len(several) == 1 else several

    answers = [masks(result) for result in filled]
    return answers[0] if isinstance(request.inputs, str) else answers


def _fill_one_mask(number: int, token: int, count: int) -> Sequence[int | None]:
    """Return the tokens for `count` masks, of which only the mask `number` is filled."""
    return [token if mask == number else None for mask in range(count)]


class TokenParameters(Struct, forbid_unknown_fields=True):
    aggregation_strategy: Literal["none", "simple", "first"] | None = None
    ignore_labels: list[str] | None = None


class TokenClassificationRequest(Struct, forbid_unknown_fields=True):
    inputs: Texts
    parameters: TokenParameters | None = None
    options: Options = None


class TaggedEntity(Struct, omit_defaults=True):
    score: float
    word: str
    start: int
    end: int
    entity: str | None = None  # the tag of a word
    entity_group: str | None = None  # the tag of a span of words


async def token_classification(call: ServedCall) -> list[Any]:
    request: TokenClassificationRequest = call.request
    served, options = call.model("tag"), request.parameters or TokenParameters()
    texts = texts_of(request.inputs, "inputs")
    tagged = await call.compute(served, "tag", [(text,) for text in texts])
    ignored = ["O"] if options.ignore_labels is None else options.ignore_labels
    answers = [
        _entities(text, result, options.aggregation_strategy != "none", ignored)
        for text, result in zip(texts, tagged, strict=True)
    ]
    return answers[0] if isinstance(request.inputs, str) else answers


def _entities(text: str, tagged: Tagged, grouped: bool, ignored: Sequence[str]) -> list[TaggedEntity]:
    """Return the words with their tags; if `grouped`, the spans that the tags form."""
    entities: list[TaggedEntity] = []
    scores: list[list[float]] = []
    spans = [match.span() for match in re.finditer(r"\S+", text)]
    before = ""
    for (begin, end), tag, score in zip(spans, tagged.tags, tagged.probabilities, strict=True):
        mark, dash, kind = tag.partition("-")
        label = (kind if dash and len(mark) == 1 else tag) if grouped else tag
        if label in ignored or tag in ignored:
            label = ""  # the next word starts a new span
        elif grouped and entities and mark not in ("B", "S") and before == label:
            entities[-1].word, entities[-1].end = text[entities[-1].start : end], end
            scores[-1].append(score)
        else:
            name = {"entity_group": label} if grouped else {"entity": label}
            entities.append(TaggedEntity(score, text[begin:end], begin, end, **name))
            scores.append([score])
        before = label
    for entity, values in zip(entities, scores, strict=True):
        entity.score = sum(values) / len(values)
    return entities


class QuestionInContext(Struct, forbid_unknown_fields=True):
    question: str
    context: str


class QuestionParameters(Struct, forbid_unknown_fields=True):
    top_k: Count | None = None
    handle_impossible_answer: bool | None = None


class QuestionAnsweringRequest(Struct, forbid_unknown_fields=True):
    inputs: QuestionInContext
    parameters: QuestionParameters | None = None
    options: Options = None


class FoundAnswer(Struct):
    answer: str
    score: float
    start: int
    end: int


async def question_answering(call: ServedCall) -> object:
    """Answer a question. With `handle_impossible_answer`, the answer may be an empty text from 0 to 0."""
    request: QuestionAnsweringRequest = call.request
    served, options = call.model("answer"), request.parameters or QuestionParameters()
    best = options.top_k or 1
    pair = (request.inputs.question, request.inputs.context)
    [answered] = await call.compute(served, "answer", [pair], best=best + 1)
    spans = [span for span in answered.n_best if span.text or options.handle_impossible_answer]
    if options.handle_impossible_answer and not answered.text:  # the model chose the empty answer
        spans.sort(key=lambda span: bool(span.text))
    answers = [FoundAnswer(span.text, span.probability, max(span.start, 0), max(span.end, 0)) for span in spans[:best]]
    if best > 1:
        return answers
    return answers[0] if answers else FoundAnswer("", answered.probability, 0, 0)


class TextPair(Struct, forbid_unknown_fields=True):
    text: str
    text_pair: str = ""


class ClassParameters(Struct, forbid_unknown_fields=True):
    top_k: Count | None = None
    truncation: bool = False
    function_to_apply: Literal["softmax"] | None = None


class TextClassificationRequest(Struct, forbid_unknown_fields=True):
    inputs: str | list[str] | TextPair
    parameters: ClassParameters | None = None
    options: Options = None


class FoundClass(Struct):
    label: str
    score: float


async def text_classification(call: ServedCall) -> list[list[FoundClass]]:
    """Return the classes of each text, the most probable first, or the value of a regression."""
    request: TextClassificationRequest = call.request
    served, options = call.model("classify"), request.parameters or ClassParameters()
    if isinstance(request.inputs, TextPair):
        pair = request.inputs
        items: list[tuple[str, ...]] = [(pair.text, pair.text_pair)] if pair.text_pair else [(pair.text,)]
    else:
        items = [(text,) for text in texts_of(request.inputs, "inputs")]
    call.check_size(items)
    items = fit_pairs(
        call, served, items, Truncation(truncate=options.truncation), "parameters.truncation=true truncates them"
    )
    classified = await call.compute(served, "classify", items)
    return [classes_of(result)[: options.top_k] for result in classified]


def classes_of(classified: Classified) -> list[FoundClass]:
    if classified.number is not None:
        return [FoundClass("LABEL_0", classified.number)]
    ordered = sorted(classified.probabilities.items(), key=lambda entry: -entry[1])
    return [FoundClass(label, share) for label, share in ordered]


class FeatureParameters(Truncation, forbid_unknown_fields=True, kw_only=True):
    normalize: bool | None = None
    dimensions: Count | None = None
    encoding_format: Literal["float"] | None = None


class FeatureExtractionRequest(FeatureParameters, forbid_unknown_fields=True, kw_only=True):
    """InferenceClient sends the parameters next to `inputs`; other clients send them in `parameters`."""

    inputs: Texts
    parameters: FeatureParameters | None = None
    options: Options = None


async def feature_extraction(call: ServedCall) -> list[list[float]]:
    request: FeatureExtractionRequest = call.request
    options = request.parameters or request
    served, texts = call.model("embed"), texts_of(request.inputs, "inputs")
    unit = bool(options.normalize)
    vectors = await sentence_vectors(call, served, texts, unit=unit, dimensions=options.dimensions, truncation=options)
    rows: list[list[float]] = vectors.tolist()
    return rows


class ComparedSentences(Struct, forbid_unknown_fields=True):
    source_sentence: str
    sentences: list[str]


class SentenceSimilarityRequest(Struct, forbid_unknown_fields=True):
    inputs: ComparedSentences
    parameters: dict[str, None] | None = None
    options: Options = None


async def sentence_similarity(call: ServedCall) -> list[float]:
    request: SentenceSimilarityRequest = call.request
    served, compared = call.model("embed"), request.inputs
    if not compared.sentences:
        raise Refusal("invalid", "an empty batch", "at least one sentence", place="sentences")
    vectors = await sentence_vectors(call, served, [compared.source_sentence, *compared.sentences], unit=False)
    return cosines(vectors[0], vectors[1:])


class GenerationParameters(Struct, forbid_unknown_fields=True):
    max_new_tokens: Annotated[int, Meta(ge=1)] | None = None
    do_sample: bool | None = None
    temperature: Annotated[float, Meta(gt=0, le=100)] | None = None
    top_k: Annotated[int, Meta(ge=0)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Meta(gt=0, le=100)] | None = None
    stop: list[str] | None = None
    seed: Annotated[int, Meta(ge=0, le=1 << 62)] | None = None
    return_full_text: bool | None = None
    details: bool | None = None
    num_return_sequences: Annotated[int, Meta(ge=1, le=128)] | None = None
    decoder_input_details: bool | None = None
    truncate: Annotated[int, Meta(ge=1)] | None = None  # tokens of the prompt to keep, from its end
    typical_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    best_of: int | None = None
    watermark: bool | None = None
    frequency_penalty: float | None = None
    top_n_tokens: int | None = None
    grammar: dict[str, Any] | None = None
    adapter_id: str | None = None


class TextGenerationRequest(Struct, forbid_unknown_fields=True):
    inputs: str
    parameters: GenerationParameters | None = None
    stream: bool | None = None
    options: Options = None


class StreamedToken(Struct):
    id: int
    text: str
    logprob: float | None
    special: bool = False


class GenerationDetails(Struct):
    finish_reason: str
    generated_tokens: int
    seed: int | None
    prefill: list[StreamedToken] = []
    tokens: list[StreamedToken] = []


class GeneratedText(Struct, omit_defaults=True):
    generated_text: str
    details: GenerationDetails | None = None


class StreamedText(Struct):
    index: int
    token: StreamedToken
    generated_text: str | None = None
    details: GenerationDetails | None = None


async def text_generation(call: ServedCall) -> object:
    """Generate text, greedily by default. With `stream`, send an event for each token."""
    request: TextGenerationRequest = call.request
    served, settings = call.model("generate"), request.parameters or GenerationParameters()
    options, prompt = _sampling(settings), _prompt(call, served, request.inputs, settings.truncate)
    start = prompt if settings.return_full_text else ""
    logs = 0 if served.writer is not None and (request.stream or settings.details) else None
    texts = call.write(served, [prompt], options, logs, echoed=bool(settings.decoder_input_details))
    if request.stream:
        if options.samples > 1:
            raise Refusal("invalid", "found with stream", "a single text", place="num_return_sequences")
        return events(served, _tokens(texts, start, options), failure, last=b"")
    written = await call.answer(served, texts.texts())
    answers = []
    for pieces in written.values():
        text, details = start + "".join(piece.text for piece in pieces), None
        if settings.details:
            details = _details(pieces[-1], options)
            details.prefill = [_token(served, log) for log in pieces[0].prompt_logs]
            details.tokens = [_token(served, piece.log) for piece in pieces if piece.log]
        answers.append(GeneratedText(text, details))
    return answers


def _prompt(call: ServedCall, served: ServedModel, text: str, limit: int | None) -> str:
    """Return a prompt, truncated to its last `limit` tokens."""
    tokenizer = served.model.trained.tokenizer
    ids = tokenizer.encode(text) if limit else []
    if not limit or len(ids) <= limit:
        return text
    call.report_truncated([0])
    return tokenizer.decode(ids[-limit:])


def _token(served: ServedModel, log: TokenLog) -> StreamedToken:
    tokenizer = served.model.trained.tokenizer
    text = tokenizer.decode([log.token], skip_special=False)
    return StreamedToken(log.token, text, log.log, log.token in tokenizer.special)


async def _tokens(texts: PendingTexts, start: str, options: SamplingOptions) -> AsyncIterator[StreamedText]:
    text, index = start, 0
    async for piece in texts.pieces():
        text, index = text + piece.text, index + 1
        token = (
            StreamedToken(piece.log.token, piece.text, piece.log.log) if piece.log else StreamedToken(-1, piece.text, 0)
        )
        if piece.ended:
            yield StreamedText(index, token, text, _details(piece, options))
        else:
            yield StreamedText(index, token)


def _details(last: WrittenPiece, options: SamplingOptions) -> GenerationDetails:
    return GenerationDetails(REASONS[last.ended or "tokens"], last.tokens, options.seed)


def _sampling(options: GenerationParameters) -> SamplingOptions:
    """Return the sampling options of a request. As in text-generation-inference, some parameters turn sampling on."""
    for name in UNSUPPORTED:
        if getattr(options, name) and (name, options.best_of) != ("best_of", 1):
            raise Refusal("invalid", "is not supported", "a request without it", place=name)
    limits = (options.temperature, options.top_p, options.typical_p)
    samples = options.do_sample or options.top_k or any(limit not in (None, 1) for limit in limits)
    return sampling(
        tokens=options.max_new_tokens or 100,
        temperature=(options.temperature or 1.0) if samples else 0.0,
        best=options.top_k or 0,
        share=options.top_p or 1.0,
        typical=options.typical_p or 1.0,
        penalty=options.repetition_penalty or 1.0,
        samples=options.num_return_sequences or 1,
        stop=tuple(options.stop or ()),
        seed=options.seed,
    )


async def infer_task(call: ServedCall) -> object:
    """Do the task that the request's fields imply, else the default task of the model.

    InferenceClient sends equal requests for some tasks. A GPT-2 then answers with generated text, and the client fails
    if it expects the answer of another task.
    """
    table: dict[str, Any] = call.request
    task, by_hub = call.parameters.get("task", ""), "hf_hub/" in call.agent
    implied = f"/{task}" if task else _implied_task(table, by_hub)
    chosen = implied or _default_task(call.model(""), table, by_hub)
    endpoint = next((endpoint for endpoint in TASKS if endpoint.path == chosen), None)
    if endpoint is None:
        tasks = [endpoint.path[1:] for endpoint in TASKS]
        raise Refusal("unknown", f"no task `{chosen[1:80]}`", f"one of {', '.join(tasks)}", nearest(chosen[1:], tasks))
    answer = await endpoint.run(replace(call, request=endpoint.read(msgspec.json.encode(table))))
    return answer[0] if chosen == GENERATION and by_hub and not implied and isinstance(answer, list) else answer


def _implied_task(table: dict[str, Any], by_hub: bool) -> str:
    inputs, parameters = table.get("inputs"), table.get("parameters")
    for inner, task in INPUTS.items():
        if isinstance(inputs, dict) and inner in inputs:
            return task
    if table.get("stream"):
        return GENERATION
    if set(table) & set(FeatureParameters.__struct_fields__):
        return FEATURES
    for name in parameters if isinstance(parameters, dict) else ():
        tasks = [task for task, fields in PARAMETERS.items() if name in fields]
        if len(tasks) == 1:
            return tasks[0]
    # with every other task InferenceClient sends `parameters`, even if they are empty
    return FEATURES if by_hub and parameters is None else ""


def _default_task(served: ServedModel, table: dict[str, Any], by_hub: bool) -> str:
    can, inputs = served.can, table.get("inputs")
    first = inputs[0] if isinstance(inputs, list) and inputs else inputs
    if "fill" in can and isinstance(first, str):
        if MASK in first or "<mask>" in first:
            return "/fill-mask"
        if fills(served.model.trained):
            problem = f"found no mask in the text, and no other task of `{served.name}` in the request"
            raise Refusal("invalid", problem, "[MASK]", _task_paths(served), "inputs")
    task = next((name for method, name in DEFAULT_TASKS.items() if method in can), FEATURES)
    if task == FEATURES and by_hub:
        raise Refusal("cannot", f"found no task of `{served.name}`", "", _task_paths(served))
    return task


def _task_paths(served: ServedModel) -> str:
    paths = [f"/{served.name}{task.path}" for task in TASKS if task.needs in served.can]
    return f"give the task by its path: {', '.join(paths)}"


def failure(refusal: Refusal) -> ErrorForm:
    return ErrorForm(refusal.status, {"error": str(refusal), "error_type": refusal.kind})


REASONS = {"end": "eos_token", "stop": "stop_sequence", "tokens": "length"}
GENERATION, FEATURES = "/text-generation", "/feature-extraction"
DEFAULT_TASKS = {"tag": "/token-classification", "classify": "/text-classification", "generate": GENERATION}
INPUTS = {  # fields of `inputs` that only one task has
    "question": "/question-answering",
    "source_sentence": "/sentence-similarity",
    "text": "/text-classification",
    "table": "/table-question-answering",
}
PARAMETERS: dict[str, tuple[str, ...]] = {  # of all tasks, also those that are not supported
    "/fill-mask": FillParameters.__struct_fields__,
    "/token-classification": (*TokenParameters.__struct_fields__, "stride"),
    "/text-classification": ClassParameters.__struct_fields__,
    "/question-answering": QuestionParameters.__struct_fields__,
    FEATURES: FeatureParameters.__struct_fields__,
    GENERATION: GenerationParameters.__struct_fields__,
    "/zero-shot-classification": ("candidate_labels", "hypothesis_template", "multi_label"),
    "/translation": ("src_lang", "tgt_lang"),
    "/summarization": ("generate_parameters",),
}
UNSUPPORTED = ("best_of", "watermark", "frequency_penalty", "top_n_tokens", "grammar", "adapter_id")
TASKS = (
    Endpoint(
        "/fill-mask",
        "predict the masked tokens of a text",
        fill_mask,
        FillMaskRequest,
        list[FilledMask | list[FilledMask]],
        "fill",
    ),
    Endpoint(
        "/token-classification",
        "tag the words of a text, or the spans that the tags form",
        token_classification,
        TokenClassificationRequest,
        list[TaggedEntity],
        "tag",
    ),
    Endpoint(
        "/question-answering",
        "find the part of a context that answers a question",
        question_answering,
        QuestionAnsweringRequest,
        FoundAnswer,
        "answer",
    ),
    Endpoint(
        "/text-classification",
        "classify texts, the most probable class first",
        text_classification,
        TextClassificationRequest,
        list[list[FoundClass]],
        "classify",
    ),
    Endpoint(
        "/feature-extraction", "embed texts", feature_extraction, FeatureExtractionRequest, list[list[float]], "embed"
    ),
    Endpoint(
        "/sentence-similarity",
        "compare sentences with a source sentence",
        sentence_similarity,
        SentenceSimilarityRequest,
        list[float],
        "embed",
    ),
    Endpoint(
        "/text-generation", "continue a text", text_generation, TextGenerationRequest, list[GeneratedText], "generate"
    ),
)
ENDPOINTS = (
    *TASKS,
    Endpoint("/", "the default task of a model", infer_task, dict[str, Any], Any),
    Endpoint("/pipeline/{task}", "the named task", infer_task, dict[str, Any], Any),
)
