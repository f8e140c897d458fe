"""Parameters as the reference shows them: those that share a line of a docstring, and fields described beside them."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import griffe


class OwnAnnotations(griffe.Extension):
    """Gives every parameter its own annotation: griffe gives those of a line such as `low, high` that of the first."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        """Fix the docstring of a function; called by griffe."""
        _fix(func, {parameter.name: parameter.annotation for parameter in func.parameters})

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Fix the docstring of a class, whose parameters are its fields; called by griffe."""
        _fix(cls, {name: attribute.annotation for name, attribute in cls.attributes.items()})
        described = _beside(cls)
        if cls.docstring is not None and described:
            fields = [
                griffe.DocstringParameter(
                    name, description=text, annotation=cls.attributes[name].annotation, value=cls.attributes[name].value
                )
                for name, text in described.items()
            ]
            cls.docstring.__dict__["parsed"].insert(1, griffe.DocstringSectionParameters(fields))


def _beside(cls: griffe.Class) -> dict[str, str]:
    """Return what comments say of the fields of a class, beside a field or above it."""
    lines = Path(str(cls.filepath)).read_text(encoding="utf-8").splitlines()
    sentences = dict[str, str]()
    for name, field in cls.attributes.items():
        if field.lineno is None or field.filepath != cls.filepath or "property" in field.labels or name in sentences:
            continue
        above, at = list[str](), field.lineno - 1
        while at > 0 and (comment := re.fullmatch(r" +# (.*)", lines[at - 1])):
            above.insert(0, comment[1])
            at -= 1
        text = " ".join(above)
        shared = re.match(r"((?:`\w+`, )*`\w+`): ", text)
        if shared:
            sentences |= dict.fromkeys(re.findall(r"`(\w+)`", shared[1]), _sentence(text[shared.end() :]))
        elif text:
            sentences[name] = _sentence(text)
        elif beside := re.search(r"  # (.*)", lines[field.lineno - 1]):
            sentences[name] = _sentence(beside[1])
    return sentences


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}".rstrip(".") + "."


def _fix(documented: griffe.Function | griffe.Class, annotations: Mapping[str, Any]) -> None:
    if documented.docstring is None:
        return
    # It may never be shown, so nothing is said of it: of named tuples, for one, griffe knows no parameters.
    sections = documented.docstring.parse(warnings=False)
    documented.docstring.__dict__["parsed"] = sections
    for section in sections:
        if isinstance(section, griffe.DocstringSectionParameters):
            for parameter in section.value:
                parameter.annotation = annotations.get(parameter.name, parameter.annotation)
