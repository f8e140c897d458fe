"""Benchmarks of time and memory, which print their measurements next to targets."""
