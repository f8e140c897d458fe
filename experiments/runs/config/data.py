"""Section [data]: which records, and who holds them."""

from typing import Annotated, Any

from pydantic import Field, model_validator

from experiments.runs.config.values import Choice, Count, Scalar, Section, Words
from fl_audit.data.names import PartitionScheme

DEFAULT_CLIENTS = 10


class DataSection(Section):
    """Which records, who holds them. `path` to `test_labels` belong to `csv`, `npz` and `idx`, four of them to `csv`.

    `owner` names the column of a CSV table, or the array of an archive, that says whose each record is: with the
    partition `natural` every owner is a client. `clients`, left out, is then the number of owners, else 10.

    Of a CSV table, `drop` leaves out columns, `separator` stands between cells, `missing` names words that stand for a
    missing value and leaves out the records where one is missing, and a column may have up to `max-levels` words.

    `classes` chooses among the forms of `purchases`, `texas`, `skewed-purchases` and `lfw`; `generated-records` says
    how many records of `skewed-purchases` there are; `graph-nodes` how many nodes a graph of `collab` keeps.
    """

    name: str = "digits"
    data_dir: str | None = None
    path: str | None = None
    test_path: str | None = None
    label: str | None = None
    owner: str | None = None
    drop: Words | None = None
    separator: str | None = None
    missing: Words | None = None
    max_levels: Count | None = None
    images: str | None = None
    labels: str | None = None
    test_images: str | None = None
    test_labels: str | None = None
    classes: Count | None = None
    generated_records: Count | None = None
    graph_nodes: Count | None = None
    image_size: Count | None = None
    """Height and width in pixels that pictures of `images` and `hf:` are scaled to; left out, all have one size."""
    grey: bool | None = None
    """Whether colours of pictures of `images` and `hf:` become grey."""
    subset: str | None = None
    """Of a data set `hf:` that has several, the one that is meant."""
    split: str | None = None
    """Of a data set `hf:`, the split that training sets are drawn from; `train` unless set."""
    test_split: str | None = None
    """Of a data set `hf:`, the split of the test records; `test`, if there is one, unless set."""
    records: Count = 1000
    test_records: Count = 1000
    population_records: Annotated[int, Field(ge=2, le=10**9)] = 1000
    clients: Count | None = None
    """2 and more; 1 where membership attacks, and no insider, are what the run is for: training in one place."""
    partition: Choice[PartitionScheme] = PartitionScheme.IID
    partition_parameters: dict[str, Scalar] = Field(default_factory=dict)
    seed: Annotated[int, Field(ge=0, lt=2**64)] = 0

    @model_validator(mode="before")
    @classmethod
    def _default_clients(cls, values: Any) -> Any:
        """Fill in the default before the values are checked; with natural clients the data tell the number."""
        if not isinstance(values, dict) or "clients" in values or values.get("partition") == PartitionScheme.NATURAL:
            return values
        return values | {"clients": DEFAULT_CLIENTS}
