"""Output of black-box audits: a page, a figure, and the same as JSON."""
