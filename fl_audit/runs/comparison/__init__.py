"""Comparison of finished runs side by side."""
