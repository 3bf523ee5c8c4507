"""The survey: whole, printed in three ways, and what only applies models is refused by name."""

from __future__ import annotations

import json

import pytest

from ordsmed.cli import main
from ordsmed.machines.cluster import survey


def test_every_code_has_all_columns() -> None:
    codes = survey.codes()
    assert len({one.name for one in codes}) == len(codes)
    for one in codes:
        assert all(one.row), one.name
    assert {one.developer for one in codes} >= {"Google", "NVIDIA", "Hugging Face", "Facebook AI"}
    times = {one.name: one.training_time for one in codes}
    assert times["fairseq-roberta"] == "not reported"
    assert times["huggingface-bert"] == "160 M words x 2 epochs: 8 to 9 days on 4 P100"
    assert times["nvidia-bert-pytorch"] == "3.3 G words x 40 epochs: 3 days on 16 V100"


@pytest.mark.parametrize(
    ("hours", "said"),
    [
        ((24, 24), "24 hours"),
        ((47, 48), "47 to 48 hours"),
        ((48, 48), "2 days"),
        ((48, 72), "2 to 3 days"),
        ((60, 72), "60 to 72 hours"),
        ((72, 84), "72 to 84 hours"),
    ],
)
def test_times_are_days_where_those_are_whole(hours: tuple[float, float], said: str) -> None:
    claim = survey.Claim("a", "b", hours, (4, 16), "V100", nodes=2)
    assert (claim.time, claim.on) == (said, "4 to 16 V100, 2 machines")
    assert survey.Claim("a", "b", hours, (8, 8), "TPU").on == "8 TPUs"


def test_it_is_printed_for_people_pages_and_programs(capsys: pytest.CaptureFixture[str]) -> None:
    main(["survey"])
    text = capsys.readouterr().out
    assert "elmo-ltg: ELMo; University of Oslo, Language Technology Group" in text
    assert "allennlp-elmo (inference only): ELMo" in text
    assert "not of interest" not in text
    main(["survey", "--json"])
    assert json.loads(capsys.readouterr().out) == survey.facts()
    main(["survey", "--markdown"])
    page = capsys.readouterr().out.splitlines()
    assert page[0].startswith("| code | architecture |")
    assert len(page) == 2 + len(survey.codes())


def test_reported_times_beside_estimates(capsys: pytest.CaptureFixture[str]) -> None:
    """Each claim with what our recipe would take on the same devices, or why that is not known."""
    main(["survey", "--estimates", "--json"])
    codes = {code["name"]: code for code in json.loads(capsys.readouterr().out)}
    assert codes.keys() == {code.name for code in survey.codes()}
    assert sum(len(code["claims"]) for code in codes.values()) == len(survey.claims())
    (pytorch,) = codes["nvidia-bert-pytorch"]["claims"]
    assert (pytorch["reported"], pytorch["recipe"]) == ("3 days on 16 V100", "pretrain/bert-large-lamb")
    least, likely, most = pytorch["estimated_hours"]
    assert least < likely < most
    assert pytorch["estimate"].startswith("pretrain/bert-large-lamb: ")
    reasons = {name: codes[name]["claims"][0]["why_not"] for name in ("google-bert", "mosaicbert", "cramming")}
    assert reasons == {
        "google-bert": "TPU is not a known GPU",
        "mosaicbert": "there is no similar recipe",
        "cramming": "the GPU model is not reported",
    }
    assert codes["google-bert"]["claims"][0]["estimated_hours"] is None
    main(["survey", "--estimates", "--markdown"])
    head, _, *rows = capsys.readouterr().out.splitlines()
    assert head.endswith("| estimated for our recipe |")
    assert next(row for row in rows if "fairseq" in row).endswith("| none: no time was reported |")
    assert next(row for row in rows if "allennlp" in row).endswith("| not of interest |")
    main(["survey", "--estimates"])
    text = " ".join(capsys.readouterr().out.split())
    assert "estimate: 4 days on 4 to 16 TPUs: not estimated: TPU is not a known GPU" in text


@pytest.mark.parametrize("name", ["allennlp-elmo", "bert-as-service"])
def test_what_only_applies_models_is_refused_by_name(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["pretrain", name])
    error = capsys.readouterr().err
    assert f"`{name}`: does not train models; `ordsmed survey` lists projects that do" in error.replace("\n  ", " ")
    with pytest.raises(SystemExit):
        main(["pretrain", "allennlp-elmoo"])
    assert "no recipe of `pretrain` and no file" in capsys.readouterr().err
