"""Exports of finished runs to tools that track experiments, and of verdicts as badges."""
