"""Published experiments, each a module that yields a tidy table and the figures of its paper."""
