"""Markdown pages of published results: a section for each table or figure, and the notes that several sections share.

A note is one remark on why our result differs from the paper. Each section of a page ends with the list of its notes. A
note of several sections stands once, at the end of the page, with the tables and figures that it concerns. It begins
with its label: the text before its colon or, if there is none or this text is long, its first words. A sentence on how
to read a table or figure stands where it is first needed, and later sections refer to that one.
"""

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd

from fl_audit.experiments.papers.page import rows_html
from fl_audit.experiments.papers.papers import ComputeExtent
from fl_audit.words import capital, plural

CSV_DIGITS = 6  # of every number in published CSV files
LEFT_OUT = ("title", "caption", "said", "played", "differences")  # of a record: what stands on the page
_ROWS_AT_ONCE = 60
CLAIMS_ITEM = "claims"
Record = Mapping[str, Any]
"""The record of a finished item."""
TITLE = "Differences that concern several results"
_NOTES = re.compile(r"<ul>((?:(?!<ul>).)*)</ul></details>", re.DOTALL)  # the last list of a section
_EMPTY = re.compile(r"\s*<details><summary>[^<]*</summary>\s*</details>")  # a section without any remark
_ITEM = re.compile(r"<li>(.*?)</li>", re.DOTALL)
_NUMBERS = re.compile(  # a list of numbers that differ
    r"(outside our interval|in all printed digits):</p><ul>.*?</ul>", re.DOTALL
)
_CLAIM_VERDICT = re.compile(r"<li>[^<]*: (?:it|both|all \d+|of \d+)\b[^<]*(?:on our data|decided|tested)[^<]*</li>")
_COLUMNS_APART = re.compile(r"(?:<li>[^<]*; furthest apart: [^<]*</li>)+")
_LONGEST_LABEL = 40  # characters
_LABEL_WORDS = 4  # of a note without a short beginning and a colon
_SENTENCE_END = re.compile(r"(?<=\.) (?=[A-Za-z])")
_ROWS_LINK = " [All rows]("
_CLAIMS_CAPTION = "[How to read it](index.md#claims)."


def compact_svg(svg: str) -> str:
    """Return an SVG image by matplotlib in a smaller form: with shared styles, and without indentation and unused ids.

    The image must stay in a file of its own, because its style sheet would affect other images on the same page.
    """
    bare = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    used = set(re.findall(r"#([\w-]+)", bare))
    bare = re.sub(r' id="([^"]*)"', lambda name: name[0] if name[1] in used else "", bare)
    bare = re.sub(r">\s+<", "><", re.sub(r"\s+", " ", bare))
    bare = re.sub(r' d="[^"]*"', lambda path: re.sub(r" ?\b([A-Za-z])\b ", r"\1", path[0]), bare)
    styles = {style: f"s{number}" for number, style in enumerate(dict.fromkeys(re.findall(r' style="([^"]*)"', bare)))}
    bare = re.sub(r' style="([^"]*)"', lambda style: f' class="{styles[style[1]]}"', bare)
    sheet = "".join(f".{name}{{{style}}}" for style, name in styles.items())
    return bare.replace("<defs>", f"<style>{sheet}</style><defs>", 1)


def section_of(record: Record) -> str:
    """Return the Markdown section of a stored record: image, origin, differences, and a link to its CSV file."""
    item = f"{record['paper']}/{record['item']}"
    title = escape(record["title"], quote=False)
    phrases = (
        f"## {title}",
        f"![{_short_title(title)}]({item}.svg)",
        f"{_caption(record)}{_ROWS_LINK}{item}.csv).",
        _extent_of_runs(record),
        escape(record["played"], quote=False),
        _one_block(f"<details><summary>Differences</summary>{record['differences']}</details>"),
    )
    return shortened("\n\n".join(phrase for phrase in phrases if phrase))


def shortened(section: str) -> str:
    """Return a section without what its table says too: numbers that differ, and verdicts on claims."""
    return _NUMBERS.sub(r"\1.</p>", _COLUMNS_APART.sub("", _CLAIM_VERDICT.sub("", section)))


def rows_of(file: Path) -> str:
    """Return the rows of a table's or figure's CSV file as a collapsible HTML table.

    A table of claims is shown with all rows. Of other tables, the first rows that have a printed or theoretical number
    are shown. If no row has such a number, the first rows are shown.
    """
    frame = pd.read_csv(file)
    beside = frame[frame["published"].notna() | frame["theory"].notna()]
    rows_shown = frame if file.stem == CLAIMS_ITEM else (frame if beside.empty else beside).head(_ROWS_AT_ONCE)
    table = rows_html(rows_shown, len(frame), file.name, look="")
    return _one_block(f"<details><summary>What is printed, theory and ours</summary>{table}</details>")


def _caption(record: Record) -> str:
    """Return the caption of a table or figure; that of claims is the same for all papers, and stands on their index."""
    return _CLAIMS_CAPTION if record["item"] == CLAIMS_ITEM else escape(record["caption"], quote=False)


def origins(records: Sequence[Record]) -> str:
    """Return in which form, and at which commit of the source, the tables and figures of a page were made."""
    titles = dict[str, list[str]]()
    for record in records:
        titles.setdefault(_form_and_commit(record), []).append(_short_title(record["title"]))
    usual, *other_forms = sorted(titles, key=lambda origin: -len(titles[origin]))
    return (
        " ".join([f"*{capital(usual)}.", *(f"{_name_list(titles[origin])}: {origin}." for origin in other_forms)]) + "*"
    )


def _form_and_commit(record: Record) -> str:
    commits = " and ".join(record["run_commits"] or [record["commit"] or "?"])
    form = "full form" if record["extent"] == ComputeExtent.FULL else "quick form"
    return f"{form}, commit {commits}"


def _extent_of_runs(record: Record) -> str:
    """Return how many trials a table or figure rests on, and how long they took; nothing if there are no runs."""
    minutes = "" if record["minutes"] is None else f", {record['minutes']:,} minutes"
    return f"*{capital(plural(record['trials'], 'trial'))}{minutes}.*" if record["trials"] else ""


def _one_block(html: str) -> str:
    """Return HTML as one Markdown block: without empty lines, which would end the block.

    Attributes for styles and the heading "Where ours differs, and why" are removed as well.
    """
    plain = html.replace("<h3>Where ours differs, and why</h3>", "")
    bare = re.sub(r' (?:class|data-label|scope|tabindex|role|aria-label)="[^"]*"', "", plain)
    return "\n".join(line for line in bare.splitlines() if line.strip())


def with_shared_sentences(sections: Sequence[str]) -> list[str]:
    """Return the sections of a page, each sentence of a caption or of what was played in the first section that has it.

    A section that leaves sentences out names the first one that has one of them.
    """
    first_titles = dict[str, str]()
    return [_without_known_sentences(section, first_titles) for section in sections]


def _without_known_sentences(section: str, first_titles: dict[str, str]) -> str:
    """Return a section without sentences that have a title in `first_titles`, and enter the others there."""
    title = _short_title(section.partition("\n")[0].removeprefix("## "))
    earlier_titles = dict(first_titles)
    heading, *paragraphs = section.split("\n\n")
    for index, paragraph in enumerate(paragraphs):
        if paragraph.startswith(("!", "*", "<")):
            continue
        text, link, rest = paragraph.partition(_ROWS_LINK)
        sentences = _SENTENCE_END.split(text)
        for sentence in sentences:
            first_titles.setdefault(sentence, title)
        repeated = [sentence for sentence in sentences if sentence in earlier_titles]
        if repeated:
            new_sentences = [sentence for sentence in sentences if sentence not in earlier_titles]
            reference = f"{'Otherwise as' if new_sentences else 'As'} in {earlier_titles[repeated[0]]}."
            paragraphs[index] = " ".join([*new_sentences, reference]) + link + rest
    return "\n\n".join([heading, *paragraphs])


def with_shared_notes(sections: Sequence[str]) -> list[str]:
    """Return the sections of a page, with notes that occur in several sections moved to one new section at the end.

    If no note occurs twice, the sections are returned unchanged.
    """
    titles = dict[str, list[str]]()
    for section in sections:
        for note in dict.fromkeys(_notes(section)):
            titles.setdefault(note, []).append(_short_title(section.partition("\n")[0].removeprefix("## ")))
    shared = {note: concerned for note, concerned in titles.items() if len(concerned) > 1}
    if not shared:
        return list(sections)
    without_shared_notes = [
        _EMPTY.sub("", _NOTES.sub(lambda match: _list(_ITEM.findall(match[1]), shared), section))
        for section in sections
    ]
    written = "\n".join(f"<li>{_emphasized(note)} ({_name_list(concerned)})</li>" for note, concerned in shared.items())
    return [*without_shared_notes, f"## {TITLE}\n\n<ul>\n{written}\n</ul>"]


def _name_list(titles: Iterable[str]) -> str:
    """Return "Table 2; Figures 3, 6 to 8" of titles in the order of the page."""
    numbers = dict[str, list[str]]()
    for title in titles:
        kind, _, number = title.partition(" ")
        numbers.setdefault(kind, []).append(number)
    return "; ".join(f"{kind}{'s' * (len(which) > 1)} {_ranges(which)}" for kind, which in numbers.items())


def _ranges(numbers: Sequence[str]) -> str:
    """Return "3, 6 to 8" of the numbers 3, 6, 7 and 8; texts that are no numbers are listed as they are."""
    if not all(number.isdecimal() for number in numbers):
        return ", ".join(numbers)
    runs = list[list[str]]()
    for number in numbers:
        if runs and int(number) == int(runs[-1][-1]) + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(run) for run in runs)


def _short_title(title: str) -> str:
    """Return "Table 2" of "Table 2. Advantage of the insider", and other titles as they are."""
    return title.partition(". ")[0]


def _notes(section: str) -> list[str]:
    match = _NOTES.search(section)
    return _ITEM.findall(match[1]) if match else []


def _list(notes: Iterable[str], shared: Container[str]) -> str:
    """Return the end of a section: the list of those of its notes that no other section shares."""
    items = "".join(f"<li>{note}</li>" for note in notes if note not in shared)
    return f"<ul>{items}</ul></details>" if items else "</details>"


def _label(note: str) -> str:
    before, colon, _ = note.partition(":")
    return before if colon and len(before) <= _LONGEST_LABEL else " ".join(note.split()[:_LABEL_WORDS])


def _emphasized(note: str) -> str:
    label = _label(note)
    return f"<strong>{label}</strong>{note.removeprefix(label)}"
