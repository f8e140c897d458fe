"""A rule of participation that stands in no registry: one file, which a test adds by one line."""
