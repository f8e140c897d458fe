"""Section [run]: the seed, batches, stored results, time limits and machines of a run."""

from typing import Annotated

from pydantic import Field

from fl_audit.device import Device
from fl_audit.runs.config.config_section import ConfigSection
from fl_audit.runs.config.setting_types import Choice, Count


class RunSection(ConfigSection):
    """Section [run]: the seed, batches, stored results, time limits and machines of a run.

    Releases are kept only in audits with an insider, because nothing else is recomputed from them.

    `actors` counts processes on an embedded Ray, and threads in the local engine, which has 1 on a graphics card unless
    it is set.
    """

    seed: Annotated[int, Field(ge=0, lt=2**64)] | None = None
    """The challenger's secret, from which bits, samples and noise are drawn; left out, drawn at random."""
    trials_per_batch: Count | None = None
    """Trials that are trained together; more take more memory. Left out, as many as a second of work a round allows."""
    keep_releases: Annotated[int, Field(ge=0, le=10**9)] | None = None
    """Number of trials of which every release is kept, so that `fl-audit replay` can recompute their log-odds. Left
    out, 4, or as many as need no more than a gigabyte.
    """
    checkpoint_every: Count | None = None
    """Number of rounds after which the model of trial 0 is stored, again and again; left out, the final one alone."""
    client_time_limit: Annotated[float, Field(gt=0, le=10**7)] = 600.0
    """Seconds after which a silent client ends the run."""
    threads: Annotated[int, Field(ge=1, le=256)] = 1
    """Number of cores of a client."""
    device: Choice[Device] = Device.CPU
    """Device of the clients."""
    actors: Annotated[int, Field(ge=0, le=10**6)] = 0
    """Number of simultaneous client calls; 0 is one for every `threads` cores."""
