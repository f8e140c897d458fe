"""The membership audit, in which insiders, and attacks on released models, infer which of many targets are members."""
