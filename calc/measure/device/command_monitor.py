"""Asks the vendor's command-line tool where its library is not installed: before and after each case, as far as time allows."""

from __future__ import annotations

import json
import math
import subprocess
import time
from collections.abc import Callable, Iterator
from shutil import which
from typing import Any

from calc.measure.device.monitor import Reading, scaled

_TIMEOUT_S = 5.0
_SHARE_OF_TIME = 0.1
Ask = Callable[[list[str]], str | None]

#: Fields of nvidia-smi in the order asked; the reasons were renamed with driver 535, so both names are tried.
_FIELDS = "clocks.sm,clocks.mem,temperature.gpu,power.draw,enforced.power.limit"
_REASONS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")


def run(command: list[str]) -> str | None:
    """What a tool prints; None where it is missing, fails or hangs."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.SubprocessError, UnicodeError):
        return None
    return done.stdout if done.returncode == 0 else None


class NvidiaSmi:
    """NVIDIA's tool. Energy is not among what it tells."""

    source = "nvidia-smi"
    slow = True

    def __init__(self, device: str, ask: Ask = run) -> None:
        self._device, self._ask = device, ask
        self._reasons: tuple[str, ...] = _REASONS
        self._others: int | None = None
        self._first = True

    def read(self) -> Reading:
        """One query; the first time one for the processes too."""
        if self._first:
            self._first = False
            listed = self._query("--query-compute-apps=pid")
            self._others = None if listed is None else max(0, len(listed.split()) - 1)
        for name in self._reasons:
            found = self._query(f"--query-gpu={_FIELDS},{name}")
            if found is None:
                continue
            self._reasons = (name,)
            words = [w.strip() for w in found.strip().split(",")]
            if len(words) != 6:
                break
            numbers = [_number(w) for w in words[:5]]
            return Reading(
                sm_clock_hz=scaled(numbers[0], 1e6),
                memory_clock_hz=scaled(numbers[1], 1e6),
                temperature_c=numbers[2],
                power_w=numbers[3],
                power_limit_w=numbers[4],
                reasons=_bits(words[5]),
                other_processes=self._others,
            )
        return Reading()

    def _query(self, what: str) -> str | None:
        return self._ask(["nvidia-smi", f"--id={self._device}", what, "--format=csv,noheader,nounits"])

    def close(self) -> None:
        """Nothing to let go of."""


class AmdSmi:
    """AMD's tools, the newer ``amd-smi`` or the older ``rocm-smi``. They do not say why a clock is held back, so nothing is dropped."""

    slow = True

    def __init__(self, tool: str, index: int, ask: Ask = run) -> None:
        self.source, self._ask = tool, ask
        newer = ["amd-smi", "metric", "-g", str(index), "--clock", "--power", "--temperature", "--json"]
        older = ["rocm-smi", "-d", str(index), "--showclocks", "--showpower", "--showtemp", "--json"]
        self._command = newer if tool == "amd-smi" else older

    def read(self) -> Reading:
        """One query; keys differ between releases, so they are looked up by what they end with."""
        try:
            found = list(_leaves(json.loads(self._ask(self._command) or "null")))
        except (ValueError, RecursionError):
            return Reading()
        return Reading(
            sm_clock_hz=scaled(_first(found, "clock.gfx_0.clk.value", "sclk clock speed:"), 1e6),
            memory_clock_hz=scaled(_first(found, "clock.mem_0.clk.value", "mclk clock speed:"), 1e6),
            temperature_c=_first(found, "temperature.hotspot.value", "Temperature (Sensor junction) (C)"),
            power_w=_first(
                found,
                "power.socket_power.value",
                "Current Socket Graphics Package Power (W)",
                "Average Graphics Package Power (W)",
            ),
        )

    def close(self) -> None:
        """Nothing to let go of."""


class Sparing:
    """A slow source that is asked no more often than a tenth of the time allows: a tool may take a second to start."""

    slow = True

    def __init__(self, monitor: NvidiaSmi | AmdSmi, now: Callable[[], float] = time.monotonic) -> None:
        self._monitor, self._now = monitor, now
        self.source = monitor.source
        self._last, self._next_s = Reading(), -math.inf

    def read(self) -> Reading:
        """A fresh look where it is due, else the last one."""
        begin = self._now()
        if begin >= self._next_s:
            self._last = self._monitor.read()
            end = self._now()
            self._next_s = end + (1 / _SHARE_OF_TIME - 1) * (end - begin)
        return self._last

    def close(self) -> None:
        """Nothing to let go of."""


def open_command(vendor: str, uuid: str | None, index: int) -> Sparing | None:
    """The tool of a vendor (nvidia or amd) that is installed and tells something, else None."""
    found: NvidiaSmi | AmdSmi | None = None
    if vendor == "nvidia" and which("nvidia-smi"):
        found = NvidiaSmi(_name(uuid, index))
    elif vendor == "amd":
        tool = next((t for t in ("amd-smi", "rocm-smi") if which(t)), None)
        found = AmdSmi(tool, index) if tool else None
    return Sparing(found) if found is not None and found.read().known else None


def device_facts(uuid: str | None, index: int, ask: Ask = run) -> dict[str, Any]:
    """What a run record says of an NVIDIA device where NVML's module is missing; empty without the tool."""
    fields = "driver_version,enforced.power.limit,clocks.max.sm,clocks.max.mem,ecc.mode.current,mig.mode.current"
    found = ask(["nvidia-smi", f"--id={_name(uuid, index)}", f"--query-gpu={fields}", "--format=csv,noheader,nounits"])
    words = [w.strip() for w in (found or "").strip().split(",")]
    if len(words) != 6:
        return {}
    modes = {"Enabled": True, "Disabled": False}
    return {
        "driver": words[0],
        "power_limit_w": _number(words[1]),
        "sm_clock_max_hz": scaled(_number(words[2]), 1e6),
        "memory_clock_max_hz": scaled(_number(words[3]), 1e6),
        "ecc": modes.get(words[4]),
        "mig": modes.get(words[5]),
    }


def _name(uuid: str | None, index: int) -> str:
    """How the tool is told which device."""
    return str(index) if not uuid else uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"


def _number(word: str) -> float | None:
    """A number, None for the tools' "[N/A]"; AMD's older tool writes clocks as "(1500Mhz)"."""
    try:
        return float(word.strip("()").removesuffix("Mhz"))
    except ValueError:
        return None


def _bits(word: str) -> int | None:
    try:
        return int(word, 0)
    except ValueError:
        return None


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """(dotted path, text) of every leaf of a JSON document; lists do not appear in the path."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner, path)
    else:
        yield path, str(value)


def _first(leaves: list[tuple[str, str]], *endings: str) -> float | None:
    numbers = (_number(text) for ending in endings for path, text in leaves if path.endswith(ending))
    return next((n for n in numbers if n is not None), None)
