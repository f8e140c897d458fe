"""Data: loaders, partitions among clients, neighbouring training sets, and randomisers of records."""
