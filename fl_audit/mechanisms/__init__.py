"""The release law: how contributions are clipped, who takes part, and which noise is added."""
