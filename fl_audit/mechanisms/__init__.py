"""Mechanism of a round: the units' contributions and their clipping, participation, and noise."""
