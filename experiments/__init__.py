"""Reproductions of papers, studies, benchmarks, configurations and examples."""

import fl_audit.runs  # noqa: F401  # sets the environment before Flower and Ray are imported
