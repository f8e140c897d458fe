"""Sweeps: many configurations of one run, executed on Ray and summarised in a plot of privacy against utility."""
