"""A Flower app under review: its strategy, claim and model, and the audited system for its trials."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fl_audit.adjacency import Adjacency
from fl_audit.app_audits.black_box.audited_system import AuditedSystem
from fl_audit.app_audits.black_box.legacy_adapter import layers_of
from fl_audit.app_audits.claim_audit.claim import StatedClaim
from fl_audit.app_audits.review import plan as planning
from fl_audit.app_audits.review.app_loading import AppDescription, StubImportFinder, read_app
from fl_audit.app_audits.review.claims import StatedAppClaim, stated_by
from fl_audit.app_audits.review.client_counts import USUAL_NODES, count_asked_clients, nodes_of
from fl_audit.app_audits.review.privacy_mentions import RecordPrivacyMention, find_record_privacy_mentions
from fl_audit.app_audits.review.strategy_capture import CapturedStrategy, capture_strategy
from fl_audit.app_audits.review.virtual_clients import TrialStrategyFactory
from fl_audit.app_audits.trial_options import ReviewOptions
from fl_audit.errors import InputError

if TYPE_CHECKING:
    from fl_audit.app_audits.local_training.assessment import Assessment

REFERENCE = 3.0
"""Epsilon that is tested if nothing is claimed, and the largest epsilon that is tested for side channels."""
_OF_CLIENTS = 0.4  # share of the review's time limit for the clients' own training, which comes before the trials


@dataclass(frozen=True)
class ReviewedApp:
    """A Flower app under review: its strategy, claim and model, and the system that its trials audit."""

    description: AppDescription  # description of the app by its `pyproject.toml`
    captured: CapturedStrategy  # the app's strategy with its arguments and client mods
    stand_ins: StubImportFinder  # import finder with the names of packages that are not installed
    mentions: tuple[RecordPrivacyMention, ...]  # places where the code mentions record-level privacy
    inside: "Assessment | None"  # assessment of the clients' training; None if they did not train
    inside_unseen: str  # reason why they could not train; empty if they did, or were not asked to
    app_claim: StatedAppClaim  # privacy claim of the app or the reviewer, for one round
    claim: StatedClaim  # claim to test: the stated one, or epsilon `REFERENCE` if nothing is claimed
    # Factory of the strategy for trials: it has the call of `start` without the initial model, and the number of
    # clients that the strategy sees.
    factory: TrialStrategyFactory
    system: AuditedSystem  # the system that the trials audit
    remarks: tuple[str, ...]  # remarks on the strategy, the number of clients and the model
    count_fault: str = ""  # fault of the number of clients that the noise is made for; empty without one


def read_reviewed_app(directory: Path, options: ReviewOptions, is_inspected: bool = True) -> ReviewedApp:
    """Load an app and its claim, inspect its clients' training if they use Opacus, and prepare the audited system."""
    stand_ins = StubImportFinder(directory)
    sys.meta_path.append(stand_ins)
    app = read_app(directory)
    nodes_named = options.clients or app.nodes
    captured = capture_strategy(app, nodes_named or USUAL_NODES, stand_ins)
    app_claim = reviewed_claim(captured, options)
    mentions = find_record_privacy_mentions(app.directory)
    inside: Assessment | None = None
    inside_unseen = ""
    uses_opacus = any(mention.what == "Opacus" for mention in mentions)
    if is_inspected and app.client and (options.client_data or uses_opacus):
        inside, inside_unseen = _inspected(app, captured, nodes_named or USUAL_NODES, options)
    claim = app_claim.claim or StatedClaim(options.adjacency or Adjacency.ADD_REMOVE_CLIENT, epsilon=REFERENCE)
    nodes, on_clients, count_fault = nodes_of(captured.start.strategy, nodes_named, app_claim.clients)
    own_model, on_model = planning.own_model(captured.start)
    start = replace(
        captured.start, arguments={k: v for k, v in captured.start.arguments.items() if k != "initial_arrays"}
    )
    factory = TrialStrategyFactory(start, nodes, max(2, count_asked_clients(start.strategy, nodes)))
    weights = [layer.weighted_by_key for layer in layers_of(start.strategy) if hasattr(layer, "weighted_by_key")]
    system = AuditedSystem(
        factory.new_strategy,
        captured.mods,
        None,
        factory.seats,
        app_claim.norm,
        not options.trust_client_clipping,
        app_claim.observer,
        own_model,
        *weights[-1:],
    )
    return ReviewedApp(
        description=app,
        captured=captured,
        stand_ins=stand_ins,
        mentions=mentions,
        inside=inside,
        inside_unseen=inside_unseen,
        app_claim=app_claim,
        claim=claim,
        factory=factory,
        system=system,
        remarks=(*captured.remarks, *on_clients, *on_model),
        count_fault=count_fault,
    )


def _inspected(
    app: AppDescription, captured: CapturedStrategy, nodes: int, options: ReviewOptions
) -> "tuple[Assessment | None, str]":
    """Return an assessment of the clients' training, or else the reason why they could not train."""
    # Imported here because it imports Opacus.
    from fl_audit.app_audits.review.client_inspection import inspect_clients  # noqa: PLC0415

    try:
        return inspect_clients(app, captured, nodes, options.client_data, _OF_CLIENTS * options.seconds), ""
    except InputError as error:
        return None, str(error)


def reviewed_claim(captured: CapturedStrategy, options: ReviewOptions) -> StatedAppClaim:
    """Return the reviewer's privacy claim for one round, if there is one, and otherwise the claim found in the app."""
    # One round is enough to detect releases without noise, and to measure the duration of a round.
    rounds = 1
    adjacency = None if options.adjacency is None else Adjacency(options.adjacency)
    stated_claim = stated_by(
        captured.start.strategy, [mod.mod for mod in captured.mods], adjacency, rounds, options.delta
    )
    if options.epsilon is not None or options.noise_multiplier is not None:
        between = adjacency or Adjacency.ADD_REMOVE_CLIENT
        noise = options.noise_multiplier
        claim = StatedClaim(between, options.epsilon, options.delta, noise, rounds, options.noise_over)
        usual = stated_by(captured.start.strategy, [mod.mod for mod in captured.mods], None, rounds, options.delta)
        mu_of_claim = None if usual.claim is None else usual.claim.mu or usual.mu
        if mu_of_claim is not None and usual.claim is not None:
            # The noise is the same, but the sum may have a larger sensitivity than under the app's own adjacency.
            moves, meant = (claim.neighbours.sensitivity_of_sum(1.0) for claim in (claim, usual.claim))
            mu_of_claim *= max(1.0, moves / meant)
        stated_claim = replace(
            stated_claim, claim=claim, source="named by the reviewer", is_of_reviewer=True, mu=mu_of_claim
        )
    return replace(stated_claim, norm=options.clipping_norm or stated_claim.norm)
