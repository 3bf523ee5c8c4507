"""Small files to learn from, in `lessons/`: questions, sentences and tagged words about made-up functions."""

import json
import random
from pathlib import Path

draw, folder = random.Random(1), Path("lessons")
folder.mkdir(exist_ok=True)
PARTS = {  # a verb, and what may stand behind it
    "takes": ["a list of strings", "one integer", "two file names", "a function", "an optional key", "bytes"],
    "returns": ["a new list", "the number of items", "a copy of the object", "true or false", "an iterator"],
    "raises": ["a value error", "an index error", "a type error", "an import error", "a key error"],
}
ASKED = {"takes": "What does it take?", "returns": "What does it return?", "raises": "What does it raise?"}
for split, count in (("train", 600), ("dev", 150)):
    questions, sentences, words = [], ["text\tlabel"], []
    for number in range(count):
        parts = {verb: draw.choice(PARTS[verb]) for verb in draw.sample(list(PARTS), 2)}
        text = "The function " + " and ".join(f"{verb} {part}" for verb, part in parts.items()) + "."
        verb = draw.choice(list(PARTS))
        found = [{"text": parts[verb], "answer_start": text.index(parts[verb])}] if verb in parts else []
        asked = {"id": f"{split}-{number}", "question": ASKED[verb], "context": text}
        questions.append(json.dumps({**asked, "answers": found, "is_impossible": not found}))
        sentences.append(f"{text}\t{'error' if 'raises' in parts else 'fine'}")
        words += ["The\tO", "function\tO"]
        for place, (verb, part) in enumerate(parts.items()):
            words += ["and\tO"] * place + [f"{verb}\tO"]
            words += [f"{word}\t{'I' if n else 'B'}-{verb.upper()}" for n, word in enumerate(part.split())]
        words += [".\tO", ""]
    for name, lines in (("questions", questions), ("sentences", sentences), ("words", words)):
        ending = {"questions": "jsonl", "sentences": "tsv", "words": "conll"}[name]
        (folder / f"{name}-{split}.{ending}").write_text("\n".join(lines) + "\n")
