"""Kinds of audit, with one package for each kind, the modules that several kinds share, and the code of the report."""
