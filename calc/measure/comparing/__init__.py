"""Measured against predicted, and run against run."""
