"""Finished corpora, as the verbs that read them see them: found by a name, walked with a bar, never written over."""

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
    """The documents of part files, with a bar that moves."""
    sizes = [path.stat().st_size / 1e6 for path in sources]
    with Progress(title, sum(sizes), "MB") as bar:
        for path, size in zip(sources, sizes, strict=True):
            yield from documents(path)
            bar.add(size)


def corpus_folder(name: str) -> Path:
    """The finished corpus that a name stands for: a folder, or a recipe, made once."""
    if "/" in name and not Path(name).exists():
        raise RecipeError(name, "no such folder", "the folder or recipe of a corpus")
    folder = run.obtain(Corpus, name)
    if not parts(folder, "train"):
        raise DataError(folder, "holds no training documents", "train/00000.jsonl, ...", "make the corpus again")
    return folder


@contextlib.contextmanager
def making(target: Path, sources: Sequence[Path], pattern: str, *, anew: bool) -> Iterator[Path]:
    """A folder that takes its place when all went well; what stands is replaced if its files are named as `ours`."""
    check(target, sources, pattern, anew=anew)
    with files.making(target, keep=True) as folder:
        yield folder


def check(target: Path, sources: Sequence[Path], pattern: str, *, anew: bool) -> None:
    """Refuse to write over anything that is not to be replaced."""
    if any(target.resolve() in (s.resolve(), *s.resolve().parents) for s in sources):
        raise RecipeError(target, "is, or holds, the corpus that is read", "another folder")
    if target.is_file():
        raise RecipeError(target, "is a file", "a folder to write")
    names = sorted(path.name for path in target.iterdir()) if target.exists() else []
    if strange := [name for name in names if not re.fullmatch(pattern, name)]:
        raise RecipeError(target, f"holds {strange[0]}, which this command did not write", "a new folder")
    if names and not anew:
        raise RecipeError(target, "stands", "a new folder", "name another, or add --anew: it moves this one aside")
