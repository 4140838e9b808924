"""How long it takes: rooflines, efficiencies, links."""
