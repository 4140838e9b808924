"""Time of a collective: bytes over a link in one direction and the latency of a message; uneven loads of ranks.

Thakur, Rabenseifner, Gropp 2005 (ring, tree, direct algorithms); NCCL documentation (in-switch reduction); vLLM custom_all_reduce
(one-shot kernels over peer memory).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from calc.arrays import Number, maximum, minimum, where
from calc.operators.operator import Collective
from calc.operators.token_copies import TokenCopies
from calc.profiles.hardware import HardwareProfile

#: Messages up to this size by number of ranks go to one-shot kernels in engines that have them, larger ones to two-shot kernels (reduce
#: parts, gather parts) up to 8 MiB, beyond that to NCCL (vLLM csrc/custom_all_reduce.cuh).
ONE_SHOT_BYTES = {2: 8 << 20, 4: 512 << 10, 8: 256 << 10}
TWO_SHOT_BYTES = 8 << 20
DIRECT_ENGINES = ("vllm", "sglang", "tensorrt-llm", "nim", "gpt-fast")
#: Devices of a host that has no scale-up fabric: the slots of a server over PCIe.
HOST_SLOTS = 8
_MICROSECOND = 1e-6
#: What collectives usually cost, in multiples of their sizes: a ring's stage in us, its filling and its bytes by kind of link, a direct
#: kernel's stage in us and its bytes. The fit of NCCL's and vLLM's all-reduce tables (records of kind allreduce; terms ``allreduce``
#: and ``direct`` of the shared effect file).
USUAL_STAGE, USUAL_FILL = 5.0, 2.5
USUAL_BYTES = {"fabric": 1.2, "bridge": 1.7, "pcie": 3.0, "network": 1.2}
USUAL_DIRECT, USUAL_DIRECT_BYTES = 5.5, 1.7


@dataclass(frozen=True, slots=True)
class Link:
    """What joins the ranks: bytes per second in one direction, whether the switch reduces (NVLink SHARP), and its kind: ``fabric``,
    ``bridge``, ``pcie`` or ``network``. A network joins groups of ``local_ranks`` that share a fabric of ``local_bandwidth``."""

    name: str
    bandwidth: float
    reduces_in_switch: bool = False
    kind: str = "fabric"
    local_ranks: int = 1
    local_bandwidth: float = 0.0

    @property
    def label(self) -> str:
        """The kind of link, in-switch reduction apart: collectives behave alike on links of one label."""
        return f"{self.kind} with in-switch reduction" if self.reduces_in_switch else self.kind


def link(hardware: HardwareProfile, ranks: int) -> Link | None:
    """The link that ``ranks`` devices talk over: the scale-up fabric inside its domain, the network beyond, PCIe where there is none.

    None for a single rank, or where the profile knows no link at all.
    """
    if ranks <= 1:
        return None
    wires = hardware.interconnect
    domain = wires.scale_up_domain_size or 1
    fabric, pcie, out = wires.scale_up_bytes_per_s, wires.pcie_bytes_per_s, wires.scale_out_bytes_per_s
    if fabric and ranks <= domain:
        return Link(
            wires.scale_up_name or "scale-up link",
            fabric,
            _reduces_in_switch(wires.scale_up_name, wires.scale_up_topology),
            "bridge" if "bridge" in (wires.scale_up_topology or "") else "fabric",
        )
    if out and ranks > max(domain, HOST_SLOTS):
        local_ranks = domain if fabric else HOST_SLOTS if pcie else 1
        return Link("network", out, kind="network", local_ranks=local_ranks, local_bandwidth=fabric or pcie or 0.0)
    if pcie:
        return Link("PCIe", pcie, kind="pcie")
    return Link("network", out, kind="network") if out else None


def _reduces_in_switch(name: str | None, topology: str | None) -> bool:
    """NVSwitch reduces since the third generation, that is with NVLink 4 and later."""
    generation = (name or "").removeprefix("NVLink ").split(" ")[0]
    return "switch" in (topology or "").lower() and generation in ("4", "5", "6")


def transfer_s(collective: Collective | None, wires: Link | None) -> Number:
    """Seconds that the bytes of one rank need on the link (ring or direct algorithm; an all-reduce over a network is summed inside
    every group first, so that each rank carries its part of the message across), without latency."""
    if collective is None or wires is None:
        return 0.0
    if collective.copies is not None:
        inside, across = all_to_all_s(collective, collective.copies, wires, relayed=collective.copies.relayed)
        return inside + across
    local = min(wires.local_ranks, collective.ranks)
    if collective.kind != "all-reduce" or local <= 1 or not wires.local_bandwidth:
        return collective.bytes_per_rank / wires.bandwidth
    groups = -(-collective.ranks // local)
    inside = 2 * (local - 1) / local * collective.message_bytes / wires.local_bandwidth
    return inside + 2 * (groups - 1) / groups * collective.message_bytes / local / wires.bandwidth


def all_to_all_s(collective: Collective, copies: TokenCopies, wires: Link, *, relayed: bool) -> tuple[Number, Number]:
    """Seconds (inside a host, over the network) that one rank's copies of tokens need. Copies for other hosts go straight to their
    ranks; ``relayed``, one copy a host crosses the network and is passed on to the ranks inside."""
    ranks, message = collective.ranks, collective.message_bytes
    local = min(wires.local_ranks, ranks) if wires.local_bandwidth else 1
    if wires.kind != "network":
        return collective.bytes_per_rank / wires.bandwidth, 0.0
    hosts = -(-ranks // local)
    if relayed and local > 1:
        inside = message * (local - 1) / local / wires.local_bandwidth
        return inside, copies.message_bytes(hosts) * (hosts - 1) / hosts / wires.bandwidth
    inside = message * (local - 1) / ranks / wires.local_bandwidth if local > 1 else 0.0
    return inside, message * (ranks - local) / ranks / wires.bandwidth


def floor_s(collective: Collective | None, wires: Link | None) -> Number:
    """The cheapest algorithm that the link allows, without latency: nothing beats it."""
    if collective is None or wires is None:
        return 0.0
    if collective.copies is not None:  # both kinds of links are busy at once at best
        ways = [all_to_all_s(collective, collective.copies, wires, relayed=relayed) for relayed in (False, True)]
        return minimum(*(maximum(inside, across) for inside, across in ways))
    seconds = transfer_s(collective, wires)
    if collective.kind == "all-reduce" and wires.reduces_in_switch:
        in_switch = (1 + 1 / collective.ranks) * collective.message_bytes / wires.bandwidth
        return minimum(seconds, in_switch)
    return seconds


@dataclass(frozen=True, slots=True)
class Cost:
    """Sizes of a collective's time in seconds at the nominal link: stages of 1 us, bytes, and the filling of a chunked pipeline (the
    geometric mean of both). ``direct`` is 1 where kernels over peer memory carry the message, else 0 (elementwise). ``kind`` of link."""

    latency_s: Number
    bytes_s: Number
    fill_s: Number
    direct: Number
    kind: str

    @property
    def usual_s(self) -> Number:
        """Seconds that such a message usually takes between the devices of one host."""
        ring = self.latency_s * USUAL_STAGE + self.bytes_s * USUAL_BYTES[self.kind] + self.fill_s * USUAL_FILL
        peers = self.latency_s * USUAL_DIRECT + self.bytes_s * USUAL_DIRECT_BYTES
        return ring * (1 - self.direct) + peers * self.direct


def cost(collective: Collective, wires: Link, *, direct_kernels: bool = False) -> Cost:
    """The algorithm by kind and message size; no message, no time. Ring and tree pass log2(ranks) + 1 stages. Direct kernels over peer
    memory take one stage in which each rank reads the whole message of every other, or two: its part, and then all parts."""
    ranks, seconds = collective.ranks, transfer_s(collective, wires)
    stages = 1.0 if collective.kind in ("send", "all-to-all") else 1.0 + math.log2(ranks)
    latency = stages * _MICROSECOND * where(collective.message_bytes > 0, 1, 0)
    fill = (latency * seconds) ** 0.5
    peers = wires.kind in ("fabric", "bridge")
    if collective.kind != "all-reduce" or not direct_kernels or not peers or ranks > max(ONE_SHOT_BYTES):
        return Cost(latency, seconds, fill, 0, wires.kind)
    message = collective.message_bytes
    one = where(message <= next(size for most, size in ONE_SHOT_BYTES.items() if ranks <= most), 1, 0)
    direct = where(message <= TWO_SHOT_BYTES, 1, 0)
    all_read = (ranks - 1) * message / wires.bandwidth
    return Cost(
        _MICROSECOND * (2 - one) * direct + latency * (1 - direct),
        all_read * one + seconds * (1 - one),
        fill * (1 - direct),
        direct,
        wires.kind,
    )


def imbalance(ranks: int, mean_tokens: Number) -> Number:
    """Load of the fullest rank over the mean when ``ranks`` receive ``mean_tokens`` each at random (balls in bins, Raab and Steger
    1998); at most what a rank would hold if all came to it."""
    if ranks <= 1:
        return 1.0
    spread = (2 * math.log(ranks) / maximum(mean_tokens, 1e-9)) ** 0.5
    return minimum(1 + spread, ranks)
