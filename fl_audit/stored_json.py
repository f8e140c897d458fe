"""JSON files of a run, read with one line for whatever is wrong with them."""

import hashlib
import json
from pathlib import Path
from typing import Any

from fl_audit.errors import InputError, require

SCHEMA = 1  # of `summary.json`


def read_json(path: Path) -> Any:
    """Read a JSON file of a run; `InputError` if it is missing or damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(f"{path} is missing: accepted is a directory that 'fl-audit run' made") from error
    except IsADirectoryError as error:
        raise InputError(f"{path} is a directory: accepted is a file that 'fl-audit run' made") from error
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error


SEALS = "seals.json"
"""In a run directory: by path, the SHA-256 digests that a file of it may have, which are two while it is written."""


def require_sealed(directory: Path) -> None:
    """Refuse a run of which a file is not what the run wrote: configuration, provenance or summary.

    This finds edits and damage, not the forgery of somebody who writes the seals anew. A run without seals, of an
    earlier version, is accepted.

    Raises
    ------
    InputError
        If one was changed.
    """
    path = directory / SEALS
    if not path.exists():
        return
    seals = read_json(path)
    well_formed = isinstance(seals, dict) and all(isinstance(digests, list) for digests in seals.values())
    require(well_formed, f"{path} is damaged: it holds no digests of files of a run")
    for name, digests in seals.items():
        place = directory / name
        if place.is_file() and hashlib.sha256(place.read_bytes()).hexdigest() not in digests:
            raise InputError(
                f"{place} is not what the run wrote: it was edited or damaged; bring the original back, or carry the "
                "run out anew"
            )


def read_summary(directory: Path) -> dict[str, Any]:
    """Read every number of a finished run, by finding; `InputError` if there is none, or its summary is damaged."""
    path = directory / "summary.json"
    require(path.is_file(), f"{directory} holds no finished run: accepted are directories with a summary.json")
    found = read_json(path)
    if not isinstance(found, dict) or found.get("schema") != SCHEMA or not {"verdict", "guarantee"} <= found.keys():
        raise InputError(f"{path} is no summary of a run (schema {SCHEMA})")
    require_sealed(directory)
    return found
