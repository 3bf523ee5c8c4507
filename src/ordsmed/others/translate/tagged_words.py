"""Convert token classification data of transformers' run_ner, an object per sentence, to CoNLL.

{"tokens": ["Newts", "swim"], "ner_tags": ["B-ANIMAL", "O"]}  ->  Newts B-ANIMAL, swim O, a word per line
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ordsmed.base import files
from ordsmed.base.errors import DataError
from ordsmed.others.translate.program import Table
from ordsmed.text.labelled import conll

ENDINGS = (".json", ".jsonl")  # file name extensions of the JSON format


def as_conll(source: Path, target: Path, words: str, tags: str) -> None:
    lines = []
    for location, example in _examples(source):
        tokens, labels = (_texts(example, name, location) for name in (words, tags))
        if len(tokens) != len(labels):
            raise DataError(
                location, f"found {len(tokens)} in `{words}` and {len(labels)} in `{tags}`", "a tag per word"
            )
        lines += [f"{word}\t{label}" for word, label in zip(tokens, labels, strict=True)] + [""] * bool(tokens)
    text = "\n".join([*lines, ""])
    if not target.is_file() or target.read_text(encoding="utf-8") != text:
        target.parent.mkdir(parents=True, exist_ok=True)
        files.write_text(target, text)


def write_predictions(target: Path, predicted: Sequence[Path]) -> None:
    """Write the tags of one sentence per line, from CoNLL files of `ordsmed predict`."""
    sentences = [tags for path in predicted for tags in conll.read(str(path), -1).tags]
    files.write_text(target, "".join(" ".join(tag or "O" for tag in tags) + "\n" for tags in sentences))


def _examples(path: Path) -> Iterator[tuple[str, Table]]:
    """Yield the objects of a file (one per line, or a list) with their locations for error messages."""
    text = path.read_text(encoding="utf-8-sig")
    if text.lstrip().startswith("["):
        try:
            listed = files.loads(text)
        except ValueError as error:
            raise DataError(path, f"is not JSON ({error})", "a list of objects, or an object per line") from None
        yield from ((f"{path}: example {number}", example) for number, example in enumerate(listed, 1))
        return
    for number, line in enumerate(text.split("\n"), 1):  # a JSON string may contain other line separators
        if line.strip():
            try:
                yield f"{path}:{number}", files.loads(line)
            except ValueError as error:
                raise DataError(f"{path}:{number}", f"is not JSON ({error})", "an object per line") from None


def _texts(example: Table, name: str, location: str) -> list[str]:
    values = example.get(name) if isinstance(example, dict) else None
    if not isinstance(values, list) or any(isinstance(value, list | dict) for value in values):
        raise DataError(location, f"has no list `{name}`", '{"tokens": [...], "ner_tags": [...]}')
    texts = [str(value) for value in values]
    if invalid := [text for text in texts if not text.strip() or any(character in text for character in "\t\r\n")]:
        wanted = "words and tags that are not blank, without tabs and line breaks"
        raise DataError(location, f"`{name}` contains {invalid[0]!r}", wanted)
    return texts
