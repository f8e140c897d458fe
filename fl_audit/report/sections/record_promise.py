"""What each record is promised by itself, where owners randomise their records before anything is trained on them."""

from typing import assert_never

from fl_audit.data.randomisers import LaplacePixelation, RandomisedBits, RandomisedEdges, RecordRandomiser
from fl_audit.evidence.findings.record_promise import PairPromise, RecordPromise, measure_record_promise, unit_of
from fl_audit.report.finding import Row, RunContents, Section
from fl_audit.report.law_words import randomiser_text
from fl_audit.report.wording import number_text, plural

_INDEPENDENT = "draws of the owners are independent, and labels are not hidden; pure epsilon, without a delta"


def _phrases(randomiser: RecordRandomiser) -> tuple[str, str, str]:
    """Return how the report speaks of what differs, of what the paper counts, and of records that differ most."""
    match randomiser:
        case RandomisedBits():
            return "features", "all features", "records that differ in all features"
        case RandomisedEdges():
            return "pairs of nodes", "all pairs of one node", "graphs that differ in all pairs of nodes"
        case LaplacePixelation():
            return "pixels", "all released values", "a black image and a white one"
        case _:
            assert_never(randomiser)


def _sentence(numbers: RecordPromise, _: RunContents) -> str:
    one, what = unit_of(numbers.randomiser), randomiser_text(numbers.randomiser)
    own, whole = number_text(numbers.epsilon, 3), number_text(numbers.whole_epsilon, 3)
    return (
        f"Before anything was trained, every owner {what}, once. So whatever anybody sees later, evidence about one "
        f"{one} stays within a factor of e to the {own}, and about a whole record within e to the {whole}."
    )


def _rows(numbers: RecordPromise, _: RunContents) -> list[Row]:
    counted, whole = _phrases(numbers.randomiser)[1:]
    one = unit_of(numbers.randomiser)
    rows = [
        Row(f"Epsilon of one {one} (nats)", numbers.epsilon, f"chosen before the run; {_INDEPENDENT}"),
        Row(f"Epsilon counted over {counted} (nats)", numbers.counted_epsilon,
            f"{numbers.counted:,} times that of one, as Bernau et al. 2019 count"),
        Row("Epsilon of any two records (nats)", numbers.whole_epsilon, f"largest log-odds, of {whole}"),
    ]  # fmt: skip
    return rows if numbers.pair is None else rows + _pair_rows(numbers, numbers.pair)


def _pair_rows(numbers: RecordPromise, pair: PairPromise) -> list[Row]:
    bound, differ = "" if pair.is_exact else ", at most", _phrases(numbers.randomiser)[0]
    between = f"between one record and another that differ in {pair.differing:,} {differ}"
    formula = "P(B > d/2) - P(B < d/2), B binomial over the d features that differ"
    method = formula if pair.is_exact else "total variation, from a pessimistic privacy loss distribution"
    rows = [
        Row(f"Epsilon of the pair{bound} (nats)", pair.epsilon, f"largest log-odds, {between}"),
        Row(
            f"Advantage on one randomised record{bound}", pair.advantage, f"{method}; {between}; both records are known"
        ),
    ]
    if (measured := pair.measured) is not None:
        basis = (
            "share of worlds in which the log-odds named the record that was randomised, less the share in which they "
            f"named it where the other one was; two Clopper-Pearson intervals; {plural(measured.worlds, 'world')}"
        )
        rows.append(Row("Advantage on one randomised record, measured", measured.advantage, basis, measured.low,
                        measured.high, measured.confidence, pair.advantage, on_page=True))  # fmt: skip
    return rows


RECORD_PROMISE = Section(
    name="record-promise", title="What each record is promised by itself", numbers=RecordPromise,
    measure=measure_record_promise, keys=("record_promise",), on_page=True, sentence=_sentence, rows=_rows,
)  # fmt: skip
