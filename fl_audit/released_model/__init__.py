"""Epsilon*, the privacy risk of one released model, estimated from losses on members and on a population sample."""
