"""A package for each kind of audit, what all of them share, and the page of a report."""
