"""The wheel: nothing at top level but ``calc``, the library inside it, and an answer in a clean environment outside the checkout."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.cli import ROOT, environment


def once(tmp_path_factory, name: str, make: Callable[[Path], None]) -> Path:
    """A folder that the first test process makes and all others wait for."""
    shared = tmp_path_factory.getbasetemp()
    if os.environ.get("PYTEST_XDIST_WORKER"):
        shared = shared.parent
    folder = shared / name
    with (shared / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / ".done").exists():
            folder.mkdir(exist_ok=True)
            make(folder)
            (folder / ".done").touch()
    return folder


def succeed(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout.decode()[-2000:] + done.stderr.decode()[-2000:]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory) -> Path:
    """Built from the checkout by the declared build backend."""

    def build(folder: Path) -> None:
        succeed(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT))

    (found,) = once(tmp_path_factory, "dist", build).glob("*.whl")
    return found


@pytest.fixture(scope="session")
def installed(wheel, tmp_path_factory) -> Path:
    """A fresh environment that holds the wheel and sees the libraries of this one, but not the checkout."""

    def install(home: Path) -> None:
        venv.create(home, with_pip=False, symlinks=True)
        python = str(home / "bin" / "python")
        succeed(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", "--quiet", str(wheel))
        site = Path(sysconfig.get_path("purelib", "venv", {"base": str(home), "platbase": str(home)}))
        (site / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")

    return once(tmp_path_factory, "environment", install)


def contents(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def test_top_level_holds_calc_alone(wheel):
    top = {name.split("/")[0] for name in contents(wheel)}
    assert "calc" in top
    (rest,) = top - {"calc"}
    assert rest.startswith("roofcast-")
    assert rest.endswith(".dist-info")


def test_profiles_and_their_index_are_inside_the_package(wheel):
    names = set(contents(wheel))
    for kind in ("model", "hardware"):
        assert f"calc/{kind}_profiles/index.json" in names
        here = {p.relative_to(ROOT).as_posix() for p in (ROOT / f"{kind}_profiles").rglob("*.yaml")}
        assert {f"calc/{path}" for path in here} <= names


def test_no_tests_docs_or_benchmarks_are_inside(wheel):
    for name in contents(wheel):
        parts = set(name.split("/"))
        assert not parts & {"tests", "docs", "benchmarks", ".ci", "__pycache__", "dist"}, name
        assert not name.endswith((".pyc", ".tmp", "cli.py")) or name.startswith("calc/"), name
        assert "test_" not in name, name


def test_metadata_names_the_command_the_licence_and_no_measurement_library(wheel):
    with zipfile.ZipFile(wheel) as archive:
        metadata = next(archive.read(n).decode() for n in archive.namelist() if n.endswith("METADATA"))
        points = next(archive.read(n).decode() for n in archive.namelist() if n.endswith("entry_points.txt"))
        assert any(n.endswith("LICENSE") for n in archive.namelist())
    assert "roofcast = calc.commands:main" in points
    needed = [line for line in metadata.splitlines() if line.startswith("Requires-Dist:") and "extra ==" not in line]
    assert not [line for line in needed if "torch" in line]
    assert "Name: roofcast" in metadata


def test_the_command_answers_outside_the_checkout(installed, tmp_path):
    done = subprocess.run(
        [str(installed / "bin" / "roofcast"), "estimate", "toy-12d2", "h100-sxm5-80gb", "--json"],
        cwd=tmp_path,
        env={k: v for k, v in environment().items() if not k.startswith("PYTHON")},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert json.loads(done.stdout)["results"]["memory"]["fits"] is True
    assert done.stderr == b""


def test_the_package_and_its_profiles_come_from_the_environment(installed, tmp_path):
    program = "import calc; print(calc.__file__); print(calc.load_model('toy-12d2').path); print(calc.load_hardware('t4').path)"
    done = subprocess.run(
        [str(installed / "bin" / "python"), "-c", program],
        cwd=tmp_path,
        env={k: v for k, v in environment().items() if not k.startswith("PYTHON")},
        capture_output=True,
        check=True,
    )
    for line in done.stdout.decode().splitlines():
        assert os.path.commonpath([line, str(installed)]) == str(installed)


def test_every_listed_profile_is_found_in_the_environment(installed, tmp_path):
    done = subprocess.run(
        [str(installed / "bin" / "roofcast"), "hardware", "list", "--json"],
        cwd=tmp_path,
        env={k: v for k, v in environment().items() if not k.startswith("PYTHON")},
        capture_output=True,
        check=True,
    )
    files = {p.stem for p in (ROOT / "hardware_profiles").rglob("*.yaml") if "efficiency" not in p.parts}
    assert {d["id"] for d in json.loads(done.stdout)["results"]["hardware"]} == files
