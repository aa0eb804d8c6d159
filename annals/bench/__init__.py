"""The benchmarks of `annals bench`."""
