"""Clients of other servers work with this one by their default arguments.

The bodies in DEFAULTS are what each client sends; where a client is installed, it is asked itself. Tried with
huggingface_hub 2.4.0, openai 3.57.0, text_generation 0.7.0 (which needs `--no-deps` next to transformers 5),
llama-index-embeddings-text-embeddings-inference, -huggingface-api and llama-index-postprocessor-tei-rerank 0.6.0 (24
packages more), haystack-ai 3.4.1 with huggingface-api-haystack 3.1.0 (12), langchain-openai 1.7.4 (12) and
langchain-huggingface 1.2.3.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import ordsmed
from kit.served import Running, running
from kit.task_files import task_files
from kit.task_models import write_model
from ordsmed.learn.objective import fresh
from ordsmed.learn.tasks import pairs
from ordsmed.nn.model import own_tensors
from ordsmed.nn.models import bert
from ordsmed.serve.call import ServedCall
from ordsmed.serve.sentences import _last_tokens
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.weights.foreign import Networks

Local = dict[str, ordsmed.OpenModel]
HUB = {"user-agent": "unknown/None; hf_hub/2.4.0; python/3.11.7"}
GENERATED = {  # text_generation's parameters
    "do_sample": False,
    "max_new_tokens": 20,
    "repetition_penalty": None,
    "frequency_penalty": None,
    "return_full_text": False,
    "stop": [],
    "seed": None,
    "temperature": None,
    "top_k": None,
    "top_p": None,
    "truncate": None,
    "typical_p": None,
    "best_of": None,
    "watermark": False,
    "details": True,
    "decoder_input_details": False,
    "top_n_tokens": None,
    "grammar": None,
}
LANGCHAIN = {
    "do_sample": False,
    "max_new_tokens": 8,
    "return_full_text": False,
    "stop": [],
    "temperature": 0.8,
    "top_p": 0.95,
    "typical_p": 0.95,
    "watermark": False,
}
TALK = {"messages": [{"role": "user", "content": "the", "name": None, "tool_calls": None}], "max_tokens": None}
DEFAULTS: list[tuple[str, dict[str, Any], int, str]] = [  # path, body, status, a part of the answer
    ("/bert/embed", {"inputs": ["a cat"], "truncate": True}, 200, "[["),  # llama-index
    ("/bert/embed", {"inputs": "a cat", "normalize": None, "prompt_name": None, "dimensions": None}, 200, "[["),
    ("/fits/rerank", {"query": "w1", "texts": ["w2"]}, 200, '"index":0'),
    ("/fits/rerank", {"query": "w1", "texts": ["w2"], "raw_scores": False}, 200, '"index":0'),  # haystack
    ("/rerank", {"query": "w1", "texts": ["w2"], "raw_scores": False}, 200, '"index":0'),  # its url has no path
    ("/gpt2/pairs", {"pairs": [{"good": "a", "bad": "b", "extra": None}]}, 200, '"right"'),
    ("/bert", {"inputs": "a cat", "normalize": False, "truncate": True}, 200, "[["),
    ("/gpt2", {"inputs": "a cat", "normalize": False, "truncate": True}, 200, "[["),
    ("/gpt2", {"inputs": "a cat", "parameters": GENERATED, "stream": False}, 200, '[{"generated_text"'),
    ("/gpt2", {"inputs": "a cat", "parameters": GENERATED, "stream": True}, 200, 'data: {"index":1'),
    ("/gpt2", {"inputs": "a cat", "parameters": LANGCHAIN}, 200, '[{"generated_text"'),
    ("/gpt2", {"inputs": "a cat", "parameters": {}}, 200, '[{"generated_text"'),  # curl
    ("/gpt2", {"inputs": "a cat"}, 200, '[{"generated_text"'),
    ("/bert", {"inputs": "a cat"}, 400, "give the task by its path: /bert/fill-mask, /bert/feature-extraction"),
    ("/gpt2", {"inputs": "a", "parameters": {"function_to_apply": "softmax"}}, 400, "this one can generate, score"),
    (
        "/gpt2",
        {"inputs": "a", "parameters": {"candidate_labels": ["x"], "multi_label": False}},
        404,
        "no task `zero-shot-classification`; wanted one of fill-mask, token-classification",
    ),
    ("/gpt2", {"inputs": "a", "parameters": {"src_lang": "x"}}, 404, "no task `translation`"),
    ("/bert", {"inputs": {"query": "a", "table": {"a": ["1"]}}, "parameters": {}}, 404, "`table-question-answering`"),
    ("/gpt2", {"inputs": "a", "parameters": {"top_n_tokens": 3}}, 400, "top_n_tokens: is not supported"),
    ("/gpt2", {"inputs": "a", "parameters": {"best_of": 1, "max_new_tokens": 2}}, 200, "generated_text"),
    ("/gpt2/v1/chat/completions", {"model": "tgi", **TALK}, 400, "use POST /v1/completions"),
    ("/v1/chat/completions", {"model": "gpt2", **TALK}, 400, "`gpt2` continues texts"),
    (
        "/v1/completions",
        {
            "model": "gpt2",
            "prompt": ["a"],
            "frequency_penalty": 0,
            "logprobs": None,
            "max_tokens": 9,
            "n": 1,
            "presence_penalty": 0,
            "seed": None,
            "temperature": 0.7,
            "top_p": 1,
        },
        200,
        "cmpl-",
    ),
    (
        "/v1/embeddings",
        {"model": "bert", "input": ["a"], "encoding_format": None, "user": None, "extra": None},
        200,
        '"embedding":[',
    ),
]


def ask(served: Running, path: str, body: dict[str, Any], **headers: str) -> httpx.Response:
    return httpx.post(served.url + path, json=body, headers=headers, timeout=60)


@pytest.mark.parametrize(("path", "body", "status", "part"), DEFAULTS)
def test_default_requests_of_clients(served: Running, path: str, body: dict[str, Any], status: int, part: str) -> None:
    answer = ask(served, path, body)
    assert (answer.status_code, part in answer.text) == (status, True), answer.text


def test_the_request_says_which_task_is_meant(served: Running) -> None:
    """InferenceClient sends no `parameters` for vectors and some, if empty, for all else."""
    features = ask(served, "/gpt2", {"inputs": "a cat"}, **HUB).json()
    assert features == ask(served, "/gpt2/feature-extraction", {"inputs": "a cat"}).json()
    written = ask(served, "/gpt2", {"inputs": "a cat", "parameters": {}}, **HUB).json()
    assert [*written] == ["generated_text"]  # no list, which clients of other tasks would take for their answer
    for name in ("elmo", "bert"):
        refused = ask(served, f"/{name}", {"inputs": "a cat", "parameters": {}}, **HUB)
        assert (refused.status_code, f"/{name}/feature-extraction" in refused.text) == (400, True), refused.text


def test_long_texts_are_cut_where_they_may_be_and_it_is_reported(served: Running, local: Local) -> None:
    words = [f"w{number}" for number in range(90)]
    long, end = " ".join(["cat"] * 40 + ["old"]), " ".join(["cat"] * 29 + ["old"])  # 30 tokens: the window of `bert`
    texts = ["it ran", long]
    for path in ("/bert/embed", "/bert/feature-extraction", "/bert"):

        def vectors(**more: Any) -> Any:
            answer = ask(served, path, {"inputs": texts, "normalize": True, **more})  # noqa: B023
            assert answer.status_code == 200, answer.text
            return np.array(answer.json()), answer.headers.get("x-truncated-inputs")

        right, cut = vectors(truncate=True)
        assert cut == "1"
        assert np.allclose(right, vectors()[0], atol=1e-6)
        left, cut = vectors(truncate=True, truncation_direction="left")
        assert cut == "1"
        assert np.allclose(left[1], ask(served, "/bert/embed", {"inputs": end}).json()[0], atol=1e-6)
        assert not np.allclose(left[1], right[1], atol=1e-4)
        refused = ask(served, path, {"inputs": texts, "normalize": True, "truncate": False})
        assert "found 41 tokens in text 2; wanted at most 30; truncate=true truncates them" in refused.text
        assert refused.status_code in (400, 422)
    assert "x-truncated-inputs" not in ask(served, "/bert/embed", {"inputs": texts[0], "truncate": True}).headers
    openai = ask(served, "/v1/embeddings", {"model": "bert", "input": texts})
    assert openai.headers["x-truncated-inputs"] == "1"
    for path, body, kept in (
        ("/classify/predict", {"inputs": " ".join(words)}, 38),
        ("/pairs/predict", {"inputs": [["w1", " ".join(words)]]}, 36),
        ("/fits/rerank", {"query": "w1", "texts": [" ".join(words)]}, 36),
    ):
        assert ask(served, path, body).status_code == 422
        answers = [
            ask(served, path, {**body, "truncate": True, "truncation_direction": side}) for side in ("Right", "Left")
        ]
        assert {answer.headers["x-truncated-inputs"] for answer in answers} == {"0"}
        parts = " ".join(words[:kept]), " ".join(words[-kept:])
        short = [ask(served, path, json.loads(json.dumps(body).replace(" ".join(words), part))) for part in parts]
        assert [answer.json() for answer in answers] == [answer.json() for answer in short], path
    answer = ask(served, "/classify/predict", {"inputs": "w1", "prompt_name": "query"})
    assert (answer.status_code, "prompt_name: found query" in answer.text) == (422, True)
    prompt = {"inputs": "a b " + " ".join(["the old cat"] * 20), "parameters": {"max_new_tokens": 3}}
    assert ask(served, "/gpt2", prompt).status_code == 400
    prompt["parameters"] = {"max_new_tokens": 3, "truncate": 6, "return_full_text": True}
    answer = ask(served, "/gpt2", prompt)
    assert answer.headers["x-truncated-inputs"] == "0"
    assert answer.json()[0]["generated_text"].split()[:6] == ["the", "old", "cat", "the", "old", "cat"]


@pytest.mark.parametrize(
    ("text", "count", "rest"),
    [
        ("ab cd ef", 2, "ef"),
        ("ab cd ef", 4, "cd ef"),
        ("ab cd ef", 9, "ab cd ef"),
        ("abcdef", 2, "ef"),
        ("ab cdef", 2, "ef"),
        ("ab cd", 0, ""),
        ("ab cd ", 2, "cd "),
    ],
)
def test_the_end_of_a_text_begins_with_a_word_where_there_is_one(text: str, count: int, rest: str) -> None:
    """Of tokens of one character."""
    assert _last_tokens(text, [number for number, sign in enumerate(text) if sign != " "], count) == rest


def test_many_truncated_inputs_are_counted(served: Running) -> None:
    call = ServedCall(served.service, "", None)
    call.report_truncated([*range(0, 260, 2)])
    listed, _, more = call.headers["x-truncated-inputs"].rpartition(", ")
    assert (len(listed.split(", ")), listed[-3:], more) == (100, "198", "and 30 more")


def test_vectors_with_learned_prompts(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(task_files(tmp_path / "data", train=4, dev=4) / "vocab.txt")
    task = pairs.TextPairs(length=12, query="w1 w2 ", passage="w3 ")
    model = bert.Bert(width=16, layers=1, heads=2, inner=16, positions=64)
    networks = Networks(model=model, task=task)
    write_model(tmp_path / "learned", own_tensors(fresh(task, model, tokenizer, 3)), networks, tokenizer)
    local, text = ordsmed.open(tmp_path / "learned", device="cpu"), "w7 w8 w9"
    with running({"learned": tmp_path / "learned"}) as served:
        for path in ("/embed", "/feature-extraction", "/learned"):
            for name, prompt in (("query", "query"), ("document", "passage"), (None, "")):
                answer = ask(
                    served, path, {"inputs": [text], "prompt_name": name, "truncate": False, "normalize": True}
                )
                wanted = local.embed(text, of="sentences", prompt=prompt).vectors  # type: ignore[arg-type]
                assert answer.json()[0] == pytest.approx(wanted.tolist(), abs=1e-6), (path, name)
        for count, headers in ((8, None), (9, "0")):  # between two special tokens, behind two of the prompt
            answer = ask(served, "/embed", {"inputs": "w7 " * count, "prompt_name": "query"})
            assert answer.headers.get("x-truncated-inputs") == headers
        refused = ask(served, "/learned", {"inputs": text, "parameters": {}}, **HUB)
        assert (refused.status_code, "/learned/sentence-similarity" in refused.text) == (400, True)
        assert ask(served, "/learned", {"inputs": text}).status_code == 200


def test_typical_tokens_are_drawn(served: Running, local: Local) -> None:
    how = {"max_new_tokens": 9, "typical_p": 0.4, "seed": 3}
    [answer] = ask(served, "/gpt2", {"inputs": "the old", "parameters": how}).json()
    assert answer["generated_text"] == local["gpt2"].generate("the old", tokens=9, typical=0.4, seed=3).continuation
    [other] = ask(served, "/gpt2", {"inputs": "the old", "parameters": {**how, "typical_p": 1}}).json()
    assert other["generated_text"] == local["gpt2"].generate("the old", tokens=9, temperature=0).continuation


# the clients themselves


def test_huggingface_hub(served: Running, local: Local) -> None:
    """Each of its tasks for texts, by the address of a model."""
    hub = pytest.importorskip("huggingface_hub")

    def client(name: str) -> Any:
        return hub.InferenceClient(f"{served.url}/{name}")

    for name in ("bert", "gpt2"):
        vector = local[name].embed("a cat", of="sentences").vectors
        assert np.allclose(client(name).feature_extraction("a cat"), [vector], atol=1e-6)
    assert len(client("bert").feature_extraction("a cat", truncate=True, truncation_direction="left")[0]) == 32
    text, writer = local["gpt2"].generate("the old", tokens=100, temperature=0).continuation, client("gpt2")
    assert writer.text_generation("the old") == text
    assert "".join(writer.text_generation("the old", stream=True)) == text
    details = writer.text_generation("the old", details=True, decoder_input_details=True).details
    *_, last = writer.text_generation("the old", details=True, stream=True)
    assert details.generated_tokens == len(details.tokens) == last.details.generated_tokens
    tokenizer = local["gpt2"].trained.tokenizer
    assert tokenizer.decode([token.id for token in details.tokens]) == text.strip()
    assert [token.text.strip() for token in details.prefill] == ["the", "old"]
    assert len(client("bert").fill_mask("the [MASK] cat")) == 5
    assert client("tag").token_classification("w80 w1")
    assert client("classify").text_classification("w80 w1")[0].label in local["classify"].labels
    assert client("answer").question_answering("w80", "w7 w80 w3").answer is not None
    assert client("bert").sentence_similarity("a cat", ["a cat"])[0] == pytest.approx(1)
    for name in ("bert", "answer", "elmo"):  # models without classes
        with pytest.raises(hub.errors.BadRequestError, match=f"/{name}/"):
            client(name).text_classification("a cat")
    for ask_it in (client("gpt2").text_classification, client("gpt2").token_classification, client("gpt2").fill_mask):
        with pytest.raises(ValueError, match="Expected a list"):  # the same request as for a text
            ask_it("a cat")
    with pytest.raises(hub.errors.BadRequestError, match="this one can generate"):
        client("gpt2/text-classification").text_classification("a cat")
    with pytest.raises(hub.errors.BadRequestError, match="continues texts"):
        client("gpt2").chat_completion([{"role": "user", "content": "hi"}])
    with pytest.raises(hub.errors.HfHubHTTPError, match="no task `zero-shot-classification`; wanted one of fill-mask"):
        client("classify").zero_shot_classification("a cat", ["x", "y"])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # its own
def test_text_generation(served: Running, local: Local) -> None:
    client = pytest.importorskip("text_generation").Client(f"{served.url}/gpt2")
    text = local["gpt2"].generate("the old", tokens=20, temperature=0).continuation
    answer = client.generate("the old")
    assert (answer.generated_text, answer.details.generated_tokens) == (text, len(answer.details.tokens))
    parts = [*client.generate_stream("the old")]
    assert "".join(part.token.text for part in parts) == text == parts[-1].generated_text


def test_llama_index(served: Running, local: Local) -> None:
    tei = pytest.importorskip("llama_index.embeddings.text_embeddings_inference")
    hub = pytest.importorskip("llama_index.embeddings.huggingface_api")
    rerank = pytest.importorskip("llama_index.postprocessor.tei_rerank")
    from llama_index.core.schema import NodeWithScore, TextNode

    vector = local["bert"].embed("a cat", of="sentences").vectors
    client = tei.TextEmbeddingsInference(model_name="bert", base_url=f"{served.url}/bert")
    unit = vector / np.linalg.norm(vector)
    for found in (client.get_text_embedding("a cat"), *client.get_text_embedding_batch(["a cat", "a cat"])):
        assert np.allclose(found, unit, atol=1e-6)
    one = hub.HuggingFaceInferenceAPIEmbedding(model_name=f"{served.url}/bert").get_text_embedding("a cat")
    assert np.allclose(one, vector, atol=1e-6)
    nodes = [NodeWithScore(node=TextNode(text=text), score=0.0) for text in ("w1 w2", "w70 w71 w72")]
    ranker = rerank.TextEmbeddingInference(model_name="fits", base_url=f"{served.url}/fits")
    scores = [local["fits"].classify("w1", text).number for text in ("w1 w2", "w70 w71 w72")]
    found = [node.score for node in ranker.postprocess_nodes(nodes, query_str="w1")]
    assert found == pytest.approx(sorted(scores, reverse=True), abs=1e-5)


def test_haystack(served: Running, local: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HAYSTACK_TELEMETRY_ENABLED", "False")
    embedders = pytest.importorskip("haystack_integrations.components.embedders.huggingface_api")
    rankers = pytest.importorskip("haystack_integrations.components.rankers.huggingface_api")
    from haystack import Document

    how = {"api_type": "text_embeddings_inference", "api_params": {"url": f"{served.url}/bert"}, "token": None}
    vector = local["bert"].embed("a cat", of="sentences").vectors
    assert np.allclose(embedders.HuggingFaceAPITextEmbedder(**how).run("a cat")["embedding"], vector, atol=1e-6)
    long = Document(content="cat " * 60)
    embedder = embedders.HuggingFaceAPIDocumentEmbedder(**how, progress_bar=False)
    documents = embedder.run([Document(content="a cat"), long])["documents"]
    assert np.allclose(documents[0].embedding, vector, atol=1e-6)
    ranked = rankers.HuggingFaceTEIRanker(url=served.url, token=None).run("w1", [Document(content="w2")])
    assert len(ranked["documents"]) == 1


def test_langchain(served: Running, local: Local) -> None:
    langchain = pytest.importorskip("langchain_openai")
    where = {"base_url": f"{served.url}/v1", "api_key": "none", "max_retries": 0}
    writer = langchain.OpenAI(**where, model="gpt2", seed=1)  # it draws, and the random model may end at once
    assert writer.invoke("the old")
    assert [*writer.stream("the old")]
    embed = langchain.OpenAIEmbeddings(**where, model="bert", check_embedding_ctx_length=False)
    assert len(embed.embed_query("a cat")) == 32
    hugging_face = pytest.importorskip("langchain_huggingface")
    writer = hugging_face.HuggingFaceEndpoint(
        endpoint_url=f"{served.url}/gpt2", huggingfacehub_api_token="none", seed=1
    )
    assert writer.invoke("the old")
    assert [*writer.stream("the old")]
