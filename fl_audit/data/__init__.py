"""Data: loaders, partitions among clients, neighbouring training sets, and randomizers of records."""
