"""Write what the site is built from: all pages with their generated parts, tables of rows, and pages of notebooks.

    python docs/generation/site_source.py

MkDocs and Zensical build the same site from the directory that it writes.
"""

import shutil
import sys

from generated import ROOT, complete_page
from notebooks import write_pages

from fl_audit.experiments.papers.publish import stale_pages

PAGES = ROOT / "docs"
SOURCE = ROOT / "site-source"


def write_source() -> None:
    """Write the source of the site anew."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    shutil.copytree(PAGES, SOURCE, ignore=shutil.ignore_patterns("generation", "runs", "__pycache__"))
    for path in SOURCE.rglob("*.md"):
        # In the repository a link leads to the notebook itself, on the site to the page that is made of it.
        text = path.read_text(encoding="utf-8").replace(".ipynb)", ".md)")
        path.write_text(complete_page(text, path.parent), encoding="utf-8")
    write_pages(SOURCE / "notebooks")


def main() -> None:
    """Write the source of the site; end with status 1 if a paper was published with other settings."""
    write_source()
    stale = stale_pages(PAGES / "papers")
    if stale:
        sys.exit("\n".join(f"papers: {line}; reproduce and publish it again" for line in stale))


if __name__ == "__main__":
    main()
