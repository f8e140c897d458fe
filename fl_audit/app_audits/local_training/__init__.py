"""Audit of a client's local DP-SGD with Opacus: the training is recorded while it runs and compared with its claim."""
