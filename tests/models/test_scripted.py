"""The scripted model plays exactly what its file says."""

import asyncio
import json
from pathlib import Path

import pytest

from tests.models.prompts import called, play, prompt, said
from tyrum_gateway.domain.errors import ModelUnavailable
from tyrum_gateway.domain.model import StepEnd, TextDelta
from tyrum_gateway.domain.usage import UNKNOWN, Usage
from tyrum_gateway.models.catalog import Offline, Scripted, build_model
from tyrum_gateway.models.offline import OfflineModel
from tyrum_gateway.models.script import ScriptInvalid, load_script
from tyrum_gateway.models.scripted import ScriptedModel


def scripted(directory: Path, text: str) -> ScriptedModel:
    """Load a model from a script of this text."""
    path = directory / "script.yaml"
    path.write_text(text, encoding="utf-8")
    return ScriptedModel(load_script(path))


BASIC = """
version: 1
scenarios:
  - user: list
    steps:
      - deltas: ["Let me ", "look."]
        calls:
          - {tool: process.run, arguments: {argv: [ls, -l], timeout_ms: 5}}
          - {tool: process.run, arguments: "{not json"}
      - expect: {contains: [exit code 0], absent: [exit code 1], tools: [process.run]}
        deltas: [Done.]
  - user: {prefix: "say "}
    steps:
      - deltas: ["x", "y"]
        repeat: 3
"""


async def test_steps_follow_each_other(tmp_path: Path) -> None:
    """The step is chosen by the newest user text and the steps since; arguments go out as written."""
    model = scripted(tmp_path, BASIC)
    deltas, calls = await play(model, prompt(said("list")))
    assert deltas == ["Let me ", "look."]
    assert json.loads(calls[0].arguments) == {"argv": ["ls", "-l"], "timeout_ms": 5}
    assert calls[1].arguments == "{not json"
    assert await play(model, prompt(said("list"), *called("exit code 0"))) == (["Done."], ())


async def test_prefix_scenarios_and_repeated_deltas(tmp_path: Path) -> None:
    """A prefix answers every text that begins so; `repeat` streams the pieces again."""
    deltas, _ = await play(scripted(tmp_path, BASIC), prompt(said("say anything")))
    assert "".join(deltas) == "xyxyxy"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (prompt(said("other")), "no scenario"),
        (prompt(said("list"), *called("exit code 0"), *called("exit code 0")), "no step 3"),
        (prompt(said("list"), *called("exit code 2")), "expected `exit code 0`"),
        (prompt(said("list"), *called("exit code 0, exit code 1")), "did not expect `exit code 1`"),
        (prompt(said("list"), *called("exit code 0"), tools=()), "expected the tools process.run, got none"),
    ],
)
async def test_what_the_script_does_not_know_fails_the_step(
    tmp_path: Path, given: object, message: str
) -> None:
    """An unexpected prompt fails the step for good, and says what was expected where."""
    with pytest.raises(ModelUnavailable, match=message) as caught:
        await play(scripted(tmp_path, BASIC), given)  # type: ignore[arg-type]
    assert not caught.value.retryable


async def test_errors_come_after_deltas_and_as_often_as_written(tmp_path: Path) -> None:
    """`after` emits that many pieces first, `times` lets the step succeed afterwards."""
    model = scripted(
        tmp_path,
        """
version: 1
scenarios:
  - user: go
    steps:
      - deltas: [a, b, c]
        error: {retryable: true, after: 2, times: 1, message: cut off}
""",
    )
    step = model.generate(prompt(said("go")))
    assert [await anext(step), await anext(step)] == [TextDelta("a"), TextDelta("b")]
    with pytest.raises(ModelUnavailable, match="cut off") as caught:
        await anext(step)
    assert caught.value.retryable
    assert await play(model, prompt(said("go"))) == (["a", "b", "c"], ())


async def test_a_step_tells_the_usage_that_is_written_and_no_other(tmp_path: Path) -> None:
    """What a step says it used is told at its end and with its failure; what is not written is not told."""
    steps = "[{usage: {input: 7, output: 2}, error: {retryable: true, times: 1}}, {usage: {input: 9}}, {}]"
    model = scripted(tmp_path, f"version: 1\nscenarios: [{{user: go, steps: {steps}}}]")
    with pytest.raises(ModelUnavailable) as caught:
        await play(model, prompt(said("go")))
    assert caught.value.usage == Usage(7, 2)
    told = []
    for taken in range(3):
        asked = prompt(said("go"), *(called("exit code 0") * taken))
        told += [event.usage async for event in model.generate(asked) if isinstance(event, StepEnd)]
    assert told == [Usage(7, 2), Usage(9, None), UNKNOWN]


async def test_barrier_holds_the_step_until_its_file_exists(tmp_path: Path) -> None:
    """The step emits its text, waits for the file, and can be cancelled while it waits."""
    model = scripted(
        tmp_path, "version: 1\nscenarios: [{user: go, steps: [{deltas: [a], barrier: gate, delay: 1}]}]"
    )
    step = model.generate(prompt(said("go")))
    assert await anext(step) == TextDelta("a")
    waiting = asyncio.ensure_future(anext(step))
    done, _ = await asyncio.wait([waiting], timeout=0.05)
    assert not done
    (tmp_path / "gate").touch()
    await asyncio.wait_for(waiting, 30)
    await step.aclose()

    (tmp_path / "gate").unlink()
    cancelled = asyncio.ensure_future(play(model, prompt(said("go"))))
    await asyncio.sleep(0)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("a: [", [":1:"]),
        ("[]", [":1: the script must be a mapping", ":1: `scenarios` must be a list"]),
        (
            "version: 2\nscenarios: []",
            ["`version` must be 1", ":2: `scenarios` must be a list with at least"],
        ),
        ("version: 1\nversion: 1\n", [":2:"]),
        (
            "version: 1\nscenarios:\n- user: a\n  steps:\n  - delta: [x]\n    delay: -1\n",
            [":5: unknown key `delta` in a step", ":6: `delay` must be a whole number from 0"],
        ),
        (
            "version: 1\nscenarios:\n- user: a\n  steps:\n  - usage: {input: -1, tokens: 3}\n",
            ["`input` must be a whole number", "unknown key `tokens` in `usage`"],
        ),
        (
            "version: 1\nscenarios:\n- user: {suffix: a}\n  steps:\n"
            "  - deltas: [1]\n    calls: [{tool: t}]\n",
            ["`user` must be text or", ":5: `deltas` holds texts only", ":6: `arguments` must be a mapping"],
        ),
        (
            "version: 1\nscenarios:\n- user: a\n  steps:\n  - error: {retryable: 1, after: yes}\n"
            "    expect: {tool: x}\n    barrier: 3\n    calls: [{tool: 1, arguments: {a: 2020-01-01}}]\n",
            [
                "`retryable` must be",
                "`after` must be",
                "unknown key `tool`",
                "`barrier` must be",
                "`tool` must be",
            ],
        ),
    ],
)
def test_bad_scripts_are_refused_with_their_places(tmp_path: Path, text: str, problems: list[str]) -> None:
    """Every problem of a script is reported at once, with file and line."""
    path = tmp_path / "script.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ScriptInvalid) as caught:
        load_script(path)
    message = str(caught.value)
    assert all(problem in message for problem in problems), message
    assert all(line.startswith(str(path)) for line in message.splitlines())


def test_the_documented_script_loads(tmp_path: Path) -> None:
    """The example of the reference page is a script, and has the steps it explains."""
    page = (Path(__file__).parents[2] / "docs" / "reference" / "scripted-model.md").read_text(
        encoding="utf-8"
    )
    example = page.split("```yaml\n")[1].split("```")[0]
    path = tmp_path / "script.yaml"
    path.write_text(example, encoding="utf-8")
    assert [len(scenario.steps) for scenario in load_script(path).scenarios] == [2, 2, 1]


def test_models_are_built_by_kind(tmp_path: Path) -> None:
    """Each kind of settings builds its transport; a missing script is refused."""
    assert isinstance(build_model(Offline()), OfflineModel)
    with pytest.raises(ScriptInvalid, match="cannot be read"):
        build_model(Scripted(tmp_path / "missing.yaml"))
