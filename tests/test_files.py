"""Where answers are written: devices, pipes and links stay what they are, files are replaced whole."""

from __future__ import annotations

import os
import stat
import subprocess
import threading
from pathlib import Path

import pytest

from calc import files
from calc.errors import UsageError
from tests.support.cli import ROOT, environment, run

PAIR = ("llama-3.1-8b", "h100-sxm5-80gb")
COMMAND = "{python} -c 'from calc.commands import main; main()' estimate llama-3.1-8b h100-sxm5-80gb --quiet --format csv -o "


def node(folder: Path, minor: int) -> Path:
    """A character device under a name of our own: 3 is the null device, 7 the full one (Linux, admin-guide/devices.txt)."""
    made = folder / f"device-{minor}"
    try:
        os.mknod(made, 0o666 | stat.S_IFCHR, os.makedev(1, minor))
        made.open("wb").close()
    except OSError:
        pytest.skip("no device nodes can be made here")
    return made


def left_over(folder: Path) -> list[str]:
    return [p.name for p in folder.iterdir() if p.name.endswith(".part")]


def test_a_link_stays_and_its_target_is_written(tmp_path):
    target, link = tmp_path / "real.json", tmp_path / "link.json"
    target.write_text("old")
    link.symlink_to(target)
    files.write(link, b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"


def test_a_dangling_link_creates_its_target(tmp_path):
    link = tmp_path / "link.json"
    link.symlink_to("later.json")
    files.write(link, b"new")
    assert link.is_symlink()
    assert (tmp_path / "later.json").read_bytes() == b"new"


def test_links_in_a_circle_are_refused(tmp_path):
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(UsageError, match="cannot write"):
        files.write(tmp_path / "a", b"new")


def test_a_device_stays_one(tmp_path):
    device = node(tmp_path, 3)
    files.check_writable(device)
    files.write(device, b"new")
    assert stat.S_ISCHR(device.stat().st_mode)


def test_a_full_device_is_an_error(tmp_path):
    device = node(tmp_path, 7)
    with pytest.raises(UsageError, match="No space left"):
        files.write(device, b"new")
    assert stat.S_ISCHR(device.stat().st_mode)


@pytest.mark.parametrize(
    "arguments",
    [
        ("estimate", *PAIR, "--format", "json"),
        ("sweep", *PAIR, "--format", "csv"),
        ("schema", "model"),
        ("check", "model_profiles/roofcast"),
    ],
    ids=lambda a: a[0],
)
def test_every_command_leaves_a_full_device_alone(tmp_path, arguments):
    device = node(tmp_path, 7)
    outcome = run(*arguments, "-o", str(device))
    assert outcome.code == 2, outcome.stderr
    assert "No space left" in outcome.stderr
    assert "hint:" in outcome.stderr
    assert stat.S_ISCHR(device.stat().st_mode)


def test_a_pipe_is_written(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()))
    reader.start()
    files.write(pipe, b"new")
    reader.join(10)
    assert found == [b"new"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_shell_may_name_a_process(tmp_path):
    import sys

    command = COMMAND.format(python=sys.executable) + ">(cat > got.csv; echo done)"
    done = subprocess.run(
        ["bash", "-c", f"{command} | cat"], cwd=tmp_path, env=environment(PYTHONPATH=str(ROOT)), capture_output=True, check=False
    )
    assert done.stdout == b"done\n", done.stderr
    assert (tmp_path / "got.csv").read_bytes().startswith(b"batch") or b"," in (tmp_path / "got.csv").read_bytes()


def test_standard_output_by_its_name_is_appended_to(tmp_path):
    import sys

    log = tmp_path / "log.txt"
    log.write_text("first\n")
    command = COMMAND.format(python=sys.executable) + "/dev/stdout >> log.txt"
    subprocess.run(["bash", "-c", command], cwd=tmp_path, env=environment(PYTHONPATH=str(ROOT)), check=True)
    assert log.read_text().startswith("first\n")
    assert len(log.read_text().splitlines()) > 1


def test_a_file_keeps_its_permissions(tmp_path):
    kept, fresh = tmp_path / "kept.json", tmp_path / "fresh.json"
    kept.write_text("old")
    kept.chmod(0o640)
    files.write(kept, b"new")
    assert stat.S_IMODE(kept.stat().st_mode) == 0o640
    mask = os.umask(0o022)
    try:
        files.write(fresh, b"new")
    finally:
        os.umask(mask)
    assert stat.S_IMODE(fresh.stat().st_mode) == 0o644


def test_a_read_only_file_is_refused_for_anyone(tmp_path):
    kept = tmp_path / "kept.json"
    kept.write_text("old")
    kept.chmod(0o444)
    for attempt in (lambda: files.write(kept, b"new"), lambda: files.check_writable(kept)):
        with pytest.raises(UsageError, match="read-only") as fault:
            attempt()
        assert fault.value.hint
    assert kept.read_text() == "old"
    assert left_over(tmp_path) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, OSError])
def test_whatever_stops_the_writing_leaves_the_old_file(tmp_path, error):
    kept = tmp_path / "kept.json"
    kept.write_text("old")

    def half() -> None:
        with files.replacing(kept) as stream:
            stream.write(b"half")
            raise error

    with pytest.raises((error, UsageError)):
        half()
    assert kept.read_text() == "old"
    assert left_over(tmp_path) == []


def test_the_longest_name_of_a_file_is_written(tmp_path):
    name = "x" * 250 + ".json"
    files.write(tmp_path / name, b"new")
    assert (tmp_path / name).read_bytes() == b"new"


@pytest.mark.parametrize("name", ["", " ", "a\0b", "~no-such-user-here/a.json", "{}", "{}/none/a.json", "/proc/a.json"])
def test_what_names_no_file_is_refused_with_a_hint(tmp_path, name):
    for attempt in (lambda n: files.write(n, b""), files.check_writable):
        with pytest.raises(UsageError) as fault:
            attempt(name.format(tmp_path))
        assert fault.value.hint


def test_nothing_else_writes_files():
    """Every way to write a file that the code uses goes through calc.files; the index builder writes into the repository alone."""
    ways = ("os.replace(", "mkstemp(", "write_text(", "write_bytes(", '.open("w', '.open("a')
    allowed = {"calc/files.py", "calc/commands/profile_index.py"}
    found = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "calc").rglob("*.py")
        if any(way in path.read_text(encoding="utf-8") for way in ways)
    }
    assert found <= allowed
