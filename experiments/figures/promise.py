"""The figure of a promise: epsilon, belief and advantage over noise, rounds and delta, by accountant."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from fl_audit.arrays import Floats
from fl_audit.errors import InputError, require
from fl_audit.privacy.accounting import Accountant
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.guarantee import Guarantee, guarantee

_STYLES: dict[Accountant, tuple[str, str, float]] = {
    Accountant.RDP_CLASSIC: ("-", "#12426e", 1.5),
    Accountant.RDP: ("-.", "#3c3c3c", 1.5),
    Accountant.GDP: ("-", "#e0a860", 4.0),
    # Without sampling pld lies on gdp: thin dots on a broad line show both.
    Accountant.PLD: (":", "#7a0c0c", 2.0),
}
_POINTS = 9


@dataclass(frozen=True)
class _Axis:
    """One column: what is varied, over which values."""

    label: str
    values: Floats
    here: float
    promise: Callable[[Accountant, float], Guarantee]
    plain: bool = True


_ROWS: tuple[tuple[str, Callable[[Guarantee], float]], ...] = (
    ("epsilon (nats)", lambda promise: promise.epsilon),
    ("belief bound (probability)", lambda promise: promise.belief_bound),
    ("advantage bound", lambda promise: promise.advantage_bound_exact),
)


def promise_figure(promise: Guarantee) -> Figure:
    """Return what a promise becomes with other noise, other rounds and another delta; in every panel a dot marks it.

    Three rows (epsilon, belief, advantage), three columns (noise, rounds, delta).
    """
    figure = Figure(figsize=(11, 8.5), layout="constrained")
    FigureCanvasAgg(figure)
    claim = promise.claim
    noise = "" if claim.noise_multiplier is None else f"noise multiplier {claim.noise_multiplier:.4g}, "
    sampled = "" if claim.sampling_rate == 1 else f", sampling rate {claim.sampling_rate:g}"
    neighbours = f"neighbours: {claim.adjacency}, sensitivities: {claim.sensitivities}"
    figure.suptitle(f"{noise}{claim.rounds} rounds, delta {claim.delta:g}{sampled}\n{neighbours}")
    panels = figure.subplots(3, 3, sharex="col")
    for column, axis in enumerate(_axes(promise)):
        curves = {accountant: _curve(axis, accountant) for accountant in _STYLES}
        here = axis.promise(promise.accountant, axis.here)
        for row, (label, read) in enumerate(_ROWS):
            panel = panels[row][column]
            for accountant, promises in curves.items():
                dashes, colour, width = _STYLES[accountant]
                shown = [(x, read(p)) for x, p in zip(axis.values, promises, strict=True) if p is not None]
                if shown:
                    panel.plot(*zip(*shown, strict=True), dashes, color=colour, linewidth=width, label=str(accountant))
            panel.plot([axis.here], [read(here)], "ko", label=f"this promise ({promise.accountant})")
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


def _axes(promise: Guarantee) -> tuple[_Axis, ...]:
    claim = promise.claim
    z, k, delta = claim.noise_multiplier, claim.rounds, claim.delta
    require(z is not None, "the promise has no Gaussian noise: accepted for a figure are promises with it")
    assert z is not None
    rounds = np.unique(np.maximum(1, np.round(np.geomspace(max(1, k / 10), k * 10, _POINTS))))
    deltas = np.geomspace(delta / 1e3, max(delta, min(0.4, delta * 1e2)), _POINTS)

    def by(varied: Callable[[float], Claim]) -> Callable[[Accountant, float], Guarantee]:
        return lambda accountant, x: guarantee(replace(varied(x), accountant=accountant))

    return (
        _Axis("noise multiplier", np.geomspace(z / 4, z * 4, _POINTS), z, by(lambda x: claim.with_noise(x / z))),
        _Axis("rounds", rounds, k, by(lambda x: claim.with_rounds(int(x)))),
        _Axis("delta", deltas, delta, by(lambda x: replace(claim, delta=x)), plain=False),
    )


def _curve(axis: _Axis, accountant: Accountant) -> list[Guarantee | None]:
    """Return the promise at every point, None where the accountant refuses."""

    def at(x: float) -> Guarantee | None:
        try:
            return axis.promise(accountant, x)
        except InputError:
            return None

    return [at(float(x)) for x in axis.values]
