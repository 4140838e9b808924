"""Sources of readings: NVML through a stand-in module, the vendors' tools through what they print, the host through a planted system."""

from __future__ import annotations

import json
import sys
import threading
import time
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calc.measure.device import command_monitor, nvml, watching
from calc.measure.device.command_monitor import AmdSmi, NvidiaSmi, Sparing, open_command
from calc.measure.device.disturbances import Surroundings, device_notices, host_notices, noisy_because
from calc.measure.device.host_monitor import HostMonitor
from calc.measure.device.monitor import IDLE, Reading, Unmonitored, merged
from calc.measure.device.watcher import Watcher
from calc.measure.device.watching import open_monitor
from calc.measure.recording import monitor_record
from calc.measure.records import Notice


class NvmlError(Exception):
    pass


def fake_nvml(**changes) -> SimpleNamespace:
    """The functions of pynvml that are asked, on one device."""
    calls = {
        "NVMLError": NvmlError,
        "NVML_CLOCK_SM": 1,
        "NVML_CLOCK_MEM": 2,
        "NVML_TEMPERATURE_GPU": 0,
        "closed": 0,
        "nvmlInit": lambda: None,
        "nvmlSystemGetDriverVersion": lambda: b"999.1",
        "nvmlDeviceGetHandleByUUID": lambda uuid: f"handle of {uuid}",
        "nvmlDeviceGetHandleByIndex": lambda index: f"handle {index}",
        "nvmlDeviceGetClockInfo": lambda h, which: {1: 1980, 2: 2619}[which],
        "nvmlDeviceGetMaxClockInfo": lambda h, which: {1: 1980, 2: 2619}[which],
        "nvmlDeviceGetTemperature": lambda h, which: 61,
        "nvmlDeviceGetPowerUsage": lambda h: 512_345,
        "nvmlDeviceGetEnforcedPowerLimit": lambda h: 700_000,
        "nvmlDeviceGetTotalEnergyConsumption": lambda h: 123_456,
        "nvmlDeviceGetCurrentClocksEventReasons": lambda h: 0x04,
        "nvmlDeviceGetComputeRunningProcesses": lambda h: [object(), object()],
        "nvmlDeviceGetEccMode": lambda h: [1, 1],
        "nvmlDeviceGetMigMode": lambda h: [0, 0],
        "nvmlDeviceGetCurrPcieLinkGeneration": lambda h: 5,
        "nvmlDeviceGetCurrPcieLinkWidth": lambda h: 16,
    }
    module = SimpleNamespace(**calls | changes)

    def shut_down() -> None:
        module.closed += 1

    module.nvmlShutdown = shut_down
    return module


def refuses(*_):
    raise NvmlError


@pytest.fixture
def module(monkeypatch):
    found = fake_nvml()
    monkeypatch.setitem(sys.modules, "pynvml", found)
    return found


def test_nvml_speaks_in_si_units(module):
    reading = nvml.open_monitor("GPU-1", 0).read()
    assert reading == Reading(1.98e9, 2.619e9, 61.0, 512.345, 700.0, 123.456, 0x04, 1, None)
    assert reading.unwell is None


def test_nvml_without_what_a_part_lacks(module):
    module.nvmlDeviceGetTotalEnergyConsumption = module.nvmlDeviceGetPowerUsage = refuses
    del module.nvmlDeviceGetComputeRunningProcesses
    module.nvmlDeviceGetCurrentClocksThrottleReasons = module.nvmlDeviceGetCurrentClocksEventReasons
    del module.nvmlDeviceGetCurrentClocksEventReasons
    reading = nvml.open_monitor(None, 3).read()
    assert (reading.energy_j, reading.power_w, reading.other_processes) == (None, None, None)
    assert reading.reasons == 0x04
    assert "power_w" not in reading.known


@pytest.mark.parametrize("uuid", ["1-2", "GPU-1-2", "MIG-1-2"])
def test_the_uuid_finds_the_device(module, uuid):
    asked = []
    module.nvmlDeviceGetHandleByUUID = lambda u: asked.append(u)
    nvml.open_monitor(uuid, 0)
    assert asked == [uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"]


def test_a_device_that_nvml_does_not_know_is_unmonitored(module, monkeypatch):
    module.nvmlDeviceGetHandleByUUID = refuses
    monkeypatch.setattr(command_monitor, "which", lambda tool: None)
    assert isinstance(open_monitor("cuda", "x"), Unmonitored)
    assert module.closed == 1
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(nvmlInit=refuses))
    assert open_monitor("cuda").source == "unmonitored"


def test_what_a_record_says_of_the_device(module):
    facts = nvml.device_facts("u", 0)
    assert facts == {
        "driver": "999.1",
        "power_limit_w": 700.0,
        "power_limit_default_w": None,
        "sm_clock_max_hz": 1.98e9,
        "memory_clock_max_hz": 2.619e9,
        "ecc": True,
        "mig": False,
        "pcie_generation": 5,
        "pcie_lanes": 16,
    }
    assert module.closed == 1


def test_a_thread_watches_while_the_device_works(module):
    before = threading.active_count()
    monitor = open_monitor("cuda", "u")
    assert isinstance(monitor, Watcher)
    assert (monitor.source, monitor.interval_s, monitor.slow) == ("nvml", 0.02, False)
    seen = []
    module.nvmlDeviceGetCurrentClocksEventReasons = lambda h: seen.append(1) or (0x40 if len(seen) == 1 else 0)
    deadline = time.monotonic() + 5
    while len(seen) < 3 and time.monotonic() < deadline:
        time.sleep(0.005)
    assert monitor.read().unwell == "hw_thermal"  # though the last look found it well
    assert monitor.read().unwell is None
    monitor.close()
    assert threading.active_count() == before
    assert module.closed == 1


looks = st.lists(
    st.builds(
        Reading,
        sm_clock_hz=st.none() | st.floats(1e8, 3e9),
        temperature_c=st.none() | st.floats(-20, 110),
        power_w=st.none() | st.floats(0, 1500),
        energy_j=st.none() | st.floats(0, 1e9),
        reasons=st.none() | st.integers(0, 0x1FF),
    ),
    min_size=1,
    max_size=8,
)


@given(looks)
def test_looks_are_merged(found):
    one = merged(found)
    assert merged([one]) == one
    assert set(one.known) == {name for look in found for name in look.known}
    assert (one.unwell is None) == all(look.unwell is None for look in found)
    told = [look.reasons for look in found if look.reasons is not None]
    if told:
        assert bool(one.reasons & IDLE) == all(r & IDLE for r in told)
    for name in ("sm_clock_hz", "temperature_c", "power_w"):
        values = [v for look in found if (v := getattr(look, name)) is not None]
        if values:
            assert min(values) <= getattr(one, name) <= max(values)


# --- the vendors' tools --------------------------------------------------------------------------------------------------------


def test_nvidias_tool():
    asked = []

    def ask(command):
        asked.append(command)
        if "--query-compute-apps=pid" in command:
            return "100\n200\n300\n"
        return "1980, 2619, 45, 120.55, 700.00, 0x0000000000000020\n"

    monitor = NvidiaSmi("GPU-1", ask)
    found = monitor.read()
    assert found == Reading(1.98e9, 2.619e9, 45.0, 120.55, 700.0, None, 0x20, 2, None)
    assert found.unwell == "sw_thermal"
    assert monitor.slow
    assert all("--id=GPU-1" in command for command in asked)
    assert not any(word in " ".join(command) for command in asked for word in ("-lgc", "-pl", "-pm", "reset"))


def test_an_older_tool_names_the_reasons_otherwise():
    asked = []

    def ask(command):
        asked.append(command[2])
        if "event_reasons" in command[2]:
            return None
        return "[N/A], 2619, 45, [Not Supported], 700.00, 0x0\n" if "query-gpu" in command[2] else None

    monitor = NvidiaSmi("0", ask)
    found = monitor.read()
    assert (found.sm_clock_hz, found.power_w, found.reasons, found.other_processes) == (None, None, 0, None)
    monitor.read()
    assert sum("event_reasons" in what for what in asked) == 1  # refused once, not asked again


def test_nvidias_tool_tells_the_record_of_the_device():
    asked = []
    found = command_monitor.device_facts("1", 0, lambda c: asked.append(c) or "999.1, 700.00, 1980, 2619, Enabled, [N/A]\n")
    assert found == {
        "driver": "999.1",
        "power_limit_w": 700.0,
        "sm_clock_max_hz": 1.98e9,
        "memory_clock_max_hz": 2.619e9,
        "ecc": True,
        "mig": None,
    }
    assert "--id=GPU-1" in asked[0]
    assert command_monitor.device_facts(None, 0, lambda c: None) == {}


@pytest.mark.parametrize("printed", [None, "", "1, 2", "No devices were found\n", "a,b,c,d,e,f"])
def test_a_tool_that_says_nothing_useful(printed):
    found = NvidiaSmi("0", lambda command: printed if "--query-gpu" in command[2] else None).read()
    assert found.known == []


AMD = {
    "amd-smi": {
        "gpu_data": [
            {
                "gpu": 0,
                "power": {"socket_power": {"value": 412, "unit": "W"}, "throttle_status": "UNTHROTTLED"},
                "clock": {"gfx_0": {"clk": {"value": 2100, "unit": "MHz"}}, "mem_0": {"clk": {"value": 1300, "unit": "MHz"}}},
                "temperature": {"edge": "N/A", "hotspot": {"value": 55, "unit": "C"}, "mem": {"value": 40, "unit": "C"}},
            }
        ]
    },
    "rocm-smi": {
        "card0": {
            "Temperature (Sensor edge) (C)": "38.0",
            "Temperature (Sensor junction) (C)": "55.0",
            "sclk clock speed:": "(2100Mhz)",
            "mclk clock speed:": "(1300Mhz)",
            "Current Socket Graphics Package Power (W)": "412.0",
        }
    },
}


@pytest.mark.parametrize("tool", sorted(AMD))
def test_amds_tools(tool):
    found = AmdSmi(tool, 0, lambda command: json.dumps(AMD[tool])).read()
    assert found == Reading(sm_clock_hz=2.1e9, memory_clock_hz=1.3e9, temperature_c=55.0, power_w=412.0)
    listed = AMD[tool]["gpu_data"] if tool == "amd-smi" else AMD[tool]  # older releases have no outer key
    assert AmdSmi(tool, 0, lambda command: json.dumps(listed)).read() == found


@pytest.mark.parametrize("printed", [None, "", "[", "null", "[]", '{"card0": {"sclk clock speed:": "N/A"}}', "[" * 100_000])
def test_amds_tools_without_an_answer(printed):
    for tool in AMD:
        assert AmdSmi(tool, 0, lambda command: printed).read() == Reading()


def test_the_tool_is_used_where_the_library_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr(command_monitor, "which", lambda tool: f"/usr/bin/{tool}")
    monkeypatch.setattr(NvidiaSmi, "read", lambda self: Reading(power_w=1.0))
    monkeypatch.setattr(AmdSmi, "read", lambda self: Reading(power_w=1.0))
    assert open_monitor("cuda", "1").source == "nvidia-smi"
    assert open_monitor("cuda", amd=True).source == "amd-smi"
    monkeypatch.setattr(NvidiaSmi, "read", lambda self: Reading())
    assert open_monitor("cuda").source == "unmonitored"
    assert open_command("intel", None, 0) is None


def test_a_tool_that_takes_a_second_is_asked_a_tenth_of_the_time():
    now, asked = [0.0], []

    class Slowly:
        source, slow = "slow", True

        def read(self):
            now[0] += 1.0
            asked.append(now[0])
            return Reading(power_w=float(len(asked)))

    monitor = Sparing(Slowly(), lambda: now[0])
    assert monitor.read().power_w == 1.0
    while now[0] < 100:
        now[0] += 0.25
        monitor.read()
    assert len(asked) == pytest.approx(10, abs=1)


def test_a_missing_or_failing_tool():
    assert command_monitor.run(["/nowhere/tool"]) is None
    assert command_monitor.run([sys.executable, "-c", "raise SystemExit(9)"]) is None
    assert command_monitor.run([sys.executable, "-c", "print(1)"]) == "1\n"


# --- the host ------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def machine(tmp_path):
    """A planted system with one waiting thread, clocks, a thermal zone of the processor and one of the battery, and a quota."""
    from calc.measure.device.host import usable_cpus

    cpu = min(usable_cpus())
    files = {
        "tasks/1/schedstat": "10 2000000000 3",
        f"cpu/cpu{cpu}/cpufreq/scaling_cur_freq": "3100000",
        f"cpu/cpu{cpu}/thermal_throttle/package_throttle_count": "4",
        "thermal/thermal_zone0/type": "x86_pkg_temp",
        "thermal/thermal_zone0/temp": "71000",
        "thermal/thermal_zone1/type": "battery",
        "thermal/thermal_zone1/temp": "99000",
        "group/cpu.stat": "usage_usec 5\nthrottled_usec 250000\n",
    }
    for name, content in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    now = [0.0]
    monitor = HostMonitor(tmp_path / "tasks", tmp_path / "cpu", tmp_path / "thermal", [tmp_path / "group"], now=lambda: now[0])
    return monitor, tmp_path, now, cpu


def test_a_host_tells_clock_temperature_and_waiting(machine):
    monitor, *_ = machine
    assert monitor.source == "schedstat+cpu.stat+cpufreq+thermal"
    assert monitor.read() == Reading(sm_clock_hz=3.1e9, temperature_c=71.0, reasons=0, waited_s=2.25)


def test_thermal_throttling_of_a_host_makes_it_unwell(machine):
    monitor, folder, now, cpu = machine
    monitor.read()
    (folder / f"cpu/cpu{cpu}/thermal_throttle/package_throttle_count").write_text("5")
    assert monitor.read().unwell is None  # looked at 100 ms apart
    now[0] = 0.2
    assert monitor.read().unwell == "hw_thermal"
    now[0] = 0.4
    assert monitor.read().unwell is None


def test_an_older_control_group_counts_in_nanoseconds(machine):
    monitor, folder, *_ = machine
    (folder / "group/cpu.stat").write_text("nr_periods 1\nnr_throttled 1\nthrottled_time 500000000\n")
    assert monitor.read().waited_s == 2.5


def test_a_host_that_tells_little(tmp_path):
    (tmp_path / "1").mkdir()
    (tmp_path / "1/schedstat").write_text("0 7000000000 0")
    monitor = HostMonitor(tmp_path, tmp_path, tmp_path, [])
    assert monitor.source == "schedstat"
    assert monitor.read() == Reading(waited_s=7.0)
    assert monitor_record(monitor, monitor.read())["watched"] == ["waited_s"]


# --- what is made of it --------------------------------------------------------------------------------------------------------

QUIET = {"niceness": 0, "quota_cpus": None, "logical_cpus": 8, "threads": 4, "load": 0.3}


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ({"niceness": 10}, "W_NICE", ("nice 10", "without nice")),
        ({"quota_cpus": 1.5}, "W_QUOTA", ("1.5 of 8 processors", "lift the quota")),
        ({"load": 3.2}, "W_BUSY", ("3.2 on 4 threads", "stop other jobs")),
    ],
)
def test_a_disturbed_host_makes_a_noisy_run(change, code, words):
    (notice,) = host_notices(Surroundings(**QUIET | change))
    assert notice.code == code
    assert all(word in notice.message for word in words)
    assert noisy_because([notice]) == (notice.message,)


@pytest.mark.parametrize("change", [{}, {"niceness": -5}, {"quota_cpus": 8.0}, {"load": None}])
def test_a_quiet_host(change):
    assert host_notices(Surroundings(**QUIET | change)) == []


def test_others_on_the_device_and_clocks_that_are_set():
    found = device_notices(Reading(reasons=0x102, other_processes=2))
    assert [n.code for n in found] == ["W_SHARED_DEVICE", "W_CLOCKS_SET"]
    assert "application clocks, display clock" in found[1].message
    assert noisy_because(found) == (found[0].message,)  # a set clock is steady
    assert device_notices(Reading()) == []
    assert noisy_because([Notice("W_CACHE_ASSUMED", "x")]) == ()


def test_sources_by_kind():
    assert watching.open_monitor("mps").source == watching.open_monitor("xpu").source == "unmonitored"
