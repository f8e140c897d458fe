"""Audits of strategies that other people wrote."""
