"""From published speeds to fitted efficiencies: what the records mean, the fit, cross-validation, and scores."""
