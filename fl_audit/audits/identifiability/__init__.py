"""The identifiability audit: whether an insider can distinguish two neighbouring training sets D and D'."""
