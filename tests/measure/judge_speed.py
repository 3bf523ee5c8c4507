"""What the linear judge costs: seconds of the CPU a MB of UTF-8 of one process, and of each worker of `ordsmed corpus`.

python tests/measure/judge_speed.py FOLDER [CHARACTERS]     # pages of invented words, 1,600 characters each
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from ordsmed.base.folder import FolderKind
from ordsmed.base.run import Run
from ordsmed.corpus.linear import Linear

PAGES, COPIES = 1_500, 6  # pages of one reading, and how often the corpus has them
LETTERS = "etaoinshrdlucmfwypvbgkjqxzæøå"


def pages(size: int) -> list[str]:
    chance = random.Random(1)
    words = ["".join(chance.choice(LETTERS) for _ in range(chance.randint(1, 10))) for _ in range(20_000)]

    def page() -> str:
        some = [words[min(int(chance.paretovariate(0.6)), len(words) - 1)] for _ in range(size // 4)]
        return " ".join(word + chance.choice(["", "", "", "", "", ",", ".", "\n"]) for word in some)[:size]

    return [page() for _ in range(PAGES)]


def workers(recipe: Path) -> dict[int, float]:
    """Seconds of the CPU of the command's first process and of those it starts, by their numbers."""
    spent = dict[int, float]()
    words = [sys.executable, "-m", "ordsmed", "corpus", str(recipe), "--anew"]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as command:
        while command.poll() is None:
            for place in Path("/proc").glob("[0-9]*"):
                try:
                    facts = (place / "stat").read_text().rpartition(")")[2].split()
                except OSError:  # it ended
                    continue
                if command.pid in (number := int(place.name), int(facts[1])):
                    spent[number] = (int(facts[11]) + int(facts[12])) / 100
            time.sleep(0.02)
        assert command.returncode == 0
    return spent


def main(folder: Path, size: int) -> None:
    texts, weights = pages(size), np.random.default_rng(0).standard_normal((1 << 20, 2), np.float32)
    judge = Linear(("one", "other"), weights, np.zeros(2, np.float32))
    amount, spent = sum(len(text.encode()) for text in texts) / 1e6, list[float]()
    for _ in range(6):
        began = time.process_time()
        for text in texts:
            judge.probabilities(text)
        spent.append((time.process_time() - began) / amount)
    print(f"{amount:.1f} MB: {min(spent):.4f} s of the CPU a MB, {1 / min(spent):.0f} MB/s of one process")
    shutil.rmtree(folder / "judge", ignore_errors=True)
    (folder / "judge").mkdir(parents=True)
    judge.save(folder / "judge")
    Run(folder / "judge").set(verb=FolderKind.JUDGE.value, state="done", labels=list(judge.labels))
    lines = (json.dumps({"text": f"{copy} {text}"}) + "\n" for copy in range(COPIES) for text in texts)
    (folder / "texts.jsonl").write_text("".join(lines))
    step = f'{{ kind = "judge", run = "{folder}/judge", label = "one", least = 0.0 }}'
    for clean in ("", step):
        recipe = folder / "corpus.toml"
        recipe.write_text(
            f'source = {{ kind = "jsonl", path = "{folder}/texts.jsonl" }}\nclean = [{clean}]\n'
            f'sentences = "none"\nprocesses = 2\nout = "{folder}/corpus"\n'
        )
        told = ", ".join(f"{seconds:.2f} s" for seconds in workers(recipe).values() if seconds > 0.1)
        how = "with" if clean else "without"
        print(f"corpus of {amount * COPIES:.1f} MB, {how} the judge, process by process: {told}")


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute(), int(sys.argv[2]) if sys.argv[2:] else 1_600)
