"""Pages of the site from the notebooks: cells as they stand, with the outputs that are stored in them."""

import base64
from pathlib import Path
from typing import Any

import nbformat


def write_pages(directory: Path) -> None:
    """Write a page, and its pictures, beside every notebook of a directory."""
    for path in sorted(directory.glob("*.ipynb")):
        text, pictures = page_of(path)
        path.with_suffix(".md").write_text(text, encoding="utf-8")
        for name, picture in pictures.items():
            path.with_name(name).write_bytes(picture)


def page_of(path: Path) -> tuple[str, dict[str, bytes]]:
    """Return a notebook as Markdown, and the pictures that it shows by name."""
    cells = nbformat.read(path, as_version=4).cells  # type: ignore[no-untyped-call]
    parts: list[str] = []
    pictures: dict[str, bytes] = {}
    for cell in cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        parts += [_shown(output, f"{path.stem}-{len(pictures) + 1}.png", pictures) for output in cell.outputs]
    link = f"*This page is the notebook [{path.name}]({path.name}), with its outputs.*"
    title, *further_parts = parts
    return "\n\n".join([title, link, *further_parts]) + "\n", pictures


def _shown(output: Any, name: str, pictures: dict[str, bytes]) -> str:
    """Return an output as Markdown, the best of its forms; a picture goes among the pictures."""
    if output.output_type == "stream":
        return f"```text\n{output.text.rstrip()}\n```"
    data = output.data
    if "image/png" in data:
        pictures[name] = base64.b64decode(data["image/png"])
        return f"![Figure of the cell above]({name})"
    if "text/html" in data:
        # A blank line would end the block of HTML.
        return "\n".join(line for line in data["text/html"].splitlines() if line.strip())
    return f"```text\n{data['text/plain']}\n```"
