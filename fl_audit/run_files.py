"""Read the JSON files of a run directory."""

import json
from pathlib import Path
from typing import Any

from fl_audit.errors import InputError, require
from fl_audit.ordinary_files import read_text_file

SCHEMA = 1  # of `summary.json`


def read_json(path: Path) -> Any:
    """Return the value in a JSON file of a run; raise `InputError` if the file is missing or damaged."""
    try:
        return json.loads(read_text_file(path), parse_constant=_refuse_constant)
    except FileNotFoundError as error:
        raise InputError(f"{path} is missing: accepted is a directory that 'fl-audit run' made") from error
    except IsADirectoryError as error:
        raise InputError(f"{path} is a directory: accepted is a file that 'fl-audit run' made") from error
    except InputError:
        raise
    except UnicodeDecodeError as error:  # its text repeats a byte of a file that may be secret
        raise InputError(f"{path} cannot be read: it is no text in UTF-8") from error
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error


def _refuse_constant(name: str) -> float:
    """Raise `ValueError` for NaN and Infinity, which JSON does not have and no run writes."""
    raise ValueError(f"it has {name}, which is no number in JSON")


def read_summary(directory: Path) -> dict[str, Any]:
    """Return the summary of a finished run; raise `InputError` if it is missing or damaged."""
    path = directory / "summary.json"
    require(path.is_file(), f"{directory} holds no finished run: accepted are directories with a summary.json")
    content = read_json(path)
    if (
        not isinstance(content, dict)
        or content.get("schema") != SCHEMA
        or not {"verdict", "guarantee"} <= content.keys()
    ):
        raise InputError(f"{path} is no summary of a run (schema {SCHEMA})")
    return content
