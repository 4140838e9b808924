"""The device and its machine: what they are, and what they were seen to do during a run."""
