"""BabyLM's evaluation: questions and scores of each part, regressions and ages, compared with its program."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kit.babylm_folder import COLUMNS, write
from kit.babylm_folder import made as folder_made
from kit.language_models import made
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.measure.babylm import acquisition, parts, reading
from ordsmed.measure.likelihood import ways
from ordsmed.measure.likelihood.items import Scorer
from ordsmed.measure.probes.babylm import BabyLmSuite, QuestionRecord, ReadingRecord
from ordsmed.text.tokenizers import bytebpe

ALL = [
    "blimp",
    "blimp_supplement",
    "ewok",
    "entity_tracking",
    "comps",
    "global_piqa_parallel",
    "global_piqa_nonparallel",
    "reading",
    "aoa",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder_made(tmp_path_factory.mktemp("babylm") / "full_eval")


def scorer_of(family: str, tmp_path: Path, way: str = "") -> Scorer:
    return ways.scorer(made(family, tmp_path / family), way)


def asked(probe: BabyLmSuite, scorer: Scorer) -> list[Any]:
    examples = list(probe.examples(scorer))
    scores = iter(scorer.scores([item for one in examples for item in one.items]))
    return [probe.record(one, [next(scores) for _ in one.items]) for one in examples]


def question(part: str, row: dict[str, Any], stem: str = "x", edition: Any = "2026") -> Any:
    return parts.ROWS[part](row, "x.jsonl:1", stem, edition)


def test_what_each_part_asks() -> None:
    """Sentences, and where what is scored of them begins: as the program's `completions` are cut off."""
    ewok = {
        "Context1": "It rains.",
        "Target1": "It is wet.",
        "Context2": "It shines.",
        "Target2": "It is dry.",
        "Domain": "weather",
    }
    assert question("ewok", ewok).sentences == [("It rains. It is wet.", 9), ("It shines. It is wet.", 10)]
    old = question("ewok", ewok, edition="2025")
    assert old.sentences == [("It rains. It is wet.", 9), ("It rains. It is dry.", 9)]
    assert old.subset == "weather"
    comps = {"prefix_acceptable": "A newt", "prefix_unacceptable": "A mat", "property_phrase": "swims."}
    found = question("comps", comps, "comps_wugs_dist-before")
    assert [found.subset, *found.sentences] == ["wugs_dist_before", ("A newt swims.", 7), ("A mat swims.", 6)]
    entity = {"input_prefix": "Box 0 has", "options": [" a cat", " a dog"], "numops": 2}
    found = question("entity_tracking", entity, "regular")
    assert [found.subset, *found.sentences] == ["regular_2_ops", ("Box 0 has a cat", 9), ("Box 0 has a dog", 9)]
    none = {**entity, "options": [" a cat", " nothing"]}
    assert question("entity_tracking", none, "regular") is None
    assert question("entity_tracking", none, "regular", "2025") is not None
    piqa = {"prompt": "Tea is", "solution0": "hot", "solution1": "blue", "label": 1}
    found = question("global_piqa_nonparallel", piqa)
    assert [found.right, *found.sentences] == [1, ("Tea is hot", 6), ("Tea is blue", 6)]
    wug = question("wug_adj", {"sentences": "a redity\ta redness", "ratio": "0.25"}, edition="2025")
    assert [wug.right, *wug.sentences] == [0.25, ("a redity", 0), ("a redness", 0)]
    pair = {"sentence_good": "it ran", "sentence_bad": "it run", "UID": "mine"}
    assert question("blimp", {**pair, "field": "syntax"}).subset == "mine"
    assert question("blimp_supplement", pair, "turn_taking").subset == "turn_taking"


@pytest.mark.parametrize(
    ("family", "way"),
    [("gpt2", "causal"), ("bert", "masked"), ("hybrid-modern", "masked"), ("hybrid-modern", "causal")],
)
def test_only_completions_are_scored(family: str, way: str, folder: Path, tmp_path: Path) -> None:
    """Of a property behind two prefixes its own tokens alone, whose sum is that of all less that of the prefix's."""
    probe = BabyLmSuite((str(folder / "comps"),))
    scorer = scorer_of(family, tmp_path, way)
    [first, *_] = probe.examples(scorer)
    row = json.loads((folder / "comps/comps_base.jsonl").read_text().splitlines()[0])
    pieces = len(scorer.tokenizer.pipeline.encode(row["property_phrase"], add_special_tokens=False).ids)
    assert [item.scored_count for item in first.items] == [pieces, pieces]
    [record, *_] = asked(probe, scorer)
    text = f"{row['prefix_acceptable']} {row['property_phrase']}"
    [item] = scorer.cut([text])
    [whole] = scorer.scores([item])
    assert record.options[0] == [pytest.approx(float(whole.logs[-pieces:].sum()), abs=1e-5), pieces]


def test_a_token_over_the_edge_is_scored(tmp_path: Path) -> None:
    """Of bytes a space belongs to the word behind it: it is scored with a choice that begins behind the space."""
    trained = replace(made("gpt2", tmp_path), tokenizer=bytebpe.ByteBpe(size=260).train(["a newt swam"]))
    cut = trained.tokenizer.pipeline.encode("a newt", add_special_tokens=False)
    place = write(
        tmp_path / "comps/comps_base.jsonl",
        [{"prefix_acceptable": "a", "prefix_unacceptable": "an", "property_phrase": "newt"}],
    )
    [one] = BabyLmSuite((str(place.parent),)).examples(replace_tokenizer(trained))
    at = next(n for n, (_, end) in enumerate(cut.offsets) if end > 2)
    assert one.items[0].first == at


def replace_tokenizer(trained: Any) -> Any:
    scorer: Any = ways.scorer(made("gpt2", trained.folder))
    scorer.tokenizer = trained.tokenizer
    return scorer


def test_scores_are_means_over_subsets(folder: Path, tmp_path: Path) -> None:
    """Entity tracking: of splits, each the mean of its numbers of operations."""
    probe = BabyLmSuite((str(folder),))
    record = QuestionRecord("entity_tracking", "", "x", 0, 0, [[-1.0, 1], [-2.0, 1]])
    wrong = replace(record, options=record.options[::-1])
    subsets = {"regular_0_ops": record, "regular_1_ops": wrong, "ambiref_0_ops": record}
    rows = [replace(row, subset=subset) for subset, row in subsets.items()]
    rows.append(rows[0])
    assert probe.finding(rows).facts["entity_tracking"] == pytest.approx(100 * (1 / 2 + 1) / 2)
    plain = [replace(row, part="comps") for row in rows]
    assert probe.finding(plain).facts["comps"] == pytest.approx(100 * 2 / 3)


def test_equal_scores_count_by_edition() -> None:
    """2025: the first of them; 2026: each by its share, where the program draws."""
    tie = QuestionRecord("global_piqa_parallel", "", "x", 1, 0, [[-4.0, 2], [-2.0, 1], [-9.0, 1], [-9.0, 1]])
    assert [BabyLmSuite(edition=edition)._share(tie) for edition in ("2026", "2025")] == [0.5, 0.0]
    first = replace(tie, right=0)
    assert [BabyLmSuite(edition=edition)._share(first) for edition in ("2026", "2025")] == [0.5, 1.0]
    assert BabyLmSuite()._share(replace(tie, part="comps")) == 1.0  # sums: -2 is the largest
    said = "2 questions with several likeliest choices: each gets an equal share, where the program draws one"
    assert BabyLmSuite().finding([tie, first]).note == said


def test_probabilities_of_nonce_words_follow_people(folder: Path, tmp_path: Path) -> None:
    """Spearman's correlation of the first one's share with that of people; equal in fp32 is equal in rank."""
    probe = BabyLmSuite(edition="2025")
    rows = [
        QuestionRecord("wug_adj", "", f"x:{n}", ratio, 0, [[first, 3], [-10.0, 3]])
        for n, (ratio, first) in enumerate([(0.1, -12.0), (0.9, -8.0), (0.5, -10.0), (0.7, -9.0)])
    ]
    assert probe.finding(rows).facts["wug_adj"] == pytest.approx(100)
    sure = [replace(row, options=[[row.options[0][0] + 40, 3], [-10.0, 3]]) for row in rows]
    assert [probe.as_line(row)["probability"] for row in sure] == [1.0] * 4
    records = asked(BabyLmSuite((str(folder),), edition="2025", part="wug_past"), scorer_of("gpt2", tmp_path))
    assert [len(record.options) for record in records] == [3] * 4


@pytest.mark.parametrize(("family", "way"), [("gpt2", "causal"), ("bert", "masked"), ("hybrid-modern", "masked")])
def test_words_are_read_behind_their_context(family: str, way: str, folder: Path, tmp_path: Path) -> None:
    """Three masks follow the context and the first is scored; each piece is read after the text so far."""
    scorer = scorer_of(family, tmp_path, way)
    pipeline, mask = scorer.tokenizer.pipeline, scorer.tokenizer.mask
    ids = pipeline.encode("the old", add_special_tokens=False).ids
    one, two = reading.items(scorer, "the old", "newts")
    newt = pipeline.token_to_id("newt")
    assert one.pieces.tolist() == [*ids, newt] if way == "causal" else [*ids, newt, mask, mask]
    behind = pipeline.encode("the oldnewt", add_special_tokens=False).ids
    hash_sign = pipeline.encode("##s", add_special_tokens=False).ids[0]  # what the program scores with WordPiece
    assert two.pieces.tolist()[: len(behind) + 1] == [*behind, hash_sign]
    records = asked(BabyLmSuite((str(folder),), part="reading"), scorer)
    assert len(records) == 40
    assert [record.numbers[-1] is None for record in records[:4]] == [True, True, False, False]
    word = json.loads(json.dumps(records[6].numbers))
    assert word[-1] == pytest.approx(records[5].numbers[-2], abs=1e-5)  # that of the word before it


def test_first_words_stand_behind_a_word_that_is_none(folder: Path) -> None:
    first = next(iter(reading.words(folder / "reading/reading_data.csv")))
    assert [first.context, first.before] == ["None", None]


def table() -> list[list[float | None]]:
    """Forty words by a rule; the numbers that the program finds of them are below."""
    rows: list[list[float | None]] = []
    for i in range(40):
        pred, length, inside = 2 + (i * 37 % 23) / 3, float(2 + i * 5 % 7), i % 4
        times = [None if (i + k) % 13 == 0 else 200 + 9 * pred + 3 * length + (i * (k + 3) * 17 % 31) for k in range(5)]
        before = (float(2 + i * 3 % 5), 1 + (i * 29 % 19) / 4) if inside else (None, None)
        rows.append([*times, 1 + (i * 7 % 11) / 3, length, float(i % 9), before[0], pred, before[1]])
    return rows


def test_gains_are_those_of_its_regressions() -> None:
    """statsmodels 0.15 by `_calculate_reading_results` of babylm-eval (2025-08 and 2026-07)."""
    records = [ReadingRecord("reading", "", f"x:{n}", row) for n, row in enumerate(table())]
    finding = BabyLmSuite(part="reading").finding(records)
    assert finding.facts["reading_self_paced"] == pytest.approx(65.30535735578898, abs=1e-6)
    assert finding.facts["reading_eye_tracking"] == pytest.approx(81.65487266563053, abs=1e-6)
    assert finding.facts["reading"] == pytest.approx((65.30535735578898 + 81.65487266563053) / 2, abs=1e-6)
    [(_, head, rows)] = finding.tables
    assert head[0] == ""
    assert [row[1] for row in rows] == [36, 37, 37, 37, 27]
    one = rows[0]
    assert one[5] == pytest.approx(one[1] / 2 * math.log((1 - one[2]) / (1 - one[3])))
    with pytest.raises(DataError, match=r"RTfirstfix: 5 complete rows; wanted more than the regression"):
        BabyLmSuite(part="reading").finding(records[1:6])


LEARNED = (
    ("dog", 6.2, 5, 3.0, 17.5, 0.5),
    ("newt", 6.9, 4, 2.5, 24.0, 0.3),
    ("pond", 6.5, 6, 4.0, 20.5, 0.35),
    ("red", 7.3, 3, 3.5, 26.0, 0.4),
    ("mat", 6.75, 5, 2.0, 22.0, 0.45),
    ("sat", 6.4, 4, 3.0, 21.0, 0.3),
)
OFFICIAL = {  # `AoAEvaluator.compute_curve_fitness` with scipy 1.17: correlation, ages of the models
    "2026": (
        0.9748089117568621,
        [
            6.313634917787831,
            7.026721473069061,
            6.603221520847983,
            7.418580490125874,
            6.851037368537852,
            6.540477391181723,
        ],
    ),
    "2025": (
        0.9560511417258194,
        [
            6.040075128840933,
            6.701964973001787,
            6.352988665567894,
            6.929499808789331,
            6.603173206026236,
            6.200925081990763,
        ],
    ),
}


def ages_of(edition: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    guessed = acquisition.GUESSED if edition == "2025" else math.log(60_000)
    revisions = {
        1e6 * m: [
            (
                name,
                low
                + (14 - low) / (1 + math.exp(steep * (math.log10(m * 1e6) - mid)))
                + 0.1 * ((m * 7 + c * 3 + w) % 5 - 2) / 5,
                guessed,
            )
            for w, (name, mid, steep, low, *_) in enumerate(LEARNED)
            for c in range(2)
        ]
        for m in (1, 2, 3, 5, 8, 10, 20, 50, 100)
    }
    months = np.arange(16.0, 31)
    children = {
        name: (months, np.array([round(1 / (1 + math.exp(-b * (m - c))), 4) for m in range(16, 31)]))
        for name, *_, c, b in LEARNED
    }
    return acquisition.curves(edition, revisions), children


@pytest.mark.parametrize("edition", ["2026", "2025"])
def test_ages_are_those_of_its_fits(edition: Any) -> None:
    pytest.importorskip("scipy", reason="fits are scipy's")
    curves, children = ages_of(edition)
    correlation, ages = OFFICIAL[edition]
    assert [acquisition.model_age(edition, curve) for curve in curves.values()] == pytest.approx(ages, abs=1e-6)
    found = acquisition.compare(edition, curves, children)
    assert [found.correlation, found.words] == [pytest.approx(correlation, abs=1e-6), 6]
    assert acquisition.child_age(*children["dog"]) == pytest.approx(17.500004427406232, abs=1e-6)
    few = acquisition.compare(edition, curves, dict(list(children.items())[:2]))
    assert [few.correlation, few.words] == [0.0, 2]


def test_ages_that_do_not_agree_count_as_none() -> None:
    """2026: a correlation of p above 0.1 is 0."""
    pytest.importorskip("scipy", reason="fits are scipy's")
    curves, children = ages_of("2026")
    turned = dict(zip(["pond", "sat", "dog", "mat", "newt", "red"], children.values(), strict=True))
    found = acquisition.compare("2026", curves, turned)
    assert found.p > 0.1
    assert found.correlation == 0
    assert acquisition.compare("2025", ages_of("2025")[0], turned).correlation != 0


def test_surprisal_of_a_word_is_that_of_its_pieces(folder: Path, tmp_path: Path) -> None:
    """Behind its context and a space; words of one letter are left out; who guesses guesses each piece."""
    scorer = scorer_of("gpt2", tmp_path)
    records = asked(BabyLmSuite((str(folder),), part="aoa"), scorer)
    assert [record.subset for record in records] == ["newt", "newt", "pond", "pond", "mat", "mat"]
    [item] = scorer.cut(["the old the newt"])
    [whole] = scorer.scores([item])
    assert records[0].surprisal == pytest.approx(-float(whole.logs[-1]), abs=1e-5)
    size = scorer.tokenizer.pipeline.get_vocab_size(with_added_tokens=False)
    assert acquisition.guessed(scorer, "newts", "2026") == pytest.approx(2 * math.log(size))
    assert acquisition.guessed(scorer, "newts", "2025") == math.log2(300_000)


def test_averages_are_of_whole_parts_alone(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NLP: seven parts, GlobalPIQA one of them; people: reading and AoA; a set that is not the official one is none."""
    probe = BabyLmSuite((str(folder),))
    records = asked(probe, scorer_of("gpt2", tmp_path))
    plain = probe.finding(records)
    assert not {"nlp_average", "human_like_average", "overall_average"} & set(plain.facts)
    assert plain.note.endswith(
        "no average, as parts are missing or incomplete: BLiMP, BLiMP Supplement, EWoK, Entity Tracking, COMPS, "
        "(Super)GLUE, GlobalPIQA, Reading, AoA"
    )
    assert plain.tables[0][0] == "BabyLM 2026"
    rows = {row[0]: row for row in plain.tables[0][2]}
    assert rows["(Super)GLUE"][1] == "missing: superglue=..., after fine-tuning"
    assert rows["AoA"][1].startswith("missing: the revisions of a run")
    assert rows["BLiMP"][4:] == [8, 59_875]
    counts: dict[str, int] = {}
    for record in records:
        counts[record.part] = counts.get(record.part, 0) + 1
    sized = {
        name: replace(part, sizes={"2026": counts.get(name, 6)})
        for name, part in parts.PARTS.items()
        if "2026" in part.sizes
    }
    monkeypatch.setattr("ordsmed.measure.probes.babylm.PARTS", sized)
    facts = replace(probe, superglue=60.0).finding(records).facts
    names = ["blimp", "blimp_supplement", "ewok", "entity_tracking", "comps", "global_piqa"]
    assert facts["global_piqa"] == pytest.approx((facts["global_piqa_parallel"] + facts["global_piqa_nonparallel"]) / 2)
    assert facts["nlp_average"] == pytest.approx((sum(facts[name] for name in names) + 60) / 7)
    assert "overall_average" not in facts
    pytest.importorskip("scipy", reason="fits are scipy's")
    inner = probe.at_revisions()
    assert inner is not None
    rows_of = asked(inner, scorer_of("gpt2", tmp_path))
    facts = replace(probe, superglue=60.0).with_revisions(records, {1e6: rows_of, 2e6: rows_of}).facts
    assert facts["aoa"] == 0.0
    assert facts["human_like_average"] == pytest.approx(facts["reading"] / 2)
    total = sum(facts[name] for name in [*names, "reading", "aoa"]) + 60
    assert facts["overall_average"] == pytest.approx(total / 9)


def test_without_fits_ages_are_missing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acquisition, "find_spec", lambda name: None)
    probe = BabyLmSuite((str(folder),))
    assert probe.at_revisions() is None
    record = QuestionRecord("comps", "base", "x", 0, 0, [[-1.0, 1], [-2.0, 1]])
    rows = {row[0]: row for row in probe.finding([record]).tables[0][2]}
    assert rows["AoA"][1] == "missing: pip install scipy"
    assert rows["EWoK"][1] == "missing: ewok_filtered"


def test_a_part_alone_has_no_table_of_all(folder: Path, tmp_path: Path) -> None:
    records = asked(BabyLmSuite((str(folder / "ewok_filtered"),)), scorer_of("gpt2", tmp_path))
    finding = BabyLmSuite((str(folder / "ewok_filtered"),)).finding(records)
    assert set(finding.facts) == {"ewok", "questions"}
    assert [title for title, *_ in finding.tables] == ["EWoK by subset"]
    assert finding.note == ""
    both = BabyLmSuite((str(folder / "comps"), str(folder / "ewok_filtered")))
    assert list(both.folders) == ["ewok", "comps"]


def test_examples_are_compared_by_question(folder: Path, tmp_path: Path) -> None:
    probe = BabyLmSuite((str(folder),))
    records = asked(probe, scorer_of("gpt2", tmp_path))
    pairs = probe.compared(records)
    assert {pair.group.split(" ")[0] for pair in pairs} == set(ALL) - {"reading", "aoa"}
    assert {value for pair in pairs for value in pair.values.values()} == {0.0, 100.0}
    lines = [probe.as_line(record) for record in records]
    assert {line["part"] for line in lines} == set(ALL) - {"aoa"}
    assert set(lines[-1]) >= {"RTfirstfix", "pred", "prev_pred"}


def test_a_long_question_loses_its_beginning(folder: Path, tmp_path: Path) -> None:
    rows = [{"input_prefix": "the newt " * 20, "options": [" a cat", " a dog"], "numops": 0}]
    place = write(tmp_path / "entity_tracking/regular.jsonl", rows)
    probe = BabyLmSuite((str(place.parent),))
    records = asked(probe, scorer_of("bert", tmp_path))
    assert records[0].dropped == 12  # of 42 tokens; the model reads 32 with two signs
    assert "1 passage of 1 longer than the model's window: their beginning was left" in probe.finding(records).note


@pytest.mark.parametrize(
    ("part", "row", "stem", "said"),
    [
        ("ewok", {"Context1": "a"}, "x", "has no key `Target1`"),
        ("entity_tracking", {"options": ["a"], "numops": 1}, "regular", "is not a question of entity tracking"),
        ("entity_tracking", {"options": ["a", "b"], "numops": 1}, "other", "is not a question of entity tracking"),
        ("comps", {}, "comps_other", "is in a file named comps_other"),
        ("global_piqa_parallel", {"solution0": "a", "label": 1}, "x", "`label` is 1 of 1"),
        ("wug_adj", {"sentences": "a\tb", "ratio": "much"}, "x", "`ratio` is 'much'"),
        ("wug_adj", {"sentences": "a", "ratio": 1}, "x", "`sentences` holds one"),
    ],
)
def test_rows_of_another_kind_are_refused(part: str, row: dict[str, Any], stem: str, said: str) -> None:
    with pytest.raises(DataError, match=re.escape(f"x.jsonl:1: {said}")):
        question(part, row, stem)


def test_folders_of_another_kind_are_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "mine/comps").mkdir(parents=True)
    for files, said in (
        ((str(tmp_path / "none"),), "none: is not a folder; wanted evaluation_data/full_eval"),
        ((str(tmp_path),), ": holds no part of BabyLM's evaluation of 2026; wanted folders blimp_filtered"),
        ((str(folder), str(folder / "comps")), "comps: is `comps` again, in addition to"),
    ):
        with pytest.raises(RecipeError, match=re.escape(said)):
            BabyLmSuite(files).fits(scorer_of("gpt2", tmp_path), "x")
    with pytest.raises(DataError, match="comps: has no file; wanted the evaluation's unchanged files"):
        BabyLmSuite((str(tmp_path / "mine"),)).fits(scorer_of("gpt2", tmp_path), "x")
    with pytest.raises(ValueError, match="part: found wug_adj; wanted blimp or"):
        BabyLmSuite(part="wug_adj")
    with pytest.raises(RecipeError, match="x: a model that is read the way `detect`; wanted causal or masked"):
        BabyLmSuite((str(folder),)).fits(scorer_of("electra", tmp_path), "x")
    short = tmp_path / "reading/reading_data.csv"
    short.parent.mkdir()
    short.write_text(",".join(COLUMNS[:-1]) + "\n" + "x," * (len(COLUMNS) - 2) + "x\n")
    with pytest.raises(DataError, match=r"reading_data\.csv:2: has no column prev_length"):
        list(reading.words(short))
    aoa = tmp_path / "words.json"
    aoa.write_text('{"dog": ["the"]}')
    with pytest.raises(DataError, match=r"words\.json: dog: holds no contexts"):
        list(acquisition.contexts(aoa))
