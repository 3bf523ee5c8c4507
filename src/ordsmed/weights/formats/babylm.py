"""BabyLM's evaluation: a folder of revisions by words seen, opened by path or by name.

OUT/main/ chck_1M/ chck_2M/ ...      Hugging Face folders of the final model and of each saved number of words
OUT/causal/main/ chck_1M/ ...        for a hybrid: the same weights under a causal class
OUT/hub/models--NAME/                a cache of the Hugging Face hub with these revisions, usable offline
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from ordsmed.base import files
from ordsmed.base.errors import RecipeError
from ordsmed.base.menu import Choice, load
from ordsmed.base.say import say
from ordsmed.base.snapshots import reached
from ordsmed.learn.task import Task
from ordsmed.learn.usage import Usage
from ordsmed.weights.foreign import FORMAT, Imported
from ordsmed.weights.hub_files import frame_texts
from ordsmed.weights.trained_model import Trained, open_model

MAIN, HUB = "main", "hub"


@dataclass(frozen=True)
class BabyLm(Choice):
    """Written alone: the end of a run and its revisions at numbers of words."""

    wanted: ClassVar[str] = ""
    readers: ClassVar[str] = "BabyLM's evaluation reads its revisions: README.md there has the lines"
    families: ClassVar[tuple[str, ...]] = ()
    OPENED: ClassVar[str] = "from transformers import AutoModel; print(AutoModel.from_pretrained({} + '/main'))"

    name: str = ""
    """what the evaluation calls the model, and its folder of results; left out: the run's folder"""

    def __post_init__(self) -> None:
        if self.name != Path(self.name).name or "--" in self.name or self.name.startswith("."):
            raise ValueError(f"name: found {self.name}; wanted a name without `/` and `--`")

    def recognises(self, path: Path) -> bool:
        return False

    def read(self, path: Path, overrides: Sequence[str] = ()) -> Imported:
        raise RecipeError(path, "is not read in this format", "one of its revisions, as `main` in it")

    def check(self, trained: Trained) -> None:
        if isinstance(trained.objective, Task):
            raise RecipeError(trained.folder, "was fine-tuned", "a language model: the evaluation fine-tunes it itself")
        if trained.recipe is None or trained.step is None:
            raise RecipeError(trained.folder, "is not a run, so it has no revisions", "the folder of a pretraining")
        if not trained.settings.architectures:
            raise RecipeError(trained.folder, f"is a {trained.kind}, which no class of transformers has", "", "")

    def write(self, trained: Trained, folder: Path) -> None:
        self._revision(trained, folder, MAIN)
        for label, step in reached(trained.folder / "checkpoints"):
            if step <= (trained.step or 0):
                self._revision(open_model(trained.folder, step), folder, label)
        if len(revisions(folder)) == 1:
            kept = f"saved no weights by words up to step {trained.step}"
            say(f"{trained.folder}: {kept}; set `revisions_at_words` in the recipe")
        for location in (folder, *inner(folder)):
            self._hub(location, folder / HUB / f"models--{self.called(trained, location, folder)}")

    def _revision(self, trained: Trained, folder: Path, label: str) -> None:
        """Write a revision. Its subfolders are moved next to `label`'s folder and get the same revisions."""
        target = folder / label
        target.mkdir()
        load("formats", FORMAT)().write(trained, target)
        if trained.objective.shifted and not trained.causal:
            frame_texts(trained.tokenizer, target)
        for within in [path for path in target.iterdir() if path.is_dir()]:
            (folder / within.name).mkdir(exist_ok=True)
            within.rename(folder / within.name / label)

    def _hub(self, path: Path, cache: Path) -> None:
        for kind in ("refs", "snapshots"):
            (cache / kind).mkdir(parents=True)
        up = Path("..", "..", "..")
        for label in revisions(path):
            files.write_text(cache / "refs" / label, label)
            inside = path.relative_to(cache.parents[1]) / label
            (cache / "snapshots" / label).symlink_to(up / inside, target_is_directory=True)

    def called(self, trained: Trained, path: Path, folder: Path) -> str:
        """Return the name of the model, or of the network in a subfolder."""
        name = self.name or trained.folder.name
        return name if path == folder else f"{name}-{path.name}"

    def usage(self, name: str, folder: Path, trained: Trained) -> Usage:
        usual: Usage = trained.objective.usage(name, trained.tokenizer, trained.learned)
        backends = [(self.called(trained, location, folder), way_of(location)) for location in (folder, *inner(folder))]
        models = [(model, way) for model, way in backends if way]
        program = "python -m evaluation_pipeline.sentence_zero_shot.run --task blimp --data_path blimp_fast"
        commands = [
            f"{program} \\\n  --model_path_or_name {model} --revision_name {MAIN} --backend {way}"
            for model, way in models
        ]
        options = (
            f"Revisions by words seen: {', '.join(revisions(folder))}.\nEach is a folder that transformers opens by "
            "its path. BabyLM's evaluation finds them by name,\nwithout a network:\n\n"
            + "\n".join(
                ["```sh", f"export HF_HUB_CACHE={name}/{HUB} HF_HUB_OFFLINE=1  # its full path", *commands, "```"]
            )
            + "\n\nOn the hub, each folder becomes a branch of the same name."
        )
        return Usage(usual.pipeline, usual.does, options)


def revisions(folder: Path) -> list[str]:
    """Return the names of the revisions in a folder, by increasing number of words; `main` is last."""
    labels = [path.name for path in folder.iterdir() if (path / "config.json").is_file()]
    return sorted(labels, key=lambda label: (label == MAIN, len(label), label))


def inner(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.iterdir()) if path.name != HUB and (path / MAIN / "config.json").is_file()]


def way_of(path: Path) -> str:
    """Return the evaluation's backend for a model; empty for a network that only detects replaced tokens."""
    config = files.read_table(path / MAIN / "config.json")
    names = "".join(config["architectures"])
    if "ForMaskedLM" not in names:
        return "" if "ForPreTraining" in names else "causal"
    return "mntp" if config.get("ordsmed", {}).get("kind") == "hybrid" else "mlm"
