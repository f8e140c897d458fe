"""Sizes of the passes of stacked models, in scalars (float32) that are held at once."""

CACHE_BUDGET = 2**21
"""Scalars of activations that one pass holds: more leave the cache, and with fewer the calls of torch cost too much."""
PASS_BUDGET = 2**22
"""Scalars of activations that a pass over a single trial may hold; further examples are left to the next pass."""
GRADIENT_BUDGET = 2**25
"""Scalars of per-example gradients that may be held at once where a model runs through `torch.func`."""
ON_A_CARD = 32
"""Factor by which a pass holds more scalars on a graphics card, where calls of torch cost more than memory."""
GRAPHED_BELOW = 2**25
"""Scalars of activations of a pass below which its kernels on a graphics card are launched as one CUDA graph."""
