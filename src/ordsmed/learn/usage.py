"""How a model is used: what it is for, and code of others' libraries that asks it; for its card."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

MASKED, BEGUN, TEXT = "This is a {mask}.", "Once upon", "This is a text."  # example texts in the code
LONGEST = 90  # characters of an example of a task


@dataclass(frozen=True)
class Usage:
    """What an objective or a task says of its network to people who know nothing of ordsmed."""

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
        """Return the same usage with other texts in its code, such as one in the model's language.

        Args:
            examples: text that stands in the code -> text to write there.
        """
        how = self.how
        for text, example in examples.items():
            how = how.replace(_inside(text), _inside(example))
        return replace(self, how=how)


def _inside(text: str) -> str:
    """Return a text as it stands between quotes."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def is_short(text: str) -> bool:
    """Can a text be an example on a card? It has some words, and fits into a line."""
    return len(text.split()) >= 3 and len(text) <= LONGEST


def in_python(name: str, code: str) -> str:
    """Code that names a model's folder."""
    return f"With `{name}` the path of this folder:\n\n{block(code)}"


def block(code: str) -> str:
    """Code in Markdown."""
    return f"```python\n{code.rstrip()}\n```"


def pipeline(kind: str, name: str, more: str = "") -> str:
    """Code that makes a pipeline of transformers of it, `ask`."""
    return f'from transformers import pipeline\n\nask = pipeline("{kind}", model={json.dumps(name)}{more})\n'


def loaded(kind: str, name: str, more: str = "") -> str:
    """Code that loads it, and its tokenizer, by one of transformers' classes."""
    quoted = json.dumps(name)
    return f"tokenizer = AutoTokenizer.from_pretrained({quoted})\nmodel = {kind}.from_pretrained({quoted}){more}\n"


def generation(name: str) -> Usage:
    """Of a network that goes on with texts."""
    call = f'pipeline("text-generation", model={json.dumps(name)})\nprint(ask("{BEGUN}", max_new_tokens=20))'
    return Usage("text-generation", "predicts the next token", _of_tokens(name, "AutoModelForCausalLM", call))


def filling(name: str, mask: str) -> Usage:
    """Of a network that fills gaps."""
    text = json.dumps(MASKED.format(mask=mask), ensure_ascii=False)
    call = f'pipeline("fill-mask", model={json.dumps(name)})\nprint(ask({text}))'
    does = "fills masked tokens, seeing both sides"
    return Usage("fill-mask", does, _of_tokens(name, "AutoModelForMaskedLM", call))


def _of_tokens(name: str, kind: str, call: str) -> str:
    head = f"from transformers import AutoTokenizer, {kind}, pipeline\n\nask = {call}\n\n"
    return in_python(name, head + loaded(kind, name))
