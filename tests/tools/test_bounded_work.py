"""Whatever a model writes into a call, resolving it costs little and never the event loop."""

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable

import pytest

from tests.tools.places import Bench
from tyrum_gateway.domain.tool import Prepared
from tyrum_gateway.tools import walking

pytestmark = pytest.mark.asyncio(loop_scope="module")

LOOP_SECONDS = 0.25
"""CPU that one call may take of the thread that serves everybody; its own thread may take more."""

MIXED = "a \u202e\u200b'\"\\$(`{*?;&|<\n\x01é漢"


def nested(text: str, times: int) -> str:
    """Put text into itself."""
    return "$(" * times + text + ")" * times


HOSTILE = {
    "argv of every kind of character": {"argv": ["true", *[(MIXED * 40)[:700]] * 255]},
    "argv of long texts": {"argv": ["true", "=" * 100_000, "@" * 100_000]},
    "argv of many names": {"argv": ["true", *[f"--a=@{'x/' * 200}{number}" for number in range(200)]]},
    "program": {"argv": ["/" * 100_000]},
    "program of many parts": {"argv": ["/usr/bin/../" * 8_000 + "bin/true"]},
    "shell of quotes": {"shell": "'" * 16_000},
    "shell of nested substitutions": {"shell": nested("true", 5_000)},
    "shell of many commands": {"shell": "true;" * 3_200},
    "shell of braces": {"shell": "echo " + "{a,b}" * 3_000},
    "shell of heredocs": {"shell": "cat <<A <<B <<C\n" * 1_000},
    "shell of every kind of character": {"shell": (MIXED * 900)[:5_000]},
    "cwd": {"argv": ["true"], "cwd": "a/" * 2_000},
    "env": {"argv": ["true"], "env": {f"N{number}": (MIXED * 200)[:800] for number in range(64)}},
    "stdin": {"argv": ["cat"], "stdin": (MIXED * 6_000)[:30_000]},
    "secrets": {"argv": ["true"], "secrets": [f"S{number}" for number in range(32)]},
    "no JSON": "[" * 200_000,
    "one text": '"' + "\\u0041" * 40_000 + '"',
}


@pytest.mark.parametrize("arguments", HOSTILE.values(), ids=HOSTILE)
async def test_a_call_takes_its_work_to_another_thread(place: Bench, arguments: object) -> None:
    """The loop's own thread uses little CPU for it, the question that a human is asked included."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    before = time.thread_time()
    prepared = await place.tool.prepare(text)
    if isinstance(prepared, Prepared):
        assert prepared.subject.json
    assert time.thread_time() - before < LOOP_SECONDS


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Count what the tool asks of the file system."""
    calls = 0

    def counting(name: str) -> None:
        asked = getattr(os, name)

        def count(*arguments: object, **options: object) -> object:
            nonlocal calls
            calls += "tyrum_gateway/tools/" in sys._getframe(1).f_code.co_filename
            return asked(*arguments, **options)

        monkeypatch.setattr(os, name, count)

    for name in ("lstat", "stat", "readlink", "open"):
        counting(name)
    return lambda: calls


async def test_sixty_six_bytes_over_a_tree_of_links_cost_no_more_than_the_budget(
    place: Bench, counted: Callable[[], int]
) -> None:
    """Links that lead through links, each of them a long way: the call is refused, with the reason."""
    deep, back = "d/" * 400, "../" * 400
    (place.workspace / deep).mkdir(parents=True)
    for number in range(30):
        (place.workspace / f"l{number}").symlink_to(f"{deep}{back}l{number + 1}")
    before = counted()
    problem = await place.problem({"argv": ["cat", "l0/x", "l1/x", "l2/x"]})
    assert "2,000 looks" in problem
    assert counted() - before <= walking.MOST_LOOKS


async def test_an_honest_call_with_many_files_stays_within_the_budget(place: Bench) -> None:
    """Two hundred files some directories deep are one call."""
    directory = place.workspace / "src" / "of" / "some"
    directory.mkdir(parents=True)
    names = []
    for number in range(200):
        (directory / f"f{number}").write_text("x", encoding="ascii")
        names.append(f"src/of/some/f{number}")
    prepared = await place.prepare(argv=["cat", *names])
    assert prepared.run is not None
    assert len(prepared.run.operands) == 32


async def test_a_file_system_that_does_not_answer_refuses_the_call(
    place: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After its time the call is refused; what hangs holds threads of this agent's calls only."""
    reading, writing = os.pipe()
    lstat = os.lstat

    def hanging(path: str) -> os.stat_result:
        if "hangs" in path:
            os.read(reading, 1)
        return lstat(path)

    monkeypatch.setattr(os, "lstat", hanging)
    monkeypatch.setattr("tyrum_gateway.tools.process_run.RESOLVE_SECONDS", 0.2)
    try:
        assert "within 0.2 s" in await place.problem({"argv": ["cat", "hangs"]})
    finally:
        os.close(writing)
        await asyncio.to_thread(place.tool._walks.shutdown)
        os.close(reading)
