"""The scoreboards and benchmarks compute what they say."""
