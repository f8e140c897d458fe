"""Exports of finished runs to tools for tracking experiments."""
