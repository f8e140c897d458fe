"""The audit of identifiability: whether an insider can tell two neighbouring training sets apart."""
