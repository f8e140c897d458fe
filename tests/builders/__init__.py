"""Configurations, plans, runs, mechanisms, strategies and tables that many tests start from."""
