"""Reproduction of Negoescu et al. 2023: Epsilon*, a privacy metric for machine learning models."""
