"""Review of a whole, unchanged Flower app: it is found, started without its clients, and tested by trials."""
