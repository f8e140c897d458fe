"""The kinds of audit, one package for each, with their shared modules and the page of a report."""
