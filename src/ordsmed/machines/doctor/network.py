"""Checks of the network: host names, ports, interfaces, and the settings of NCCL and libfabric."""

from __future__ import annotations

from collections.abc import Iterator

from ordsmed.base.ranks import process_info
from ordsmed.machines.doctor.host import Host
from ordsmed.machines.doctor.outcome import Outcome, error, ok, warning

LOOPBACK = "lo"
LOOPBACK_ADDRESSES = ("127.", "::1")  # loopback addresses
SOCKETS = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
SLOW_SETTINGS = {
    "NCCL_P2P_DISABLE": "GPUs of one machine communicate through host memory",
    "NCCL_SHM_DISABLE": "processes of one machine communicate through the network",
    "NCCL_IB_DISABLE": "InfiniBand is not used",
    "NCCL_NET_GDR_DISABLE": "data pass through host memory",
}
# Without these settings, NCCL on Slingshot silently corrupts sums between nodes (LL128 with GPUDirect:
# NVIDIA/nccl#2001). Sources: documentation.sigma2.no, hpc_machines/olivia/nccl, May 2026;
# github.com/HewlettPackard/shs-ccl-docs, ccl_env.sh.
SLINGSHOT = dict(
    line.split("=")
    for line in """
FI_MR_CACHE_MONITOR=userfaultfd
FI_CXI_DISABLE_HOST_REGISTER=1
FI_CXI_DEFAULT_CQ_SIZE=131072
FI_CXI_RDZV_PROTO=alt_read
FI_CXI_RDZV_EAGER_SIZE=0
FI_CXI_RDZV_THRESHOLD=0
FI_CXI_RDZV_GET_MIN=0
FI_CXI_DEFAULT_TX_SIZE=2048
FI_CXI_RX_MATCH_MODE=hybrid
NCCL_CROSS_NIC=1
NCCL_NET_GDR_LEVEL=PHB
""".strip().splitlines()
)


def names(host: Host) -> Iterator[Outcome]:
    """Check that this machine's name and the first machine's name resolve."""
    address = host.address(host.hostname)
    if not address:
        yield error(
            f"{host.hostname} cannot be resolved", "have it added to DNS or /etc/hosts; processes connect by name"
        )
        return
    first = host.env.get("MASTER_ADDR") or process_info(host.env).address
    reached = host.address(first)
    if not reached:
        yield error(
            f"{first}, where processes connect, cannot be resolved", "set MASTER_ADDR to the first machine's name"
        )
    elif nodes_of(host) > 1 and reached.startswith(LOOPBACK_ADDRESSES):
        yield warning(f"{first} is {reached}, which other machines cannot reach", "set MASTER_ADDR to its address")
    else:
        yield ok(f"{host.hostname} is {address}" + (f", the first is {first}" if host.world > 1 else ""))


def port(host: Host) -> Iterator[Outcome]:
    if host.world > 1:
        yield ok("all processes have connected")
        return
    port = host.env.get("MASTER_PORT", "")
    number = int(port) if port.isdigit() else process_info(host.env).port
    if reason := host.bind(number):
        yield error(f"{number} cannot be opened: {reason}", "set MASTER_PORT to the same free port on all ranks")
    else:
        yield ok(f"{number} is free")


def interfaces(host: Host) -> Iterator[Outcome]:
    """Check that the network interfaces named in variables of NCCL and gloo exist."""
    variables = {name: host.env[name] for name in SOCKETS if host.env.get(name)}
    for name, value in variables.items():
        if lacking := _missing_interfaces(value, host.interfaces):
            remedy = f"there are: {', '.join(host.interfaces)}"
            yield error(f"{name}={value}: {', '.join(lacking)} is not here", remedy)
            return
    if set(host.interfaces) <= {LOOPBACK}:
        yield _no_network(host)
        return
    yield ok(", ".join(f"{name}={value}" for name, value in variables.items()) or "left to NCCL and gloo")


def _no_network(host: Host) -> Outcome:
    """Return the outcome for a machine without network: an error if the job has several nodes, else a warning."""
    if nodes_of(host) > 1:
        remedy = "ask the site's support, or exclude this machine with `--exclude`"
        return error(f"{host.hostname} has no network, so it cannot connect to other machines", remedy)
    remedy = (
        "a training on this machine alone works; copy packages (`ordsmed install --bundle`), models and texts to it"
    )
    return warning("no network: only processes of this machine can connect, and nothing can be downloaded", remedy)


def nodes_of(host: Host) -> int:
    """Return the number of nodes of the job step; 1 if Slurm does not say."""
    nodes = host.env.get("SLURM_STEP_NUM_NODES", host.env.get("SLURM_JOB_NUM_NODES", "1"))
    return int(nodes) if nodes.isdigit() else 1


def _missing_interfaces(value: str, there: tuple[str, ...]) -> list[str]:
    """Return the names in `value` that match no interface in `there`: by prefix, or exactly after `=`.

    A value that starts with `^` lists excluded interfaces and needs no match.
    """
    if value.startswith("^"):
        return []
    exact = value.startswith("=")
    wanted = value.lstrip("=").split(",")
    return [
        interface
        for interface in wanted
        if not any(name == interface if exact else name.startswith(interface) for name in there)
    ]


def collectives(host: Host) -> Iterator[Outcome]:
    """Check for settings that slow NCCL down, and for missing settings that NCCL needs on Slingshot."""
    slow = [name for name in SLOW_SETTINGS if host.env.get(name) == "1"]
    for name in slow:
        yield warning(f"{name}=1: {SLOW_SETTINGS[name]}", f"unset {name}")
    if host.fabric == "Slingshot" and host.gpus == "NVIDIA":
        yield from _slingshot(host)
    elif not slow:
        variables = sorted(name for name in host.env if name.startswith(("NCCL_", "FI_", "RCCL_", "UCX_")))
        yield ok(f"{host.fabric}; set: {', '.join(variables) or 'nothing'}")


def _slingshot(host: Host) -> Iterator[Outcome]:
    wrong = {name: value for name, value in SLINGSHOT.items() if host.env.get(name) != value}
    if not wrong:
        yield ok("Slingshot, with all settings that NCCL needs on it")
        return
    remedy = f"load the site's NCCL module, or `export {' '.join(f'{name}={value}' for name, value in wrong.items())}`"
    text = f"Slingshot without {', '.join(wrong)}: sums between nodes can be silently wrong"
    excluded = host.env.get("NCCL_PROTO", "")
    spared = "LL128" in excluded if excluded.startswith("^") else excluded and "LL128" not in excluded.split(",")
    yield (warning(f"{text} (NCCL_PROTO={excluded} avoids the worst)", remedy) if spared else error(text, remedy))
