"""Excel workbooks as small as they can be, written for tests."""

import datetime
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

_SPACE = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
_RELATED = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_KIND = "application/vnd.openxmlformats-officedocument.spreadsheetml"
_DAY_0 = datetime.date(1899, 12, 30)


def write_workbook(path: Path, sheets: Mapping[str, Sequence[Sequence[object]]]) -> None:
    """Write rows of text, numbers, truth values, dates and None into sheets of these names."""
    names = list(sheets)
    numbered = list(enumerate(names, start=1))
    entries = {
        "[Content_Types].xml": f'<Types xmlns="{_PACKAGE}/content-types"><Default Extension="rels" '
        'ContentType="application/vnd.openxmlformats-package.relationships+xml"/><Default Extension="xml" '
        f'ContentType="application/xml"/><Override PartName="/xl/workbook.xml" ContentType="{_KIND}.sheet.main+xml"/>'
        f'<Override PartName="/xl/styles.xml" ContentType="{_KIND}.styles+xml"/>'
        + "".join(
            f'<Override PartName="/xl/worksheets/sheet{number}.xml" ContentType="{_KIND}.worksheet+xml"/>'
            for number, _ in numbered
        )
        + "</Types>",
        "_rels/.rels": _relations([("officeDocument", "xl/workbook.xml")]),
        "xl/workbook.xml": f'<workbook {_SPACE} xmlns:r="{_RELATED}"><sheets>'
        + "".join(f'<sheet name="{escape(name)}" sheetId="{number}" r:id="rId{number}"/>' for number, name in numbered)
        + "</sheets></workbook>",
        "xl/_rels/workbook.xml.rels": _relations(
            [*(("worksheet", f"worksheets/sheet{number}.xml") for number, _ in numbered), ("styles", "styles.xml")]
        ),
        # The second format is that of dates.
        "xl/styles.xml": f'<styleSheet {_SPACE}><cellXfs count="2"><xf numFmtId="0"/><xf numFmtId="14"/></cellXfs>'
        "</styleSheet>",
        **{f"xl/worksheets/sheet{number}.xml": _sheet(sheets[name]) for number, name in numbered},
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in entries.items():
            archive.writestr(name, f'<?xml version="1.0" encoding="UTF-8" standalone="yes"?>{content}')


def _relations(targets: Iterable[tuple[str, str]]) -> str:
    relationships = "".join(
        f'<Relationship Id="rId{number}" Type="{_RELATED}/{kind}" Target="{target}"/>'
        for number, (kind, target) in enumerate(targets, start=1)
    )
    return f'<Relationships xmlns="{_PACKAGE}/relationships">{relationships}</Relationships>'


def _sheet(rows: Sequence[Sequence[object]]) -> str:
    lines = []
    for number, row in enumerate(rows, start=1):
        cells = "".join(_cell(f"{chr(65 + column)}{number}", value) for column, value in enumerate(row))
        lines.append(f'<row r="{number}">{cells}</row>')
    return f"<worksheet {_SPACE}><sheetData>{''.join(lines)}</sheetData></worksheet>"


def _cell(cell_reference: str, value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return f'<c r="{cell_reference}" t="b"><v>{int(value)}</v></c>'
        case int() | float():
            return f'<c r="{cell_reference}"><v>{value!r}</v></c>'
        case datetime.date():
            return f'<c r="{cell_reference}" s="1"><v>{(value - _DAY_0).days}</v></c>'
        case _:
            return (
                f'<c r="{cell_reference}" t="inlineStr"><is><t xml:space="preserve">{escape(str(value))}</t></is></c>'
            )
