"""Planning of a run: from its configuration to the federation that is audited, and to its guarantee."""

from typing import TYPE_CHECKING

from fl_audit.adjacency import NeighbourPair
from fl_audit.audits.membership.attacks.registry import ATTACKS
from fl_audit.data.catalogue import load_source
from fl_audit.data.loaded_dataset import LoadedDataset
from fl_audit.data.record_selection import Split
from fl_audit.errors import require
from fl_audit.federation.record_tensors import model_for, probe_records
from fl_audit.federation.run_plan import RunPlan
from fl_audit.learning.stacked_model import StackedModel
from fl_audit.mechanisms.mechanism import NO_LIKELIHOOD_RATIO, Mechanism
from fl_audit.privacy.accounting import account, exact_accountant
from fl_audit.privacy.accounting_enums import MultiplierReference, SensitivityKind
from fl_audit.privacy.calibration import noise_multiplier_for_all
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.guarantee import Guarantee, guarantee_of_all
from fl_audit.privacy.identifiability_bounds import SignalToNoiseAdaptivity
from fl_audit.privacy.targets import DETAILS, TARGETS, NoiseMultiplierTarget, one_target
from fl_audit.released_model.star_methods import EpsilonStarLocation
from fl_audit.runs import mechanism_of_config
from fl_audit.runs.config import AuditSection, RunConfig
from fl_audit.runs.config_of_data import with_choices_by_data, with_records_selected
from fl_audit.runs.epsilon_by_round import rounds_within
from fl_audit.runs.federation_of_config import data_spec, federation_of
from fl_audit.runs.neighbour_pairs import choose_pair, with_crafted_records
from fl_audit.runs.stored_models import MOST_KEPT_SCALARS
from fl_audit.user_modules import import_function

if TYPE_CHECKING:
    from flwr.serverapp.strategy import Strategy


_WORK_A_ROUND = 1e9
_MESSAGE_SCALARS = 2**22
"""Scalars that the clients' passes of one round touch, and scalars of the stacked models in one message."""
_FEWEST_TRIALS = 100
_MOST_TRIALS = 1000
_USUALLY_KEPT = 4
"""Number of trials whose releases are kept, unless these take more than a gigabyte."""


def plan_run(config: RunConfig, pair: NeighbourPair | None = None) -> RunPlan:
    """Return the plan of the run that a configuration describes.

    The function loads the data, calibrates the noise, and chooses the unit in which D and D' differ. It raises
    `InputError` if the noise cannot achieve the guarantee, or if the settings do not fit together.

    `pair`: With None, it is searched for, or a record is crafted, depending on the configuration.
    """
    _require_goes_together(config)
    source = load_source(data_spec(config.data))
    config, split = with_records_selected(config, source)
    _require_own(config.audit)
    own_aggregation = _own_aggregation(config.training.aggregation)
    config = _with_proximal_weight(config, own_aggregation)
    config = with_choices_by_data(config, source, split)
    config, mechanism = _with_mechanism(config, split)
    federation = federation_of(config, mechanism, split, pair or choose_pair(config, split))
    federation = federation if pair is not None else with_crafted_records(federation, config)
    if federation.aggregation is not None:
        from fl_audit.strategies.aggregation import require_playable  # noqa: PLC0415  # Flower takes a second to import

        require_playable(federation, own_aggregation)
    return RunPlan(_sized(config, source), federation, guarantee_of(mechanism, config))


def _require_goes_together(config: RunConfig) -> None:
    """Raise `InputError` for settings that cannot go together, whatever the data are."""
    if config.audit.insider:
        # Said before the noise is calibrated: without a guarantee there is nothing to calibrate it to.
        require(config.privacy.private, NO_LIKELIHOOD_RATIO)
    if config.training.early_stopping is not None:
        # Owners would be asked about models that go on to train, and not about those that the trials keep.
        pooled = config.audit.epsilon_star_losses is EpsilonStarLocation.POOLED
        require(pooled, "early-stopping with epsilon-star-losses = 'federated': accepted with it is 'pooled'")


def _with_mechanism(config: RunConfig, split: Split) -> tuple[RunConfig, Mechanism]:
    """Return the configuration with the rounds that are within its budget, and its mechanism with calibrated noise."""
    mechanism = mechanism_of_config.mechanism_of(config, 1.0, split)
    if not config.privacy.private:
        return config, mechanism
    noise_multiplier = mechanism.with_multiplier(calibrated_multiplier(config, mechanism)).noise_multiplier
    config = _within_budget(config, noise_multiplier, split)
    return config, mechanism_of_config.mechanism_of(config, noise_multiplier, split)


def _within_budget(config: RunConfig, noise_multiplier: float, split: Split) -> RunConfig:
    """Return the configuration with the rounds that `stop-at-epsilon` leaves; unchanged without this setting.

    The rounds are known before training, since epsilon follows from the mechanism alone. Noise that is correlated over
    rounds is that of the rounds that are made.
    """
    budget = config.privacy.stop_at_epsilon
    if budget is None:
        return config

    def shortened(rounds: int) -> RunConfig:
        return config.changed(training={"rounds": rounds, "epochs": None})

    def epsilon_of(rounds: int) -> float:
        shorter = shortened(rounds)
        claims = _claims(shorter, mechanism_of_config.mechanism_of(shorter, noise_multiplier, split))
        return max(account(claim.profile, claim.accountant, claim.delta) for claim in claims)

    planned = mechanism_of_config.rounds_of(config)
    rounds_within_budget = rounds_within(budget, planned, epsilon_of)
    return config if rounds_within_budget == planned else shortened(rounds_within_budget)


def _require_own(audit: AuditSection) -> None:
    """Raise `InputError` if an attack or a report section that the user wrote cannot be imported."""
    for name in audit.attacks or ():
        if name not in ATTACKS:
            import_function(name, "attack")
    if audit.sections:
        # Its figures need matplotlib, which takes its time.
        from fl_audit.audits.sections import own_section  # noqa: PLC0415

        for name in audit.sections:
            own_section(name)


def _own_aggregation(aggregation: str | None) -> "Strategy | None":
    """Return a Flower strategy that the user's own factory makes; None if the aggregation is none or a built-in one.

    Planning calls the factory only here, because it may be slow or count its calls.
    """
    if aggregation is None or ":" not in aggregation:
        return None
    from fl_audit.strategies.aggregation import own_strategy  # noqa: PLC0415  # Flower takes a second to import

    return own_strategy(aggregation)


def _with_proximal_weight(config: RunConfig, own_aggregation: "Strategy | None") -> RunConfig:
    """Return the configuration with the proximal weight that the user's own Flower strategy has, if it has one.

    Flower's `FedProx` has it. The weight is a part of the mechanism, so that everybody can recompute contributions.
    """
    training = config.training
    weight = getattr(own_aggregation, "proximal_mu", None)
    if weight is None or training.proximal_mu is not None or training.strategy != "dp-fedavg":
        return config
    return config.changed(training={"proximal_mu": float(weight)})


def guarantee_of(mechanism: Mechanism, config: RunConfig) -> Guarantee | None:
    """Return the guarantee of all rounds of a mechanism together, or None if the mechanism adds no noise."""
    return guarantee_of_all(_claims(config, mechanism)) if mechanism.adds_noise else None


def calibrated_multiplier(config: RunConfig, at_unit_noise: Mechanism) -> float:
    """Return the noise multiplier (relative to the sensitivity) with which a mechanism has the configured guarantee.

    If the configuration gives a noise multiplier instead of a guarantee, the result is this multiplier, converted to be
    relative to the sensitivity.
    """
    privacy = config.privacy
    target = one_target({name: getattr(privacy, name.replace("-", "_")) for name in (*TARGETS, *DETAILS)})
    if isinstance(target, NoiseMultiplierTarget):
        over = privacy.noise_over or MultiplierReference.SENSITIVITY
        return over.over_sensitivity(target.noise_multiplier, privacy.adjacency)
    return noise_multiplier_for_all(target, _claims(config, at_unit_noise))


def _claims(config: RunConfig, mechanism: Mechanism) -> list[Claim]:
    """Return the claims behind the guarantee: one, or one for each shard size if clients train by DP-SGD."""
    privacy = config.privacy
    rounds = mechanism_of_config.rounds_of(config)
    events_of_claims = mechanism.events_of_each(rounds, mechanism_of_config.threat_model_of(config.audit))
    accountant = privacy.accountant or exact_accountant(event for events in events_of_claims for event in events)
    # Only noise that follows the rounds' sensitivities gives every round the same ratio, whoever chooses them.
    follows = privacy.sensitivity is SensitivityKind.LOCAL
    sensitivities = SignalToNoiseAdaptivity.FIXED if follows else SignalToNoiseAdaptivity.ADAPTIVE
    return [
        Claim(privacy.adjacency, events, privacy.delta, privacy.prior, accountant, sensitivities)
        for events in events_of_claims
    ]


def _sized(config: RunConfig, source: LoadedDataset) -> RunConfig:
    """Return the configuration with default sizes of a trial batch, and of the group of trials whose releases are kept.

    A size that the configuration sets stays as it is.
    """
    run = config.run
    model = StackedModel.of(model_for(config.model.name, source.pool), probe_records(source))
    by_work = int(_WORK_A_ROUND / (_examples_a_round(config) * model.scalars_per_example))
    by_message = int(_MESSAGE_SCALARS / model.layout.size)
    trials = max(1, min(by_message, max(_FEWEST_TRIALS, min(_MOST_TRIALS, by_work))))
    kept_releases = min(_USUALLY_KEPT, MOST_KEPT_SCALARS // (mechanism_of_config.rounds_of(config) * model.layout.size))
    kept_releases = kept_releases if run.keep_releases is None else run.keep_releases
    return config.changed(run={"trials_per_batch": run.trials_per_batch or trials, "keep_releases": kept_releases})


def _examples_a_round(config: RunConfig) -> float:
    """Return the expected number of per-record gradients of all clients in a round."""
    training = config.training
    clients = mechanism_of_config.clients_of(config.data)
    share = mechanism_of_config.denominator_of(config) / clients
    if training.strategy == "dp-fedsgd":
        return float(mechanism_of_config.sampling_rate(config) * config.data.records)
    if training.local_steps is not None:
        return float(training.local_steps * (training.local_batch or 1) * clients * share)
    return float((training.local_epochs or 1) * config.data.records * share)
