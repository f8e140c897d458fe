"""Render the template files of reports, which hold their fixed prose; the facts come from the caller.

A template of a table has one row a line, with a bar between its cells. Jinja2 fills in the facts. Names of templates
end in `.md`, for Flower's own command takes no other files of prose along with an app.
"""

from functools import cache
from html import escape
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from fl_audit.html_tables import Markup
from fl_audit.words import capital, number_text, one_in, percent, plural

_BAR = " | "


@cache
def _environment() -> Environment:
    """Return the environment of the templates; a fact that a template names and nobody gives is an error."""
    environment = Environment(
        loader=PackageLoader("fl_audit.report", "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # texts are shown on terminals too; what is HTML names `t` or `e` for each text in it
    )
    environment.filters |= {"percent": percent, "number": number_text, "one_in": one_in, "capital": capital}
    environment.filters |= {"t": _text, "e": _attribute}
    environment.globals["plural"] = plural
    return environment


def template_lines(name: str, **facts: Any) -> list[str]:
    """Return the lines of a template with facts filled in, without empty ones."""
    text = _environment().get_template(name).render(facts)
    return [line.strip() for line in text.splitlines() if line.strip()]


def template_table(name: str, **facts: Any) -> tuple[tuple[str, ...], ...]:
    """Return the rows of a table from its template, each as a tuple of cells."""
    return tuple(tuple(line.split(_BAR)) for line in template_lines(name, **facts))


def page_part(macro: str, /, **facts: Any) -> Markup:
    """Return a piece of HTML of a page, such as its banner, from the macro of this name in the template of pages."""
    macros = _environment().get_template("page.md").module
    return Markup(getattr(macros, macro)(**facts))


def _text(text: str) -> str:
    return text if isinstance(text, Markup) else escape(text, quote=False)


def _attribute(text: str) -> str:
    return text if isinstance(text, Markup) else escape(text)
