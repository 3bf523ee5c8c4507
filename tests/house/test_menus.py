"""Machines know no choice of a menu by its name: what differs between choices, the choices offer."""

from __future__ import annotations

import ast
from collections import defaultdict

from kit.sources import FILES, nodes
from ordsmed.base import menu
from ordsmed.cli import verb
from ordsmed.others.translate import program
from ordsmed.serve import call

MENUS = ("models", "objectives", "tasks", "tokenizers", "optimizers", "formats")
WORDS = {"words", "pairs"}  # names of entries, and words that are used everywhere
HEAD = "the role of a head, which Hugging Face's classes have as well"
STYLE = "a way to make pairs, called as the model that began it"
METHOD = "a method of Python, called as the task is"
NOUN = "what a word has, in what people read"
USUAL = "what is taken where a recipe names none"
PLANNED = "what a plan for search is made of"
KNOWN = {  # these may only become fewer
    "learn/tagging/inputs.py": {"tag": NOUN},
    "learn/tagging/outputs.py": {"tag": NOUN},
    "learn/embedding/scorer.py": {"classify": HEAD},
    "use/fill.py": {"wordpiece": "what the library of tokenizers calls a file's kind"},
    "api/methods.py": {"classify": METHOD, "tag": METHOD},
    "api/model.py": {"classify": METHOD, "tag": METHOD},
    "base/other_names.py": {"gpt2": "a name of others"},
    "base/hub.py": {"huggingface": "a folder of others", "onnx": "a folder of others"},
    "weights/hub_files.py": {"classify": "the head that tells numbers"},
    "measure/bench/recipe.py": {"adamw": USUAL, "electra": STYLE, "classify": METHOD, "tag": METHOD},
    "measure/bench/serving.py": {"classify": METHOD, "tag": METHOD},
    "serve/indexes.py": {"classify": METHOD},
    "maker/recipes.py": {"rerank": PLANNED},
    "maker/speedrun/scores.py": {"babylm": "how an evaluation of others counts"},
    "maker/search.py": {"sentence_transformers": PLANNED},
    "data/pair_examples.py": {"electra": STYLE},
    "data/pairs.py": {"electra": STYLE},
    "train/finetune/recipe.py": {"adamw": USUAL},
    "nn/encoder.py": {"bert": "how names of weights begin in others' files", "classify": HEAD},
    "weights/foreign.py": {"huggingface": "the format of a model of others", "classify": HEAD},
    "weights/sentence_modules.py": {"sentence_transformers": "a table of others"},
    "nn/model.py": {"classify": HEAD, "tag": HEAD},
    "text/tokenizer.py": {"wordpiece": "what the library of tokenizers calls a file's kind"},
    "train/training.py": {"adamw": USUAL},
    "data/word_counts.py": {"babylm": "numbers of words, which an evaluation of others asks for"},
    "web/fetch.py": {"tag": "what a server calls a file's version"},
    "web/download.py": {"tag": "what a server calls a file's version"},
}


def test_no_machine_names_a_choice() -> None:
    """As a text of its own, such as `if task == "squad"` and tables of names; what people read may name it."""
    entries = {entry for name in MENUS for entry in menu.entries(name)} - WORDS
    named = defaultdict(set)
    for path in FILES:
        if any(path.parent in menu.folders_of(name) for name in (*menu.MENUS, verb.MENU, program.MENU, call.MENU)):
            continue
        for node in nodes(path):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in entries:
                named[path.relative_to(menu.PACKAGE_ROOT).as_posix()].add(node.value)
    assert named == {path: set(reasons) for path, reasons in KNOWN.items()}, "what is gone is taken out of KNOWN"
