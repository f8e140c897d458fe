"""Exit statuses of the commands."""

WRONG_INPUT, STOPPED, VIOLATED, OVER_BUDGET = 2, 3, 4, 5
"""Exit statuses: nothing was written; the finished part is kept; the verdict, where a violation is a failure; a
training that would exceed its site's budget.
"""
