"""Findings and report sections that several kinds of audit share, in modules `findings_*` and `sections_*`."""
