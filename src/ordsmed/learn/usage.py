"""Usage of a model for its model card: its purpose, and example code for other libraries."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

MASKED, PROMPT, TEXT = "This is a {mask}.", "Once upon", "This is a text."  # example texts in the code
MAX_CHARACTERS = 90  # of an example text of a task


@dataclass(frozen=True)
class Usage:
    """A description of a network for people who do not know ordsmed."""

    pipeline: str
    "its task on the Hugging Face Hub: fill-mask, text-classification..."
    does: str
    "verb phrase after `This one has N parameters and`"
    how: str = ""
    "example code, in Markdown"
    inner: Mapping[str, str] = field(default_factory=dict)
    "text of the cards of subfolders, by their names"
    library: str = "transformers"
    "that loads the folder"
    tags: tuple[str, ...] = ()
    "for the search on the Hub, in addition to those of every card"

    def with_examples(self, examples: Mapping[str, str]) -> Usage:
        """Return the same usage with the texts in its code replaced: text in the code -> its replacement."""
        code = self.how
        for text, example in examples.items():
            code = code.replace(_escaped(text), _escaped(example))
        return replace(self, how=code)


def _escaped(text: str) -> str:
    """Return a text as it is written between the quotes of a string in code."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def is_short(text: str) -> bool:
    """Return whether a text has at least three words and fits into a line of example code."""
    return len(text.split()) >= 3 and len(text) <= MAX_CHARACTERS


def in_python(name: str, code: str) -> str:
    """Return Markdown with Python code, after a line that explains its path, `name`."""
    return f"With `{name}` the path of this folder:\n\n{block(code)}"


def block(code: str) -> str:
    return f"```python\n{code.rstrip()}\n```"


def pipeline(kind: str, name: str, more: str = "") -> str:
    """Return code that makes a pipeline of transformers, called `ask`."""
    return f'from transformers import pipeline\n\nask = pipeline("{kind}", model={json.dumps(name)}{more})\n'


def loaded(kind: str, name: str, more: str = "") -> str:
    """Return code that loads the model and its tokenizer with a class of transformers."""
    quoted = json.dumps(name)
    return f"tokenizer = AutoTokenizer.from_pretrained({quoted})\nmodel = {kind}.from_pretrained({quoted}){more}\n"


def generation(name: str) -> Usage:
    call = f'pipeline("text-generation", model={json.dumps(name)})\nprint(ask("{PROMPT}", max_new_tokens=20))'
    return Usage("text-generation", "predicts the next token", _of_tokens(name, "AutoModelForCausalLM", call))


def filling(name: str, mask: str) -> Usage:
    text = json.dumps(MASKED.format(mask=mask), ensure_ascii=False)
    call = f'pipeline("fill-mask", model={json.dumps(name)})\nprint(ask({text}))'
    does = "fills masked tokens, seeing both sides"
    return Usage("fill-mask", does, _of_tokens(name, "AutoModelForMaskedLM", call))


def _of_tokens(name: str, kind: str, call: str) -> str:
    head = f"from transformers import AutoTokenizer, {kind}, pipeline\n\nask = {call}\n\n"
    return in_python(name, head + loaded(kind, name))
