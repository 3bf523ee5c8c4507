"""Prose of pages and code: words that sound odd to a reader of other projects, counted; the counts may only fall.

In code, docstrings, comments and messages (strings of two words or more) are read; of tests, docstrings and comments.
Run as a script (PYTHONPATH=tests), it prints the counts; with folders or files, the sentences with such words.
"""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from house.test_spelling import ROOT, prose

# what is written here -> what is plainer
PLAINER = {
    "anew": "again",
    "beside": "next to, in addition to",
    "lacks?|lacked|lacking": "is missing, does not have",
    "stands?|stood|standing": "is, exists",
    "tells?|told|telling": "says, prints, reports",
    "whoever": "anyone who",
    "theirs": "the original, that of ...",
    "slopes?": "gradients",
    "judged?|judges": "scored",
    "go on|goes on|going on|went on|gone on": "resume, continue",
    "ask(?:s|ed|ing)? (?:for|of)": "request, require",
    "taken over": "imported, converted",
    "handed in|hand in": "submitted",
    "courses?": "schedule, learning curve",
    "laid": "placed",
    "begins? anew": "starts again",
    "kin": "family",
    "quirks?": "special case",
    "somebody|nobody|everybody": "someone, a user",
    "of one's own|of yours|of theirs": "your own",
    "is to be|are to be": "should be, will be",
    "all that": "everything that",
}
SECOND = {  # a second list, for docstrings, comments and messages of src
    "so (?:many|much)": "this many, `count`",
    "behind": "after",
    "mend(?:s|ed|ing)?": "fix",
    "alike": "equal, similar",
    "of (?:its|their|one's) own": "its, separate",
    r"is no (?!longer|more)\w+": "is not a ...",
    "not said": "default",
    "begun|began": "started",
    "broken off": "interrupted",
    "lies?|lay": "is in",
    "made[ -]up": "synthetic",
    "what (?:it|is|was|stands|comes|came|they|he)": "name the thing",
    "signs?": "special tokens, characters",
    "once more": "again",
    "of (?:ours|others)": "name whose",
    "all but": "nearly, except",
}
SECOND_WORDS = re.compile(rf"\b(?:{'|'.join(SECOND)})\b", re.IGNORECASE)
WORDS = re.compile(rf"\b(?:{'|'.join(PLAINER)})\b", re.IGNORECASE)
CODE = re.compile(r"`[^`]*`|\]\([^)]*\)|https?://\S+")
COMMENT = re.compile(r"(?:^|\s)#\s+(?!fmt|noqa|type)(.*)")
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("src/ordsmed/*/README.md"))]
DONE = {ROOT / "CHANGELOG.md", *ROOT.glob("docs/log/*.md"), ROOT / "docs/log.md"}  # what was written at its time
MOST = {
    "AGENTS.md": 1,
    "docs/add-a.md": 1,
    "docs/add-a/probe.md": 1,
    "docs/add-a/task.md": 1,
    "docs/add-a/validation-item.md": 1,
    "docs/clusters.md": 2,
    "docs/coming-from/fairseq.md": 1,
    "docs/coming-from/google.md": 1,
    "docs/coming-from/megatron.md": 5,
    "docs/coming-from/nvidia.md": 2,
    "docs/evaluation.md": 1,
    "docs/finetuning.md": 2,
    "docs/formats.md": 1,
    "docs/imports.md": 7,
    "docs/layouts.md": 2,
    "docs/new/0.2.md": 1,
    "docs/results.md": 1,
    "src/ordsmed/tell/README.md": 1,
}


MOST_IN_CODE = {
    "src/ordsmed/__init__.py": 3,
    "src/ordsmed/base": 2,
    "src/ordsmed/cli": 2,
    "src/ordsmed/corpus": 7,
    "src/ordsmed/data": 2,
    "src/ordsmed/machines": 1,
    "src/ordsmed/maker": 1,
    "src/ordsmed/others": 2,
    "src/ordsmed/train": 12,
    "src/ordsmed/use": 5,
    "src/ordsmed/web": 1,
    "src/ordsmed/weights": 1,
    "tests": 3,
    "tests/base": 57,
    "tests/cli": 13,
    "tests/corpus": 6,
    "tests/fake_cuda": 6,
    "tests/golden": 26,
    "tests/gpu": 2,
    "tests/house": 19,
    "tests/kit": 32,
    "tests/learn": 8,
    "tests/machines": 27,
    "tests/maker": 4,
    "tests/measure": 89,
    "tests/nn": 8,
    "tests/recipes": 7,
    "tests/tell": 3,
    "tests/text": 4,
    "tests/train": 84,
    "tests/use": 1,
    "tests/web": 3,
}


MOST_SECOND = {
    "src/ordsmed/__init__.py": 2,
    "src/ordsmed/api": 1,
    "src/ordsmed/base": 2,
    "src/ordsmed/cli": 3,
    "src/ordsmed/corpus": 13,
    "src/ordsmed/data": 1,
    "src/ordsmed/learn": 17,
    "src/ordsmed/machines": 10,
    "src/ordsmed/maker": 14,
    "src/ordsmed/measure": 8,
    "src/ordsmed/nn": 4,
    "src/ordsmed/others": 1,
    "src/ordsmed/tell": 6,
    "src/ordsmed/text": 11,
    "src/ordsmed/train": 7,
    "src/ordsmed/use": 11,
    "src/ordsmed/web": 2,
    "src/ordsmed/weights": 10,
}


def odd(page: Path) -> list[str]:
    """The words of a page that are in the list, in lower case."""
    text = "\n".join(part for _, part in prose(page))
    return [match[0].lower() for match in WORDS.finditer(CODE.sub(" ", text))]


def counts() -> dict[str, int]:
    """How many each page has."""
    found = {page.relative_to(ROOT).as_posix(): len(odd(page)) for page in PAGES if page not in DONE}
    return {name: count for name, count in found.items() if count}


def test_odd_words_become_fewer() -> None:
    assert {name: count for name, count in counts().items() if count > MOST.get(name, 0)} == {}, "more than there were"


def test_odd_words_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("It stands beside `anew`, and tells\nwhoever asks for it: an understanding.\n\n    lacks\n")
    assert odd(page) == ["stands", "beside", "tells", "whoever", "asks for"]


def sentences(file: Path) -> Iterator[tuple[int, str]]:
    """Yield the docstrings, comments and, of src, the messages of a Python file, with their lines."""
    source = file.read_text(encoding="utf-8")
    docstrings = set()
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            docstrings.add(body[0].value)
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            message = "src" in file.parts and len(node.value.split()) > 1
            if message or node in docstrings:
                yield node.lineno, node.value
    for number, line in enumerate(source.splitlines(), 1):
        if match := COMMENT.search(line):
            yield number, match[1]


@functools.cache
def texts_of_packages() -> list[tuple[str, str]]:
    """Return the sentences of src and tests, each with the name of its package, without code in them."""
    found = []
    for file in sorted([*ROOT.glob("src/ordsmed/**/*.py"), *ROOT.glob("tests/**/*.py")]):
        parts = file.relative_to(ROOT).parts
        package = "/".join(parts[: 3 if parts[0] == "src" else 2] if len(parts) > 2 else parts[:1])
        found += [(package, CODE.sub(" ", text)) for _, text in sentences(file)]
    return found


def odd_in_code(words: re.Pattern[str] = WORDS, within: str = "") -> dict[str, int]:
    """Return how many such words each package of src and of tests has."""
    found: Counter[str] = Counter()
    for package, text in texts_of_packages():
        if package.startswith(within):
            found[package] += len(words.findall(text))
    return {package: count for package, count in found.items() if count}


def test_odd_words_of_code_become_fewer() -> None:
    found = odd_in_code()
    assert {name: count for name, count in found.items() if count > MOST_IN_CODE.get(name, 0)} == {}, "more than before"


def test_words_of_the_second_list_become_fewer() -> None:
    found = odd_in_code(SECOND_WORDS, "src")
    assert {name: count for name, count in found.items() if count > MOST_SECOND.get(name, 0)} == {}, "more than before"


def test_odd_words_of_code_are_found(tmp_path: Path) -> None:
    file = tmp_path / "src/file.py"
    file.parent.mkdir()
    file.write_text('"""It stands."""\n# tells `anew`\nBESIDE = f"lies beside {1} one", "stood"\n')
    assert [WORDS.findall(text) for _, text in sentences(file)] == [["stands"], ["beside"], ["tells", "anew"]]


if __name__ == "__main__":
    for name in sys.argv[1:]:
        path = Path(name)
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            for line, text in sentences(file.resolve()):
                if match := WORDS.search(CODE.sub(" ", text)):
                    print(f"{file}:{line}: {match[0]}: {' '.join(text.split())[:150]}")
    if not sys.argv[1:]:
        for table in (counts(), odd_in_code(), odd_in_code(SECOND_WORDS, "src")):
            print(*(f'    "{name}": {count},' for name, count in sorted(table.items()) if count), sep="\n")
