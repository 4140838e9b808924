"""A measurement while it runs, on standard error: a live table on a terminal, plain lines elsewhere, nothing when quiet."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Group

    from calc.measure.progress import CaseProgress, Progress, ProgressEvent

_PASSING = ("case", "prepare", "saved")  # too many, or of no interest afterwards
_OTHER_LINES = 6  # of the terminal: header, heading, the shell's own


@contextmanager
def shown(options: dict[str, Any]) -> Iterator[Progress]:
    """Where a run tells how it goes. A stream that is closed meanwhile ends the telling, not the run."""
    if options.get("quiet"):
        yield lambda event: None
        return
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield _until_closed(_plainly)
        return
    table = LiveTable(no_color=bool(options.get("no_color")))
    table.begin()
    try:
        yield _until_closed(table.tell)
    finally:
        table.end()


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """SIGTERM and a closed terminal end a run as Ctrl-C does: what was measured is saved. A signal that is ignored stays so (nohup)."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {n: signal.signal(n, stop) for n in numbers if signal.getsignal(n) is signal.SIG_DFL}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _until_closed(tell: Callable[[ProgressEvent], None]) -> Progress:
    closed = False

    def guarded(event: ProgressEvent) -> None:
        nonlocal closed
        if not closed:
            try:
                tell(event)
            except (OSError, ValueError):  # a closed pipe or terminal, a closed stream
                closed = True

    return guarded


def _plainly(event: ProgressEvent) -> None:
    if event.kind not in _PASSING:
        print(_text(event), file=sys.stderr, flush=True)


def _text(event: ProgressEvent) -> str:
    return f"warning: {event}" if event.kind == "warning" else str(event)


class LiveTable:
    """The cases measured last, with round, running median, interval and status, below the milestones, which stay.

    Drawn between two cases and never by a thread of its own, which would run amid the timed calls of a CPU.
    """

    def __init__(self, *, no_color: bool) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(stderr=True, no_color=no_color or None, highlight=False)
        self._live = Live(console=self._console, auto_refresh=False, transient=True, redirect_stdout=False)
        self._cases: dict[str, CaseProgress] = {}
        self._line = ""

    def begin(self) -> None:
        """Take the lower part of the terminal."""
        self._live.start()

    def end(self) -> None:
        """Take the table away and give the cursor back."""
        try:
            self._live.stop()
        except OSError:  # the terminal has gone
            return

    def tell(self, event: ProgressEvent) -> None:
        """Show a step of the run."""
        if event.kind not in _PASSING:
            self._console.print(_text(event), markup=False, soft_wrap=True)
        if event.case is not None:
            case = event.case
            self._cases.pop(case.case_id, None)  # the latest comes last
            self._cases[case.case_id] = case
            self._line = f"round {case.round} of {case.rounds}, case {event.done} of {event.total}, about {case.left_s:.0f} s left"
        elif event.kind == "prepare":
            self._line = f"{event.done} of {event.total}: {event}"
        elif event.kind == "ceilings":
            self._line = str(event)
        self._live.update(self._screen(), refresh=True)

    def _screen(self) -> Group:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        from calc.units import format_seconds

        line = Text(self._line, no_wrap=True, overflow="ellipsis")
        if not self._cases:
            return Group(line)
        table = Table(box=None, expand=True, pad_edge=False)
        table.add_column("case", no_wrap=True, overflow="ellipsis", ratio=1)
        for name, width in (("round", 5), ("median", 7), ("95 %", 17)):
            table.add_column(name, justify="right", no_wrap=True, min_width=width)
        table.add_column("status", no_wrap=True, min_width=len("unreliable"))
        for case in list(self._cases.values())[-max(1, self._console.height - _OTHER_LINES) :]:
            ends = case.interval_s
            interval = f"{format_seconds(ends[0])} - {format_seconds(ends[1])}" if ends else "-"
            name = case.case_id.partition(":")[2]
            table.add_row(Text(name), f"{case.round}/{case.rounds}", format_seconds(case.time_s), interval, case.status)
        return Group(line, table)
