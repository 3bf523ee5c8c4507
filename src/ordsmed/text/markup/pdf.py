"""Extract the text of PDF files with pypdf in a child process.

    a.pdf -> python -m ordsmed.text.markup.pdf a.pdf -> lines of each page -> paragraphs (page_lines.py) -> JSON

A PDF is a program that draws pages, and a small one can be written so that it never ends or fills all memory. So a
child process with limits on time, memory and text reads each file. A file that exceeds a limit is reported and left
out.
"""

from __future__ import annotations

import json
import logging
import os
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ordsmed.base.errors import DataError, RecipeError, RunError
from ordsmed.base.launch.local import end_with_parent
from ordsmed.base.say import many
from ordsmed.text import read
from ordsmed.text.markup import zip_archive
from ordsmed.text.markup.page_lines import PageLine, paragraphs

if TYPE_CHECKING:
    from pypdf import PageObject, PdfReader

SECONDS, SECONDS_OF_MB = 30, 60  # processor seconds for a file, and for each megabyte of it
MEMORY = 3 << 30  # bytes for reading a file, in addition to its size
LETTERS_A_PAGE = 10  # with fewer characters on average, the pages are pictures
NO_PYPDF = "pip install 'ordsmed[pdf]'"
_LIGATURES = str.maketrans({"ﬀ": "ff", "ﬁ": "fi", "ﬂ": "fl", "ﬃ": "ffi", "ﬄ": "ffl", "ﬅ": "st", "ﬆ": "st"})


def is_installed() -> bool:
    return find_spec("pypdf") is not None


def text_of(path: Path) -> tuple[dict[str, str], list[str]]:
    """Return the title and author of a PDF file, if it names them, and its paragraphs."""
    if not is_installed():
        raise RecipeError(path, "`pypdf` is not installed", "", NO_PYPDF)
    if not path.is_file():
        raise DataError(path, "no such file")
    facts = _read_in_child(path)
    if "problem" in facts:
        kind = zip_archive.Encrypted if facts.get("encrypted") else DataError
        raise kind(path, facts["problem"], facts["wanted"], facts["remedy"])
    left_out = read.tally().left_out
    for reason in ("pages without text", "pages that cannot be read"):
        left_out[reason] += facts[reason]
    return facts["meta"], facts["paragraphs"]


def _read_in_child(path: Path) -> dict[str, Any]:
    """Return the facts that the child process prints. Raise DataError if the file exceeds a limit."""
    seconds = SECONDS + SECONDS_OF_MB * path.stat().st_size // 1_000_000
    source = str(Path(__file__).parents[3])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH"))))}
    command = [sys.executable, "-P", "-m", __spec__.name, str(path.resolve()), str(seconds)]
    # in a new session, so that Ctrl-C does not end the child, which would look like a damaged file
    child = subprocess.run(command, env=environment, capture_output=True, start_new_session=True, check=False)
    if child.returncode == -signal.SIGXCPU:
        raise DataError(path, f"takes more than {seconds} seconds to read", "a PDF with text", "leave it out")
    if child.returncode in (-signal.SIGKILL, -signal.SIGTERM):
        remedy = "give it more memory, or move the file away; then start the same command again"
        raise RunError(path, "the process that reads it was killed", "", remedy)
    if child.returncode:
        message = (child.stderr.decode(errors="replace").strip().splitlines() or [f"status {child.returncode}"])[-1]
        raise DataError(path, f"makes its reader fail: {message[:200]}", "a PDF with text", "leave it out")
    facts: dict[str, Any] = json.loads(child.stdout)
    return facts


def main(path: str, seconds: str) -> None:
    """Set limits for this process, and print the content of a file, or the problem with it, as JSON."""
    end_with_parent()
    limit = MEMORY + Path(path).stat().st_size
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), resource.RLIM_INFINITY))
    logging.disable()
    try:
        facts = _content(Path(path))
    except MemoryError:
        facts = _problem(f"needs more than {limit >> 30} GB of memory", "leave it out")
    except Exception as error:  # pypdf raises many kinds for damaged files
        message = " ".join(str(error).split())[:200]
        facts = _problem(f"is damaged: {message or type(error).__name__}", "copy it again, or leave it out")
    sys.stdout.write(json.dumps(facts))


def _problem(problem: str, remedy: str, **more: object) -> dict[str, Any]:
    return {"problem": problem, "wanted": "a PDF with text", "remedy": remedy, **more}


def _content(path: Path) -> dict[str, Any]:
    import pypdf

    reader = pypdf.PdfReader(path)
    if reader.is_encrypted and not _opens(reader):
        return _problem("is encrypted", "save it again without a password", encrypted=True)
    pages, broken, characters = list[list[PageLine]](), 0, 0
    for page in _pages(reader):
        try:
            pages.append(list(_lines(page)))
        except MemoryError:
            raise
        except Exception:  # other pages may be readable
            broken += 1
            continue
        characters += sum(len(line.text) for line in pages[-1])
        if characters > zip_archive.LARGEST:
            return _problem(f"holds more than {zip_archive.LARGEST:,} characters", "leave it out")
    if not pages and broken:
        return _problem(f"is damaged: none of its {many(broken, 'page')} can be read", "copy it again, or leave it out")
    if characters < LETTERS_A_PAGE * max(1, len(pages)):
        problem = f"holds no text: {many(len(pages), 'page', 'is a picture', 'are pictures')}, as of a scan"
        return _problem(problem, "text recognition (`ocrmypdf`) adds the text")
    empty = sum(not page for page in pages)
    facts = {"title": reader.metadata and reader.metadata.title, "author": reader.metadata and reader.metadata.author}
    meta = {key: text for key, value in facts.items() if (text := _clean(str(value or "")))}
    return {
        "meta": meta,
        "paragraphs": paragraphs(pages),
        "pages without text": empty,
        "pages that cannot be read": broken,
    }


def _opens(reader: PdfReader) -> bool:
    """Return whether the file opens without a password. Many encrypted files only forbid printing."""
    try:
        return bool(reader.decrypt(""))
    except Exception:  # a cipher for which pypdf needs another package
        return False


def _pages(reader: PdfReader) -> Iterator[PageObject]:
    seen = set[int]()
    for page in reader.pages:
        number = getattr(page.indirect_reference, "idnum", id(page))
        if number not in seen:
            seen.add(number)
            yield page


def _lines(page: PageObject) -> Iterator[PageLine]:
    """Yield the lines of a page in drawing order. The pieces that pypdf passes to `visit` may contain line ends."""
    lines = list[list[tuple[str, float, float, float]]]([[]])

    def visit(text: str, transformation: list[float], matrix: list[float], font: object, size: float) -> None:
        x = matrix[4] * transformation[0] + matrix[5] * transformation[2] + transformation[4]
        y = matrix[4] * transformation[1] + matrix[5] * transformation[3] + transformation[5]
        size *= abs(matrix[3] * transformation[3]) or 1.0
        first, *rest = text.split("\n")
        lines[-1].append((first, x, y, size))
        lines.extend([(line, x, y, size)] for line in rest)

    page.extract_text(visitor_text=visit)
    for line in lines:
        if text := _clean("".join(piece for piece, *_ in line)):
            start = next(piece for piece in line if piece[0].strip())
            longest = max(line, key=lambda piece: len(piece[0]))
            yield PageLine(text, start[1], start[2], longest[3] or 1.0)


def _clean(text: str) -> str:
    text = re.sub(r"[\ud800-\udfff\0]", "", text)
    return " ".join(text.translate(_LIGATURES).split())


if __name__ == "__main__":
    main(*sys.argv[1:])
