"""Subprocesses and output of black-box audits: programs that run other people's code, and the pages on results."""
