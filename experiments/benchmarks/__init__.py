"""Benchmarks: each prints its measurements next to their targets."""
