"""Federations and their data, the part of each round that each party sees, and the results of finished runs."""
