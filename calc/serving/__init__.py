"""What it serves: deployments, phases, requests."""
