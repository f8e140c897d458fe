"""The corpus: mechanisms with a claim, honest and faulty, on which any auditor of differential privacy can be scored.

`case` holds the interface, which needs numpy alone; `catalogue` all cases; `auditors` and `scoring` what is scored.
"""
