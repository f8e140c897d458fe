"""The scenarios of black-box trials, and those that can test a claim.

A scenario says what the target sends under D and under D', what the other clients send, and which model is trained.
"""

from fl_audit.adjacency import Relation, Unit
from fl_audit.app_audits.black_box.audited_system import AuditedSystem
from fl_audit.app_audits.black_box.scenario import (
    FEW,
    MANY,
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
from fl_audit.app_audits.claim_audit.claim import StatedClaim

HUGE = 1000.0  # norm of an update that must be clipped, as a multiple of the clipping norm

_ANY = (Unit.CLIENT, Unit.USER, Unit.RECORD)
_FIRST = ClientContribution(Direction.FIRST)

KINDS: tuple[Scenario, ...] = (
    Scenario("removed", _FIRST, units=_ANY, relation=Relation.ADD_REMOVE),
    Scenario("opposite", _FIRST, ClientContribution(Direction.FIRST, -1.0), relation=Relation.REPLACE, units=_ANY),
    Scenario("replaced", _FIRST, ClientContribution(Direction.SECOND), relation=Relation.REPLACE, units=_ANY),
    Scenario(
        "huge", ClientContribution(Direction.FIRST, HUGE), is_beyond=True, units=_ANY, relation=Relation.ADD_REMOVE
    ),
    Scenario(
        "huge in every tensor",
        ClientContribution(Direction.EVERY_TENSOR, HUGE),
        is_beyond=True,
        units=_ANY,
        relation=Relation.ADD_REMOVE,
    ),
    Scenario(
        "huge and opposite",
        ClientContribution(Direction.EVERY_TENSOR, HUGE),
        ClientContribution(Direction.EVERY_TENSOR, -HUGE),
        is_beyond=True,
        units=_ANY,
        relation=Relation.REPLACE,
    ),
    Scenario(
        "removed among opposite ones",
        _FIRST,
        others=ClientContribution(Direction.FIRST, -RECORDS_OF_OTHERS),
        units=(Unit.USER, Unit.RECORD),
        relation=Relation.ADD_REMOVE,
    ),
    Scenario("zero", _FIRST, ClientContribution(Direction.ZERO)),
    Scenario("all zero", _FIRST, ClientContribution(Direction.ZERO), others=ClientContribution(Direction.ZERO)),
    Scenario("tiny", ClientContribution(Direction.FIRST, 1e-4), units=_ANY, relation=Relation.ADD_REMOVE),
    Scenario("alone", _FIRST, others=ClientContribution(), relation=Relation.ADD_REMOVE),
    Scenario("nothing", ClientContribution(examples=11), others=ClientContribution()),
    Scenario(
        "many examples",
        ClientContribution(Direction.FIRST, examples=10_000),
        ClientContribution(examples=10_000),
        relation=Relation.ADD_REMOVE,
    ),
    Scenario("more examples than true", ClientContribution(examples=10_000)),
    Scenario("metrics", ClientContribution(loss=5.0)),
    Scenario(
        "parameter without axes",
        ClientContribution(Direction.SCALAR, HUGE),
        model=ModelKind.WITH_SCALAR,
        is_beyond=True,
    ),
    Scenario(
        "parameter of whole numbers",
        ClientContribution(Direction.COUNTER, HUGE),
        model=ModelKind.WITH_BUFFERS,
        is_beyond=True,
    ),
    Scenario("switches", ClientContribution(Direction.SWITCH, HUGE), model=ModelKind.WITH_SWITCHES, is_beyond=True),
    Scenario(
        "running statistics", ClientContribution(Direction.RUNNING, HUGE), model=ModelKind.WITH_BUFFERS, is_beyond=True
    ),
    Scenario("half precision", _FIRST, model=ModelKind.HALF, relation=Relation.ADD_REMOVE),
    Scenario(
        "alternating",
        _FIRST,
        schedule=UpdateSignSchedule.ALTERNATING,
        relation=Relation.ADD_REMOVE,
        least_rounds=2,
        units=_ANY,
    ),
    Scenario(
        "once", _FIRST, schedule=UpdateSignSchedule.ONCE, relation=Relation.ADD_REMOVE, least_rounds=2, units=_ANY
    ),
    Scenario(
        "missing reply",
        ClientContribution(Direction.SECOND, -1.0),
        ClientContribution(form=ReplyFault.MISSING),
        is_malformed=True,
        relation=Relation.ADD_REMOVE,
    ),
    Scenario("not a number", ClientContribution(form=ReplyFault.NOT_A_NUMBER), is_malformed=True),
    Scenario(
        "permuted keys",
        ClientContribution(Direction.FIRST, form=ReplyFault.PERMUTED),
        is_malformed=True,
        relation=Relation.ADD_REMOVE,
    ),
    Scenario(
        "half-precision reply",
        ClientContribution(Direction.FIRST, form=ReplyFault.HALF),
        is_malformed=True,
        relation=Relation.ADD_REMOVE,
    ),
    Scenario("wrong shape", ClientContribution(form=ReplyFault.MISSHAPED), is_malformed=True),
    Scenario(
        "small, then huge",
        ClientContribution(Direction.FIRST, HUGE),
        schedule=UpdateSignSchedule.GROWING,
        is_beyond=True,
        units=_ANY,
        relation=Relation.ADD_REMOVE,
        least_rounds=2,
    ),
    Scenario(
        "small, then huge and opposite",
        ClientContribution(Direction.FIRST, HUGE),
        ClientContribution(Direction.FIRST, -HUGE),
        schedule=UpdateSignSchedule.GROWING,
        is_beyond=True,
        units=_ANY,
        relation=Relation.REPLACE,
        least_rounds=2,
    ),
    Scenario("shortened", _FIRST, ClientContribution(Direction.FIRST, 0.01), relation=Relation.REPLACE, units=_ANY),
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
EVALUATION = Scenario("evaluation", ClientContribution(evaluation=5.0))
_ON_OWN = next(stage for stage in STAGES if stage.name == "own model")
_OF_OWN_TENSORS = tuple(kind.in_environment(_ON_OWN) for kind in KINDS if kind.present.direction in OF_FEW_TENSORS)
"""The scenarios with a direction of `OF_FEW_TENSORS`, on an app's own model."""
ZERO_PROBE = next(kind for kind in KINDS if kind.name == "zero")
ZERO_PROBE_ON_OWN = ZERO_PROBE.in_environment(_ON_OWN)
"""Scenarios whose first trials show whether a strategy bears an update of exactly zero, as an absent target sends."""
BY_NAME = {kind.name: kind for kind in (*KINDS, *STAGED, EVALUATION, *_OF_OWN_TENSORS)}
"""Every scenario, keyed by name. New ones are added at the end, because random draws depend on the position."""


def kinds_of(system: AuditedSystem, claim: StatedClaim) -> tuple[Scenario, ...]:
    """Return the scenarios that can test a claim about a system, in the order of `BY_NAME`.

    Parameters
    ----------
    system
        Strategy under audit with its clients; its settings exclude some scenarios.
    claim
        Privacy claim; its unit, relation and number of rounds exclude some scenarios.
    """
    # The system's own number of clients, and few and many if the strategy can be made for them.
    sizes = {None, *({FEW, MANY} - {system.clients} if system.takes_client_count else ())}
    neighbours = claim.neighbours
    return tuple(
        kind
        for kind in BY_NAME.values()
        if kind.relation in (None, neighbours.relation)
        and neighbours.unit in kind.units
        and claim.rounds >= kind.least_rounds
        and (system.is_clipped or not kind.is_beyond)
        and kind.stage.clients in sizes
        and (system.model is not None or kind.model is not ModelKind.OWN)
        # Environments that vary other clients' updates are only for claims about clients.
        and (neighbours.unit is Unit.CLIENT or kind.stage.others is OtherContributions.IDENTICAL)
    )
