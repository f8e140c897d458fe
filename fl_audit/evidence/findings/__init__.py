"""What a run has shown, one finding a module: frozen numbers that go to `summary.json`, and never a sentence."""
