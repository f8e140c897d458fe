"""What a run has shown, near findings in one module: frozen numbers that go to `summary.json`, and never a sentence."""
