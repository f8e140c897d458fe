"""Models, their evaluation in all trials at once, clipped gradients, and the clients' local training."""
