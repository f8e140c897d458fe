"""A Flower app like Flower's PyTorch quickstart, on digits of scikit-learn, which need no download."""
