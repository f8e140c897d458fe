"""The catalogue of faulty mechanisms: false privacy claims, each with an honest mechanism that keeps the claim."""
