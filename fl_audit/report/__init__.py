"""The tools that show a finding; the page with all findings is in `fl_audit.audits.page`."""
