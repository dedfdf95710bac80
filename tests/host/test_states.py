"""The six states as pure functions of observed facts."""

from dataclasses import replace

import pytest

from tyrum_provider_host.health import HealthRecord
from tyrum_provider_host.states import Facts, ProbeFacts, StateName, StateValue, admits, compute

SERVING = HealthRecord().good().good()
GOOD = Facts(
    artifact="sha256:aa",
    alive=True,
    authenticated=True,
    applied_config="sha256:bb",
    probe=ProbeFacts(ready=True, detail="ready"),
    health=SERVING,
    declared=frozenset({"durable", "extra"}),
    required=frozenset({"durable"}),
)
TRUE, FALSE, UNKNOWN = StateValue.TRUE, StateValue.FALSE, StateValue.UNKNOWN


def values(facts: Facts) -> tuple[StateValue, ...]:
    """Compute the values in their order."""
    return tuple(state.value for state in compute(facts))


def test_all_facts_good_admits() -> None:
    """When every fact holds, the five states are TRUE, degraded is FALSE, and operations may bind."""
    assert values(GOOD) == (TRUE, TRUE, TRUE, TRUE, TRUE, FALSE)
    assert admits(compute(GOOD))


def test_nothing_observed_is_unknown_and_does_not_admit() -> None:
    """A started instance of which nothing is known yet is UNKNOWN throughout."""
    facts = Facts(alive=True)
    assert values(facts) == (UNKNOWN,) * 6
    assert not admits(compute(facts))


@pytest.mark.parametrize(
    ("changes", "state", "value"),
    [
        ({"artifact": None}, StateName.INSTALLED, UNKNOWN),
        ({"artifact_problem": "gone"}, StateName.INSTALLED, FALSE),
        ({"applied_config": None}, StateName.CONFIGURED, UNKNOWN),
        ({"config_problem": "bad"}, StateName.CONFIGURED, FALSE),
        ({"authenticated": False}, StateName.READY, UNKNOWN),
        ({"probe": None}, StateName.READY, UNKNOWN),
        ({"probe": ProbeFacts(ready=False, detail="no")}, StateName.READY, FALSE),
        ({"alive": False, "ended": "exited with status 1"}, StateName.READY, FALSE),
        ({"health": HealthRecord().good()}, StateName.HEALTHY, UNKNOWN),
        ({"health": SERVING.miss("a").miss("b")}, StateName.HEALTHY, TRUE),
        ({"health": SERVING.miss("a").miss("b").miss("c")}, StateName.HEALTHY, FALSE),
        ({"declared": None}, StateName.CAPABLE, UNKNOWN),
        ({"declared": frozenset({"extra"})}, StateName.CAPABLE, FALSE),
        ({"probe": ProbeFacts(True, "", {"durable": "disk full"})}, StateName.CAPABLE, FALSE),
        ({"probe": ProbeFacts(True, "", {"extra": "disk full"})}, StateName.DEGRADED, TRUE),
        ({"probe": ProbeFacts(True, "", {"durable": "disk full"})}, StateName.DEGRADED, FALSE),
        ({"probe": ProbeFacts(False, "", {"extra": "disk full"})}, StateName.DEGRADED, FALSE),
    ],
)
def test_each_fact_decides_its_state(changes: dict[str, object], state: StateName, value: StateValue) -> None:
    """One fact changes the state that rests on it, with a reason; a state that is not TRUE blocks."""
    computed = compute(replace(GOOD, **changes))  # type: ignore[arg-type]
    found = next(item for item in computed if item.name is state)
    assert found.value is value
    assert found.reason
    if state is not StateName.DEGRADED:
        assert admits(computed) is (value is TRUE)


def test_health_is_regained_by_two_checks() -> None:
    """After health is lost, one good check is not enough and two are."""
    lost = SERVING.miss("a").miss("b").miss("c")
    assert lost.healthy is False
    assert lost.good().healthy is False
    assert lost.good().good().healthy is True
    assert lost.good().miss("d").good().healthy is False
