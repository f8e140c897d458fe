"""Readings of honest runs of all kinds, none of which may be said to break its guarantee.

Of a run every number beside a guarantee is collected, with all text that is printed of it: page, console, and the
entries of its summary. The readings are held against the printed numbers, by which a reader would judge them: what is
kept lies on the right side with its whole interval, and what is no contradiction has the claim inside of its interval.
Nothing is called broken, and no word of earlier versions is left.
"""

import io
import math
import re
from collections.abc import Iterator, Mapping
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console

from fl_audit.audits.page.first_screen import summary_table
from fl_audit.audits.page.report_page import render_html
from fl_audit.audits.sections import sections_with_findings
from fl_audit.federation.run_plan import RunPlan
from fl_audit.report.report_elements import ReportContents
from fl_audit.runs.config import parse_config
from fl_audit.runs.planning import plan_run
from fl_audit.statistics.claim_comparisons import Reading, finding_text
from tests.validation.engine_runs import honest_plans

_OLD_WORDS = re.compile(r"\bas (?:claimed|promised)\b|within chance|outside its interval")
_BROKEN = re.compile(r"(?:: |\()broken\b|Reading: broken|>broken<|BROKEN|guarantee was broken")
_NUMBER = r"(-?[\d.,]+(?:e-?\d+)?)"
_ENDS = re.compile(rf"{_NUMBER}(?: %)? to (?:{_NUMBER}(?: %)?|no limit)")
_CLAIM = re.compile(rf"claimed (at least|at most) {_NUMBER}(?: %)?: (.*)$")

_PRIVACY: dict[str, Any] = {
    "noise-multiplier": 4.0,
    "delta": 0.01,
    "clipping-norm": 1.0,
    "sensitivity": "global",
    "adjacency": "add-remove-record",
    "accountant": "gdp",
}
_SETTINGS: dict[str, dict[str, Any]] = {
    "data": {"name": "breast-cancer", "records": 60, "clients": 3, "test-records": 20, "population-records": 60},
    "model": {"name": "logistic"},
    "training": {"rounds": 4, "learning-rate": 1.0},
    "privacy": _PRIVACY,
    "audit": {"trials": 30, "epsilon-star": False, "membership": False},
    "run": {"trials-per-batch": 30, "keep-releases": 0},
}
_MEMBERS: dict[str, Any] = {"kind": "membership", "targets": 12, "attacks": ["loss"]}
_OF_CLIENTS: dict[str, Any] = {"strategy": "dp-fedavg", "local-steps": 1, "local-batch": 10, "local-learning-rate": 0.1}
_BY_CLIENTS: dict[str, dict[str, Any]] = {
    "training": {"strategy": "dp-sgd-clients", "local-batch": 8, "learning-rate": None},
    "privacy": {"noise-multiplier": 1.2, "sensitivity": None, "accountant": None},
}
_CANARIES: dict[str, Any] = {"kind": "canaries", "trials": None, "canaries": 6, "evaluate-every": 20}
_OF_USERS: dict[str, Any] = {
    "name": "csv",
    "label": "left",
    "user": "person",
    "records": 90,
    "test-records": 30,
    "population-records": None,
}
_FEDERATIONS: dict[str, dict[str, dict[str, Any]]] = {
    "two trials": {"audit": {"trials": 2}},
    "eight records": {"data": {"records": 8, "clients": 2}, "audit": {"trials": 12, "membership": True}},
    "all at once": {"audit": {"trials": 60, "membership": True, "epsilon-star": True}},
    "few, at epsilon 8": {"privacy": {"noise-multiplier": None, "epsilon": 8.0}, "audit": {"trials": 40}},
    "membership": {"audit": _MEMBERS},
    "membership, LiRA": {"audit": _MEMBERS | {"attacks": ["loss", "lira"], "trials": 24}},
    "membership, sampled": {"training": {"sampling-rate": 0.5}, "privacy": {"accountant": "pld"}, "audit": _MEMBERS},
    "membership, four trials": {"audit": _MEMBERS | {"trials": 4}},
    "reconstruction": {"audit": {"kind": "reconstruction", "candidates": 20, "trials": 100}},
    "reconstruction, few": {"audit": {"kind": "reconstruction", "candidates": 20, "trials": 10}},
    "canaries": {
        "data": {"clients": 6},
        "training": _OF_CLIENTS | {"rounds": 20},
        "privacy": {"adjacency": "add-remove-client", "noise-multiplier": 1.0, "sensitivity": None},
        "audit": _CANARIES,
        "run": {"trials-per-batch": None},
    },
    "users": {
        "data": _OF_USERS,
        "training": {"learning-rate": 0.5},
        "privacy": {"adjacency": "replace-user"},
        "audit": {"trials": 40, "epsilon-star": True},
    },
    "users, sampled": {
        "data": _OF_USERS,
        "training": {"sampling-rate": 0.5, "learning-rate": 0.5},
        "privacy": {"adjacency": "add-remove-user", "clipping": "adaptive", "accountant": "pld"},
        "audit": {"membership": True},
    },
    "clients train privately": _BY_CLIENTS | {"audit": {"trials": 24}},
    "bits at random": {
        "data": {
            "name": "fl_audit.experiments.papers.bernau2019.skewed:skewed_purchases",
            "test-records": 50,
            "loader-parameters": {"classes": 10, "generated-records": 400},
        },
        "privacy": {
            "private": False,
            "local-randomizer": "randomised-response",
            "record-epsilon": 1.0,
            **dict.fromkeys(("noise-multiplier", "clipping-norm", "sensitivity", "adjacency", "accountant")),
        },
        "audit": {"trials": 40},
    },
}
"""Federations and shapes of honest runs, as changes of the settings; None removes a setting."""


def _write_visits(path: Path) -> None:
    """Write 240 visits of 60 persons, one to a dozen each."""
    draw = np.random.default_rng(3)
    persons = np.concatenate([np.arange(60), draw.choice(60, 180, p=draw.dirichlet(np.full(60, 2.0)))])
    table = pd.DataFrame({"person": [f"P{person}" for person in persons], "length": draw.normal(size=240)})
    table.assign(left=np.where(draw.random(240) < 0.5, "yes", "no")).to_csv(path, index=False)


def honest_readings(count: int, directory: Path) -> Iterator[tuple[str, RunPlan]]:
    """Yield honest runs with their kinds: every second one of `_FEDERATIONS`, the others those of `honest_plans`."""
    visits = directory / "visits.csv"
    _write_visits(visits)
    for number, plan in enumerate(honest_plans(count, directory)):
        if number % 2:
            yield f"plan {number % 14}", plan
            continue
        name = list(_FEDERATIONS)[number // 2 % len(_FEDERATIONS)]
        sections = {}
        for section, values in _SETTINGS.items():
            changed = values | _FEDERATIONS[name].get(section, {})
            sections[section] = {key: value for key, value in changed.items() if value is not None}
        if sections["data"]["name"] == "csv":
            sections["data"]["path"] = str(visits)
        sections["run"]["seed"] = int(np.random.default_rng((5, number)).integers(2**32))
        if "trials-per-batch" in sections["run"]:
            sections["run"]["trials-per-batch"] = sections["audit"]["trials"]
        yield name, plan_run(parse_config(sections))


def texts_of(contents: ReportContents) -> dict[str, str]:
    """Return all printed texts of a run, by their places."""
    console = Console(width=400, record=True, file=io.StringIO())
    console.print(summary_table(contents))
    page = " ".join(unescape(re.sub(r"<[^>]+>", " ", render_html(contents, []))).split())
    return {"page": page, "console": console.export_text(), "summary": str(contents.summary)}


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def contradicts(entry: Mapping[str, Any]) -> str:
    """Return how the printed text of a number contradicts its reading; empty where it supports it.

    `entry` is one of `findings`, as `Row.to_json` writes it.
    """
    text = finding_text(entry).replace("\N{NO-BREAK SPACE}", " ")
    if (claim_match := _CLAIM.search(text)) is None:
        return ""
    is_least = claim_match[1] == "at least"
    claim = _number(claim_match[2])
    reading_text = claim_match[3]
    intervals = _ENDS.findall(text)
    if not intervals or (len(intervals) == 1 and entry["wide"] is not None and "to" not in reading_text):
        # A lower bound: it never keeps an upper limit, and is no contradiction where it, or that at the level, allows.
        bound = re.search(rf"at least {_NUMBER}", reading_text)
        lower_limit = _number(bound[1]) if bound else _number(text.split(",")[0].split(" ")[0])
        return "" if reading_text.startswith(Reading.NO_CONTRADICTION) and lower_limit <= claim else text
    low, high = (_number(end) if end else math.inf for end in intervals[-1])
    right = low >= claim if is_least else high <= claim
    inside = low <= claim <= high
    supported = {Reading.KEPT: right, Reading.NO_CONTRADICTION: inside, Reading.TOO_FEW: inside}
    return "" if any(reading_text.startswith(word) and holds for word, holds in supported.items()) else text


def problems_of(contents: ReportContents) -> list[str]:
    """Return faults in the words of an honest run: readings without support, broken, and words of earlier versions."""
    rows = [
        row for section, numbers in sections_with_findings(contents) for row in section.read_rows(numbers, contents)
    ]
    problems = [f"unsupported: {row.name}: {text}" for row in rows if (text := contradicts(row.to_json()))]
    problems += [f"broken: {row.name}: {row.text}" for row in rows if row.reading is Reading.BROKEN]
    for where, text in texts_of(contents).items():
        problems += [
            f"{where}: ...{text[max(0, match.start() - 60) : match.end() + 20]}..."
            for pattern in (_OLD_WORDS, _BROKEN)
            for match in pattern.finditer(text)
        ]
    return problems
