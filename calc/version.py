"""The version of the tool and the date of its library of profiles."""

VERSION = "0.1.0"
LIBRARY_DATE = "2026-11-29"
