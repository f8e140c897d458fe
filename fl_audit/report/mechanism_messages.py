"""Phrases and sentences of reports on the mechanism of a run and on the insider's threat model.

The insider is the adversary that is one of the clients; an honest-but-curious server can be the adversary instead.
"""

from typing import assert_never

from fl_audit.data.randomizers import LaplacePixelation, LocalRandomizer, RandomisedBits, RandomisedEdges
from fl_audit.federation.run_plan import RunPlan
from fl_audit.learning.local_training import LocalSchedule
from fl_audit.mechanisms import contribution
from fl_audit.mechanisms.mechanism import Mechanism
from fl_audit.mechanisms.noises.mechanism_noise import NoiseOrigin
from fl_audit.mechanisms.participations.participation import ParticipationPhraseContext
from fl_audit.mechanisms.threat_model import Adversary, InsiderView
from fl_audit.privacy.accounting_enums import Accountant, VectorNorm
from fl_audit.privacy.identifiability_bounds import truth_probability
from fl_audit.report.unit_words import unit_words
from fl_audit.words import number_text, percent, phrase_list, plural

AUDIT_DEVICE = "Not a private release: noise follows the data (audit device)"
SIMULATION_NOTICE = (
    "All noise in this run comes from a seed, so that the run can be repeated. Whoever knows the seed can remove the "
    "noise: the mechanism is simulated, and this is no secure release."
)


def not_private_label(plan: RunPlan) -> str:
    """Return a short sentence that says why the models of a run are not a private release, or not a fully private one.

    Call it only for runs whose models must not be published as private.
    """
    if plan.has_guarantee:
        return AUDIT_DEVICE
    if plan.federation.local_randomizer is not None:
        return "Private as far as the records are randomised: no clipping, no noise"
    return "Not a private release: no clipping, no noise, no guarantee"


def scaling_text(plan: RunPlan) -> str:
    """Return a phrase on the quantity to which noise is scaled, such as "global sensitivity"."""
    if plan.federation.mechanism.noise.origin is NoiseOrigin.TRAINING:
        return "clipping norm, in every step of the clients' training"
    return f"{plan.federation.mechanism.scaling} sensitivity" if plan.has_guarantee else "no clipping, no noise"


def randomizer_text(local_randomizer: LocalRandomizer) -> str:
    """Return a phrase on the local randomisation of records, to be put after the words "every owner"."""
    match local_randomizer:
        case RandomisedBits(epsilon):
            truth = percent(truth_probability(epsilon))
            return f"told every feature of its records truly with probability {truth} and falsely otherwise"
        case RandomisedEdges(epsilon):
            truth = percent(truth_probability(epsilon))
            return f"told of every pair of nodes of its graphs whether it is joined, truly with probability {truth}"
        case LaplacePixelation():
            block = f"{local_randomizer.block}x{local_randomizer.block}"
            scale = number_text(local_randomizer.scale)
            return f"added Laplace noise of scale {scale} to the mean of every {block} block of its images' pixels"
        case _:
            assert_never(local_randomizer)


def contribution_text(plan: RunPlan) -> str:
    """Return a phrase on what one unit contributes to a round, such as "each record its clipped gradient"."""
    clipped = "" if isinstance(plan.federation.mechanism.clipping, contribution.NoClipping) else "clipped "
    match plan.federation.mechanism.contribution:
        case contribution.RecordGradients():
            return f"each record its {clipped}gradient"
        case contribution.UserGradients():
            together = ", all of them together" if clipped else ""
            return f"each user the {clipped}sum of the gradients of its records{together}"
        case contribution.LocalTraining(schedule):
            return f"each client its {clipped}update after {_schedule_text(schedule)}"
        case contribution.PrivateTraining(schedule):
            return f"each client its update after {_schedule_text(schedule)} by DP-SGD, private already"
        case _:
            assert_never(plan.federation.mechanism.contribution)


def _schedule_text(schedule: LocalSchedule) -> str:
    steps = schedule.steps
    length = plural(schedule.epochs or 1, "local epoch") if steps is None else plural(steps, "local step")
    falls = "" if schedule.decay is None else ", which falls from round to round"
    return f"{length} of batches of {schedule.batch} at learning rate {schedule.learning_rate:g}{falls}"


def noise_source_text(plan: RunPlan) -> str:
    """Return a phrase that says who adds the noise, and to what.

    For noise that is correlated over rounds, the phrase also states the joint sensitivity of all rounds.
    """
    mechanism = plan.federation.mechanism
    source = mechanism.noise.source_words()
    joint = mechanism.noise.joint_sensitivity(mechanism.participation)
    if joint is None:
        return source
    times = number_text(joint, 3)
    return f"{source}; all rounds together have {times} times the sensitivity of one contribution"


def multiplied_text(mechanism: Mechanism) -> str:
    """Return a phrase for the quantity that is multiplied by the noise multiplier to give the standard deviation."""
    if mechanism.is_adaptive:
        return "the sensitivities of the sum and of the count that moves the clipping norm, both together"
    return mechanism.noise.multiplied_quantity_words or f"the sensitivity ({mechanism.adjacency.sensitivity_words})"


def noise_over_norm(mechanism: Mechanism, noise_multiplier: float) -> float | None:
    """Return the noise standard deviation of a guarantee divided by the clipping norm; None if the ratio is not fixed.

    The ratio is fixed if the noise is scaled to the global sensitivity of one round's sum, and the clipping norm is not
    adaptive.
    """
    if mechanism.is_adaptive or mechanism.noise.multiplied_quantity_words is not None:
        return None
    return noise_multiplier * mechanism.adjacency.sensitivity_of_sum(1.0)


def multiplier_text(plan: RunPlan) -> str:
    """Return a phrase that defines the noise multiplier on which the accountant's guarantee is based."""
    mechanism = plan.federation.mechanism
    if mechanism.is_adaptive:
        both_noises = "of the sum of updates and the count of short ones together (Andrew et al. 2021, theorem 1)"
        return f"{both_noises}, each over its sensitivity"
    unknown_part = ", of the noise that the insider does not know" if mechanism.clients_add_noise else ""
    return f"noise {mechanism.noise.scale_words} over {multiplied_text(mechanism)}{unknown_part}"


def mu_text(plan: RunPlan) -> str | None:
    """Return the formula of the claimed Gaussian-DP parameter mu as text, such as "1 over z" for noise multiplier z.

    None if the noise is not Gaussian.
    """
    mechanism = plan.federation.mechanism
    return mechanism.noise.mu_words(mechanism.participation.counted_rounds)


def exact_accountant(plan: RunPlan) -> str:
    """Return the name of the accountant that is exact for the releases of the run."""
    guarantee = plan.guarantee
    is_gaussian = guarantee is None or all(claim.profile.gaussian_mu is not None for claim in guarantee.claims)
    return str(Accountant.PLD if plan.is_amplified or not is_gaussian else Accountant.GDP)


def noise_text(plan: RunPlan) -> str:
    """Return a phrase on the assumptions of a guarantee: the noise, the adjacency, and any sampling rate."""
    distribution = plan.federation.mechanism.noise.distribution
    text = f"{distribution} noise{_of_clients(plan)}, neighbours by {plan.adjacency}"
    if plan.guarantee is not None and plan.is_amplified:
        remark = ", which the insider sees" if plan.federation.threat_model.sees_participation else ""
        text += f", {unit_words(plan.adjacency).many} sampled at rate {plan.guarantee.sampling_rate:g}{remark}"
    only = (
        ""
        if plan.federation.mechanism.is_private_release
        else "; noise follows the data, so for this pair of data sets only"
    )
    return f"{text}{only}"


def _of_clients(plan: RunPlan) -> str:
    """Return a phrase on where noise is added, which follows words such as "Gaussian noise"."""
    if plan.federation.mechanism.noise.origin is NoiseOrigin.TRAINING:
        return " in every step of the clients' training"
    if not plan.federation.mechanism.clients_add_noise:
        return " on the sum"
    if plan.federation.threat_model.adversary is Adversary.SERVER:
        return " that clients add, each contribution seen by itself"
    known_shares = plural(plan.federation.threat_model.known_shares, "client")
    return f" that clients add, less what {known_shares} added"


def known_noise_text(plan: RunPlan) -> str:
    """Return a phrase on the part of the noise that the insider knows.

    It is "" if clients do not add the noise.
    """
    mechanism = plan.federation.mechanism
    threat_model = plan.federation.threat_model
    if mechanism.noise.origin is not NoiseOrigin.CLIENTS:
        return ""
    if threat_model.adversary is Adversary.SERVER:
        return "none: the server sees each contribution by itself, with that client's own noise on it"
    colluders_text = f" and those of {plural(threat_model.colluders, 'colluder')}" if threat_model.colluders else ""
    shares = f"{threat_model.known_shares} of {plural(plan.federation.clients, 'share')}"
    return f"its own share{colluders_text}, {shares}, which it subtracts"


def participation_text(plan: RunPlan) -> str:
    """Return a phrase that says which units participate in a round, and whether their sampling adds protection."""
    mechanism = plan.federation.mechanism
    words = unit_words(plan.adjacency)
    threat_model = plan.federation.threat_model
    if mechanism.is_sampled and not mechanism.participation.is_sampled:
        rates = [f"{rate:g}" for rate in mechanism.rates]
        often = rates[0] if len(rates) == 1 else f"{rates[0]} to {rates[-1]}, by client"
        secret = f"in which rounds {words.differing} does is secret, and sampling adds protection"
        return f"each {words.one} in the one step of its client in a round with probability {often}; {secret}"
    context = ParticipationPhraseContext(
        words.one, words.differing, plan.federation.rounds, threat_model.sees_participation
    )
    return mechanism.participation.words(context)


def clipping_text(plan: RunPlan) -> str:
    """Return a phrase on the clipping norm: none, fixed or adaptive."""
    match plan.federation.mechanism.clipping:
        case contribution.NoClipping():
            return "none"
        case contribution.FixedClipping(norm):
            name = "norm" if plan.federation.mechanism.clipping.measured_in is VectorNorm.L2 else "L1 norm"
            return f"fixed {name} C = {number_text(norm)}"
        case contribution.AdaptiveClipping() as adaptive:
            return (
                f"adaptive norm C, {number_text(adaptive.norm)} in the first round; it follows the length that "
                f"{percent(adaptive.quantile)} of the updates keep within, by a count with noise of its own, and the "
                "guarantee counts both releases"
            )
        case _:
            assert_never(plan.federation.mechanism.clipping)


def seen_text(view: InsiderView) -> str:
    """Return a phrase on what the insider sees: the noised sum, or only the sent model."""
    match view:
        case InsiderView.UPDATE:
            return (
                "the noised sum, as if the server published it (view = update); honest clients are sent the model alone"
            )
        case InsiderView.MODEL:
            return "the model that every client is sent (view = model)"
        case _:
            assert_never(view)


def threat_model_text(plan: RunPlan) -> str:
    """Return a phrase on the adversary's position (client or server), its colluders, and the messages that it sees."""
    threat_model = plan.federation.threat_model
    match threat_model.adversary:
        case Adversary.SERVER:
            return "at the honest-but-curious server, which sees every contribution by itself"
        case Adversary.CLIENT:
            colluders_text = f", with {plural(threat_model.colluders, 'colluder')}" if threat_model.colluders else ""
            return f"at one of the clients{colluders_text}, and sees what is released to all"
        case _:
            assert_never(threat_model.adversary)


def observer_after_nobody(plan: RunPlan) -> str:
    """Return a phrase on the observers against whom the guarantee holds, which follows the words "nobody who"."""
    threat_model = plan.federation.threat_model
    mechanism = plan.federation.mechanism
    words = unit_words(plan.adjacency)
    even = informed = ""
    is_inside = mechanism.noise.origin is NoiseOrigin.TRAINING
    if is_inside or (mechanism.clients_add_noise and threat_model.adversary is Adversary.SERVER):
        even = ", not even the server that collects what participants send,"
    elif mechanism.clients_add_noise:  # who knows a part of the noise
        knowledge = (
            f" who knows the noise of {plural(threat_model.colluders, 'other')}" if threat_model.colluders else ""
        )
        even = f", even as a participant{knowledge},"
    if plan.is_amplified and threat_model.sees_participation:
        informed = f"{'' if even else ','} even if told in which rounds that {words.one} takes part,"
    return f"watches this training{_not_told_text(plan)}{even}{informed}"


def observer_after_somebody(plan: RunPlan) -> str:
    """Return a phrase on the observers against whom the guarantee holds, which follows the words "somebody who"."""
    return observer_after_nobody(plan).replace(", not even the server", ", even the server")


def informed_observer_after_somebody(plan: RunPlan) -> str:
    """Return the end of a sentence "... against somebody who", which says what this observer knows and sees.

    It describes the observer against whom a person is protected.
    """
    informed = _not_told_text(plan)
    return f"knows all the others{',' if informed else ' and'} watches this training{informed}"


def _not_told_text(plan: RunPlan) -> str:
    """Return a phrase saying that an observer does not know which units were sampled; "" if this is irrelevant."""
    if not plan.is_amplified or plan.federation.threat_model.sees_participation:
        return ""
    return f" and is not told {unit_words(plan.adjacency).secret_rounds}"


def insider_text(plan: RunPlan) -> str:
    """Return a description of the strongest adversary's position and knowledge, without technical terms."""
    threat_model = plan.federation.threat_model
    if threat_model.adversary is Adversary.SERVER:
        knows = "the server itself, which already knows everything except that one answer"
        return f"{knows} and sees what each participant sends"
    beside = ["sees all that is shared during training"]
    if plan.federation.mechanism.clients_add_noise:
        colluders_text = f" and that of {plural(threat_model.colluders, 'other')}" if threat_model.colluders else ""
        beside.append(f"takes off its own noise{colluders_text}")
    if plan.is_sampled and threat_model.sees_participation:
        beside.append(f"is told in which rounds that {unit_words(plan.adjacency).one} takes part")
    joint = "," if len(beside) > 1 else " and"
    return f"a participant who already knows everything except that one answer{joint} {phrase_list(beside)}"


def at_delta(delta: float | None) -> str:
    """Return a phrase such as ", at delta = 1e-05", to be appended to a number's description; empty for None."""
    return "" if delta is None else f", at delta = {delta:g}"
