"""Writing of a report's files, each whole or not at all."""

from pathlib import Path

from fl_audit.report.finding import RunContents
from fl_audit.report.page.html import render_html
from fl_audit.report.page.pdf import write_pdf
from fl_audit.report.page.pictures import draw_all
from fl_audit.whole_files import whole_file


def write_report(contents: RunContents, directory: Path, pdf_with_appendix: bool = False) -> Path:
    """Write `figures/<name>.png`, `report.html` and `report.pdf` into a directory and return the path of the page.

    Where no PDF can be written (`pdf.hindrance`) there is none afterwards.

    Everything is drawn before the first file is written. Each file gets a temporary name in its own directory and is
    then moved into place, so that a reader never finds half of one.

    Parameters
    ----------
    contents, directory
        What the report is made of, and where to write: made where it is missing, a report that is there is replaced.
    pdf_with_appendix
        Whether the PDF holds the appendix too, and not the page alone.
    """
    pictures = draw_all(contents)
    page = render_html(contents, pictures)
    for picture in pictures:
        with whole_file(directory / "figures" / f"{picture.name}.png") as file:
            file.write_bytes(picture.png)
    path = directory / "report.html"
    with whole_file(path) as file:
        file.write_text(page, encoding="utf-8")
    write_pdf(render_html(contents, pictures, True, pdf_with_appendix), directory / "report.pdf")
    return path
