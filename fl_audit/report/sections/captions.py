"""Title, caption and alternative text of each figure, with the numbers of the run in them."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from fl_audit.report.contents import LawFacts, RunContents
from fl_audit.report.sections.membership_figure import yeom_bound_fits
from fl_audit.report.sections.training_figures import promise_fits
from fl_audit.report.wording import number_text, percent, plural


@dataclass(frozen=True)
class Caption:
    """The words around one figure: a heading, an explanation and a text that can stand for the picture."""

    title: str
    text: str
    alternative: str


def caption(name: str, contents: RunContents) -> Caption:
    """Return the caption of the figure called `name`; a figure that is not known is captioned with its name."""
    known = CAPTIONS.get(name)
    return known(contents) if known else Caption(name, "", f"Figure {name}")


def _beliefs(contents: RunContents) -> Caption:
    law, worlds = contents.law, len(contents.worlds)
    if law.exact_final_law:
        curve = (
            f"The curve is the exact law: log-odds that are normal with mean μ²/2 and standard deviation "
            f"μ = {number_text(law.mu)}, turned into probabilities with prior {percent(law.prior)}."
        )
    else:
        curve = (
            f"The dashed curve is the promise, an upper limit (μ = {number_text(law.mu)}): the law if the record made "
            "the largest possible difference in every round. Noise scaled to the global sensitivity leaves no exact "
            "law of the final belief; the figure of the innovations tests the law that does hold."
        )
    text = (
        f"Final belief of the insider in the data set that was really used, in {plural(worlds, 'world')}. {curve} "
        f"{_bound_sentence(contents)}"
    )
    alternative = (
        f"Histogram of final beliefs of {plural(worlds, 'world')} between 0 and 1 with its theoretical curve. "
        f"Largest belief {percent(contents.number('insider', 'max_belief'))}. {_bound_sentence(contents)}"
    )
    return Caption("Final beliefs", text, alternative)


def _belief_rounds(contents: RunContents) -> Caption:
    law = contents.law
    band = (
        " Thick lines and bands: median of the exact law and the range that holds 95 % of worlds at each round."
        if law.exact_final_law
        else " No exact law is drawn: under global scaling it differs from world to world."
    )
    text = (
        "Belief in D of the first worlds of either kind, chosen by number and not by outcome: solid with ● where D was "
        f"used, dashed with ▼ where D' was.{band} A world beyond the upper dash-dotted line is surer of D than the "
        "bound allows, one below the lower line surer of D'."
    )
    alternative = f"Lines of the belief in D over {plural(law.rounds, 'round')}, starting at {percent(law.prior)}."
    return Caption("Beliefs over rounds", text, alternative)


def _log_odds(contents: RunContents) -> Caption:
    law = contents.law
    curves = (
        f"The curves are the exact laws N(±μ²/2, μ²), μ = {number_text(law.mu)}."
        if law.exact_final_law
        else f"The curves are the promise, an upper limit: N(±μ²/2, μ²), μ = {number_text(law.mu)}."
    )
    text = (
        "The insider's whole evidence for D against D' after the last round, without the prior; filled where D was "
        f"used, hatched where D' was. {curves} The further the two lie apart, the more the insider learned."
    )
    alternative = "Two overlapping histograms of log-odds, one for worlds that used D, one for D', with normal curves."
    return Caption("Final log-odds", text, alternative)


def _membership(contents: RunContents) -> Caption:
    insider, record, members = (
        number_text(contents.number(*keys, "advantage"), 3)
        for keys in (("insider",), ("membership", "record"), ("membership",))
    )
    is_loose = contents.law.has_noise and not yeom_bound_fits(contents)
    loose = " The bound of Yeom et al. lies above 1 and says nothing." if is_loose else ""
    # With another prior the insider names the likelier data set, not the one that the evidence speaks for.
    even = contents.law.prior == 0.5
    chance = " and wins more often by chance only, since the insider knows all that it knows" if even else ""
    game = (
        f"plays the insider's game in the insider's worlds{chance}"
        if contents.has_insider
        else "says in each world whether it was used"
    )
    text = (
        "The membership adversary of Yeom et al. sees the final model alone and calls a record a member where its loss "
        f"is at most the average training loss. Asked about the record in which D and D' differ, it {game}. "
        "Asked about all members and about the population sample, it has one advantage a world; "
        "the interval is that of their mean, for this D and this sample: another draw of records "
        f"may move it by more. {contents.value('membership', 'bound_scope') or ''}{loose}"
    )
    if not contents.has_insider:
        alternative = f"Advantages: membership about the differing record {record}, about members {members}."
        return Caption("The membership adversary", text, alternative)
    alternative = f"Advantages: insider {insider}, membership about the same record {record}, about members {members}."
    return Caption("The insider beside the membership adversary", text, alternative)


def _innovations(contents: RunContents) -> Caption:
    holds = contents.value("innovations", "holds")
    verdict = "" if holds is None else f" Finding of this run: the law {'holds' if holds else 'does NOT hold'}."
    text = (
        "One innovation is one round's step of the log-odds, less what the law expects, in units of its spread. They "
        "must be independent N(0, 1) whatever the data, the model and the scaling; rounds in which the record changed "
        "nothing have none. Points near the dashed line and mostly inside the 95 % band mean that noise, sensitivities "
        f"and beliefs fit together; the lower row magnifies the differences.{verdict}"
    )
    alternative = f"Quantile plots of the innovations against the standard normal law with 95 % bands.{verdict}"
    return Caption("Innovations", text, alternative)


def _local_sensitivity(contents: RunContents) -> Caption:
    law = contents.law
    text = (
        "How far the sum of clipped gradients moves between the two data sets, at the weights of that round. "
        f"It cannot exceed the global sensitivity, {number_text(law.global_sensitivity)} ({law.relation}, clipping "
        f"norm C = {number_text(law.clipping_norm)}). {_scaling_sentence(law)}"
    )
    alternative = (
        f"Curve of the local sensitivity over {plural(law.rounds, 'round')}, with lines at the clipping norm "
        f"{number_text(law.clipping_norm)} and the global sensitivity {number_text(law.global_sensitivity)}."
    )
    return Caption("Local sensitivity", text, alternative)


def _releases(contents: RunContents) -> Caption:
    accuracy = percent(contents.number("utility", "test_accuracy"))
    text = f"Median over worlds and the range of the middle 90 %. Test accuracy of the final release: {accuracy}."
    alternative = f"Curve of test accuracy over releases, ending at {accuracy}."
    if not contents.has_epsilon_star:
        return Caption("Accuracy", f"{text} Epsilon* was turned off or not determined.", alternative)
    mean, delta = contents.number("epsilon_star", "mean"), contents.number("epsilon_star", "delta")
    star = (
        f" Epsilon* at δ = {number_text(delta)} measures one released model from its losses alone; "
        f"0 means that members and others look alike. {_promise_sentence(contents)}"
    )
    alternative += f" Curve of Epsilon* over releases, ending at {number_text(mean)} on average."
    return Caption("Accuracy and Epsilon*", text + star, alternative)


def _client_epsilon_star(contents: RunContents) -> Caption:
    told = contents.value("client_epsilon_star") or []
    alone = sum(client["worlds"] == 0 for client in told)
    without = f" No value for {plural(alone, 'client')} with fewer than two records." if alone else ""
    text = (
        "Each data owner holds the losses of its own records against those of the population sample, on one common "
        f"scale of losses, at the same δ = {number_text(contents.number('epsilon_star', 'delta'))}. A shard of few "
        "records reaches large values by chance alone, so compare clients of like size, and worlds more than clients."
        f"{without}"
    )
    alternative = f"Epsilon* of the shards of {plural(len(told), 'client')}: medians with the middle 90 % of worlds."
    return Caption("Epsilon* of each data owner", text, alternative)


CAPTIONS: dict[str, Callable[[RunContents], Caption]] = {
    "beliefs": _beliefs,
    "belief-rounds": _belief_rounds,
    "log-odds": _log_odds,
    "membership": _membership,
    "innovations": _innovations,
    "local-sensitivity": _local_sensitivity,
    "releases": _releases,
    "client-epsilon-star": _client_epsilon_star,
}


def _bound_sentence(contents: RunContents) -> str:
    beyond, worlds = contents.beyond_bound(), len(contents.worlds)
    if beyond is None:
        return ""
    bounds, delta = contents.belief_bounds(), contents.number("guarantee", "delta")
    other = "" if math.isclose(bounds[0], bounds[1]) else f" for D and {percent(bounds[0])} for D'"
    return (
        f"Beyond the belief bound of {percent(bounds[1])}{other} ({contents.value('guarantee', 'accountant')}) lie "
        f"{beyond:,} of {worlds:,} ({percent(beyond / worlds)}); promised is at most δ = {percent(delta)}."
    )


def _scaling_sentence(law: LawFacts) -> str:
    if law.scaling == "local":
        return "The noise of each round was scaled to this curve (local scaling)."
    return "The noise was scaled to the global sensitivity; the gap below that line is noise spent on the worst case."


def _promise_sentence(contents: RunContents) -> str:
    epsilon = contents.number("guarantee", "epsilon")
    promise = f"promised epsilon, {number_text(epsilon)} ({contents.value('guarantee', 'accountant')})"
    if epsilon is None:
        return ""
    if promise_fits(contents):
        return f"The dash-dotted line is the {promise}."
    return f"The {promise}, lies far above the curve and is not drawn."
