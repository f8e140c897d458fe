"""The audit of reconstruction: which of several candidates is in, and pictures that are drawn out of updates."""
