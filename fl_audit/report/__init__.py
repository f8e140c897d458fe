"""The report of one audit run: a page, an appendix, the summary and a few lines on the terminal.

`evidence` measures: every finding is a frozen value with numbers (`evidence.findings`), and says no sentence. A section
under `sections/` turns one finding into one sentence, rows, at most one figure, and a place (`finding.Section`); from
all of them `sections.registry` makes page, terminal and `summary.json` alike. `words_of_tests` has the words of the
tests, `wording` those that hold a number against the promise, `banner` the looks of verdicts.
"""
