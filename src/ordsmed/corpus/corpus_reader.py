"""Open finished corpora by name, read their documents with a progress bar, and prepare output folders."""

import contextlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from ordsmed.base import files, run
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.say import Progress
from ordsmed.corpus.folder import documents, parts
from ordsmed.corpus.pipeline import Corpus
from ordsmed.text.document import Document


def read_documents(title: str, sources: Sequence[Path]) -> Iterator[Document]:
    sizes = [path.stat().st_size / 1e6 for path in sources]
    with Progress(title, sum(sizes), "MB") as bar:
        for path, size in zip(sources, sizes, strict=True):
            yield from documents(path)
            bar.add(size)


def corpus_folder(name: str) -> Path:
    """Return the folder of a finished corpus: a folder, or the result of a recipe, built if missing."""
    if "/" in name and not Path(name).exists():
        raise RecipeError(name, "no such folder", "the folder or recipe of a corpus")
    folder = run.obtain(Corpus, name)
    if not parts(folder, "train"):
        raise DataError(folder, "has no training documents", "train/00000.jsonl, ...", "make the corpus again")
    return folder


@contextlib.contextmanager
def making(target: Path, sources: Sequence[Path], pattern: str, *, anew: bool) -> Iterator[Path]:
    """Yield a folder that becomes `target` on success. Replace an existing one if its files match `pattern`."""
    check(target, sources, pattern, anew=anew)
    with files.making(target, keep=True) as folder:
        yield folder


def check(target: Path, sources: Sequence[Path], pattern: str, *, anew: bool) -> None:
    """Raise RecipeError if the target exists and must not be replaced."""
    if any(target.resolve() in (s.resolve(), *s.resolve().parents) for s in sources):
        raise RecipeError(target, "is or contains the corpus that is read", "another folder")
    if target.is_file():
        raise RecipeError(target, "is a file", "a folder to write")
    names = sorted(path.name for path in target.iterdir()) if target.exists() else []
    if strange := [name for name in names if not re.fullmatch(pattern, name)]:
        raise RecipeError(target, f"contains {strange[0]}, which this command did not write", "a new folder")
    if names and not anew:
        raise RecipeError(target, "exists", "a new folder", "name another, or add --anew: it moves this one aside")
