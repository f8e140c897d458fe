"""Finished runs for the tools that people follow experiments with."""
