"""The command `datasets`, which lists data sets."""

from fl_audit.cli import options
from fl_audit.data.catalogue import available_datasets, is_found
from fl_audit.runs.terminal import print_table


def datasets(data_dir: options.DataDirOption = None, as_json: options.JsonOption = False) -> None:
    """List the data sets that a configuration can name."""
    directory = str(data_dir.absolute()) if data_dir else None
    is_found_by_entry = {entry: is_found(entry.name, directory) for entry in available_datasets()}
    if as_json:
        rows = [entry._asdict() | {"found": is_here} for entry, is_here in is_found_by_entry.items()]
        options.print_json({"datasets": rows})
        return
    cells = []
    for entry, is_here in is_found_by_entry.items():
        here = "built in" if not entry.needs_files else "found" if is_here else "needs files"
        cells.append((entry.name, entry.description, here))
    print_table(("name", "what it is", "here"), cells)
