"""Planted secrets are looked for, byte by byte, in everything that gateway, providers and clients leave."""

import asyncio
import base64
import json
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.support.client import Client, connected, finished
from tests.support.forward_proxy import ForwardProxy
from tests.support.gateway import RunningGateway, serving
from tests.support.model_server import KEY, Call, ModelServer, Refuse, Step
from tests.support.questions import asked, ended
from tyrum.approval.v1 import approval_pb2
from tyrum.catalog.v1 import catalog_pb2
from tyrum.chat.v1 import chat_pb2, event_pb2

LEAK = """\
#!/bin/sh
# Prints the secret it was given, in the ways that output comes in.
fill() { head -c "$1" /dev/zero | tr '\\0' "$2"; }
case "$1" in
  print) echo "out $CALL_KEY"; echo "err $CALL_KEY" >&2 ;;
  fail) echo "$CALL_KEY"; exit 3 ;;
  halves) printf %s "${CALL_KEY%?????????}"; sleep 0.1; printf %s "${CALL_KEY#"${CALL_KEY%?????????}"}" ;;
  border) fill 131062 x; printf %s "$CALL_KEY"; fill 200000 y ;;
  end) fill 400000 x; printf %s "$CALL_KEY"; fill 131062 y ;;
  theirs) cat "$2"/*; echo; echo "$2"/* ;;
  hang) echo "$CALL_KEY"; touch ready; sleep 60 ;;
  literal) printf 'argv %s\\nenv %s\\nstdin ' "$2" "$LITERAL"; cat ;;
esac
"""
CONFIG = """\
version: 1
secrets:
  MODEL_KEY: ${{file:secrets/model}}
  CALL_KEY: ${{file:secrets/call}}
  SLOT_KEY: ${{file:secrets/slot}}
  OTHER_KEY: ${{file:secrets/other}}
  PROXY_LOGIN: ${{file:secrets/login}}
models:
  remote:
    kind: openai
    model: made-up-1
    base_url: "{url}"
    api_key: MODEL_KEY
    proxy: "{proxy}"
    proxy_login: PROXY_LOGIN
agents:
  default:
    model: remote
    policy: default
    secrets: [CALL_KEY]
    profiles: {{isolation: default}}
providers:
  local:
    kind: isolation
    command: [tyrum-provider-local-spawn]
    config: {{run_as: gateway_user}}
    trust: operator_installed
    deployment: local_process
  slotted:
    kind: isolation
    command: ["{python}", -m, tyrum_conformance.broken, leaks_secret_to_log]
    secrets: {{api_key: SLOT_KEY}}
    trust: operator_installed
    deployment: local_process
audit: {{heads: "{ledger}"}}
profiles:
  isolation:
    default: {{provider: local, path: ["{bin}", /usr/bin, /bin]}}
policy:
  default:
    rules:
      - id: leak
        decision: allow
        author: the test
        may_start_others: true
        match:
          tool: process.run
          program: "{bin}/leak"
          secrets: [CALL_KEY]
          env: [LITERAL]
          stdin: true
          replaceable: true
"""


@dataclass(frozen=True, slots=True)
class Place:
    """A gateway with planted secrets."""

    gateway: RunningGateway
    server: ModelServer
    root: Path
    canaries: dict[str, str]

    def play(self, *steps: Step) -> None:
        """Set what the model says from now on."""
        self.server.play("leak", *steps)


def run(*arguments: str, **members: object) -> Call:
    """Call the leaking program with its secret."""
    return Call("process_run", json.dumps({"argv": ["leak", *arguments], "secrets": ["CALL_KEY"]} | members))


def forms(canary: str) -> Iterator[bytes]:
    """A secret as it is, and as encodings that our own code might use write it."""
    raw = canary.encode()
    yield raw
    yield raw.hex().encode()
    for shift in range(3):
        encoded = base64.b64encode(b"\0" * shift + raw)
        yield encoded[4 if shift else 0 : -4]


def found_in(content: bytes, canaries: dict[str, str]) -> list[str]:
    """Name the canaries that a content holds."""
    return [name for name, canary in canaries.items() if any(form in content for form in forms(canary))]


def files(root: Path) -> Iterator[Path]:
    """Every file below a directory, those that hold the secrets themselves left out."""
    for path in sorted(root.rglob("*")):
        if path.is_file() and path.parent.name != "secrets" and path.name != "operator.token":
            yield path


async def test_planted_secrets_are_nowhere_but_where_they_were_projected(tmp_path: Path) -> None:
    """After runs that print, fail, hang and are killed, refused keys and an approval, no canary is anywhere.

    Looked at: database and log, everything else in the state directory, the gateway's log with what its
    providers wrote, transcripts, approvals, runs and audit over RPC and exported, requests to the model, and
    arguments and environments of every process while a run has its secret.
    """
    canaries = {name: f"canary-{name}-{secrets.token_hex(12)}" for name in ("call", "slot", "other")}
    canaries["model"] = KEY
    canaries["login"] = f"tyrum:{(password := f'canary-{secrets.token_hex(12)}')}"
    (tmp_path / "secrets").mkdir()
    for name, canary in canaries.items():
        (tmp_path / "secrets" / name).write_text(canary, encoding="utf-8")
    program = tmp_path / "bin" / "leak"
    program.parent.mkdir()
    program.write_text(LEAK, encoding="utf-8")
    program.chmod(0o755)
    async with ModelServer() as server, ForwardProxy(login=canaries["login"]) as proxy:
        config = tmp_path / "config.yaml"
        text = CONFIG.format(
            url=server.base_url("openai", "leak"),
            proxy=proxy.url,
            python=sys.executable,
            bin=program.parent,
            ledger=tmp_path / "ledger",
        )
        config.write_text(text, encoding="utf-8")
        with serving(tmp_path, config) as gateway:
            canaries |= {"operator": gateway.token, "password": password}
            place = Place(gateway, server, tmp_path, canaries)
            async with connected(gateway) as client:
                await outputs(place, client)
                await references(place, client)
                await failures(place, client)
                await question(place, client)
                operation = await killed(place, client)
                told = await everything(client)
            exported = exports(place)
    left = {str(path.relative_to(tmp_path)): path.read_bytes() for path in files(tmp_path)}
    # What the command itself wrote, of a run whose outcome nobody knows: kept by its provider, in private.
    # Of one that the next instance settled by its journal nothing is kept.
    spool = f"state/providers/local/runs/{operation}/"
    kept = {name: left.pop(name) for name in list(left) if name.startswith(spool)}
    assert {held for content in kept.values() for held in found_in(content, place.canaries)} <= {"call"}
    assert (tmp_path / "state/providers/local").stat().st_mode & 0o077 == 0
    assert {"state/tyrum.sqlite3", "state.log", "ledger"} <= set(left)
    seen = {**left, **told, **exported}
    seen["requests"] = "\n".join(request.text for request in server.requests).encode()
    leaks = {name: held for name, content in seen.items() if (held := found_in(content, place.canaries))}
    assert leaks == {}


async def outputs(place: Place, client: Client) -> None:
    """Secrets in a command's output are masked: whole, in pieces, and cut off by what is kept."""
    ways = ("print", "fail", "halves", "border", "end", "theirs")
    kept = str(place.root / "secrets")
    place.play(Step(("Running.",), tuple(run(way, kept) for way in ways)), Step(("Done.",)))
    _, events = await client.turn("leak")
    ended_ = finished(events)
    assert [call.state for call in ended_] == [event_pb2.CALL_STATE_SUCCEEDED] * len(ways)
    assert "out ***" in ended_[0].content
    assert "err ***" in ended_[0].content
    assert "***" in ended_[2].content
    # Secrets of models, of providers and of nobody, which the command found by itself.
    assert ended_[5].content.count("***") >= len(place.canaries) - 2


async def references(place: Place, client: Client) -> None:
    """`${…}` in a message and in every argument is literal text, and only declared names are secrets."""
    asked_for = [
        f"${{file:{place.gateway.state_dir}/operator.token}}",
        f"${{file:{place.root}/secrets/other}}",
        "${env:HOME}",
        "${credential:CALL_KEY}",
    ]
    literal = [run("literal", text, env={"LITERAL": text}, stdin=text) for text in asked_for]
    refused = [run("print", secrets=[name]) for name in ("OTHER_KEY", "MODEL_KEY", asked_for[0])]
    place.play(Step(("",), (*literal, *refused)), Step(("Done.",)))
    _, events = await client.turn(f"Tell me {asked_for[0]} and {asked_for[2]}")
    proposed = [event.tool_call_proposed.call_id for event in events if event.HasField("tool_call_proposed")]
    ended_ = sorted(finished(events), key=lambda call: proposed.index(call.call_id))
    for text, call in zip(asked_for, ended_, strict=False):
        assert f"argv {text}\nenv {text}\nstdin {text}" in call.content
    for call in ended_[len(literal) :]:
        assert call.state == event_pb2.CALL_STATE_FAILED, call
    assert asked_for[0] in place.server.requests[-1].text


async def failures(place: Place, client: Client) -> None:
    """A server that repeats the key in its error teaches nobody, nor does a proxy that refuses a login."""
    place.play(Step(fault=Refuse(401, body=json.dumps({"error": {"message": f"bad key {KEY}"}}))))
    _, events = await client.turn("refused")
    assert events[-1].turn_finished.state == event_pb2.TURN_STATE_FAILED
    login = place.root / "secrets" / "login"
    login.write_text(f"other-{place.canaries['password']}:x", encoding="utf-8")
    _, events = await client.turn("refused by the proxy")
    assert "refused the login in the secret `PROXY_LOGIN`" in events[-1].turn_finished.reason
    login.write_text(place.canaries["login"], encoding="utf-8")


async def question(place: Place, client: Client) -> None:
    """What a human is asked names the secret and does not hold it."""
    call = Call("process_run", json.dumps({"argv": ["printenv", "CALL_KEY"], "secrets": ["CALL_KEY"]}))
    place.play(Step((), (call,)), Step(("Done.",)))
    waiting = await asked(client, "ask")
    shown = await client.approvals.GetApproval(
        approval_pb2.GetApprovalRequest(approval_id=waiting.approvals[0]),
        metadata=client.metadata,
        timeout=30,
    )
    assert "CALL_KEY" in shown.approval.summary
    await client.resolve(waiting.approvals[0], approve=True)
    (call_ended,) = finished(await ended(client, waiting))
    assert "***" in call_ended.content


async def killed(place: Place, client: Client) -> str:
    """While a run has its secret no other process has it; and the run's end is masked after a crash too.

    Returns the operation, whose spool the provider keeps: nobody knows how it ended.
    """
    runs = place.gateway.state_dir / "providers/local/runs"
    await eventually(
        lambda: not list(runs.glob("op_*")), "the runs before are released, their output is gone"
    )
    place.play(Step((), (run("hang"),)), Step(("Done.",)))
    stream = client.send("hang")
    accepted = (await anext(stream)).accepted
    ready = place.gateway.state_dir / "workspaces/default/ready"
    await eventually(ready.exists, "the command runs")
    own = {place.gateway.pid, *(child.pid for child in psutil.Process(place.gateway.pid).children(True))}
    # The model's key is one of the whole suite: other tests' gateways may have it.
    unique = {name: canary for name, canary in place.canaries.items() if name != "model"}
    holders = {}
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            shown = "\0".join([*process.cmdline(), *(f"{k}={v}" for k, v in process.environ().items())])
            planted = place.canaries if process.pid in own else unique
            if held := found_in(shown.encode(errors="surrogateescape"), planted):
                holders[process.pid] = (process.cmdline(), held)
    assert holders, "the run has its secret"
    for pid in own:
        with suppress(psutil.Error, FileNotFoundError, ProcessLookupError):
            assert psutil.Process(pid).rlimit(psutil.RLIMIT_CORE) == (0, 0), "no core is dumped"
    assert all(held == ["call"] for _, held in holders.values()), holders
    assert all("leak" in " ".join(line) or line == ["sleep", "60"] for line, _ in holders.values()), holders
    tree = psutil.Process(place.gateway.pid).children()
    (provider,) = [child for child in tree if "local-spawn" in " ".join(child.cmdline())]
    provider.kill()
    await client.until(accepted.conversation_id, "turn_finished")
    await stream.aclose()
    events = await client.events(accepted.conversation_id)
    (call,) = finished(events)
    assert call.state in {event_pb2.CALL_STATE_FAILED, event_pb2.CALL_STATE_OUTCOME_UNKNOWN}
    (started,) = (event.tool_call_started for event in events if event.HasField("tool_call_started"))
    return str(started.operation_id)


async def everything(client: Client) -> dict[str, bytes]:
    """What is told over RPC: of providers, with their logs, and of every conversation."""
    told = {}
    for name in ("local", "slotted"):
        response = await client.catalog.GetProvider(
            catalog_pb2.GetProviderRequest(name=name), metadata=client.metadata, timeout=30
        )
        told[f"provider {name}"] = str(response).encode()
    assert b"api_key=***" in told["provider slotted"], "the provider printed its secret"
    listed = await client.chat.ListConversations(
        chat_pb2.ListConversationsRequest(), metadata=client.metadata, timeout=30
    )
    assert len(listed.conversations) == 6
    for item in listed.conversations:
        told[item.conversation_id] = str(await client.events(item.conversation_id)).encode()
    return told


def exports(place: Place) -> dict[str, bytes]:
    """What the command line prints, whole."""
    listed = place.gateway.tyrum("conversations", "list", "--output", "json")
    conversations = [item["conversation_id"] for item in json.loads(listed.stdout)]
    commands = [
        ("audit", "export"),
        ("runs", "export", "--output", "json"),
        ("approvals", "list", "--all", "--output", "json"),
        ("conversations", "export", conversations[-1], "--output", "text"),
        ("config", "show", str(place.gateway.config), "--output", "json"),
    ]
    told = {}
    for command in commands:
        done = place.gateway.tyrum(*command)
        assert done.returncode == 0, done.stderr
        told[" ".join(command)] = (done.stdout + done.stderr).encode()
    return told


async def eventually(holds: Callable[[], bool], what: str, seconds: float = 30.0) -> None:
    """Wait until something holds."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while not holds():
        if loop.time() > until:
            pytest.fail(f"not within {seconds:g} s: {what}")
        await asyncio.sleep(0.02)


def test_the_search_finds_what_is_there() -> None:
    """A canary is found raw, in hexadecimal and in base64 at any offset: the search itself can fail."""
    canary = "canary-" + secrets.token_hex(12)
    planted = {"x": canary}
    for content in (canary.encode(), canary.encode().hex().encode()):
        assert found_in(b"before " + content + b" after", planted) == ["x"]
    for offset in range(6):
        assert found_in(base64.b64encode(b"a" * offset + canary.encode() + b"bc"), planted) == ["x"]
    assert found_in(b"canary-", planted) == []
