"""Checks of the software: Python, torch, and whether torch fits the processor, the GPUs and the driver."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version

from ordsmed.base.errors import RunError
from ordsmed.base.launch.gpus import known
from ordsmed.base.machine.devices import has_code
from ordsmed.machines.doctor.host import Host, within
from ordsmed.machines.doctor.outcome import Outcome, error, ok, warning

SLOW_SETTINGS = {
    "CUDA_LAUNCH_BLOCKING": ("1", "the CPU waits for every kernel"),
    "TORCH_SHOW_CPP_STACKTRACES": ("1", "stack traces are recorded"),
    "PYTORCH_NO_CUDA_MEMORY_CACHING": ("1", "GPU memory is allocated again each time"),
    "AMD_SERIALIZE_KERNEL": ("3", "the CPU waits for every kernel"),
}


def python(host: Host) -> Iterator[Outcome]:
    yield from _in_range(host, "Python", host.python, "make an environment with another Python")


def torch(host: Host) -> Iterator[Outcome]:
    """Check that PyTorch can be imported and that its version is in the required range."""
    if not host.torch.version:
        yield error(f"cannot be imported: {host.torch.reason}", _install(host))
        return
    yield from _in_range(host, "torch", host.torch.version, _install(host))
    named = host.place.site.torch if host.place else ""
    if named and not within(host.torch.version, f"=={named}.*"):
        yield warning(
            f"{host.torch.version}, where the modules or the image of {_site(host)} have {named}",
            "load its modules first, or use its image",
        )


def _in_range(host: Host, name: str, version: str, remedy: str) -> Iterator[Outcome]:
    wanted = host.wanted.get(name, "")
    if not wanted:
        yield warning(f"{version}; the required range is unknown", "install ordsmed with pip, which records it")
    elif within(version, wanted):
        yield ok(f"{version}, in the range {wanted}")
    else:
        yield error(f"{version}, not in the range {wanted}", remedy)


def checkpoints(host: Host) -> Iterator[Outcome]:
    if not host.torch.version:
        return
    from ordsmed.weights.weights import check_format

    try:
        check_format()
    except RunError as failure:
        yield error(f"{failure.place} {failure.found}", failure.remedy)
        return
    yield ok(f"safetensors {version('safetensors')} writes and reads them")


def wheel(host: Host) -> Iterator[Outcome]:
    """Check that torch was built for this processor and for these GPUs' vendor."""
    torch, part = host.torch, host.place.partition if host.place else None
    if part and part.arch not in ("unknown", host.arch):
        location = f"{part.name} of {_site(host)}"
        yield error(f"this machine is {host.arch}, {location} is {part.arch}", f"start it on a node of {part.name}")
    if not torch.version:
        return
    built = f"CUDA {torch.cuda}" if torch.cuda else f"ROCm {torch.hip}" if torch.hip else "CPUs only"
    wanted = {"NVIDIA": torch.cuda, "AMD": torch.hip}.get(host.gpus, "none")
    if not wanted:
        source = "build it from source" if host.arch == "ppc64le" else f"install the wheel of torch for {host.gpus}"
        yield error(f"torch for {built} on a machine with {host.gpus}'s GPUs, which it cannot use", source)
    elif part and (gpu := part.model) and gpu.amd != bool(torch.hip) and (torch.cuda or torch.hip):
        yield error(f"torch for {built}, but {part.name} has {part.gpu}", f"install the wheel for {gpu.wheels}")
    else:
        yield ok(f"torch for {built} on {host.arch}")


def gpus(host: Host) -> Iterator[Outcome]:
    torch = host.torch
    expected = host.place.partition.gpus if host.place else None
    if not torch.cards:
        if host.gpus != "none" and (torch.cuda or torch.hip):
            hidden = "CUDA_VISIBLE_DEVICES" in host.env and not host.env["CUDA_VISIBLE_DEVICES"].strip()
            remedy = "unset CUDA_VISIBLE_DEVICES" if hidden else "check `nvidia-smi` or `rocm-smi`, and the driver"
            yield error(f"torch sees none of {host.gpus}'s GPUs", remedy)
        elif host.device == "cuda" or (expected and "SLURM_JOB_ID" in host.env):
            yield error("no GPU here", "request some from Slurm (`ordsmed sites` says how), or use `--device cpu`")
        else:
            has = f"; a node of {_site(host)} has {expected}" if expected else ""
            yield ok(f"none here; the CPU is used{has}")
        return
    without_code = {card.capability: card for card in torch.cards if not has_code(card.capability, torch.codes)}
    for code, card in without_code.items():
        model = known(card.name)
        wheels = f"for {model.wheels}" if model else "with code for it"
        remedy = f"install a wheel of torch {wheels}, or build it from source"
        yield error(f"torch has no code for {card.name} ({code}): it has {' '.join(torch.codes)}", remedy)
    if not without_code:
        kinds = ", ".join(
            dict.fromkeys(f"{card.name} ({card.capability}, {card.memory:.0f} GiB)" for card in torch.cards)
        )
        yield ok(f"{len(torch.cards)} x {kinds}; torch has code for them")
    if len({card.name for card in torch.cards}) > 1:
        yield warning("different models in one machine", "choose equal ones with CUDA_VISIBLE_DEVICES")


def driver(host: Host) -> Iterator[Outcome]:
    """Check that the driver supports the CUDA version that torch was built with."""
    torch = host.torch
    if host.gpus != "NVIDIA" or not torch.cuda:
        return
    if not torch.driver:
        yield error(
            f"no driver answers, but CUDA {torch.cuda} needs one", "check `nvidia-smi`, or ask the site's support"
        )
        return
    has, needs = ([int(n) for n in version.split(".")[:2]] for version in (torch.driver, torch.cuda))
    if has[0] < needs[0]:
        remedy = f"install a wheel of torch for CUDA {has[0]}, or have the driver updated"
        yield error(f"runs CUDA up to {torch.driver}, torch was built with {torch.cuda}", remedy)
    elif has < needs:
        remedy = "works within a major version, except for code compiled at run time (`compile`)"
        yield warning(f"runs CUDA up to {torch.driver}, torch was built with {torch.cuda}", remedy)
    else:
        yield ok(f"runs CUDA up to {torch.driver}, torch was built with {torch.cuda}")


def precision(host: Host) -> Iterator[Outcome]:
    if host.place is None:
        return
    precision = str(host.place.layout.get("precision", "auto"))
    for card in {card.name: card for card in host.torch.cards}.values():
        if (model := known(card.name)) and precision not in (*model.able, "auto"):
            yield error(f"{precision} on {card.name}, which has no units for it", f"take {' or '.join(model.able)}")
            return
    yield ok(f"{precision}, which {_site(host)} is set to")


def switches(host: Host) -> Iterator[Outcome]:
    """Check that no debugging variables are set, and that there are not more threads than cores."""
    slow = [(name, reason) for name, (value, reason) in SLOW_SETTINGS.items() if host.env.get(name) == value]
    for name, reason in slow:
        yield warning(f"{name}={host.env[name]}: {reason}", f"unset {name}")
    threads = host.env.get("OMP_NUM_THREADS", "").partition(",")[0]
    if threads.isdigit() and int(threads) > host.cores:
        yield warning(f"OMP_NUM_THREADS={threads} with {host.cores} cores", f"set it to {host.cores} or less")
    elif not slow:
        yield ok(f"no debugging variables, {threads or 'any number of'} threads with {host.cores} cores")


def _site(host: Host) -> str:
    return host.place.name if host.place else "this machine"


def _install(host: Host) -> str:
    site = host.place.site if host.place else None
    if host.place and (modules := host.place.modules):
        return f"`module load {' '.join(modules)}`"
    if site and site.pip_torch == "forbidden":
        return f"take the module or image of {_site(host)}: pip is not allowed for it there"
    wanted = host.wanted.get("torch", "")
    return f"`pip install 'torch{wanted}'`"
