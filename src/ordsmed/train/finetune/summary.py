"""The summary of a finished fine-tuning, or of its trials."""

from __future__ import annotations

from pathlib import Path

from ordsmed.base.folder import FolderKind, kind_of_folder
from ordsmed.learn.score.squad import written
from ordsmed.train import trial_results
from ordsmed.train.scores import numbers, read_scores


def summary_lines(folder: Path) -> list[str]:
    facts = read_scores(folder)
    if kind_of_folder(folder) is FolderKind.TRIALS:
        lines = trial_results.summary(folder)
    else:
        scores = ", ".join(f"{name} {written(name, value, '.2f')}" for name, value in numbers(facts).items())
        lines = [f"{folder}: done" + (f"; step {facts['step']:,}: {scores}" if scores else "")]
    for key, baseline in (("guessing", "guessing"), ("word_counts", "counting words")):
        if scores_of := numbers(facts.get(key, {})):
            lines.append(f"{baseline}: " + ", ".join(f"{name} {value:.2f}" for name, value in scores_of.items()))
    return [*lines, *([str(facts["verdict"])] if "verdict" in facts else [])]
