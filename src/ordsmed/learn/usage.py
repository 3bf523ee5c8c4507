"""Usage of a model for its card: its purpose, and code of other libraries that uses it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

MASKED, BEGUN, TEXT = "This is a {mask}.", "Once upon", "This is a text."  # example texts in the code
LONGEST = 90  # most characters of a task's example


@dataclass(frozen=True)
class Usage:
    """A description of a network for people who do not know ordsmed."""

    pipeline: str
    "as Hugging Face calls what it is for: fill-mask, text-classification..."
    does: str
    "behind `This one has so many parameters and`"
    how: str = ""
    "how it is asked, in Markdown"
    inner: Mapping[str, str] = field(default_factory=dict)
    "of folders inside that need a word of their own: what their card says"
    library: str = "transformers"
    "that loads it"
    tags: tuple[str, ...] = ()
    "by which others find it, beside those of every card"

    def with_examples(self, examples: Mapping[str, str]) -> Usage:
        """Return the same usage with other texts in its code, such as a text in the model's language.

        Args:
            examples: text in the code -> its replacement.
        """
        options = self.how
        for text, example in examples.items():
            options = options.replace(_inside(text), _inside(example))
        return replace(self, how=options)


def _inside(text: str) -> str:
    """Return a text as it is written between the quotes of a string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def is_short(text: str) -> bool:
    """Return whether a text can be an example on a card: it has at least three words and fits into a line."""
    return len(text.split()) >= 3 and len(text) <= LONGEST


def in_python(name: str, code: str) -> str:
    """Return Markdown with Python code, introduced by what the model's folder is called in it."""
    return f"With `{name}` the path of this folder:\n\n{block(code)}"


def block(code: str) -> str:
    return f"```python\n{code.rstrip()}\n```"


def pipeline(kind: str, name: str, more: str = "") -> str:
    """Return code that makes a pipeline of transformers, `ask`, from the model."""
    return f'from transformers import pipeline\n\nask = pipeline("{kind}", model={json.dumps(name)}{more})\n'


def loaded(kind: str, name: str, more: str = "") -> str:
    """Return code that loads the model and its tokenizer with a class of transformers."""
    quoted = json.dumps(name)
    return f"tokenizer = AutoTokenizer.from_pretrained({quoted})\nmodel = {kind}.from_pretrained({quoted}){more}\n"


def generation(name: str) -> Usage:
    call = f'pipeline("text-generation", model={json.dumps(name)})\nprint(ask("{BEGUN}", max_new_tokens=20))'
    return Usage("text-generation", "predicts the next token", _of_tokens(name, "AutoModelForCausalLM", call))


def filling(name: str, mask: str) -> Usage:
    text = json.dumps(MASKED.format(mask=mask), ensure_ascii=False)
    call = f'pipeline("fill-mask", model={json.dumps(name)})\nprint(ask({text}))'
    does = "fills masked tokens, seeing both sides"
    return Usage("fill-mask", does, _of_tokens(name, "AutoModelForMaskedLM", call))


def _of_tokens(name: str, kind: str, call: str) -> str:
    head = f"from transformers import AutoTokenizer, {kind}, pipeline\n\nask = {call}\n\n"
    return in_python(name, head + loaded(kind, name))
