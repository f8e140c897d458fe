"""The catalogue of faulty mechanisms: privacy claims that are false, each beside an honest mechanism for which it
holds.
"""
