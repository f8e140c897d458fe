"""Refusals of mechanisms: each names what is wrong."""

import math
from dataclasses import replace

import torch

from fl_audit.adjacency import Adjacency
from fl_audit.mechanisms.contribution import (
    AdaptiveClipping,
    FixedClipping,
    NoClipping,
    PoissonSampling,
    RotatingCohorts,
)
from fl_audit.mechanisms.likelihood_ratio import Hypotheses
from fl_audit.mechanisms.mechanism import require_likelihood_ratio
from fl_audit.mechanisms.noises.central import CentralGaussian
from fl_audit.mechanisms.noises.correlated import CorrelatedGaussian
from fl_audit.mechanisms.noises.distributed import DistributedGaussian
from fl_audit.mechanisms.noises.local import LocalGaussian
from fl_audit.mechanisms.noises.none import NoNoise
from fl_audit.mechanisms.threat_model import CLIENT_ALONE, Adversary, ThreatModel
from fl_audit.privacy.strategy_matrices import StrategyMatrixKind
from tests.builders.refusals import Refusal, refusal_test, refusals
from tests.mechanisms.test_mechanism import ADAPTIVE, CLIENTS, COHORT, LOCAL_SCALING, POISSON, RECORD_SUMS, SERVER, TREE

REFUSALS = [
    # A server that adds the noise is no adversary.
    *refusals(
        lambda noise: require_likelihood_ratio(replace(CLIENTS, noise=noise), SERVER),
        (CentralGaussian(3.0), r"server adds .*knows everything"),
        (CorrelatedGaussian(3.0, StrategyMatrixKind.TREE, 8), r"server adds .*knows everything"),
    ),
    # Without noise there is nothing to weigh.
    Refusal(
        lambda: require_likelihood_ratio(replace(RECORD_SUMS, noise=NoNoise(), clipping=NoClipping()), CLIENT_ALONE),
        "nothing to weigh",
    ),
    # Threat models are refused where they make no sense.
    Refusal(lambda: ThreatModel(colluders=-1), "colluders is -1"),
    Refusal(lambda: ThreatModel(adversary=Adversary.SERVER, colluders=1), r"colluders is 1 .*'server'"),
    # Refuses parts that do not go together.
    *refusals(
        lambda mechanism, mechanism_fields: replace(mechanism, **mechanism_fields),
        (RECORD_SUMS, {"clipping": NoClipping()}, "multiplier is 8.0 without clipping"),
        (RECORD_SUMS, {"noise": NoNoise()}, "norm is 3.0 without noise"),
        (RECORD_SUMS, {"participation": POISSON}, "sensitivity is 'local' .*sampling rate 0.1: .*'global'"),
        (CLIENTS, {"noise": LOCAL_SCALING, "participation": COHORT}, "sensitivity is 'local' .*cohort"),
        (
            CLIENTS,
            {"noise": DistributedGaussian(2.0, 5), "participation": POISSON},
            "noise is 'distributed' .*not everybody",
        ),
        (
            CLIENTS,
            {"noise": DistributedGaussian(2.0, 5), "participation": COHORT},
            "noise is 'distributed' .*not everybody",
        ),
        (CLIENTS, {"noise": LocalGaussian(2.0, 5), "participation": POISSON}, "noise is 'local' .*not everybody"),
        (CLIENTS, {"noise": LocalGaussian(2.0, 5), "participation": COHORT}, "noise is 'local' .*not everybody"),
        (CLIENTS, {"noise": TREE, "participation": POISSON}, "no amplification by sampling"),
        (
            RECORD_SUMS,
            {"noise": CentralGaussian(2.0), "clipping": ADAPTIVE},
            "clipping is 'adaptive' .*gradients of records",
        ),
        (CLIENTS, {"noise": LOCAL_SCALING, "clipping": ADAPTIVE}, "sensitivity is 'local' .*clipping is 'adaptive'"),
        (CLIENTS, {"noise": TREE, "clipping": ADAPTIVE}, "clipping is 'adaptive' .*one norm"),
        (CLIENTS, {"noise": LocalGaussian(2.0, 5), "clipping": ADAPTIVE}, "'adaptive' .*noise is 'local', .*nobody"),
        (CLIENTS, {"noise": DistributedGaussian(2.0, 5), "clipping": ADAPTIVE}, "'adaptive' .*'distributed', .*nobody"),
        (CLIENTS, {"noise": NoNoise(), "clipping": ADAPTIVE}, "norm is 1.0 without noise"),
        (RECORD_SUMS, {"noise": CentralGaussian(2.0), "participation": COHORT}, "cohort is 2 .*'dp-fedsgd'"),
        (RECORD_SUMS, {"noise": TREE, "participation": COHORT}, "cohort is 2 .*'dp-fedsgd'"),
    ),
    # Refuses cohorts of nobody or of all.
    *refusals(
        lambda size: RotatingCohorts(size, 5),
        (0, "cohort is 0 of 5 clients: .* 1 to 4"),
        (5, "cohort is 5 of 5 clients: .* 1 to 4"),
        (6, "cohort is 6 of 5 clients: .* 1 to 4"),
    ),
    # Refuses adaptive clipping out of range.
    *refusals(
        lambda changes: AdaptiveClipping(**({"norm": 1.0} | changes)),
        ({"norm": 0.0}, "norm is 0.0"),
        ({"learning_rate": math.inf}, "learning rate is inf"),
        ({"bit_noise": -1.0}, "noise is -1.0"),
        ({"quantile": 1.0}, "quantile is 1.0"),
    ),
    # Numbers out of range.
    *refusals(
        lambda make, value: make(value),
        *(
            (make, value, f"{name} is {value}: .*positive finite")
            for name, make in (
                ("clipping norm", FixedClipping),
                ("noise multiplier", CentralGaussian),
                ("denominator", lambda denominator: replace(RECORD_SUMS, denominator=denominator)),
            )
            for value in (0, -1, math.nan, math.inf, -math.inf)
        ),
    ),
    *refusals(PoissonSampling, *((rate, f"sampling rate is {rate}") for rate in (0, -0.1, 1, 1.5, math.nan))),
    *refusals(
        lambda weight: Hypotheses(torch.zeros(1, 2), torch.zeros(1, 2), torch.zeros(1, 2), weight),
        *((weight, "weight is") for weight in (0.0, -0.1, 1.1)),
    ),
    # A unit is protected only where its contributions are clipped.
    *refusals(
        lambda mechanism, adjacency: replace(mechanism, adjacency=Adjacency(adjacency)),
        (RECORD_SUMS, "add-remove-client", "'add-remove-client'.*: .*add-remove-record and replace-record"),
        (RECORD_SUMS, "replace-client", "'replace-client'.*: .*add-remove-record and replace-record"),
        (CLIENTS, "add-remove-record", "'add-remove-record'.*: .*add-remove-client and replace-client"),
        (CLIENTS, "replace-record", "'replace-record'.*: .*add-remove-client and replace-client"),
    ),
    # Noise of clients needs two of them.
    *refusals(
        lambda noise, clients: noise(1.0, clients),
        *(
            (noise, clients, f"clients is {clients}")
            for noise in (DistributedGaussian, LocalGaussian)
            for clients in (0, 1)
        ),
    ),
]

test_it_is_refused = refusal_test(REFUSALS)
