"""The identifiability audit, which tests whether an insider can distinguish two neighbouring training sets D and D'."""
