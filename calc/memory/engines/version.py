"""Versions of engines: what people write, as numbers that compare."""

from __future__ import annotations

import re

from calc.errors import UsageError

Warnings = tuple[tuple[str, str], ...]
Version = tuple[int, int, int]


def parse_version(text: str | None, engine: str, newest: str, oldest: str | None = None) -> tuple[Version, Warnings]:
    """The numbers of a version such as ``v0.8.5.post1``; the newest known one when absent. What is newer than the newest known is
    answered by the newest law with a warning, and so is what is older than ``oldest``."""
    known = _numbers(newest)
    if text is None or text.lower() in ("newest", "latest", "auto"):
        return known, ()
    if re.match(r"v?0\.1\.dev\d", text):  # built from a checkout: counts commits, names no version
        return known, (("engine_version_unknown", f"{engine} {text} is a development build: the law of {newest} is used"),)
    if not re.match(r"\s*v?\d+\.\d+", text):
        raise UsageError(f"not a version of {engine}: {text!r}", f"write it like {newest}")
    version = _numbers(text)
    if version[:2] > known[:2]:
        return version, (("engine_version_unknown", f"{engine} {text} is newer than {newest}: the law of {newest} is used"),)
    if oldest is not None and version < _numbers(oldest):
        return version, (
            ("engine_version_unknown", f"{engine} {text} is older than {oldest}: the law of {oldest} is used, which may differ"),
        )
    return version, ()


def _numbers(text: str) -> Version:
    parts = [int(n) for n in re.findall(r"\d+", text)[:3]]
    return (*parts, 0, 0, 0)[:3]  # type: ignore[return-value]


def shown(version: Version) -> str:
    """``0.8.5`` or ``0.27``."""
    return ".".join(map(str, version if version[2] else version[:2]))
