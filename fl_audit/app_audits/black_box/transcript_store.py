"""The folder of an audit of other people's code: settings, the secret seed, and each finished trial's transcript.

Batches of simulated trials are stored by `runs/trial_batch_store.py`. Here trials are played one by one, over several
runs of the app, and each is a transcript of vectors and of whatever numbers the app released. The store also remembers
from one run of the app to the next which update tells most.
"""

import json
import secrets
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fl_audit.app_audits.black_box.recorder import FAILED, evidence_names
from fl_audit.app_audits.black_box.trial_messages import TargetAction
from fl_audit.app_audits.claim_audit.claim import LESSONS
from fl_audit.app_audits.claim_audit.claim_audit_results import OthersNoiseShareReason, Tell
from fl_audit.app_audits.claim_audit.online_guessing import most_telling
from fl_audit.app_audits.claim_audit.transcript import Transcript, stacked
from fl_audit.array_files import read_arrays
from fl_audit.atomic_files import atomic_file, remove_temporary_files, write_json
from fl_audit.errors import InputError, require
from fl_audit.ordinary_files import read_text_file
from fl_audit.randomness import Purpose, generator

if TYPE_CHECKING:  # Clients import the module of `Audit`, which imports this one late.
    from fl_audit.app_audits.black_box.in_app_audit import Audit

_SETTINGS = "campaign.json"
_SECRET = "challenger.json"
_PROBE = "probe.json"
_COLUMNS = "columns.json"
_CHOICE = "choice.json"
_STILL = "still.json"
_PARTS = ("steps", "released", "direction", "others", "own")
ResultColumns = tuple[tuple[str, slice], ...]  # for each tensor of the model, its name and slice of a stored vector


@dataclass(frozen=True)
class TranscriptStore:
    """The transcripts of an audit's trials, in a folder with its settings; several runs of the app may add trials."""

    directory: Path  # folder of the trials
    audit: "Audit"  # settings of the audit
    seed: int  # secret seed of the trials
    # Kinds of update of the target's client. If there are several, the first trials alternate between them, `LESSONS`
    # trials for each, and all later trials use the kind that told D from D' best.
    contributions: tuple[TargetAction, ...]

    @staticmethod
    def finished(audit: "Audit") -> "TranscriptStore | None":
        """Return the most recent finished trials with the settings of an audit; None if there are none.

        Raises `InputError` if the audit's folder has finished trials of several apps.
        """
        agreed = _agreed(audit).items()
        settings_by_path = {path: _read(path.with_name(_SETTINGS)) for path in audit.directory.glob(f"*/{_COLUMNS}")}
        settings_by_path = {path: settings for path, settings in settings_by_path.items() if agreed <= settings.items()}
        apps = sorted({str(settings["app"]) for settings in settings_by_path.values()})
        several = f"{audit.directory} has trials of the apps {', '.join(apps)}"
        largest = max(settings_by_path, default=Path()).parent
        require(len(apps) < 2, f"{several}: accepted is a directory of one, such as {largest}")
        if not settings_by_path:
            return None
        last = max(settings_by_path, key=lambda path: path.stat().st_mtime_ns)
        contributions = tuple(map(TargetAction, settings_by_path[last]["contributions"]))
        return TranscriptStore(last.parent, audit, _seed(last.parent), contributions)

    @property
    def pilots(self) -> int:
        """Number of trials at the beginning that alternate between kinds of update; 0 if there is only one kind."""
        return LESSONS * len(self.contributions) if len(self.contributions) > 1 else 0

    def contribution(self, trial: int) -> TargetAction:
        """Return the kind of update that the target's client sends under D in a trial."""
        return self.contributions[(trial - 1) % len(self.contributions)] if trial <= self.pilots else self.chosen_update

    @property
    def chosen_update(self) -> TargetAction:
        """Kind of update under which the first trials best distinguished D from D', or the only kind."""
        if len(self.contributions) == 1:
            return self.contributions[0]
        return TargetAction(_read(self.directory / _CHOICE)["contribution"])

    def choose_update(self, columns: ResultColumns) -> None:
        """Choose the kind of update that the target's client sends in all later trials, and store the choice.

        The first trials try each kind in turn. The kind that best tells D from D' is chosen once the first trials are
        complete. Nothing is done if they are incomplete, if there is only one kind, or if a choice is already stored.
        """
        if not self.pilots or (self.directory / _CHOICE).exists() or self.missing[:1] <= [self.pilots]:
            return
        tried = []
        for contribution in self.contributions:
            numbers = [trial for trial in range(1, self.pilots + 1) if self.contribution(trial) == contribution]
            answered = [trial for trial in numbers if FAILED not in self.trial(trial).numbers] or numbers
            transcripts = [self.trial(trial) for trial in answered]
            present = [self.is_present(trial) for trial in answered]
            tried.append((stacked(transcripts, columns, evidence_names(transcripts)), np.array(present)))
        write_json(
            self.directory / _CHOICE, {"contribution": self.contributions[most_telling(tried, self.audit.claim)]}
        )

    @property
    def evaluated_trials(self) -> list[int]:
        """Numbers, from 1, of the trials with the chosen kind of update; only these trials are evaluated."""
        return [trial for trial in range(1, self.audit.trials + 1) if self.contribution(trial) == self.chosen_update]

    def keep_columns(self, columns: ResultColumns) -> None:
        """Store the name and slice of each tensor in the stored vectors; this marks the audit as finished."""
        write_json(
            self.directory / _COLUMNS,
            {"columns": [[name, [coordinates.start, coordinates.stop]] for name, coordinates in columns]},
        )

    @property
    def columns(self) -> ResultColumns:
        """Name and slice of each tensor of the model in the stored vectors."""
        return tuple((str(name), slice(*position)) for name, position in _read(self.directory / _COLUMNS)["columns"])

    @property
    def missing(self) -> list[int]:
        """Numbers, from 1, of the trials that have not been run yet."""
        return [number for number in range(1, self.audit.trials + 1) if not self._file(number).exists()]

    @property
    def is_of_server(self) -> bool:
        """Whether clients certainly add no noise, so that a claim also covers adversaries who know clients' replies.

        This is certain in two cases. The clients other than the target's client may send stored replies, which are the
        same in every trial. Or their replies in the first round are the same in all evaluated trials.
        """
        if self.not_covered is None:
            return True
        first = np.stack([self.trial(number).others[0] for number in self.evaluated_trials])
        return bool(np.all(first == first[0]))

    @property
    def not_covered(self) -> OthersNoiseShareReason | None:
        """Reason why clients other than the target's do not send the same replies in every trial; None if they do.

        If they do, the audit also covers an adversary that knows their replies.
        """
        not_covered = _read(self.directory / _STILL)["not_covered"]
        return None if not_covered is None else OthersNoiseShareReason(not_covered)

    def begin_trials(self, why: OthersNoiseShareReason | None) -> None:
        """Store the value of `not_covered`, and delete all stored trials, so that the trials can begin.

        `why` is the reason why the other clients do not send the same replies in every trial; None if they do.
        """
        write_json(self.directory / _STILL, {"not_covered": why})
        for path in (*self.directory.glob("trials/*.npz"), self.directory / _CHOICE):
            path.unlink(missing_ok=True)

    @property
    def is_new(self) -> bool:
        """Whether no trial has been started yet.

        Trials start after `begin_trials` was called, which writes a file by which this property decides.
        """
        return not (self.directory / _STILL).exists()

    def is_present(self, trial: int) -> bool:
        """Return whether a trial uses D; a fair coin decides, which is derived from the audit's seed."""
        return bool(generator(self.seed, Purpose.SECRET_BIT, trial=trial).random() < 0.5)

    def add(self, trial: int, transcript: Transcript) -> None:
        """Store the transcript of a trial as a file; an earlier file of the same trial is replaced."""
        arrays: dict[str, Any] = {
            field_name: np.asarray(getattr(transcript, field_name), dtype=np.float64) for field_name in _PARTS
        }
        arrays["was_a_trial"] = np.array([transcript.contributed, transcript.has_release])
        arrays["names"] = np.array(list(transcript.numbers), dtype=np.str_)
        arrays["numbers"] = np.array(list(transcript.numbers.values()), dtype=np.float64)
        arrays["refusal"] = np.array([] if transcript.refusal is None else [transcript.refusal], dtype=np.str_)
        with atomic_file(self._file(trial)) as file, file.open("wb") as stream:
            np.savez_compressed(stream, **arrays)

    def trial(self, number: int) -> Transcript:
        """Return the stored transcript of the trial with the given number, from 1."""
        arrays = read_arrays(self._file(number))
        refusal = next(map(str, arrays["refusal"]), None)
        numbers = {str(name): float(value) for name, value in zip(arrays["names"], arrays["numbers"], strict=True)}
        fields = {field_name: np.asarray(arrays[field_name], dtype=np.float64) for field_name in _PARTS}
        contributed, has_release = map(bool, arrays["was_a_trial"])
        return Transcript(**fields, contributed=contributed, has_release=has_release, numbers=numbers, refusal=refusal)

    def _file(self, number: int) -> Path:
        return self.directory / "trials" / f"{number:06d}.npz"

    @property
    def zero_update_error(self) -> str | None:
        """The message of the error that the strategy raised on an update of exactly zero.

        It is empty if the strategy raised none, and None if such an update has not been tried yet.
        """
        path = self.directory / _PROBE
        return str(_read(path)["said"]) if path.exists() else None

    def keep_probe(self, text: str) -> None:
        """Store the message of the strategy's error on an update of exactly zero; empty if there was no error."""
        write_json(self.directory / _PROBE, {"said": text})


def open_transcript_store(
    audit: "Audit", shapes: dict[str, tuple[int, ...]], tried: tuple[TargetAction, ...], app: str, code: str, tell: Tell
) -> TranscriptStore:
    """Return the stored trials of an audit, to which more can be added; create their folder if it does not exist.

    Trials are stored separately for each app, version of its code, and settings. A damaged file raises `InputError`.
    """
    agreed = json.loads(json.dumps(_agreed(audit) | {"model": shapes, "contributions": tried}))
    agreed |= {"app": app, "code": code}
    digest = sha256(json.dumps(agreed, sort_keys=True).encode()).hexdigest()[:12]
    name = "".join(letter if letter.isalnum() or letter in "-._" else "-" for letter in app)
    directory = audit.directory / f"{name}-{digest}"
    if (directory / _SETTINGS).exists() and (directory / _SECRET).exists():
        remove_temporary_files(directory)
        return TranscriptStore(directory, audit, _seed(directory), tried)
    paths = audit.directory.glob(f"{name}-*/{_SETTINGS}")
    last = max(paths, key=lambda path: path.stat().st_mtime_ns, default=None)
    if last is not None:
        before = _read(last)
        names = {"code": "the code or its numbers"}
        changed = ", ".join(names.get(key, key) for key in agreed if before.get(key) != agreed[key])
        tell(f"the trials in {last.parent} are of {app} before a change of {changed}: new ones are played")
    seed = secrets.randbits(63) if audit.seed is None else audit.seed
    write_json(directory / _SECRET, {"seed": seed}, private=True)
    write_json(directory / _SETTINGS, agreed)
    return TranscriptStore(directory, audit, seed, tried)


def _seed(directory: Path) -> int:
    return int(_read(directory / _SECRET)["seed"])


def _agreed(audit: "Audit") -> dict[str, Any]:
    """Return the settings that decide whether stored trials belong to an audit, keyed by name."""
    left_out = ("directory", "trials_per_run", "confidence", "seed", "knows_others")
    settings: dict[str, Any] = json.loads(json.dumps({k: v for k, v in asdict(audit).items() if k not in left_out}))
    return settings


def _read(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(read_text_file(path))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read ({error}): accepted is a file that this program wrote") from error
    assert isinstance(values, dict)
    return values
