"""Run probes on models, on one or several processes, and store, report and plot the results.

model -> Scorer     files -> Example -> chunks of about 65,536 tokens -> scores -> stored records -> Finding
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, cast

from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.folder import FolderKind
from ordsmed.base.menu import kind_of
from ordsmed.base.ranks import Ranks, barrier, disconnect, join, on_rank0, prepare
from ordsmed.base.say import Progress, say
from ordsmed.base.snapshots import reached
from ordsmed.data.unknown import MOST, TOLD, UnknownTokens
from ordsmed.data.word_counts import counted
from ordsmed.learn.task import LateInteraction
from ordsmed.measure.evaluation.results import Result, draw, draw_models, results_folder, write_each, write_table
from ordsmed.measure.evaluation.score_cache import ScoreCache, key_of, model_key
from ordsmed.measure.evaluation.vectors import VectorProbeRun
from ordsmed.measure.likelihood import sampled_windows, ways
from ordsmed.measure.likelihood.items import Scorer
from ordsmed.measure.likelihood.probe import Example, Finding, Probe, paths_of, read_records
from ordsmed.measure.vectors.probe import VectorProbe
from ordsmed.text import read
from ordsmed.train.mesh.layout import Layout, parse
from ordsmed.train.mesh.parallel import split_layers
from ordsmed.use.text_encoder import TextEncoder
from ordsmed.use.token_encoder import TokenEncoder, token_encoder
from ordsmed.weights.origin import Origin
from ordsmed.weights.text_amount import seen
from ordsmed.weights.trained_model import Trained, can_multiply, known, open_model

COST = 1 << 16  # tokens per chunk
PATIENCE = 600.0  # seconds after which a process stops waiting for the others
Revisions = dict[int, dict[float, list[Any]]]  # probe number -> words of training -> records


@dataclass(frozen=True)
class ComputeOptions:
    """Options of the computation: device, threads, layout, precision, and whether stored scores are reused."""

    device: str = "auto"
    threads: int | None = None
    layout: str = ""  # replicate x shard x tensor
    anew: bool = False  # ignore stored scores
    precision: str = "fp32"
    max_unknown: float = MOST  # largest share of unknown tokens


@dataclass(frozen=True)
class Setup:
    ranks: Ranks
    layout: Layout
    means: ComputeOptions
    out: str | None  # None: next to the model


def evaluate(
    models: Sequence[str],
    probes: Sequence[Probe | VectorProbe],
    *,
    step: int | str | None = None,
    out: str | None = None,
    means: ComputeOptions | None = None,
    each: str | None = None,
) -> list[Result]:
    """Run every probe on every model; return the results on the first process, an empty list on the others."""
    means = means or ComputeOptions()
    check(models, probes, each, step, out)
    known(means.precision)
    ranks = prepare(means.device, means.threads, flags=True)
    # rows have any length, so they are not split along the sequence
    layout = replace(parse(means.layout, Layout()) if means.layout else Layout(), sequence=False)
    if layout.shard > 1:
        raise RecipeError("--layout", f"found {means.layout}", "no shards: copies x 1 x tensor, as 2x1x2")
    setup = Setup(join(ranks, layout.shape(ranks.world), PATIENCE), layout, means, out)
    well = False
    try:
        result = []
        for origin in [Origin.of(model) for model in models]:  # a wrong name is an error before anything is computed
            for at in _steps(origin, step):
                revisions = _revisions(origin, at, probes, setup) if step != "all" else {}
                for finding in _run_probes(origin, at, probes, setup, revisions):
                    finding.write()
                    result.append(finding)
        well = True
    finally:
        disconnect(setup.ranks, well=well)
    if each and setup.ranks.first:
        write_each(result, each)
    for folder in {finding.folder for finding in result}:
        _write_summary(folder)
    _say_charts(draw_models(result, out))
    return result


def _write_summary(folder: Path) -> None:
    write_table(folder)
    _say_charts(draw(folder))


def _say_charts(charts: Sequence[tuple[Path, str]]) -> None:
    for path, axis in charts:
        say(f"{path}: drawn over {axis}")


def check(
    models: Sequence[str],
    probes: Sequence[Probe | VectorProbe],
    each: str | None,
    step: int | str | None = None,
    out: str | None = None,
) -> None:
    """Raise an error for impossible options, before any model is opened."""
    if not models:
        raise RecipeError("models", "none is named", "runs, imported models or Hugging Face folders")
    for probe in probes:
        if not probe.files:
            raise RecipeError(f"--probe {kind_of(probe)}", "names no file", f"--probe {kind_of(probe)} FILE...")
    if each and len(probes) > 1:
        raise RecipeError("--each", "found with several probes", "one of them")
    if each and step == "all":
        raise RecipeError("--each", "found with all steps", "one of them, as --step N")
    if each and Path(each).is_dir():
        raise RecipeError("--each", f"{each} is a folder", "a file to write")
    folders = (("--out", out), ("--each", each and str(Path(each).parent)))
    for flag, name in folders:
        existing = next((path for path in (Path(name), *Path(name).parents) if path.exists()), None) if name else None
        if existing is not None and not existing.is_dir():
            raise RecipeError(flag, f"{existing} is not a folder", "a folder to write into")


def _steps(origin: Origin, step: int | str | None) -> list[int | None]:
    if step != "all":
        return [None if step is None else int(step)]
    if origin.kind is not FolderKind.PRETRAINING:
        raise RecipeError("--step", f"found all, but {origin.name} is not a pretraining run", "the folder of a run")
    return [*origin.steps()]


def _revisions(origin: Origin, step: int | None, probes: Sequence[Probe | VectorProbe], setup: Setup) -> Revisions:
    """Run probes on the revisions of a run, if they need it.

    A revision is a checkpoint cache after a number of training words. Return records by probe number and words.
    """
    revisions = [
        (counted(label), at) for label, at in reached(origin.folder / "checkpoints") if step is None or at <= step
    ]
    result: Revisions = {}
    for number, probe in enumerate(probes):
        revision_probe = probe.at_revisions() if revisions and hasattr(probe, "at_revisions") else None
        for words, at in revisions if revision_probe is not None else ():
            for finding in _run_probes(origin, at, [cast(Probe, revision_probe)], setup):
                finding.write()
                result.setdefault(number, {})[words] = finding.records
    return result


def _run_probes(
    origin: Origin,
    step: int | None,
    probes: Sequence[Probe | VectorProbe],
    setup: Setup,
    revisions: Revisions | None = None,
) -> Iterator[Result]:
    try:
        trained = open_model(origin, step)
    except DataError as error:
        if step != 0:
            raise
        say(f"step 0 is left out: {error}")
        return
    yield from _findings(trained, origin.name, probes, setup, revisions)


def ask(
    trained: Trained,
    probe: Probe | VectorProbe,
    *,
    out: str | None = None,
    anew: bool = False,
    max_unknown: float = MOST,
) -> Result:
    """Run a probe on an open model, on its device, and store the result like `ordsmed evaluate`."""
    check([str(trained.folder)], [probe], None)
    trained.check_heads()
    means = ComputeOptions(anew=anew, precision=trained.precision, max_unknown=max_unknown)
    setup = Setup(trained.ranks, Layout(sequence=False), means, out)
    [result] = _findings(trained, str(trained.folder), [probe], setup)
    result.write()
    _write_summary(result.folder)
    return result


def _findings(
    trained: Trained, name: str, probes: Sequence[Probe | VectorProbe], setup: Setup, revisions: Revisions | None = None
) -> Iterator[Result]:
    ranks, layout, means = setup.ranks, setup.layout, setup.means
    scorers = [(probe, _reader(trained, probe)) for probe in probes]  # raises an error before anything is computed
    options = [
        ""
        if isinstance(probe, VectorProbe)
        else probe.fits(cast(Scorer, scorer), f"{trained.folder}: {kind_of(probe)}")
        for probe, scorer in scorers
    ]
    key, folder, learned_from = model_key(trained), results_folder(trained.folder, setup.out), seen(trained)
    if layout.tensor > 1 and not trained.settings.capabilities.tensor:
        wrong = f"found {layout.tensor} as its last number, but the layers of {trained.kind} cannot be split"
        raise RecipeError("--layout", wrong, "1", "`--devices N` alone distributes the texts")
    layout.check(trained.settings, [], ranks.world)
    can_multiply(trained, means.precision, ranks.device, layout.tensor)
    trained.objective.to(ranks.device)
    if layout.tensor > 1:
        split_layers(trained.objective, layout, ranks)
    trained = replace(trained, ranks=ranks, precision=means.precision)
    for number, ((probe, scorer), line) in enumerate(zip(scorers, options, strict=True)):
        paths, files = _files(probe)
        title = f"{kind_of(probe)}-{Path(files[0]).name.split('.')[0]}"
        cache = ScoreCache(folder / "parts", key_of(key, probe, paths, scorer.way, means.precision), ranks.rank)
        task = _probe_run(probe, scorer, trained, cache, means.max_unknown)
        result = task.run(f"{trained.folder.name}: {kind_of(probe)}", anew=means.anew)
        if result is not None:
            finding, records = result
            if revision_records := (revisions or {}).get(number):
                finding = cast(Any, probe).with_revisions(records, revision_records)
            line = "; ".join(filter(None, (line, finding.note)))
            yield Result(
                name,
                trained.step,
                probe,
                scorer.way,
                files,
                title,
                task.cache.key,
                folder,
                replace(finding, note=line),
                records,
                means.precision,
                learned_from,
                trained.tokenizer.cutting,
            )


def _probe_run(
    probe: Probe | VectorProbe,
    reader: Scorer | TextEncoder | TokenEncoder,
    trained: Trained,
    cache: ScoreCache,
    max_unknown: float,
) -> ProbeRun | VectorProbeRun:
    if isinstance(probe, VectorProbe):
        encoder = replace(cast(TextEncoder | TokenEncoder, reader), trained=trained)
        return VectorProbeRun(probe, encoder, trained.ranks, cache, max_unknown)
    return ProbeRun(probe, cast(Scorer, reader), trained.ranks, cache, trained.within, max_unknown)


def _reader(trained: Trained, probe: Probe | VectorProbe) -> Scorer | TextEncoder | TokenEncoder:
    if isinstance(probe, VectorProbe):
        if probe.TOKENS and isinstance(trained.objective, LateInteraction):
            return token_encoder(trained, probe.pool, probe.similarity, probe.prompts(), probe.batch)
        return TextEncoder(trained, probe.pool, probe.similarity, probe.prompts(), probe.batch)
    return ways.scorer(trained, probe.way, probe.prefers)


def _files(probe: Probe | VectorProbe) -> tuple[list[Path], list[str]]:
    """Return the files whose contents determine a result, and the names it is reported under."""
    if sampled_windows.is_store(probe.files):
        return sampled_windows.parts(probe.files), [*probe.files]
    if hasattr(probe, "paths"):  # the probe reads only some files of its folders
        return probe.paths(), [*probe.files]
    paths = paths_of(probe.files)
    whole = isinstance(probe, VectorProbe) and Path(probe.files[0]).is_dir()
    return paths, [*probe.files] if whole else [str(path) for path in paths]


@dataclass(frozen=True)
class ProbeRun:
    probe: Probe
    scorer: Scorer
    ranks: Ranks
    cache: ScoreCache
    within: Callable[[], Any] = nullcontext  # context that sets the precision of matrix products
    max_unknown: float = MOST

    def run(self, title: str, *, anew: bool) -> tuple[Finding, list[Any]] | None:
        """Return the finding and its records on the first rank, None on the others."""
        if anew and self.ranks.first:
            self.cache.clear()
        barrier(self.ranks)
        done = self.cache.chunks()
        barrier(self.ranks)  # no rank adds a chunk before all ranks have looked
        costs = on_rank0(self.ranks, self._costs)  # so that an error in a file is reported once
        if not costs:
            raise DataError(", ".join(self.probe.files), "holds nothing to score", "texts")
        remaining = [number for number in range(len(costs)) if number not in done]
        chunks_of_rank = remaining[self.ranks.data_rank :: self.ranks.data_world]
        if done and remaining:
            say(f"{title}: resumes after {1 - sum(costs[n] for n in remaining) / sum(costs):.0%} that are stored")
        if chunks_of_rank:
            self._score(title, set(chunks_of_rank), costs)
        barrier(self.ranks)
        if not self.ranks.first:
            return None
        done = self.cache.chunks()
        records = read_records(self.probe, [row for number in range(len(costs)) for row in done[number]])
        return self.probe.finding(records), records

    def _score(self, title: str, chunks_of_rank: set[int], costs: list[int]) -> None:
        total = sum(costs[number] for number in chunks_of_rank)
        with Progress(title, total, "tokens", every=30) as shown:
            for number, chunk in enumerate(self._chunks()):
                if number not in chunks_of_rank:
                    continue
                items = [item for example in chunk for item in example.items]
                with self.within():
                    scores = iter(self.scorer.scores(items, best=self.probe.best))
                records = [self.probe.record(example, [next(scores) for _ in example.items]) for example in chunk]
                if self.ranks.tensor_rank == 0:
                    self.cache.add(number, records)
                shown.add(costs[number])

    def _costs(self) -> list[int]:
        """Return the tokens to compute per chunk; raise an error or warn if too many tokens are unknown."""
        costs, unknown, tokenizer = [], UnknownTokens(), self.scorer.tokenizer
        for chunk in self._chunks():
            costs.append(sum(self._cost(example) for example in chunk))
            for item in (item for example in chunk for item in example.items):
                unknown.count(item.pieces, tokenizer)
        if unknown.share > TOLD and not sampled_windows.is_store(self.probe.files):
            with suppress(DataError):  # Parquet files cannot be read as text
                unknown.look(chain.from_iterable(map(read.texts, _files(self.probe)[0])), tokenizer)
        unknown.check(", ".join(self.probe.files), self.max_unknown, "--max-unknown ")
        return costs

    def _chunks(self) -> Iterator[list[Example]]:
        chunk: list[Example] = []
        cost = 0
        for example in self.probe.examples(self.scorer):
            chunk.append(example)
            cost += self._cost(example)
            if cost >= COST:
                yield chunk
                chunk, cost = [], 0
        if chunk:
            yield chunk

    def _cost(self, example: Example) -> int:
        return sum(self.scorer.cost(item) for item in example.items)
