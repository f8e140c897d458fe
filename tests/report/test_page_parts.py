"""One renderer of pages: HTML stands in its template, and every text in it is escaped."""

import ast
import re
from pathlib import Path

import pytest

from fl_audit.report import page
from fl_audit.report.page import Banner, VerdictLook
from fl_audit.report.template_files import template_lines

ROOT = Path(__file__).parents[2]
HOSTILE = '<script>alert("1")</script>'
PARTS = {
    "banner": lambda text: page.banner_html(Banner(text, text, VerdictLook.GOOD)),
    "warning": page.warning_html,
    "step": page.step_html,
    "facts": lambda text: page.facts_html([page.Fact(text, text, text)]),
    "paragraph": page.paragraph_html,
    "heading": lambda text: page.heading_html(text, text),
    "list": lambda text: page.list_html([text]),
    "pairs": lambda text: page.pairs_html([(text, text)]),
    "folded": lambda text: page.folded_html(text, "inside"),
    "link": lambda text: page.link_html(text, text),
    "strong": lambda text: page.strong_html(text, text),
    "figure": lambda text: page.html_figure(b"", text, text, text),
    "table": lambda text: page.page_table((text,), [(text,)], title=text),
    "page": lambda text: page.html_page(
        text, text, text, text, page.paragraph_html(text), text, step=text, warning=text
    ),
}
WITH_HTML_OF_THEIR_OWN = {
    "fl_audit/audits/page/gauge.py",
    "fl_audit/report/page.py",
    "experiments/papers/page.py",
    "experiments/papers/published_page.py",
}
"""The gauge and SVG figures, tables in scrolling boxes, and the pages of papers that stand in the documentation."""


@pytest.mark.parametrize("name", PARTS)
def test_no_text_becomes_html(name: str) -> None:
    html = PARTS[name](HOSTILE)
    assert "alert" in html
    assert "<script" not in html
    assert HOSTILE not in html
    # What is HTML already is not escaped again.
    assert page.paragraph_html(page.strong_html("a", "b")) == "<p><strong>a</strong> b</p>"


def test_pages_are_put_together_from_parts() -> None:
    """HTML that a module writes itself is not seen by what renders all pages."""
    tops = [ROOT / top for top in ("fl_audit", "experiments/papers")]
    files = [path for top in tops for path in top.rglob("*.py") if "page" in path.stem or "page" in path.parent.name]
    assert len(files) >= 10
    writing = set()
    for path in files:
        texts = [node.value for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Constant)]
        if any(
            isinstance(text, str) and re.search(r"</?(p|div|h\d|ul|li|dl|dt|dd|span|figure|details|table)\b", text)
            for text in texts
        ):
            writing.add(path.relative_to(ROOT).as_posix())
    assert {name for name in writing if "/experiments/" not in f"/{name}" or name.startswith("experiments/")} <= (
        WITH_HTML_OF_THEIR_OWN
    )


def test_a_fact_that_nobody_gives_is_an_error() -> None:
    with pytest.raises(Exception, match="unit"):
        template_lines("words.md")
