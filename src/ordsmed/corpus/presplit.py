"""Export a corpus folder as JSON lines with one sentence per line of the text, the format of Megatron's first step.

    {"text": "One. Two.\\nThree.", "ends": [4, 9, 16], "id": "a:1", "meta": {"url": "..."}}
      ->  {"text": "One.\\nTwo.\\nThree.", "id": "a:1", "url": "...", "between": {"\\n": [2]}}

`between` holds separators of sentences other than a space, so that source `jsonl` with `sentences = "presplit"` gives
exactly the same documents. Metadata with the names `text`, `id`, `between` and `meta` is written under `meta`.
"""

from collections.abc import Sequence
from pathlib import Path

from ordsmed.base import files
from ordsmed.base.say import many
from ordsmed.corpus.corpus_reader import corpus_folder, making, read_documents
from ordsmed.corpus.folder import SPLITS, parts
from ordsmed.text.sentences import record


def presplit(folder: str, out: str, *, anew: bool = False) -> list[str]:
    """Write OUT/train.jsonl, validation.jsonl and test.jsonl, if the corpus has them. Return lines to print."""
    source, target = corpus_folder(folder), Path(out)
    with making(target, [source], r"(train|validation|test)\.jsonl", anew=anew) as temporary:
        part_files = {split: parts(source, split) for split in SPLITS}
        counts = {split: _write(temporary / f"{split}.jsonl", paths) for split, paths in part_files.items() if paths}
    lines = [f"{target}/{split}.jsonl: {many(count, 'document')}" for split, count in counts.items()]
    if missing := [split for split in SPLITS if split not in counts]:
        lines.append(f"no documents in the corpus's {' and '.join(missing)}")
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
