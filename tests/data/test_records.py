"""TFRecords of examples as data: a store of their text, their rows and masks, and TFRecords written from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kit.makers import SPECIAL, make_store
from ordsmed.base import run
from ordsmed.base.binary import examples, records
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.data.encode import Encoded, Encoding
from ordsmed.data.records import MASKS, TEXT
from ordsmed.learn.objectives import mlm, mlm_nsp, rtd
from ordsmed.learn.phases import Phase
from ordsmed.use.records import write_records

KINDS = {"bert": {**TEXT, **MASKS}, "electra": TEXT}
PHASE = Phase(steps=1, length=24, batch=4, learning_rate=1e-3, pack=False)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("store") / "encode")


@pytest.fixture(scope="module")
def written(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files of BERT's examples, and one of ELECTRA's, packed."""
    out = tmp_path_factory.mktemp("records")
    write_records(str(store), out / "bert", "mlm_nsp", ["mask_prob=0.2"], length=24, parts=2, seed=5)
    write_records(str(store), out / "electra", "rtd", length=24, packed=True)
    return out


def table(path: Path, kind: str) -> dict[str, np.ndarray]:
    blocks = [block for file in sorted(path.glob("*.tfrecord*")) for block in records.read(file)]
    read = [(block, examples.read(block, KINDS[kind])) for block in blocks]
    return {name: np.concatenate([columns.table(name, block) for block, columns in read]) for name in KINDS[kind]}


def encoded(pattern: str, store: Path, out: Path, **more: Any) -> Encoded:
    """What `encode` makes of such files."""
    recipe = out.with_suffix(".toml")
    lines = {"records": pattern, "tokenizer": str(store / "tokenizer"), "out": str(out), **more}
    recipe.write_text("".join(f'{name} = "{value}"\n' for name, value in lines.items()))
    return Encoded(run.obtain(Encoding, str(recipe)))


def test_written_rows_are_those_of_a_training(store: Path, written: Path) -> None:
    own = table(written / "bert", "bert")
    source = Encoded(store)
    rows = mlm_nsp.MlmNsp(mask_prob=0.2).rows([source.train], [1.0], source.tokenizer, PHASE, "records", 5)
    order = np.concatenate([np.arange(part, len(rows), 2) for part in range(2)])
    batch = rows.batch(order)
    assert batch.predicted_positions is not None
    assert batch.types is not None
    assert batch.pairs is not None
    used = batch.weights.numpy()
    assert np.array_equal(own["input_ids"], batch.tokens.numpy())
    assert np.array_equal(own["segment_ids"], batch.types.numpy())
    assert np.array_equal(own["masked_lm_positions"], batch.predicted_positions.numpy() * (used > 0))
    assert np.array_equal(own["masked_lm_ids"], batch.targets.numpy() * (used > 0))
    assert np.array_equal(own["masked_lm_weights"], used)
    assert np.array_equal(own["next_sentence_labels"][:, 0], batch.pairs.numpy())
    assert batch.documents is not None
    assert np.array_equal(own["input_mask"], batch.documents.numpy() > 0)
    assert 0 < own["next_sentence_labels"].mean() < 1
    assert (written / "bert/vocab.txt").read_text().split() == [*SPECIAL, *(f"w{n}" for n in range(120))]


def test_epochs_have_new_pairs_and_masks(store: Path, tmp_path: Path) -> None:
    write_records(str(store), tmp_path / "twice", "mlm_nsp", length=24, times=2)
    own = table(tmp_path / "twice", "bert")["input_ids"]
    half = len(own) // 2
    assert len(own) == 2 * half
    assert len(np.unique(own, axis=0)) > 1.8 * half


@pytest.mark.parametrize("examples_", ["masked", "given"])
def test_berts_examples_come_back_as_they_stand(store: Path, written: Path, tmp_path: Path, examples_: str) -> None:
    own = table(written / "bert", "bert")
    data = encoded(f"{written}/bert/*.tfrecord*", store, tmp_path / "out")
    rows = mlm_nsp.MlmNsp(examples=examples_).rows([data.train], [1.0], data.tokenizer, PHASE, 0)
    assert len(rows) == len(own["input_ids"]) == data.train.document_count
    batch, order = rows.batch(np.arange(len(rows))), rows.plain.blend.place(np.arange(len(rows)))[1]
    assert sorted(order) == list(range(len(rows)))
    own = {name: array[order] for name, array in own.items()}
    assert np.array_equal(batch.types.numpy(), own["segment_ids"])
    assert np.array_equal(batch.pairs.numpy(), own["next_sentence_labels"][:, 0])
    whole = own["input_ids"].copy()
    row, slot = np.nonzero(own["masked_lm_weights"])
    whole[row, own["masked_lm_positions"][row, slot]] = own["masked_lm_ids"][row, slot]
    if examples_ == "masked":
        assert np.array_equal(batch.tokens.numpy(), own["input_ids"])
        assert np.array_equal(batch.predicted_positions.numpy(), own["masked_lm_positions"])
        assert np.array_equal(batch.targets.numpy() * (batch.weights.numpy() > 0), own["masked_lm_ids"])
        assert np.array_equal(batch.weights.numpy(), own["masked_lm_weights"])
    else:  # masks of our own, over the same text
        assert 0.05 < (batch.tokens.numpy() != whole).sum() / (whole > 0).sum() < 0.2
        assert not np.array_equal(batch.tokens.numpy(), own["input_ids"])
        assert np.array_equal(np.take_along_axis(whole, batch.predicted_positions.numpy(), 1), batch.targets.numpy())


def test_electras_examples_come_back_as_they_stand(store: Path, written: Path, tmp_path: Path) -> None:
    own = table(written / "electra", "electra")
    data = encoded(f"{written}/electra/*.gz", store, tmp_path / "out", validation_records=f"{written}/electra/*.gz")
    assert data.validation is not None
    assert data.validation.given is not None
    rows = rtd.Rtd(examples="given").rows([data.train], [1.0], data.tokenizer, PHASE, 0)
    inner: Any = rows.plain
    plain, order = inner.assembled(np.arange(len(rows))), inner.blend.place(np.arange(len(rows)))[1]
    assert np.array_equal(plain.tokens, own["input_ids"][order])
    assert np.array_equal(plain.types, own["segment_ids"][order])
    assert np.array_equal(plain.documents > 0, own["input_mask"][order] > 0)
    assert (own["segment_ids"].sum(1) == 0).any()  # some are one segment
    batch = rows.batch(np.arange(8))
    assert (batch.tokens.numpy() != plain.tokens[:8]).any()
    with pytest.raises(RecipeError, match="holds ELECTRA's examples, without labels; wanted BERT's"):
        mlm_nsp.MlmNsp(examples="given").rows([data.train], [1.0], data.tokenizer, PHASE, 0)


def test_their_text_is_a_store_like_any_other(store: Path, written: Path, tmp_path: Path) -> None:
    data = encoded(f"{written}/bert/*.tfrecord*", store, tmp_path / "out")
    assert not np.isin(data.train.tokens, [data.tokenizer.mask, data.tokenizer.start, data.tokenizer.stop]).any()
    rows = mlm.Mlm().rows(
        [data.train], [1.0], data.tokenizer, Phase(steps=1, length=24, batch=4, learning_rate=1e-3), 0
    )
    assert rows.batch(np.arange(4)).tokens.shape == (4, 24)
    data.check()
    place = data.folder / "train.given.bin"
    place.write_bytes(place.read_bytes()[:-4])
    with pytest.raises(DataError, match=r"train\.given\.bin: truncated or missing"):
        _ = Encoded(data.folder).train


@pytest.mark.long
def test_the_real_sample_is_read_whole(shared_data: Path, tmp_path: Path) -> None:
    sample = shared_data / "pretrain-samples/tf_examples.tfrecord"
    words = tmp_path / "vocab.txt"
    words.write_bytes((shared_data / "vocab/bert-base-uncased-vocab.txt").read_bytes())
    recipe = tmp_path / "r.toml"
    recipe.write_text(f'records = "{sample}"\ntokenizer = "{words}"\nout = "{tmp_path / "out"}"\n')
    data = Encoded(run.obtain(Encoding, str(recipe)))
    assert (data.train.document_count, data.train.row_length) == (60, 128)
    phase = Phase(steps=1, length=128, batch=4, learning_rate=1e-3, pack=False)
    rows = mlm_nsp.MlmNsp(examples="masked").rows([data.train], [1.0], data.tokenizer, phase, 0)
    [block] = records.read(sample)
    order = rows.plain.blend.place(np.arange(60))[1]
    ids = examples.read(block, KINDS["bert"]).table("input_ids", block)[order]
    assert np.array_equal(rows.batch(np.arange(60)).tokens.numpy(), ids)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"input_ids": 0}, r"record 1, .*: its ids 0 0 0 0 \.\.\. do not have this tokenizer's special tokens; wanted"),
        ({"input_ids": 900}, r"input_ids: found 900; wanted 0 to 125"),
        ({"masked_lm_positions": 24}, r"masked_lm_positions: found 24; wanted 0 to 23"),
        ({"masked_lm_ids": None}, r"has input_ids, .*, but not masked_lm_ids; wanted BERT's \(create"),
    ],
)
def test_what_cannot_be_is_named(store: Path, written: Path, tmp_path: Path, change: dict[str, Any], told: str) -> None:
    own = table(written / "bert", "bert")
    for name, value in change.items():
        if value is None:
            del own[name]
        else:
            own[name] = np.full_like(own[name], value)
    (tmp_path / "x.tfrecord").write_bytes(b"".join(records.framed(examples.written(own))))
    with pytest.raises(DataError, match=told):
        encoded(str(tmp_path / "x.tfrecord"), store, tmp_path / "out")


def test_rows_that_are_not_there_are_refused(store: Path, written: Path, tmp_path: Path) -> None:
    text = Encoded(store)
    with pytest.raises(RecipeError, match=r"objective\.examples: .* was encoded from text; wanted records"):
        mlm_nsp.MlmNsp(examples="given").rows([text.train], [1.0], text.tokenizer, PHASE, 0)
    found = encoded(f"{written}/bert/*.tfrecord*", store, tmp_path / "other")
    short = Phase(steps=1, length=20, batch=4, learning_rate=1e-3, pack=False)
    with pytest.raises(RecipeError, match=r"phase\.length: found 20, but the rows of .* have 24 tokens"):
        mlm_nsp.MlmNsp(examples="given").rows([found.train], [1.0], found.tokenizer, short, 0)
    with pytest.raises(RecipeError, match='pack: found true with examples = "given"'):
        rtd.Rtd(examples="given").rows(
            [found.train], [1.0], found.tokenizer, Phase(steps=1, length=24, batch=4, learning_rate=1e-3), 0
        )
    with pytest.raises(RecipeError, match="found clm, which has no TFRecord format; wanted mlm_nsp or rtd"):
        write_records(str(store), tmp_path / "clm", "clm", length=24)
    for settings, told in (
        ({}, "corpus: missing; wanted a corpus, or `records`"),
        ({"corpus": "a", "records": "b"}, "corpus: found a together with records"),
    ):
        with pytest.raises(ValueError, match=told):
            Encoding(tokenizer="t", **settings)


@pytest.mark.parametrize("header", [b"", (20240520).to_bytes(4, "little") + bytes(1020)], ids=["nanoGPT", "llm.c"])
def test_ids_of_two_bytes_are_a_store(
    store: Path, tmp_path: Path, header: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = SPECIAL.index("<|endoftext|>")
    ids = np.array([end, 10, 11, 12, end, end, 20, 21, end, 30], "<u2")
    for name in ("train", "val"):
        (tmp_path / f"{name}.bin").write_bytes(header + ids.tobytes())
    data = encoded(f"{tmp_path}/train.bin", store, tmp_path / "out", validation_records=f"{tmp_path}/val.bin")
    assert [list(data.train.document(n)) for n in range(3)] == [[10, 11, 12], [20, 21], [30]]
    assert data.validation is not None
    assert data.validation.token_count == data.facts["validation"]["tokens"] == 6
    monkeypatch.setattr("ordsmed.data.records.TOKENS", 3)
    cut = encoded(f"{tmp_path}/train.bin", store, tmp_path / "cut").train
    assert list(cut.tokens) == [10, 11, 12, 20, 21, 30]
    (tmp_path / "train.bin").write_bytes(header + b"abc")
    with pytest.raises(DataError, match=r"train\.bin: [\d,]+ bytes; wanted 16-bit numbers"):
        encoded(f"{tmp_path}/train.bin", store, tmp_path / "odd")
    (tmp_path / "train.bin").write_bytes(header + np.array([9, 900], "<u2").tobytes())
    with pytest.raises(DataError, match=r"train\.bin: holds the id 900; wanted ids below 126; name the tokenizer"):
        encoded(f"{tmp_path}/train.bin", store, tmp_path / "other")
