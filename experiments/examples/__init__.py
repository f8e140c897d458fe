"""Small, typical Flower apps, each without an audit (`NAME.py`) and with an audit in place (`NAME_watched.py`)."""
