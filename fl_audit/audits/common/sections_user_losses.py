"""Report section on what the losses of a released model give away of users."""

from fl_audit.array_types import finite
from fl_audit.audits.common import findings_epsilon_star as evidence
from fl_audit.audits.common.report_cautions import chance_text
from fl_audit.released_model.star_methods import cut_text
from fl_audit.report.mechanism_messages import at_delta
from fl_audit.report.report_elements import ReportContents, ReportNumber, Section
from fl_audit.words import number_text


def _users_rows(finding: evidence.UserEpsilonStarFinding, contents: ReportContents) -> list[ReportNumber]:
    star = finding.star
    right = finite(finding.test_accuracy)
    mean = "by the mean loss of each user's records, taken for normal after a logit transform"
    rows = [
        ReportNumber(
            "Accuracy for a user",
            right,
            "share of a test user's records that is named right, mean over users and "
            "trials: a user with many records counts once",
            is_share=True,
        )
    ]
    if star is None:
        return rows
    chance = "the same of release 0, which cannot leak: what chance reaches"
    basis_text = (
        f"of the final release, {mean}, whose fit was not tested{at_delta(finding.delta)}, {cut_text(star.cut)}"
    )
    return [
        ReportNumber("Epsilon* of users, mean over trials (nats)", finite(star.mean), basis_text),
        ReportNumber("Epsilon* of users, largest trial (nats)", finite(star.max), "an extreme value"),
        ReportNumber("Epsilon* of users of untrained models, mean (nats)", finite(star.untrained_mean), chance),
        *rows,
    ]


def _users_sentence(finding: evidence.UserEpsilonStarFinding, _: ReportContents) -> str:
    star = finding.star
    statistic_text = "The statistic of a user is the mean of the losses of the user's records. "
    if star is None:
        return f"{statistic_text}Epsilon* of users was not computed."
    reached = chance_text(star.untrained_mean)
    chance = "" if reached is None else f"; chance alone reaches {reached}"
    return f"{statistic_text}Epsilon* of users is {number_text(star.mean, 3)}{chance}."


USERS = Section(
    "of-users",
    "What the models' losses give away of users",
    evidence.UserEpsilonStarFinding,
    evidence.measure_users,
    keys=("of_users",),
    sentence=_users_sentence,
    rows=_users_rows,
)
