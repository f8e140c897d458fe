"""Canary audit of a running federation, by an observer that wraps its strategy."""
