"""The only place that writes files: whole or not at all, and never in place of a device, a pipe or a link."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from calc.errors import UsageError

#: Names for a stream that is open already, possibly onto a file that others append to as well.
_OPEN_STREAMS = ("/dev/stdout", "/dev/stderr", "/dev/fd/", "/proc/self/fd/")
_ELSEWHERE = "name a file in a folder that exists and can be written"


def write(output: str | Path, content: bytes) -> None:
    """Put ``content`` where ``output`` says, as ``replacing`` does. Raises UsageError."""
    with replacing(output) as stream:
        stream.write(content)


@contextmanager
def replacing(output: str | Path) -> Iterator[BinaryIO]:
    """A stream that becomes the file ``output`` once all is written; after a failure or an interrupt the old file is whole.

    A symbolic link stays one and its target is written; an existing file keeps its permissions. Devices and pipes are written as they
    stand. Raises UsageError for what cannot be written; a pipe whose reader has gone is BrokenPipeError.
    """
    try:
        path, kept = _target(output)
        with _in_place(path) if _stays(output, kept) else _beside(path, kept) as stream:
            yield stream
    except BrokenPipeError:
        raise
    except OSError as fault:
        raise UsageError(f"cannot write {output}: {fault.strerror or fault}", _ELSEWHERE) from fault


def check_writable(output: str | Path) -> None:
    """Refuse a place that cannot be written before minutes are spent. Raises UsageError."""
    try:
        path, kept = _target(output)
        if not _stays(output, kept):
            handle, name = _new(path)
            os.close(handle)
            os.unlink(name)
    except OSError as fault:
        raise UsageError(f"cannot write {output}: {fault.strerror or fault}", _ELSEWHERE) from fault


def _target(output: str | Path) -> tuple[Path, os.stat_result | None]:
    """What is written, links followed, and its status where it exists."""
    if not str(output).strip() or "\0" in str(output):
        raise UsageError(f"{str(output)!r} names no file", "name a file, or - for standard output")
    try:
        path = Path(output).expanduser()
    except RuntimeError as fault:  # ~nobody-here
        raise UsageError(f"cannot write {output}: {fault}", _ELSEWHERE) from None
    try:
        kept = path.stat()
    except FileNotFoundError:
        return Path(os.path.realpath(path)), None
    if stat.S_ISDIR(kept.st_mode):
        raise UsageError(f"{output} is a folder", "name a file inside it")
    if not stat.S_ISREG(kept.st_mode):
        return path, kept
    if not (kept.st_mode & 0o222 and os.access(path, os.W_OK)):
        raise UsageError(f"cannot write {output}: the file is read-only", "name another file, or allow writing: chmod u+w")
    return Path(os.path.realpath(path)), kept


def _stays(output: str | Path, kept: os.stat_result | None) -> bool:
    """Whether the target is written as it stands rather than replaced."""
    return kept is not None and (not stat.S_ISREG(kept.st_mode) or os.path.abspath(output).startswith(_OPEN_STREAMS))


@contextmanager
def _in_place(path: Path) -> Iterator[BinaryIO]:
    """A device, a pipe or an open stream: neither created nor truncated."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND), "wb") as stream:
        yield stream


@contextmanager
def _beside(path: Path, kept: os.stat_result | None) -> Iterator[BinaryIO]:
    """A new file in the same folder that takes the name at the end."""
    handle, name = _new(path)
    try:
        with os.fdopen(handle, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        if kept is not None:
            with suppress(OSError):  # of another user: only the superuser can give it back
                os.chown(name, kept.st_uid, kept.st_gid)
            os.chmod(name, stat.S_IMODE(kept.st_mode))
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


def _new(path: Path) -> tuple[int, str]:
    """A new empty file beside ``path`` with the permissions of any new file; the name stays below the limit of file systems."""
    name = str(path.with_name(f".{path.name[:100]}.{os.getpid()}-{os.urandom(4).hex()}.part"))
    return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o666), name
