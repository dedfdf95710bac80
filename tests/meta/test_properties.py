"""Properties are tried with the same values everywhere, for as long as a slow machine needs."""

import ast
from collections.abc import Iterator

from tests.support.repository import ROOT, tracked

WANTED = {"deadline": None, "derandomize": True, "database": None}


def unsettled(source: str) -> Iterator[str]:
    """Name the properties of a module that do not say all of what is wanted."""
    module = ast.parse(source)
    shared = {
        target.id: statement.value
        for statement in module.body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name)
    }
    for function in ast.walk(module):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        calls = [
            shared.get(one.id, one) if isinstance(one, ast.Name) else one for one in function.decorator_list
        ]
        said = {
            call.func.id: {key.arg: key.value for key in call.keywords}
            for call in calls
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
        }
        if "given" in said:
            values = {name: getattr(said.get("settings", {}).get(name), "value", ...) for name in WANTED}
            if values != WANTED:
                yield function.name


def test_no_property_depends_on_the_machine_or_on_chance() -> None:
    """Hypothesis gives an example 200 ms and other values each time, unless a property says otherwise."""
    tests = [path for path in tracked() if path.parts[0] == "tests" and path.suffix == ".py"]
    assert {
        str(path): found for path in tests if (found := [*unsettled((ROOT / path).read_text("utf-8"))])
    } == {}


def test_a_property_that_says_nothing_is_found() -> None:
    """Without settings, and with settings that leave one of them out."""
    for settings in ("", "@settings(deadline=None, database=None)\n", "@settings(derandomize=True)\n"):
        assert [*unsettled(f"{settings}@given(x)\ndef test_it(x): pass")] == ["test_it"]
    settled = "@settings(deadline=None, derandomize=True, database=None)\n@given(x)\ndef test_it(x): pass"
    assert [*unsettled(settled)] == []
