"""Bernau et al. 2021: quantifying identifiability to choose and audit epsilon."""
