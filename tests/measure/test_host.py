from __future__ import annotations

import os
import sys
import threading

import pytest

from calc.measure.device import host, pinning
from calc.measure.device.detect import detect_local
from calc.measure.device.device import DeviceFacts
from calc.measure.device.environment import git_commit, hide_path
from calc.measure.device.host_monitor import HostMonitor
from calc.measure.device.monitor import Reading, Unmonitored, waited_s
from calc.measure.device.watching import open_monitor


def machine(**changes) -> host.Host:
    facts = {
        "name": "x",
        "logical_cpus": 8,
        "physical_cores": 4,
        "quota_cpus": None,
        "cache_bytes": 1,
        "memory_bytes": 1,
        "free_bytes": 1,
    }
    return host.Host(**facts | changes)


@pytest.mark.parametrize(("quota", "threads"), [(None, 4), (2.5, 2), (0.5, 1), (64.0, 4)])
def test_threads_stay_within_cores_and_quota(quota, threads):
    assert machine(quota_cpus=quota).threads == threads


def test_the_tightest_limit_on_the_way_holds(tmp_path):
    groups = tmp_path / "cgroup"
    groups.write_text("0::/a/b\n")
    inner = tmp_path / "fs/a/b"
    inner.mkdir(parents=True)
    root = tmp_path / "fs"
    assert host.quota_cpus(root, groups) is None
    (root / "cpu.max").write_text("max 100000")
    (root / "a/cpu.max").write_text("150000 100000")
    (inner / "cpu.max").write_text("300000 100000")
    assert host.quota_cpus(root, groups) == 1.5
    (root / "a/memory.max").write_text(str(1 << 20))
    (root / "a/memory.current").write_text(str(1 << 19))
    total, free = host.memory(root, groups)
    assert total == 1 << 20
    assert free <= 1 << 19


def test_older_containers(tmp_path):
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu/cpu.cfs_quota_us").write_text("-1")
    (tmp_path / "cpu/cpu.cfs_period_us").write_text("100000")
    assert host.quota_cpus(tmp_path, tmp_path / "none") is None
    (tmp_path / "cpu/cpu.cfs_quota_us").write_text("50000")
    assert host.quota_cpus(tmp_path, tmp_path / "none") == 0.5


def test_this_machine():
    found = host.read_host()
    assert 1 <= found.threads <= found.physical_cores <= found.logical_cpus
    assert found.name
    assert found.memory_bytes is None or found.free_bytes <= found.memory_bytes


def test_the_local_device_has_a_name():
    found = detect_local()
    assert found.name in found.description
    assert found.count >= 1
    assert found.source in ("torch", "nvml", "system")


def test_the_scheduler_tells_of_waiting(tmp_path):
    for task, line in (("1", "10 2000000000 3"), ("2", "10 500000000 3"), ("3", "gone")):
        (tmp_path / task).mkdir()
        (tmp_path / task / "schedstat").write_text(line)
    assert HostMonitor(tmp_path).read().waited_s == 2.5
    assert waited_s(Reading(waited_s=1.0), Reading(waited_s=1.5)) == 0.5
    assert waited_s(Reading(), Reading(waited_s=1.5)) == 0.0


def test_monitors_of_this_machine():
    monitor = open_monitor("cpu")
    reading = monitor.read()
    assert (reading.waited_s is None) == isinstance(monitor, Unmonitored)
    if sys.platform != "linux":
        assert monitor.source == "unmonitored"
    assert reading.unwell is None
    assert Reading(reasons=0x44).unwell == "hw_thermal"
    assert Reading(reasons=0x04).unwell is None
    assert open_monitor("mps").source == "unmonitored"


def test_paths_are_hidden():
    assert [hide_path(x) for x in ("run.json", "/home/me/x", "~me", "C:\\me", "--seed=1")] == [
        "run.json",
        "<path>",
        "<path>",
        "<path>",
        "--seed=1",
    ]
    commit = git_commit()
    assert commit is None or len(commit) == 40


@pytest.fixture
def siblings(tmp_path):
    """Four logical processors on two cores."""
    for cpu, core in ((0, "0,2"), (1, "1,3"), (2, "0,2"), (3, "1,3")):
        folder = tmp_path / f"cpu{cpu}/topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(core)
    return tmp_path


def test_one_processor_of_each_core(siblings, tmp_path):
    assert host.first_of_each_core({0, 1, 2, 3}, siblings) == {0, 1}
    assert host.first_of_each_core({2, 3}, siblings) == {2, 3}
    assert host.first_of_each_core({2, 0}, siblings) == {0}
    assert host.first_of_each_core({4, 5}, tmp_path / "none") == {4, 5}


@pytest.mark.parametrize(("kind", "threads", "pinned"), [("cpu", 2, True), ("cpu", 1, False), ("cuda", 2, False)])
def test_threads_are_held_to_cores_while_a_cpu_is_measured(siblings, monkeypatch, kind, threads, pinned):
    held = []
    monkeypatch.setattr(pinning, "usable_cpus", lambda: {0, 1, 2, 3})
    monkeypatch.setattr(pinning, "first_of_each_core", lambda cpus: host.first_of_each_core(cpus, siblings))
    monkeypatch.setattr(pinning, "_hold", held.append)
    undo = pinning.pin(DeviceFacts(kind, 0, "x", None, 1, 1, True, threads))
    assert (undo is not None) == pinned
    if undo:
        undo()
        assert held == [{0, 1}, {0, 1, 2, 3}]


def test_nothing_is_held_where_no_cores_are_shared(monkeypatch):
    monkeypatch.setattr(pinning, "first_of_each_core", set)
    monkeypatch.setattr(pinning, "_hold", lambda cpus: pytest.fail("held"))
    assert pinning.pin(DeviceFacts("cpu", 0, "x", None, 1, 1, True, 64)) is None


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system pins nothing")
def test_every_thread_is_held():
    before = os.sched_getaffinity(0)
    one = {min(before)}
    seen, go, done = [], threading.Event(), threading.Event()

    def look() -> None:
        go.wait()
        seen.append(os.sched_getaffinity(0))
        done.set()

    threading.Thread(target=look).start()
    try:
        pinning._hold(one)
        go.set()
        done.wait()
        assert seen == [one]
        assert os.sched_getaffinity(0) == one
    finally:
        pinning._hold(before)
    assert os.sched_getaffinity(0) == before
