"""From start-up records to predictions: configuration, names, stand-in geometry, predicted figures, scores."""
