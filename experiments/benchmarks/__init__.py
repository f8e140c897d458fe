"""Benchmarks: each prints what it measured beside its target."""
