"""The English prose of the running Python: its language reference and the docstrings of its standard library.

    pydoc_data.topics, Lib/**/*.py (read, not imported), docs of built-in modules
      -> docstrings -> paragraphs -> prose without markup -> one document per topic or module, one paragraph per line

This is real text that every machine has without a download. The same Python gives the same bytes. Doctests, code,
tables, signatures and repeated paragraphs are left out.
"""

import ast
import importlib
import inspect
import re
import sys
import sysconfig
import types
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ordsmed.base.errors import DataError
from ordsmed.base.menu import Choice
from ordsmed.text.document import Document
from ordsmed.text.read import tally

_LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__", "pydoc_data"}
_IN_C: tuple[type, ...] = (type, types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)
_IN_C += (types.ClassMethodDescriptorType, types.GetSetDescriptorType, types.MemberDescriptorType)
_BUILT = """
    _asyncio _bisect _bz2 _collections _csv _ctypes _curses _datetime _decimal _elementtree _functools _hashlib
    _heapq _io _json _lzma _operator _pickle _posixsubprocess _queue _random _socket _sqlite3 _ssl _statistics
    _struct _thread _tracemalloc _weakref _zoneinfo array binascii builtins cmath errno faulthandler fcntl gc
    grp itertools marshal math mmap posix pwd pyexpat resource select signal sys syslog termios time unicodedata
    zlib
"""


@dataclass(frozen=True)
class Stdlib(Choice):
    """The prose of the running Python's documentation and docstrings."""

    def documents(self) -> Iterator[Document]:
        seen: set[str] = set()
        for name, docs in _everything():
            prose = []
            for paragraph in (p for doc in docs for p in paragraphs(doc)):
                if paragraph not in seen:
                    seen.add(paragraph)
                    prose.append(paragraph)
            if prose:
                yield Document("\n".join(prose), id=name)

    def stamp(self) -> object:
        return sys.version

    def size(self) -> int:
        return sum(path.stat().st_size for path in _sources())


def paragraphs(doc: str) -> Iterator[str]:
    """Yield the paragraphs of a docstring that are prose, each on one line and without markup."""
    for block in re.split(r"\n\s*\n", inspect.cleandoc(doc.replace("\r", ""))):
        for item in _items(block):
            if not _FOREIGN.search(item) and _reads_like_prose(text := _plain(item)):
                yield text


def _everything() -> Iterator[tuple[str, Iterable[str]]]:
    yield from _topics()
    root = _root()
    for path in _sources():
        docs = _docstrings(path)
        tally().bytes += path.stat().st_size
        yield str(path.relative_to(root).as_posix()), docs
    yield from ((name, _built(name)) for name in _BUILT.split())


def _topics() -> Iterator[tuple[str, Iterable[str]]]:
    try:
        from pydoc_data.topics import topics
    except ImportError:
        remedy = "use a full Python installation, or a corpus of kind `text`"
        raise DataError("pydoc_data.topics", "not in this Python", "its language reference", remedy) from None
    yield from ((f"topic {name}", [topics[name]]) for name in sorted(topics))


def _root() -> Path:
    return Path(sysconfig.get_path("stdlib"))


def _sources() -> list[Path]:
    root = _root()
    paths = [p for p in root.rglob("*.py") if not _LEFT_OUT.intersection(p.relative_to(root).parts)]
    if len(paths) < 100:
        problem, wanted = f"{len(paths)} modules of the standard library as source", "the library as Python files"
        raise DataError(root, problem, wanted, "use a full Python installation, or a corpus of kind `text`")
    return sorted(paths)


def _docstrings(path: Path) -> list[str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, OSError):
        return []
    return list(_walk(tree))


def _walk(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        yield ast.get_docstring(node, clean=False) or ""
    for child in getattr(node, "body", ()):
        if isinstance(child, ast.stmt):
            yield from _walk(child)


def _built(name: str) -> Iterator[str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = importlib.import_module(name)
    except ImportError:
        return
    yield module.__doc__ or ""
    for _, value in sorted(vars(module).items()):
        yield from _docs(value)
        if isinstance(value, type):
            for _, method in sorted(vars(value).items()):
                yield from _docs(method)


def _docs(value: object) -> Iterator[str]:
    if isinstance(value, _IN_C) and isinstance(value.__doc__, str):
        yield value.__doc__


_BULLET = re.compile(r"(?:[*+•-]|\(?\d{1,2}[.)]|\(?[a-z]\)|\[\d+\])\s+(?=\S)")
_FOREIGN = re.compile(
    r">>>|::=|={3}|-{3}|\+-|\|\||\\n|\S {3,}\S"
    r"|(?:^|\n)(?:def|class|import|from|if|for|while|return|print) ?[\w(]+.*[:)]$"
)
_MARKUP = (
    (re.compile(r":[\w:+-]+:`~?(?:[^`<]*\.)?([^`<]+?)(?: ?<[^>`]*>)?`"), r"\1"),  # :class:`~a.b`
    (re.compile(r"``((?:(?!'')[^`])+)``"), r"\1"),
    (re.compile(r"``([^`']+)''"), r'"\1"'),  # as LaTeX quotes
    (re.compile(r"``"), ""),
    (re.compile(r"`([^`<]+?)(?: ?<[^>`]*>)?`_{0,2}"), r"\1"),
    (re.compile(r"(?<![\w*])(\*\*?)(\w(?:[^*\n]*\w)?)\1(?![\w*])"), r"\2"),
    (re.compile(r"\s?\[\d+\](?:_)?"), ""),  # footnotes
    (re.compile(r"^\.\. [\w-]+:: ?|^:\w+(?: \w+)*: |^@\w+ \w+: "), ""),
    (re.compile(r"^[\w.*\"'<>(), =\[\]-]{1,50}? (?:--|-|:) (?=[A-Z][a-z]* )"), ""),  # name -- What it is
    (re.compile(r"\\([*_`\\|])"), r"\1"),
    (re.compile(r"::$"), ":"),
    (re.compile(r"\s+"), " "),
)
_PLAIN_WORD = re.compile(r"[\"'(‘“]*[A-Za-z][a-z]*(?:['’-][A-Za-z]+)*[\"')’”.,:;!?]*\Z|\d+[.,:;]?\Z|[-–—]+\Z")
_GLUE = re.compile(
    r"(?:an?|and|are|as|at|be|by|can|for|from|has|if|in|is|its?|may|must|not|of|on|or|that|the|this|to|was|when|which|will|with)\Z",
    re.IGNORECASE,
)
_CODE = re.compile(r"[=(){}\[\]<>_/\\|@#$%^&*~]")


def _items(block: str) -> Iterator[str]:
    """Yield a paragraph, or the items of a list. A bullet or another indentation begins an item."""
    item: list[str] = []
    depth: int | None = None
    for line in block.expandtabs().split("\n"):
        bare, indent = line.strip(), len(line) - len(line.lstrip())
        bullet = _BULLET.match(bare)
        if item and (bullet or depth not in (None, indent)):
            yield "\n".join(item)
            item = []
        if not item:
            depth = None if bullet else indent
            bare = bare[bullet.end() :] if bullet else bare
        elif depth is None:
            depth = indent
        item.append(bare)
    yield "\n".join(item)


def _plain(item: str) -> str:
    for pattern, instead in _MARKUP:
        item = pattern.sub(instead, item)
    return item.strip()


def _reads_like_prose(text: str) -> bool:
    """Return whether a text is made of sentences: ends with a stop, mostly plain and small words, few code symbols."""
    words = text.split()
    return (
        len(words) >= 5
        and text[-1] in ".!?:)\"'"
        and (text[0].isupper() or len(words) >= 8)
        and sum(map(bool, map(_PLAIN_WORD.match, words))) >= 0.75 * len(words)
        and sum(map(bool, map(_GLUE.match, words))) * 10 >= len(words)
        and len(_CODE.findall(text)) <= 0.03 * len(text)
    )
