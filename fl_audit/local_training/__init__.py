"""Private training of a client's records with Opacus: it is recorded as it runs, and compared with its claims."""
