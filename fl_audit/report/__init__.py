"""The tools that show a finding; the page that holds all of them is in `fl_audit.audits.page`."""
