"""The membership audit: an insider, and attacks on the released models, find which of many targets are in."""
