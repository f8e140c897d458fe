"""The kinds of audit, one package for each, with the modules that they share and the page of a report."""
