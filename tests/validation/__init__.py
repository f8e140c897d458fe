"""Campaigns that check the auditor itself."""
