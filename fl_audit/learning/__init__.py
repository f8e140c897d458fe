"""Models and their training and evaluation in all trials at once: clipped gradients and clients' local training.

A trial is one of many independent trainings of the same model.
"""
