"""Figures that commands draw in addition to their printed output."""
