"""The commands of pages for beginners, run one after the other as they stand, in a world so small that it is quick.

The documentation of Python is a few paragraphs of it there, as is the reader's own text, and a training a few steps;
nothing else is other than a reader's, and each page begins in an empty folder. What is not run has its reason, and a
reason that is not needed any more is a mistake.
"""

from __future__ import annotations

import io
import itertools
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ordsmed.cli import main, verb
from ordsmed.corpus.corpora import stdlib
from ordsmed.maker import hours, request

ROOT = Path(__file__).parents[2]
SHORT = ["phase=[{steps=4,length=32,batch=8,learning_rate=1e-3}]", "save=2", "validate=2", "validation_rows=8"]
TINY = ["steps=1", "rounds=1", "model.size=tiny", "length=16", "batch=2", "vocabulary=100"]
LESS = {
    "make ": ["--hours", "0.004"],
    "speedrun cpu ": ["flops=1.5e13"],
    "pretrain tiny/": SHORT,
    "pretrain continue/": ["phase.epochs=0", "phase.max_steps=0", "phase.steps=4", "validation_rows=8", "--yes"],
    "pretrain my-model/": SHORT,
    "pretrain again.toml": SHORT,
    "finetune tiny/": ["epochs=1"],
    "bench bert-mini": TINY,
}  # behind the words of the page
CLONE = "a clone and an installation, which CI begins with"
NETWORK = "asks the network"
SIZE = "of a real size; that its recipe is taken is held by test_docs.py"
SERVES = "goes on until Ctrl-C; tests/tell/report asks one"
TRACKERS = "asks for a package of others; tests/tell/trackers has stand-ins"
PROCESSES = "starts processes, as tests/base/launch and tests/train/layouts do"
NOT_RUN = {
    "README.md": {"git clone": CLONE, "cd ordsmed": CLONE, "make quickstart": CLONE, "export PATH": CLONE},
    "docs/continued-pretraining.md": {
        "ordsmed pretrain continue/domain init=google": SIZE,
        "ordsmed pretrain continue/language init=google": SIZE,
        "ordsmed estimate continue/domain": SIZE,
    },
    "docs/daily-use.md": {
        "ordsmed pretrain bert-base-transplant": SIZE,
        "ordsmed fetch": NETWORK,
        "ordsmed finetune squad-1.1": NETWORK,
        "ordsmed corpus wikipedia": NETWORK,
        "ordsmed corpus stats work/corpus/nn": NETWORK,
        "pip install": "the network",
        "ordsmed pretrain tiny/bert --devices": PROCESSES,
        "ordsmed finetune tiny/sentences 'seeds": PROCESSES,
        "ordsmed stability": PROCESSES,
        "ordsmed validate": "minutes; tests/validate has its parts",
        "ordsmed doctor": "looks at all of the machine",
        "ordsmed estimate bert-base": "asks a machine's speed; tests/estimate asks with one that is given",
        "ordsmed serve": "goes on until Ctrl-C; tests/serve asks some",
        "ordsmed report work/pretrain --watch": SERVES,
        "ordsmed report work/pretrain --to": TRACKERS,
    },
    "docs/walk-own-text.md": {},
    "docs/hand-over.md": {"pip install": "the network", "ordsmed serve": "goes on until Ctrl-C; tests/serve asks some"},
}


def lines_of(page: Path) -> Iterator[str]:
    """Every command of its blocks, without what is said of it, `a && b` as two."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"\\\n +", "", text)
    for line in re.findall(r"^ {4,}((?:[a-z]\w* ?){1,2}[^\n]*)$", text, re.MULTILINE):
        for part in re.sub(r"\s+#.*", "", line).split(" && "):
            if re.match(r"(ordsmed|python3|echo|mkdir|printf|git|make|export|pip|cd|cat|cp|tar)\b(?! =)", part):
                yield part


def give(line: str, screen: pytest.CaptureFixture[str]) -> None:
    """As a shell gives it, its output into a file where the line says so; what is no `ordsmed` is the shell's."""
    words, _, target = line.partition(" > ")
    if not line.startswith("ordsmed "):
        subprocess.run(["bash", "-e", "-c", line.replace("python3", sys.executable)], check=True)
        return
    words = words.removeprefix("ordsmed ")
    more = next((less for start, less in LESS.items() if words.startswith(start)), [])
    screen.readouterr()
    main([*shlex.split(words), *more])
    written = screen.readouterr().out
    if target:
        Path(target).write_text(written, encoding="utf-8")


@pytest.fixture
def small_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's documentation in a few paragraphs, an empty folder, and standard input that ends."""
    documents = stdlib.Stdlib().documents()
    topics = [*itertools.islice(documents, 40), *itertools.islice((d for d in documents if "?" in d.text), 5)]
    monkeypatch.setattr(stdlib.Stdlib, "documents", lambda self: iter(topics))
    monkeypatch.setattr(request, "SHORTEST_HOURS", 0.0)
    monkeypatch.setattr(hours, "CLOSING_SECONDS", 1.0)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    (tmp_path / "my-texts").mkdir()
    texts = "\n\n".join(topic.text for topic in topics)
    (tmp_path / "my-texts/notes.txt").write_text(texts, encoding="utf-8")
    (tmp_path / "docs").mkdir()
    shutil.copy(ROOT / "docs/lessons.py", "docs")


@pytest.mark.long
@pytest.mark.parametrize("page", NOT_RUN)
def test_the_commands_of_pages_run(page: str, small_world: None, capsys: pytest.CaptureFixture[str]) -> None:
    ran: set[str] = set()
    needless = dict(NOT_RUN[page])
    for line in lines_of(ROOT / page):
        if start := next((start for start in NOT_RUN[page] if line.startswith(start)), ""):
            needless.pop(start, None)
        elif line not in ran:
            ran.add(line)
            give(line, capsys)
    assert needless == {}, f"{page} has them no more, or they are run"
    assert len(ran) > 2
    for code in re.findall(
        r"^```python\n(.*?)^```", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    ):
        if "transformers" in code:
            pytest.importorskip("transformers")
        exec(code, {})
    capsys.readouterr()


def test_the_walk_says_of_the_quickstart_what_readme_measured() -> None:
    walk = (ROOT / "docs/walk-own-text.md").read_text(encoding="utf-8")
    low, high = re.findall(r"quickstart of three minutes reaches (\d+) to (\d+) %", walk)[0]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = re.findall(r"^loss on held-out .*: ([\d.]+)% below|^\| quickstart, .*? \| ([\d.]+) %", readme, re.MULTILINE)
    assert len(shown) == 2
    assert all(float(low) <= float(figure) <= float(high) for pair in shown for figure in filter(None, pair))


def test_every_verb_is_on_the_page_of_daily_use() -> None:
    page = (ROOT / "docs/daily-use.md").read_text(encoding="utf-8")
    names = {name for name in verb.names() if " " not in name} - {"quickstart", "version"}
    assert sorted(name for name in names if not re.search(rf"ordsmed (help )?{name}\b", page)) == []
