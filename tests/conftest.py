"""Settings of all tests: property tests have no deadline, since machines that run them are shared."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("roofcast", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("roofcast")
