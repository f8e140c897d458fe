"""Fixtures that tests share: small configurations, and where the published data files are."""

import gc
import hashlib
import os
import random
import shutil
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_limits

import fl_audit.experiments  # noqa: F401  # sets the environment before Flower is imported
from fl_audit.audits.page import drawn_pictures, report_files
from fl_audit.report import figure_style, report_elements
from fl_audit.report.report_elements import SectionError
from tests.builders.runs import run_locally, small_plan
from tests.few_examples import ALL, examples
from tests.one_pixel import ONE_PIXEL

# The repository is not searched for modules: it has folders with names of modules that users have, such as `server`.
# pytest imports `tests` by its path.
_ROOT = Path(__file__).resolve().parents[1]
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != _ROOT]

# A busy machine takes longer than a fifth of a second for anything now and then. The fast suite draws the same examples
# every time, so that it fails for what was changed alone; the long suite looks for new ones.
hypothesis.settings.register_profile("any-machine", deadline=None, max_examples=examples(100), derandomize=not ALL)
hypothesis.settings.load_profile("any-machine")


# Workers share the cores: threads of numpy would wait for those of another worker, at two to four times the cost.
threadpool_limits(limits=1)
# The same for what is loaded later, and for processes that tests start.
os.environ.update({"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"})


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect without looking for garbage, and never look through what was collected: a third of the time goes there.

    Modules and tests stay until the end, 800,000 objects that every full collection would go through.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


# Before pytest-xdist reads the groups, which is in the same hook.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give all tests that start a Ray to one worker: they mostly wait, and would disturb each other's time limits.

    Those with a SuperLink of their own are a group beside them. They come first, so that at the end no worker has a
    long row of them left while the others have nothing to do.
    """
    for item in items:
        group = item.get_closest_marker("xdist_group")
        if item.get_closest_marker("ray") and (group is None or group.args != ("superlink",)):
            item.add_marker(pytest.mark.xdist_group("ray"))
    items.sort(key=lambda item: item.get_closest_marker("ray") is None)
    _leave_most_cases_to_the_long_suite(items)
    for item in items:
        if item.get_closest_marker("campaign"):
            item.add_marker(pytest.mark.long)


def _leave_most_cases_to_the_long_suite(items: list[pytest.Item]) -> None:
    """Mark as long those cases of functions with the marker `few_cases` that it leaves out."""
    cases = defaultdict[str, list[pytest.Function]](list)
    for item in items:
        if isinstance(item, pytest.Function) and item.get_closest_marker("few_cases") and hasattr(item, "callspec"):
            cases[item.nodeid.partition("[")[0]].append(item)
    for every in cases.values():
        marker = every[0].get_closest_marker("few_cases")
        count = marker.args[0] if marker else len(every)
        # The first and the last, and others evenly between them.
        chosen_indices = {round(index * (len(every) - 1) / max(count - 1, 1)) for index in range(count)}
        for index, item in enumerate(every):
            if index not in chosen_indices:
                item.add_marker(pytest.mark.long)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _own_draws(request: pytest.FixtureRequest) -> None:
    """Let a test draw the same whichever tests ran before it: users' code draws from the generators of the process."""
    name = hashlib.sha256(request.node.nodeid.encode()).digest()
    random.seed(name)
    np.random.seed(int.from_bytes(name[:4]))  # noqa: NPY002  # the generator that users' code draws from
    # `torch.manual_seed` takes a hundred times as long: without a card it notes each call for later.
    torch.default_generator.manual_seed(int.from_bytes(name[:7]))


@pytest.fixture(scope="session")
def section_errors() -> Iterator[list[str]]:
    """Reasons for which parts of reports could not be computed, in this process."""
    reasons = list[str]()

    def noted(part: str, reason: str) -> SectionError:
        reasons.append(f"{part}: {reason}")
        return SectionError(part, reason)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report_elements, "SectionError", noted)
        yield reasons


@pytest.fixture(autouse=True)
def _no_section_fails(request: pytest.FixtureRequest, section_errors: list[str]) -> Iterator[None]:
    """Let no test pass whose report lacks a part for an error, unless it is marked `section_errors`."""
    yield
    reasons = list(section_errors)
    section_errors.clear()
    if request.node.get_closest_marker("section_errors") is None:
        assert reasons == []


@pytest.fixture(autouse=True)
def _small_pictures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw figures with a tenth of their pixels, and those of reports only in tests that are marked `drawn`.

    Hundreds of reports are written. Elsewhere their figures are made as ever, and a picture of one pixel stands there.
    """
    if request.node.get_closest_marker("full_size") is not None:
        return
    monkeypatch.setattr(figure_style, "DOTS_PER_INCH", 45)
    monkeypatch.setattr(drawn_pictures, "_page_svg", lambda figure, name: "")
    if request.node.get_closest_marker("drawn") is None:
        monkeypatch.setattr(drawn_pictures, "to_png", lambda figure: ONE_PIXEL)


@pytest.fixture(autouse=True)
def _no_pdf(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write no PDF beside a page: it takes seconds, and tests of the PDF ask for it themselves."""
    monkeypatch.setattr(report_files, "write_pdf", lambda page, path: None)


@pytest.fixture
def small_working_directory(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Be in an empty directory: audits copy the one that they are played in, and look through the copy after every
    federation.
    """
    monkeypatch.chdir(tmp_path_factory.mktemp("working-directory"))


@pytest.fixture(scope="session")
def published_data() -> Path:
    """The directory with published data files, or a skip where there is none."""
    directory_name = os.environ.get("FL_AUDIT_DATA")
    directory = Path(directory_name) if directory_name else Path(__file__).parents[2] / "shared" / "data"
    if not directory.is_dir():
        pytest.skip("no published data files: set FL_AUDIT_DATA")
    return directory


@pytest.fixture(scope="session")
def _small_run_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_directory = tmp_path_factory.mktemp("small") / "run"
    run_locally(small_plan(), run_directory)
    return run_directory


@pytest.fixture
def small_run(_small_run_once: Path, tmp_path: Path) -> Path:
    """Return a copy of the finished run of the small configuration, which is played once for all tests of a worker."""
    return Path(shutil.copytree(_small_run_once, tmp_path / "run"))
