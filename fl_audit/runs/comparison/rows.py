"""The rows of a comparison: the values of each finished run or other audit, read from its summary."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fl_audit.errors import require
from fl_audit.run_files import read_summary

ADVANTAGE = "Advantage of the insider"
ACCURACY = "Test accuracy"
SHOWN = "Epsilon shown at least (nats)"
STAR = "Epsilon*, mean over trials (nats)"
ATTACK = "Lower bound on epsilon, "
"""Names of findings as reports write them; the latter is the beginning of the name of an attack's bound."""
_AT_LEAST = ("lower_bound", "epsilon_lower", "epsilon_at_least")
"""Keys of the lower bound on epsilon in results of strategies and apps, of running federations, of released models."""
_RUN = "run"
_OF_LINE = ("epsilon", "delta", "accountant", "adjacency", "unit", "gdp_mu", "gdp_regret")
"""The names of `guarantee_line.guarantee_values`; written out, because the accountants take a second to import."""


@dataclass(frozen=True)
class RunRow:
    """The values of one run or other audit in a comparison; a value that it does not have is None."""

    run: str  # name of the run's directory
    verdict: str  # the verdict on the guarantee
    belief: float | None  # bound on the insider's belief, which is exceeded with probability delta at most
    epsilon: float | None  # epsilon of the guarantee as differential privacy; None without a guarantee
    delta: float | None  # delta of the guarantee as differential privacy; None without a guarantee
    noise_multiplier: float | None  # noise multiplier of the guarantee, over the sensitivity
    adjacency: str | None  # relation between neighbours, such as `replace-record`
    guarantee: Mapping[str, Any] | None  # values of the guarantee by name, as commands print it; None without one
    # Numbers on the first page of the report, by name: each with its interval, the claimed value and their relation.
    findings: Mapping[str, Mapping[str, Any]]
    headline: tuple[str, float | None] | None = None  # metric that stands for how good the models are, and its value
    kind: str = _RUN  # kind of what was audited, as in `AuditedKind`
    is_training: bool = False  # whether the run is an ordinary training, which nobody asked to audit
    epsilon_star_cut: float | None = None  # cut c of Epsilon*, which ignores error rates below c and above 1 - c

    def value(self, name: str) -> float | None:
        """Return a number on the first page of the run's report, such as "Test accuracy"; None if it is not there."""
        return self.findings.get(name, {}).get("value")

    @property
    def outcome(self) -> str:
        """The verdict in words; of an ordinary training, that it was trained."""
        return "trained, not audited" if self.is_training else self.verdict

    @property
    def attack(self) -> float | None:
        """The largest lower bound on epsilon among the run's membership attacks; None if there are no attacks."""
        bounds = [self.value(name) for name in self.findings if name.startswith(ATTACK)]
        return max((bound for bound in bounds if bound is not None), default=None)

    def to_json(self) -> dict[str, Any]:
        """Return the values of the run as JSON values by name."""
        advantage = self.findings.get(ADVANTAGE, {})
        return asdict(self) | {
            "shown": self.value(SHOWN),
            "advantage": advantage.get("value"),
            "advantage_bound": advantage.get("claimed"),
            "accuracy": self.value(ACCURACY),
            "headline": None if self.headline is None else dict(zip(("metric", "value"), self.headline, strict=True)),
            "epsilon_star": self.value(STAR),
            "attack": self.attack,
        }


def differences(rows: Sequence[RunRow]) -> list[str]:
    """Return a sentence for each of three settings that differs between the runs: delta, adjacency and Epsilon* cut.

    Epsilon* is the privacy risk of a released model, and ignores error rates below the cut. If one of the settings
    differs, guarantees or values of Epsilon* are not directly comparable.
    """
    differences = []
    deltas = sorted({row.delta for row in rows if row.delta is not None})
    if len(deltas) > 1:
        deltas_text = ", ".join(f"{delta:g}" for delta in deltas)
        differences.append(
            f"The deltas differ ({deltas_text}): every epsilon, belief and Epsilon* holds at the delta of its own "
            "run, and a "
            "smaller delta makes the numbers of the same training larger, so that a larger number here may be the "
            "stronger guarantee. Runs of one delta can be compared."
        )
    relations = sorted({row.adjacency for row in rows if row.adjacency is not None})
    if len(relations) > 1:
        differences.append(
            f"The neighbours differ ({', '.join(relations)}): noise is over the sensitivity, which is 2 x clipping "
            "norm where a unit is replaced, and epsilons between different neighbours say different things."
        )
    cuts = sorted({row.epsilon_star_cut for row in rows if row.epsilon_star_cut is not None})
    if len(cuts) > 1:
        deltas_text = ", ".join(f"{cut:g}" for cut in cuts)
        differences.append(
            f"The cuts of Epsilon* differ ({deltas_text}): it leaves out error rates beyond the cut of its own "
            "run, which is "
            "another one where losses are counted than where normals fit them, so that its values say different things."
        )
    return differences


def rows(directories: Sequence[Path]) -> list[RunRow]:
    """Return the values of several finished runs or other audits, one row per directory, in the same order.

    Raises `InputError` if there are fewer than two directories, if a directory is given twice, or if one has no
    summary.
    """
    problem = f"{len(directories)} run to compare: accepted are at least two directories of runs or other audits"
    require(len(directories) >= 2, problem)
    paths = [directory.resolve() for directory in directories]
    for number, directory in enumerate(directories):
        require(paths[number] not in paths[:number], f"{directory} is named twice: accepted are different runs")
    # The last part of a directory names its run, or all of it where two end alike.
    ends = [path.name for path in paths]
    names = [end if ends.count(end) == 1 else str(directory) for end, directory in zip(ends, directories, strict=True)]
    return [_row(name, read_summary(directory)) for name, directory in zip(names, directories, strict=True)]


def _row(name: str, summary: Mapping[str, Any]) -> RunRow:
    guarantee = summary.get("guarantee") or {}
    return RunRow(
        run=name,
        verdict=str(summary.get("verdict")),
        belief=guarantee.get("belief_bound"),
        epsilon=guarantee.get("epsilon"),
        delta=guarantee.get("delta"),
        noise_multiplier=guarantee.get("noise_multiplier"),
        adjacency=guarantee.get("adjacency"),
        guarantee={name: guarantee.get(name) for name in _OF_LINE} if guarantee.get("adjacency") else None,
        findings=_findings(summary),
        headline=_headline(summary),
        kind=summary.get("kind", _RUN),
        is_training=bool(summary.get("shown_as_training")),
        epsilon_star_cut=(summary.get("epsilon_star") or {}).get("cut"),
    )


def _findings(summary: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the findings of a run by name; of another audit, whose findings have no names, its lower bound."""
    if summary.get("kind", _RUN) == _RUN:
        return {entry["name"]: entry for entry in summary.get("findings", [])}
    model = summary.get("model")
    numbers = (dict(model) if isinstance(model, Mapping) else {}) | dict(summary)
    bound = next((numbers[key] for key in _AT_LEAST if numbers.get(key) is not None), None)
    if bound is None:
        return {}
    return {SHOWN: {"name": SHOWN, "value": bound, "claimed": None, "reading": None, "is_share": False}}


def _headline(summary: Mapping[str, Any]) -> tuple[str, float | None] | None:
    utility = summary.get("utility") or {}
    name = utility.get("headline")
    return None if name is None else (str(name), (utility.get("metrics") or {}).get(name))
