"""Types of parameters that share a line of a docstring, for mkdocstrings."""

from collections.abc import Mapping
from typing import Any

import griffe


class OwnAnnotations(griffe.Extension):
    """Gives every parameter its own annotation: griffe gives those of a line such as `low, high` that of the first."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        """Mend the docstring of a function; called by griffe."""
        _mend(func, {one.name: one.annotation for one in func.parameters})

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Mend the docstring of a class, whose parameters are its fields; called by griffe."""
        _mend(cls, {name: one.annotation for name, one in cls.attributes.items()})


def _mend(documented: griffe.Function | griffe.Class, annotations: Mapping[str, Any]) -> None:
    if documented.docstring is None:
        return
    # It may never be shown, so nothing is said of it: of named tuples, for one, griffe knows no parameters.
    sections = documented.docstring.parse(warnings=False)
    documented.docstring.__dict__["parsed"] = sections
    for section in sections:
        if isinstance(section, griffe.DocstringSectionParameters):
            for parameter in section.value:
                parameter.annotation = annotations.get(parameter.name, parameter.annotation)
