"""Public trainings with Opacus that nobody here wrote, looked into as they are, and with pitfalls planted into copies.

Their code is not here. `copies` reads it from a folder of clones, `trainings` calls it, and `edits` changes it.
"""
