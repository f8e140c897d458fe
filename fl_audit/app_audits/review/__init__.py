"""Review of a whole, unchanged Flower app: its strategy is captured when it starts, and tested by black-box trials."""
