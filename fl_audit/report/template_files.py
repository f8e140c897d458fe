"""Render the template files of reports, which hold their fixed prose; the facts come from the caller.

A template of a table has one row a line, with a bar between its cells. A template of texts has one text a line, with
its name and a bar before it. Jinja2 fills in the facts. Names of templates end in `.md`, for Flower's own command takes
no other files of prose along with an app.
"""

import math
from functools import cache
from html import escape
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from fl_audit.html_tables import Markup
from fl_audit.words import capital, limit_text, number_text, one_in, percent, plural, ratio_text, uncapital

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
    environment.filters |= {"times": ratio_text, "count": _count, "signed": _signed, "three_digits": _three_digits}
    environment.filters |= {"uncapital": uncapital, "limit": limit_text}
    environment.tests["finite"] = math.isfinite
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


def template_texts(name: str, **facts: Any) -> dict[str, str]:
    """Return the texts of a template by name; a line without a name continues the text before it."""
    texts = dict[str, str]()
    # A fact of several lines, such as the message of an error, must not pass for further texts.
    facts = {key: " ".join(fact.splitlines()) if isinstance(fact, str) else fact for key, fact in facts.items()}
    for line in template_lines(name, **facts):
        key, bar, text = f"{line} ".partition(_BAR)
        if bar:
            texts[key] = text.strip()
        else:
            last = next(reversed(texts))
            texts[last] = f"{texts[last]} {line}"
    return texts


def page_part(macro: str, /, **facts: Any) -> Markup:
    """Return a piece of HTML of a page, such as its banner, from the macro of this name in the template of pages."""
    macros = _environment().get_template("page.md").module
    return Markup(getattr(macros, macro)(**facts))


def _text(text: str) -> str:
    return text if isinstance(text, Markup) else escape(text, quote=False)


def _attribute(text: str) -> str:
    return text if isinstance(text, Markup) else escape(text)


def _count(number: float) -> str:
    return f"{number:,.0f}"


def _signed(number: float) -> str:
    return f"{number:+.3f}" if abs(number) >= 0.001 or number == 0 else f"{number:+.2g}"


def _three_digits(number: float) -> str:
    """Return a number with three digits, or those that tell it from 1, such as a correlation of 0.99998."""
    text = number_text(float(number), 3)
    if abs(number) == 1 or text not in ("1", "-1"):
        return text
    return f"{'-' * (number < 0)}{ratio_text(abs(number))}".rstrip("0").removesuffix(".")
