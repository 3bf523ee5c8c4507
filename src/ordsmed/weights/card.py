"""The model card: README.md with Hugging Face's front matter, made from the files of a run.

It describes the network, data, settings, training, scores and use. The card of a fine-tuned model also names its task,
compares its scores with baselines, and shows code that uses the task's head.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

from ordsmed.base import files, settings
from ordsmed.base.identity import identity
from ordsmed.base.menu import headline
from ordsmed.base.run import Run
from ordsmed.base.say import many
from ordsmed.base.screen import markdown
from ordsmed.learn.score.metrics import in_words
from ordsmed.learn.score.squad import written
from ordsmed.learn.task import NO_SCORES, Task
from ordsmed.learn.usage import Usage
from ordsmed.text.language import CODE
from ordsmed.weights import example_sentences, probe_results
from ordsmed.weights.origin import planned
from ordsmed.weights.text_amount import data_of, metrics
from ordsmed.weights.trained_model import Trained

Table = dict[str, Any]
MACHINE = ("out", "layout")  # keys of a recipe that depend on the machine
DATASET = re.compile(r"[\w.-]+(?:/[\w.-]+)?")  # the hub's form of a data set's name
_LICENCES = """
    afl-3.0 agpl-3.0 apache-2.0 artistic-2.0 bsd bsd-2-clause bsd-3-clause bsl-1.0 c-uda cc cc-by-2.0 cc-by-2.5
    cc-by-3.0 cc-by-4.0 cc-by-nc-2.0 cc-by-nc-3.0 cc-by-nc-4.0 cc-by-nc-nd-3.0 cc-by-nc-nd-4.0 cc-by-nc-sa-2.0
    cc-by-nc-sa-3.0 cc-by-nc-sa-4.0 cc-by-nd-4.0 cc-by-sa-3.0 cc-by-sa-4.0 cc0-1.0 cdla-permissive-2.0
    cdla-sharing-1.0 ecl-2.0 epl-1.0 epl-2.0 eupl-1.1 eupl-1.2 gfdl gpl gpl-2.0 gpl-3.0 isc lgpl lgpl-2.1 lgpl-3.0 mit
    mpl-2.0 ms-pl ncsa odbl odc-by ofl-1.1 openrail osl-3.0 pddl postgresql unknown unlicense wtfpl zlib
"""
LICENCES = frozenset(_LICENCES.split())  # identifiers of the hub
TRAINING = ("epochs", "steps", "batch", "learning_rate", "warmup", "layer_decay", "freeze", "average", "clip", "seed")


def write(
    trained: Trained,
    name: str,
    licence: str | None = None,
    usage: Usage | None = None,
    *,
    title: str = "",
    language: str = "",
) -> str:
    """Return the model card as Markdown.

    Args:
        name: the model's folder in the code on the card.
        usage: how the written files are used; None: as the model's objective describes it.
        title: heading of the card; empty: `name`.
        language: language of the model; empty: the languages of its data.
    """
    data = [{**facts, "language": facts.get("language") or language} for facts in _data(trained)]
    usage = (usage or _usage(trained, name)).with_examples(example_sentences.examples(trained))
    results = [
        result
        for result in probe_results.read(trained.folder / probe_results.SCORES)
        if result.get("step") == trained.step
    ]
    cells = [row[1:] for result in results for row in probe_results.rows(result)]
    probes = "## Probes\n\n" + "\n".join(markdown(probe_results.HEAD[1:], cells)) if cells else ""
    parts = [
        _front(trained, usage, data, licence, language),
        f"# {title or name}",
        _description(trained, usage.does),
        _data_section(data),
        _settings_section(trained),
        _training(trained),
        _scores(trained),
        probes,
        f"## How to use it\n\n{usage.how}" if usage.how else "",
        _origin_section(trained),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def inner(trained: Trained, name: str) -> dict[str, str]:
    """Return a card for each subfolder with another network (ELECTRA's generator), by folder name."""
    usage = _usage(trained, name)
    head = f"---\nlibrary_name: transformers\npipeline_tag: {usage.pipeline}\n---\n\n"
    return {folder: f"{head}{text}\n" for folder, text in usage.inner.items()}


def _usage(trained: Trained, name: str) -> Usage:
    return trained.objective.usage(name, trained.tokenizer, trained.learned)


def _front(trained: Trained, usage: Usage, data: list[Table], licence: str | None, language: str) -> str:
    """Return the YAML front matter, with values that the Hugging Face hub accepts. JSON strings are valid YAML."""
    library = [f"library_name: {usage.library}"] if trained.settings.architectures else []
    lines = [*library, f"pipeline_tag: {usage.pipeline}"]
    if licence and licence.lower() in LICENCES:
        lines.append(f"license: {json.dumps(licence.lower())}")
    elif licence:
        short = re.sub(r"[^a-z0-9.]+", "-", licence.lower()).strip("-")
        lines += ["license: other", f"license_name: {json.dumps(short)}"]
    lists = {
        "language": list(filter(CODE.fullmatch, _as_list([language] if language else (d["language"] for d in data)))),
        "tags": [trained.kind, usage.pipeline, *usage.tags, "ordsmed"],
        "datasets": list(filter(DATASET.fullmatch, _as_list(d.get("title") for d in data))),
    }
    for key, values in lists.items():
        if values:
            lines += [f"{key}:", *(f"- {json.dumps(value, ensure_ascii=False)}" for value in values)]
    return "\n".join(["---", *lines, "---"])


def _description(trained: Trained, does: str) -> str:
    count = sum(t.numel() for t in trained.objective.networks()[""].tensors().values())
    extra = [name for name in trained.objective.networks() if name]
    if extra:
        does += f"; the {extra[0]} it was trained with is in the folder `{extra[0]}`"
    tokenizer, longest = trained.tokenizer, getattr(trained.learned, "length", trained.settings.longest())
    takes = f"texts of up to {longest:,} tokens of a vocabulary of {tokenizer.vocabulary:,} ({tokenizer.kind})"
    if trained.settings.capabilities.state:
        takes = "texts of any length and words of any kind"
    return (
        f"{headline(type(trained.settings).__module__)} This one has {count:,} parameters and {does}. It takes {takes}."
    )


def _data_section(data: list[Table]) -> str:
    if not data:
        return ""
    if "records" in data[0]:
        rows = [[d["split"], d["name"], *(f"{d[key]:,}" for key in ("records", "examples", "tokens"))] for d in data]
        return "## Data\n\n" + _table(["split", "files", "records", "examples", "tokens"], rows)
    rows = []
    for d in data:
        sizes = [d.get(split) for split in ("train", "validation")]
        counts = [f"{many(s['documents'], 'document')}, {many(s['tokens'], 'token')}" if s else "none" for s in sizes]
        title = d.get("title") or d["name"]
        rows.append(
            [title, d.get("language") or "not said", d.get("licence") or "not said", f"{d['share']:.0%}", *counts]
        )
    return "## Data\n\n" + _table(["data", "language", "licence", "share", "training", "held out"], rows)


def _settings_section(trained: Trained) -> str:
    table = settings.plain(trained.settings)
    text = "## Settings\n\n" + _table(["network", ""], [[k, v] for k, v in table.items()])
    if _fine_tuned(trained):
        learned = settings.plain(trained.learned)
        chosen = {k: v for k, v in learned.items() if k not in ("kind", "train", "dev", "top", "labels") and v != ""}
        text += "\n\n" + _table(["task", learned["kind"]], [[k, _said(v)] for k, v in chosen.items()])
    if not trained.recipe:
        return text
    if _fine_tuned(trained):
        rows = [[k, trained.recipe[k]] for k in TRAINING if trained.recipe.get(k)]
        rows += [[k, trained.recipe[k]] for k in ("optimizer", "schedule", "adapters") if k in trained.recipe]
        return text + "\n\n" + _table(["training", ""], [[k, _said(v)] for k, v in rows])
    objective = trained.recipe["objective"]
    objective = {"kind": objective} if isinstance(objective, str) else objective
    text += "\n\n" + _table(["objective", ""], [[k, v] for k, v in objective.items()])
    phases = trained.recipe["phase"]
    keys = list(dict.fromkeys(k for phase in phases for k in phase if k != "epochs"))  # a run's phases have steps
    rows = [[n, *(_said(phase.get(k, "")) for k in keys)] for n, phase in enumerate(phases, 1)]
    return text + "\n\n" + _table(["phase", *keys], rows)


def _training(trained: Trained) -> str:
    if not trained.recipe or trained.step is None:
        return ""
    steps, last = planned(trained.recipe), Run(trained.folder).status
    text = f"## Training\n\n{trained.step:,} of {many(steps, 'step')}"
    if last.get("state") != "done" and trained.step < steps:
        text += " (the run is not finished)"
    seen = [line for line in metrics(trained) if "tokens" in line]
    if seen:
        hours = sum(line.get("seconds", 0) for line in seen) / 3600
        text += f", {many(sum(line['tokens'] for line in seen), 'token')} seen, {many(round(hours, 2), 'hour')}"
    init = _without_folders(trained.recipe.get("init"))
    return text + (f"; started from the weights of `{init}`." if init else "; started from random weights.")


def _scores(trained: Trained) -> str:
    if _fine_tuned(trained):
        return _scores_of_task(trained)
    facts = _score_table(trained)
    guessed, terms = _guessing_scores(trained, facts), list(trained.objective.weights)
    rights = [k for k in facts if k.endswith("_right")]
    names = {
        **{term: _term_name(term, "loss (nats a prediction)", terms) for term in terms},
        **{name: _term_name(name.removesuffix("_right"), "right", terms) for name in rights},
        **{name: name for name in trained.objective.measures},
        **({"validation": "weighted sum of these losses"} if terms[1:] else {}),
        "loss": "training loss, last step",
    }
    rows = [
        [title, _measure(trained, k, facts[k]), _measure(trained, k, guessed[k]) if k in guessed else ""]
        for k, title in names.items()
        if k in facts
    ]
    if not rows:
        return ""
    head = ["score, on held-out text unless it says training", "this model", "guessing by frequency"]
    return "## Scores\n\n" + _table(head, rows)


def _term_name(name: str, unit: str, terms: list[str]) -> str:
    return unit if terms == [name] else f"{name}: {unit}"


def _measure(trained: Trained, name: str, value: Any) -> str:
    if not isinstance(value, int | float) or math.isnan(value):
        return "none"
    return in_words(name, value) if name.endswith("_right") or name in trained.objective.measures else f"{value:.4f}"


def _guessing_scores(trained: Trained, facts: Table) -> Table:
    """Return the scores of guessing by token frequency, from scores.json; empty if the run recorded none."""
    ended, guesses = trained.folder / "scores.json", trained.objective.guesses
    noted = files.read_table(ended) if trained.recipe and ended.exists() else {}
    if "unigram" not in noted:
        return {}
    right = noted.get("guessing", {}).get(f"{guesses}_right", noted.get("guessing", {}).get("forward_right"))
    guess = trained.objective.guessing(facts, noted["unigram"], math.nan if right is None else right)
    return {name: value for name, value in guess.items() if not math.isnan(value)}


def _score_table(trained: Trained) -> Table:
    ended = trained.folder / "scores.json"
    facts = files.read_table(ended) if trained.recipe and ended.exists() else {}
    if facts.get("step") != trained.step:
        judged = [line for line in metrics(trained) if "validation" in line]
        facts = judged[-1] if judged else {}
    return dict(facts)


def _scores_of_task(trained: Trained) -> str:
    facts = {"loss" if k == "validation" else k: v for k, v in _score_table(trained).items()}
    names = [k for k in facts if k not in NO_SCORES]
    if not names:
        return ""
    columns = {"score": {name: name for name in names}, "this model": facts}
    baselines = {"guessing": "guessing", "counting words": "word_counts"}
    columns |= {title: facts[key] for title, key in baselines.items() if key in facts}
    rows = [[written(name, column.get(name, "")) for column in columns.values()] for name in names]
    dev = ", ".join(f"`{Path(path).name}`" for path in trained.learned.paths("dev"))
    return f"## Scores\n\nOn {dev}, in per cent but for the loss and thresholds:\n\n" + _table(list(columns), rows)


def _origin_section(trained: Trained) -> str:
    path = trained.folder / "environment.json"
    facts = files.read_table(path) if path.exists() else {}
    version = facts.get("ordsmed", identity())
    text = f"## How it was made\n\nWith ordsmed {version}"
    if not trained.recipe:
        return text + ", from a folder of weights; how they were trained is not known here."
    recipe = settings.write(_without_folders({k: v for k, v in trained.recipe.items() if k not in MACHINE})).rstrip()
    verb = "finetune" if _fine_tuned(trained) else "pretrain"
    return text + f", by `ordsmed {verb}` and this recipe:\n\n```toml\n{recipe}\n```"


def _without_folders(value: Any) -> Any:
    """Return a recipe with absolute paths shortened to their last part: other machines have other folders."""
    if isinstance(value, dict):
        return {_without_folders(k): _without_folders(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_without_folders(v) for v in value]
    return Path(value).name if isinstance(value, str) and Path(value).is_absolute() else value


def _data(trained: Trained) -> list[Table]:
    if not trained.recipe:
        return []
    if _fine_tuned(trained):
        kept = trained.folder / "data.json"
        table = files.read_table(kept) if kept.exists() else {}
        return [
            {**facts, "name": ", ".join(Path(path).name for path in paths.split(", "))}
            for paths, facts in table.items()
        ]
    return data_of(trained)


def _fine_tuned(trained: Trained) -> bool:
    return isinstance(trained.objective, Task)


def _as_list(values: Any) -> list[str]:
    return list(dict.fromkeys(v for v in values if v))


def _said(value: Any) -> str:
    return ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else str(value)


def _table(head: list[str], rows: Any) -> str:
    return "\n".join(markdown(head, rows))
