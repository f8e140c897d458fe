"""One-line error messages about a configuration, which name the key, its value, and the accepted values."""

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from fl_audit.user_modules import meant_name
from fl_audit.value_checks import in_percent
from fl_audit.words import name_list, phrase_list

_LONGEST_SHOWN = 60
_LARGEST_SHOWN = 10**20

_Schema = Mapping[str, Any]


def first_problem(error: ValidationError, model: type[BaseModel], missing: str) -> str:
    """Return a one-line message about the first problem that pydantic found in a configuration."""
    problems = error.errors(include_url=False)
    # Of a choice that is open to the user's own, what is wrong with the user's own says more than the list of ours.
    problem = next((problem for problem in problems if problem["type"] == "own"), problems[0])
    key_path = list(_keys(problem["loc"]))
    location = ".".join(key_path)
    match problem["type"]:
        case "extra_forbidden":
            names = list(_section(model, key_path).get("properties", {}))
            nearest = get_close_matches(key_path[-1], names, n=1, cutoff=0.0)[0]
            accepted = name_list(names)
            return (
                f"configuration key {shortened_toml(location)} is unknown: nearest is {nearest!r}, accepted are "
                f"{accepted}"
            )
        case "missing":
            return f"configuration section [{location}] is missing: {missing}"
        case "value_error":
            return f"configuration section [{location}]: {problem['msg'].removeprefix('Value error, ')}"
        case _:
            accepted = _accepted(problem, model, key_path)
            is_own = isinstance(problem["input"], str) and "package.module:name" in accepted
            meant = meant_name(problem["input"]) if is_own else None
            here = "" if meant is None else f", here {meant!r}"
            return f"configuration {location} is {shortened_toml(problem['input'])}: {accepted}{here}"


def shortened_toml(value: object) -> str:
    """Return a value in TOML notation for an error message, shortened to at most 60 characters."""
    match value:
        case bool():
            return str(value).lower()
        case int() if abs(value) >= _LARGEST_SHOWN:
            return f"a whole number of about {int(value.bit_length() * 0.30103) + 1} digits"
        case list() | tuple():
            return _shortened(f"[{', '.join(shortened_toml(item) for item in value)}]")
        case dict():
            return _shortened("{" + ", ".join(f"{key} = {shortened_toml(item)}" for key, item in value.items()) + "}")
        case str():
            return _shortened(repr(value))
        case _:
            return _shortened(str(value))


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN - 3]}..."


def _accepted(problem: ErrorDetails, model: type[BaseModel], key_path: Sequence[str]) -> str:
    if problem["type"] in ("model_type", "model_attributes_type", "dict_type"):
        return f"accepted is a section of settings, which starts with the line [{'.'.join(key_path)}]"
    section = _section(model, key_path)
    # A section that takes any name has one schema for all of them.
    schema = section.get("properties", {}).get(key_path[-1]) or section.get("additionalProperties") or {}
    described = accepted_values(schema, model.model_json_schema())
    # Values with rules of their own say themselves what is accepted.
    if not described or problem["type"] in _RULES_OF_THEIR_OWN:
        return problem["msg"]
    # The share that was meant where a number below 1 is asked for, and percent were given.
    value = problem["input"]
    limit = problem.get("ctx", {}).get("lt")
    share = in_percent(value) if limit == 1 and isinstance(value, int | float) else ""
    return f"accepted {'is' if described.startswith('text') else 'are'} {described}{share}"


def accepted_values(schema: Mapping[str, Any], whole: Mapping[str, Any]) -> str:
    """Return a description of the values that a JSON schema accepts, such as "whole numbers from 1".

    The text is empty if the type of the schema has no description.
    """
    return _alternatives(_described(schema, whole))


def _alternatives(described: Iterator[str]) -> str:
    alternatives = list(dict.fromkeys(described))
    return (", or " if any(" and " in alternative for alternative in alternatives) else " or ").join(alternatives)


_RULES_OF_THEIR_OWN = ("neighbour", "own", "refused_sampling")


def _keys(location: Sequence[int | str]) -> Iterator[str]:
    """Yield the configuration keys in an error's location, without list indices and names of types."""
    for depth, key in enumerate(location):
        of_type = "[" in str(key) or key in ("bool", "int", "float", "str")
        if isinstance(key, str) and (depth < 2 or not of_type):
            yield key


def _section(model: type[BaseModel], key_path: Sequence[str]) -> _Schema:
    """Return the JSON schema of the section that contains a setting; `key_path` holds the keys on the way to it."""
    schema: _Schema = model.model_json_schema()
    whole = schema
    for key in key_path[:-1]:
        schema = resolved(schema.get("properties", {}).get(key, {}), whole)
    return schema


def resolved(schema: Mapping[str, Any], whole: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the definition to which a JSON schema refers by `$ref`, or the schema itself if it has no `$ref`."""
    return dict(whole["$defs"][str(schema["$ref"]).rpartition("/")[2]]) if "$ref" in schema else schema


def _described(schema: _Schema, whole: _Schema) -> Iterator[str]:
    """Yield a description of each alternative that a JSON schema accepts."""
    schema = resolved(schema, whole)
    for choice in schema.get("anyOf", ()):
        yield from _described(choice, whole)
    values = schema.get("enum") or ([schema["const"]] if "const" in schema else [])
    if values:
        yield phrase_list(map(repr, values))
        return
    match schema.get("type"):
        case "boolean":
            yield "true and false"
        case "integer":
            yield f"whole numbers{_range(schema)}"
        case "number":
            yield f"finite numbers{_range(schema)}"
        case "string":
            yield "'package.module:name' of your own" if "pattern" in schema else "text in quotation marks"
        case "array":
            yield f"lists of {_alternatives(_described(schema.get('items', {}), whole))}"
        case _:  # a schema of another type is described by what it refers to
            return


def _range(schema: _Schema) -> str:
    ends = (("exclusiveMinimum", "above"), ("minimum", "from"), ("exclusiveMaximum", "below"), ("maximum", "to"))
    ends_given = [(word, schema[key]) for key, word in ends if key in schema]
    is_long = {end: end != int(end) or abs(end) >= _LARGEST_SHOWN for _, end in ends_given}
    phrases = [f"{word} {f'{end:g}' if is_long[end] else int(end)}" for word, end in ends_given]
    return f" {' '.join(phrases).replace(' below', ' and below')}" if phrases else ""
