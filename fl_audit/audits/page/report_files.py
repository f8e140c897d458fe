"""Write the files of a report, each atomically; the PDF needs the optional package WeasyPrint."""

import contextlib
import io
from functools import cache
from pathlib import Path

from fl_audit.atomic_files import atomic_file, write_bytes, write_text
from fl_audit.audits.page.drawn_pictures import draw_all
from fl_audit.audits.page.report_page import render_html
from fl_audit.errors import first_line
from fl_audit.report.report_elements import ReportContents

ON_PAPER = """
@page { @bottom-right { content: counter(page) " of " counter(pages); font-size: 8pt; } }
"""
"""CSS that is added for a PDF: page numbers, which a browser prints by itself."""


@cache
def why_no_pdf() -> str:
    """Return a phrase that says why this installation cannot write PDFs; empty if it can."""
    try:
        # WeasyPrint prints advice on missing libraries, which would hide the one line that we show instead.
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            import weasyprint  # noqa: F401, PLC0415
    except ImportError:
        return "WeasyPrint is not installed (pip install 'fl-audit[pdf]')"
    except OSError as error:
        return f"WeasyPrint lacks a library of the system ({first_line(error)})"
    return ""


def write_pdf(page: str, path: Path) -> None:
    """Write an HTML page as a PDF file, atomically; without WeasyPrint, delete an existing file at `path` instead."""
    if why_no_pdf():
        path.unlink(missing_ok=True)
        return
    import weasyprint  # an extra, see `hindrance`  # noqa: PLC0415

    # The page holds its data itself, so that no request is needed or allowed.
    document = weasyprint.HTML(string=page, url_fetcher=weasyprint.urls.URLFetcher(allowed_protocols=("data",)))
    with atomic_file(path) as file:
        document.write_pdf(file, stylesheets=[weasyprint.CSS(string=ON_PAPER)])


def write_report(contents: ReportContents, directory: Path, pdf_with_appendix: bool = False) -> Path:
    """Write the figures, HTML page and PDF of a report into a directory, and return the path of the HTML page.

    The files are `figures/<name>.png`, `report.html` and `report.pdf`. If no PDF can be written (see `hindrance`), an
    earlier PDF is deleted.
    """
    pictures = draw_all(contents)
    page = render_html(contents, pictures)
    for picture in filter(lambda picture: picture.png, pictures):
        write_bytes(directory / "figures" / f"{picture.name}.png", picture.png)
    path = directory / "report.html"
    write_text(path, page)
    write_pdf(render_html(contents, pictures, True, pdf_with_appendix), directory / "report.pdf")
    return path
