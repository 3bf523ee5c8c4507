"""The plan of a pretraining: which data exist, how large the networks are, what a step costs."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Self, cast

import numpy as np

from ordsmed.base import files, run, snapshots
from ordsmed.base.errors import OrdsmedError, RecipeError
from ordsmed.base.folder import FolderKind, kind_of_folder
from ordsmed.base.menu import kind_of
from ordsmed.base.ranks import Ranks, on_rank0
from ordsmed.base.say import detail, many, operations, say
from ordsmed.base.screen import command
from ordsmed.data.encode import Encoded, Encoding
from ordsmed.data.mix import listed
from ordsmed.data.tokenizer_training import TokenizerTraining as TokenizerTraining
from ordsmed.data.tokenizer_training import is_tokenizer, learned_from, read_tokenizer
from ordsmed.learn.objective import Objective, ObjectiveSettings, built, fresh
from ordsmed.learn.phases import MOST_ROWS, Stretch, steps_of_rows, total
from ordsmed.learn.schedules import Ramp
from ordsmed.nn.model import ModelSettings, own_tensors
from ordsmed.nn.weight_shapes import unfilled
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.train import checkpoint, memory
from ordsmed.train.init_check import check_same
from ordsmed.train.job import Job, assemble, check_frozen, check_word_count
from ordsmed.train.memory import RankMemory
from ordsmed.train.mesh.parallel import weights_of_rank
from ordsmed.train.pace import expected_seconds
from ordsmed.train.plan import Plan
from ordsmed.train.pretrain.effort import Effort
from ordsmed.train.pretrain.finish import finish
from ordsmed.train.pretrain.initial_loss import compare_losses
from ordsmed.train.pretrain.mixture import mixed, portion_lines
from ordsmed.train.pretrain.recipe import Pretraining
from ordsmed.train.pretrain.teaching import learn_from, teacher_of, teaching
from ordsmed.train.pretrain.texts import TextData
from ordsmed.train.training import Training
from ordsmed.weights.origin import Origin, standing
from ordsmed.weights.trained_model import Trained
from ordsmed.weights.transplant import Beginning, begin

WORDS = "wordlevel"
FILES = 6  # open files of each data folder: ids, an index and words, of two splits
SHOWN = 40  # more data than this are not listed one by one
USUAL = 128  # tokens of a usual text of a task


@dataclass(frozen=True, kw_only=True)
class PretrainingPlan(Plan):
    recipe: Pretraining
    data: TextData | None = None
    by_epochs: bool = False  # the recipe sets epochs instead of steps

    recipes: ClassVar[type[Pretraining]] = Pretraining

    @classmethod
    def of(cls, recipe: Training, ranks: Ranks, folder: Path | None = None, *, here: bool = True) -> Self:
        assert isinstance(recipe, Pretraining)
        begun = folder is not None and bool(checkpoint.steps(folder / "checkpoints"))
        if recipe.init and here and not begun:
            Origin.of(recipe.init, key="init")  # check before the data are made, which may take hours
        network = network_of(recipe)
        check(recipe, network, ranks)
        return cls(recipe=recipe, ranks=ranks, folder=folder, network=network)

    def completed(self, *, make: bool, here: bool = True) -> Self:
        if make:
            self._check_network(here=here)
        notes, tokenizer, data = _inputs(self.recipe, make=make)
        plan = dataclasses.replace(self, tokenizer=tokenizer, data=data)
        if data:
            check_data(data, self.network)
            for encoded in data.encoded:
                encoded.check_unknown(self.max_unknown)
            read = mixed(dataclasses.replace(data, recipe=with_counted_steps(data)))
            notes += portion_lines(read)
            plan = dataclasses.replace(plan.by(read.recipe), by_epochs=not all(p.steps for p in self.recipe.phase))
        if (longest := self.network.longest()) < USUAL:
            notes.append(
                f"positions: {longest}, for good: `embed` and tasks cut longer texts or read them in windows, in which "
                f"questions with a context barely fit (SQuAD); `model.positions` = {USUAL} or more costs little"
            )
        if (origin := Origin.find(self.recipe.init, key="init")) and (left := origin.unfinished()):
            notes.append(f"init: {left}")
        plan = dataclasses.replace(plan, notes=tuple(notes))
        memory.check(plan.recipe, plan.network, plan.ranks, plan.make_networks, here=here)
        if data and any(phase.freeze for phase in plan.recipe.phase):
            names = [name for name, weight in plan.objective.named_parameters() if weight.requires_grad]
            check_frozen(plan.recipe.phase, names)
        return plan

    def missing(self) -> list[tuple[str, str]]:
        return [("encode", name) for name in self.recipe.sources if not run.finished(standing(name), "encode")]

    def _check_network(self, *, here: bool) -> None:
        """Raise if the network cannot be trained on the data, before hours are spent on making them."""
        if not self.missing():
            return
        if named := self.recipe.tokenizer:
            with run.without_making():
                run.check_if_made(lambda: read_tokenizer(named))
        try:
            tokenizer = _inputs(self.recipe, make=False)[1]
        except OrdsmedError:  # making the data will report it
            return
        if hasattr(tokenizer, "kind"):  # a user's tokenizer that is not made yet may be of any kind
            with contextlib.suppress(AttributeError):  # a family may need an attribute that only a made tokenizer has
                self.network.fits(tokenizer)
            if tokenizer.kind == WORDS:
                check_words(self.network, next(iter(self.recipe.sources)))
        try:
            plan = dataclasses.replace(self, tokenizer=tokenizer)
            memory.check(plan.recipe, plan.network, plan.ranks, plan.make_networks, here=here)
            _ = plan.objective
        except RecipeError as error:
            known = isinstance(tokenizer, Tokenizer)  # otherwise the placeholder may have caused the error
            if error.place.startswith(("objective", "model")) or (known and error.place == "tokenizer"):
                raise

    def by(self, recipe: Training) -> Self:
        assert isinstance(recipe, Pretraining)
        data = dataclasses.replace(self.data, recipe=recipe) if self.data else None
        return dataclasses.replace(self, recipe=recipe, data=data, network=recipe.model or self.network)

    @functools.cached_property
    def objective(self) -> Objective:
        """The networks without allocated weights."""
        return self.by_phase[0]

    @functools.cached_property
    def by_phase(self) -> tuple[Objective, ...]:
        """The networks with the settings of each phase; all have the same weights."""
        phases = list[tuple[Any, Any, Objective]]()
        for index in range(len(self.recipe.phase)):
            learned, network = self.recipe.objective_of(index), self.recipe.network_of(self.network, index)
            same = next((networks for *options, networks in phases if options == [learned, network]), None)
            if same is None:
                with unfilled():
                    same = built(learned, network, self.tokenizer)
                check_tokenizer(learned, self.tokenizer)
                if self.teacher:
                    learn_from(same, self.teacher)
            phases.append((learned, network, same))
        return tuple(networks for *_, networks in phases)

    @functools.cached_property
    def teacher(self) -> Trained | None:
        """The model to distill from, or None; a resumed run may have lost its teacher."""
        return teacher_of(self.recipe, self.tokenizer, gone=self.folder is not None)

    def make_networks(self, network: ModelSettings) -> Objective:
        objective: Objective = self.recipe.objective.build(network, self.tokenizer)
        return objective

    def subject(self) -> str:
        assert self.data is not None
        assert self.effort is not None
        count = sum(tensor.numel() for tensor in own_tensors(self.objective).values())
        weights = f"weights from {self.recipe.init}" if self.recipe.init else "random weights"
        network = f"{kind_of(self.network)}: {many(count, 'parameter')}, {weights}"
        return f"{network}; {' and '.join(str(store.folder) for store in self.data.encoded)}: {self.effort.line}"

    def sizes(self) -> list[str]:
        counts = {name: tensor.numel() for name, tensor in own_tensors(self.objective).items()}
        whole, body = sum(counts.values()), sum(n for name, n in counts.items() if name.startswith("model."))
        lines = [f"network: {whole:,} parameters, {body:,} without heads; vocabulary {self.tokenizer.vocabulary:,}"]
        flops = tokens = 0.0
        for number, phase in enumerate(self.recipe.phase, 1):
            step = self.flops(number - 1)
            flops, tokens = flops + step * phase.whole_steps, tokens + phase.rows * phase.length
            lines.append(", ".join([f"phase {number}: {operations(step)} a step", *self._ramps(number - 1)]))
        if self.teacher:
            lines.append(teaching(self.teacher, self.by_phase, self.recipe.phase))
        if all(phase.steps for phase in self.recipe.phase):
            whole_run = many(total(self.recipe.phase), "step")
            effort = [self.effort.line] if self.effort else []
            return [*lines, f"in total: {whole_run}, {tokens:,.0f} tokens, {operations(flops)}", *effort]
        return [*lines, "in total: the number of steps is known once the data exist"]

    def _ramps(self, index: int) -> list[str]:
        if not all(phase.steps for phase in self.recipe.phase):
            return []
        learned, stretch = self.recipe.objective_of(index), Stretch.of(self.recipe.phase, index)
        values = {**vars(learned), "weight decay x": self.recipe.decay_schedule}
        reach = np.asarray([stretch.start, stretch.end])
        ends = {name: value.at(reach) for name, value in values.items() if isinstance(value, Ramp)}
        return [f"{name} {first:.3g} to {last:.3g}" for name, (first, last) in ends.items()]

    @property
    def effort(self) -> Effort | None:
        """The passes and the time of the run; None: its data do not exist."""
        if self.data is None:
            return None
        encoded = self.data.encoded
        lacks = all(not source.validation and "validation" in source.facts.get("lacks", ()) for source in encoded)
        tokens = sum(source.train.token_count for source in encoded)
        return Effort(self.recipe.phase, tokens, self.by_epochs, lacks, self.seconds)

    def with_estimate(self, *, here: bool, yes: bool) -> Self:
        plan = self
        if here and self.data:
            seconds = on_rank0(self.ranks, lambda: expected_seconds(self))
            plan = dataclasses.replace(self, seconds=seconds)
        for problem in plan.effort.problems() if plan.effort else ():
            if not yes:
                raise problem
            say(f"{problem.place}: {problem.found}; wanted {problem.wanted}; training anyway")
        return plan

    def memory(self) -> RankMemory:
        moments = self.recipe.optimizer.moments + bool(self.recipe.average)
        return RankMemory(4 * weights_of_rank(self.objective, self.recipe.layout), moments)

    def flops(self, index: int) -> float:
        return self.by_phase[index].flops(self.recipe.phase[index].batch, self.row_length(index))

    def validation_rows(self) -> int:
        return self.recipe.validation_rows

    def build(self, *, resume_state: dict[str, Any] | None = None) -> Job:
        """Build the job. `init` is not read if a checkpoint will be restored."""
        recipe, data = self.recipe, self.data
        assert data is not None
        start = Beginning()

        def networks() -> Objective:
            nonlocal start
            objective = fresh(recipe.objective, self.network, data.tokenizer, recipe.seed)
            if recipe.init and resume_state is None:
                start = _start_from(recipe, self.network, objective, data.tokenizer)
            if teacher := teacher_of(recipe, data.tokenizer):
                teacher.objective.to(self.ranks.device)
                learn_from(objective, teacher)
            return objective

        job = assemble(recipe, self.ranks, data, networks, new=resume_state is None)
        job = dataclasses.replace(job, starts_trained=bool(recipe.init) and resume_state is None)
        if any(phase.model or phase.objective for phase in recipe.phase):
            job = dataclasses.replace(job, by_phase=self.by_phase)
        check_word_count(job, resume_state)
        if resume_state:
            return dataclasses.replace(job, phases_before=int(resume_state["phases"]) - len(recipe.phase))
        if start.descent:
            return dataclasses.replace(job, initial_facts={"vocabulary": compare_losses(job, start)})
        if start.checkpoint:
            location, state = start.checkpoint
            if not snapshots.is_stripped(location):
                checkpoint.restore_moments(location, job.optimizer, job.parts)
            return dataclasses.replace(job, phases_before=int(state["phases"]))
        return job

    def finish(self, job: Job, folder: Path) -> dict[str, Any]:
        return finish(job, folder)

    def verify(self) -> None:
        assert self.data is not None
        for encoded in self.data.encoded:
            encoded.check()


def with_counted_steps(data: TextData) -> Pretraining:
    """Return the recipe with steps in place of epochs, by the number of rows."""
    recipe, phases = data.recipe, []
    for index, phase in enumerate(recipe.phase):
        if not phase.steps:
            single = dataclasses.replace(phase, steps=1, epochs=0.0, max_steps=0, warmup=0.0)
            phases_then = (*recipe.phase[:index], single, *recipe.phase[index + 1 :])
            rows = dataclasses.replace(data, recipe=recipe.with_phases(phases_then)).rows(index, 0)
            if phase.epochs * len(rows) > MOST_ROWS:
                raise RecipeError(f"phase[{index + 1}].epochs", f"found {phase.epochs:g}", "fewer")
            steps = steps_of_rows(phase, phase.epochs * len(rows))
            text = f"{many(phase.epochs, 'epoch')} of {many(len(rows), 'row')}"
            line = f"phase {index + 1}: {text} are {many(steps, 'step')}"
            if 0 < phase.max_steps < steps:
                steps, line = phase.max_steps, f"{line}, limited by max_steps to {phase.max_steps:,}"
            (say if steps == phase.max_steps else detail)(line)  # always report a cut
            if phase.warmup > (longest := phase.schedule.span(steps)):
                raise RecipeError(
                    f"phase[{index + 1}].warmup", f"found {phase.warmup:g}", f"0 to {many(longest, 'step')}"
                )
            phase = dataclasses.replace(phase, steps=steps, epochs=0.0, max_steps=0)
        phases.append(phase)
    return recipe.with_phases(phases)


def network_of(recipe: Pretraining) -> ModelSettings:
    settings: ModelSettings | None = recipe.model
    if recipe.init is None:
        assert settings is not None
        return settings
    origin = Origin.find(recipe.init, key="init")
    if origin is None and settings is not None:
        return settings  # a resumed run does not need it any more
    stored: ModelSettings = (origin or Origin.of(recipe.init, key="init")).network()
    check_same(settings, stored, recipe.init)
    return settings or stored


def check(recipe: Pretraining, network: ModelSettings, ranks: Ranks) -> None:
    for index, phase in enumerate(recipe.phase):
        if phase.length > network.longest():
            problem = f"found {phase.length}, more than the model's {network.longest()} positions"
            raise RecipeError(f"phase[{index + 1}].length", problem, "", "shorten it or raise `model.positions`")
        recipe.layout.share(phase, index + 1, ranks.device.type, 0, ranks.data_world)
        if phase.batch_ramp and network.capabilities.state:
            problem = f"found one, but {kind_of(network)} continues each row from the step before"
            raise RecipeError(
                f"phase[{index + 1}].batch_ramp", problem, "none", "use several phases, each of which starts new rows"
            )
        recipe.network_of(network, index)
    if recipe.layout.tensor > 1 and (reason := getattr(recipe.objective, "undivided", "")):
        problem = f"found {recipe.layout.tensor} with {reason}"
        raise RecipeError("layout.tensor", problem, "1", "use `layout.shard`, which also splits weights")
    if name := getattr(recipe.objective_of(len(recipe.phase) - 1), "unfinished", ""):
        wanted = f"`objective = {{ {name} = ... }}` only in an earlier [[phase]]"
        raise RecipeError(f"objective.{name}", "found for the last phase, which cannot use it", wanted)
    more = getattr(recipe.objective, "others", None)
    networks = {"model": network, **(more(network) if more else {})}
    for name, settings in networks.items():
        recipe.layout.check(settings, [phase.length for phase in recipe.phase], ranks.world, whose=name)


def _start_from(recipe: Pretraining, network: ModelSettings, objective: Objective, tokenizer: Tokenizer) -> Beginning:
    """Load the initial weights. The result also has the checkpoint with their moments, if any."""
    assert recipe.init is not None
    origin = Origin.of(recipe.init, key="init")
    if left := origin.unfinished():
        say(left)
    start = begin(objective, origin, recipe.objective, network, tokenizer, recipe.vocabulary, recipe.seed)
    if start.checkpoint and snapshots.is_stripped(start.checkpoint[0]):
        say(f"weights from {start.checkpoint[0]}, the best of {recipe.init}, without moments: they start at zero")
    elif start.checkpoint:
        detail(f"weights and moments from {start.checkpoint[0]}")
    elif origin.is_run:
        say(f"weights from {recipe.init}; moments start at zero, because the vocabulary is another")
    else:
        detail(f"weights from {recipe.init} ({'imported' if origin.kind is FolderKind.IMPORT else 'Hugging Face'})")
    return start


def check_data(data: TextData, network: ModelSettings) -> None:
    network.fits(data.tokenizer)
    wordy = next((source.folder for source in data.encoded if source.train.lexicon is not None), None)
    if wordy:
        check_words(network, wordy)


def check_tokenizer(objective: ObjectiveSettings, tokenizer: Tokenizer) -> None:
    """Raise if an existing tokenizer lacks special tokens that the objective needs."""
    if isinstance(tokenizer, Tokenizer) and hasattr(objective, "check_tokenizer"):
        objective.check_tokenizer(tokenizer)


def check_words(network: ModelSettings, location: object) -> None:
    if not network.capabilities.state:
        raise RecipeError(location, "has whole words", "pieces of words", "encode with another tokenizer, or use elmo")


def _inputs(recipe: Pretraining, *, make: bool) -> tuple[list[str], Tokenizer, TextData | None]:
    """Return lines on the data, their tokenizer or a placeholder, and the data if all exist."""
    lines, tokenizers, stand = list[str](), list[Tokenizer](), list[Encoded]()
    files.allow_open(FILES * len(recipe.sources))
    for name in recipe.sources:
        folder = _make(name) if make else standing(name)
        encoded = Encoded(folder)
        if run.finished_by(encoded.facts, folder, "encode"):
            stand.append(encoded)
            tokens, documents = encoded.train.token_count, encoded.train.document_count
            lines.append(f"data: {folder}, {tokens:,} tokens in {many(documents, 'document')}")
            tokenizers += [encoded.tokenizer] if not tokenizers else []  # all have the same, as `TextData` checks
        else:
            lines.append(f"data: {folder} does not exist yet; it will be made from {name}")
            encoding = run.read_recipe(Encoding, folder) if kind_of_folder(name).made else run.load(Encoding, name)[0]
            tokenizers.append(_expected_tokenizer(encoding.tokenizer, encoding.corpus))
    if len(lines) > SHOWN:
        lines = [f"data: {len(stand):,} of {len(lines):,} exist", *(line for line in lines if "does not exist" in line)]
    unread = listed(recipe.data).keys() - set(recipe.sources)
    lines += [f"data: {name} is not used, because every phase has its own data" for name in sorted(unread)]
    return lines, tokenizers[0], TextData.of(recipe, stand) if len(stand) == len(recipe.sources) else None


def _make(name: str) -> Path:
    try:
        return run.obtain(Encoding, name)
    except run.NotMade as missing:
        return missing.folder


def _expected_tokenizer(name: str, corpus: str = "") -> Tokenizer:
    """Return a tokenizer, or a placeholder with its sizes if it does not exist yet."""
    if is_tokenizer(name):
        return read_tokenizer(name)
    if kind_of_folder(name).made:
        recipe = run.read_recipe(TokenizerTraining, Path(name))
    else:
        recipe, title = run.load(TokenizerTraining, name, learned_from(name, corpus))
        folder = run.output_folder(recipe, title)
        if run.finished(folder, "tokenizer"):
            return read_tokenizer(str(folder))
    tokenizer: Tokenizer | None = recipe.tokenizer.load()
    if tokenizer is not None:
        return tokenizer
    if not hasattr(recipe.tokenizer, "size"):  # a user's tokenizer, whose size is unknown
        raise RecipeError(name, "does not exist; its size is unknown", "", f"`{command('tokenizer', name)}` makes it")
    expected = SimpleNamespace(vocabulary=recipe.tokenizer.size, pad=getattr(recipe.tokenizer, "pad", 0), mask=0)
    if hasattr(recipe.tokenizer, "learns"):
        expected.kind = recipe.tokenizer.learns
    return cast(Tokenizer, expected)  # only the attributes that sizes depend on
