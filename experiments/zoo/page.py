"""Sharp edges of federated DP, as one page of Markdown: every animal of the zoo, ranked by how much it tells."""

from collections.abc import Mapping

from experiments.zoo.animal import Animal
from experiments.zoo.hunt import TrialRow

_HEAD = """# Sharp edges of federated DP

Pitfalls of private federated training, each played as a mechanism of the zoo and held to the promise that its author
would make. They are ranked by how much they tell: by how far the share of games that were guessed right passes the
largest share that the promise allows. The bounds on epsilon assume nothing of the mechanism; they end where so many
games can prove no more. Each is hunted as `fl-audit strategy --quick` does it, and as it does without `--quick` where
that finds nothing; in 95 % of such hunts a claim that holds is not called violated. All of it is made by
`python -m experiments.zoo --out DIR`, and every pitfall alone by the command below its name.
"""


def page(caught: Mapping[Animal, TrialRow], honest: Mapping[str, TrialRow]) -> str:
    """Return the page, the most telling animal first.

    Parameters
    ----------
    caught, honest
        What came of every animal, and of the honest mechanisms by name.
    """
    ranked = dict(sorted(caught.items(), key=lambda entry: entry[1].allowed_right - entry[1].right))
    sections = (line for animal, row in ranked.items() for line in _section(animal, row))
    return "\n".join([_HEAD, *_table(ranked, honest), *sections]) + "\n"


def told(row: TrialRow) -> str:
    """Return the bound of a row beside what its claim allows."""
    return f"{row.bound:.2f} of {row.allowed:.2f} at delta {row.delta:.2g}" if row.games else "-"


def _table(caught: Mapping[Animal, TrialRow], honest: Mapping[str, TrialRow]) -> list[str]:
    lines = [
        "| pitfall | claim | guessed right, of allowed | epsilon at least, of claimed | told by | honest twin |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for animal, row in caught.items():
        twin = honest.get(animal.twin.name)
        lines.append(
            f"| [{animal.name}](#{animal.name}) | {row.claim} | {row.right:.1%} of {row.allowed_right:.1%} "
            f"| {told(row)} | {row.game}: {row.group} | {animal.twin.name}: {twin.verdict if twin else 'not played'} |"
        )
    return lines


def _section(animal: Animal, row: TrialRow) -> list[str]:
    return [
        "",
        f"## {animal.name}",
        "",
        animal.wrong,
        "",
        f"    python -m experiments.zoo --only {animal.name}",
        "",
        f"* Seen: {animal.source}",
        f"* Mend: {animal.mend}",
        f"* Told by: {row.game}, {row.group}; {row.right:.1%} of {row.games} games guessed right, the claim allows "
        f"{row.allowed_right:.1%}.",
    ]
