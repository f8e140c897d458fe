"""Check that an audit supports a federation; unsupported combinations raise `InputError` before any training."""

from fl_audit.adjacency import Adjacency, Relation, Unit
from fl_audit.errors import InputError, require
from fl_audit.federation.federation import Federation
from fl_audit.federation.target_membership import MembershipScheme
from fl_audit.mechanisms.contribution import PrivateTraining, RecordGradients
from fl_audit.mechanisms.mechanism import require_likelihood_ratio
from fl_audit.mechanisms.noises.mechanism_noise import NoiseOrigin
from fl_audit.mechanisms.threat_model import Adversary
from fl_audit.privacy.accounting_enums import SensitivityKind


def require_clients(federation: Federation, fewest: int) -> None:
    """Raise `InputError` if a federation has too few clients for an audit, or too many clients that collude.

    If noise is added inside the clients' training and a client attacks, the attacker and the victim do not count as
    colluders: at most `clients` - 2 clients can collude.
    """
    parties = " (a victim and an insider; with insider = false in [audit], 1 is too)" if federation.with_insider else ""
    require(federation.clients >= fewest, f"clients is {federation.clients}: accepted are {fewest} and more{parties}")
    is_inside = federation.mechanism.noise.origin is NoiseOrigin.TRAINING
    if is_inside and federation.threat_model.adversary is Adversary.CLIENT:
        most_colluders = federation.clients - 2
        colluders = federation.threat_model.colluders
        problem = f"colluders is {colluders} and there are {federation.clients} clients"
        require(
            colluders <= most_colluders,
            f"{problem}: accepted are 0 to {most_colluders}, all but the insider and the victim",
        )


def require_computable_llr(federation: Federation) -> None:
    """Check that the insider, if there is one, can compute log-likelihood ratios.

    Without an insider, check that the noise is not scaled to the difference between D and D', which only an insider can
    measure.
    """
    if not federation.with_insider:
        is_global = federation.mechanism.scaling is SensitivityKind.GLOBAL
        require(is_global, "sensitivity is 'local' without the insider, whose device it is: accepted is 'global'")
        return
    if federation.local_randomizer is not None:
        name = federation.local_randomizer.kind
        problem = f"insider is true with local-randomizer = '{name}', whose draws are every owner's secret"
        why = "and the insider's log-odds are not known there"
        raise InputError(f"{problem}, {why}: accepted in [audit] is insider = false")
    if federation.mechanism.noise.origin is NoiseOrigin.TRAINING:
        problem = "participation is 'seen' with strategy 'dp-sgd-clients', whose guarantee counts on secret samples"
        require(not federation.threat_model.sees_participation, f"{problem}: accepted is 'secret'")
    require_likelihood_ratio(federation.mechanism, federation.threat_model)


def require_targets(federation: Federation, kind: str) -> None:
    """Raise `InputError` if a federation does not support an audit with many targets."""
    mechanism = federation.mechanism
    setting = f"kind = '{kind}'"
    accepted = " and ".join(adjacency for adjacency in Adjacency if adjacency.relation is Relation.ADD_REMOVE)
    problem = f"adjacency is '{mechanism.adjacency}' with {setting}, whose targets come or go"
    require(mechanism.adjacency.relation is Relation.ADD_REMOVE, f"{problem}: accepted are {accepted}")
    is_private = isinstance(mechanism.contribution, PrivateTraining)
    require(not is_private, f"strategy is 'dp-sgd-clients' with {setting}: accepted are 'dp-fedsgd' and 'dp-fedavg'")
    is_global = mechanism.scaling is SensitivityKind.GLOBAL
    require(is_global, f"sensitivity is 'local' with {setting}, where every target has its own: accepted is 'global'")
    threat = federation.threat_model
    alone = threat.adversary is Adversary.CLIENT and threat.colluders == 0
    require(alone, f"{setting} has one insider, a client without colluders: leave out adversary and colluders")
    if federation.ascent > 0:
        of_records = isinstance(mechanism.contribution, RecordGradients) and mechanism.unit is Unit.RECORD
        require(of_records, "the active attack pushes records up: accepted with it is strategy 'dp-fedsgd'")


def require_candidates(federation: Federation) -> None:
    """Raise `InputError` if the candidates' prior is no probability distribution, or if candidates may not be values.

    Candidates are the possible targets, of which exactly one is in each trial. They may be the possible values of one
    column of a record, but only in the reconstruction audit, and only for records that are not randomised.
    """
    shares = federation.prior_of_candidates
    problem = f"candidates have the shares {federation.candidate_prior}"
    is_exact = federation.membership_scheme is MembershipScheme.EXACTLY_ONE
    is_distribution = is_exact or not federation.candidate_prior
    is_distribution &= len(shares) == federation.targets and bool((shares >= 0).all()) and abs(shares.sum() - 1) < 1e-9
    accepted = f"accepted are {federation.targets} numbers from 0 with a sum of 1, in the reconstruction audit"
    require(is_distribution, f"{problem}: {accepted}")
    if federation.candidate_column is not None:
        of_records = federation.mechanism.unit is Unit.RECORD and is_exact and federation.local_randomizer is None
        accepted = "accepted are records that are not randomised, in the reconstruction audit"
        require(of_records, f"the values of {federation.candidate_column} are candidates: {accepted}")
