"""The membership audit: insiders, and attacks on the released models, infer which of many targets are members."""
