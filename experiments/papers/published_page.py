"""Markdown pages of published results: a section for each table or figure, and the notes that several sections share.

A note is one remark on why our result differs from the paper. Each section of a page ends with the list of its notes. A
note of several sections stands once, at the end of the page, and links take its place. A link shows the note's label:
the text before its colon or, if there is none or this text is long, its first words.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
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
_ITEM = re.compile(r"<li(?: id=\"[^\"]*\")?>(.*?)</li>", re.DOTALL)
_LINKS = "See below: "
_NUMBERS = re.compile(r"(outside our interval:</p><ul>)(.*?)(</ul>)", re.DOTALL)  # a list of numbers that differ
_MOST_NUMBERS = 3  # of such a list; its table has all
_CLAIM_VERDICT = re.compile(r"<li>[^<:]*: (?:it|both|all \d+|of \d+)\b(?:(?!</li>).)*</li>")
_COLUMNS_APART = re.compile(r"(?:<li>[^<]*; furthest apart: [^<]*</li>){5,}")
_FAILED = "not hold on our data"
_LONGEST_LABEL = 40  # characters
_LABEL_WORDS = 4  # of a note without a short beginning and a colon


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
        f"![{title}]({item}.svg)",
        f"{escape(record['caption'], quote=False)} [All rows]({item}.csv).",
        _origin(record),
        escape(record["played"], quote=False),
        _one_block(f"<details><summary>Where ours differs, and why</summary>{record['differences']}</details>"),
    )
    return shortened("\n\n".join(phrases))


def shortened(section: str) -> str:
    """Return a section without what its table says too: most numbers that differ, and claims that do not fail."""
    without = _CLAIM_VERDICT.sub(lambda match: match[0] if _FAILED in match[0] else "", section)
    without = _COLUMNS_APART.sub(lambda match: _first_numbers(_ITEM.findall(match[0])), without)
    return _NUMBERS.sub(lambda match: f"{match[1]}{_first_numbers(_ITEM.findall(match[2]))}{match[3]}", without)


def _first_numbers(numbers: Sequence[str]) -> str:
    # A list of one number more takes no more room than the sentence.
    if len(numbers) > _MOST_NUMBERS + 1:
        numbers = [*numbers[:_MOST_NUMBERS], f"{len(numbers) - _MOST_NUMBERS} more are in the table"]
    return "".join(f"<li>{number}</li>" for number in numbers)


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


def _origin(record: Record) -> str:
    minutes = "" if record["minutes"] is None else f", {record['minutes']:,} minutes"
    runs = (
        f"{plural(record['trials'], 'trial')}{minutes}, played at commit {' and '.join(record['run_commits']) or '?'}"
        if record["trials"]
        else "no runs"
    )
    form = "full form" if record["extent"] == ComputeExtent.FULL else "quick form"
    origin = f"made at commit {record['commit'] or '?'} on {record['made']}"
    return f"*{capital(form)}; {runs}; {origin}.*"


def _one_block(html: str) -> str:
    """Return HTML as one Markdown block: without empty lines, which would end the block.

    Attributes for styles and the heading "Where ours differs, and why" are removed as well.
    """
    plain = html.replace("<h3>Where ours differs, and why</h3>", "")
    bare = re.sub(r' (?:class|data-label|scope|tabindex|role|aria-label)="[^"]*"', "", plain)
    return "\n".join(line for line in bare.splitlines() if line.strip())


def with_shared_notes(sections: Sequence[str]) -> list[str]:
    """Return the sections of a page, with notes that occur in several sections moved to one new section at the end.

    Links replace the moved notes. If no note occurs twice, the sections are returned unchanged.
    """
    counter = Counter(note for section in sections for note in dict.fromkeys(_notes(section)))
    shared = dict[str, str]()
    for note, count in counter.items():
        if count > 1:
            shared.setdefault(_anchor(note), note)
    if not shared:
        return list(sections)
    linked = [
        _NOTES.sub(lambda match: _list(_linked(_ITEM.findall(match[1]), shared)), section) for section in sections
    ]
    written = "\n".join(f'<li id="{anchor}">{_emphasized(note)}</li>' for anchor, note in shared.items())
    return [*linked, f"## {TITLE}\n\n<ul>\n{written}\n</ul>"]


def _notes(section: str) -> list[str]:
    match = _NOTES.search(section)
    return _ITEM.findall(match[1]) if match else []


def _list(notes: Iterable[str]) -> str:
    return f"<ul>{''.join(f'<li>{note}</li>' for note in notes)}</ul></details>"


def _label(note: str) -> str:
    before, colon, _ = note.partition(":")
    return before if colon and len(before) <= _LONGEST_LABEL else " ".join(note.split()[:_LABEL_WORDS])


def _anchor(note: str) -> str:
    plain = re.sub(r"&[^;]*;", "", _label(note))
    return "-".join(["note", *re.findall(r"\w+", plain.lower())])


def _emphasized(note: str) -> str:
    label = _label(note)
    return f"<strong>{label}</strong>{note.removeprefix(label)}"


def _linked(notes: Iterable[str], shared: Mapping[str, str]) -> list[str]:
    """Return a section's notes, with shared ones replaced by links; adjacent links form one item."""
    items = list[str]()
    links = list[str]()
    for note in [*notes, ""]:
        if note and shared.get(_anchor(note)) == note:
            links.append(f'<a href="#{_anchor(note)}">{_label(note)}</a>')
            continue
        if links:
            items.append(_LINKS + "; ".join(links))
            links = []
        items.append(note)
    return items[:-1]
