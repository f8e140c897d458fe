"""A whole Flower app, as it is, held to what it says: found, started without its clients, and played with."""
