"""Read XML files inside a zip archive within limits, for EPUB, Word and OpenDocument.

A name is only looked up in the archive, so a path that leads elsewhere finds nothing. A file that declares entities is
refused. At most `LARGEST` bytes of a file are unpacked.
"""

import contextlib
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from xml.parsers import expat

from ordsmed.base.errors import DataError
from ordsmed.base.say import with_article
from ordsmed.text import read

LARGEST = 64 << 20  # most unpacked bytes of a file's text
LOCKED = 1  # the flag bit of an encrypted member
Start = Callable[[str, dict[str, str]], None]
End = Callable[[str], None]
Text = Callable[[str], None]


class Encrypted(DataError):
    """A file that cannot be read without a password, or outside its seller's program."""


@contextlib.contextmanager
def open_archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open a zip archive. A damaged one raises DataError, also while its members are read."""
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except FileNotFoundError:
        raise DataError(path, "no such file") from None
    except read.broken_archive() as error:
        reason = getattr(error, "strerror", None) or str(error) or "it stops before its end"
        problem = f"is not a complete {_kind(path)}: {reason}"
        raise DataError(path, problem, "", "copy it again, or repair it") from None


def _kind(path: Path) -> str:
    return path.suffix.removeprefix(".").lower()


def elements(archive: zipfile.ZipFile, name: str, path: Path) -> list[tuple[str, dict[str, str], str]]:
    """Return the elements of an XML file in order: name, attributes, and the text that follows its start tag."""
    collected = list[tuple[str, dict[str, str], list[str]]]()
    parse(
        archive,
        name,
        path,
        start=lambda tag, attributes: collected.append((tag, attributes, [])),
        text=lambda text: collected[-1][2].append(text),
    )
    return [(tag, attributes, "".join(texts)) for tag, attributes, texts in collected]


def parse(archive: zipfile.ZipFile, name: str, path: Path, *, start: Start, end: End | None = None, text: Text) -> None:
    """Parse an XML file of the archive with the given callbacks. Element names have no namespace."""
    location = f"{path}:{name}"
    try:
        if (info := archive.getinfo(name)).file_size > LARGEST:
            raise DataError(location, f"unpacks to {info.file_size:,} bytes", f"{LARGEST:,} at most", "leave it out")
        if info.flag_bits & LOCKED:
            raise Encrypted(path, "is encrypted", f"{with_article(_kind(path))} without a password")
        parser = expat.ParserCreate(namespace_separator=" ")
        parser.buffer_text = True
        parser.EntityDeclHandler = lambda *_: _refuse_entities(location)
        parser.StartElementHandler = lambda tag, attributes: start(tag.rpartition(" ")[2], attributes)
        if end is not None:
            parser.EndElementHandler = lambda tag: end(tag.rpartition(" ")[2])
        parser.CharacterDataHandler = text
        parser.Parse(archive.read(info), True)
    except KeyError:
        raise DataError(path, f"has no `{name or 'package'}`", with_article(_kind(path)), "leave it out") from None
    except (expat.ExpatError, LookupError) as error:
        raise DataError(location, f"is broken: {error}", "XML", "copy it again, or leave it out") from None


def _refuse_entities(location: str) -> None:
    raise DataError(location, "declares entities, which may unpack without end", "plain XML", "leave it out")
