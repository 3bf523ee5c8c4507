"""The end of `make`: examples of the model's output, scores on held-out text, export and report page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from ordsmed.api.model import OpenModel
from ordsmed.api.model import open as open_model
from ordsmed.base import files, settings
from ordsmed.base.errors import OrdsmedError
from ordsmed.base.run import Run
from ordsmed.base.say import duration
from ordsmed.base.screen import command, command_lines
from ordsmed.corpus.folder import documents, parts
from ordsmed.learn.score.metrics import below
from ordsmed.maker.request import MakeRequest
from ordsmed.maker.runner import Clock
from ordsmed.tell.report import report
from ordsmed.use.embed import Embedded
from ordsmed.weights.export import export

EXAMPLES = 4
WORDS = (6, 16)  # least and most words of an example sentence
GUESSES = 3
SCORED_WORDS = 2_000  # words of held-out text to score; the probe runs the network once per word
SENTENCES = 400  # sentences among which neighbors are searched


def close(request: MakeRequest, clock: Clock) -> dict[str, Any]:
    """Write examples, scores, the export and the page; return the facts for the status, with `lines` to print."""
    folder, trained = Path(request.out), Path(request.out) / "model"
    purpose, model = request.purpose, open_model(trained, device="cpu")
    corpus = corpus_of(folder)
    status = Run(trained).status
    facts: dict[str, Any] = {name: status.get(name) for name in ("validation", "unigram", "verdict")}
    lines = against_guessing(facts)
    sentences = list(islice(_sentences(corpus), SENTENCES))
    facts["examples"] = _examples(model, purpose, sentences)
    lines += facts["examples"]
    lines += _scored(model, folder, sentences, facts)
    exported = export(
        trained,
        folder / "hugging-face",
        name=folder.resolve().name,
        title=request.title,
        language=request.language,
        licence=request.licence,
    )
    report.write([str(folder)], out=str(folder / "report.html"), title=request.title)
    lines += [
        f"{exported}: for Hugging Face's transformers; {folder / 'report.html'}: the page",
        f"all of it took {duration(clock.used)}; try next:",
        *_next(model, request, sentences),
    ]
    return {**facts, "lines": lines}


def corpus_of(folder: Path) -> Path:
    return folder / "corpus" if (folder / "corpus").is_dir() else Path(settings.read(folder / "data.toml")["corpus"])


def against_guessing(facts: dict[str, Any]) -> list[str]:
    """Return lines that compare the loss on held-out text with guessing by frequency, and the verdict."""
    if not facts["validation"] or not facts["unigram"]:
        return ["nothing was held out: how good it is on new text is not known"]
    facts["below"] = below(facts["validation"], facts["unigram"])
    return [
        f"loss on held-out text {facts['validation']:.3f}; guessing by frequency {facts['unigram']:.3f}: "
        f"{abs(facts['below']):.1%} {'above' if facts['below'] < 0 else 'below'}",
        *([facts["verdict"]["line"]] if facts.get("verdict") else []),
    ]


def _sentences(corpus: Path) -> Iterator[str]:
    """Yield sentences of suitable length from all over the held-out text, or of all text if none is held out."""
    split = "validation" if parts(corpus, "validation") else "train"
    fitting = [
        text
        for path in parts(corpus, split)
        for document in islice(documents(path), 2_000)
        for sentence in document.sentences()
        if WORDS[0] <= len((text := " ".join(sentence.split())).split()) <= WORDS[1] and text[-1:] in ".!?。！？"
    ]
    step = max(1, len(fitting) // SENTENCES)
    yield from fitting[::step]


def _examples(model: OpenModel, purpose: str, sentences: list[str]) -> list[str]:
    chosen = sentences[:: max(1, len(sentences) // EXAMPLES)][:EXAMPLES]
    if purpose == "write" and "generate" in model.can:
        return [line for text in chosen for line in _continued(model, text)]
    if purpose == "embed" or "fill" not in model.can:
        return _neighbors(model, sentences, chosen)
    lines = [line for text in chosen for line in _filled(model, text)]
    if purpose == "both" and "generate" in model.can:
        lines += [line for text in chosen[:2] for line in _continued(model, text)]
    return lines


def _filled(model: OpenModel, sentence: str) -> list[str]:
    """Return the sentence with a middle word masked, and the model's guesses. The word is one token if possible."""
    words = re.findall(r"(?<![\w'’])[^\W\d_]{2,}(?![\w'’])", sentence)
    known = [word for word in words[1:] if len(model.trained.tokenizer.encode(f" {word}")) == 1] or words
    if not known:
        return []
    hidden = known[len(known) // 2]
    text = re.sub(rf"(?<![\w'’]){re.escape(hidden)}(?![\w'’])", "[MASK]", sentence, count=1)
    try:
        guesses = model.fill(text, best=GUESSES).masks[0]
    except OrdsmedError:  # longer than the network's longest row
        return []
    best = ", ".join(f"{guess.text} {guess.probability:.0%}" for guess in guesses)
    return [f"  {text}", f"      {best}   (the text has: {hidden})"]


def _continued(model: OpenModel, sentence: str) -> list[str]:
    words = sentence.split()
    prompt = " ".join(words[: max(2, len(words) // 3)])
    written = model.generate(prompt, tokens=24, best=20, temperature=0.8, seed=0)
    return [f"  {prompt} ...", f"      {' '.join(written.text[len(prompt) :].split())}"]


def _neighbors(model: OpenModel, sentences: list[str], chosen: list[str]) -> list[str]:
    """Return each chosen sentence with its nearest other sentence, by cosine of centered vectors."""
    import numpy as np

    embedded: list[Embedded] = model.embed(sentences, of="sentences", layers="top")
    vectors = np.stack([row.vectors for row in embedded]).astype(np.float64)
    vectors = vectors - vectors.mean(0)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True) + 1e-9
    lines = []
    for text in chosen:
        likeness = vectors @ vectors[sentences.index(text)]
        nearest = next((int(n) for n in np.argsort(-likeness) if sentences[n] != text), None)
        if nearest is not None:  # there is only one sentence otherwise
            lines += [f"  {text}", f"      nearest of {len(sentences)}: {sentences[nearest]}"]
    return lines


def _scored(model: OpenModel, folder: Path, sentences: list[str], facts: dict[str, Any]) -> list[str]:
    """Score held-out sentences with the probe that fits the model, add the scores to `facts` and return a line."""
    pseudo = "pseudo_" if "fill" in model.can and not model.trained.continues else ""
    probe, bits = f"{pseudo}perplexity", f"{pseudo}bits_per_byte"
    kept, words = [], 0
    for text in sentences:
        if words < SCORED_WORDS:
            kept.append(text)
            words += len(text.split())
    path = folder / "held-out.txt"
    files.write_text(path, "\n\n".join(kept) + "\n")
    try:
        evaluated = model.evaluate(str(path), probe=probe)
    except OrdsmedError as error:
        return [f"{probe}: not known ({error})"]
    scores = {key: value for key, value in evaluated.scores.items() if isinstance(value, int | float)}
    facts["scores"] = scores
    title = probe.replace("_", "-")
    return [f"{title} on {words:,} held-out words: {scores[probe]:,.1f} a token, {scores[bits]:.2f} bits a byte"]


def _next(model: OpenModel, request: MakeRequest, sentences: list[str]) -> list[str]:
    folder, purpose, deadline = Path(request.out), request.purpose, f"{request.time.seconds:.0f}s"
    words = (sentences or ["..."])[0].split()
    rows = []
    if "fill" in model.can:
        rows += [("ask the model", command("fill", folder, " ".join([*words[:2], "[MASK]", words[-1]])))]
    if "generate" in model.can and purpose in ("write", "both"):
        rows += [("continue a text", command("generate", folder, " ".join(words[:3])))]
    if purpose == "embed":
        vectors = command("embed", folder, folder / "held-out.txt", folder / "vectors.npz", "--of", "sentences")
        rows += [("vectors of sentences", vectors)]
    longer = command("pretrain", folder / "model.toml", f"out={folder / 'longer'}", "--deadline", deadline)
    rows += [("its stages, steps, loss", command("show", folder)), ("train by the recipe, once you changed it", longer)]
    return [line for title, words in rows for line in command_lines(f"  {title}", words)]
