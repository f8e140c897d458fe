"""Private training of a client's records with Opacus: recorded as it runs, and held against what it claims."""
