"""Notes, sentences and commits that several sections of a page have stand once on it."""

from fl_audit.experiments.papers.published_page import TITLE, origins, with_shared_notes, with_shared_sentences


def _section(title: str, *notes: str) -> str:
    listed = "".join(f"<li>{note}</li>" for note in notes)
    block = "<details><summary>Why</summary>\n<p>1 of 2:</p><ul><li>one number</li></ul>\n"
    return f"## {title}\n\n{block}<ul>{listed}</ul></details>"


SHARED = ("Records: the paper&#x27;s are others.", "Noise: drawn twice.")
SECTIONS = {
    "A": _section("Table 1. Noise", SHARED[0], SHARED[1], "Only here."),
    "B": _section("Table 2. Records", "Records: of another paper.", SHARED[1], "Alone: too.", SHARED[0]),
    "C": _section("C"),
}


def test_a_note_of_two_sections_stands_once() -> None:
    first, second, third, last = with_shared_notes(list(SECTIONS.values()))
    page = "\n\n".join((first, second, third, last))
    assert [page.count(note.partition(":")[2]) for note in SHARED] == [1, 1]
    assert "<ul><li>Only here.</li></ul></details>" in first
    assert "Records: of another paper." in second
    assert third == SECTIONS["C"].replace("<ul></ul>", "")
    assert last.startswith(f"## {TITLE}\n")
    assert "<li><strong>Records</strong>: the paper&#x27;s are others. (Tables 1, 2)</li>" in last


def test_a_page_without_shared_notes_stays_as_it_is() -> None:
    alone = [SECTIONS["A"], SECTIONS["C"]]
    assert with_shared_notes(alone) == alone


def test_a_section_whose_only_notes_are_shared_loses_its_empty_list() -> None:
    first, second, _ = with_shared_notes([_section("Table 1", SHARED[0]), _section("Figure 2", SHARED[0])])
    assert first.endswith("<li>one number</li></ul>\n</details>")
    assert "<ul></ul>" not in first + second


def test_a_sentence_of_two_captions_stands_in_the_first() -> None:
    first = "## Figure 1. A\n\n![Figure 1](a.svg)\n\nDots: ours. Grey: guessing. [All rows](a.csv).\n\nFive runs."
    second = "## Figure 2. B\n\n![Figure 2](b.svg)\n\nBars: ours. Grey: guessing. [All rows](b.csv).\n\nFive runs."
    own, later = with_shared_sentences([first, second])
    assert own == first
    assert "Bars: ours. Otherwise as in Figure 1. [All rows](b.csv)." in later
    assert later.endswith("\n\nAs in Figure 1.")
    assert later.count("Grey") == 0


def test_the_commit_of_most_results_is_named_once_and_others_beside_their_results() -> None:
    def record(title: str, commit: str) -> dict[str, object]:
        return {"title": title, "extent": "full", "run_commits": [], "commit": commit}

    records = [record("Table 1. A", "abc"), record("Table 2. B", "def"), record("Figure 1. C", "def")]
    assert origins(records) == "*Full form, commit def. Table 1: full form, commit abc.*"
