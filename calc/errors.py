"""The exception family of roofcast. Every class knows the exit code of the command line.

Exit codes: 1 a gate failed, 2 wrong usage or unknown name, 3 an invalid profile or input file, 4 measurement not possible.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class RoofcastError(Exception):
    """Base of all errors that a user can cause and mend.

    ``message`` says what is wrong and where; ``hint`` says what to do about it.
    """

    exit_code = 2
    #: What to do where nothing nearer is known, such as a name that is like none.
    usual_hint = "`roofcast COMMAND --help` lists the options and what they take"

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint or self.usual_hint


class UsageError(RoofcastError):
    """An option, a value or a combination that cannot be answered."""

    exit_code = 2


class UnknownNameError(UsageError):
    """A name that no profile, engine or format carries; the hint lists the nearest ones."""


class NoAnswerError(RoofcastError):
    """The question is sound and its answer is that there is none, such as a picture of a deployment that does not fit."""

    exit_code = 1
    usual_hint = "ask for a deployment that fits"


class ProfileError(RoofcastError):
    """A file that cannot be read, parsed or believed.

    ``faults`` holds one line per fault, each as ``file:line:column: what is wrong``.
    """

    exit_code = 3
    usual_hint = "`roofcast check FILE` lists every fault of a profile with its place"

    def __init__(self, message: str, hint: str | None = None, faults: Iterable[str] = ()) -> None:
        super().__init__(message, hint)
        self.faults = tuple(faults)


class MeasurementError(RoofcastError):
    """Measuring is not possible here: no torch, no such device, out of memory."""

    exit_code = 4
    usual_hint = "`roofcast env` shows what is installed and which devices are there"


def require(value: float | None, name: str, minimum: float, maximum: float = 1e18) -> None:
    """Refuse a number outside its range (NaN included) with the name of the option. None is left to the defaults."""
    if value is not None and not minimum <= value <= maximum:
        least, most = f"{minimum:,}", f"{maximum:,}"
        raise UsageError(f"{name} must be between {least} and {most}, not {value}", f"choose a value from {least} to {most}")


#: Short names of options, as the command line and engines have them.
SHORT_NAMES = {
    "tp": "tensor_parallel_size",
    "pp": "pipeline_parallel_size",
    "dp": "data_parallel_size",
    "dcp": "decode_context_parallel_size",
    "n": "gpus",
    "q": "quantization",
    "ngl": "gpu_layers",
    "b": "batch_size",
    "i": "input_len",
}


def did_you_mean(word: str, known: Iterable[str], count: int = 3) -> str | None:
    """The nearest known words as a phrase, or None when nothing is near."""
    folded = {k.lower(): k for k in sorted(known)}
    if SHORT_NAMES.get(word.lower()) in folded:
        return f"did you mean {SHORT_NAMES[word.lower()]}?"
    begun = [k for k in folded if len(word) >= 3 and k.startswith(word.lower())]
    near = sorted(begun, key=len)[:count] or get_close_matches(word.lower(), folded, n=count, cutoff=0.6)
    if not near:
        near = [k for k in folded if len(word) >= 4 and word.lower() in k][:count]
    return "did you mean " + ", ".join(folded[n] for n in near) + "?" if near else None
