"""The report of one audit run: a page, an appendix, the summary and a few lines on the terminal.

`evidence` measures: every finding is a frozen value with numbers (`evidence.findings`), and says no sentence. A section
under `sections/` turns one finding into one sentence, rows, at most one figure, and a place: the page or the appendix
(`finding.Section`). `sections.registry` lists them and makes `RunContents`, from which page, terminal and
`summary.json` are made alike; `page/` sets them and adds nothing of its own. The words of the tests stand in one table
(`test_words`), those that hold a number against the promise in another (`finding.Reading`).
"""
