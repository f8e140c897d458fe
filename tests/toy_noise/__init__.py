"""A kind of noise that stands in no registry: one file, which a test adds by one line."""
