"""The cheapest deployments that carry a demand."""
