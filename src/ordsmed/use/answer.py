"""Answer questions about texts: the answer, its position, its probability and other candidates.

    "What falls?", "It is wet, for rain falls."  ->  rain  92.1%, characters 15-19
                                                       It is wet, for [rain] falls.

Questions come from the command line, from a file (SQuAD's JSON, JSON lines, or question<TAB>context) or from a prompt.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.say import many, say
from ordsmed.learn.inference import predict_all
from ordsmed.learn.score.answers import Answered, AnswerSpan
from ordsmed.text import read
from ordsmed.text.labelled import questions
from ordsmed.text.labelled.questions import Question
from ordsmed.use.fill import lines
from ordsmed.use.predict import Asked, open_task, task_model
from ordsmed.use.typed_texts import INPUT, LIKE_A_FILE, blocks, is_file, one_line
from ordsmed.weights.trained_model import Trained

AROUND = 60  # characters shown before and after an answer
FORM = "SQuAD's JSON, JSON lines, or lines of question<TAB>context"


def answer_lines(
    path: Trained | str | Path,
    words: Sequence[str],
    stream: IO[bytes],
    overrides: Sequence[str] = (),
    *,
    file: str = "",
    best: int = 3,
    as_json: bool = False,
    **options: Any,
) -> Iterator[str]:
    """Yield the lines to print for each question, for a terminal or as JSON. The model is opened once."""
    if best < 1:
        raise RecipeError("--best", f"found {best}", "1 or more")
    model = with_candidates(open_task(path, overrides, verb="answer", **options), best)
    questions = _questions(words, file, stream, model.settings.errors)
    if isinstance(questions, list) and all(question.wrong for question in questions):
        questions[0].checked()
    format_answer, unanswered, total = as_line if as_json else describe, [], 0
    for block in blocks(questions):
        replies = iter(answers(model, [question.question for question in block if not question.wrong]))
        total += len(block)
        for question in block:
            if question.wrong:
                unanswered.append(question)
                yield from _unanswered(question, as_json=as_json)
            else:
                yield from format_answer(model, question.question, next(replies), best)
    if unanswered:
        problem = f"{unanswered[0].wrong}; {len(unanswered):,} of {many(total, 'question')} not answered"
        raise DataError(unanswered[0].place, problem, unanswered[0].wanted)


def answer(trained: Trained, question: str, context: str, best: int = 3) -> Answered:
    return answer_each(trained, [question], [context], best)[0]


def answer_each(trained: Trained, texts: Sequence[str], contexts: Sequence[str], best: int = 3) -> list[Answered]:
    """Return the answers to several questions, each about its own context. They are read together."""
    if len(texts) != len(contexts):
        problem = f"found {many(len(texts), 'question')} and {many(len(contexts), 'context')}"
        raise RecipeError("answer", problem, "a context for each question")
    block = [
        _checked(Question(f"{number}", text, context, (), impossible=False), "answer").checked().question
        for number, (text, context) in enumerate(zip(texts, contexts, strict=True), 1)
    ]
    replies = answers(with_candidates(task_model(trained, verb="answer"), best), block)
    return [dataclasses.replace(reply, n_best=reply.n_best[:best]) for reply in replies]


def with_candidates(model: Asked, best: int) -> Asked:
    """Return the model set to return at least `best` candidates."""
    if best < 1:
        raise RecipeError("--best", f"found {best}", "1 or more")
    return dataclasses.replace(
        model, settings=dataclasses.replace(model.settings, n_best=max(best, model.settings.n_best))
    )


@dataclass(frozen=True)
class AskedQuestion:
    """A question, and the reason why it cannot be answered if it is invalid."""

    question: Question
    place: str
    wrong: str = ""
    wanted: str = ""

    def checked(self) -> AskedQuestion:
        """Return this question, or raise an error if it cannot be answered."""
        if self.wrong:
            raise DataError(self.place, self.wrong, self.wanted)
        return self


def answers(model: Asked, block: Sequence[Question]) -> list[Answered]:
    if not block:
        return []
    records = model.settings.about(block)
    features = model.settings.features(records, model.reader)
    packing = model.packing
    if len(block) == 1:  # the row is as long as the longest window, without padding
        packing = dataclasses.replace(packing, length=int(features.sizes.max()))
    trained = model.trained
    predictions, _ = predict_all(model.task, features, packing, trained.ranks, within=trained.within)
    results: list[Answered] = model.settings.predictions(records, features, predictions)
    return results


def describe(model: Asked, question: Question, answered: Answered, best: int) -> Iterator[str]:
    """Yield lines for a terminal: the question, the answer with its surroundings, and other candidates."""
    spans = [span for span in answered.n_best if span.text]
    odds = ""
    if answered.null_odds is not None and spans:
        odds = f" (null odds {answered.null_odds:.6g}, threshold {model.settings.threshold:.6g})"
    yield one_line(question.question)
    if answered.text:
        yield f"  {_line(spans[0])}{odds}"
    else:
        yield f"  no answer  {answered.probability:.1%}{odds}"
    for number, span in enumerate(spans[:best], 1):
        if number > 1 or not answered.text:
            yield f"  {number}. {_line(span)}"
        if number == 1:
            before, text, after = map(one_line, around(question.context, span.start, span.end))
            yield f"    {before}[{text}]{after}"


def _unanswered(question: AskedQuestion, *, as_json: bool) -> Iterator[str]:
    if as_json:
        yield json.dumps({"id": question.question.id, "question": question.question.question, "error": question.wrong})
    else:
        yield one_line(question.question.question.encode(errors="replace").decode())
        yield f"  not answered: {question.wrong}"


def as_line(model: Asked, question: Question, answered: Answered, best: int) -> Iterator[str]:
    start, end = answered.span
    line: dict[str, Any] = {"id": question.id, "question": question.question, "answer": answered.text}
    line |= {"probability": answered.probability, **_places(start, end)}
    if answered.text:
        line["around"] = around(question.context, start, end)
    if answered.null_odds is not None:
        line |= {"null_odds": answered.null_odds, "threshold": model.settings.threshold}
    line["n_best"] = [
        {"text": f.text, "probability": f.probability, "score": f.score, **_places(f.start, f.end)}
        for f in answered.n_best[:best]
    ]
    yield json.dumps(line, ensure_ascii=False)


def _places(start: int, end: int) -> dict[str, int | None]:
    return {"from": start, "to": end} if start >= 0 else {"from": None, "to": None}


def around(context: str, start: int, end: int) -> tuple[str, str, str]:
    """Return the text before an answer, the answer, and the text after it, cut between words."""
    before, after = context[max(0, start - AROUND) : start], context[end : end + AROUND]
    if start > AROUND:
        before = "... " + before.split(None, 1)[-1] if before.strip() else "..."
    if end + AROUND < len(context):
        after = after.rsplit(None, 1)[0] + " ..." if after.strip() else "..."
    return before, context[start:end], after


def conversation(stream: IO[bytes], errors: read.Errors) -> Iterator[AskedQuestion]:
    """Yield questions about contexts that the user types. Prompts go to standard error."""
    input_lines, count = lines(stream), 0
    while context := _context(input_lines, errors):
        say("question? (an empty line to change the context)")
        for text in input_lines:
            if not text.strip():
                break
            count += 1
            yield _checked(Question(f"{count}", text, context, (), impossible=False), INPUT)
            say("question?")
        else:
            break
    if not count:
        raise RecipeError(INPUT, "has no question", "a context, an empty line, and questions about it")


def _context(input_lines: Iterator[str], errors: read.Errors) -> str:
    """Read the next context from the input; it is empty at the end of the input."""
    say("context? (a text followed by an empty line, or the name of a file)")
    first = next((text for text in input_lines if text.strip()), "")
    if is_file(first.strip()):
        return _of_text_file(first.strip(), errors)
    return "\n".join([first, *itertools.takewhile(str.strip, input_lines)]) if first else ""


def _of_text_file(name: str, errors: read.Errors) -> str:
    with read.replacements_told(name):
        text = "".join(read.texts(Path(name), errors))
    say(f"{name}: {many(len(text.split()), 'word')}")
    return text


def _questions(
    words: Sequence[str], file: str, stream: IO[bytes], errors: read.Errors
) -> list[AskedQuestion] | Iterator[AskedQuestion]:
    """Return the questions, as a list if all are known before the first is answered."""
    if words and (file or len(words) > 2):
        problem = "--file and a text" if file else f"{many(len(words), 'text')}"
        raise RecipeError("answer", f"found {problem}", "QUESTION CONTEXT, --file FILE, or neither to be prompted")
    if words:
        context = _context_of(words, stream, errors)
        return [_checked(Question("1", words[0], context, (), impossible=False), "answer").checked()]
    if file:
        return _of_stream(lines(stream)) if file == "-" else _of_files(read.files(file), errors)
    return conversation(stream, errors)


def _context_of(words: Sequence[str], stream: IO[bytes], errors: read.Errors) -> str:
    """Return the second word or the text of the file that it names; without one, read it from the input."""
    if len(words) == 1:
        if is_file(words[0]):
            raise RecipeError("answer", f"found the file {words[0]} and no question", "QUESTION CONTEXT")
        if not (context := _context(lines(stream), errors)):
            wanted = "QUESTION CONTEXT, where CONTEXT is a text or a file; or the text on standard input"
            raise RecipeError("answer", "found a question without a context", wanted)
        return context
    context = words[1]
    if is_file(context):
        return _of_text_file(context, errors)
    if LIKE_A_FILE.fullmatch(context):
        say(f"{context}: no such file, so it is read as a text")
    return context


def _of_files(paths: Sequence[Path], errors: read.Errors) -> list[AskedQuestion]:
    """Return the questions of all files. If an id occurs again, the file's name is put before it."""
    questions_by_id: dict[str, AskedQuestion] = {}
    for path in paths:
        if _is_json(next(filter(str.strip, read.lines(path, "replace")), "")):
            block = _all_checked(questions.read(str(path), repair=False, errors=errors)[0], str(path))
        else:
            with read.replacements_told(path):
                block = list(_of_columns(enumerate(read.lines(path, errors), 1), str(path)))
        if not block:
            raise DataError(path, "is empty", FORM)
        for question in block:
            name = f"{path}:{question.question.id}" if question.question.id in questions_by_id else question.question.id
            questions_by_id[name] = dataclasses.replace(
                question, question=dataclasses.replace(question.question, id=name)
            )
    return list(questions_by_id.values())


def _of_stream(input_lines: Iterator[str]) -> list[AskedQuestion] | Iterator[AskedQuestion]:
    """Return the questions of a stream, which are JSON or two columns according to its first line.

    Columns are read one by one as they arrive.
    """
    numbered: Iterator[tuple[int, str]] = enumerate(input_lines, 1)
    first = next(((number, line) for number, line in numbered if line.strip()), None)
    if first is None:
        raise DataError(INPUT, "is empty", FORM)
    numbered = itertools.chain([first], numbered)
    if not _is_json(first[1]):
        return _of_columns(numbered, INPUT)
    return _all_checked(_of_json(line for _, line in numbered), INPUT)


def _is_json(line: str) -> bool:
    return line.lstrip("\ufeff \t")[:1] in ("{", "[")


def _all_checked(block: Sequence[Question], location: str) -> list[AskedQuestion]:
    return [_checked(question, f"{location}: {question.id}") for question in block]


def _of_columns(numbered_lines: Iterable[tuple[int, str]], name: str) -> Iterator[AskedQuestion]:
    sound = False  # whether a valid line was read; if the first one is invalid, the file has another format
    for number, line in numbered_lines:
        columns = line.lstrip("\ufeff").split("\t")
        if not line.strip() or columns == ["question", "context"]:
            continue
        if len(columns) != 2 and not sound:
            raise DataError(f"{name}:{number}", many(len(columns), "column"), FORM)
        sound = True
        question = Question(f"{number}", columns[0], "".join(columns[1:2]), (), impossible=False)
        if len(columns) != 2:
            yield AskedQuestion(question, f"{name}:{number}", many(len(columns), "column"), FORM)
        else:
            yield _checked(question, f"{name}:{number}")


def _of_json(input_lines: Iterable[str], name: str = INPUT) -> list[Question]:
    """Read questions by way of a file, because the SQuAD reader takes files. Errors name the original source."""
    with _temporary_file(input_lines) as path:
        try:
            return questions.read(path, repair=False)[0]
        except DataError as error:
            location, problem = (text.replace(path, name) for text in (error.place, error.found))
            raise DataError(location, problem, error.wanted, error.remedy) from None


@contextlib.contextmanager
def _temporary_file(input_lines: Iterable[str]) -> Iterator[str]:
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".json") as file:
        file.write("\n".join(input_lines))
        file.flush()
        yield file.name


def _checked(question: Question, location: str) -> AskedQuestion:
    if not question.question.strip():
        return AskedQuestion(question, location, "an empty question", "a question")
    if not question.context.strip():
        return AskedQuestion(question, location, "an empty context: there is nothing to answer from", "a text")
    try:
        (question.question + question.context).encode()
    except UnicodeEncodeError as error:
        return AskedQuestion(question, location, f"invalid UTF-8 ({error.reason})", "UTF-8 text")
    return AskedQuestion(question, location)


def _line(span: AnswerSpan) -> str:
    return f"{one_line(span.text)}  {span.probability:.1%} (score {span.score:.2f}), characters {span.start}-{span.end}"
