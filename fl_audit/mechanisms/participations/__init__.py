"""The rules that decide which units take part in a round: each a file here, and a line in the registry."""
