"""Looks at the device from a thread while it works: a look taken after a batch would see an idle device."""

from __future__ import annotations

from collections import deque
from threading import Event, Lock, Thread

from calc.measure.device.monitor import Monitor, Reading, merged

INTERVAL_S = 0.02
_MOST_LOOKS = 3000  # a minute: nobody reads during a long search or compilation


class Watcher:
    """A monitor that looks every 20 ms; ``read`` gives what was seen since the last one.

    Only for devices that work without the host. NVML's calls leave the interpreter free, and timed windows lie between events on
    the device; of samples on the host's clock one in twenty is touched, which a median does not see.
    """

    slow = False

    def __init__(self, monitor: Monitor, interval_s: float = INTERVAL_S) -> None:
        self._monitor, self.interval_s = monitor, interval_s
        self.source = monitor.source
        self._looks: deque[Reading] = deque(maxlen=_MOST_LOOKS)
        self._lock, self._ended = Lock(), Event()
        self._thread = Thread(target=self._watch, name="roofcast-monitor", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._ended.wait(self.interval_s):
            with self._lock:
                self._looks.append(self._monitor.read())

    def read(self) -> Reading:
        """All looks since the last reading as one; a fresh one when there was none."""
        with self._lock:
            looks = list(self._looks)
            self._looks.clear()
            return merged(looks) if looks else self._monitor.read()

    def close(self) -> None:
        """End the thread, then let go of the source."""
        self._ended.set()
        self._thread.join()
        self._monitor.close()
