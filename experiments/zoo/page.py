"""The zoo as one page of Markdown: every animal with what is wrong, where it was seen, what told, and its mend."""

from collections.abc import Mapping
from pathlib import Path

from experiments.zoo.animal import Animal
from experiments.zoo.hunt import Row
from fl_audit.whole_files import whole_file


def page(caught: Mapping[Animal, Row], honest: Mapping[str, Row]) -> str:
    """Return the page.

    Parameters
    ----------
    caught
        What came of every animal.
    honest
        What came of the honest mechanisms, by name.
    """
    head = ["# The zoo of broken mechanisms", "", *_table(caught, honest)]
    return "\n".join([*head, *(line for animal, row in caught.items() for line in _section(animal, row))]) + "\n"


def write_page(caught: Mapping[Animal, Row], honest: Mapping[str, Row], path: Path) -> None:
    """Write the page, whole or not at all."""
    with whole_file(path) as temporary:
        temporary.write_text(page(caught, honest), encoding="utf-8")


def told(row: Row) -> str:
    """Return the bound of a row beside what its claim allows."""
    return f"{row.bound:.2f} of {row.allowed:.2f} at delta {row.delta:.2g}" if row.games else "-"


def _table(caught: Mapping[Animal, Row], honest: Mapping[str, Row]) -> list[str]:
    lines = [
        "| animal | claim | verdict | told by | epsilon at least, of claimed | seconds | honest twin |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for animal, row in caught.items():
        twin = honest.get(animal.twin.name)
        lines.append(
            f"| {animal.name} | {row.claim} | {row.verdict} | {row.game}: {row.group} | {told(row)} | "
            f"{row.seconds:.0f} | {animal.twin.name}: {twin.verdict if twin else 'not played'} |"
        )
    return lines


def _section(animal: Animal, row: Row) -> list[str]:
    return [
        "",
        f"## {animal.name}",
        "",
        animal.wrong,
        "",
        f"* Seen: {animal.source}",
        f"* Mend: {animal.mend}",
        f"* Told by: {row.game}, {row.group}; {row.right:.1%} of {row.games} games guessed right, the claim allows "
        f"{row.allowed_right:.1%}.",
    ]
