"""Findings (`findings_*`, the numbers of one analysis) and report sections (`sections_*`) that several audits share."""
