"""Figures that commands draw beside their answers."""
