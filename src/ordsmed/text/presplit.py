"""Presplit: a corpus folder as JSON lines in which each sentence is a line of the text, as in Megatron's first step.

    {"text": "One. Two.\\nThree.", "ends": [4, 9, 16], "id": "a:1", "meta": {"url": "..."}}
      ->  {"text": "One.\\nTwo.\\nThree.", "id": "a:1", "url": "...", "between": {"\\n": [2]}}

Where something else than a space stood between two sentences, `between` says what and where, so that source `jsonl`
with `sentences = "presplit"` gives the very documents again. A document's own keys `text`, `id`, `between` and `meta`
stand under `meta`.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from ordsmed.base import files, run
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.say import Progress, say
from ordsmed.text.document import Document
from ordsmed.text.folder import SPLITS, documents, parts
from ordsmed.text.pipeline import Corpus
from ordsmed.text.sentences import record


def presplit(folder: str, out: str, *, anew: bool = False) -> list[str]:
    """Write OUT/train.jsonl, validation.jsonl and test.jsonl, as far as the corpus has them; lines that tell of it."""
    source, target = corpus_folder(folder), Path(out)
    with making(target, [source], r"(train|validation|test)\.jsonl", anew=anew) as made:
        counts = {split: _write(made / f"{split}.jsonl", found) for split in SPLITS if (found := parts(source, split))}
    told = [f"{target}/{split}.jsonl: {count:,} documents" for split, count in counts.items()]
    return [*told, "to read it: source.kind=jsonl source.id_key=id sentences=presplit"]


def _write(path: Path, sources: Sequence[Path]) -> int:
    import msgspec

    encode, count = msgspec.json.Encoder().encode, 0
    with files.survive_disk(path):
        file = path.open("wb", buffering=1 << 20)
    with file:
        for document in shown(path.stem, sources):
            line = encode(record(document)) + b"\n"
            with files.survive_disk(path):
                file.write(line)
            count += 1
        with files.survive_disk(path):
            file.flush()
            files.sync(path)
    return count


def shown(title: str, sources: Sequence[Path]) -> Iterator[Document]:
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
    found = run.obtain(Corpus, name)
    if not parts(found, "train"):
        raise DataError(found, "holds no training documents", "train/00000.jsonl, ...", "make the corpus again")
    return found


@contextlib.contextmanager
def making(target: Path, sources: Sequence[Path], ours: str, *, anew: bool) -> Iterator[Path]:
    """A folder that takes its place when all went well; what stands is replaced if its files are named as `ours`."""
    check(target, sources, ours, anew=anew)
    beside = target.with_name(f".{target.name}.part")
    with files.survive_disk(target):
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(parents=True)
    try:
        yield beside
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise
    with files.survive_disk(target):
        old = target.with_name(f".{target.name}.old")
        shutil.rmtree(old, ignore_errors=True)
        if target.exists():
            target.rename(old)
        beside.rename(target)
        shutil.rmtree(old, ignore_errors=True)


def check(target: Path, sources: Sequence[Path], ours: str, *, anew: bool) -> None:
    """Refuse to write over anything that is not to be replaced."""
    if any(target.resolve() in (s.resolve(), *s.resolve().parents) for s in sources):
        raise RecipeError(target, "is, or holds, the corpus that is read", "another folder")
    if target.is_file():
        raise RecipeError(target, "is a file", "a folder to write")
    names = sorted(path.name for path in target.iterdir()) if target.exists() else []
    if strange := [name for name in names if not re.fullmatch(ours, name)]:
        raise RecipeError(target, f"holds {strange[0]}, which this command did not write", "a new folder")
    if names and not anew:
        raise RecipeError(target, "stands", "a new folder", "name another, or add --anew to replace it")
    if names:
        say(f"{target}: what stands there is replaced")
