"""Rows, tables, figures and phrases from which reports are built; the report page is in `fl_audit.audits.page`."""
