"""The mechanism: how contributions are clipped, who takes part, and which noise is added."""
