"""Canary audit of a running federation: an observer wraps the strategy and searches its releases for canaries.

A canary is an artificial contribution that an audit may insert.
"""
