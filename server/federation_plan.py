"""The server's plan of a run, and the times at which the run started, was ready and finished."""

import time
from dataclasses import dataclass, field

from fl_audit.data.attribute_to_infer import AttributeToInfer
from fl_audit.federation.federation import Federation
from fl_audit.federation.initial_weights import InitialWeightsSource
from fl_audit.released_model.parametric_star import StarSettings
from fl_audit.strategies.epsilon_star_queries import FederatedEpsilonStarSettings
from fl_audit.strategies.trial_batch_strategy import TrialBatchStrategy
from fl_audit.trial_batches import TrialBatch


@dataclass(frozen=True)
class FederationPlan:
    """The server's plan of a run: which trials it trains, what it stores, and how it evaluates models."""

    public: Federation  # the public federation
    seed: int  # secret seed of the run
    model_seed: int  # public seed of the initial weights
    batches: tuple[TrialBatch, ...]  # batches of trials still to be computed
    batches_in_flight: int = 1  # number of batches that are trained together
    time_limit: float = 600.0  # seconds that one client call may take
    keep_releases: int = 4  # number of trials, from trial 0, for which the clients' view of every round is stored
    star: StarSettings | None = None  # delta and cut of Epsilon*; None leaves Epsilon* out
    membership: bool = True  # whether the final models are attacked by loss-threshold membership inference
    # Rounds between two evaluated releases; the initial models and the last release are always evaluated.
    evaluate_every: int = 1
    # Settings of Epsilon* without pooling members' losses; None pools them.
    federated_losses: FederatedEpsilonStarSettings | None = None
    # The server's strategy; studies of broken mechanisms use another one.
    strategy: type[TrialBatchStrategy] = TrialBatchStrategy
    # Number of evaluated releases without a smaller loss on the population sample after which the training of a trial
    # ends, see `CheckpointSelector`; None trains all rounds.
    patience: int | None = None
    sees_weights: bool = False  # whether the features of a white-box attacker are stored
    attribute: AttributeToInfer | None = None  # the attribute whose values are tried in the final models
    initial: InitialWeightsSource = InitialWeightsSource.DRAWN  # source of the initial weights

    @property
    def evaluated_releases(self) -> tuple[int, ...]:
        """Numbers of the releases that are evaluated; 0 is the initial model."""
        rounds = self.public.rounds
        return (*range(0, rounds, self.evaluate_every), rounds)


@dataclass
class FederationTimestamps:
    """Times at which a federation started, was ready and finished (monotonic clock, seconds); NaN until then."""

    started: float = field(default_factory=time.monotonic)
    ready: float = field(default=float("nan"))
    finished: float = field(default=float("nan"))
