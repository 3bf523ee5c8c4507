"""Checks of the network: host names, ports, interfaces, and the settings of NCCL and libfabric."""

from __future__ import annotations

from collections.abc import Iterator

from ordsmed.base.ranks import place_of
from ordsmed.machines.doctor.host import Host
from ordsmed.machines.doctor.outcome import Outcome, error, ok, warning

LOOPBACK = "lo"
NEAR = ("127.", "::1")  # loopback addresses
SOCKETS = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
SLOWER = {
    "NCCL_P2P_DISABLE": "GPUs of one machine talk through memory",
    "NCCL_SHM_DISABLE": "processes of one machine talk through the network",
    "NCCL_IB_DISABLE": "InfiniBand lies idle",
    "NCCL_NET_GDR_DISABLE": "what is sent goes through memory",
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
        yield error(f"nobody knows {host.hostname}", "have it written into DNS or /etc/hosts; processes meet by name")
        return
    first = host.env.get("MASTER_ADDR") or place_of(host.env).address
    reached = host.address(first)
    if not reached:
        yield error(f"nobody knows {first}, where processes are to meet", "set MASTER_ADDR to the first machine's name")
    elif nodes_of(host) > 1 and reached.startswith(NEAR):
        yield warning(f"{first} is {reached}, which only one machine reaches", "set MASTER_ADDR to its address")
    else:
        yield ok(f"{host.hostname} is {address}" + (f", the first is {first}" if host.world > 1 else ""))


def port(host: Host) -> Iterator[Outcome]:
    if host.world > 1:
        yield ok("processes have met")
        return
    port = host.env.get("MASTER_PORT", "")
    number = int(port) if port.isdigit() else place_of(host.env).port
    if reason := host.bind(number):
        yield error(f"{number} cannot be listened at: {reason}", "set MASTER_PORT to a free one, on all ranks the same")
    else:
        yield ok(f"{number} is free")


def interfaces(host: Host) -> Iterator[Outcome]:
    """Check that the network interfaces named in variables of NCCL and gloo exist."""
    variables = {name: host.env[name] for name in SOCKETS if host.env.get(name)}
    for name, value in variables.items():
        if lacking := _lacking(value, host.interfaces):
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
        remedy = "ask the site's people, or leave this machine out with `--exclude`"
        return error(f"{host.hostname} has no network, so other machines cannot be met", remedy)
    remedy = "nothing is to be done for a training here; bring packages (`ordsmed install --bundle`), models and texts"
    return warning("no network: processes of this machine alone can meet, and nothing is fetched", remedy)


def nodes_of(host: Host) -> int:
    """Return the number of nodes of the job step; 1 if Slurm does not say."""
    nodes = host.env.get("SLURM_STEP_NUM_NODES", host.env.get("SLURM_JOB_NUM_NODES", "1"))
    return int(nodes) if nodes.isdigit() else 1


def _lacking(value: str, there: tuple[str, ...]) -> list[str]:
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
    slow = [name for name in SLOWER if host.env.get(name) == "1"]
    for name in slow:
        yield warning(f"{name}=1: {SLOWER[name]}", f"unset {name}")
    if host.fabric == "Slingshot" and host.gpus == "NVIDIA":
        yield from _slingshot(host)
    elif not slow:
        variables = sorted(name for name in host.env if name.startswith(("NCCL_", "FI_", "RCCL_", "UCX_")))
        yield ok(f"{host.fabric}; set: {', '.join(variables) or 'nothing'}")


def _slingshot(host: Host) -> Iterator[Outcome]:
    wrong = {name: value for name, value in SLINGSHOT.items() if host.env.get(name) != value}
    if not wrong:
        yield ok("Slingshot, and all that NCCL needs on it")
        return
    remedy = f"load the site's NCCL module, or `export {' '.join(f'{name}={value}' for name, value in wrong.items())}`"
    text = f"Slingshot without {', '.join(wrong)}: sums between nodes can come out wrong in silence"
    excluded = host.env.get("NCCL_PROTO", "")
    spared = "LL128" in excluded if excluded.startswith("^") else excluded and "LL128" not in excluded.split(",")
    yield (warning(f"{text} (NCCL_PROTO={excluded} spares the worst)", remedy) if spared else error(text, remedy))
