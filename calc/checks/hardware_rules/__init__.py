"""Rules over hardware profiles; importing the package registers them."""

from calc.checks.hardware_rules import bands, links, memory, names, provenance, rates, units

__all__ = ["bands", "links", "memory", "names", "provenance", "rates", "units"]
