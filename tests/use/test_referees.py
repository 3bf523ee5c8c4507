"""Exported models give the same scores in lm-evaluation-harness, minicons, sentence-transformers and simple_elmo.

simple_elmo needs TensorFlow, and therefore a separate environment:

    python -m venv elmo && elmo/bin/pip install tensorflow tf-keras simple_elmo
    ORDSMED_SIMPLE_ELMO=elmo/bin/python python -m pytest tests/use/test_referees.py
"""

from __future__ import annotations

import functools
import json
import math
import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kit.families import shaken
from kit.language_models import LEARNED, SIZE, elmo_made, made, tokenizer
from ordsmed.learn.objectives import mlm, mlm_nsp
from ordsmed.learn.tasks import classify
from ordsmed.measure.likelihood import ways
from ordsmed.measure.likelihood.items import Item
from ordsmed.measure.probes import cloze, wikitext
from ordsmed.measure.probes.minimal_pairs import MinimalPairs
from ordsmed.nn.models import bert, megatron_bert, roberta
from ordsmed.nn.models.gpt2 import Gpt2
from ordsmed.text.tokenizers import bytebpe
from ordsmed.use.embed import Form, embedded
from ordsmed.use.generate import generate
from ordsmed.use.generation.options import SamplingOptions
from ordsmed.weights.formats import elmo as elmo_files
from ordsmed.weights.formats.huggingface import HuggingFace
from ordsmed.weights.formats.sentence_transformers import SentenceTransformers
from ordsmed.weights.trained_model import Trained, open_model

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.long]
CAUSAL = ["gpt2", "gpt2 of bytes", "gpt2 of roberta's bytes", "hybrid", "hybrid-modern"]
MASKED = ["bert", "bert with pairs", "megatron_bert", "roberta", "modern", "electra"]
MORE = {
    "bert with pairs": (bert.Bert(**SIZE), mlm_nsp.MlmNsp()),
    "megatron_bert": (megatron_bert.MegatronBert(**SIZE), mlm_nsp.MlmNsp()),
    "roberta": (roberta.Roberta(**SIZE), mlm.Mlm()),
}
TEXTS = ["the newts swam under it", "the old red cat sat on a mat and ran", "a"]
Exported = Callable[[str], tuple[Trained, Path]]


def bytes_of(order: Any) -> Any:
    return bytebpe.ByteBpe(size=300, order=order).train([*TEXTS, "the newt sat on the mat"] * 3)


def model_of(family: str, folder: Path) -> Trained:
    """A small one with random weights; of bytes where its tokenizer has no padding, or two signs."""
    name, _, order = family.partition(" of ")
    if name not in MORE and not order:
        return made(name, folder)
    of_bytes = bytes_of("roberta" if "roberta" in family else "gpt2") if order or name == "roberta" else None
    cutter = of_bytes or tokenizer(folder)
    settings, learned = MORE[name] if name in MORE else LEARNED[name]
    torch.manual_seed(3)
    return Trained(shaken(learned.build(settings, cutter)).eval(), cutter, settings, folder, learned=learned)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """A model, and the folder that is written of it."""

    @functools.cache
    def of(family: str) -> tuple[Trained, Path]:
        folder = tmp_path_factory.mktemp("referees")
        trained = model_of(family, folder / "run")
        (folder / "out").mkdir()
        HuggingFace().write(trained, folder / "out")
        return trained, folder / "out"

    return of


def causal_folder(out: Path) -> Path:
    return out if (out / "generation_config.json").exists() else out / "causal"


def nats(trained: Trained, way: str, texts: list[str]) -> list[float]:
    scorer = ways.scorer(trained, way)
    return [one.total for one in scorer.scores(scorer.cut(texts))]


def probed(trained: Trained, probe: Any) -> Any:
    """What a probe finds, and its records."""
    scorer = ways.scorer(trained, "causal")
    examples = list(probe.examples(scorer))
    scores = iter(scorer.scores([item for one in examples for item in one.items], best=probe.best))
    records = [probe.record(one, [next(scores) for _ in one.items]) for one in examples]
    return records, probe.finding(records)


def bare_text(text: str) -> str:
    return text.strip().removeprefix("##")


def theirs(kind: str, judge: Any, *asked: Any) -> list[Any]:
    """What lm_eval answers."""
    from lm_eval.api.instance import Instance

    rows = [Instance(request_type=kind, doc={}, arguments=one, idx=n) for n, one in enumerate(asked)]
    return list(getattr(judge, kind)(rows, disable_tqdm=True))


@pytest.mark.parametrize("family", CAUSAL)
def test_the_harness_reads_and_writes_the_same(family: str, exported: Exported) -> None:
    """A text behind nothing, an ending behind a text, a whole text; the sign put once, or as it is asked, never."""
    models = pytest.importorskip("lm_eval.models.huggingface", reason="lm_eval is not installed: pip install -e .[dev]")
    trained, out = exported(family)
    scorer = ways.scorer(trained, "causal")
    way: dict[str, Any] = {"pretrained": str(causal_folder(out)), "device": "cpu", "dtype": "float32", "batch_size": 2}
    judge, bare = models.HFLM(**way), models.HFLM(**way, add_bos_token=False)
    ours = nats(trained, "causal", TEXTS)
    for one in (judge, bare):
        assert [log for log, _ in theirs("loglikelihood", one, *(("", text) for text in TEXTS))] == pytest.approx(
            ours, abs=1e-4
        )
    assert theirs("loglikelihood_rolling", bare, *((text,) for text in TEXTS)) == pytest.approx(ours, abs=1e-4)
    end = scorer.cut([f"{TEXTS[0]} the"])[0]
    for one, sign in ((judge, True), (bare, False)):
        [(found, _)] = theirs("loglikelihood", one, (TEXTS[0], " the"))
        [wanted] = scorer.scores([replace(end, first=len(scorer.cut([TEXTS[0]])[0]), sign=sign)])
        assert found == pytest.approx(wanted.total, abs=1e-4)
        how = SamplingOptions(tokens=5, temperature=0, start=sign)
        written = theirs("generate_until", one, (TEXTS[1], {"max_gen_toks": 5, "until": ["\n\n\n"]}))
        assert bare_text(written[0]) == bare_text(generate(trained, TEXTS[1], how).continuation)
    # its rolling sums add a second start token to the tokenizer's; docs/evaluation.md shows how to turn it off
    text, sign = scorer.cut([TEXTS[0]])[0].pieces, scorer.tokenizer.separator
    [twice] = scorer.scores([Item(np.asarray([sign, sign, *text]), first=1, sign=False)])
    assert theirs("loglikelihood_rolling", judge, (TEXTS[0],)) == pytest.approx([twice.total], abs=1e-4)


@pytest.mark.parametrize("family", ["gpt2", "gpt2 of bytes"])
def test_the_harness_counts_the_same(family: str, exported: Exported, tmp_path: Path) -> None:
    """Last words behind passages that are too long, behind the sign or not; and pages of a text, window by window."""
    models = pytest.importorskip("lm_eval.models.huggingface", reason="lm_eval is not installed: pip install -e .[dev]")
    from lm_eval.tasks.wikitext.preprocess_wikitext import process_results, wikitext_detokenizer

    trained, out = exported(family)
    way: dict[str, Any] = {"pretrained": str(out), "device": "cpu", "dtype": "float32", "batch_size": 2}
    judge, bare = models.HFLM(**way), models.HFLM(**way, add_bos_token=False)
    ends = [(one, " newts") for one in ("the old red cat sat", "a dog ran on it " * 12, "the mat " * 15)]
    (tmp_path / "x.jsonl").write_text("".join(json.dumps({"text": a + b}) + "\n" for a, b in ends))
    for one, start in ((judge, True), (bare, False)):
        records, _ = probed(trained, cloze.Cloze(files=(str(tmp_path / "x.jsonl"),), start=start))
        found = theirs("loglikelihood", one, *((a.strip(), b) for a, b in ends))
        assert [row.log for row in records] == pytest.approx([log for log, _ in found], abs=1e-4)
        assert [row.word for row in records] == [best for _, best in found]
    title = " \n = The newts = \n \n"
    pages = [
        f"{title} the old newt , a red @-@ old cat ( it sat ) . \n = = More = = \n" + "a dog ran \n" * n
        for n in (1, 40)
    ]
    (tmp_path / "raw").write_text("".join(pages).replace(" \n = The", "\n = The"))
    probe = wikitext.Wikitext(files=(str(tmp_path / "raw"),), set="wikitext-raw", pages=True)
    records, finding = probed(trained, probe)
    docs = [{"page": one} for one in wikitext.PAGE.split((tmp_path / "raw").read_text()) if one.strip()]
    assert len(docs) == finding.facts["pages"] == 2
    sums = theirs("loglikelihood_rolling", bare, *((wikitext_detokenizer(doc),) for doc in docs))
    assert sum(row.nats for row in records) == pytest.approx(-sum(sums), rel=1e-6)
    parts = [process_results(doc, [one]) for doc, one in zip(docs, sums, strict=True)]
    words, size = (math.fsum(one[key][1] for one in parts) for key in ("word_perplexity", "bits_per_byte"))
    assert finding.facts["word_perplexity"] == pytest.approx(math.exp(-sum(sums) / words), rel=1e-5)
    assert finding.facts["bits_per_byte"] == pytest.approx(-sum(sums) / math.log(2) / size, rel=1e-6)


@pytest.mark.parametrize("family", CAUSAL)
def test_transformers_goes_on_as_here(family: str, exported: Exported) -> None:
    import transformers as t

    trained, out = exported(family)
    folder = causal_folder(out)
    ours = generate(trained, TEXTS[1], SamplingOptions(tokens=6, temperature=0))
    cutter, network = t.AutoTokenizer.from_pretrained(folder), t.AutoModelForCausalLM.from_pretrained(folder)
    ids = cutter(TEXTS[1], return_tensors="pt")["input_ids"]
    written = network.generate(ids, max_new_tokens=6, do_sample=False)[0, ids.shape[1] :]
    assert bare_text(trained.tokenizer.decode(written.tolist())) == bare_text(ours.continuation)
    again = open_model(folder)
    assert again.tokenizer.fingerprint == trained.tokenizer.fingerprint
    assert again.tokenizer.encode("a", special=True) == trained.tokenizer.encode("a", special=True)
    assert generate(again, TEXTS[1], SamplingOptions(tokens=6, temperature=0)) == ours


def test_a_tokenizer_that_puts_no_sign_is_written_too(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    trained = model_of("gpt2 of bytes", tmp_path)
    said = replace(trained, tokenizer=bytes_of("gpt2"))
    said.tokenizer.config["add_bos_token"] = False
    for number, (one, form) in enumerate(((trained, HuggingFace(start=False)), (said, HuggingFace()))):
        (out := tmp_path / str(number)).mkdir()
        form.write(one, out)
        cutter = AutoTokenizer.from_pretrained(out)
        assert cutter("the newt")["input_ids"] == trained.tokenizer.encode("the newt")
        assert (cutter.bos_token, cutter.eos_token) == ("<|endoftext|>",) * 2
        assert json.loads((out / "tokenizer_config.json").read_text())["add_bos_token"] is False


def test_a_text_begins_with_bos_where_a_folder_has_another_than_eos(exported: Exported, tmp_path: Path) -> None:
    """Scores and texts are those of lm_eval and transformers, also in the folder that is exported of it."""
    import transformers as t

    models = pytest.importorskip("lm_eval.models.huggingface", reason="lm_eval is not installed: pip install -e .[dev]")
    ours, out = exported("gpt2 of roberta's bytes")
    network = t.AutoModelForCausalLM.from_pretrained(out)
    network.save_pretrained(tmp_path / "foreign")
    bos, eos = (ours.tokenizer.piece(n) for n in (ours.tokenizer.start or 0, ours.tokenizer.separator or 0))
    cutter = t.PreTrainedTokenizerFast(tokenizer_object=ours.tokenizer.pipeline, bos_token=bos, eos_token=eos)
    assert cutter.bos_token_id != cutter.eos_token_id
    cutter.save_pretrained(tmp_path / "foreign")
    trained = open_model(tmp_path / "foreign")
    (tmp_path / "again").mkdir()
    HuggingFace().write(trained, tmp_path / "again")
    wanted = nats(trained, "causal", TEXTS)
    assert wanted != pytest.approx(nats(ours, "causal", TEXTS), abs=1e-3), "from EOS"
    for folder in ("foreign", "again"):
        judge = models.HFLM(pretrained=str(tmp_path / folder), device="cpu", dtype="float32", batch_size=1)
        asked = theirs("loglikelihood", judge, *(("", text) for text in TEXTS))
        assert [log for log, _ in asked] == pytest.approx(wanted, abs=1e-4)
        assert nats(open_model(tmp_path / folder), "causal", TEXTS) == pytest.approx(wanted, abs=1e-6)
    ids = torch.tensor([[cutter.bos_token_id, *ours.tokenizer.encode(TEXTS[1])]])
    written = network.generate(ids, max_new_tokens=6, do_sample=False)[0, ids.shape[1] :]
    continuation = generate(trained, TEXTS[1], SamplingOptions(tokens=6, temperature=0)).continuation
    assert ours.tokenizer.decode(written.tolist()) == continuation


def test_a_fine_tuned_folder_begins_texts_as_the_run_whatever_its_bos(tmp_path: Path) -> None:
    settings, cutter, task = Gpt2(**SIZE), tokenizer(tmp_path / "run"), classify.Classify(train="x", labels=("a", "b"))
    trained = Trained(task.build(settings, cutter).eval(), cutter, settings, tmp_path / "run", learned=task)
    (tmp_path / "out").mkdir()
    HuggingFace().write(trained, tmp_path / "out")
    again = open_model(tmp_path / "out")
    assert again.tokenizer.named("bos_token") == cutter.start != cutter.separator
    assert again.opening == trained.opening == cutter.separator


@pytest.fixture
def minicons(monkeypatch: pytest.MonkeyPatch) -> Any:
    scorer = pytest.importorskip("minicons.scorer", reason="minicons is not installed: pip install -e .[dev]")
    from transformers import PreTrainedTokenizerBase as Base

    if not hasattr(Base, "batch_encode_plus"):  # which minicons 0.3 calls and transformers 5 has no longer
        monkeypatch.setattr(Base, "batch_encode_plus", Base.__call__, raising=False)
    return scorer


def in_minicons(model: Any, **how: Any) -> list[float]:
    return list(model.sequence_score(TEXTS, reduction=lambda logs: logs.double().sum().item(), **how))


@pytest.mark.parametrize("family", MASKED)
@pytest.mark.parametrize(("way", "metric"), [("masked", "original"), ("word", "within_word_l2r")])
def test_minicons_scores_masks_the_same(way: str, metric: str, family: str, minicons: Any, exported: Exported) -> None:
    trained, out = exported(family)
    model = minicons.MaskedLMScorer(str(out / "generator" if family == "electra" else out), "cpu")
    assert in_minicons(model, PLL_metric=metric) == pytest.approx(nats(trained, way, TEXTS), abs=1e-4)


@pytest.mark.parametrize("family", CAUSAL)
def test_minicons_scores_what_comes_next_the_same(family: str, minicons: Any, exported: Exported) -> None:
    trained, out = exported(family)
    model = minicons.IncrementalLMScorer(str(causal_folder(out)), "cpu")
    assert in_minicons(model) == pytest.approx(nats(trained, "causal", TEXTS), abs=1e-4)


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_pairs_as_babylm_scores_them_have_the_sums_of_minicons(
    family: str, minicons: Any, exported: Exported, tmp_path: Path
) -> None:
    trained, out = exported(family)
    row = {"good": TEXTS[0], "bad": TEXTS[1:]}
    (tmp_path / "pairs.jsonl").write_text(json.dumps(row) + "\n")
    probe, scorer = MinimalPairs((str(tmp_path / "pairs.jsonl"),), scoring="babylm"), ways.scorer(trained)
    [example] = probe.examples(scorer)
    model = getattr(minicons, "MaskedLMScorer" if family == "bert" else "IncrementalLMScorer")(str(out), "cpu")
    assert probe.record(example, scorer.scores(list(example.items))).to_list()[2:-1] == pytest.approx(
        in_minicons(model), abs=1e-4
    )


@pytest.mark.parametrize("family", [*MASKED, *CAUSAL])
def test_sentence_transformers_takes_the_mean(family: str, exported: Exported) -> None:
    pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed: pip install -e .[dev]")
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer

    trained, out = exported(family)
    network = Transformer(str(causal_folder(out) if family in CAUSAL else out))
    pooling = Pooling(network.get_embedding_dimension(), "mean")
    model = SentenceTransformer(modules=[network, pooling], device="cpu")
    if model.tokenizer.pad_token is None:  # as everywhere: a GPT-2 has none
        model.tokenizer.pad_token = model.tokenizer.eos_token
    shifted = {"causal": torch.tensor([True])} if trained.objective.shifted else {}
    for text, vector in zip(TEXTS, model.encode(TEXTS), strict=True):
        ids = torch.tensor([model.tokenizer(text)["input_ids"]])
        more = {"documents": torch.ones_like(ids), **shifted} if shifted else {}
        with torch.no_grad():
            states = trained.objective.networks()[""].modules["model"](ids, torch.arange(ids.shape[1])[None], **more)
        assert vector == pytest.approx(states[0].mean(0).numpy(), abs=1e-5)


ST_FAMILIES = ["bert", "roberta", "modern", "electra", "megatron_bert", "gpt2", "gpt2 of bytes"]


@pytest.mark.parametrize("family", ST_FAMILIES)
def test_folders_of_sentence_transformers_give_our_vectors(family: str, tmp_path: Path) -> None:
    """Each pool, each with its prompts, as the folder says it and with nothing added to it."""
    pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed: pip install -e .[dev]")
    from sentence_transformers import SentenceTransformer

    trained = model_of(family, tmp_path / "run")
    for pool in ("mean", "last") if trained.causal else ("mean", "first", "last"):
        out = tmp_path / pool
        out.mkdir()
        form = SentenceTransformers(pool=pool, similarity="dot", query="the old ", normalize=pool == "mean")
        form.check(trained)
        form.write(trained, out)
        model = SentenceTransformer(str(out), device="cpu")
        assert (model.similarity_fn_name, model.max_seq_length) == ("dot", trained.settings.longest())
        for vectors, before in ((model.encode_document(TEXTS), ""), (model.encode_query(TEXTS), "the old ")):
            how = Form(of="sentences", pool="" if pool == "mean" else pool)
            for vector, ours in zip(vectors, embedded(trained, [before + text for text in TEXTS], how), strict=True):
                length = np.linalg.norm(ours.vectors) if pool == "mean" else 1.0
                assert vector == pytest.approx(ours.vectors / length, abs=1e-5)


def test_a_text_that_is_too_long_or_empty_has_the_same_vector_there_as_here(tmp_path: Path) -> None:
    pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed: pip install -e .[dev]")
    from sentence_transformers import SentenceTransformer

    trained = model_of("bert", tmp_path / "run")
    SentenceTransformers(normalize=False).write(trained, tmp_path)
    texts = ["the old red cat sat on a mat and ran " * trained.settings.longest(), "", "\0", "\u200b"]
    model = SentenceTransformer(str(tmp_path), device="cpu")
    for vector, ours in zip(model.encode(texts), embedded(trained, texts, Form(of="sentences")), strict=True):
        assert vector == pytest.approx(ours.vectors, abs=1e-5)


ASK = """
import json, sys
from simple_elmo import ElmoModel
model = ElmoModel()
model.load(sys.argv[1])
found = model.get_elmo_vectors([text.split() for text in json.loads(sys.argv[2])], layers="all", warmup=False)
json.dump(found.tolist(), open(sys.argv[3], "w"))
"""


def test_simple_elmo_reads_the_same_vectors(tmp_path: Path) -> None:
    python = os.environ.get("ORDSMED_SIMPLE_ELMO")
    if not python:
        pytest.skip("simple_elmo needs TensorFlow: ORDSMED_SIMPLE_ELMO names the python that has both (see the top)")
    trained = elmo_made(tmp_path / "run", ((1, 8), (2, 16)))  # it wants more filters than the width
    (tmp_path / "out").mkdir()
    elmo_files.ElmoFormat().write(trained, tmp_path / "out")
    asked = [python, "-c", ASK, str(tmp_path / "out"), json.dumps(TEXTS[:2]), str(tmp_path / "vectors.json")]
    made_ = subprocess.run(
        asked,
        env={**os.environ, "TF_USE_LEGACY_KERAS": "1", "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert made_.returncode == 0, made_.stderr[-2000:]
    found = np.asarray(json.loads((tmp_path / "vectors.json").read_text()))
    for number, one in enumerate(embedded(trained, TEXTS[:2], Form(layers="all"))):
        assert np.abs(found[number, :, : one.vectors.shape[1]] - one.vectors).max() < 1e-5, found.shape
