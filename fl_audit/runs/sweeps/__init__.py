"""Sweeps: runs of many configurations, summarised in a plot of utility against privacy."""
