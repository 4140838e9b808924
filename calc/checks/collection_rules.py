"""Rules over the files of one run together: names (C16, M8), packages (C15), generations (C19), copied rows (C23)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from calc.checks.architectures import tables
from calc.checks.finding import Problem
from calc.checks.hardware_rules.units import ADDITIVE
from calc.checks.registry import across_files, rule
from calc.checks.subject import Subject
from calc.profiles.catalog import fold
from calc.profiles.hardware import HardwareProfile
from calc.profiles.reader import Place

Found = Iterator[tuple[Subject, Problem]]


@dataclass
class Library:
    """Valid files of one run, and the names of bundled profiles that are not among them (folded name → id)."""

    subjects: list[Subject]
    bundled: dict[str, dict[str, str]] = field(default_factory=dict)  # kind → names

    def of_kind(self, kind: str) -> list[Subject]:
        """Files of a kind whose schema holds."""
        return [s for s in self.subjects if s.kind == kind and s.profile is not None]

    @property
    def hardware(self) -> dict[str, Subject]:
        """Hardware files by id."""
        return {s.profile.id: s for s in self.of_kind("hardware")}


def _named(subject: Subject) -> Iterator[tuple[str, Place]]:
    profile = subject.profile
    yield profile.id, ("id",)
    yield profile.name, ("name",)
    if getattr(profile, "hub_id", None):
        yield profile.hub_id, ("hub_id",)
    for index, alias in enumerate(profile.aliases):
        yield alias, ("aliases", index)


def _repeated_names(library: Library, kind: str) -> Found:
    owners: dict[str, Subject] = {}
    bundled = library.bundled.get(kind, {})
    for subject in library.of_kind(kind):
        own: dict[str, Place] = {}
        for name, place in _named(subject):
            key = fold(name)
            if key in own and place[0] == "aliases":
                if own[key][0] == "aliases":
                    yield (
                        subject,
                        _twice(place, name, f"alias {name!r} stands twice in this file", "aliases differ in case or spaces only"),
                    )
                continue
            own[key] = place
            holder = owners.setdefault(key, subject)
            if holder is not subject:
                message = f"{name!r} also names {holder.id} ({holder.name})"
                yield subject, _twice(place, name, message, "one name for two parts: whoever looks it up may get the other")
            elif bundled.get(key, subject.id) != subject.id:
                message = f"{name!r} also names the bundled profile {bundled[key]}"
                yield subject, _twice(place, name, message, "a new file under the names of a bundled profile")
        for index, name in enumerate(getattr(subject.profile, "shared_names", [])):
            key = fold(name)
            if key in owners:
                message = f"{name!r} is declared shared and also names {owners[key].id}"
                yield subject, _twice(("shared_names", index), name, message, "a name that several parts report")


def _twice(place: Place, name: str, message: str, cause: str) -> Problem:
    return Problem(
        place, message, expected="one profile per name", found=name, cause=cause,
        remedy="drop it here, or, where drivers report it for several parts, list it under shared_names", refuses=(f"name {fold(name)}",),
    )  # fmt: skip


@rule(
    "C16", "error", "library", "library",
    sentence="A name belongs to one part: ids, names and aliases are unique after folding case and spaces.",
    arithmetic="Look-ups match whole names only, never a substring, and an unknown name is refused with the nearest ones. Names "
    "that drivers report for several parts stand under shared_names and match nothing.",
    example="'Orin' as an alias of both Jetson AGX Orin profiles; 'gaudi2' and 'GAUDI2' in one.",
)  # fmt: skip
def hardware_names(library: Library) -> Found:
    """C16."""
    yield from _repeated_names(library, "hardware")


@rule(
    "M8", "error", "library", "library",
    sentence="A name belongs to one model: ids, names, Hub ids and aliases are unique after folding case and spaces.",
    arithmetic="As C16.",
    example="the alias llama-3-8b in two files.",
)  # fmt: skip
def model_names(library: Library) -> Found:
    """M8."""
    yield from _repeated_names(library, "model")


@across_files("C15")
def package_sums(library: Library) -> Found:
    """C15 across files: parent = count x child for every additive figure, within 1 %."""
    parts = library.hardware
    for subject in parts.values():
        child: HardwareProfile = subject.profile
        holder = parts.get(child.parent.id) if child.parent and child.parent.id else None
        if holder is None or child.parent is None:
            continue
        parent: HardwareProfile = holder.profile
        if parent.runtime_devices != child.parent.count:
            yield (
                holder,
                Problem(
                    ("id",),
                    f"{child.id} says that {child.parent.count} of it make this part; runtime_devices says {parent.runtime_devices}",
                    expected=child.parent.count,
                    found=parent.runtime_devices,
                    cause="one of the two files is behind",
                    remedy="state runtime_devices",
                    refuses=("runtime_devices",),
                ),
            )
        for name, mine, whole in _additive(child, parent):
            total = mine * child.parent.count
            if abs(whole / total - 1) > 0.01:
                place = tuple(name.split("."))
                yield (
                    subject,
                    Problem(
                        place,
                        f"{child.parent.count} x {mine:g} = {total:g}; {parent.id} has {whole:g}",
                        expected=whole / child.parent.count,
                        found=mine,
                        ratio=total / whole,
                        cause="the card's figure entered for one device",
                        remedy="mend the file that is wrong",
                        rests_on=(name,),
                    ),
                )


def _additive(child: HardwareProfile, parent: HardwareProfile) -> Iterator[tuple[str, float, float]]:
    rows = child.peak_dense_tflops.__struct_fields__
    for name in (*ADDITIVE, *(f"peak_dense_tflops.{row}" for row in rows)):
        mine, whole = _figure(child, name), _figure(parent, name)
        if mine is not None and whole is not None:
            yield name, mine, whole


def _figure(profile: HardwareProfile, name: str) -> float | None:
    head, _, row = name.partition(".")
    value: float | None = getattr(profile.peak_dense_tflops, row) if row else getattr(profile, head)
    return value


def _peak_16bit(profile: HardwareProfile) -> tuple[str, float | None]:
    name = "bf16" if profile.peak_dense_tflops.bf16 else "fp16"
    return f"peak_dense_tflops.{name}", getattr(profile.peak_dense_tflops, name)


@rule(
    "C19", "warning", "library", "library",
    sentence="Within a line of parts, capacity, bandwidth and 16-bit peak do not fall from one generation to the next.",
    arithmetic="Lines and their exceptions are listed in architectures.yaml (the L4 has less bandwidth than the T4: 192 bit "
    "against 256).",
    example="H200 with 3350 GB/s beside the H100's 3350: equal is fine; 2039, the PCIe card's figure, is not.",
)  # fmt: skip
def generations(library: Library) -> Found:
    """C19."""
    parts = library.hardware
    for line in tables().successions:
        present = [parts[p] for p in line.parts if p in parts]
        for older, newer in pairwise(present):
            for name in ("memory_capacity_gb", "memory_bandwidth_gb_per_s", "16-bit peak"):
                field_name, now = _peak_16bit(newer.profile) if name == "16-bit peak" else (name, _figure(newer.profile, name))
                before = _peak_16bit(older.profile)[1] if name == "16-bit peak" else _figure(older.profile, name)
                if not now or not before or now >= before or field_name in line.exceptions.get(newer.id, []):
                    continue
                yield (
                    newer,
                    Problem(
                        tuple(field_name.split(".")),
                        f"{name} {now:g} is below {before:g} of {older.id}, the part before it",
                        expected=f">= {before:g}",
                        found=now,
                        ratio=now / before,
                        cause="another part's figure",
                        remedy="check both, or list the exception",
                        rests_on=(field_name,),
                    ),
                )


@rule(
    "C23", "warning", "library", "library",
    sentence="Two parts with the same capacity, bandwidth and peaks are siblings that name each other, or one was copied.",
    arithmetic="memory_capacity_gb, memory_bandwidth_gb_per_s and every row of peak_dense_tflops equal; `siblings` lists the "
    "other id.",
    example="MI300A with MI300X's 192 GB, 5300 GB/s and 1307 TFLOPS: a cloned row.",
)  # fmt: skip
def copied_rows(library: Library) -> Found:
    """C23."""
    seen: dict[tuple[object, ...], list[Subject]] = {}
    for subject in library.of_kind("hardware"):
        profile: HardwareProfile = subject.profile
        if _peak_16bit(profile)[1] is None:
            continue
        figures = (profile.memory_capacity_gb, profile.memory_bandwidth_gb_per_s, profile.peak_dense_tflops)
        for other in seen.setdefault(figures, []):
            if other.id not in profile.siblings and profile.id not in other.profile.siblings:
                yield (
                    subject,
                    Problem(
                        ("peak_dense_tflops",),
                        f"capacity, bandwidth and all peaks equal those of {other.id}",
                        expected="other figures, or siblings",
                        found=other.id,
                        ratio=1.0,
                        cause="a copied row",
                        remedy=f"enter this part's figures, or `siblings: [{other.id}]`",
                        rests_on=("peak_dense_tflops", "memory_capacity_gb", "memory_bandwidth_gb_per_s"),
                    ),
                )
        seen[figures].append(subject)
