"""The audit of a running federation: an observer around its strategy."""
