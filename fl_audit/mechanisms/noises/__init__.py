"""The kinds of noise, each in a module of its own: a new one is such a module, and a line in the registry."""
