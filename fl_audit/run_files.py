"""Read the JSON files of a run directory, and find changes of its files by their checksums."""

import json
from pathlib import Path
from typing import Any

from fl_audit.errors import InputError, require
from fl_audit.ordinary_files import read_text_file, sha256_of

SCHEMA = 1  # of `summary.json`


def read_json(path: Path) -> Any:
    """Return the value in a JSON file of a run; raise `InputError` if the file is missing or damaged."""
    try:
        return json.loads(read_text_file(path))
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


SEALS = "seals.json"
"""File in a run directory with the SHA-256 digests that each file may have, by path: two while it is written."""


def require_sealed(directory: Path) -> None:
    """Raise `InputError` if a file of a run directory no longer has the checksum recorded by the run.

    The check finds edits and damage. It does not find missing files, or forgery by somebody who also rewrites the
    checksums. A run of an earlier version without checksums is accepted.
    """
    path = directory / SEALS
    if not path.exists():
        return
    seals = read_json(path)
    well_formed = isinstance(seals, dict) and all(isinstance(digests, list) for digests in seals.values())
    require(well_formed, f"{path} is damaged: it holds no digests of files of a run")
    for name, digests in seals.items():
        place = directory / name
        as_written = not place.is_file() or sha256_of(place) in digests
        fix = "it was edited or damaged; bring the original back, or carry the run out anew"
        require(as_written, f"{place} is not what the run wrote: {fix}")


def read_summary(directory: Path) -> dict[str, Any]:
    """Return the summary of a finished run; raise `InputError` if it is missing, edited or damaged."""
    path = directory / "summary.json"
    require(path.is_file(), f"{directory} holds no finished run: accepted are directories with a summary.json")
    found = read_json(path)
    if not isinstance(found, dict) or found.get("schema") != SCHEMA or not {"verdict", "guarantee"} <= found.keys():
        raise InputError(f"{path} is no summary of a run (schema {SCHEMA})")
    require_sealed(directory)
    return found
