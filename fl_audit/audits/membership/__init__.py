"""The audit of membership: who of many targets is in, by an insider and by attacks on the released models."""
