"""Section [data]: the records and their division among clients."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from fl_audit.data.data_setting_enums import PartitionScheme, PictureOrSequence, Task, UsersAcrossClients
from fl_audit.runs.config.config_section import ConfigSection
from fl_audit.runs.config.setting_types import Choice, Count, OwnName, Scalar, Words

_CLIENTS = 10
DATA_PATHS = ("data-dir", "path", "test-path", "vocabulary")
"""Settings of the section that name files or directories."""


class DataSection(ConfigSection):
    """Section [data]: the records, their owners and users, and their division among clients.

    If the adjacency is about users, all records of a user are one unit: they are drawn, clipped, sampled and exchanged
    together.
    """

    name: str = "digits"
    """Name in `fl-audit datasets`; your own are `table`, `npz`, `images` and `package.module:loader`."""
    data_dir: str | None = None
    """Directory with published data sets; left out, that of FL_AUDIT_DATA."""
    path: str | None = None
    """File of the records (`table`, `npz`), or directory of pictures (`images`); relative to the configuration."""
    test_path: str | None = None
    """The same of official test records, of `table` and `images`; left out, up to 20 % are held out."""
    task: Choice[Task] | None = None
    """Whether the label of `table`, `hf:` and `npz` is a class, or a quantity (`regression`); left out, a class."""
    label: str | None = None
    """Name of the column to be learned, of `table` and `hf:`."""
    owner: str | None = None
    """Column (`table`, `hf:`) or array (`npz`) with each record's owner; partition `natural` makes owners clients."""
    user: str | None = None
    """Column (`table`, `hf:`) or array (`npz`) with the person of a record; `owner`: the owners; `mnist`: `writer`."""
    records_per_user: Count | None = None
    """Most records of a user that are read, the first ones of the file; left out, all of them."""
    users: Count | None = None
    """Most users of the training set D, where users are units; left out, as many as have `records` records."""
    user_across_clients: Choice[UsersAcrossClients] = UsersAcrossClients.REFUSE
    """Treatment of users with records at several clients: refused, or given as a whole to the first one."""
    drop: Words | None = None
    """Names of columns to leave out, of `table` and `hf:`."""
    separator: str | None = None
    """Character between cells, of `table`, or `whitespace` for spaces and tabs; left out, it is detected."""
    decimal: Literal[".", ","] | None = None
    """Decimal mark, of `table`: `.` or `,`; the other one separates thousands; left out, it is detected."""
    encoding: str | None = None
    """Encoding of a `table` file, such as `cp1252`; left out, it is detected."""
    skip_lines: Annotated[int, Field(ge=0, le=10**6)] | None = None
    """Number of lines to skip above the line of names, such as a title, of `table`."""
    sheet: str | None = None
    """Name of the sheet of an Excel workbook, of `table`; left out, the only one that holds anything."""
    missing: Literal["impute"] | Words | None = None
    """Words for a missing value (`table`, `hf:`), `[]` for empty cells alone: such records are left out, else refused.
    `impute` fills empty cells, and marks where they were."""
    max_levels: Count | None = None
    """Largest number of words in a column, and of classes, of `table` and `hf:`; left out, 100, or 20 of classes that
    are numbers."""
    ignore_case: bool | None = None
    """Whether words that differ only by case or spaces are the same, of `table` and `hf:`."""
    unique: bool | None = None
    """Whether records that repeat another one in every column are left out, of `table` and `hf:`."""
    text: str | None = None
    """Column of text that a model of text learns from, of `table` and `hf:`; other columns are then left out."""
    vocabulary: str | None = None
    """Public file of one token a line that texts become ids by; none is ever built from the records."""
    tokenizer: OwnName | None = None
    """Your own `package.module:function` in its place: of a list of texts, arrays by the names of a model's inputs."""
    tokens: Count | None = None
    """Length of every text in tokens, with `vocabulary`: longer ones are cut, shorter ones padded; left out, 128."""
    axes: Choice[PictureOrSequence] | None = None
    """Meaning of two axes of a record of `npz`: height and width, unless set to `sequence` (steps and features)."""
    loader_parameters: dict[str, Scalar] = Field(default_factory=dict)
    """Parameters of a loader of your own: values of its keyword-only parameters, by name."""
    image_size: Count | None = None
    """Height and width in pixels that pictures of `images` and `hf:` are scaled to; left out, all have one size."""
    grey: bool | None = None
    """Whether colour images of `images` and `hf:` are converted to grey."""
    subset: str | None = None
    """Name of the subset of a data set `hf:` that has several."""
    split: str | None = None
    """Split of a data set `hf:` that training sets are drawn from; `train` unless set."""
    test_split: str | None = None
    """Split of a data set `hf:` with the test records; `test`, if there is one, unless set."""
    records: Count = 1000
    """Records of the training set D, over all clients; where users are units, the most that whole users may have."""
    test_records: Count = 1000
    """Most test records that accuracy is measured on."""
    population_records: Annotated[int, Field(ge=2, le=10**9)] = 1000
    """Most records of the population sample, which Epsilon* and membership attacks compare with."""
    clients: Count | None = None
    """Number of clients, from 2, or from 1 if `insider` is false. Left out, 10, or with `natural` the owners."""
    partition: Choice[PartitionScheme] = PartitionScheme.IID
    """Division of the records among clients."""
    partition_parameters: dict[str, Scalar] = Field(default_factory=dict)
    """Parameters of the partition. `dirichlet`: alpha, min-partition-size, self-balancing. `pathological`:
    num-classes-per-partition, class-assignment-mode. `shard`: num-shards-per-partition, shard-size,
    keep-incomplete-shard.
    """
    seed: Annotated[int, Field(ge=0, lt=2**64)] = 0
    """Public seed of the choice and division of records."""

    @model_validator(mode="before")
    @classmethod
    def _default_clients(cls, values: Any) -> Any:
        """Set the number of clients to 10 if the section gives none.

        With `partition = "natural"` the owners that the data name are the clients, so no number is set.
        """
        if not isinstance(values, dict) or "clients" in values or values.get("partition") == PartitionScheme.NATURAL:
            return values
        return values | {"clients": _CLIENTS}
