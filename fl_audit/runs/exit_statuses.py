"""Exit statuses of the commands."""

WRONG_INPUT = 2
STOPPED = 3
VIOLATED = 4
OVER_BUDGET = 5
"""Exit statuses: nothing was written; the finished part is kept; the verdict, where a violation is a failure; a
training that would exceed its site's budget.
"""
