"""Sites: the known facts about clusters and machines, such as partitions, GPUs and software, with sources.

sites/saga.toml -> Site(partitions, modules, ...) -> the [layout] of a partition, a job's script, an installation

Unknown facts are left out of the file and reported as unknown, never guessed.
"""

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from ordsmed.base import menu, settings
from ordsmed.base.errors import RecipeError, nearest
from ordsmed.base.launch.gpus import GPUS, SLICE, Gpu, sliced
from ordsmed.base.machine.devices import Accelerator

BUILT_IN = menu.PACKAGE_ROOT / "sites"
LARGE, TOKENS = 80, 65_536  # GiB of a GPU that computes this many tokens together; a smaller one computes its share
Arch = Literal["x86_64", "aarch64", "ppc64le", "unknown"]
OF_GPUS = ("gpus", "gpu_memory", "mig", "cores_per_gpu", "memory_per_gpu", "min_gpus", "max_gpus")
NUMBERS = (
    *(key for key in OF_GPUS if key != "mig"),
    "cores",
    "memory",
    "memory_per_core",
    "min_nodes",
    "nodes",
    "hours",
)


@dataclass(frozen=True)
class Partition:
    name: str
    """Slurm's name of the partition; required"""
    slurm: str = ""
    """Slurm's name if different; none: a job names no partition (its quality or constraint does)"""
    arch: Arch = "unknown"
    """the processors' architecture"""
    gpu: str = "none"
    """the GPU's model (A100, H100, MI250X ...), unknown or none"""
    gpus: int | None = None
    """GPUs of a node"""
    gpu_memory: float | None = None
    """GB of memory of a GPU, where it is not what the model usually has"""
    mig: str = ""
    """MIG slice that counts as one GPU: 1g.12gb"""
    cores: int | None = None
    """cores of a node"""
    memory: float | None = None
    """GiB of memory of a node"""
    cores_per_gpu: int | None = None
    """cores that come with each GPU"""
    memory_per_gpu: float | None = None
    """GiB of the node's memory that come with each GPU"""
    memory_per_core: float | None = None
    """GiB of memory that come with each core"""
    ask_memory: Literal["required", "optional", "fixed", "unknown"] = "unknown"
    """must a job request memory? fixed: it comes with the rest"""
    memory_flag: Literal["--mem", "--mem-per-cpu", "--mem-per-gpu"] = "--mem"
    """how a job requests memory"""
    whole_nodes: bool | None = None
    """are jobs given whole nodes, all cores, GPUs and memory of them?"""
    min_nodes: int | None = None
    """fewest nodes of a job"""
    nodes: int | None = None
    """most nodes of a job"""
    min_gpus: int | None = None
    """fewest GPUs of a job"""
    max_gpus: int | None = None
    """most GPUs of a job"""
    hours: float | None = None
    """longest job, in hours"""
    ask: str = "--gpus-per-node={gpus}"
    """sbatch's flag for GPUs: {gpus} of a node, or {total} of the job"""
    constraint: str = ""
    """feature of its nodes that a job requests (--constraint)"""
    quality: str = ""
    """quality of service of its jobs where a command names none (--qos)"""
    also: tuple[str, ...] = ()
    """more flags of sbatch"""
    environment: dict[str, str] = field(default_factory=dict)
    """environment variables of a job, in addition to the site's"""
    before: tuple[str, ...] = ()
    """commands of a job's script before modules are loaded"""
    modules: tuple[str, ...] = ()
    """modules to load, in addition to the site's"""
    precision: str = ""
    """precision of trainings; empty: what the GPU is best at"""
    wheels: str = ""
    """index URL from which pip installs PyTorch; empty: PyTorch's own for this GPU"""
    note: str = ""
    """shown by `ordsmed sites`"""
    source: str = ""
    """where these facts are from; empty: the site's source"""
    checked: str = ""
    """when they were read: 2026-07 or 2026-07-31"""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[\w.+-]+", self.name):
            raise ValueError(f"name: found {self.name!r}; wanted one word")
        if self.gpu not in (*GPUS, "none", "unknown"):
            problem = f"gpu: found {self.gpu}; wanted unknown, none, or one that is known; {nearest(self.gpu, GPUS)}"
            raise ValueError(problem)
        for name in NUMBERS:
            if (value := getattr(self, name)) is not None and not value > 0:
                raise ValueError(f"{name}: found {value}; wanted more than 0; leave it out if it is unknown")
        if self.gpu == "none" and (numbers := [n for n in OF_GPUS if getattr(self, n)]):
            problem = f"{numbers[0]}: found {getattr(self, numbers[0])} where `gpu` is none; wanted neither or both"
            raise ValueError(problem)
        if self.mig and not SLICE.fullmatch(self.mig):
            raise ValueError(f"mig: found {self.mig}; wanted a slice as NVIDIA writes it: 1g.12gb")
        if self.gpu == "none" and self.memory_flag == "--mem-per-gpu":
            raise ValueError("memory_flag: found --mem-per-gpu where `gpu` is none; wanted --mem or --mem-per-cpu")
        for least, most in (("min_nodes", "nodes"), ("min_gpus", "max_gpus")):
            if (getattr(self, least) or 0) > (getattr(self, most) or 10**9):
                problem = f"found {getattr(self, least)}, above `{most}` of {getattr(self, most)}"
                raise ValueError(f"{least}: {problem}; wanted at most that")
        if self.gpu != "none" and not re.search(r"\{(gpus|total)\}", self.ask):
            raise ValueError(f"ask: found {self.ask}; wanted a flag of sbatch with {{gpus}} (a node's) or {{total}}")
        if "GH" in self.gpu and self.arch not in ("aarch64", "unknown"):
            raise ValueError(
                f"arch: found {self.arch} with {self.gpu}; wanted aarch64, the architecture of its processor"
            )
        if (gpu := self.model) and self.precision and self.precision not in gpu.able:
            problem = f"found {self.precision}, which {self.gpu} does not support"
            raise ValueError(f"precision: {problem}; wanted {' or '.join(gpu.able)}")
        if self.precision and not gpu and self.precision != "fp32":
            raise ValueError(f"precision: found {self.precision} where no GPU is known; wanted fp32, or `gpu`")
        _date(self.checked)

    @property
    def queue(self) -> str:
        """Slurm's name of the partition; empty if jobs name none."""
        return "" if self.slurm == "none" else self.slurm or self.name

    @property
    def access(self) -> tuple[str, ...]:
        named = (("partition", self.queue), ("constraint", self.constraint), ("qos", self.quality))
        return (*(f"--{flag}={value}" for flag, value in named if value), *self.also)

    @property
    def model(self) -> Gpu | None:
        """The properties of its GPU or MIG slice; None without GPU or if it is unknown."""
        gpu = GPUS.get(self.gpu)
        if gpu and self.mig:
            return sliced(gpu, self.mig)
        return replace(gpu, memory=self.gpu_memory) if gpu and self.gpu_memory else gpu

    @property
    def card(self) -> Accelerator | None:
        """The properties by which kernels and precisions are chosen; None without GPU or if it is unknown."""
        return self.model.card(self.gpu) if self.model else None

    @property
    def layout(self) -> dict[str, Any]:
        """Default settings of a recipe's [layout] in this partition."""
        named = {"precision": self.precision} if self.precision else {}
        if self.gpu == "none":
            return {"device": "cpu", **named}
        if (gpu := self.model) is None:
            return {"device": "cuda", **named}
        share = min(1.0, gpu.memory / LARGE)
        tokens = int(TOKENS * share) // 1024 * 1024
        return {"device": "cuda", "precision": self.precision or gpu.precision, "tokens": tokens}


@dataclass(frozen=True)
class Quality:
    name: str
    """given to Slurm as --qos; required"""
    hours: float | None = None
    """longest job, in hours"""
    nodes: int | None = None
    """most nodes of a job"""
    gpus: int | None = None
    """most GPUs of a job"""
    partitions: tuple[str, ...] = ()
    """partitions where it may be requested; empty: all"""
    note: str = ""
    """shown by `ordsmed sites`"""


@dataclass(frozen=True)
class Site:
    title: str = ""
    """name and place of the machine"""
    owner: str = ""
    """who runs it"""
    state: Literal["running", "retired", "stopping", "unknown"] = "unknown"
    """a retired site takes no jobs"""
    until: str = ""
    """when it stopped, or will"""
    successor: str = ""
    """the site that took over"""
    scheduler: Literal["slurm", "none", "unknown"] = "none"
    """slurm: needs a [[partition]]"""
    account: Literal["required", "optional", "none", "unknown"] = "none"
    """does a job need `--account`?"""
    packages: tuple[Literal["venv", "module", "eessi", "tykky", "apptainer", "overlay", "easybuild", "docker"], ...] = (
        "venv",
    )
    """ways, the usual one first"""
    pip_torch: Literal["allowed", "forbidden", "unknown"] = "unknown"
    """may pip install PyTorch itself?"""
    use: tuple[str, ...] = ()
    """commands that make modules available (module use ...)"""
    modules: tuple[str, ...] = ()
    """modules that contain PyTorch"""
    container: str = ""
    """container image that contains PyTorch"""
    runtime: Literal["apptainer", "singularity", "unknown"] = "unknown"
    """what runs containers"""
    torch: str = ""
    """version of the PyTorch in modules or image"""
    environment: dict[str, str] = field(default_factory=dict)
    """environment variables of a job (network, caches); `${NAME}` in a value is the job's"""
    scratch: str = ""
    """the fast shared disk"""
    offline: bool | None = None
    """do a job's nodes have no internet?"""
    default: str = ""
    """partition where a command names none; empty: the first"""
    cpu: str = ""
    """partition of jobs without GPUs where a command names none; empty: the first that has none"""
    note: str = ""
    """shown by `ordsmed sites`"""
    source: str = ""
    """where the facts are from; required with a [[partition]]"""
    checked: str = ""
    """when they were read: 2026-07 or 2026-07-31"""
    layout: dict[str, Any] = field(default_factory=dict)
    """settings of `layout` in recipes; required without a [[partition]]"""
    partition: tuple[Partition, ...] = ()
    """tables [[partition]]"""
    quality: tuple[Quality, ...] = ()
    """tables [[quality]]: qualities of service"""

    def __post_init__(self) -> None:
        names = [partition.name for partition in self.partition]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"partition: found {name} twice; wanted each once")
        for key in ("default", "cpu"):
            if (name := getattr(self, key)) and name not in names:
                raise ValueError(f"{key}: found {name}; {nearest(name, names)}")
        if (cpu := self.without_gpus) and cpu.gpu != "none":
            raise ValueError(f"cpu: found {self.cpu}, which has GPUs; wanted a partition whose `gpu` is none")
        for quality in self.quality:
            if strange := [name for name in quality.partitions if name not in names]:
                raise ValueError(f"quality: {quality.name} is of {strange[0]}; {nearest(strange[0], names)}")
        if self.successor and self.state not in ("retired", "stopping"):
            raise ValueError(f"successor: found {self.successor} of a site that is {self.state}; wanted a retired one")
        if self.scheduler == "slurm" and not names:
            raise ValueError("partition: missing; wanted one or more, each a table [[partition]]")
        for partition in self.partition:
            if partition.arch == "ppc64le" and self.pip_torch == "allowed" and partition.gpu != "none":
                raise ValueError(
                    "pip_torch: found allowed on ppc64le with GPUs, for which there are no wheels; "
                    "wanted forbidden: built from source"
                )
        _date(self.checked)
        if self.partition and not self.source:
            raise ValueError(
                "source: missing; wanted the source of the facts, and in `checked` the date when they were read"
            )

    @property
    def without_gpus(self) -> Partition | None:
        """The partition for jobs without GPUs; None if none is known."""
        named = (part for part in self.partition if part.name == self.cpu)
        return next(named, next((part for part in self.partition if part.gpu == "none"), None))

    @staticmethod
    def names() -> list[str]:
        return sorted(path.stem for path in BUILT_IN.glob("*.toml") if path.is_file())

    @classmethod
    def path_of(cls, name: str, location: str = "--site") -> Path:
        """Return the file of a built-in site, or the given TOML file."""
        path = Path(name) if Path(name).is_file() else BUILT_IN / f"{name}.toml"
        if not path.is_file():
            is_path = Path(name).suffix == ".toml" or "/" in name
            problem = f"found {name}, and there is no such file" if is_path else f"found {name}"
            raise RecipeError(
                location, problem, "a TOML file, or a built-in site" if is_path else "", nearest(name, cls.names())
            )
        return path

    @classmethod
    def read(cls, name: str, location: str = "--site") -> "Site":
        """Return a site by name or file. Raise an error if the file is not valid."""
        path = cls.path_of(name, location)
        site = settings.decode(cls, settings.read(path), str(path))
        if not site.partition and not site.layout:
            raise RecipeError(path, "has no [layout] and no [[partition]]", "the settings of a machine")
        return site


@dataclass(frozen=True)
class Destination:
    """A site and the partition to which a job is submitted."""

    name: str
    site: Site
    partition: Partition

    @property
    def modules(self) -> tuple[str, ...]:
        return (*self.site.modules, *self.partition.modules)

    @property
    def environment(self) -> dict[str, str]:
        return {**self.site.environment, **self.partition.environment}

    @property
    def layout(self) -> dict[str, Any]:
        """Default settings of a recipe's [layout] at this destination."""
        return {**(self.partition.layout if self.site.partition else {}), **self.site.layout}

    @classmethod
    def find(cls, name: str, location: str = "--site") -> "Destination":
        """Return a site and its partition: `saga`, `saga:a100`, `my-site.toml`, `my-site.toml:gpu`."""
        whole, wanted = _parts(name)
        site = Site.read(whole, location)
        wanted = wanted or site.default
        there = {partition.name: partition for partition in site.partition} or {"": Partition("this")}
        if wanted and wanted not in there:
            raise RecipeError(location, f"found partition {wanted}", "", nearest(wanted, there))
        return cls(whole, site, there[wanted] if wanted else next(iter(there.values())))

    @staticmethod
    def names_partition(name: str) -> bool:
        """Return whether the name includes a partition, as in `saga:a100`."""
        return bool(_parts(name)[1])

    def refuse_retired(self) -> None:
        """Raise an error if the site is retired."""
        if self.site.state == "retired":
            problem = f"found {self.name}, which is retired since {self.site.until or 'some time'}"
            raise RecipeError("--site", problem, "", f"use {self.site.successor or 'another'}")


def site_layout(name: str) -> dict[str, Any]:
    """Return the [layout] of a site, which is applied over a recipe's own."""
    return Destination.find(name).layout


def absolute(name: str) -> str:
    """Return the name of the site with an absolute path if it is a file."""
    whole, partition = _parts(name)
    if not Path(whole).is_file():
        return name
    return f"{Path(whole).absolute()}{':' if partition else ''}{partition}"


def _parts(name: str) -> tuple[str, str]:
    if Path(name).is_file() or ":" not in name:
        return name, ""
    whole, _, partition = name.rpartition(":")
    return whole, partition


def _date(text: str) -> None:
    if text and not re.fullmatch(r"20\d\d-(0[1-9]|1[0-2])(-([0-2]\d|3[01]))?", text):
        raise ValueError(f"checked: found {text}; wanted a month or a day, as 2026-07")
