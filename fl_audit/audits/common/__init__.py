"""Findings and report sections of several audits.

A module `sections_*` has a finding (the numbers of one analysis) and the section that shows it. A finding that several
sections show is in a module `findings_*`.
"""
