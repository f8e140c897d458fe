"""A kind of audit that stands in no registry: one folder, which a test adds by one line."""
