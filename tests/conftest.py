"""Settings of all tests: property tests have no deadline, since machines that run them are shared, and draw the same examples each
time, so that a change fails for what it changes. ``--hypothesis-profile explore`` draws new ones, and more."""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

settings.register_profile("roofcast", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(
    "explore", deadline=None, max_examples=1000, derandomize=False, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("roofcast")

# Where a shell runs the tests in the background they ignore Ctrl-C, and so would the commands that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
