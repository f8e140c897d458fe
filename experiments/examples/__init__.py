"""Small, typical Flower apps without an audit (`NAME.py`); the patch `NAME.patch` adds an audit to an app."""
