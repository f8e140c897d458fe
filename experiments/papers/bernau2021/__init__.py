"""Reproduction of Bernau et al. 2021: measuring identifiability to choose and to audit epsilon."""
