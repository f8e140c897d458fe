"""The scenarios of black-box trials.

A scenario says what the target sends under D and under D', what the other clients send, and which model is trained.
"""

from fl_audit.adjacency import Relation, Unit
from fl_audit.app_audits.black_box.scenario import (
    OF_FEW_TENSORS,
    RECORDS_OF_OTHERS,
    STAGES,
    ClientContribution,
    Direction,
    ModelKind,
    OtherClientsAndModel,
    OtherContributions,
    ReplyFault,
    Scenario,
    UpdateSignSchedule,
)

HUGE = 1000.0  # norm of an update that must be clipped, as a multiple of the clipping norm

_ANY = (Unit.CLIENT, Unit.USER, Unit.RECORD)
_FIRST = ClientContribution(Direction.FIRST)

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
_CLIP_ANEW = f"Scale every update by its own length in this round, and carry no factor from round to round. {_CLIP}"
_NEW_NOISE = "Draw new noise in every round, and compose the rounds."

KINDS: tuple[Scenario, ...] = (
    Scenario(
        "removed",
        "an update at the clipping norm against none",
        _FIRST,
        units=_ANY,
        relation=Relation.ADD_REMOVE,
        fix=_SENSITIVITY,
    ),
    Scenario(
        "opposite",
        "an update at the clipping norm against its opposite",
        _FIRST,
        ClientContribution(Direction.FIRST, -1.0),
        relation=Relation.REPLACE,
        units=_ANY,
        fix=_SENSITIVITY,
    ),
    Scenario(
        "replaced",
        "an update at the clipping norm against another one",
        _FIRST,
        ClientContribution(Direction.SECOND),
        relation=Relation.REPLACE,
        units=_ANY,
        fix=_SENSITIVITY,
    ),
    Scenario(
        "huge",
        "an update of a thousand times the clipping norm against none",
        ClientContribution(Direction.FIRST, HUGE),
        is_beyond=True,
        units=_ANY,
        relation=Relation.ADD_REMOVE,
        fix=_CLIP,
    ),
    Scenario(
        "huge in every tensor",
        "an update far beyond the clipping norm in every tensor against none",
        ClientContribution(Direction.EVERY_TENSOR, HUGE),
        is_beyond=True,
        units=_ANY,
        relation=Relation.ADD_REMOVE,
        fix=_CLIP,
    ),
    Scenario(
        "huge and opposite",
        "an update of a thousand times the clipping norm against its opposite",
        ClientContribution(Direction.EVERY_TENSOR, HUGE),
        ClientContribution(Direction.EVERY_TENSOR, -HUGE),
        is_beyond=True,
        units=_ANY,
        relation=Relation.REPLACE,
        fix=f"{_CLIP} {_SENSITIVITY}",
    ),
    Scenario(
        "removed among opposite ones",
        "a record at the clipping norm against none, among others that all point away",
        _FIRST,
        others=ClientContribution(Direction.FIRST, -RECORDS_OF_OTHERS),
        units=(Unit.USER, Unit.RECORD),
        relation=Relation.ADD_REMOVE,
        fix=f"Clip every record by itself, and divide by a fixed, public number. {_SENSITIVITY}",
    ),
    Scenario(
        "zero",
        "an update at the clipping norm against one of exactly zero",
        _FIRST,
        ClientContribution(Direction.ZERO),
        fix="Treat an update of exactly zero like any other one: divide by the norm only where it is above the limit.",
    ),
    Scenario(
        "all zero",
        "an update at the clipping norm against one of exactly zero, while all others are exactly zero",
        _FIRST,
        ClientContribution(Direction.ZERO),
        others=ClientContribution(Direction.ZERO),
        fix="Treat updates of exactly zero like any others: divide by the norm only where it is above the limit.",
    ),
    Scenario(
        "tiny",
        "an update of a ten-thousandth of the clipping norm against none",
        ClientContribution(Direction.FIRST, 1e-4),
        units=_ANY,
        relation=Relation.ADD_REMOVE,
        fix=f"Never scale an update up to a norm. {_CLIP}",
    ),
    Scenario(
        "alone",
        "an update at the clipping norm against none, while nobody else changes anything",
        _FIRST,
        others=ClientContribution(),
        relation=Relation.ADD_REMOVE,
        fix=_SENSITIVITY,
    ),
    Scenario(
        "nothing",
        "no update, with another number of examples, while nobody else changes anything",
        ClientContribution(examples=11),
        others=ClientContribution(),
        fix=_WEIGHT,
    ),
    Scenario(
        "many examples",
        "an update of a client that names a thousand times as many examples against none",
        ClientContribution(Direction.FIRST, examples=10_000),
        ClientContribution(examples=10_000),
        relation=Relation.ADD_REMOVE,
        fix=_WEIGHT,
    ),
    Scenario(
        "more examples than true",
        "no update, and a thousand times as many examples named",
        ClientContribution(examples=10_000),
        fix=_WEIGHT,
    ),
    Scenario(
        "metrics",
        "no update, and another loss reported of training",
        ClientContribution(loss=5.0),
        fix="Release no metric that was not clipped, noised and accounted for; keep the others on the server.",
    ),
    Scenario(
        "parameter without axes",
        "an update of nothing but a parameter without axes, against none",
        ClientContribution(Direction.SCALAR, HUGE),
        model=ModelKind.WITH_SCALAR,
        is_beyond=True,
        fix=_EVERYTHING,
    ),
    Scenario(
        "parameter of whole numbers",
        "an update of nothing but a counter of whole numbers, against none",
        ClientContribution(Direction.COUNTER, HUGE),
        model=ModelKind.WITH_BUFFERS,
        is_beyond=True,
        fix=_EVERYTHING,
    ),
    Scenario(
        "switches",
        "an update of nothing but switches of a mask, against none",
        ClientContribution(Direction.SWITCH, HUGE),
        model=ModelKind.WITH_SWITCHES,
        is_beyond=True,
        fix=_EVERYTHING,
    ),
    Scenario(
        "running statistics",
        "an update of nothing but the running statistics of a normalisation, against none",
        ClientContribution(Direction.RUNNING, HUGE),
        model=ModelKind.WITH_BUFFERS,
        is_beyond=True,
        fix=_EVERYTHING,
    ),
    Scenario(
        "half precision",
        "an update at the clipping norm against none, in a model of half precision",
        _FIRST,
        model=ModelKind.HALF,
        relation=Relation.ADD_REMOVE,
        fix="Sum and add the noise in double precision, and round last, to a grid that is fixed beforehand.",
    ),
    Scenario(
        "alternating",
        "an update whose sign changes from round to round against none",
        _FIRST,
        schedule=UpdateSignSchedule.ALTERNATING,
        relation=Relation.ADD_REMOVE,
        least_rounds=2,
        units=_ANY,
        fix=_NEW_NOISE,
    ),
    Scenario(
        "once",
        "an update in the first round alone against none",
        _FIRST,
        schedule=UpdateSignSchedule.ONCE,
        relation=Relation.ADD_REMOVE,
        least_rounds=2,
        units=_ANY,
        fix=_NEW_NOISE,
    ),
    Scenario(
        "missing reply",
        "an update at the clipping norm, against those of all others, and no reply at all",
        ClientContribution(Direction.SECOND, -1.0),
        ClientContribution(form=ReplyFault.MISSING),
        is_malformed=True,
        relation=Relation.ADD_REMOVE,
        fix=_REFUSE,
    ),
    Scenario(
        "not a number",
        "an update with a value that is no number against none",
        ClientContribution(form=ReplyFault.NOT_A_NUMBER),
        is_malformed=True,
        fix=_REFUSE,
    ),
    Scenario(
        "permuted keys",
        "an update with its tensors in another order against none",
        ClientContribution(Direction.FIRST, form=ReplyFault.PERMUTED),
        is_malformed=True,
        relation=Relation.ADD_REMOVE,
        fix="Match tensors by their names, never by their order.",
    ),
    Scenario(
        "half-precision reply",
        "an update in half precision against none",
        ClientContribution(Direction.FIRST, form=ReplyFault.HALF),
        is_malformed=True,
        relation=Relation.ADD_REMOVE,
        fix=_REFUSE,
    ),
    Scenario(
        "wrong shape",
        "an update of a wrong shape against none",
        ClientContribution(form=ReplyFault.MISSHAPED),
        is_malformed=True,
        fix=_REFUSE,
    ),
    Scenario(
        "small, then huge",
        "an update that is small in the first round and a thousand times the clipping norm in later ones, against none",
        ClientContribution(Direction.FIRST, HUGE),
        schedule=UpdateSignSchedule.GROWING,
        is_beyond=True,
        units=_ANY,
        relation=Relation.ADD_REMOVE,
        least_rounds=2,
        fix=_CLIP_ANEW,
    ),
    Scenario(
        "small, then huge and opposite",
        "an update that is small in the first round and a thousand times the clipping norm in later ones, against its "
        "opposite",
        ClientContribution(Direction.FIRST, HUGE),
        ClientContribution(Direction.FIRST, -HUGE),
        schedule=UpdateSignSchedule.GROWING,
        is_beyond=True,
        units=_ANY,
        relation=Relation.REPLACE,
        least_rounds=2,
        fix=_CLIP_ANEW,
    ),
    Scenario(
        "shortened",
        "an update at the clipping norm against one of a hundredth of it",
        _FIRST,
        ClientContribution(Direction.FIRST, 0.01),
        relation=Relation.REPLACE,
        units=_ANY,
        fix=_SENSITIVITY,
    ),
)
"""Every scenario in the default environment."""

_ON_STAGES = ("removed", "opposite")
_ON_LENGTHS = ("removed", "shortened")
_ON_LARGE_MODELS = (*_ON_STAGES, "missing reply", "huge in every tensor", "huge and opposite")
_ON_NON_ZERO = (*_ON_STAGES, "huge", "huge in every tensor", "huge and opposite")


def _names_in(environment: OtherClientsAndModel) -> tuple[str, ...]:
    """Return the names of the simplest scenarios that tell something in an environment other than the default one."""
    if environment.others is OtherContributions.LENGTHS:
        return _ON_LENGTHS
    if environment.model is ModelKind.NON_ZERO:
        return _ON_NON_ZERO
    return _ON_STAGES if environment.model is None else _ON_LARGE_MODELS


STAGED: tuple[Scenario, ...] = tuple(
    kind.in_environment(stage) for stage in STAGES for kind in KINDS if kind.name in _names_in(stage)
)
"""The simplest scenarios, each in every environment other than the default one."""
EVALUATION = Scenario(
    "evaluation",
    "no update, and another loss reported of an evaluation",
    ClientContribution(evaluation=5.0),
    fix="Evaluate on data of the server, or release no number of an evaluation that was not noised.",
)
_ON_OWN = next(stage for stage in STAGES if stage.name == "own model")
_OF_OWN_TENSORS = tuple(kind.in_environment(_ON_OWN) for kind in KINDS if kind.present.direction in OF_FEW_TENSORS)
"""The scenarios with a direction of `OF_FEW_TENSORS`, on an app's own model."""
ZERO_PROBE = next(kind for kind in KINDS if kind.name == "zero")
ZERO_PROBE_ON_OWN = ZERO_PROBE.in_environment(_ON_OWN)
"""Scenarios whose first trials show whether a strategy bears an update of exactly zero, as an absent target sends."""
BY_NAME = {kind.name: kind for kind in (*KINDS, *STAGED, EVALUATION, *_OF_OWN_TENSORS)}
"""Every scenario, keyed by name. New ones are added at the end, because random draws depend on the position."""
WORDS = {name: kind.words for name, kind in BY_NAME.items()}
FIXES = {name: kind.fix for name, kind in BY_NAME.items()}
"""Usual fix for a leak that a scenario finds, keyed by the scenario's name."""
PROVISOS = {
    name: "Where the clients' own training code clips, which no trial sees, no such update can come, and "
    "--set trust-client-clipping=true "
    "(is_clipped=False in Python) plays none."
    for name, kind in BY_NAME.items()
    if kind.is_beyond and kind.present.direction in (Direction.FIRST, Direction.EVERY_TENSOR)
}
"""Note on when an update longer than the clipping norm can occur, keyed by the name of each scenario that sends one."""
