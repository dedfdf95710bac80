"""`audit`, `runs` and `conversations export` on a gateway that has worked: output and exit codes."""

import asyncio
import json
import re
import shlex
import shutil
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support import configs
from tests.support.client import Client, connected
from tests.support.gateway import RunningGateway, serving
from tests.support.markdown import read
from tests.support.questions import asked, ended
from tyrum.audit.v1 import audit_pb2
from tyrum.run.v1 import run_pb2
from tyrum_gateway.cli.commands import run
from tyrum_gateway.cli.run_registry import _steps
from tyrum_gateway.domain.ids import RunId, TurnId

GUIDE = "docs/guides/audit.md"

Tyrum = Callable[..., tuple[int, str, str]]


@dataclass(frozen=True, slots=True)
class Place:
    """A gateway that ran a counted call, a plain turn after it, and one approved and one denied call."""

    gateway: RunningGateway
    talk: str
    counted: str
    approved: str
    denied: str


async def work(gateway: RunningGateway) -> Place:
    """Let turns run."""
    async with connected(gateway) as client:
        counted, _ = await client.turn("count")
        await client.turn("hello", counted.conversation_id)
        turns = []
        for approve in (True, False):
            question = await asked(client, "ask")
            await client.resolve(question.approvals[0], approve=approve, reason="because")
            await ended(client, question)
            turns.append(question.turn)
    return Place(gateway, counted.conversation_id, counted.turn_id, *turns)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One gateway for all commands of this file."""
    directory = tmp_path_factory.mktemp("records")
    with serving(directory, configs.write(directory)) as gateway:
        yield asyncio.run(work(gateway))


@pytest.fixture
def tyrum(place: Place, capsys: pytest.CaptureFixture[str]) -> Tyrum:
    """Run a command in this process, against the gateway."""

    def call(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run([*arguments, "--state-dir", str(place.gateway.state_dir)])
        told = capsys.readouterr()
        return code, told.out, told.err

    return call


def objects(text: str) -> list[dict[str, Any]]:
    """Read JSON lines."""
    return [json.loads(line) for line in text.splitlines()]


def test_rows_are_listed_by_subject_kind_and_place(place: Place, tyrum: Tyrum) -> None:
    """The newest rows come last; filters and a beginning narrow the list; all of it is exact JSON."""
    code, out, _ = tyrum("audit", "list", "--output", "jsonl", "--limit", "500")
    everything = objects(out)
    assert code == 0
    assert [int(row["sequence"]) for row in everything] == list(range(1, len(everything) + 1))
    assert everything[0]["kind"] == "gateway.started"
    started = json.loads(everything[0]["details"])
    assert set(started) == {"version", "config", "policies", "audit_key"}
    _, out, _ = tyrum("audit", "list", "--output", "jsonl", "--limit", "3")
    assert objects(out) == everything[-3:]
    _, out, _ = tyrum("audit", "list", "--output", "jsonl", "--after", "2", "--limit", "2")
    assert objects(out) == everything[2:4]
    for options, fits in (
        (("--kind", "approval."), lambda row: row["kind"].startswith("approval.")),
        (("--subject", place.counted), lambda row: row["subject"] == place.counted),
        (("--actor", "kernel", "--kind", "turn."), lambda row: row["kind"] == "turn.ended"),
        (("--actor", "operator"), lambda row: row["actor"] != "kernel"),
        (("--kind", "override."), lambda _: False),
    ):
        _, out, _ = tyrum("audit", "list", "--output", "jsonl", *options)
        assert objects(out) == [row for row in everything if fits(row)], options
    code, out, _ = tyrum("audit", "list", "--kind", "approval.resolved")
    header, *rows = out.splitlines()
    assert header.split() == ["ROW", "WHEN", "KIND", "ACTOR", "SUBJECT", "DETAILS"]
    assert [row.split()[4] for row in rows] == ["operator"] * 2


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("--kind approvals", "near it: approval.requested, approval.resolved"),
        ("--kind turn.finished", "near it: turn.ended"),
        ("--kind resolved", "near it: approval.resolved"),
        ("--kind xyz", "kinds begin with approval., attempt., audit., call., "),
        ("--actor nobody", "`--actor` must be `kernel`, or the name or id of a principal"),
    ],
)
def test_what_no_row_can_have_is_refused(tyrum: Tyrum, options: str, told: str) -> None:
    """A kind that does not exist is answered with those near it, an unknown actor with what it must be."""
    code, out, err = tyrum("audit", "list", *options.split())
    assert (code, out) == (2, "")
    assert told in err


def test_the_log_verifies_online_offline_and_as_an_export(place: Place, tyrum: Tyrum, tmp_path: Path) -> None:
    """Asked for, read from the state directory of a running gateway, and exported, the log is intact."""
    report = {}
    code, out, _ = tyrum("audit", "verify", "--output", "json")
    report["online"] = json.loads(out)
    assert (code, report["online"]["intact"], report["online"]["key_given"]) == (0, True, False)
    key = str(place.gateway.state_dir / "audit/key.pub")
    code, out, _ = tyrum("audit", "verify", "--offline", "--key", key, "--output", "json")
    report["offline"] = json.loads(out)
    assert (code, report["offline"]["key_given"]) == (0, True)
    assert report["offline"]["rows"] == report["online"]["rows"]
    assert report["online"]["database"] is None
    assert (report["offline"]["database"]["schema"], report["offline"]["database"]["different"]) == ([], 0)
    files = {name: tmp_path / name for name in ("rows", "heads", "key")}
    options = [f"--{'file' if name == 'rows' else name}" for name in files]
    arguments = [item for pair in zip(options, map(str, files.values()), strict=True) for item in pair]
    assert tyrum("audit", "export", *arguments)[0] == 0
    assert {stat.S_IMODE(file.stat().st_mode) for file in files.values()} == {0o600}
    given = [f"--{name}={file}" for name, file in files.items()]
    code, out, _ = tyrum("audit", "verify", *given)
    assert code == 0
    assert "intact" in out
    assert "unanchored:" in out
    code, _, err = tyrum("audit", "export", *arguments)
    assert code == 2
    assert "exists" in err


@pytest.mark.parametrize("source", ["--rows", "--database"])
def test_a_tampered_log_is_named_and_exits_with_one(
    place: Place, tyrum: Tyrum, tmp_path: Path, source: str
) -> None:
    """An edited row in an export or in a copy of the database is named, with exit code 1."""
    file = tmp_path / "tampered"
    state = place.gateway.state_dir
    if source == "--rows":
        assert tyrum("audit", "export", "--file", str(file))[0] == 0
        lines = file.read_text(encoding="utf-8").splitlines()
        lines[2] = lines[2].replace("kernel", "prin_x")
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    else:
        for suffix in ("", "-wal"):
            shutil.copyfile(state / f"tyrum.sqlite3{suffix}", tmp_path / f"tampered{suffix}")
        copy = sqlite3.connect(file)
        copy.execute("DROP TRIGGER audit_no_update")
        copy.execute("UPDATE audit SET actor = 'prin_x' WHERE sequence = 3")
        copy.commit()
        copy.close()
    code, out, err = tyrum("audit", "verify", source, str(file))
    assert (code, err) == (1, "")
    assert "NOT INTACT" in out
    assert "row 3 was edited" in out
    assert re.search(r"^after the break: +not verifiable: rows 3 to \d+, ", out, re.MULTILINE)
    code, out, _ = tyrum("audit", "verify", source, str(file), "--output", "json")
    assert code == 1
    report = json.loads(out)
    assert [problem["first"] for problem in report["problems"]] == [3]
    assert report["broken"] == 3
    assert report["anchored"] + report["unanchored"] + report["after_break"] == report["last"]


INDEX = "CREATE INDEX audit_of_subject ON audit (subject, sequence)"
AROUND = {
    "an event edited": (
        ("UPDATE events SET payload = replace(payload, 'hello', 'good day') WHERE kind = 'user_message'",),
        "the log has no row `message.accepted` about turn_",
    ),
    "an event deleted": (
        ("DELETE FROM events WHERE kind = 'approval_resolved'",),
        "no event says what a row `approval.resolved` about appr_",
    ),
    "an answer turned round": (
        ("UPDATE approvals SET outcome = 'approved' WHERE outcome = 'denied'",),
        "is not answered as the log says",
    ),
    "an approval deleted": (("DELETE FROM approvals",), "of which the log tells, is missing"),
    "an index that leaves rows out": (
        ("DROP INDEX audit_of_subject", f"{INDEX} WHERE sequence > 3"),
        "`audit_of_subject` is not what the gateway made",
    ),
    "an index that does not say so": (
        (
            "DROP INDEX audit_of_subject",
            f"{INDEX} WHERE sequence > 3",
            "PRAGMA writable_schema = ON",
            f"UPDATE sqlite_schema SET sql = '{INDEX}' WHERE name = 'audit_of_subject'",  # noqa: S608
        ),
        "table `audit`: row 1 missing from index audit_of_subject",
    ),
    "a trigger more": (
        ("CREATE TRIGGER swallow BEFORE INSERT ON audit BEGIN SELECT RAISE(IGNORE); END",),
        "`swallow` is none of the gateway's",
    ),
}


@pytest.mark.parametrize("change", AROUND)
def test_what_lies_around_the_log_is_verified(
    place: Place, tyrum: Tyrum, tmp_path: Path, change: str
) -> None:
    """Events and approvals that say otherwise, and an altered schema, are named while all rows are intact."""
    statements, expected = AROUND[change]
    file = tmp_path / "copy"
    for suffix in ("", "-wal"):
        shutil.copyfile(place.gateway.state_dir / f"tyrum.sqlite3{suffix}", tmp_path / f"copy{suffix}")
    with closing(sqlite3.connect(file)) as copy:
        triggers = copy.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            copy.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            copy.execute(statement)
        for _, sql in triggers:
            copy.execute(sql)
        copy.commit()
    code, out, err = tyrum("audit", "verify", "--offline", "--database", str(file))
    assert (code, err) == (1, "")
    assert "NOT INTACT" in out
    assert expected in out


def test_a_log_without_any_head_is_not_called_intact(tyrum: Tyrum, tmp_path: Path) -> None:
    """When the heads were emptied nothing is proved: that is said, with exit code 1."""
    (tmp_path / "heads").touch()
    code, out, _ = tyrum("audit", "verify", "--heads", str(tmp_path / "heads"))
    assert code == 1
    assert "NOT PROVED" in out


def test_what_cannot_be_verified_is_said(tyrum: Tyrum, tmp_path: Path) -> None:
    """A missing file and contradicting options are errors of their own, not a verdict."""
    code, _, err = tyrum("audit", "verify", "--database", str(tmp_path / "none"))
    assert code == 1
    assert "no database" in err
    assert tyrum("audit", "verify", "--database", "a", "--rows", "b")[0] == 2


def test_a_run_is_shown_with_everything_it_had(place: Place, tyrum: Tyrum) -> None:
    """Who asked, with what, what was permitted by whom, what it used: as JSON and as text, by either id."""
    run_id = RunId.of(TurnId(place.approved))
    code, out, _ = tyrum("runs", "show", run_id, "--output", "json")
    shown = json.loads(out)
    assert code == 0
    assert (shown["run_id"], shown["turn_id"]) == (run_id, place.approved)
    assert (shown["principal"], shown["agent"], shown["model"], shown["backend"]) == (
        "operator",
        "default",
        "scripted",
        "native",
    )
    assert shown["host"]
    assert shown["state"] == "TURN_STATE_COMPLETED"
    (approval,) = shown["approvals"]
    assert (approval["outcome"], approval["by"], approval["method"]) == (
        "APPROVAL_OUTCOME_APPROVED",
        "operator",
        "token",
    )
    (call,) = shown["calls"]
    assert (call["state"], call["provider"], call["profile"]) == ("CALL_STATE_SUCCEEDED", "local", "default")
    assert call["binding_id"].startswith("bind_")
    assert call["artifact_digest"].startswith("sha256:")
    assert int(shown["output_bytes"]) == 2
    target = json.loads(call["target"])
    assert target["program"].startswith("/")
    assert target["argv"]
    assert 0 < float(shown["waited"].rstrip("s")) <= float(shown["total"].rstrip("s"))
    code, out, _ = tyrum("runs", "show", place.denied)
    assert code == 0
    assert "asked by: operator" in out
    assert re.search(r"^steps: +2$", out, re.MULTILINE)
    assert _steps(run_pb2.Run(steps=2, attempts=3)) == "2, besides 1 attempt given up"
    assert "denied" in out
    header, row, *_ = out.partition("Calls\n")[2].splitlines()
    assert header.split()[-1] == "WHAT"
    assert row.endswith(shlex.join([target["program"], *target["argv"][1:]]))
    code, _, err = tyrum("runs", "show", f"run_{'0' * 26}")
    assert code == 1
    assert f"error: unknown run `run_{'0' * 26}`\n" in err


def test_resolved_approvals_are_listed_with_their_answers(place: Place, tyrum: Tyrum) -> None:
    """`approvals list --all` says of each for whom it was, who resolved it, when, how, from where and why."""
    code, out, _ = tyrum("approvals", "list", "--all")
    assert code == 0
    header = ["APPROVAL", "STATE", "FOR", "EXPIRES", "RESOLVED", "BY", "REASON", "WHAT"]
    assert out.splitlines()[0].split() == header
    answer = r" +\d{4}-\d\d-\d\d [\d:]{8}Z +operator \(token, unix .*\) +because +tee: /usr/bin/tee -a asked$"
    for state in ("approved", "denied"):
        assert re.search(rf"^appr_\w+ +{state} +operator .*{answer}", out, re.MULTILINE), out
    _, out, _ = tyrum("approvals", "list", "--all", "--output", "jsonl")
    (denied,) = [item for item in objects(out) if item["turn_id"] == place.denied]
    assert (denied["resolved_by"], denied["method"], denied["reason"]) == ("operator", "token", "because")
    assert denied["resolved_from"].startswith("unix")
    assert denied["resolved_at"]
    assert denied["requested_by"].startswith("prin_")
    assert denied["requested_by_name"] == "operator"
    _, out, err = tyrum("approvals", "list")
    assert (out, err) == ("", "nothing waits for an approval\n")


def test_runs_are_listed_and_exported_by_filter(place: Place, tyrum: Tyrum, tmp_path: Path) -> None:
    """Lists and exports hold the same runs, newest first, narrowed by conversation, state and time."""
    _, out, _ = tyrum("runs", "list", "--output", "json")
    listed = json.loads(out)
    assert [item["turn_id"] for item in listed] == sorted((i["turn_id"] for i in listed), reverse=True)
    assert {place.counted, place.approved, place.denied} < {item["turn_id"] for item in listed}
    assert len(listed) == 4
    _, out, _ = tyrum("runs", "export")
    assert objects(out) == listed
    _, out, _ = tyrum("runs", "export", "--conversation", place.talk, "--output", "json")
    assert [item["conversation_id"] for item in json.loads(out)] == [place.talk] * 2
    _, out, _ = tyrum("runs", "list", "--state", "failed", "--output", "json")
    assert json.loads(out) == []
    _, out, _ = tyrum("runs", "export", "--since", "2999-01-01", "--output", "json")
    assert json.loads(out) == []
    for options, expected in (
        (("--until", "2999-01-01"), listed),
        (("--until", "2000-01-01"), []),
        (("--principal", "operator"), listed),
        (("--principal", listed[0]["principal_id"]), listed),
    ):
        _, out, _ = tyrum("runs", "list", *options, "--output", "json")
        assert json.loads(out) == expected, options
    code, _, err = tyrum("runs", "list", "--principal", "nobody")
    assert code == 2
    assert "`--principal` names no principal whose runs you may see" in err
    file = tmp_path / "runs"
    code, out, _ = tyrum("runs", "export", "--file", str(file), "--output", "text")
    assert (code, out) == (0, "")
    assert len(file.read_text(encoding="utf-8").splitlines()) == 4
    code, out, _ = tyrum("runs", "list")
    assert out.splitlines()[0].startswith("RUN ")
    assert tyrum("runs", "list", "--state", "failed") == (0, "", "there are no such runs\n")
    code, out, err = tyrum("runs", "list", "--limit", "3", "--totals")
    seconds = sum(float(item["total"].rstrip("s")) for item in listed[:3])
    tokens = [sum(int(item[name]) for item in listed[:3]) for name in ("input_tokens", "output_tokens")]
    turns, calls, took, used, written = out.splitlines()[-1].split(", ")
    assert (turns, calls) == ("total: 3 turns", f"{sum(len(item['calls']) for item in listed[:3])} calls")
    assert float(took.removesuffix(" seconds")) == pytest.approx(seconds, abs=0.002)
    assert (used, written) == (f"at least {tokens[0]} tokens in", f"{tokens[1]} out")
    assert err == "there may be older runs: --limit 3 ended the list\n"


def test_who_opened_a_conversation_is_named(place: Place, tyrum: Tyrum) -> None:
    """Lists, transcripts and exports name the principal; JSON has its id as well."""
    _, out, _ = tyrum("conversations", "list")
    assert re.search(rf"^{place.talk} +[\d-]+ [\d:]+Z +operator +\d+ +count$", out, re.MULTILINE), out
    _, out, _ = tyrum("conversations", "list", "--output", "json")
    (listed,) = [item for item in json.loads(out) if item["conversation_id"] == place.talk]
    assert listed["principal"] == "operator"
    opener = rf"by operator \({listed['principal_id']}\)$"
    for command in (("show",), ("export", "--output", "text")):
        _, out, _ = tyrum("conversations", *command, place.talk)
        assert re.search(opener, out, re.MULTILINE), command


def test_a_conversation_is_exported_whole(place: Place, tyrum: Tyrum, tmp_path: Path) -> None:
    """Every event in order, in each form; text holds what was said, decided, run and returned."""
    code, out, _ = tyrum("conversations", "export", place.talk)
    head, *events = objects(out)
    assert code == 0
    assert head["conversation"]["conversation_id"] == place.talk
    sequences = [int(item["event"]["sequence"]) for item in events]
    assert sequences == list(range(1, int(head["conversation"]["last_sequence"]) + 1))
    file = tmp_path / "export"
    assert tyrum("conversations", "export", place.talk, "--output", "json", "--file", str(file))[0] == 0
    whole = json.loads(file.read_text(encoding="utf-8"))
    assert whole["conversation"] == head["conversation"]
    assert whole["events"] == [item["event"] for item in events]
    code, text, _ = tyrum("conversations", "export", place.talk, "--output", "text")
    for part in ("| count", "process.run", "allow, rule count", "stdout: 2 bytes", "| Done.", "completed"):
        assert part in text, part
    assert text.count("\n#") == len(events)
    code, _, err = tyrum("conversations", "export", f"conv_{'0' * 26}", "--file", str(tmp_path / "none"))
    assert code == 1
    assert not list(tmp_path.glob("*none*"))
    assert "unknown" in err


def test_the_guide_can_be_typed(
    place: Place, tyrum: Tyrum, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every command of docs/guides/audit.md works as it stands there, with ids and state directory put in."""
    state = place.gateway.state_dir
    monkeypatch.chdir(tmp_path)
    for name, copy in (("tyrum.sqlite3", "copy.sqlite3"), ("tyrum.sqlite3-wal", "copy.sqlite3-wal")):
        shutil.copyfile(state / name, copy)
    shutil.copyfile(state / "audit/heads.jsonl", "heads.jsonl")
    shutil.copyfile(state / "audit/key.pub", "key.pub")
    shutil.copyfile("heads.jsonl", "heads.jsonl.before-restore")
    Path("audit").mkdir()
    shutil.copyfile("key.pub", "audit/key-ID.pub")
    blocks = [block.code for block in read(Path(GUIDE)).blocks if block.language == "sh"]
    lines = [line for block in blocks for line in block.splitlines() if line.startswith("tyrum ")]
    assert len(lines) == 13
    for line in lines:
        _, *words = shlex.split(line, comments=True)
        if "--state-dir" in words:
            assert words[-2:] == ["--state-dir", "/var/lib/tyrum"]
            words = words[:-2]
        words = [RunId.of(TurnId(place.counted)) if word.startswith("run_") else word for word in words]
        code, _, err = tyrum(*words)
        assert code == 0, f"{line}: {err}"


async def test_pages_of_the_log_join_to_the_whole(place: Place) -> None:
    """Page by page, forwards and backwards, filtered or not, each row comes once."""
    async with connected(place.gateway) as client:
        everything = await pages(client, 500)
        assert [row.sequence for row in everything] == list(range(1, len(everything) + 1))
        for size in (1, 7):
            assert await pages(client, size) == everything
            assert await pages(client, size, newest_first=True) == everything[::-1]
            assert await pages(client, size, after_sequence=4, newest_first=True) == everything[:3:-1]
            ends = [row for row in everything if row.kind == "turn.ended"]
            assert await pages(client, size, kind_prefix="turn.e") == ends
        exported = [
            row
            async for response in client.audit.ExportAudit(
                audit_pb2.ExportAuditRequest(after_sequence=3), metadata=client.metadata, timeout=30
            )
            for row in response.rows
        ]
        assert exported == everything[3:]


async def pages(client: Client, size: int, **filters: Any) -> list[audit_pb2.AuditRow]:
    """Read a list to its end."""
    found: list[audit_pb2.AuditRow] = []
    token = ""
    while True:
        request = audit_pb2.ListAuditRequest(page_size=size, page_token=token, **filters)
        page = await client.audit.ListAudit(request, metadata=client.metadata, timeout=30)
        found += page.rows
        token = page.next_page_token
        if not token:
            return found


async def test_the_registry_pages_by_its_token(place: Place) -> None:
    """Following the token of each page gives every run once."""
    async with connected(place.gateway) as client:
        found, token = [], ""
        while True:
            request = run_pb2.ListRunsRequest(page_size=1, page_token=token)
            page = await client.runs.ListRuns(request, metadata=client.metadata, timeout=30)
            found += [item.turn_id for item in page.runs]
            token = page.next_page_token
            if not token:
                break
    assert found == sorted(set(found), reverse=True)
    assert len(found) == 4
