"""Options that are made from dataclasses, and settings that are rarely used."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from fl_audit.app_audits.trial_options import ReviewOptions, StrategyOptions
from fl_audit.cli.black_box_commands import _REVIEW_SETTINGS, _STRATEGY_SETTINGS, settings_of
from fl_audit.cli.lazy_commands import with_single_options
from fl_audit.runs.option_declarations import option, switch
from tests.builders.refusals import assert_refused


@dataclass(frozen=True)
class Sizes:
    """Sizes."""

    width: Annotated[int, option("N", "Width.")]
    depth: Annotated[int | None, option("N", "Depth.")] = None
    is_deep: Annotated[bool, switch("--deep", "Deep.")] = False


def measure(
    directory: Annotated[Path, typer.Argument()], *, sizes: Sizes, unit: Annotated[str, option("NAME", "Unit.")] = "m"
) -> None:
    """Measure."""
    typer.echo(f"{directory} {sizes} {unit}")


def test_a_group_is_made_of_its_options_and_is_shown_in_its_place() -> None:
    app = typer.Typer()
    app.command()(with_single_options(measure))
    run = CliRunner()
    command_result = run.invoke(app, ["here", "--width", "3", "--deep"])
    assert command_result.stdout.split(" ", 1)[1].strip() == f"{Sizes(3, None, True)} m"
    assert run.invoke(app, ["here", "--depth", "3"]).exit_code == 2  # the width has no default
    flags = [word for word in run.invoke(app, ["--help"]).stdout.split() if word.startswith("--")]
    positions = [flags.index(flag) for flag in ("--width", "--depth", "--deep", "--unit")]
    assert positions == sorted(positions)


def test_a_command_without_groups_keeps_its_parameters() -> None:
    def plain(count: Annotated[int, option("N", "Count.")] = 2) -> None:
        typer.echo(count * 2)

    app = typer.Typer()
    app.command()(with_single_options(plain))
    assert CliRunner().invoke(app, ["--count", "4"]).stdout == "8\n"


@dataclass(frozen=True)
class Settings:
    number: int = 2
    share: float | None = None
    is_on: bool = False
    word: str = "a"


NAMES = ("number", "share", "is-on", "word")


def test_values_have_the_types_of_their_settings_and_the_last_one_counts() -> None:
    parsed_settings = settings_of(Settings, NAMES, ["number=3", "share=.5", "is-on=true", "word=b = c", "number=4"])
    assert parsed_settings == {"number": 4, "share": 0.5, "is_on": True, "word": "b = c"}
    assert settings_of(Settings, NAMES, []) == {}


@pytest.mark.parametrize(
    ("text", "expected_message"),
    [
        ("number=x", "number=x: accepted are whole numbers"),
        ("share=x", "share=x: accepted are numbers"),
        ("is-on=yes", "is-on=yes: accepted are true and false"),
        ("numbr=3", "'numbr=3': nearest is number=VALUE, accepted are number, share, is-on and word"),
        ("number", "'number': nearest is number=VALUE"),
    ],
)
def test_what_is_no_setting_is_refused_in_a_line(text: str, expected_message: str) -> None:
    assert_refused(expected_message, settings_of, Settings, NAMES, [text])


@pytest.mark.parametrize(
    ("options", "names", "positional"),
    [(ReviewOptions, _REVIEW_SETTINGS, ()), (StrategyOptions, _STRATEGY_SETTINGS, ("a:b", "replace-client"))],
)
def test_every_rare_setting_is_an_option_of_the_trials(
    options: type[Any], names: tuple[str, ...], positional: tuple[str, ...]
) -> None:
    words = {"noise-over": "clipping-norm", "trust-client-clipping": "true", "observer": "server"}
    for name in names:
        values = settings_of(options, names, [f"{name}={words.get(name, '3')}"])
        assert options(*positional, **values) != options(*positional), name
