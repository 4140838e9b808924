"""Tools that build and check the documentation: ``python -m docs.build``."""
