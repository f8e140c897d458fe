"""What usually mends a leak, by the kind of game that shows it."""

from collections.abc import Mapping

from strategies.games.kinds import BY_NAME, Others

_CLIP = (
    "Clip the whole update of a client, over all parameters together and before anything is averaged, to the norm that "
    "the noise is calibrated for."
)
_SENSITIVITY = (
    "Calibrate the noise to the sensitivity of this relation: the clipping norm where a unit comes or goes, twice the "
    "norm where it is exchanged. Check the denominator, and the composition over all rounds."
)
_WEIGHT = (
    "Give every client the same weight and divide by a fixed, public number; what a client says of itself must not "
    "change how others count."
)
_EVERYTHING = (
    "Clip and noise every array that is released, parameters without axes and counters included, or leave it out of "
    "the release."
)
_REFUSE = (
    "Refuse a round with a reply that is missing, not finite or of another form, or account for what is done instead."
)

_MEAN = (
    "Noise that is calibrated for a mean does not cover a median, a trimmed mean or a choice among replies: one client "
    "can move these from end to end of what the others sent. Take the plain mean of the clipped updates."
)

_USUAL: Mapping[str, str] = {
    "removed": _SENSITIVITY,
    "opposite": _SENSITIVITY,
    "replaced": _SENSITIVITY,
    "huge": _CLIP,
    "huge in every tensor": _CLIP,
    "huge and opposite": f"{_CLIP} {_SENSITIVITY}",
    "removed among opposite ones": f"Clip every record by itself, and divide by a fixed, public number. {_SENSITIVITY}",
    "zero": "Treat an update of exactly zero like any other one: divide by the norm only where it is above the limit.",
    "all zero": "Treat updates of exactly zero like any others: divide by the norm only where it is above the limit.",
    "tiny": f"Never scale an update up to a norm. {_CLIP}",
    "alone": _SENSITIVITY,
    "nothing": _WEIGHT,
    "many examples": _WEIGHT,
    "more examples than true": _WEIGHT,
    "metrics": "Release no metric that was not clipped, noised and accounted for; keep the others on the server.",
    "evaluation": "Evaluate on data of the server, or release no number of an evaluation that was not noised.",
    "parameter without axes": _EVERYTHING,
    "parameter of whole numbers": _EVERYTHING,
    "switches": _EVERYTHING,
    "running statistics": _EVERYTHING,
    "half precision": "Sum and add the noise in double precision, and round last, to a grid that is fixed beforehand.",
    "alternating": "Draw new noise in every round, and compose the rounds.",
    "once": "Draw new noise in every round, and compose the rounds.",
    "missing reply": _REFUSE,
    "not a number": _REFUSE,
    "permuted keys": "Match tensors by their names, never by their order.",
    "half-precision reply": _REFUSE,
    "wrong shape": _REFUSE,
}

MENDS: Mapping[str, str] = {
    name: _USUAL[kind.plain_name] if kind.stage.others is Others.IDENTICAL else _MEAN for name, kind in BY_NAME.items()
}
"""For every kind of game, by its name."""
