"""The command `datasets`, which lists data sets."""

from fl_audit.cli import options
from fl_audit.data.catalogue import available_datasets, is_found
from fl_audit.runs.terminal import print_table


def datasets(data_dir: options.DataDirOption = None, as_json: options.JsonOption = False) -> None:
    """List the data sets that a configuration can name."""
    directory = str(data_dir.absolute()) if data_dir else None
    entries = available_datasets()
    is_here = {name: is_found(name, directory) for name in entries}
    if as_json:
        rows = [
            {"name": name, "description": entry.summary, "needs_files": entry.needs_files, "found": is_here[name]}
            for name, entry in entries.items()
        ]
        options.print_json({"datasets": rows})
        return
    cells = []
    for name, entry in entries.items():
        here = "built in" if not entry.needs_files else "found" if is_here[name] else "needs files"
        cells.append((name, entry.summary, here))
    print_table(("name", "what it is", "here"), cells)
