"""Many deployments and workloads at once, by array evaluation."""
