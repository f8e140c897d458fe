"""Building blocks of reports: rows, tables, figures and phrases; the report page is in `fl_audit.audits.page`."""
