"""Presplit: a corpus folder as JSON lines in which each sentence is a line of the text, as in Megatron's first step.

    {"text": "One. Two.\\nThree.", "ends": [4, 9, 16], "id": "a:1", "meta": {"url": "..."}}
      ->  {"text": "One.\\nTwo.\\nThree.", "id": "a:1", "url": "...", "between": {"\\n": [2]}}

Where something else than a space stood between two sentences, `between` says what and where, so that source `jsonl`
with `sentences = "presplit"` gives the very documents again. A document's own keys `text`, `id`, `between` and `meta`
stand under `meta`.
"""

from collections.abc import Sequence
from pathlib import Path

from ordsmed.base import files
from ordsmed.base.say import many
from ordsmed.corpus.folder import SPLITS, parts
from ordsmed.corpus.opened import corpus_folder, making, read_documents
from ordsmed.text.sentences import record


def presplit(folder: str, out: str, *, anew: bool = False) -> list[str]:
    """Write OUT/train.jsonl, validation.jsonl and test.jsonl, as far as the corpus has them; lines that tell of it."""
    source, target = corpus_folder(folder), Path(out)
    with making(target, [source], r"(train|validation|test)\.jsonl", anew=anew) as place:
        part_files = {split: parts(source, split) for split in SPLITS}
        counts = {split: _write(place / f"{split}.jsonl", paths) for split, paths in part_files.items() if paths}
    lines = [f"{target}/{split}.jsonl: {many(count, 'document')}" for split, count in counts.items()]
    if lacking := [split for split in SPLITS if split not in counts]:
        lines.append(f"no documents in the corpus's {' and '.join(lacking)}")
    return [*lines, "to read it: source.kind=jsonl source.id_key=id sentences=presplit"]


def _write(path: Path, sources: Sequence[Path]) -> int:
    import msgspec

    encode, count = msgspec.json.Encoder().encode, 0
    with files.survive_disk(path):
        file = path.open("wb", buffering=1 << 20)
    with file:
        for document in read_documents(path.stem, sources):
            line = encode(record(document)) + b"\n"
            with files.survive_disk(path):
                file.write(line)
            count += 1
        with files.survive_disk(path):
            file.flush()
            files.sync(path)
    return count
