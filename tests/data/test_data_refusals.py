"""Refusals of data sources, partitions and neighbours: each names what is wrong."""

import math
from pathlib import Path

import numpy as np

from fl_audit.adjacency import CraftedRecord
from fl_audit.data.catalogue import DataSpec, load_source
from fl_audit.data.dissimilarity import Dissimilarity
from fl_audit.data.dissimilarity_ranking import ranked_pairs, total_dissimilarity
from fl_audit.data.neighbours import NeighbourRule, choose_client, replacement_positions
from fl_audit.data.packed_graphs import pack_graph
from fl_audit.data.partition import PartitionScheme, partition_records
from fl_audit.data.randomizers import LaplacePixelation, RandomisedBits, RandomisedEdges
from fl_audit.data.record_selection import select_records
from fl_audit.data.records import Records, encoded_record, single_record, with_crafted
from fl_audit.privacy.identifiability_bounds import response_advantage
from tests.builders.refusals import Refusal, refusal_test, refusals
from tests.builders.tables import load_csv
from tests.data import test_data_graph_records as data_graph_records
from tests.data import test_data_owners as data_owners
from tests.data import test_data_shokri_tables as data_shokri_tables
from tests.data import test_data_tables as data_tables
from tests.data.test_data_client_neighbours import LEAST, MOST, RANDOM, REMOVE, random_records
from tests.data.test_data_crafted import RECORDS
from tests.data.test_data_neighbours import records
from tests.data.test_data_owners import femnist, npz
from tests.data.test_data_partition import LABELS
from tests.data.test_data_randomizers import draws, lonely_odds, told_by
from tests.data.test_data_records import make
from tests.data.test_data_shokri_tables import ROWS, TEXAS, VALUES
from tests.data.test_data_tables import load_with, table_of

REFUSALS = [
    # Wrong choices are refused.
    *refusals(
        lambda choice, rank, measure: choose_client(
            NeighbourRule(REMOVE, choice, measure, 0, rank), np.split(np.arange(12), 4), random_records(12, 0)
        ),
        (4, 1, Dissimilarity.EUCLIDEAN, "neighbour is 4: .* 0 to 3,"),
        (-1, 1, Dissimilarity.EUCLIDEAN, "neighbour is -1: .* 0 to 3"),
        (MOST, 5, Dissimilarity.EUCLIDEAN, "neighbour-rank is 5: .* 1 to 4,"),
        (MOST, 0, Dissimilarity.EUCLIDEAN, "neighbour-rank is 0"),
        (RANDOM, 2, Dissimilarity.EUCLIDEAN, "neighbour-rank is 2 .*random: .* neighbour = most-"),
        (LEAST, 1, Dissimilarity.SSIM, "ssim between clients, .*: .* euclidean, manhattan and cosine"),
        (LEAST, 1, Dissimilarity.HAMMING, "hamming between clients"),
    ),
    # One client is refused.
    Refusal(
        lambda: choose_client(
            NeighbourRule(REMOVE, 0, Dissimilarity.EUCLIDEAN, 0), [np.arange(12)], random_records(12, 0)
        ),
        "there is 1 client: at least 2",
    ),
    # Sizes and numbers are checked.
    *refusals(
        lambda size, number: replacement_positions(random_records(10, 0), size, 0, number),
        (0, 0, "shard is 0"),
        (3, -1, "shard is -1"),
    ),
    # Nothing outside is refused.
    Refusal(lambda: replacement_positions(None, 3, 0), r"has 3 records, .* 0 are left"),
    # A damaged record is refused.
    *refusals(
        lambda crafted_record: with_crafted(RECORDS, 0, crafted_record),
        (CraftedRecord("no base 64!", 0), r"damaged: .* shape \(2, 3\)"),
        (encoded_record(np.zeros(5, np.float32), 0), r"damaged: .* shape \(2, 3\)"),
    ),
    # A class that there is not is refused.
    Refusal(lambda: single_record(encoded_record(np.zeros((2, 3), np.float32), 3), RECORDS), "a label is 3"),
    # Unknown names point to the nearest.
    Refusal(lambda: load_source(DataSpec("adlut")), r"'adlut': .* adult\?"),
    Refusal(lambda: load_source(DataSpec("csv", options=(("lable", "x"),))), r"no lable in .data.: .* label\?"),
    Refusal(
        lambda: load_source(DataSpec("digits", options=(("path", "x"),))), r"digits .*no path in .*: .*no settings"
    ),
    Refusal(
        lambda: load_source(DataSpec("femnist", options=(("user", "writer"),))),
        r"femnist .*'owner', its 12 clients; .* writers",
    ),
    Refusal(lambda: load_source(DataSpec("csv", options=(("path", "x"),))), "table needs label"),
    # Cosine refuses zeros and shapes must agree.
    Refusal(lambda: total_dissimilarity(records([[1, 0], [0, 0]]), Dissimilarity.COSINE), r"record 1 .*only zeros"),
    Refusal(lambda: ranked_pairs(records([[1, 0]]), records([[1, 0, 0]]), Dissimilarity.EUCLIDEAN, 1), r"shape \(3,\)"),
    # Wrong owner columns are refused.
    *refusals(
        lambda text, extra_options: load_csv(Path(), text, *extra_options),
        (data_owners.TABLE, (("owner", "clinic"),), "no owner column 'clinic': .* age, hospital, colour, outcome"),
        (data_owners.TABLE, (("owner", "outcome"),), "owner is 'outcome', .*label.*: .*other columns"),
        (data_owners.TABLE, (("owner", "hospital"), ("drop", ("hospital",))), "drop .*'hospital', .*owner"),
        (data_owners.TABLE, (("owner", "hospital"), ("drop", ("age", "colour"))), "label 'outcome' .*owner 'hosp"),
        ("a,o,outcome\n1,0.5,0\n2,1,1\n", (("owner", "o"),), "owner .* o has 0.5: .*whole numbers"),
    ),
    # Wrong owner arrays are refused.
    *refusals(
        lambda name, values: npz(Path(), name, client=values),
        ("site", np.arange(4), "no array 'site'"),
        ("y", np.arange(4), "owner is 'y': .* other than x, y, x_test or y_test"),
        ("client", np.arange(3), r"owners have shape \(3,\): .* \(4,\)"),
        ("client", np.zeros((4, 2)), r"client has shape \(4, 2\): .*one owner"),
        ("client", np.array([0.5, 1, 2, 3]), "client has 0.5: .*whole numbers"),
        ("client", np.array([np.nan, 1, 2, 3]), "client has nan"),
        ("client", np.zeros(4, dtype=complex), "client .* complex128: .*whole numbers"),
    ),
    # Damaged femnist is refused.
    *refusals(
        lambda changed: femnist(Path(), **changed),
        ({"x": np.zeros((4, 784), dtype=np.uint8)}, r"x .* \(4, 784\) .*uint8: .*images"),
        ({"x": np.zeros((4, 28, 28))}, "float64: .*images"),
        ({"y": np.array([0, 1, 2, 10])}, "y holds .*else.*: .*whole numbers"),
        ({"client": np.arange(5)}, r"owners have shape \(5,\): .*each record"),
    ),
    # Graphs of another size are refused.
    *refusals(
        lambda nodes: pack_graph(np.zeros((nodes, nodes), dtype=np.bool_), 4),
        (0, "a graph has 0 nodes: accepted are 1 to 4"),
        (5, "a graph has 5 nodes: accepted are 1 to 4"),
    ),
    # Wrong parameters are refused.
    *refusals(
        lambda scheme, parameters: partition_records(LABELS, 5, PartitionScheme(scheme), parameters, 0),
        ("iid", {"alpha": 1.0}, "iid .*no parameter 'alpha': .*none"),
        ("dirichlet", {"alhpa": 1.0}, "'alhpa': .* alpha, min-partition-size, self-balancing"),
        ("dirichlet", {"alpha": 0.0}, "alpha is 0.0: .*positive"),
        ("dirichlet", {"alpha": True}, "alpha is true"),
        ("dirichlet", {"alpha": float("nan")}, "alpha is nan"),
        ("dirichlet", {"alpha": "big"}, "alpha is 'big'"),
        ("dirichlet", {"min-partition-size": 0}, "min-partition-size is 0: .* from 1"),
        ("dirichlet", {"min-partition-size": 400}, "cannot divide .* min-partition-size 400 records"),
        ("pathological", {"class-assignment-mode": "best"}, "among 5 clients: .*class_assignment_mode"),
        ("pathological", {"num-classes-per-partition": 11}, "number of unique classes"),
        ("pathological", {"num-classes-per-partition": 1}, "drops [0-9]+ of 500 records"),
        ("shard", {"shard-size": 30, "keep-incomplete-shard": False}, "drops 20 of 500 records"),
        ("shard", {"shard-size": 400}, "not enough shards"),
        ("shard", {"keep-incomplete-shard": "no"}, "keep-incomplete-shard is 'no': .*true and false"),
    ),
    # Number of clients is checked.
    *refusals(
        lambda clients: partition_records(LABELS, clients, PartitionScheme.IID, {}, 0),
        (0, "clients is 0: .* 1 to 500"),
        (501, "clients is 501: .* 1 to 500"),
    ),
    # Exponential with too many clients is refused.
    Refusal(lambda: partition_records(LABELS, 20, PartitionScheme.EXPONENTIAL, {}, 0), r"smallest client .* none"),
    # Wrong owners are refused.
    *refusals(
        lambda owner, owners: Records(
            np.zeros((2, 1)), np.array([0, 1]), 2, None if owner is None else np.array(owner), owners
        ),
        ([0, 2], ("a", "b"), "owner is 2: .* 0 to 1, .* 2 names"),
        ([-1, 0], ("a", "b"), "an owner is -1"),
        ([0], ("a",), r"owners have shape \(1,\): .* \(2,\)"),
        (None, ("a",), "there are 1 names .*no owner"),
        ([0, 0.5], ("a",), "^owners have 0.5: .*whole numbers$"),
    ),
    # Wrong records are refused.
    *refusals(
        lambda features, labels, classes: Records(np.asarray(features), np.asarray(labels), classes),
        ([[0.0], [np.nan]], [0, 1], 2, r"feature \(0,\) of record 1 is nan"),
        ([[0.0], [1e300]], [0, 1], 2, r"record 1 is inf"),
        ([[0.0], [1.0]], [0, 2], 2, "a label is 2: accepted are 0 to 1"),
        ([[0.0], [1.0]], [-1, 1], 2, "a label is -1"),
        ([[0.0]], [0, 1], 2, "1 records and 2 labels"),
        (np.zeros((0, 3)), [], 2, "0 records"),
        ([0.0, 1.0], [0, 1], 2, "least two axes"),
        ([["a"], ["b"]], [0, 1], 2, "^features .*no array.*: .*real numbers$"),
        ([[0.0], [1.0]], [0, 0.5], 2, "^labels have 0.5: .*whole numbers$"),
        ([[0.0], [1.0]], [0, np.nan], 2, "^labels have nan: .*whole numbers$"),
        ([[0.0], [1.0]], ["no", "yes"], 2, "^labels are .*no.*: .* numbers$"),
    ),
    # Index out of range names the range.
    *refusals(
        lambda index: make(4).pool.take([0, index]),
        (-1, "index is -1: accepted are 0 to 3"),
        (4, "index is 4: accepted are 0 to 3"),
    ),
    # One class in d and bad numbers are refused.
    Refusal(lambda: select_records(make(10), 1, 1, seed=0), r"one class: .* 2"),
    Refusal(lambda: select_records(make(10), 0, 1, seed=0), "of records is 0"),
    Refusal(lambda: select_records(make(10), 2, 0, seed=0), "test records is 0"),
    # Spoilt arrays are refused.
    *refusals(
        lambda arrays: data_shokri_tables.load_npz(Path(), **arrays),
        ({"features": VALUES}, "no array labels"),
        ({"features": [0, 1, 0], "labels": [1, 2, 3]}, r"features have shape \(3,\)"),
        ({"features": [[0, 1], [0.5, 1]], "labels": [0, 1]}, "features have 0.5 in row 2: .* 0 and 1"),
        ({"features": [["a"], ["b"]], "labels": [0, 1]}, "features .* <U1: .*numbers"),
        ({"features": VALUES, "labels": [0, 1, 101]}, "label 3 is 101: .* 0 to 99, .* 1 to 100"),
        ({"features": VALUES, "labels": [0, 1, 100]}, "label 1 is 0: accepted"),
        ({"features": VALUES, "labels": [0, 1, np.nan]}, "label 3 is nan"),
        ({"features": VALUES, "labels": np.eye(99)[:3]}, r"labels have shape \(3, 99\): .* 100 columns"),
        ({"features": VALUES, "labels": np.zeros((3, 100))}, "label 1 .*not exactly one"),
        ({"features": VALUES, "labels": [0, 1]}, "3 records and 2 labels"),
    ),
    # Csv test file must fit.
    Refusal(
        lambda: load_csv(Path(), data_tables.TABLE, test=data_tables.TABLE.replace("age", "weight")),
        r"test\.csv differs .*table\.csv .* age, weight",
    ),
    Refusal(
        lambda: load_csv(Path(), data_tables.TABLE, test=data_tables.TABLE.replace("ill", "dead")),
        r"test label dead .*not occur",
    ),
    Refusal(
        lambda: load_csv(Path(), data_tables.TABLE, test=data_tables.TABLE.replace("40", "")),
        r"test\.csv .*missing value .* age, row 3",
    ),
    # Missing csv names the places.
    Refusal(
        lambda: load_source(DataSpec("csv", str(Path()), (("path", "gone.csv"), ("label", "x")))),
        r"gone\.csv not found.*FL_AUDIT_DATA",
    ),
    # Spoilt npz is refused.
    *refusals(
        lambda arrays: data_tables.load_npz(Path(), **arrays),
        ({"x": np.zeros((2, 3))}, "no array y"),
        ({"x": np.zeros((2, 3)), "y": np.zeros(2)}, "one class only"),
        ({"x": np.zeros((2, 3)), "y": np.array([0, 1, 1])}, "2 records and 3 labels"),
        ({"x": np.array([[0.0], [np.inf]]), "y": np.array([0, 1])}, "of record 1 is inf"),
        ({"x": np.zeros(2), "y": np.array([0, 1])}, "least two axes"),
        ({"x": np.array([["a"], ["b"]]), "y": np.array([0, 1])}, "x .*: .*real numbers"),
        ({"x": np.zeros((2, 3)), "y": np.array([0, 1]), "x_test": np.zeros((2, 3))}, "one of the arrays"),
        ({"x": np.zeros((2, 3)), "y": np.zeros((2, 1, 1))}, "one class for each"),
        ({"x": np.zeros((2, 3)), "y": np.array([[0.2, 0.8], [0.5, 0.5]])}, "row 1 .* 0s .* 1.*numpy.argmax"),
        ({"x": np.zeros((2, 3)), "y": np.array([[1, 1], [0, 1]])}, "several 1s .*: .*one class"),
        (
            {"x": np.zeros((2, 3)), "y": np.array([0, 1]), "x_test": np.zeros((2, 4)), "y_test": np.array([0, 1])},
            r"test records .*\(4,\)",
        ),
        ({"x": np.zeros((2, 3)), "y": np.array([{}, 1], dtype=object)}, "without objects"),
    ),
    # Only columns beside the label can be dropped.
    *refusals(
        lambda name: load_with(Path(), table_of({"x": [1, 2]}), drop=(name,)),
        ("y", "drop .*'y', .*label"),
        ("z", "drop .*'z', .*no such column"),
    ),
    # Graphs that are none.
    *refusals(
        data_graph_records.records_of,
        ([], "^there is no graph: .* 1 "),
        ([np.eye(2), np.eye(0)], r"^graph 1 .* shape \(0, 0\): "),
        ([np.ones((2, 3))], r"^graph 0 .* shape \(2, 3\): .*symmetric"),
        ([np.ones(4)], r"shape \(4,\): "),
        ([[[0, 1], [1]]], "^graph 0 .*different lengths: .*symmetric"),
        ([[[0, 1], [0, 0]]], "^graph 0 joins .* not back: "),
        ([[[0, 2], [2, 0]]], r"^graph 0 .* \[2\]: "),
        ([[[0, np.nan], [np.nan, 0]]], r"^graph 0 .* \[nan\]: "),
        ([[["a"]]], r"^graph 0 .* \['a'\]: "),
    ),
    # Randomizers, and records that they do not take.
    Refusal(lambda: RandomisedBits(-1.0), "epsilon is -1.0"),
    Refusal(lambda: RandomisedEdges(math.nan), "epsilon is nan"),
    Refusal(lambda: LaplacePixelation(0.0, 1), "epsilon is 0.0: .*positive"),
    Refusal(lambda: LaplacePixelation(1.0, 0), "neighbourhood is 0: .* from 1"),
    Refusal(lambda: LaplacePixelation(1.0, 1, 0), "block is 0"),
    Refusal(lambda: RandomisedBits(1.0).perturb(np.array([[0, 0.5]]), draws()), "feature is 0.5: .*random"),
    Refusal(lambda: RandomisedBits(1.0).log_odds(np.ones((2, 3)), np.ones(2), np.ones(2)), r"shape \(2, 3\) .*two"),
    Refusal(lambda: RandomisedBits(1.0).pair_events(np.ones(2), np.ones(3)), ": .*two records of one"),
    Refusal(lambda: told_by(RandomisedEdges(1.0), np.triu(np.ones((3, 3)))), "is not symmetric"),
    Refusal(lambda: told_by(RandomisedEdges(1.0), np.ones((1, 1))), "a graph has 1 nodes: accepted are 2 and more"),
    Refusal(lambda: lonely_odds(2, 2), "observed node .*no edge"),
    Refusal(lambda: lonely_odds(2, 3), ": .*two records of one"),
    Refusal(
        lambda: LaplacePixelation(1.0, 1, 3).perturb(np.zeros((1, 4, 6)), draws()), "4x6 pixels: .* block's side, 3"
    ),
    Refusal(lambda: LaplacePixelation(1.0, 1).perturb(np.full((1, 2, 2), 255.0), draws()), "a pixel is 255: accepted"),
    Refusal(lambda: LaplacePixelation(1.0, 1).perturb(np.zeros((9, 3, 2, 2)), draws()), ": .*grey ones"),
    Refusal(lambda: response_advantage(1.0, 0), "differing is 0"),
    # Rows that are spoilt.
    *refusals(
        lambda name, files: data_shokri_tables.load_archive(Path(), files, name),
        ("location30", {"bangkok": ROWS.replace("1,1,0,0", "1,2,0,0")}, r"\(bangkok\) has '2' in row 2, feature 2"),
        ("location30", {"bangkok": ROWS.replace("1,1,0,0", "1,x,0,0")}, "'x' in row 2, feature 2: .* 0"),
        ("location30", {"bangkok": ROWS.replace("1,1,0,0", "1,1,0,")}, "'' in row 2, feature 4"),
        ("location30", {"bangkok": ROWS.replace("1,1,0,0", "1,1,0")}, "3 features in row 2: .* 4"),
        ("location30", {"bangkok": ROWS.replace("1,1,0,0", "1,1,0,0,1")}, "5 features in row 2: .* 4"),
        ("location30", {"bangkok": ROWS.replace('"30"', '"31"')}, "label '\"31\"' in row 3: .* 1 to 30"),
        ("location30", {"bangkok": ROWS.replace('"30"', "0")}, "label '0' in row 3: accepted are 1 to 30"),
        ("location30", {"bangkok": ROWS.replace('"30"', "1.5")}, "label '1.5' in row 3"),
        ("location30", {"bangkok": ROWS.replace('"30"', "nan")}, "label 'nan' in row 3"),
        ("location30", {"bangkok": "\n"}, "has 0 rows"),
        ("location30", {"bangkok": '"13"\n"1"\n'}, "'' in row 1, feature 1"),
        ("location30", {"bangkok": '"2",1\n"2",0\n'}, "one class only"),
        ("location30", {}, "holds no file"),
        ("location30", {"bangkok": ROWS, "more": ROWS}, "second file"),
        ("texas100", {"texas/100/feats": "0,1\n"}, "1 files 100/feats .* 0 files 100/labels: .*one of each"),
        ("texas100", TEXAS | {"texas/100/labels": "13\n1\n"}, "3 records and 2 labels"),
        ("texas100", TEXAS | {"texas/100/labels": "13\n1\n101\n"}, "label '101' in row 3: accepted are 1 to 100"),
    ),
    *refusals(
        lambda text: load_csv(Path(), text),
        (data_tables.TABLE.replace("20,", ","), "missing value .* age, row 1: .* missing = \\[\\]"),
        (data_tables.TABLE.replace("30,", "inf,"), "inf .* age, row 2"),
        (data_tables.TABLE.replace("30,", "NaN,"), r'missing value .* age, row 2: .* drop = \["age"\]'),
        (data_tables.TABLE.replace("30,", "3O,"), "'3O' .* age, row 2, .*numbers"),
        (data_tables.TABLE.replace("blue", ""), "missing value .* colour, row 2"),
        (data_tables.TABLE.replace("ill", ""), "missing value .* outcome, row 2"),
        (data_tables.TABLE.replace("30,blue,false,ill", "30,blue"), "missing value .* ok, row 2"),
        (data_tables.TABLE.replace("well", "ill"), "one class only"),
        (data_tables.TABLE.replace("outcome", "result"), "no label column 'outcome': .* age, colour, ok, result"),
        (data_tables.TABLE.replace("outcome", "Outcomes"), r"no label column 'outcome': .* 'Outcomes'\? .* age"),
        (data_tables.TABLE.replace("false,ill", "false,ill,7"), "no CSV table"),
        ("age,outcome\n1,2,ill\n3,4,well\n", "no CSV table"),
        ("outcome\nill\nwell\n", "no column beside"),
        ("a,outcome\n", "has 0 records"),
        ("a,outcome\n1,0.5\n2,1.5\n", "label is 0.5: .*whole numbers or text"),
        ("", r"table\.csv is empty: .*complete file$"),
    ),
    # Columns that say nothing are refused with the remedy.
    *refusals(
        lambda columns: load_with(Path(), table_of(columns)),
        ({"when": ["1/2/2020", "2/2/2020"], "x": [1, 2]}, r"column when .*dates, .*'1/2/2020'.* drop = \[\"when\"\]"),
        ({"when": ["31/12/2020 10:15", "1/2/2021 11:30"], "x": [1, 2]}, "column when .*dates, .*'31/12/2020"),
        ({"name": data_tables.NAMES, "x": [1, 2]}, r"column name .*another text .*every record, .*'person 0'"),
        ({"Unnamed: 0": list(range(40)), "x": [1, 2]}, r"column .*without a name.* drop = \[\"Unnamed: 0\"\]"),
        ({"x": ["1", "2", "3", "?"]}, r"'\?' .* x, row 4, .*numbers.*missing = \[\"\?\"\]"),
        ({"x": ["1.2.2020", "5.3.2021", "30.4.2021", "soon"]}, r"'soon' .* x, row 4, .*dates.*missing = \[\"soon\"\]"),
        ({"x": ["soon", "2020-02-01", "2021-03-05", "2021-04-30"]}, "'soon' .* x, row 1, .*dates throughout"),
        ({"x": ["2020-02-01", "2021-13-05", "2021-04-30"]}, "'2021-13-05' .* x, row 2, .*dates throughout"),
    ),
]

test_it_is_refused = refusal_test(REFUSALS)
