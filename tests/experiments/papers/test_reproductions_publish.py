"""Pages of papers: made from finished reproductions, stale ones found, and the closed forms on them computed again."""

import csv
import json
import re
import shutil
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

from fl_audit.experiments.papers import publish
from fl_audit.experiments.papers.bernau2019.epsilon_tables import table_2, table_3
from fl_audit.experiments.papers.bernau2021.closed_forms import calibrated
from fl_audit.experiments.papers.bernau2021.closed_forms import table_3 as scores
from fl_audit.experiments.papers.bernau2021.noisy_query import DELTAS, DIMENSIONS, EPSILONS, NoisyQuery
from fl_audit.experiments.papers.claims import ClaimVerdict, PaperClaim, said_of, verdicts_said
from fl_audit.experiments.papers.negoescu2023.error_rate_log_ratios import theorem_2
from fl_audit.experiments.papers.negoescu2023.estimators import SETTINGS
from fl_audit.experiments.papers.negoescu2023.simulation import _true_epsilon_star
from fl_audit.experiments.papers.papers import ComputeExtent, ReproductionOptions
from fl_audit.experiments.papers.plot_style import SENSITIVITY_LOOKS, draw_boxes
from fl_audit.experiments.papers.published_page import shortened
from fl_audit.experiments.papers.reproduce import PAPERS, reproduce
from fl_audit.privacy.accounting_enums import SensitivityKind
from fl_audit.privacy.identifiability_bounds import gaussian_advantage, rho_alpha
from fl_audit.report.figure_style import new_figure
from fl_audit.statistics.interval_estimates import IntervalEstimate
from tests.builders.refusals import assert_refused

DOCS = Path(__file__).parents[3] / "docs" / "papers"


@pytest.fixture(scope="module")
def finished_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("finished")
    reproduce("bernau2021-table3", ReproductionOptions(directory / "a", extent=ComputeExtent.QUICK))
    reproduce("bernau2019-table2", ReproductionOptions(directory / "b"))
    return directory


@pytest.fixture
def finished(finished_once: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished_once, tmp_path / "runs"))


def test_pages_show_what_is_finished(finished: Path, tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    assert publish.publish(finished, docs) == ("bernau2019", "bernau2021")
    page = (docs / "bernau2021.md").read_text(encoding="utf-8")
    assert re.search(r"^# Bernau .*2021, again$", page, re.MULTILINE)
    assert "Quick form" in page
    assert "](bernau2021/table3.svg)" in page
    assert "Not made: Table 1. " in page
    assert "; Table 2. Advantage" in page
    assert page.count(", commit ") == 1, "the commit of all tables and figures is named once"
    assert "Quick form" not in (docs / "bernau2019.md").read_text(encoding="utf-8")
    for name in ("bernau2021/table3", "bernau2019/table2"):
        drawing = (docs / f"{name}.svg").read_text(encoding="utf-8")
        assert _drawn(drawing) == _drawn(next(finished.glob(f"*/{name.partition('/')[2]}.svg")).read_text("utf-8"))
        assert ("delta 0.001" in drawing) == (name == "bernau2021/table3")  # words keep their digits
        pd.testing.assert_frame_equal(
            pd.read_csv(docs / f"{name}.csv"),
            pd.read_csv(next(finished.glob(f"*/{name.partition('/')[2]}.csv"))),
            rtol=10.0 ** (1 - publish.DIGITS),
        )
    assert not publish.stale_pages(docs)
    # The same again writes the same, and the other paper's page stays when one alone is published.
    before = {path: path.read_bytes() for path in docs.rglob("*") if path.is_file()}
    publish.publish(finished / "a", docs)
    assert {path: path.read_bytes() for path in docs.rglob("*") if path.is_file()} == before


def _drawn(svg: str) -> list[tuple[str, str, str]]:
    """Return what a picture draws, in order: each path or letter, where it is, and in which style."""
    root = ElementTree.fromstring(svg)
    sheet = "".join(element.text or "" for element in root.findall(".//{*}style"))
    styles = dict(re.findall(r"\.(s\d+)\{([^}]*)\}", sheet))
    return [
        (
            element.tag,
            " ".join((element.text or "").split())
            + " ".join(re.findall(r"[A-Za-z]|[-\d.]+", element.get("d", "")))
            + element.get("transform", "")
            + element.get("x", "")
            + element.get("y", ""),
            element.get("style", styles.get(element.get("class", ""), "")).strip(),
        )
        for element in root.iter()
        if element.tag.rpartition("}")[2] in {"path", "use", "text", "tspan", "g", "rect"}
    ]


@pytest.mark.long
def test_pages_that_would_be_too_large_are_not_written(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish, "MOST_BYTES", 10_000)
    assert_refused(r"bytes: .*\b10,000", publish.publish, finished, tmp_path / "docs")
    assert not (tmp_path / "docs").exists()


def test_pages_of_other_settings_are_stale(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish.publish(finished, tmp_path / "docs")
    other_papers = tuple(replace(paper, constants=lambda extent: "others") for paper in PAPERS)
    monkeypatch.setattr(publish, "PAPERS", other_papers)
    assert len(publish.stale_pages(tmp_path / "docs")) == 2
    assert_refused(r"table3\.json: .*settings", publish.publish, finished / "a", tmp_path / "docs")
    monkeypatch.setattr(publish, "SCHEMA", 2)
    assert re.fullmatch(r"bernau2019-table2: schema 1, .*\b2", publish.stale_pages(tmp_path / "docs")[0])
    (tmp_path / "empty").mkdir()
    assert_refused("no finished reproduction", publish.publish, tmp_path / "empty", tmp_path / "docs")


@pytest.mark.long
def test_the_full_form_is_taken_of_both(tmp_path: Path) -> None:
    for extent in ComputeExtent:
        reproduce("bernau2021-table3", ReproductionOptions(tmp_path / "runs" / extent, extent=extent))
    publish.publish(tmp_path / "runs", tmp_path / "docs")
    assert "Full form" in (tmp_path / "docs" / "bernau2021.md").read_text(encoding="utf-8")


def test_claims_become_rows() -> None:
    claim = PaperClaim("6", "it is so", "there", "AUC", IntervalEstimate(0.5, 0.4, np.inf), 0.45, trials=7)
    record = {"paper": "p", "item": "claims", "claims": [claim.to_json()]}
    rows = list(csv.DictReader(publish._claims_csv([record]).splitlines()))
    assert rows == [
        {
            "paper": "p",
            "item": "claims",
            "claim": "it is so [there; AUC]",
            "verdict": "not decided",
            "measured": "0.5",
            "low": "0.4",
            "high": "",
            "trials": "7",
        }
    ]


def test_a_second_look_is_told_of_claims_that_do_not_hold() -> None:
    look = "our setting: we had fewer."
    claim = PaperClaim("6", "it is so", quantity="AUC", lowest=0.7, explanations=(("there", look),))
    fails = claim.on("there, at 1", IntervalEstimate(0.5, 0.4, 0.6), 7)
    claims = [fails, replace(fails, where="elsewhere"), replace(fails, lowest=0.3)]
    assert [claim_copy.second_look for claim_copy in claims] == ["our setting: we had fewer.", "", ""]
    assert fails.note.endswith("claimed: at least 0.7; our setting: we had fewer.")
    assert fails.to_json()["second_look"] == "our setting: we had fewer."


def test_theorem_2_has_a_counterexample() -> None:
    claim = theorem_2()
    assert claim.interval.value == pytest.approx(2.19 - 3.53, abs=0.01)
    assert claim.verdict is ClaimVerdict.FAILS


def test_boxes_of_many_values_stay_small() -> None:
    # The full form has 30,000 sensitivities a box, and of heavy tails thousands would be dots of their own.
    values = np.random.default_rng(0).standard_t(2, size=30_000)
    axes = new_figure().subplots()
    draw_boxes(axes, [values, np.zeros(9)], [0.0, 1.0], SENSITIVITY_LOOKS[SensitivityKind.LOCAL], 0.5)
    dots = [line.get_ydata() for line in axes.get_lines() if line.get_marker() == "."]
    assert len(dots[0]) <= 61  # type: ignore[arg-type]
    assert (np.min(dots[0]), np.max(dots[0])) == pytest.approx((values.min(), values.max()))
    assert len(dots[1]) == 0  # type: ignore[arg-type]


def test_claims_that_cannot_be_tested_are_counted_apart() -> None:
    holds = PaperClaim("6", "so", "there", "AUC", IntervalEstimate(0.5, 0.4, 0.6), 0.3)
    verdict_text = verdicts_said([holds, PaperClaim("6", "so", why="no data")])
    assert re.match(r"Of 1 claims .*, 1 holds\b.*\b1 more cannot", verdict_text)


def test_verdicts_agree_with_the_number_of_claims() -> None:
    assert [said_of(verdict, 1) for verdict in ClaimVerdict if said_of(verdict, 1) == said_of(verdict, 2)] == [
        str(ClaimVerdict.UNTESTED)
    ]


# ---------------------------------------------------------------- the pages of this version


def test_no_published_number_lies_outside_its_own_interval() -> None:
    tables = [DOCS / publish.CLAIMS, *DOCS.glob("*/*.csv")]
    outside = []
    for path in tables:
        rows = pd.read_csv(path)
        if "note" in rows:  # of a largest value the interval is that of its distribution
            rows = rows[~rows["note"].fillna("").str.contains("by the exact distribution, interval likewise")]
        rows = rows[["measured", "low", "high"]].dropna()
        slack = 10.0 ** (1 - publish.DIGITS) * rows["measured"].abs()
        wrong = (rows["measured"] < rows["low"] - slack) | (rows["measured"] > rows["high"] + slack)
        outside += [f"{path.name}, row {index}" for index in rows.index[wrong]]
    assert outside == []


def test_claims_are_those_of_their_own_paper_and_told_once() -> None:
    published_records = json.loads((DOCS / publish.MADE).read_text(encoding="utf-8"))
    claims = {
        key: next(entry for entry in records if entry["item"] == "claims")["claims"]
        for key, records in published_records.items()
    }
    assert not [entry for entry in claims["bernau2019"] if entry["section"].startswith("Bernau")]
    for paper_claims in claims.values():
        statements = [(entry["statement"], entry["where"], entry["quantity"]) for entry in paper_claims]
        assert len(statements) == len(set(statements))
    exact = [entry["quantity"] for entry in claims["bernau2021"] if entry["trials"] and entry["low"] == entry["high"]]
    assert {quantity.rpartition(", ")[2] for quantity in exact} == {"bookkeeping"}, "a closed form is no measurement"


@pytest.mark.parametrize(
    "module", ["bernau2019.claim_premises", "bernau2021.closed_forms", "negoescu2023.epsilon_star_runs"]
)
def test_each_claim_of_the_text_is_in_the_published_table_and_no_other(module: str) -> None:
    claims = import_module(f"fl_audit.experiments.papers.{module}").CLAIMS
    records = json.loads((DOCS / publish.MADE).read_text(encoding="utf-8"))[module.partition(".")[0]]
    published = {claim["statement"]: claim for record in records for claim in record["claims"]}
    stated = {claim.statement: claim for key, claim in claims.items() if not key.endswith("-premise")}
    assert stated.keys() == published.keys()
    for statement, claim in stated.items():
        assert bool(claim.why) <= (published[statement]["verdict"] == ClaimVerdict.UNTESTED)
        assert claim.verdict is (ClaimVerdict.UNTESTED if claim.why else ClaimVerdict.OPEN)  # without a number
        assert not (claim.why and claim.explanations)


def test_skewed_purchases_agree_with_what_section_6_says_of_them() -> None:
    rows = pd.read_csv(DOCS / publish.CLAIMS).set_index("claim")["verdict"]
    of = rows[[name for name in rows.index if "same test accuracy" in name and "Skewed" in name]]
    assert of[["10 classes; " in name for name in of.index]].tolist() == [ClaimVerdict.HOLDS] * 2
    assert not any("50 classes;" in name or "100 classes;" in name or "alike" in name for name in of.index)
    claim_name = next(name for name in rows.index if name.startswith("one component suffices"))
    assert rows[claim_name] == ClaimVerdict.FAILS


def test_no_published_page_is_stale() -> None:
    assert publish.stale_pages(DOCS) == []
    assert sum(path.stat().st_size for path in publish._files(DOCS)) <= publish.MOST_BYTES


def test_pages_leave_to_tables_what_these_say_too() -> None:
    numbers = "".join(f"<li>number {index}</li>" for index in range(5))
    claims = "<li>A: it holds on our data.</li><li>B: of 2, 1 does not hold on our data.</li><li>Of C: none</li>"
    section = f"<p>5 of 9 lie outside our interval:</p><ul>{numbers}</ul>\n<ul>{claims}</ul></details>"
    short = shortened(section)
    assert short == "<p>5 of 9 lie outside our interval.</p>\n<ul><li>Of C: none</li></ul></details>"
    for page in DOCS.glob("*.md"):
        text = page.read_text(encoding="utf-8")
        assert shortened(text) == text or page.name in {"index.md", "errors.md"}, page.name


def test_claims_that_do_not_hold_were_looked_at_twice() -> None:
    published_records = json.loads((DOCS / publish.MADE).read_text(encoding="utf-8"))
    missing = [
        (claim["statement"], claim["where"])
        for records in published_records.values()
        for record in records
        if record["extent"] == ComputeExtent.FULL and record["item"] == "claims"
        for claim in record["claims"]
        if claim["verdict"] == ClaimVerdict.FAILS and not claim.get("second_look")
    ]
    assert missing == []


def test_the_table_of_claims_is_that_of_the_records() -> None:
    published_records = json.loads((DOCS / publish.MADE).read_text(encoding="utf-8"))
    expected = publish._claims_csv(record for records in published_records.values() for record in records)
    assert (DOCS / publish.CLAIMS).read_text(encoding="utf-8") == expected


_ROUNDED = 10.0 ** (1 - publish.DIGITS)


def _published(paper: str, item: str) -> pd.DataFrame:
    return pd.read_csv(DOCS / paper / f"{item}.csv").set_index(["setting", "quantity"])


@pytest.mark.parametrize(
    ("paper", "item", "table_function"),
    [("bernau2019", "table2", table_2), ("bernau2019", "table3", table_3), ("bernau2021", "table3", scores)],
)
def test_tables_of_closed_forms_are_computed_again(paper: str, item: str, table_function) -> None:  # type: ignore[no-untyped-def]
    published_rows = _published(paper, item)
    ours = table_function().frame.set_index(["setting", "quantity"])
    for column in ("published", "theory"):
        assert published_rows[column].to_numpy() == pytest.approx(
            ours[column].to_numpy(dtype=float), rel=_ROUNDED, nan_ok=True
        )


def test_theory_of_the_query_and_of_local_noise_is_computed_again() -> None:
    published_theory = _published("bernau2021", "fig3")["theory"]
    for epsilon in EPSILONS:
        for delta in DELTAS:
            label = NoisyQuery(epsilon, delta, DIMENSIONS).label
            assert published_theory[label, "advantage"] == pytest.approx(rho_alpha(epsilon, delta), rel=_ROUNDED)
    table = _published("bernau2021", "table2")["theory"]
    for title, delta in (("MNIST", 0.01), ("Adult", 0.001)):
        multiplier = calibrated(0.9, delta).noise_multiplier
        assert multiplier is not None
        for letter in "BU":
            published_advantage = table[f"{title}, LS {letter}, rho_beta 0.9", "advantage"]
            assert published_advantage == pytest.approx(gaussian_advantage(np.sqrt(30) / multiplier), rel=_ROUNDED)


def test_the_truth_of_the_simulation_is_computed_again() -> None:
    records = json.loads((DOCS / publish.MADE).read_text(encoding="utf-8"))["negoescu2023"]
    extent = ComputeExtent(next(record["extent"] for record in records if record["item"] == "fig5"))
    settings = SETTINGS[extent]
    published_theory = _published("negoescu2023", "fig5")["theory"]
    for apart in settings.separations:
        distribution = f"separation {apart:g}" if apart else "identical distributions"
        for size in settings.sizes:
            published_mean = published_theory[f"{distribution}, {size:,} losses", "mean Epsilon*, parametric form"]
            assert published_mean == pytest.approx(_true_epsilon_star(settings, apart), rel=_ROUNDED, abs=1e-12)
