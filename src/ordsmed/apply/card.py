"""The model card: what a model is, what it learned from, how, how well, and how to use it, in Markdown.

recipe.toml, status.json of run and data, metrics.jsonl  ->  README.md with Hugging Face's front matter

Of a fine-tuned model: which task, from which files, its scores beside those of guessing, and code that asks it.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import ordsmed
from ordsmed.apply.origin import planned, sources, standing
from ordsmed.apply.trained import Trained
from ordsmed.base import files, settings
from ordsmed.base.errors import OrdsmedError
from ordsmed.base.menu import headline, load
from ordsmed.base.run import Run, at_home
from ordsmed.base.say import many
from ordsmed.base.screen import markdown
from ordsmed.labelled import glue
from ordsmed.learn.task import Task
from ordsmed.score.metrics import in_words
from ordsmed.score.squad import written

Table = dict[str, Any]
TASKS = {"classify": "text-classification", "tag": "token-classification", "span": "question-answering"}
MACHINE = ("out", "layout")  # of a recipe: how a machine did it
TRAINING = ("epochs", "steps", "batch", "rate", "warmup", "layer_decay", "freeze", "average", "clip", "seed")


def write(trained: Trained, name: str, licence: str | None = None) -> str:
    """The whole card."""
    data = _data(trained)
    parts = [
        _front(trained, data, licence),
        f"# {name}",
        _what(trained),
        _data_section(data),
        _settings_section(trained),
    ]
    parts += [_training(trained), _scores(trained), _use(trained, name), _made(trained)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _front(trained: Trained, data: list[Table], licence: str | None) -> str:
    """The YAML head; JSON strings are YAML strings."""
    library = ["library_name: transformers"] if trained.settings.architectures else []
    lines = [*library, f"pipeline_tag: {_task(trained)}"]
    if licence:
        lines.append(f"license: {json.dumps(licence)}")
    lists = {
        "language": _each(d.get("language") for d in data), "tags": [trained.kind, _task(trained), "ordsmed"],
        "datasets": _each(d.get("title") for d in data),
    }  # fmt: skip
    for key, values in lists.items():
        if values:
            lines += [f"{key}:", *(f"- {json.dumps(value, ensure_ascii=False)}" for value in values)]
    return "\n".join(["---", *lines, "---"])


def _what(trained: Trained) -> str:
    count = sum(t.numel() for t in trained.objective.networks()[""].tensors().values())
    how = _what_for(trained) if _fine_tuned(trained) else {
        "fill-mask": "fills masked tokens, seeing both sides", "text-generation": "predicts the next token",
        "feature-extraction": "tells which tokens of a text are not the real ones",
    }[_task(trained)]  # fmt: skip
    if trained.settings.capabilities.state:
        how = "gives vectors of words in their sentence, from their letters"
    if trained.objective.shifted:
        how = "goes on with texts, each token seeing those before it, and fills gaps, seeing both sides"
    others = [name for name in trained.objective.networks() if name]
    if others:
        how += f"; beside it the {others[0]} that it learned with, in the folder `{others[0]}`"
    tokenizer, longest = trained.tokenizer, getattr(trained.learned, "length", trained.settings.longest())
    takes = f"texts of up to {longest:,} tokens of a vocabulary of {tokenizer.vocabulary:,} ({tokenizer.kind})"
    if trained.settings.capabilities.state:
        takes = "texts of any length and words of any kind"
    return (
        f"{headline(type(trained.settings).__module__)} This one has {count:,} parameters and {how}. It takes {takes}."
    )


def _what_for(trained: Trained) -> str:
    """What a fine-tuned model is asked for."""
    learned = trained.learned
    if _task(trained) == "question-answering":
        none = ", or says that it holds no answer" if learned.version == "2.0" else ""
        return f"answers a question by a part of a text{none}"
    if trained.objective.networks()[""].number:
        return f"tells a number of {_texts(learned)}, from {learned.scale[0]:g} to {learned.scale[1]:g}"
    labels = ", ".join(f"`{label}`" for label in learned.labels)
    return (
        f"tells {f'the class of {_texts(learned)}' if learned.role == 'classify' else 'the tag of each word'}: {labels}"
    )


def _texts(learned: Any) -> str:
    return "two texts" if _of_pairs(learned) else "a text"


def _of_pairs(learned: Any) -> bool:
    return bool(learned.second or (learned.name and "second" in glue.named(learned.name).columns))


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
    own = settings.plain(trained.settings)
    text = "## Settings\n\n" + _table(["network", ""], [[k, v] for k, v in own.items()])
    if _fine_tuned(trained):
        learned = settings.plain(trained.learned)
        told = {k: v for k, v in learned.items() if k not in ("kind", "train", "dev", "top", "labels") and v != ""}
        text += "\n\n" + _table(["task", learned["kind"]], [[k, _said(v)] for k, v in told.items()])
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
    keys = list(dict.fromkeys(k for phase in phases for k in phase if k != "epochs"))  # a run's are steps
    rows = [[n, *(_said(phase.get(k, "")) for k in keys)] for n, phase in enumerate(phases, 1)]
    return text + "\n\n" + _table(["phase", *keys], rows)


def _training(trained: Trained) -> str:
    if not trained.recipe or trained.step is None:
        return ""
    steps, last = planned(trained.recipe), Run(trained.folder).status
    text = f"## Training\n\n{trained.step:,} of {steps:,} steps"
    if last.get("state") != "done" and trained.step < steps:
        text += " (the run is not finished)"
    seen = [line for line in _metrics(trained) if "tokens" in line]
    if seen:
        hours = sum(line.get("seconds", 0) for line in seen) / 3600
        text += f", {many(sum(line['tokens'] for line in seen), 'token')} seen, {hours:.2f} hours"
    init = _of_no_machine(trained.recipe.get("init"))
    return text + (f"; started from the weights of `{init}`." if init else "; started from random weights.")


def _scores(trained: Trained) -> str:
    """Every number beside what it is compared with."""
    if _fine_tuned(trained):
        return _scores_of_task(trained)
    facts = _score_table(trained)
    guessed, terms = _guessed(trained, facts), list(trained.objective.weights)
    rights = [k for k in facts if k.endswith("_right")]
    names = {
        **{term: _called(term, "loss (nats a prediction)", terms) for term in terms},
        **{name: _called(name.removesuffix("_right"), "right", terms) for name in rights},
        **{name: name for name in trained.objective.measures},
        **({"validation": "weighted sum of these losses"} if terms[1:] else {}),
        "loss": "training loss, last step",
    }  # fmt: skip
    rows = [[told, _measure(trained, k, facts[k]), _measure(trained, k, guessed[k]) if k in guessed else ""]
            for k, told in names.items() if k in facts]  # fmt: skip
    if not rows:
        return ""
    head = ["score, on held-out text unless it says training", "this model", "guessing by frequency"]
    return "## Scores\n\n" + _table(head, rows)


def _called(name: str, what: str, terms: list[str]) -> str:
    return what if terms == [name] else f"{name}: {what}"


def _measure(trained: Trained, name: str, value: Any) -> str:
    """A number for a person; a run that failed may have left none."""
    if not isinstance(value, int | float) or math.isnan(value):
        return "none"
    return in_words(name, value) if name.endswith("_right") or name in trained.objective.measures else f"{value:.4f}"


def _guessed(trained: Trained, facts: Table) -> Table:
    """What guessing by frequency gets: as noted at the run's end; of tokens it is the same at every step."""
    ended, guesses = trained.folder / "scores.json", trained.objective.guesses
    noted = files.read_table(ended) if trained.recipe and ended.exists() else {}
    if "unigram" not in noted:
        return {}
    right = noted.get("guessing", {}).get(f"{guesses}_right", noted.get("guessing", {}).get("forward_right"))
    found = trained.objective.guessing(facts, noted["unigram"], math.nan if right is None else right)
    return {name: value for name, value in found.items() if not math.isnan(value)}


def _score_table(trained: Trained) -> Table:
    ended = trained.folder / "scores.json"
    facts = files.read_table(ended) if trained.recipe and ended.exists() else {}
    if facts.get("step") != trained.step:
        judged = [line for line in _metrics(trained) if "validation" in line]
        facts = judged[-1] if judged else {}
    return dict(facts)


def _scores_of_task(trained: Trained) -> str:
    """On the dev files, beside those of who knows only how often what is right."""
    facts = {"loss" if k == "validation" else k: v for k, v in _score_table(trained).items()}
    names = [k for k in facts if k not in ("step", "phase", "examples", "guessing")]
    if not names:
        return ""
    columns = {"score": {name: name for name in names}, "this model": facts}
    columns |= {"guessing": facts["guessing"]} if "guessing" in facts else {}
    rows = [[written(name, column.get(name, "")) for column in columns.values()] for name in names]
    dev = ", ".join(f"`{Path(path).name}`" for path in trained.learned.paths("dev"))
    return f"## Scores\n\nOn {dev}, in per cent but for the loss and thresholds:\n\n" + _table(list(columns), rows)


def _use(trained: Trained, name: str) -> str:
    if trained.settings.capabilities.state:
        return _use_of_an_elmo(name)
    if _task(trained) == "feature-extraction":
        return _use_of_a_detector(trained, name)
    if _fine_tuned(trained):
        asks = {"classify": _asks_class, "tag": _asks_tags, "span": _asks_answer}[trained.learned.role]
        return f"## How to use it\n\nWith `{name}` the path of this folder:\n\n```python\n{asks(trained, name)}```"
    if trained.objective.shifted:
        return _use_of_a_hybrid(trained, name)
    if trained.causal:
        asked = f'pipeline("text-generation", model={json.dumps(name)})\nprint(ask("Once", max_new_tokens=20))'
    else:
        mask = trained.tokenizer.mask
        text = f"This is a {trained.tokenizer.piece(mask) if mask is not None else '[MASK]'}."
        asked = f'pipeline("fill-mask", model={json.dumps(name)})\nprint(ask({json.dumps(text)}))'
    kind = "AutoModelForCausalLM" if trained.causal else "AutoModelForMaskedLM"
    code = (
        f"from transformers import AutoTokenizer, {kind}, pipeline\n\nask = {asked}\n\n"
        f"tokenizer = AutoTokenizer.from_pretrained({json.dumps(name)})\n"
        f"model = {kind}.from_pretrained({json.dumps(name)})"
    )
    return f"## How to use it\n\nWith `{name}` the path of this folder:\n\n```python\n{code}\n```"


def _use_of_a_hybrid(trained: Trained, name: str) -> str:
    """Both ways of reading: what comes next is asked as of any causal model, gaps are asked of the place before."""
    folder = json.dumps(name if trained.causal else f"{name}/causal")
    text = (
        f"It has learned to go on with texts and to fill gaps. With `{name}` the path of this folder:\n\n```python\n"
        f'from transformers import pipeline\n\nask = pipeline("text-generation", model={folder})\n'
        'print(ask("Once", max_new_tokens=20))\n```\n\n'
    )
    if trained.causal:
        return f"## How to use it\n\n{text}No class of transformers fills its gaps; `ordsmed fill` and `embed` do."
    tokenizer = trained.tokenizer
    end = tokenizer.piece(tokenizer.end if tokenizer.end is not None else tokenizer.stop or 0)
    mask = tokenizer.piece(tokenizer.mask or 0)
    code = f"""import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained({json.dumps(name)})
model = AutoModelForMaskedLM.from_pretrained({json.dumps(name)}).eval()
asked = tokenizer({json.dumps(f"{end}This is a {mask}.{end}")}, add_special_tokens=False, return_tensors="pt")
gap = (asked["input_ids"][0] == tokenizer.mask_token_id).nonzero()[0, 0]
with torch.no_grad():
    scores = model(**asked).logits[0, gap - 1]  # of the place BEFORE the gap
print(tokenizer.decode(scores.argmax()))
"""
    shifted = (
        "The folder `causal` holds the same weights for a class that reads causally (`ModernBertDecoderForCausalLM`).\n"
        "**This folder's class fills gaps, from the place before each**: the scores at a place are of the token that\n"
        'comes next, so `pipeline("fill-mask")`, which asks the gap itself, gets nothing of worth. Texts stand\n'
        f"between two `{end}`.\n\n```python\n{code}```"
    )
    return f"## How to use it\n\n{text}{shifted}"


def inner(trained: Trained, name: str) -> dict[str, str]:
    """Cards of the folders inside, where one needs to be told from the other."""
    if "causal" not in trained.objective.exported():
        return {}
    text = (
        f"# {name}/causal\n\nThe weights of the folder above, for a class that reads causally: a token sees those\n"
        "before it, and the scores at a place are of the token that comes next. The folder above fills gaps."
    )
    return {"causal": f"---\nlibrary_name: transformers\npipeline_tag: text-generation\n---\n\n{text}\n"}


def _use_of_a_detector(trained: Trained, name: str) -> str:
    kind = trained.settings.architectures["detect"]
    code = (
        f"import torch\nfrom transformers import AutoTokenizer, {kind}\n\n"
        f"tokenizer = AutoTokenizer.from_pretrained({json.dumps(name)})\n"
        f"model = {kind}.from_pretrained({json.dumps(name)})\n"
        'asked = tokenizer("This is a text.", return_tensors="pt")\n'
        "print((model(**asked).logits > 0).long())  # 1: not the real token\n"
    )
    return f"## How to use it\n\nWith `{name}` the path of this folder:\n\n```python\n{code}```"


def _asks_class(trained: Trained, name: str) -> str:
    learned, number = trained.learned, trained.objective.networks()[""].number
    asked = '{"text": "Rain falls.", "text_pair": "It is wet."}' if _of_pairs(learned) else '"Rain falls."'
    told, note = f"ask({asked}, truncation=True, max_length={learned.length})", ""
    if number and learned.scale != (0.0, 1.0) and not load("formats", "huggingface").tells(trained):
        low, high = learned.scale
        told, note = f'{low:g} + {high - low:g} * {told}[0]["score"]', "  # its class has no place for the scale"
    return (
        f'from transformers import pipeline\n\nask = pipeline("text-classification", model={json.dumps(name)})\n'
        f"print({told}){note}\n"
    )


def _asks_tags(trained: Trained, name: str) -> str:
    grouped = all(label == "O" or label[:2] in ("B-", "I-") for label in trained.learned.labels)
    how = ', aggregation_strategy="first"' if grouped else ""
    return (
        f'from transformers import pipeline\n\nask = pipeline("token-classification", model={json.dumps(name)}{how})\n'
        'for found in ask("Rain falls in Bergen ."):\n    print(found)\n'
    )


def _asks_answer(trained: Trained, name: str) -> str:
    """Without a pipeline, which transformers has no more: the best part of a context that is not too long."""
    learned = trained.learned
    texts = "question.lower(), context.lower()" if learned.lowercase else "question, context"
    threshold = 0.0 if learned.threshold == "dev" else learned.threshold
    none = f"scores[0, 0] - best.max() > {threshold}"
    told = "context[places[start][0] : places[end][1]]"
    told = f'"no answer" if {none} else {told}' if learned.version == "2.0" else told
    return f"""import torch
from transformers import AutoModelForQuestionAnswering, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained({json.dumps(name)})
model = AutoModelForQuestionAnswering.from_pretrained({json.dumps(name)}).eval()
question, context = "What falls?", "It is wet, for rain falls."

asked = tokenizer({texts}, truncation="only_second", max_length={learned.length},
                  return_offsets_mapping=True, return_tensors="pt")
places, inside = asked.pop("offset_mapping")[0].tolist(), torch.tensor([n == 1 for n in asked.sequence_ids()])
with torch.no_grad():
    said = model(**asked)
scores = said.start_logits[0][:, None] + said.end_logits[0]
allowed = (inside[:, None] & inside).triu().tril({learned.longest_answer - 1})
best = scores.masked_fill(~allowed, float("-inf"))
start, end = divmod(int(best.argmax()), len(inside))
print({told})
"""


def _use_of_an_elmo(name: str) -> str:
    code = (
        "import os\n\n"
        'os.environ["TF_USE_LEGACY_KERAS"] = "1"  # before TensorFlow is imported; with pip install tf-keras\n'
        "from simple_elmo import ElmoModel\n\n"
        "model = ElmoModel()\n"
        f"model.load({json.dumps(name)})\n"
        'vectors = model.get_elmo_vectors([["This", "is", "a", "text", "."]])\n'
    )
    return (
        f"## How to use it\n\nWith `{name}` the path of this folder:\n\n```python\n{code}```\n\n"
        "AllenNLP's `Elmo` takes `options.json` and `model.hdf5` where layers are residual, filters and cells are\n"
        "more than the width, and words have 50 letters; `ordsmed import` makes a folder of ordsmed's of it."
    )


def _made(trained: Trained) -> str:
    text = f"## How it was made\n\nWith ordsmed {_version(trained)}"
    if not trained.recipe:
        return text + ", from a folder of weights; how they were trained is not known here."
    recipe = settings.write(_of_no_machine({k: v for k, v in trained.recipe.items() if k not in MACHINE})).rstrip()
    verb = "finetune" if _fine_tuned(trained) else "pretrain"
    return text + f", by `ordsmed {verb}` and this recipe:\n\n```toml\n{recipe}\n```"


def _of_no_machine(value: Any) -> Any:
    """A recipe without the places where files stand on the machine that read them."""
    if isinstance(value, dict):
        return {_of_no_machine(k): _of_no_machine(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_of_no_machine(v) for v in value]
    return Path(value).name if isinstance(value, str) and Path(value).is_absolute() else value


def _data(trained: Trained) -> list[Table]:
    """What is known of each source of the run."""
    if not trained.recipe:
        return []
    if _fine_tuned(trained):
        return _splits(trained)
    named = trained.recipe["data"]
    shares = {named: 1.0} if isinstance(named, str) else named
    whole = sum(shares.values())
    return [
        {**_facts(name, trained.folder), "name": Path(name).name, "share": shares[name] / whole}
        for name in sources(trained.recipe)
    ]


def _splits(trained: Trained) -> list[Table]:
    """The files that a task was learned from and judged by."""
    kept = trained.folder / "data.json"
    found = files.read_table(kept) if kept.exists() else {}
    return [{**facts, "name": ", ".join(Path(path).name for path in paths.split(", "))}
            for paths, facts in found.items()]  # fmt: skip


def _facts(name: str, folder: Path) -> Table:
    """What the run kept of its data; older runs: what their folder says, if it still stands."""
    kept = folder / "data.json"
    if kept.exists():
        return dict(files.read_table(kept).get(name, {}))
    try:
        with at_home(folder):
            return Run(standing(name)).status
    except OrdsmedError:
        return {}


def _metrics(trained: Trained) -> list[Table]:
    """The run's lines up to this step; one that was cut off is left out."""
    path = trained.folder / "metrics.jsonl"
    if trained.step is None or not path.exists():
        return []
    found = []
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            found.append(json.loads(text))
        except ValueError:
            break
    return [line for line in found if line["step"] <= trained.step]


def _version(trained: Trained) -> str:
    path = trained.folder / "environment.json"
    return str(files.read_table(path).get("ordsmed", ordsmed.__version__)) if path.exists() else ordsmed.__version__


def _fine_tuned(trained: Trained) -> bool:
    return isinstance(trained.objective, Task)


def _task(trained: Trained) -> str:
    if _fine_tuned(trained):
        return TASKS[trained.learned.role]
    if trained.settings.capabilities.state or "detect" in trained.objective.networks()[""].modules:
        return "feature-extraction"
    return "text-generation" if trained.causal or trained.objective.shifted else "fill-mask"


def _each(values: Any) -> list[str]:
    return list(dict.fromkeys(v for v in values if v))


def _said(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k} {v}" for k, v in value.items())
    return str(value)


def _table(head: list[str], rows: Any) -> str:
    return "\n".join(markdown(head, rows))
