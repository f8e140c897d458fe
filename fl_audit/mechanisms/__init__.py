"""The mechanism of a release: contributions and their clipping, participation, and noise."""
