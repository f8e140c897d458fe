"""Audit of a client's local DP-SGD with Opacus: training is recorded while it runs and compared with its claim."""
