"""A server answers existing clients with exactly the values of `ordsmed.open`."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import ordsmed
from kit.absent import Lazy
from kit.served import Running, running
from ordsmed.cli import main

openai: Any = Lazy("openai")
hub: Any = Lazy("huggingface_hub")
Local = dict[str, ordsmed.OpenModel]
TEXTS = ["the old cat sat on the mat", "it ran", "a newt swam under the red mat and the dog sat on it"]
WORDS = ["w7 w80 w90 w3", "w1 w2", "w70 w71 w72"]


def post(served: Running, path: str, **body: Any) -> Any:
    answer = httpx.post(served.url + path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_it_says_what_it_serves(served: Running) -> None:
    described = httpx.get(served.url).json()
    can = {model["name"]: model["can"] for model in described["models"]}
    assert can["bert"] == ["fill", "generate", "score", "embed"]
    assert can["elmo"] == ["score", "embed"]
    assert can["tag"] == ["tag", "embed"]
    assert {"/fill-mask", "/v1/embeddings", "/health"} <= set(described["paths"])
    assert str(served.url) not in json.dumps(described)
    assert httpx.get(f"{served.url}/health").json() == {"status": "ok"}


def test_every_path_is_described(served: Running) -> None:
    document = httpx.get(f"{served.url}/openapi.json").json()
    body = document["paths"]["/fill-mask"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert body == {"$ref": "#/components/schemas/FillMaskRequest"}
    assert set(document["components"]["schemas"]["FillMaskRequest"]["required"]) == {"inputs"}
    assert set(document["paths"]) == set(httpx.get(served.url).json()["paths"])
    assert "429" in document["paths"]["/embed"]["post"]["responses"]


# OpenAI


def client(served: Running, path: str = "/v1") -> Any:
    return openai.OpenAI(base_url=served.url + path, api_key="none", max_retries=0)


def test_openai_lists_models(served: Running, local: Local) -> None:
    assert [model.id for model in client(served).models.list()] == list(local)
    assert client(served).models.retrieve("gpt2").id == "gpt2"
    with pytest.raises(openai.NotFoundError, match="no model `gtp2`; did you mean `gpt2`"):
        client(served).models.retrieve("gtp2")


def test_openai_embeds(served: Running, local: Local) -> None:
    """OpenAI's client requests base64 by default."""
    vectors = np.stack([each.vectors for each in local["bert"].embed(TEXTS, of="sentences")])
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    for form in ({}, {"encoding_format": "float"}):
        answer = client(served).embeddings.create(model="bert", input=TEXTS, **form)
        assert [each.embedding for each in answer.data] == units.tolist()
    shorter = client(served).embeddings.create(model="bert", input=TEXTS[0], dimensions=5).data[0].embedding
    assert np.allclose(shorter, vectors[0][:5] / np.linalg.norm(vectors[0][:5]), atol=1e-6)
    ids = local["bert"].trained.tokenizer.encode(TEXTS[1])
    numbers = client(served).embeddings.create(model="bert", input=[ids])
    assert np.allclose(numbers.data[0].embedding, vectors[1] / np.linalg.norm(vectors[1]), atol=1e-6)
    assert numbers.usage.prompt_tokens == len(ids)
    with pytest.raises(openai.BadRequestError, match="token ids of another tokenizer"):
        client(served).embeddings.create(model="bert", input=[[5, 99_999]])


def test_openai_completes(served: Running, local: Local) -> None:
    generated = local["gpt2"].generate(["the old", "a"], tokens=7, seed=4, samples=2)
    how = {"model": "gpt2", "prompt": ["the old", "a"], "max_tokens": 7, "seed": 4, "n": 2}
    answer = client(served).completions.create(**how)
    assert [choice.text for choice in answer.choices] == [text.continuation for text in generated]
    assert answer.usage.completion_tokens == sum(text.tokens for text in generated)
    parts: dict[int, str] = {}
    for part in client(served).completions.create(**how, stream=True):
        for choice in part.choices:
            parts[choice.index] = parts.get(choice.index, "") + choice.text
    assert [parts[number] for number in sorted(parts)] == [text.continuation for text in generated]
    greedy = local["gpt2"].generate("the old", tokens=12, temperature=0)
    stop = greedy.continuation[2:5]
    cut = client(served).completions.create(
        model="gpt2", prompt="the old", max_tokens=12, temperature=0, stop=[stop], echo=True
    )
    assert cut.choices[0].text == "the old" + greedy.continuation[: greedy.continuation.find(stop)]
    assert cut.choices[0].finish_reason == "stop"


def test_openai_tells_logarithms(served: Running, local: Local) -> None:
    answer = client(served).completions.create(model="gpt2", prompt="it ran", max_tokens=4, temperature=0, logprobs=2)
    logs, text = answer.choices[0].logprobs, answer.choices[0].text
    scored = local["gpt2"].score("it ran" + text, way="causal")
    bits = [token.bits for token in scored.tokens][-4:]
    assert np.allclose(logs.token_logprobs, [-value * np.log(2) for value in bits], atol=1e-4)
    assert all(max(top.values()) == log for top, log in zip(logs.top_logprobs, logs.token_logprobs, strict=True))
    with pytest.raises(openai.BadRequestError, match="best_of: is not supported"):
        client(served).completions.create(model="gpt2", prompt="the", best_of=3)


# Hugging Face


def asker(served: Running, name: str) -> Any:
    return hub.InferenceClient(f"{served.url}/{name}")


def test_openai_tells_logarithms_of_prompts(served: Running, local: Local) -> None:
    """With echo: of a text after its start token, of token ids unchanged; max_tokens=0: of the prompt only."""
    model, ask = local["gpt2"], client(served).completions.create
    tokenizer = model.trained.tokenizer
    how = {"model": "gpt2", "echo": True, "logprobs": 3, "temperature": 0}
    ids = [tokenizer.encode(text) for text in TEXTS]
    answer = ask(prompt=TEXTS, max_tokens=0, **how)
    for choice, scored, numbers in zip(answer.choices, model.score(TEXTS, way="causal"), ids, strict=True):
        assert choice.text == scored.text
        logs = choice.logprobs
        assert np.allclose(logs.token_logprobs, [-token.bits * np.log(2) for token in scored.tokens], atol=1e-4)
        assert logs.text_offset == [token.start for token in scored.tokens]
        assert logs.tokens == [tokenizer.decode([number]) for number in numbers]
        assert all(log <= max(top.values()) for log, top in zip(logs.token_logprobs, logs.top_logprobs, strict=True))
    alone = [ask(prompt=numbers, max_tokens=1, **how).choices[0] for numbers in ids]
    together = ask(prompt=ids, max_tokens=1, **how)
    assert together.usage.prompt_tokens == sum(map(len, ids))
    assert together.usage.completion_tokens == 3
    for choice, other, numbers in zip(together.choices, alone, ids, strict=True):
        logs = choice.logprobs
        assert choice.text.startswith(tokenizer.decode(numbers))
        assert len(logs.tokens) == len(numbers) + 1
        assert (logs.token_logprobs[0], logs.top_logprobs[0]) == (None, None)
        assert np.allclose(logs.token_logprobs[1:], other.logprobs.token_logprobs[1:], atol=1e-5)
    whole = ask(prompt=TEXTS[0], max_tokens=4, **how).choices[0]
    parts = [part.choices[0] for part in ask(prompt=TEXTS[0], max_tokens=4, stream=True, **how)]
    assert "".join(part.text for part in parts) == whole.text
    for name in ("tokens", "token_logprobs", "text_offset"):
        assert [*chain(*(getattr(part.logprobs, name) for part in parts))] == getattr(whole.logprobs, name)
    for wrong in ({"max_tokens": 0}, {"max_tokens": 0, "echo": True, "stream": True}, {"prompt": []}):
        with pytest.raises(openai.BadRequestError, match=r"found 0; wanted 1 or more|an empty batch"):
            ask(**{"model": "gpt2", "prompt": "a", **wrong})


@pytest.mark.long
def test_lm_evaluation_harness_finds_what_it_finds_of_the_folder(
    served: Running, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its `local-completions` gets log-probabilities by echo, its `hf` opens the folder."""
    for name in ("lm_eval.models.huggingface", "tenacity"):
        pytest.importorskip(name, reason=f"{name} is not installed: pip install -e .[dev]")
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM
    from lm_eval.models.openai_completions import LocalCompletionsAPI

    pairs = [("the old cat", " sat on the mat"), ("", "it ran"), ("a newt swam under", " the red mat"), ("it", " ran")]
    asked = [Instance("loglikelihood", {}, pair, number) for number, pair in enumerate(pairs)]
    folder = str(folders["gpt2"])
    where = {"base_url": f"{served.url}/v1/completions", "model": "gpt2", "tokenizer": folder, "batch_size": 3}
    theirs = HFLM(folder, device="cpu", batch_size=1, add_bos_token=False).loglikelihood(asked, disable_tqdm=True)
    found = LocalCompletionsAPI(**where, tokenizer_backend="huggingface").loglikelihood(asked, disable_tqdm=True)
    assert [greedy for _, greedy in found] == [greedy for _, greedy in theirs]
    assert np.allclose([log for log, _ in found], [log for log, _ in theirs], atol=1e-4)


def test_hugging_face_fills(served: Running, local: Local) -> None:
    text = "the [MASK] cat sat"
    guesses = local["bert"].fill(text, best=3).masks[0]
    filled = asker(served, "bert").fill_mask(text, top_k=3)
    assert [(each.score, each.token_str, each.token) for each in filled] == [
        (guess.probability, guess.text, guess.token) for guess in guesses
    ]
    assert filled[0].sequence == text.replace("[MASK]", guesses[0].text).replace(" ##", "")
    chosen = asker(served, "bert/fill-mask").fill_mask(text, targets=["dog", "newts"])
    assert {each.token_str for each in chosen} == {"dog", "newt"}
    two = post(served, "/fill-mask", inputs=["a [MASK] [MASK]", text])
    assert [len(two), len(two[0]), len(two[0][0])] == [2, 2, 5]
    assert two[0][1][0]["sequence"].startswith("a [MASK]")


def test_hugging_face_tags_answers_and_classifies(served: Running, local: Local) -> None:
    tagged = local["tag"].tag(WORDS[0])
    words = post(
        served,
        "/tag/token-classification",
        inputs=WORDS[0],
        parameters={"aggregation_strategy": "none", "ignore_labels": []},
    )
    assert [(each["word"], each["entity"], each["score"]) for each in words] == [
        *zip(tagged.words, tagged.tags, tagged.probabilities, strict=True)
    ]
    for entity in asker(served, "tag").token_classification(WORDS[0]):
        assert entity.word == WORDS[0][entity.start : entity.end]
        assert entity.entity_group == "HIGH"
    context = "w7 w80 w90 w3 w1 w2"
    spans = [span for span in local["answer"].answer("w80 w7", context, best=6).n_best if span.text]
    replies = asker(served, "answer").question_answering("w80 w7", context, top_k=3)
    assert [(reply.answer, reply.start) for reply in replies] == [(span.text, span.start) for span in spans[:3]]
    classes = asker(served, "classify").text_classification(WORDS[0])
    assert {each.label: each.score for each in classes} == local["classify"].classify(WORDS[0]).probabilities
    assert classes[0].score == max(each.score for each in classes)


def test_hugging_face_embeds_and_writes(served: Running, local: Local) -> None:
    vectors = asker(served, "bert/feature-extraction").feature_extraction(TEXTS[0])
    assert vectors[0].tolist() == local["bert"].embed(TEXTS[0], of="sentences").vectors.tolist()
    alike = asker(served, "bert").sentence_similarity(TEXTS[0], [TEXTS[0], TEXTS[1]])
    assert alike[0] == pytest.approx(1)
    assert alike[1] < 1
    text = local["gpt2"].generate("the old", tokens=6, temperature=0).continuation
    writer = asker(served, "gpt2")
    assert writer.text_generation("the old", max_new_tokens=6) == text
    assert "".join(writer.text_generation("the old", max_new_tokens=6, stream=True)) == text
    *_, last = writer.text_generation("the old", max_new_tokens=6, stream=True, details=True)
    assert (last.generated_text, last.details.generated_tokens) == (text, 6)
    writer = hub.InferenceClient(f"{served.url}/gpt2", provider="hf-inference")
    assert writer.health_check()
    assert writer.get_endpoint_info()["max_input_length"] == 32


# text-embeddings-inference


def test_vectors_as_of_embeddings_inference(served: Running, local: Local) -> None:
    vectors = np.stack([each.vectors for each in local["bert"].embed(TEXTS, of="sentences")])
    assert post(served, "/bert/embed", inputs=TEXTS, normalize=False) == vectors.tolist()
    units = post(served, "/bert/embed", inputs=TEXTS)
    assert np.allclose(np.linalg.norm(units, axis=1), 1)
    words = local["elmo"].embed(TEXTS[0], layers="all").vectors
    assert post(served, "/elmo/embed_all", inputs=TEXTS[0], layers="all") == [words.tolist()]
    assert np.shape(post(served, "/elmo/embed_all", inputs=TEXTS[0])[0]) == words.shape[1:]
    assert post(served, "/layers", texts=TEXTS[1])[0]["vectors"] == (
        local["bert"].embed(TEXTS[1], layers="all").vectors.tolist()
    )


def test_classes_and_ranks(served: Running, local: Local) -> None:
    [first, *_] = post(served, "/pairs/predict", inputs=["w1 w2", "w80"])
    classified = local["pairs"].classify("w1 w2", "w80")
    assert (first["label"], first["score"]) == (classified.label, classified.probability)
    assert [len(rows) for rows in post(served, "/classify/predict", inputs=[["w1"], ["w80 w81"]])] == [3, 3]
    numbers = [each.number for each in local["fits"].classify(["w1 w2"] * 3, WORDS)]
    ranks = post(served, "/fits/rerank", query="w1 w2", texts=WORDS, return_text=True)
    assert [rank["score"] for rank in ranks] == sorted(numbers, reverse=True)
    assert [WORDS[rank["index"]] for rank in ranks] == [rank["text"] for rank in ranks]
    longest = local["classify"].trained.learned.length
    long = " ".join(["w1"] * longest)
    cut: dict[str, dict[str, Any]] = {"predict": {"truncate": True}}
    cut["text-classification"] = {"parameters": {"truncation": True}}
    for path, more in cut.items():
        refused = httpx.post(f"{served.url}/classify/{path}", json={"inputs": long})
        assert refused.status_code in (400, 422)
        assert f"found {longest + 2} tokens in text 1; wanted at most {longest}" in refused.text
        assert "=true truncates them" in refused.text
        assert "score" in str(post(served, f"/classify/{path}", inputs=long, **more))
    refused = httpx.post(f"{served.url}/classify/rerank", json={"query": "w1", "texts": ["w2"]})
    assert (refused.status_code, refused.json()["error_type"]) == (424, "backend")


def test_tokens_and_back(served: Running, local: Local) -> None:
    [tokens] = post(served, "/bert/tokenize", inputs="newts ran", add_special_tokens=False)
    assert [(each["text"], each["start"], each["stop"]) for each in tokens] == [
        ("newt", 0, 4),
        ("##s", 4, 5),
        ("ran", 6, 9),
    ]
    assert post(served, "/bert/decode", ids=[each["id"] for each in tokens]) == ["newts ran"]


# ours


def test_texts_are_scored(served: Running, local: Local) -> None:
    ways = {
        "bert": ("masked", "word"),
        "gpt2": ("causal",),
        "elmo": ("forward", "backward", ""),
        "hybrid": ("causal", "masked", "word", ""),
        "diffusion": ("masked", ""),
    }
    for name, way in [(name, way) for name, several in ways.items() for way in several]:
        [answer] = post(served, f"/{name}/score", texts=TEXTS, way=way)
        scored = local[name].score(TEXTS, way=way)
        assert [each["log_likelihood"] for each in answer["scores"]] == [each.log_likelihood for each in scored]
        assert answer["scores"][0]["words"][1]["bits"] == scored[0].words[1].bits
    several = post(served, "/score", texts=TEXTS[0], models=["gpt2", "elmo"])
    assert [each["model"] for each in several] == ["gpt2", "elmo"]
    [pair] = post(served, "/gpt2/pairs", pairs=[{"good": TEXTS[0], "bad": TEXTS[1]}])
    sums = [each.log_likelihood for each in local["gpt2"].score(TEXTS[:2])]
    assert [pair["good"], pair["bad"], pair["right"]] == [*sums, sums[0] > sums[1]]
    [tokens] = post(served, "/electra/replaced", texts=TEXTS[0])
    real = local["electra"].score(TEXTS[0], way="detect").tokens[0].bits
    assert real is not None
    assert tokens[0]["fake"] == 1 - 2.0**-real


def test_texts_are_scored_at_checkpoints(tiny_run: Any, folders: dict[str, Path]) -> None:
    """By the server, from Python and by the verb alike; two clients at once have their turns."""
    texts = ["The sun warms the stone.", "it rains"]
    near = [(model.step, model.score(texts)) for model in ordsmed.open(tiny_run.gpt2, device="cpu").at_steps()]
    steps = [step for step, _ in near]
    assert len(steps) > 2
    with running({"run": tiny_run.gpt2, "folder": folders["gpt2"]}, checkpoints=True) as server:
        with ThreadPoolExecutor(2) as pool:
            several = [*pool.map(lambda _: post(server, "/run/score", texts=texts, steps="all"), range(2))]
        for answer in several:
            assert [each["step"] for each in answer] == steps
            for each, (_, scored) in zip(answer, near, strict=True):
                assert [of["log_likelihood"] for of in each["scores"]] == [of.log_likelihood for of in scored]
        [last, first] = post(server, "/score", texts=texts, models=["run"], steps=[steps[0], steps[-1]])[::-1]
        assert (first["step"], last["step"]) == (steps[0], steps[-1])
        assert last["scores"] == post(server, "/run/score", texts=texts)[0]["scores"]
        refused = httpx.post(f"{server.url}/run/score", json={"texts": texts, "steps": [7]})
        assert (
            refused.status_code,
            "steps: found 7, but run has no checkpoint of it; wanted one of 0, " in refused.text,
        ) == (400, True)
        refused = httpx.post(f"{server.url}/folder/score", json={"texts": texts, "steps": "all"})
        assert "folder" in refused.json()["error"], refused.text
        assert "has no checkpoints" in refused.json()["error"]


def test_checkpoints_are_opened_only_where_that_is_allowed(served: Running) -> None:
    refused = httpx.post(f"{served.url}/gpt2/score", json={"texts": "a", "steps": "all"})
    assert refused.status_code == 400
    assert refused.json()["error"] == "steps: this server does not open checkpoints; start it with --checkpoints"


def test_the_verb_tells_surprisal(tiny_run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    model, text = ordsmed.open(tiny_run.gpt2, device="cpu"), "it rains and it rains"
    place = ["surprisal", str(tiny_run.gpt2), "--device", "cpu"]

    def lines(*words: str) -> list[str]:
        main([*place, *words])
        return capsys.readouterr().out.splitlines()

    scored = model.score(text)
    [told] = [json.loads(line) for line in lines(text, "--json")]
    assert told["log_likelihood"] == scored.log_likelihood
    head, words = lines(text)
    assert head == f"{text}: step {model.step}, causal, {sum(of.bits for of in scored.tokens):.2f} bits"
    assert words.split() == [x for of in scored.words for x in (of.text, f"{of.bits:.2f}")]
    rows = [line.split("\t") for line in lines(text, "it", "--tsv", "--tokens", "--step", "all")]
    by_step = {at.step: at.score([text, "it"]) for at in model.at_steps()}
    assert [(int(step), int(n), float(bits), word) for step, n, _, _, _, bits, word in rows[1:]] == [
        (step, n, of.bits, of.text.strip())
        for step, both in by_step.items()
        for n, each in enumerate(both, 1)
        for of in each.tokens
    ]
    with pytest.raises(SystemExit):
        main([*place, text, "--step", "0,7"])
    assert "--step: found 7, but" in capsys.readouterr().err


def test_words_have_the_bits_of_their_pieces(local: Local) -> None:
    scored = local["bert"].score("newts swam")
    assert [part.text for part in scored.tokens] == ["newt", "s", "swam"]
    assert [part.text for part in scored.words] == ["newts", "swam"]
    bits = [part.bits for part in scored.tokens]
    assert scored.words[0].bits == pytest.approx(bits[0] + bits[1])
    assert scored.log_likelihood == pytest.approx(-sum(bits) * np.log(2))
    with pytest.raises(ordsmed.DataError, match="33 tokens; wanted at most 30"):
        local["bert"].score("it " * 33)


def test_an_address_is_the_same_model(served: Running, local: Local) -> None:
    """Every method, to the last digit."""
    far = {name: ordsmed.open(f"{served.url}/{name}") for name in local}
    near = local
    assert (far["tag"].can, far["tag"].labels) == (near["tag"].can, near["tag"].labels)
    assert repr(far["bert"]) == f"<bert from {served.url}/bert: fill, generate, score, embed>"
    text = "the [MASK] cat"
    assert far["bert"].fill(text, best=2) == near["bert"].fill(text, best=2)
    assert far["bert"].fill([text], targets=["dog"]) == near["bert"].fill([text], targets=["dog"])
    how: dict[str, Any] = {"tokens": 5, "seed": 2, "share": 0.9, "samples": 2}
    assert far["gpt2"].generate("the", **how) == near["gpt2"].generate("the", **how)
    assert far["bert"].generate("the", tokens=3, seed=1) == near["bert"].generate("the", tokens=3, seed=1)
    assert [*filter(None, far["gpt2"].stream("the", tokens=5))] == [*near["gpt2"].stream("the", tokens=5)]
    for options in ({}, {"of": "sentences"}, {"layers": [0, -1], "dtype": "float16"}):
        ours, theirs = (model.embed(TEXTS, **options) for model in (near["bert"], far["bert"]))
        for one, other in zip(ours, theirs, strict=True):
            assert (one.text, one.words, one.vectors.dtype) == (other.text, other.words, other.vectors.dtype)
            assert np.array_equal(one.vectors, other.vectors)
    assert far["answer"].answer("w80", "w7 w80 w3") == near["answer"].answer("w80", "w7 w80 w3")
    assert far["classify"].classify(WORDS) == near["classify"].classify(WORDS)
    assert far["pairs"].classify("w1", "w80") == near["pairs"].classify("w1", "w80")
    assert far["tag"].tag(["w1 w80", ["w2", "w90"]]) == near["tag"].tag(["w1 w80", ["w2", "w90"]])
    assert far["hybrid"].fill(text, best=2) == near["hybrid"].fill(text, best=2)
    assert far["hybrid"].generate("the", tokens=5, seed=1) == near["hybrid"].generate("the", tokens=5, seed=1)
    how = {"tokens": 5, "seed": 1, "together": 2, "order": "chance"}
    assert far["diffusion"].generate("the", **how) == near["diffusion"].generate("the", **how)
    assert [*filter(None, far["diffusion"].stream("the", tokens=4))] == [*near["diffusion"].stream("the", tokens=4)]
    assert far["elmo"].score(TEXTS, way="backward") == near["elmo"].score(TEXTS, way="backward")


def test_an_address_that_is_wrong_is_refused_in_a_line(served: Running) -> None:
    with pytest.raises(ordsmed.RecipeError, match="no model `brt`; did you mean `bert`"):
        ordsmed.open(f"{served.url}/brt")
    with pytest.raises(ordsmed.RunError, match=r"cannot be reached: .*start one: `ordsmed serve`"):
        ordsmed.open("http://127.0.0.1:1/bert")
    far = ordsmed.open(f"{served.url}/gpt2")
    with pytest.raises(ordsmed.RecipeError, match=r"^gpt2: is a causal model \(gpt2\)"):
        far.fill("the [MASK]")
    with pytest.raises(AttributeError, match="has no `evaluate`; it has fill"):
        far.evaluate("x")


def test_commands_take_an_address(served: Running, capsys: pytest.CaptureFixture[str]) -> None:
    for words, said in (
        (["fill", f"{served.url}/bert", "the [MASK] is old."], "[MASK]: "),
        (["generate", f"{served.url}/gpt2", "the", "--tokens", "3", "--seed", "2"], "the"),
        (["generate", f"{served.url}/gpt2", "the", "a", "--tokens", "3", "--json"], '"prompt": "a"'),
        (["surprisal", f"{served.url}/gpt2", "the river"], "causal"),
    ):
        main(words)
        assert said in capsys.readouterr().out, words
    for words, said in (
        (["fill", f"{served.url}/gpt2", "[MASK]"], "cannot fill: it is a gpt2; it can "),
        (["fill", f"{served.url}/bert", "--step", "3", "[MASK]"], "found options with an address"),
        (["embed", f"{served.url}/bert", __file__, "x.npz"], "a served model has no `embed_file`"),
        (["export", f"{served.url}/bert", "x"], "is the address of a served model; wanted a run's folder"),
        (["show", f"{served.url}/bert"], "is the address of a served model; wanted a recipe or a folder"),
    ):
        with pytest.raises(SystemExit):
            main(words)
        assert said in capsys.readouterr().err, words
