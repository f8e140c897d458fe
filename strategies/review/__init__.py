"""Review of a whole, unchanged Flower app: its strategy is captured at its start and tested by black-box trials."""
