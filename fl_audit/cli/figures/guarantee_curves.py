"""The figure of a guarantee as a function of noise, rounds and delta."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from fl_audit.array_types import Floats
from fl_audit.errors import InputError, require
from fl_audit.privacy.accounting import Accountant
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.guarantee import Guarantee, derive_guarantee

_STYLES: dict[Accountant, tuple[str, str, float]] = {
    Accountant.RDP_CLASSIC: ("-", "#12426e", 1.5),
    Accountant.RDP: ("-.", "#3c3c3c", 1.5),
    Accountant.GDP: ("-", "#e0a860", 4.0),
    # Without sampling pld lies on gdp: thin dots on a broad line show both.
    Accountant.PLD: (":", "#7a0c0c", 2.0),
}
_POINTS = 9


@dataclass(frozen=True)
class _FigureColumn:
    """A column of the figure: the quantity on the horizontal axis, and its values."""

    label: str
    values: Floats
    here: float
    guarantee: Callable[[Accountant, float], Guarantee]
    plain: bool = True


_ROWS: tuple[tuple[str, Callable[[Guarantee], float]], ...] = (
    ("epsilon (nats)", lambda guarantee: guarantee.epsilon),
    ("belief bound (probability)", lambda guarantee: guarantee.belief_bound),
    ("advantage bound", lambda guarantee: guarantee.advantage_bound_exact),
)


def guarantee_figure(guarantee: Guarantee) -> Figure:
    """Return a figure of how a guarantee of Gaussian noise depends on noise, rounds and delta.

    The rows of panels show epsilon, belief bound and advantage bound, and the columns vary noise, rounds and delta.
    There is one curve per accountant. A dot in every panel marks the given guarantee.
    """
    figure = Figure(figsize=(11, 8.5), layout="constrained")
    FigureCanvasAgg(figure)
    claim = guarantee.claim
    z = claim.noise_multiplier
    noise = "" if z is None else f"noise multiplier {z:.4g} over the sensitivity, "
    sampled = "" if claim.sampling_rate == 1 else f", sampling rate {claim.sampling_rate:g}"
    neighbours = f"neighbours: {claim.adjacency}, sensitivities: {claim.sensitivities}"
    figure.suptitle(f"{noise}{claim.rounds} rounds, delta {claim.delta:g}{sampled}\n{neighbours}")
    panels = figure.subplots(3, 3, sharex="col")
    for column, axis in enumerate(_axes(guarantee)):
        curves = {accountant: list(_curve(axis, accountant)) for accountant in _STYLES}
        here = axis.guarantee(guarantee.accountant, axis.here)
        for row, (label, read) in enumerate(_ROWS):
            panel = panels[row][column]
            for accountant, guarantees in curves.items():
                dashes, colour, width = _STYLES[accountant]
                if points := [(x, read(claimed)) for x, claimed in guarantees]:
                    panel.plot(*zip(*points, strict=True), dashes, color=colour, linewidth=width, label=str(accountant))
            panel.plot([axis.here], [read(here)], "ko", label=f"this guarantee ({guarantee.accountant})")
            panel.set_xscale("log")
            if axis.plain:
                panel.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
                panel.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
                panel.xaxis.set_minor_formatter(NullFormatter())
            panel.grid(True, color="0.88")
            if column == 0:
                panel.set_ylabel(label)
            if row == len(_ROWS) - 1:
                panel.set_xlabel(axis.label)
    figure.legend(*panels[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False)
    return figure


def _axes(guarantee: Guarantee) -> tuple[_FigureColumn, ...]:
    claim = guarantee.claim
    z = claim.noise_multiplier
    k = claim.rounds
    delta = claim.delta
    require(z is not None, "the guarantee has no Gaussian noise: accepted for a figure are guarantees with it")
    assert z is not None
    rounds = np.unique(np.maximum(1, np.round(np.geomspace(max(1, k / 10), k * 10, _POINTS))))
    deltas = np.geomspace(delta / 1e3, max(delta, min(0.4, delta * 1e2)), _POINTS)

    def by(varied: Callable[[float], Claim]) -> Callable[[Accountant, float], Guarantee]:
        return lambda accountant, x: derive_guarantee(replace(varied(x), accountant=accountant))

    return (
        _FigureColumn(
            "noise over sensitivity", np.geomspace(z / 4, z * 4, _POINTS), z, by(lambda x: claim.with_noise(x / z))
        ),
        _FigureColumn("rounds", rounds, k, by(lambda x: claim.with_rounds(int(x)))),
        _FigureColumn("delta", deltas, delta, by(lambda x: replace(claim, delta=x)), plain=False),
    )


def _curve(column: _FigureColumn, accountant: Accountant) -> Iterator[tuple[float, Guarantee]]:
    """Yield pairs of a value on the axis and the guarantee there, where the accountant can compute one."""
    for x in map(float, column.values):
        with suppress(InputError):
            yield x, column.guarantee(accountant, x)
