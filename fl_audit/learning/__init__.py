"""Learning: models, stacks of worlds, clipped gradients, and the local training of clients."""
