"""What it occupies: weights, cache, activations, and each engine's law."""
