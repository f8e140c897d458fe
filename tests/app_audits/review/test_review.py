"""Reviews of whole apps: what is read from them, how they are played, and why some cannot be."""

import importlib.util
import json
import re
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict, UserConfig
from flwr.clientapp.mod import LocalDpMod, fixedclipping_mod
from flwr.serverapp.strategy import (
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAvg,
)
from typer.testing import CliRunner

from fl_audit.adjacency import Adjacency
from fl_audit.app_audits.black_box.audited_system import with_mods
from fl_audit.app_audits.black_box.legacy_adapter import LegacyAdapter
from fl_audit.app_audits.black_box.scenario import OF_FEW_TENSORS, ModelKind
from fl_audit.app_audits.black_box.scenarios import BY_NAME
from fl_audit.app_audits.black_box.trial_messages import Observer
from fl_audit.app_audits.black_box.trial_models import template_of, update_of
from fl_audit.app_audits.claim_audit.claim import StatedClaim
from fl_audit.app_audits.claim_audit.claim_audit_results import ClaimAudit, TrialBudget
from fl_audit.app_audits.launchers import isolated_process
from fl_audit.app_audits.launchers.review_launcher import reviewed
from fl_audit.app_audits.review.app_loading import read_app
from fl_audit.app_audits.review.claims import StatedAppClaim, epsilon_words, stated_by, training_doubt
from fl_audit.app_audits.review.client_counts import count_asked_clients, nodes_of, too_few_clients
from fl_audit.app_audits.review.plan import plan_of, relevant_scenarios, smallest_budget
from fl_audit.app_audits.review.review import review
from fl_audit.app_audits.review.review_messages import headline, report_lines_of_review, review_json
from fl_audit.app_audits.review.review_result import ReviewResult, server_verdict
from fl_audit.app_audits.review.reviewed_app import reviewed_claim
from fl_audit.app_audits.review.scenario_groups import SideChannel
from fl_audit.app_audits.review.strategy_capture import CapturedStrategy
from fl_audit.app_audits.review.virtual_clients import VirtualClientGrid
from fl_audit.app_audits.trial_options import ReviewOptions
from fl_audit.cli.main import app as command
from fl_audit.privacy.gaussian import gaussian_mu, gdp_delta
from fl_audit.strategies.simulated_grid import FIRST_NODE, InProcessGrid
from fl_audit.verdict.verdict import Verdict
from tests.app_audits.review.apps import CLIENT, caught, noisy_server, with_strategy, write_app
from tests.builders.refusals import assert_refused
from tests.builders.strategies import central_noise

pytestmark = pytest.mark.usefixtures("small_working_directory", "searched_as_before")
PRIVATE = "DifferentialPrivacyServerSideFixedClipping(FedAvg(fraction_evaluate=0.0), {noise}, 2.0, 4)"
_BUFFERS, _COUNTERS = "running statistics", "parameter of whole numbers"  # names of scenarios


def test_what_an_app_would_start_is_taken_as_it_is(tmp_path: Path) -> None:
    code = with_strategy(PRIVATE.format(noise=1.5))
    captured_strategy = caught(write_app(tmp_path, "taken_app", code))
    assert isinstance(captured_strategy.start.strategy, DifferentialPrivacyServerSideFixedClipping)
    assert captured_strategy.start.strategy.noise_multiplier == 1.5
    assert captured_strategy.rounds == 5
    assert [array.shape for array in captured_strategy.start.arguments["initial_arrays"].to_numpy_ndarrays()] == [
        (3, 4),
        (4,),
    ]
    assert captured_strategy.start.strategy.start.__func__ is FedAvg.start  # nothing of the catching is left


def test_a_start_of_its_own_and_mods_are_taken(tmp_path: Path) -> None:
    server = with_strategy("Own()").replace(
        "app = ServerApp()",
        "class Own(FedAvg):\n    def start(self, grid, initial_arrays, num_rounds=3):\n        open('x')\n\n\n"
        "app = ServerApp()",
    )
    client = CLIENT.replace("ClientApp()", "ClientApp(mods=[LocalDpMod(1.0, 2.0, 3.0, 1e-5)])").replace(
        "import ClientApp", "import ClientApp\nfrom flwr.clientapp.mod import LocalDpMod"
    )
    captured_strategy = caught(write_app(tmp_path, "own_start_app", server, client))
    assert type(captured_strategy.start.strategy).__name__ == "Own"
    assert isinstance(captured_strategy.mods[0].mod, LocalDpMod)


def test_mods_are_played_where_the_app_has_them(tmp_path: Path) -> None:
    """For all messages or those of one function, the outermost first, with the app's configuration and state."""
    client = """
        from flwr.clientapp import ClientApp
        from flwr.clientapp.mod import fixedclipping_mod

        def named(name):
            def mod(message, context, call_next):
                seen = context.state.setdefault("seen", __import__("flwr").app.ConfigRecord())
                seen[str(len(seen))] = f"{name} {context.run_config['params.rate']}"
                return call_next(message, context)
            return mod

        app = ClientApp(mods=[named("everywhere")])

        @app.train(mods=[named("train"), fixedclipping_mod])
        def train(message, context): ...

        @app.evaluate()
        def evaluate(message, context): ...
        """
    captured_strategy = caught(write_app(tmp_path, "placed_app", with_strategy("FedAvg()"), client))
    assert fixedclipping_mod in [modifier.mod for modifier in captured_strategy.mods]
    for kind, expected in (("train", ["everywhere 0.5", "train 0.5"]), ("evaluate", ["everywhere 0.5"])):
        context = Context(run_id=1, node_id=2, node_config=UserConfig(), state=RecordDict(), run_config=UserConfig())
        answer = with_mods(
            tuple(modifier for modifier in captured_strategy.mods if modifier.mod is not fixedclipping_mod),
            _empty_reply,
        )
        answer(Message(RecordDict(), FIRST_NODE, kind), context)
        assert list(context.state["seen"].values()) == expected


def _empty_reply(message: Message, _: Context) -> Message:
    return Message(RecordDict(), reply_to=message)


@pytest.mark.parametrize("by_workflow", [False, True])
def test_strategies_of_the_old_interface_are_taken(tmp_path: Path, by_workflow: bool) -> None:
    common = """
        import numpy as np
        from flwr.common import ndarrays_to_parameters
        from flwr.server import LegacyContext, ServerApp, ServerAppComponents, ServerConfig
        from flwr.server.strategy import FedAvg
        from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow

        strategy = FedAvg(initial_parameters=ndarrays_to_parameters([np.ones(3)]))
        """
    by_function = """
        app = ServerApp(server_fn=lambda context: ServerAppComponents(strategy=strategy, config=ServerConfig(7)))
        """
    workflow = """
        app = ServerApp()

        @app.main()
        def main(grid, context):
            legacy = LegacyContext(context=context, config=ServerConfig(num_rounds=7), strategy=strategy)
            DefaultWorkflow(fit_workflow=SecAggPlusWorkflow(3, 2))(grid, legacy)
        """
    name = f"old_app_{by_workflow}"
    captured_strategy = caught(write_app(tmp_path, name, common + (workflow if by_workflow else by_function)))
    assert isinstance(captured_strategy.start.strategy, LegacyAdapter)
    assert captured_strategy.rounds == 7
    np.testing.assert_array_equal(captured_strategy.start.arguments["initial_arrays"]["000"].numpy(), np.ones(3))
    assert any("secure aggregation" in remark for remark in captured_strategy.remarks) is by_workflow


@pytest.mark.parametrize(
    ("code", "expected_message"),
    [
        ("import no_package_of_anybody\napp = no_package_of_anybody.App()", "is a App: accepted is a ServerApp"),
        ("raise ValueError('no\\nconfig')", "(ValueError: no config)"),
        ("app = 3", "is a int: accepted is a ServerApp"),
        (with_strategy("grid.send_and_receive([])"), "AttributeError"),
        (
            with_strategy(
                "list(grid.push_messages([__import__('flwr').app.Message(__import__('flwr').app.RecordDict(), 2,"
                " 'query')]))"
            ),
            "without a strategy",
        ),
        (with_strategy("exit(3)"), "raised SystemExit: 3"),
        (with_strategy("None").replace("strategy.start", "str"), "raised TypeError"),
        (
            "from flwr.serverapp import ServerApp\napp = ServerApp()\n@app.main()\ndef main(grid, context): ...",
            "started nothing",
        ),
        (
            with_strategy("__import__('threading').Lock() and FedAvg()").replace(
                "    strategy.start", "    strategy.lock = __import__('threading').Lock()\n    strategy.start"
            ),
            "started or copied",
        ),
        (
            "from flwr.server import ServerApp, ServerAppComponents\nclass Alike:\n"
            "    def initialize_parameters(self, _): ...\n"
            "app = ServerApp(server_fn=lambda context: ServerAppComponents(strategy=Alike()))",
            "strategy is a Alike: accepted are Flower's strategies",
        ),
    ],
)
def test_what_cannot_be_reviewed_is_said_in_one_line(
    tmp_path: Path, code: str, expected_message: str, request: pytest.FixtureRequest
) -> None:
    name = f"refused_app_{request.node.callspec.indices['code']}"
    error = assert_refused(None, lambda: caught(write_app(tmp_path, name, code)))
    assert expected_message in str(error)


def test_a_missing_package_that_the_server_needs_is_named(tmp_path: Path) -> None:
    code = with_strategy("FedAvg()").replace("import numpy as np", "import numpy as np\nimport no_such_net") + (
        "\n    raise AssertionError\n"
    )
    code = code.replace("ArrayRecord([np.zeros", "ArrayRecord(no_such_net.Net().state_dict()) or ([np.zeros")
    assert_refused(r"ArrayRecord.*: no_such_net", lambda: caught(write_app(tmp_path, "lacking_app", code)))


def test_stand_ins_are_inert_and_for_the_app_alone(tmp_path: Path) -> None:
    code = """
        import no_such_data.loaders as loaders
        from no_such_data import Base, compose, decorated
        from flwr.serverapp import ServerApp

        class Mine(Base[int]):
            def answer(self) -> "loaders.Answer | None":
                return 42

        @decorated
        def kept():
            return Mine(3).answer()

        transform = compose([loaders.crop(28), 1])
        with transform.anything() as something:
            pass
        app = ServerApp()

        @app.main()
        def main(grid, context):
            raise RuntimeError(f"the answer is {kept()}")
        """
    assert_refused(r"answer is 42; .*: no_such_data", lambda: caught(write_app(tmp_path, "standing_app", code)))
    assert importlib.util.find_spec("no_such_data_either") is None


@pytest.mark.parametrize(
    ("text", "expected_message"),
    [(None, "no pyproject.toml"), ("[a", "cannot be read"), ("[tool.flwr.app]", "names no serverapp")],
)
def test_a_directory_that_is_no_app_is_refused(tmp_path: Path, text: str | None, expected_message: str) -> None:
    if text is not None:
        (tmp_path / "pyproject.toml").write_text(text)
    assert_refused(expected_message, read_app, tmp_path)


def test_the_file_of_an_app_is_read_as_flower_reads_it(tmp_path: Path) -> None:
    write_app(tmp_path, "read_app", with_strategy("FedAvg()"))
    with (tmp_path / "pyproject.toml").open("a") as file:
        file.write(
            "[tool.flwr.federations]\ndefault = 'here'\n[tool.flwr.federations.here]\noptions.num-supernodes = 7\n"
        )
    app_description = read_app(tmp_path)
    assert (app_description.name, app_description.nodes) == ("read_app", 7)
    assert app_description.config == {"num-server-rounds": 5, "params.rate": 0.5}


def test_claims_are_read_from_wrappers_and_mods() -> None:
    fixed = DifferentialPrivacyServerSideFixedClipping(FedAvg(), 1.5, 2.0, 4)
    stated_claim = stated_by(fixed, (), None, rounds=3)
    assert stated_claim.claim == StatedClaim("add-remove-client", noise_multiplier=1.5, rounds=3)
    assert (stated_claim.norm, stated_claim.clients) == (2.0, 4)
    # What an adaptive wrapper was made for comes out of what it keeps.
    adaptive = DifferentialPrivacyServerSideAdaptiveClipping(FedAvg(), 1.5, 100, clipped_count_stddev=5.0)
    claim = stated_by(adaptive, (), None, 1).claim
    assert claim is not None
    assert claim.noise_multiplier == pytest.approx(1.5, rel=1e-12)
    assert adaptive.noise_multiplier > 1.5
    local = stated_by(FedAvg(), (LocalDpMod(1.0, 2.0, 3.0, 1e-5),), None, 1)
    assert local.claim == StatedClaim(Adjacency.REPLACE_CLIENT, epsilon=3.0, delta=1e-5)
    assert local.observer is Observer.SERVER
    assert stated_by(FedAvg(), (), None, 1).claim is None
    # Noise of several messages composes: half the epsilon four times is as much as all of it at once.
    local_claims = [stated_by(FedAvg(), (LocalDpMod(1.0, 2.0, epsilon, 1e-5),), None, 1) for epsilon in (1.0, 2.0)]
    over = [
        epsilon_words(app_claim, rounds).split("comes to ")[1]
        for app_claim, rounds in zip(local_claims, (4, 1), strict=True)
    ]
    assert over[0] == over[1]
    endless = stated_by(FedAvg(), (LocalDpMod(1.0, 2.0, 500.0, 1e-5),), None, 1)
    assert endless.claim is None
    assert "epsilon 500" in endless.source


def test_the_accountant_of_a_wrapper_says_delta_and_relation() -> None:
    privacy = pytest.importorskip("flwr.supercore.privacy_accounting", reason="since Flower 1.34")
    config = privacy.PrivacyConfig(
        target_delta=1e-6,
        population_size=10,
        neighboring_relation=privacy.NeighboringRelation.ADD_OR_REMOVE_ONE,
        sampling_method=privacy.SamplingMethod.NO_AMPLIFICATION,
        max_epsilon=20.0,
    )
    strategy = DifferentialPrivacyServerSideFixedClipping(
        FedAvg(), 1.0, 1.0, 10, accountant=SimpleNamespace(config=config)
    )
    stated_claim = stated_by(strategy, (), None, 1)
    assert stated_claim.claim == StatedClaim("add-remove-client", delta=1e-6, noise_multiplier=1.0)
    assert "target_delta = 1e-06, max_epsilon = 20" in stated_claim.source


def test_a_claim_is_said_of_a_round_and_of_all_of_them() -> None:
    words = epsilon_words(StatedAppClaim(StatedClaim("add-remove-client", noise_multiplier=2.0), "here"), rounds=25)
    single_round = float(words.split("epsilon ")[1].split(" ")[0])
    all_rounds = float(words.split("over all 25 epsilon ")[1].split(" ")[0])
    for epsilon, rounds in ((single_round, 1), (all_rounds, 25)):
        assert gdp_delta(epsilon, gaussian_mu(2.0, rounds)) == pytest.approx(1e-5, rel=0.1)


@pytest.mark.parametrize(
    ("strategy", "epsilon", "rounds", "expected_doubt"),
    [
        (DifferentialPrivacyServerSideFixedClipping(FedAvg(), 2.0, 1.0, 10), 8.0, 100, "epsilon 33.1"),
        (DifferentialPrivacyServerSideFixedClipping(FedAvg(), 2.0, 1.0, 10), 34.0, 100, ""),
        (FedAvg(), 8.0, 100, "tried for 3 of 100 rounds"),
        (FedAvg(), 8.0, 3, ""),
    ],
)
def test_an_epsilon_of_the_training_is_not_supported_by_trials_of_three_rounds(
    strategy: FedAvg, epsilon: float, rounds: int, expected_doubt: str
) -> None:
    """By the curve of Gaussian noise, mu = 10 / 2 has epsilon 33.1 at delta 1e-5."""
    caught = SimpleNamespace(start=SimpleNamespace(strategy=strategy), mods=[])
    stated = reviewed_claim(cast(CapturedStrategy, caught), ReviewOptions(epsilon=epsilon))
    doubt = training_doubt(stated, rounds, 3)
    assert expected_doubt in doubt
    assert (doubt == "") is (expected_doubt == "")
    for came, expected in (
        ("consistent", "inconclusive" if expected_doubt else "consistent"),
        ("violated", "violated"),
    ):
        assert stated.claim is not None
        result = ClaimAudit(stated.claim, Verdict(came), (), (), 0)
        assert server_verdict(stated, result, rounds, 3) == expected
    if "33.1" in expected_doubt:
        assert gdp_delta(33.1, 5.0) == pytest.approx(1e-5, rel=0.1)


def test_a_reviewers_multiplier_is_read_over_what_it_says() -> None:
    strategy = DifferentialPrivacyServerSideFixedClipping(FedAvg(), 2.0, 1.0, 10)
    caught = cast(CapturedStrategy, SimpleNamespace(start=SimpleNamespace(strategy=strategy), mods=[]))
    for over, mu in (("sensitivity", 0.5), ("clipping-norm", 1.0)):
        wishes = ReviewOptions(noise_multiplier=2.0, noise_over=over, adjacency="replace-client")
        claim = reviewed_claim(caught, wishes).claim
        assert claim is not None
        assert claim.mu == mu


@pytest.mark.parametrize(
    ("relation", "mu"), [(None, 0.5), (Adjacency.ADD_REMOVE_CLIENT, 0.5), (Adjacency.REPLACE_CLIENT, 1.0)]
)
def test_noise_of_a_wrapper_tells_twice_as_much_of_a_client_that_is_replaced(
    relation: Adjacency | None, mu: float
) -> None:
    """Flower's noise is that of an update which is added or removed, for whichever relation a reviewer asks."""
    strategy = DifferentialPrivacyServerSideFixedClipping(FedAvg(), 2.0, 1.0, 10)
    caught = cast(CapturedStrategy, SimpleNamespace(start=SimpleNamespace(strategy=strategy), mods=[]))
    stated = reviewed_claim(caught, ReviewOptions(epsilon=34.0, adjacency=relation))
    assert stated.mu == mu
    assert (training_doubt(stated, 100, 3) == "") is (relation is not Adjacency.REPLACE_CLIENT)


def test_kinds_without_a_single_trial_are_not_said_to_hold() -> None:
    claim = StatedClaim("add-remove-client", noise_multiplier=1.0)
    result = ClaimAudit(claim, Verdict.INCONCLUSIVE, (), (), 40, silent=("removed",))
    stated = StatedAppClaim(claim, "here")
    app_review = ReviewResult(
        "app",
        stated,
        Verdict.INCONCLUSIVE,
        3,
        3,
        4,
        {"train": 4, "evaluate": 0},
        None,
        ("removed", "metrics"),
        "none",
        result,
        None,
        (),
        (),
    )
    lines = dict(report_lines_of_review(app_review))
    assert lines["No contradiction"] == BY_NAME["metrics"].plain_name
    assert lines["Not tried"].startswith("'removed' (no model")
    assert "Not tried" not in dict(report_lines_of_review(replace(app_review, result=replace(result, silent=()))))
    assert lines["Beside the model"].startswith("the server sees")
    assert (
        dict(report_lines_of_review(replace(app_review, beside=result)))["Beside the model"] == ""
    )  # nothing that a client could look at


def test_whoever_is_asked_first_in_a_round_sits_on_the_first_seat() -> None:
    heard = list[tuple[int, int]]()

    def answer(message: Message) -> Message:
        heard.append((round_of[0], message.metadata.dst_node_id))
        content = {"arrays": ArrayRecord([np.ones(2, np.float32)]), "metrics": MetricRecord({"num-examples": 1})}
        return Message(RecordDict(content), reply_to=message)

    round_of = [0]
    strategy = FedAvg(fraction_train=0.25, fraction_evaluate=0.0)
    seated = VirtualClientGrid(InProcessGrid(5, answer), nodes=20, seats=5)
    asked_nodes = set()
    for round_of[0] in range(10):
        messages = list(strategy.configure_train(1, ArrayRecord([np.ones(2)]), ConfigRecord(), seated))
        nodes = [message.metadata.dst_node_id for message in messages]
        replies = list(seated.send_and_receive(messages))
        assert [reply.metadata.src_node_id for reply in replies] == nodes
        assert [node for number, node in heard if number == round_of[0]] == list(range(FIRST_NODE, FIRST_NODE + 5))
        asked_nodes |= set(nodes)
    assert len(asked_nodes) > 5
    assert seated.largest_requests == {"train": 5, "evaluate": 0}


def test_as_many_clients_are_taken_as_a_wrapper_is_made_for() -> None:
    inner = FedAvg(fraction_train=0.2, fraction_evaluate=0.0)
    assert count_asked_clients(DifferentialPrivacyServerSideFixedClipping(inner, 1.0, 1.0, 20), 60) == 12
    strategy = DifferentialPrivacyServerSideFixedClipping(inner, 1.0, 1.0, 20)
    assert nodes_of(strategy, None, 20)[0] == 100
    nodes, _, fault = nodes_of(strategy, 50, 20)
    assert nodes == 50
    assert re.search(r"\b20 clients .*\b50 clients .*\b10\b.* 2 times smaller", fault)
    # All clients are asked: as many are taken as the wrapper is made for, and not Flower's ten.
    full_strategy = central_noise()
    assert nodes_of(full_strategy, None, 4)[::2] == (4, "")
    assert "2.5 times larger" in nodes_of(full_strategy, 10, 4)[2]
    # Flower's FedAvg begins with two clients, whose mean gets the noise of a mean of twenty.
    assert too_few_clients(strategy, 20) == (2, 2)
    waiting = FedAvg(fraction_evaluate=0.0)
    waiting.configure_train = _waits_for_twenty  # type: ignore[method-assign, assignment]
    assert nodes_of(DifferentialPrivacyServerSideFixedClipping(waiting, 1.0, 1.0, 20), 20, 20) == (20, [], "")
    patient = FedAvg(fraction_train=0.2, fraction_evaluate=0.0, min_available_nodes=100)
    assert nodes_of(DifferentialPrivacyServerSideFixedClipping(patient, 1.0, 1.0, 20), None, 20)[::2] == (100, "")
    assert too_few_clients(patient, 20) is None
    assert too_few_clients(strategy, None) is None


def _waits_for_twenty(_round: int, _arrays: ArrayRecord, _config: ConfigRecord, grid: InProcessGrid) -> list[Message]:
    while len(nodes := list(grid.get_node_ids())) < 20:
        pass
    return [Message(RecordDict(), node, "train") for node in nodes]


@pytest.mark.long
def test_plans_shrink_with_the_time() -> None:
    claim = StatedClaim("add-remove-client", noise_multiplier=1.0)
    kinds = [BY_NAME["removed"], BY_NAME["removed, own model"]]
    plans = [plan_of(kinds, claim, 0.1, 0.01, seconds, 3, True, False) for seconds in (1e9, 300, 100, 20)]
    assert plans[0].rounds == 3
    assert [plan.budget.pilot for plan in plans] == sorted((plan.budget.pilot for plan in plans), reverse=True)
    assert plans[-1].budget == smallest_budget(claim)
    assert [kind.model is ModelKind.OWN for kind in plans[-1].kinds] == [False]
    assert plan_of(kinds, claim, 0.1, 0.01, 20, 3, False, False).rounds == 3


@pytest.mark.few_cases(1)
@pytest.mark.parametrize(("noise", "trials"), [(1.0, 400), (0.2, 3200), (0.05, 400)])
def test_a_weak_claim_gets_as_many_trials_as_can_refute_it(noise: float, trials: int) -> None:
    """By hand: of n trials told without an error, level .05 / 4 certifies a total variation of about 1 - 11 / n."""
    claim = StatedClaim("add-remove-client", noise_multiplier=noise)
    assert smallest_budget(claim).stages == (trials,)
    variation = gdp_delta(0.0, gaussian_mu(noise, 1))
    assert (1 - 11 / trials > variation) is (noise > 0.1)


def test_buffers_are_moved_under_the_names_that_the_app_gives_them() -> None:
    model = {"b.running_var": np.ones(3, np.float32), "b.num_batches_tracked": np.zeros((), np.int64)}
    model["weight"] = np.ones((3, 4), np.float32)
    kinds = relevant_scenarios(list(BY_NAME.values()), model, has_claim=True)
    moved = {kind.plain_name: kind for kind in kinds if kind.present.direction in OF_FEW_TENSORS}
    assert len(moved) == 2
    for name, tensor in ((_BUFFERS, "b.running_var"), (_COUNTERS, "b.num_batches_tracked")):
        kind = moved[name]
        model_template = template_of(model)
        assert kind.model is ModelKind.OWN
        update = update_of(kind.present, model_template, 2.0, 1, kind.schedule)
        there = dict(model_template.tensors)[tensor]
        assert np.all(update[there] == 2000.0)
        assert np.count_nonzero(update) == model[tensor].size


@pytest.mark.long
def test_numbers_that_a_strategy_asks_for_are_learned(tmp_path: Path) -> None:
    server = with_strategy("FedAvg(fraction_evaluate=0.0, train_metrics_aggr_fn=added)").replace(
        "app = ServerApp()",
        "def added(replies, weight):\n    return MetricRecord({'sum': sum(r['metrics']['my-loss'] for r in replies)})\n"
        "app = ServerApp()",
    )
    app_review = review(write_app(tmp_path, "asking_app", server), ReviewOptions(processes=1, clients=4))
    assert app_review.verdict == "no guarantee"
    assert app_review.beside is not None
    metrics = next(leak for leak in app_review.leaks if leak.aside is SideChannel.METRICS)
    assert metrics.by is not None
    assert metrics.by.startswith("metrics: sum")


@pytest.mark.long
@pytest.mark.parametrize("leaky", [True, False])
def test_what_leaks_beside_the_model_is_found_and_the_honest_twin_leaks_nothing(tmp_path: Path, leaky: bool) -> None:
    """All four at once: metrics, counts of examples, a buffer of whole numbers under a name of its own, evaluations."""
    directory = write_app(tmp_path, f"beside_app_{leaky}", noisy_server(leaky))
    app_review = review(directory, ReviewOptions(processes=1, seconds=1000, rounds=1, clients=4, is_quick=True))
    assert str(app_review.verdict) == ("violated" if leaky else "consistent")
    assert {str(leak.aside): (leak.is_played, leak.share is not None) for leak in app_review.leaks} == {
        "metrics": (True, leaky),
        "example counts": (True, leaky),
        "buffers": (True, leaky),
        "evaluation replies": (leaky, leaky),
    }
    assert f"{_COUNTERS}, own model" in app_review.kinds


@pytest.mark.parametrize(
    ("noise", "verdict", "in_full"),
    [
        ("/ 3", "violated", False),
        pytest.param("/ 3", "violated", True, marks=pytest.mark.long),
        pytest.param("", "consistent", True, marks=pytest.mark.long),
    ],
)
def test_a_wrapper_with_too_little_noise_is_found_and_its_twin_is_not(
    tmp_path: Path, noise: str, verdict: str, in_full: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A third of the noise shows in the plainest trials already: 93 % are told, and 69 % may be."""
    if not in_full:
        small = TrialBudget(pilot=60, stages=(200,), shares=(1.0,), fewest_tests=1, most_tests=1, deep=1, plainest=True)
        for name in ("_FEWER", "_FEWEST"):
            monkeypatch.setattr(f"fl_audit.app_audits.review.plan.{name}", small)
        monkeypatch.setattr("fl_audit.app_audits.review.plan.relevant_scenarios", lambda *_, **__: [BY_NAME["removed"]])
        monkeypatch.setattr("fl_audit.app_audits.review.review.NUMBERS", {SideChannel.METRICS: "metrics"})
    server = noisy_server(leaky=False, noise=noise)
    wishes = ReviewOptions(processes=1, seconds=30 if in_full else 300, rounds=1, clients=4, is_quick=not in_full)
    app_review = review(write_app(tmp_path, f"noisy_app_{verdict}_{in_full}", server), wishes)
    assert app_review.app_claim.source == "Own: noise_multiplier = 1, clip_norm = 2"
    assert str(app_review.verdict) == verdict


@pytest.mark.long
def test_trials_show_what_it_means_to_begin_with_fewer_clients_than_the_noise_is_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two clients' mean with the noise of ten has mu 5 where 1 is claimed: Phi(2.5) = .994 of trials, .69 allowed."""
    server = with_strategy(PRIVATE.format(noise=1.0).replace("4)", "10)"))
    directory = write_app(tmp_path, "early_app", server)
    monkeypatch.setattr("fl_audit.app_audits.review.plan.relevant_scenarios", lambda *_, **__: [BY_NAME["removed"]])
    monkeypatch.setattr("fl_audit.app_audits.review.review.NUMBERS", {SideChannel.METRICS: "metrics"})
    app_review = review(directory, ReviewOptions(processes=1, seconds=400, rounds=1, is_quick=True))
    (early_remark,) = app_review.early
    assert "as soon as 2" in early_remark
    assert re.search(r"asks 2 .*\bnoise .*\b10: .*\b9\d*%.* 69%, .*\bbreaks\b", early_remark)


@pytest.mark.long
def test_the_command_reviews_an_app_that_stays_as_it_is(tmp_path: Path) -> None:
    server = with_strategy("Writing()").replace(
        "app = ServerApp()",
        "class Writing(FedAvg):\n    def aggregate_train(self, server_round, replies):\n"
        "        import socket\n        try:\n            socket.create_connection(('127.0.0.1', 9))\n"
        "        except ConnectionError as error:\n            open('tried.txt', 'a').write(str(error))\n"
        "        return super().aggregate_train(server_round, replies)\napp = ServerApp()",
    )
    # What is made before the training is there in every trial, and a modifier names its arguments as it likes.
    server = server.replace("    strategy =", "    open('made.txt', 'w').close()\n    strategy =").replace(
        "        import socket", "        open('made.txt').close()\n        import socket"
    )
    client = CLIENT.replace("ClientApp()", "ClientApp(mods=[lambda message, context, app: app(message, context)])")
    directory = write_app(tmp_path / "writing", "writing_app", server, client)
    before = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    out = tmp_path / "out"
    arguments = ["review", str(directory), "--set", "clients=4", "--json", "--out", str(out)]
    result = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    answer = json.loads(result.stdout)
    assert answer["verdict"] == "no guarantee"
    assert any("writes files" in remark for remark in answer["remarks"])
    of_trials = {finding["told_by"] for finding in answer["beside"]["findings"] if finding["of_trials_alone"]}
    assert of_trials == {"metrics: loss", "evaluation: loss"}
    assert {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()} == before
    assert not list(Path.cwd().glob("tried.txt"))
    assert "guarantees no privacy" in (out / "report.html").read_text()
    assert json.loads((out / "summary.json").read_text())["verdict"] == "no guarantee"


@pytest.mark.long
def test_a_review_that_runs_out_of_time_says_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the clock of the trials, every trial takes a twentieth of a second."""
    seconds = count(step=0.05)
    for module in ("system_audit", "worker_pool"):
        monkeypatch.setattr(
            f"fl_audit.app_audits.black_box.{module}.time", SimpleNamespace(monotonic=lambda: next(seconds))
        )
    directory = write_app(tmp_path, "slow_app", with_strategy("FedAvg(fraction_evaluate=0.0)"))
    wishes = ReviewOptions(processes=1, seconds=100, clients=4, rounds=1, is_quick=True, noise_multiplier=0.5)
    app_review = review(directory, wishes)
    assert app_review.result.unplayed
    assert app_review.result.tests
    assert app_review.verdict is Verdict.VIOLATED
    assert "time ran out" in headline(app_review)
    assert app_review.result.unplayed[0] in headline(app_review)
    answer = json.loads(json.dumps(review_json(app_review)))
    assert set(answer["model"]["unplayed"]) == set(app_review.result.unplayed)


def test_an_app_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    directory = write_app(tmp_path, "endless_app", "import time\ntime.sleep(1000)")
    assert_refused(r"not reviewed .*more --minutes$", lambda: reviewed(directory, ReviewOptions(seconds=1)))


@pytest.mark.few_cases(2)
@pytest.mark.parametrize(
    ("end", "ended"),
    [
        ("time.sleep(60)", "not over within"),
        ("os._exit(0)", "status 0"),
        ("1 / 0", "status 1"),
        ("os.kill(os.getpid(), 9)", "signal 9"),
        ("0", ""),
    ],
)
def test_what_was_judged_is_shown_however_a_process_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str, ended: str
) -> None:
    monkeypatch.setattr(isolated_process, "_LATE", 0.5)
    name = f"telling_{''.join(filter(str.isalpha, end))}"
    (tmp_path / f"{name}.py").write_text(
        "import os, time\n"
        "def found(asked, tell):\n    tell({'judged': asked['trials']})\n"
        f"    {end}\n    return {{'judged': 'all'}}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with isolated_process.temporary_directory() as room, (room / "log").open("wb") as log:
        process_result = isolated_process.run_isolated(f"{name}:found", {"trials": 40}, room, 3.0, log=log)
    assert process_result.values == {"judged": 40 if ended else "all"}
    assert ended in process_result.ended
    assert bool(process_result.ended) is bool(ended)
    assert process_result.is_late is ("within" in ended)
    assert not room.exists()


@pytest.mark.parametrize(
    ("flags", "expected_message"),
    [
        (["--set", "clients=1"], "clients are 1"),
        (["--adjacency", "add-remove-record"], "from outside"),
        (["--minutes", "0"], "--minutes 0"),
    ],
)
def test_wrong_flags_are_refused(tmp_path: Path, flags: list[str], expected_message: str) -> None:
    assert_refused(
        expected_message, lambda: CliRunner().invoke(command, ["review", str(tmp_path), *flags], catch_exceptions=False)
    )


@pytest.mark.parametrize(
    ("verdict", "flags", "status"),
    [("violated", ["--fail-on-violation"], 4), ("violated", [], 0), ("inconclusive", ["--fail-on-violation"], 0)],
)
def test_a_violation_fails_the_command_if_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verdict: str, flags: list[str], status: int
) -> None:
    answer = {"verdict": verdict, "headline": "It is so.", "lines": []}
    monkeypatch.setattr("fl_audit.cli.black_box_commands.reviewed", lambda *_: answer)
    result = CliRunner().invoke(command, ["review", str(tmp_path), *flags])
    assert result.exit_code == status
    assert "It is so." in result.output
