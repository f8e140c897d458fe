"""Findings and sections that reports of several audits share, in modules `findings_*` and `sections_*`."""
