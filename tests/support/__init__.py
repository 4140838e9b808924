"""Helpers that tests share: models and devices built in code, the golden values, the command line in a process of its own."""
