"""Scoreboards: predictions against what engines printed and what was measured."""
