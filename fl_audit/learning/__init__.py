"""Learning: models, stacks of trials, clipped gradients, and the local training of clients."""
