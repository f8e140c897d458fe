"""Write each note shared by several tables or figures of a paper's page once, at the end of the page, with links.

A note is one remark on why our result differs from the paper. Each section of a page ends with the list of its notes. A
link to a note shows the note's label. The label is the text before the note's colon. If there is no colon, or if this
text is long, the label is the note's first words.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

TITLE = "Differences that concern several results"
_NOTES = re.compile(r"<ul>((?:(?!<ul>).)*)</ul></details>", re.DOTALL)  # the last list of a section
_ITEM = re.compile(r"<li(?: id=\"[^\"]*\")?>(.*?)</li>", re.DOTALL)
_LINKS = "See below: "
_LONGEST_LABEL = 40  # characters
_LABEL_WORDS = 4  # of a note without a short beginning and a colon


def with_shared_notes(sections: Sequence[str]) -> list[str]:
    """Return the sections of a page, with notes that occur in several sections moved to one new section at the end.

    Links replace the moved notes. If no note occurs twice, the sections are returned unchanged.
    """
    counted = Counter(note for section in sections for note in dict.fromkeys(_notes(section)))
    shared = dict[str, str]()
    for note, count in counted.items():
        if count > 1:
            shared.setdefault(_anchor(note), note)
    if not shared:
        return list(sections)
    linked = [_NOTES.sub(lambda found: _list(_linked(_ITEM.findall(found[1]), shared)), one) for one in sections]
    written = "\n".join(f'<li id="{anchor}">{_emphasized(note)}</li>' for anchor, note in shared.items())
    return [*linked, f"## {TITLE}\n\n<ul>\n{written}\n</ul>"]


def _notes(section: str) -> list[str]:
    found = _NOTES.search(section)
    return _ITEM.findall(found[1]) if found else []


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
    items, links = list[str](), list[str]()
    for note in [*notes, ""]:
        if note and shared.get(_anchor(note)) == note:
            links.append(f'<a href="#{_anchor(note)}">{_label(note)}</a>')
            continue
        if links:
            items.append(_LINKS + "; ".join(links))
            links = []
        items.append(note)
    return items[:-1]
