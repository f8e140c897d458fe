"""Exact confidence mathematics that several rooms share: numpy and scipy alone."""
