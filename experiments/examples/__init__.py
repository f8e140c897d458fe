"""Small Flower apps of the commonest shapes, each as it is (`NAME.py`) and audited in place (`NAME_watched.py`)."""
