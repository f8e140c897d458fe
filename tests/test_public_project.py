"""The files that a public project has beside its code agree with the code and with each other."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
FORMS = sorted(path for path in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FIELDS = {"textarea", "input", "dropdown", "checkboxes"}
PYTHON = re.compile(r"Programming Language :: Python :: (3\.\d+)")


def read(path: Path) -> dict[str, Any]:
    document = yaml.safe_load(path.read_text())
    assert isinstance(document, dict), path
    return document


def steps(workflow: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def pythons(workflow: dict[str, Any]) -> dict[str, list[str]]:
    """Return the versions of Python of every job that has several."""
    jobs = workflow["jobs"].items()
    return {name: job["strategy"]["matrix"]["python-version"] for name, job in jobs if "strategy" in job}


def classified() -> list[str]:
    return [match[1] for classifier in PROJECT["classifiers"] if (match := PYTHON.fullmatch(classifier))]


def pinned(package: str) -> str:
    (line,) = re.findall(rf"^{package}==(\S+)$", (ROOT / "constraints.txt").read_text(), re.M)
    return str(line)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_run_targets_that_there_are_and_may_only_read(path: Path) -> None:
    workflow = read(path)
    # A bare `on` is the truth value of YAML 1.1.
    assert workflow[True].keys() <= {"push", "pull_request", "schedule", "workflow_dispatch"}
    assert workflow["permissions"] == {"contents": "read"}
    assert workflow["concurrency"]["cancel-in-progress"] is True
    assert all(job["timeout-minutes"] <= 180 for job in workflow["jobs"].values())
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
    requested_targets = {
        name for step in steps(workflow) for name in re.findall(r"\bmake ([\w-]+)", step.get("run", ""))
    }
    assert requested_targets, "a workflow without a target"
    assert requested_targets <= targets
    for action in [step["uses"] for step in steps(workflow) if "uses" in step]:
        assert re.fullmatch(r"actions/[\w-]+@v\d+", action), action
    for step in steps(workflow):
        if str(step.get("uses")).startswith("actions/setup-python"):
            assert (ROOT / step["with"]["cache-dependency-path"]).is_file()


def test_every_python_that_is_claimed_is_tested() -> None:
    ci = read(GITHUB / "workflows" / "ci.yml")
    long = read(GITHUB / "workflows" / "long.yml")
    assert pythons(ci) == {"test": classified(), "wheel": classified()}
    assert set(pythons(long)["test-all"]) <= set(classified())
    assert PROJECT["requires-python"] == f">={classified()[0]}"


def lower_bounds() -> dict[str, str]:
    """Return the lowest admitted version of every package that fl_audit requires."""
    return {
        package: version
        for requirement in PROJECT["dependencies"]
        for package, _, version in [requirement.partition(">=")]
    }


def test_the_support_policy_says_what_is_required() -> None:
    page = (ROOT / "docs" / "reference" / "support.md").read_text()
    rows = {cells[1].strip(): cells[2:4] for line in page.splitlines() if len(cells := line.split("|")) == 5}
    bounds = lower_bounds()
    assert rows["Python"][0].strip() == ", ".join(classified())
    for name, package in {"Flower": "flwr", "Ray": "ray"}.items():
        assert rows[name][0].strip() == f"from {bounds[package]} on"
        assert pinned(package) in rows[name][1]


def test_no_requirement_has_an_upper_bound() -> None:
    """A bound needs its reason, and then an exception here."""
    assert [
        requirement for requirement in PROJECT["dependencies"] if not re.fullmatch(r"[\w-]+>=[\d.]+", requirement)
    ] == []


def test_the_lowest_versions_that_are_tested_are_those_that_are_required() -> None:
    lines = (ROOT / "packaging" / "versions" / "lowest.txt").read_text().splitlines()
    tested = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert tested == lower_bounds()


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_issue_forms_are_forms(path: Path) -> None:
    form = read(path)
    assert form["name"]
    assert form["description"]
    fields = [form_field for form_field in form["body"] if form_field["type"] != "markdown"]
    assert {form_field["type"] for form_field in fields} <= FIELDS
    assert all(form_field["attributes"]["label"] for form_field in fields)
    names = [form_field["id"] for form_field in fields]
    assert len(set(names)) == len(names)


def test_the_form_for_a_false_verdict_asks_for_all_that_it_takes_to_judge_one() -> None:
    body = read(GITHUB / "ISSUE_TEMPLATE" / "false-verdict.yml")["body"]
    needed = {form_field["id"] for form_field in body if form_field.get("validations", {}).get("required")}
    assert needed == {"command", "verdict", "truth", "summary", "versions"}
    assert "challenger/" in body[0]["attributes"]["value"]


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.M)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_links_of_the_security_policy_lead_to_sections_that_there_are() -> None:
    links = re.findall(r"\]\(([^)#:]+)#([^)]+)\)", (ROOT / "SECURITY.md").read_text())
    assert links
    for page, anchor in links:
        assert anchor in anchors(ROOT / page), (page, anchor)
