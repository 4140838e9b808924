"""From files that others publish to a model profile."""
