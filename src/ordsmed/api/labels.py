"""Print the classes of texts and the tags of their words, for a terminal or as JSON.

"A great movie."  ->  pos 97.3%, neg 2.7%          "Newts swim in Bergen"  ->  Bergen  B-PLACE  88.0%
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator

from ordsmed.api.model import OpenModel
from ordsmed.base.screen import table
from ordsmed.use.predict import Classified, Tagged
from ordsmed.use.typed_texts import TypedText, blocks, one_line


def classify_lines(
    model: OpenModel, texts: list[TypedText] | Iterator[TypedText], *, best: int = 3, as_json: bool = False
) -> Iterator[str]:
    """Yield each text with its class or number."""
    for block in blocks(texts):
        seconds = [text.second for text in block] if model.pairs else []
        classes = model.classify([text.text for text in block], seconds)
        for text, classified in zip(block, classes, strict=True):
            yield from _classified_as_json(text, classified) if as_json else _classified(text, classified, best)


def tag_lines(
    model: OpenModel, texts: list[TypedText] | Iterator[TypedText], *, as_json: bool = False
) -> Iterator[str]:
    """Yield each text with a tag for each of its words, which are separated by white space."""
    for block in blocks(texts):
        for text, tagged in zip(block, model.tag([text.text for text in block]), strict=True):
            if as_json:
                yield json.dumps({"text": text.text, **dataclasses.asdict(tagged)}, ensure_ascii=False)
            else:
                yield from _tagged(text, tagged)


def _classified(text: TypedText, classified: Classified, best: int) -> Iterator[str]:
    yield one_line(text.text)
    if text.second:
        yield one_line(text.second)
    if classified.number is not None:
        yield f"  {classified.number:.6g}"
        return
    likeliest = sorted(classified.probabilities.items(), key=lambda share: -share[1])[:best]
    yield "  " + ", ".join(f"{label} {share:.1%}" for label, share in likeliest)


def _classified_as_json(text: TypedText, classified: Classified) -> Iterator[str]:
    facts = dataclasses.asdict(classified)
    second = {"second": text.second} if text.second else {}
    yield json.dumps({"text": facts.pop("text"), **second, **facts}, ensure_ascii=False)


def _tagged(text: TypedText, tagged: Tagged) -> Iterator[str]:
    yield one_line(text.text)
    shares = (f"{share:.1%}" for share in tagged.probabilities)
    yield from table(zip(tagged.words, tagged.tags, shares, strict=True))
