"""The catalogue of faulty mechanisms: false privacy claims, each beside an honest mechanism for which the claim holds."""
