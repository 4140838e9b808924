"""A device with planted rates that lives in its own time: noise, drift, two clocks, throttling, neighbours, memory that runs out,
Ctrl-C. It drives the whole chain without torch and without waiting."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from random import Random
from typing import Any

from calc.measure.cases.operators import Case, Workload, workload
from calc.measure.ceilings import CeilingPlan
from calc.measure.device.device import DeviceFacts
from calc.measure.device.monitor import Reading
from calc.measure.runner import OutOfMemory, Setup
from calc.measure.session import Session
from calc.measure.timers import repeats_for
from calc.profiles.model import Block, DenseFeedForward, FullAttention, LayerKind, ModelProfile, Storage

PLAN = CeilingPlan((512, 1024), ((640, 512), (512, 1280)), 1 << 20)
GATED = DenseFeedForward(intermediate_size=640, gated=True)
ATTENTION = FullAttention(num_attention_heads=4, num_key_value_heads=2, head_dim=64)


def tiny_model(**changes: Any) -> ModelProfile:
    """A dense decoder of two equal layers, small enough for any machine."""
    kinds = {"decoder": LayerKind(mixers=[ATTENTION], feed_forwards=[GATED])}
    facts: dict[str, Any] = {
        "id": "tiny", "name": "Tiny", "family": "synthetic", "synthetic": True, "hidden_size": 256, "vocab_size": 1000,
        "layer_kinds": kinds, "stack": [Block(repeat=2, layers=["decoder"])], "storage": Storage(dtype="bf16"),
    }  # fmt: skip
    return ModelProfile(**facts | changes)


@dataclass
class Device:
    """Clock, monitor and runner in one; rates in FLOP/s and bytes/s, times in seconds."""

    peak: float = 1e12
    bandwidth: float = 50e9
    launch_s: float = 2e-6
    noise: float = 0.002  # standard deviation of the logarithm
    drift_per_s: float = 0.0  # growth of the logarithm
    slow_clock: float = 1.0  # factor of every other sample
    faster: dict[str, float] = field(default_factory=dict)  # pattern of case ids → how much faster than physics: a planted fault
    no_memory: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    interrupt_at: float = math.inf
    throttled: tuple[float, float] = (math.inf, math.inf)
    reasons: int = 0  # NVML's bits that hold all the time
    starved_below_s: float = 0.0  # the device looks idle when samples are shorter
    slow_turn: tuple[float, float] = (math.inf, math.inf)  # half the clock
    power_w: float | None = None
    neighbours: tuple[float, float] = (math.inf, math.inf)  # during this time the process waits for its processor
    tells_waiting: bool = False
    seed: int = 1
    time: float = 0.0
    waited: float = 0.0
    source: str = "simulated"
    slow: bool = False
    prepared: list[str] = field(default_factory=list)
    last_sample_s: float = math.inf
    looks: int = 0
    slept: float = 0.0

    def __post_init__(self) -> None:
        self.random = Random(self.seed)

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds
        self.slept += seconds

    def read(self) -> Reading:
        self.time += 1e-5
        self.looks += 1
        hot = self.throttled[0] <= self.time < self.throttled[1]
        starved = self.last_sample_s < self.starved_below_s
        return Reading(
            sm_clock_hz=0.5e9 if self.slow_turn[0] <= self.time < self.slow_turn[1] else 1e9,
            power_w=self.power_w,
            energy_j=None if self.power_w is None else self.power_w * self.time,
            reasons=self.reasons | (0x40 if hot else 0) | (0x01 if starved else 0),
            waited_s=self.waited if self.tells_waiting else None,
        )

    def prepare(self, case: Case) -> SimulatedCase:
        self.time += 1e-3
        if any(fnmatchcase(case.id, p) for p in self.no_memory):
            raise OutOfMemory("planted")
        self.prepared.append(case.id)
        return SimulatedCase(self, case)

    def close(self) -> None:
        pass

    def true_time(self, case: Case) -> float:
        """What an undisturbed call takes."""
        time_s = max(case.flops / self.peak, case.bytes / self.bandwidth)
        return time_s / next((f for p, f in self.faster.items() if fnmatchcase(case.id, p)), 1.0) + self.launch_s


class SimulatedCase:
    def __init__(self, device: Device, case: Case) -> None:
        self.device, self.case = device, case
        self.turn = 0

    @property
    def setup(self) -> Setup:
        return Setup("simulated", "eager", "cold", 3, 1, "planted law")

    def begin(self) -> None: ...

    def end(self) -> None: ...

    def close(self) -> None: ...

    def check(self) -> float:
        return 7.0 if any(fnmatchcase(self.case.id, p) for p in self.device.wrong) else 0.1

    def repeats_for(self, call_s: float) -> int:
        return repeats_for(call_s)

    def sample(self, repeats: int, count: int) -> list[float]:
        d, found = self.device, []
        undisturbed, gauss, noise, drift, now = d.true_time(self.case), d.random.gauss, d.noise, d.drift_per_s, d.time
        for _ in range(count):
            self.turn += 1
            time_s = undisturbed * math.exp(gauss(0, noise) + drift * now)
            if self.turn % 2:
                time_s *= d.slow_clock
            if d.neighbours[0] <= now < d.neighbours[1]:
                d.waited += time_s * repeats
                time_s *= 2
            d.last_sample_s = time_s * repeats
            d.time = now = now + d.last_sample_s
            if now >= d.interrupt_at:
                d.interrupt_at = math.inf
                raise KeyboardInterrupt
            found.append(time_s)
        return found


FACTS = DeviceFacts("cpu", 0, "Simulated", 1 << 34, 1 << 33, 1 << 20, True, 2)


def session(
    device: Device, *, model: ModelProfile | None = None, work: Workload | None = None, output: Path | None = None, **more: Any
) -> Session:
    """A session of the tiny model on the simulated device."""
    model = model or tiny_model()
    work = work or workload(model, "bf16", input_len=256, context_len=512)
    return Session(
        model, work, FACTS, device, device, device, {"seed": 0, "budget_s": 60.0}, {"device": {"name": "Simulated"}}, PLAN,
        output=output, **more,
    )  # fmt: skip
