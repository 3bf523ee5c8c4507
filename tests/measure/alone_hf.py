"""`answer` and `embed` asked one text at a time, beside transformers with the same weights, from text to result.

    python tests/measure/alone_hf.py DEV.json --vocabulary bert-base-uncased-vocab.txt --family bert --size mini

Ours in every precision that is asked for, theirs in fp32 and with all weights in 16 bits where these are asked for, in
turn, each text once; ONEDNN_MAX_CPU_ISA=AVX512_CORE_VNNI stands for a CPU without AMX (without bf16 then: 100 times as
slow). Of GPT-2 `--vocabulary` is a folder with vocab.json and merges.txt. Weights are random: they change no speed.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from transformers import AutoModel, AutoModelForQuestionAnswering, AutoTokenizer

import ordsmed
from ordsmed.base.menu import load
from ordsmed.text.labelled import questions
from ordsmed.weights.trained_model import HALVES

CLASSES = {"bert": "Bert", "electra": "Electra", "gpt2": "GPT2"}
LONGEST = 384
WARM = 3


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("file", type=Path)
    options.add_argument("--vocabulary", type=Path, required=True)
    options.add_argument("--family", default="bert", choices=CLASSES)
    options.add_argument("--size", default="mini")
    options.add_argument("--texts", type=int, default=40)
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--precision", nargs="+", default=["fp32", "bf16"], help="of ours")
    options.add_argument(
        "--dynamic", action="store_true", help="theirs in 8 bits too, by torch.ao, which is deprecated"
    )
    options.add_argument("--cpu-time", action="store_true", help="count the processor's time: on a busy machine")
    asked = options.parse_args()
    torch.set_num_threads(asked.threads)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder), asked)
        measure(Path(folder), asked)


def make(folder: Path, asked: argparse.Namespace) -> None:
    """A model of theirs with fresh weights, which both read."""
    own = load("models", asked.family)
    words = tokenizer_of(asked)
    words.save_pretrained(folder)
    kind = getattr(transformers, f"{CLASSES[asked.family]}ForQuestionAnswering")
    ids = argparse.Namespace(pad=0, end=words.eos_token_id, stop=words.sep_token_id, start=words.cls_token_id)
    described = own(**own.SIZES[asked.size]).hugging_face(len(words), ids)
    kind(kind.config_class(**described)).save_pretrained(folder)


def tokenizer_of(asked: argparse.Namespace) -> Any:
    """Theirs, of the files that a release has."""
    kind = getattr(transformers, f"{CLASSES[asked.family]}Tokenizer")
    if asked.vocabulary.is_dir():
        return kind(str(asked.vocabulary / "encoder.json"), str(asked.vocabulary / "vocab.bpe"))
    return kind(str(asked.vocabulary))


def measure(folder: Path, asked: argparse.Namespace) -> None:
    words, clock = AutoTokenizer.from_pretrained(folder), time.process_time if asked.cpu_time else time.perf_counter
    given = questions.read(str(asked.file), repair=False)[0]
    given = [each for each in given if len(words(each.question, each.context).input_ids) <= LONGEST]
    given = [given[n] for n in np.linspace(0, len(given) - 1, asked.texts + WARM).astype(int)]
    ours = {each: ordsmed.open(folder, device="cpu", precision=each, threads=asked.threads) for each in asked.precision}
    body, head = AutoModel.from_pretrained(folder).eval(), AutoModelForQuestionAnswering.from_pretrained(folder).eval()
    theirs = {"fp32": (body, head)}
    for name in set(asked.precision) & set(HALVES):
        theirs[name] = deepcopy(body).to(HALVES[name]), deepcopy(head).to(HALVES[name])
    if asked.dynamic:
        torch.backends.quantized.engine = "onednn"
        kinds: Any = {torch.nn.Linear}
        theirs["int8"] = tuple(torch.ao.quantization.quantize_dynamic(own, kinds) for own in (body, head))
    print(f"{asked.family} {asked.size}, {asked.threads} threads")
    if asked.family != "gpt2":
        ways = {f"ours {name}": partial(our_answer, model) for name, model in ours.items()}
        ways |= {f"theirs {name}": partial(their_answer, words, own[1]) for name, own in theirs.items()}
        compare("answer", ways, given, clock)
    ways = {f"ours {name}": partial(our_vectors, model) for name, model in ours.items()}
    ways |= {f"theirs {name}": partial(their_vectors, words, own[0]) for name, own in theirs.items()}
    compare("embed a context", ways, [each.context for each in given], clock)
    compare("embed a question", ways, [each.question for each in given], clock)


def compare(name: str, ways: dict[str, Callable[[Any], Any]], given: list[Any], clock: Callable[[], float]) -> None:
    """Each thing given is given to each way in turn; who comes first changes every time."""
    spent: dict[str, list[float]] = {way: [] for way in ways}
    for turn, thing in enumerate(given):
        for way in list(ways)[:: -1 if turn % 2 else 1]:
            began = clock()
            ways[way](thing)
            spent[way].append(clock() - began)
    for way, own in spent.items():
        line = f"  {name}: {way:12s} {statistics.median(own[WARM:]) * 1e3:8.2f} ms"
        if way.startswith("ours"):
            for other in [name.removeprefix("theirs ") for name in ways if name.startswith("theirs")]:
                pairs = np.divide(spent[f"theirs {other}"][WARM:], own[WARM:])
                line += f"; theirs in {other} take {np.median(pairs):.2f} times as long"
        print(line)


def our_answer(model: Any, question: Any) -> str:
    return str(model.answer(question.question, question.context).text)


def our_vectors(model: Any, text: str) -> Any:
    """A vector a word."""
    return model.embed(text).vectors


def their_answer(words: Any, model: Any, question: Any) -> str:
    """As the page of a model that we publish tells it."""
    asked = words(
        question.question,
        question.context,
        truncation="only_second",
        max_length=LONGEST,
        return_offsets_mapping=True,
        return_tensors="pt",
    )
    places, inside = asked.pop("offset_mapping")[0].tolist(), torch.tensor([n == 1 for n in asked.sequence_ids()])
    with torch.inference_mode():
        said = model(**asked)
    scores = said.start_logits[0].float()[:, None] + said.end_logits[0].float()
    allowed = (inside[:, None] & inside).triu().tril(29)
    best = scores.masked_fill(~allowed, -torch.inf)
    start, end = divmod(int(best.argmax()), len(inside))
    return str(question.context[places[start][0] : places[end][1]])


def their_vectors(words: Any, model: Any, text: str) -> Any:
    """A vector a piece."""
    with torch.inference_mode():
        return model(**words(text, return_tensors="pt")).last_hidden_state[0].float().numpy()


if __name__ == "__main__":
    main()
