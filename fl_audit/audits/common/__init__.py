"""What several audits share. A `sections_*` module has a finding (the numbers of one analysis) and its report section.

A finding that several sections show is in a module `findings_*`.
"""
