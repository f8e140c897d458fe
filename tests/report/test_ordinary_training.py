"""A training that nobody asked to audit is shown as a training; what breaks its guarantee leads all the same."""

import re
from dataclasses import replace

from fl_audit.audits.page.engineer_part import next_step
from fl_audit.audits.page.first_screen import first_screen_of
from fl_audit.audits.page.ordinary_training import is_shown_as_training
from fl_audit.audits.page.report_page import render_html
from fl_audit.verdict.sections_verdict import verdict_of
from fl_audit.verdict.verdict import Verdict
from fl_audit.words import number_text
from tests.builders.pages import console_text


def as_ordinary(contents, **audit):
    """Return the contents of a run with another section [audit]."""
    plan = contents.plan
    changed = replace(plan, config=plan.config.changed(audit=audit))
    return replace(contents, run=replace(contents.run, plan=changed))


def test_a_training_without_an_insider_leads_with_model_and_guarantee(make_contents):
    contents = as_ordinary(make_contents(with_insider=False, trials=1, exact=False), insider=False, trials=1)
    assert verdict_of(contents).verdict is Verdict.NOT_AUDITED
    assert is_shown_as_training(contents)
    terminal_text = console_text(contents, width=100)
    assert "Verdict" not in terminal_text
    epsilon = number_text(contents.plan.guarantee.epsilon, 4)
    assert len(re.findall(rf"epsilon {re.escape(epsilon)}\b", terminal_text)) == 1, "the guarantee stands once"
    assert (
        terminal_text.index("on test records")
        < terminal_text.index("Guarantee")
        < terminal_text.index("Audit of the guarantee")
    )
    assert "model.safetensors" in next_step(contents)
    assert first_screen_of(contents).banner.word.startswith("Trained")
    page = render_html(contents, [])
    words = page[page.index('id="words"') :]
    assert words.index("released model") < words.index("no verdict")


def test_one_trial_with_an_insider_is_told_of_no_thousands_of_trials(make_contents):
    contents = as_ordinary(make_contents(exact=False, trials=1), trials=1)
    assert verdict_of(contents).verdict is Verdict.INCONCLUSIVE
    terminal_text = console_text(contents, width=100)
    assert "nconclusive" not in terminal_text
    assert "too few" not in terminal_text


def test_a_broken_guarantee_leads_whoever_asked(make_contents):
    contents = as_ordinary(make_contents(exact=False, noise=0.5, trials=800), trials=1)
    assert verdict_of(contents).verdict is Verdict.VIOLATED
    assert not is_shown_as_training(contents)
    assert "Violated" in console_text(contents, width=100)


def test_an_audit_is_shown_as_an_audit(make_contents):
    assert not is_shown_as_training(make_contents(exact=False))
