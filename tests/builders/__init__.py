"""What many tests start from: configurations, plans, runs, mechanisms, strategies and tables."""
