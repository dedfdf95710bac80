"""Pitfalls of provider processes and their connections: each is held by a test, or has a reason why not.

Where a pitfall is a way of writing rather than a behaviour, this file reads the source.
"""

import json
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass

import pytest
from google.protobuf import descriptor_pb2
from packaging.requirements import Requirement
from packaging.version import Version

from tests.support import contract_documents, traps
from tests.support.repository import ROOT, tracked

ENTRIES = ("gateway/tyrum_gateway/cli/", "providers/kit/tyrum_provider_kit/serve.py")
"""Where a process begins, and may start the one event loop it has."""

PRODUCT = ("gateway/", "providers/", "conformance/")
SHARED = {"tyrum/options/v1/options.proto", "tyrum/provider/v1/binding.proto"}
"""What contracts of a kind may have in common: binding and the mark of sensitive fields."""


@dataclass(frozen=True, slots=True)
class Pitfall:
    """A mistake that is easy to make here."""

    mistake: str
    tests: tuple[str, ...] = ()
    """Each would go red if the code made it."""
    why_none: str = ""


SOURCE = "tests/meta/test_pitfalls.py::test_no_product_module_walks_into_a_trap"

PITFALLS = (
    Pitfall(
        "a provider's standard output is read as protocol",
        ("tests/host/test_admission.py::test_noise_disturbs_nothing",),
    ),
    Pitfall(
        "messages without a limit",
        (
            "tests/host/test_transport.py::test_oversized_answers_are_refused",
            "tests/kit/test_guard.py::test_messages_above_four_mebibytes_are_refused",
            "tests/gateway/test_malformed_input.py::test_every_rpc_answers_nonsense_with_registered_errors",
            "tests/local_spawn/test_commands.py::test_streams_are_separate_and_binary_safe",
            SOURCE,
        ),
    ),
    Pitfall(
        "a limit on a whole server, which starves health checks and probes",
        (
            "tests/kit/test_guard.py::test_capacity_bounds_starts_and_nothing_else",
            "tests/local_spawn/test_capacity.py::test_probe_answers_while_everything_is_taken",
            SOURCE,
        ),
    ),
    Pitfall("keepalive on a local socket, which kills calls in flight", (SOURCE,)),
    Pitfall(
        "a socket path that two processes share, or that is used again",
        (
            "tests/host/test_supervision.py::test_killed_provider_comes_back_as_a_new_instance",
            "tests/host/test_supervision.py::test_stolen_path_ends_the_instance",
            "tests/kit/test_environment.py::test_living_socket_is_not_stolen",
            "tests/cli/test_listening.py::test_a_socket_or_port_in_use_is_not_taken_over",
            "tests/cli/test_listening.py::test_a_file_in_the_sockets_place_is_not_removed",
        ),
    ),
    Pitfall(
        "believing what gRPC says about the other end of a local socket",
        (
            "tests/host/test_reject_matrix.py::test_refuses_before_any_bind",
            "tests/host/test_wire_edges.py::test_a_stolen_socket_path_is_noticed",
            SOURCE,
        ),
    ),
    Pitfall(
        "the path of a socket sent as authority",
        ("tests/host/test_transport.py::test_authority_is_localhost_and_bearer_waits_for_the_proof",),
    ),
    Pitfall(
        "another user or code between fork and exec while gRPC's fork handlers are on",
        (
            "tests/host/test_transport.py::test_fork_support_is_off_before_grpc_loads",
            "tests/kit/test_life.py::test_grpc_imported_first_is_started_once_more",
            "tests/local_spawn/test_spawner.py::test_the_spawner_loads_the_standard_library_only",
            "tests/meta/test_pitfalls.py::test_the_command_line_turns_fork_support_off",
            SOURCE,
        ),
    ),
    Pitfall("two event loops with gRPC in one process", (SOURCE,)),
    Pitfall(
        "waiting for a connection to a path where nobody will ever listen",
        ("tests/host/test_transport.py::test_a_dead_path_fails_at_once", SOURCE),
    ),
    Pitfall(
        "a process id taken for an identity",
        (
            "tests/host/test_transport.py::test_a_recycled_pid_is_not_an_owner",
            "tests/local_spawn/test_survival.py::test_an_unfinished_record_without_supervisor_is_lost",
        ),
    ),
    Pitfall(
        "a count of crashes that a successful start resets",
        (
            "tests/host/test_supervision.py::test_crash_loop_ends_in_quarantine",
            "tests/host/test_supervision.py::test_time_alone_forgives_no_crash",
        ),
    ),
    Pitfall(
        "unhealthy taken for dead, or a timeout for not executed",
        (
            "tests/host/test_supervision.py::test_stopped_process_is_suspended_and_recovers",
            "tests/host/test_supervision.py::test_own_cancellation_passes_through",
            "tests/host/test_wire_edges.py::test_everything_else_leaves_the_outcome_unknown",
        ),
    ),
    Pitfall(
        "repeating a call that may have been executed",
        (
            "tests/host/test_transport.py::test_a_refused_call_is_made_once",
            "tests/gateway/test_provider_death.py"
            "::test_calls_while_the_provider_is_away_never_run_twice_and_it_comes_back_each_time",
        ),
    ),
    Pitfall(
        "the text of an exception on the wire",
        (
            "tests/kit/test_guard.py::test_unexpected_failures_tell_an_incident_only",
            "tests/kit/test_guard.py::test_streams_fail_in_the_same_shape",
            "tests/rpc/test_reasons.py::test_a_failure_inside_tells_an_incident_and_nothing_else",
            "tests/gateway/test_malformed_input.py::test_every_rpc_answers_nonsense_with_registered_errors",
        ),
    ),
    Pitfall(
        "a configuration in the metadata of a call, where 16 KiB is the end",
        ("tests/host/test_admission.py::test_settings_of_any_admitted_size_arrive",),
    ),
    Pitfall(
        "relying on a comparison of descriptors for rules that descriptors do not hold",
        (
            "tests/meta/test_contract_documents.py::test_every_request_field_is_required_or_optional",
            "tests/meta/test_contract_documents.py::test_error_tables_agree_with_the_registered_reasons",
            "tests/kit/test_control.py::test_handshake_limits",
            "tests/local_spawn/test_starting.py::test_every_broken_limit_is_named_by_its_field",
        ),
    ),
    Pitfall("slow validation by annotations in the path of every call", (SOURCE,)),
    Pitfall(
        "generated code that needs newer libraries than the package asks for",
        ("tests/meta/test_pitfalls.py::test_generated_code_runs_with_the_oldest_admitted_libraries",),
    ),
    Pitfall(
        "the digest of an interpreter taken for that of a program, or of a file that was exchanged since",
        (
            "tests/host/test_values.py::test_artifact_covers_scripts_given_to_an_interpreter",
            "tests/host/test_values.py::test_artifact_of_a_module_covers_its_package",
            "tests/host/test_admission.py::test_an_artifact_replaced_while_it_starts_is_refused",
        ),
    ),
    Pitfall(
        "a check that is skipped, or cannot fail, or fails for another reason, counted as passed",
        (
            "tests/meta/test_contract_documents.py::test_planned_checks_are_reported_and_never_pass",
            "tests/sabotage/test_sabotage.py::test_check_goes_red_under_its_sabotage",
            "tests/host/test_reject_matrix.py::test_refuses_before_any_bind",
        ),
    ),
    Pitfall(
        "asserting durations that a busy machine does not keep",
        why_none="a property of tests seen when they run; bounds are ratios, or far from what is needed",
    ),
    Pitfall(
        "built-in providers that take a short way into the process",
        (
            "tests/meta/test_pitfalls.py::test_the_gateway_never_loads_a_provider",
            "tests/gateway/test_life.py::test_without_a_capable_binding_the_model_is_shown_no_tool",
        ),
    ),
    Pitfall(
        "going on without a provider that did not answer in time",
        (
            "tests/gateway/test_life.py::test_without_a_capable_binding_the_model_is_shown_no_tool",
            "tests/tools/test_execution.py::test_prepared_for_another_provider_is_asked_again",
            "tests/tools/test_prepare.py::test_claims_that_are_not_proved_fail_closed",
        ),
    ),
    Pitfall(
        "names of files or of served methods taken for what a provider is",
        (
            "tests/host/test_reject_matrix.py::test_refuses_before_any_bind",
            "tests/host/test_values.py::test_each_descriptor_field_is_checked",
            "tests/kit/test_guard.py::test_methods_not_offered_say_so",
        ),
    ),
    Pitfall(
        "one base for all kinds before they need it in one meaning",
        ("tests/meta/test_pitfalls.py::test_kinds_share_binding_and_sensitivity_only",),
    ),
    Pitfall(
        "a provider that outlives its host, or children that outlive a provider",
        (
            "tests/host/test_supervision.py::test_provider_dies_with_its_gateway",
            "tests/host/test_supervision.py::test_the_whole_group_ends_with_its_leader",
            "tests/kit/test_life.py::test_host_death_ends_a_hanging_provider",
            "tests/kit/test_life.py::test_children_get_no_lifeline",
        ),
    ),
    Pitfall(
        "every bad program reported alike",
        (
            "tests/host/test_reject_matrix.py::test_refuses_before_any_bind",
            "tests/host/test_admission.py::test_a_program_for_another_machine_is_named",
        ),
    ),
    Pitfall(
        "the host's environment or credentials handed to providers",
        (
            "tests/host/test_admission.py::test_environment_holds_documented_names_only",
            "tests/local_spawn/test_commands.py::test_nothing_of_the_provider_leaks",
        ),
    ),
    Pitfall(
        "secrets and tokens in logs",
        (
            "tests/host/test_admission.py::test_secrets_stay_where_they_are_projected",
            "tests/host/test_admission.py::test_token_stays_secret",
            "tests/kit/test_life.py::test_logs_hold_no_secret",
        ),
    ),
    Pitfall(
        "socket files that the dead leave behind",
        (
            "tests/host/test_transport.py::test_sweeping_follows_no_links",
            "tests/kit/test_environment.py::test_stale_socket_is_replaced",
            "tests/cli/test_listening.py::test_the_socket_of_a_killed_gateway_is_replaced",
        ),
    ),
    Pitfall(
        "socket paths that are too long for an address",
        (
            "tests/host/test_admission.py::test_socket_path_is_checked_before_the_start",
            "tests/kit/test_environment.py::test_longest_possible_path_is_accepted",
        ),
    ),
    Pitfall(
        "access to a socket left to the umask",
        (
            "tests/kit/test_environment.py::test_socket_is_for_the_owner_alone",
            "tests/cli/test_listening.py::test_the_socket_is_for_the_owner_alone",
        ),
    ),
    Pitfall(
        "a crash between starting a command and recording it",
        (
            "tests/local_spawn/test_starting.py::test_the_journal_is_there_before_the_command",
            "tests/gateway/test_crash.py"
            "::test_killed_at_a_point_the_command_runs_at_most_once_and_the_turn_ends",
        ),
    ),
    Pitfall(
        "a process that is stopped, and that only deadlines and repeated checks notice",
        ("tests/host/test_supervision.py::test_stopped_process_is_suspended_and_recovers",),
    ),
)


@pytest.mark.parametrize("pitfall", PITFALLS, ids=lambda pitfall: pitfall.mistake)
def test_each_pitfall_is_held_by_tests_or_excused(pitfall: Pitfall) -> None:
    """Every test that is named exists; a pitfall has either tests or a reason why there is none."""
    assert bool(pitfall.tests) != bool(pitfall.why_none)
    for test in pitfall.tests:
        path, _, name = test.partition("::")
        assert name in contract_documents.tests_of(ROOT / path), test


MEANT = {
    ("gateway/tyrum_gateway/rpc/origin.py", "gRPC's word for the peer"): "for the record; decides nothing",
}
"""Where what would be a trap elsewhere is none, and why."""


def test_no_product_module_walks_into_a_trap() -> None:
    """No module of gateway, providers and conformance is written in a way that was measured to go wrong."""
    found, meant = [], set()
    for path in tracked():
        name = path.as_posix()
        if name.startswith(PRODUCT) and path.suffix == ".py" and "_pb2" not in path.stem:
            source = (ROOT / path).read_text(encoding="utf-8")
            entry = name.startswith(ENTRIES)
            for trap in traps.find(source, entry=entry):
                if (name, trap.name) in MEANT:
                    meant.add((name, trap.name))
                else:
                    found.append(f"{name}:{trap.line}: {trap.name}")
    assert not found
    assert meant == set(MEANT)


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ('OPTIONS = (("grpc.keepalive_time_ms", 1000),)', "keepalive"),
        ('OPTIONS = [("grpc.max_receive_message_length", -1)]', "unlimited messages"),
        ("stub.Start(request, wait_for_ready=True)", "waits for a dead path"),
        ("grpc.aio.server(maximum_concurrent_rpcs=2)", "limit on the whole server"),
        ('if context.peer() == "unix:": trust()', "gRPC's word for the peer"),
        ("grpc.local_channel_credentials()", "gRPC's word for the peer"),
        ("threading.Thread(target=lambda: asyncio.run(main()))", "second event loop"),
        ("loop = asyncio.new_event_loop()", "second event loop"),
        ("subprocess.Popen(command, user=1000)", "code between fork and exec"),
        ("Popen(command, preexec_fn=os.setsid)", "code between fork and exec"),
        ("from protovalidate import validate", "validation by annotations"),
    ],
)
def test_planted_traps_are_found(line: str, name: str) -> None:
    """Each trap is recognised where it stands, and what only resembles it is left alone."""
    assert traps.find(f"import os\n{line}\n") == [traps.Trap(name, 2)]
    assert not traps.find('subprocess.run(command, cwd="/")\nsocketpeer.peer(connection)\n')
    assert not traps.find("asyncio.run(main())", entry=True)


def test_generated_code_runs_with_the_oldest_admitted_libraries() -> None:
    """What generated code demands at import is at most the floor that the package declares."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    floors = {
        requirement.name: min(
            Version(item.version) for item in requirement.specifier if item.operator == ">="
        )
        for requirement in map(Requirement, project["dependencies"])
    }
    demanded = {"protobuf": set[Version](), "grpcio": set[Version]()}
    for path in tracked():
        if path.name.endswith("_pb2.py"):
            text = (ROOT / path).read_text(encoding="utf-8")
            numbers = re.search(r"Domain\.PUBLIC,\s+(\d+),\s+(\d+),\s+(\d+)", text)
            assert numbers, path
            demanded["protobuf"].add(Version(".".join(numbers.groups())))
        elif path.name.endswith("_pb2_grpc.py"):
            text = (ROOT / path).read_text(encoding="utf-8")
            if version := re.search(r"GRPC_GENERATED_VERSION = '([\d.]+)'", text):
                demanded["grpcio"].add(Version(version[1]))
    for name, versions in demanded.items():
        assert versions
        assert max(versions) <= floors[name], name


def test_the_gateway_never_loads_a_provider() -> None:
    """Neither a provider nor the provider's side of the protocol is loaded into the gateway's process."""
    code = (
        "import json, sys, tyrum_provider_host, tyrum_gateway.bootstrap.serve, tyrum_gateway.cli.serve;"
        "print(json.dumps([name for name in sys.modules if name.startswith('tyrum')]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    packages = {name.partition(".")[0] for name in json.loads(done.stdout)}
    assert packages == {"tyrum", "tyrum_gateway", "tyrum_provider_host"}


def test_the_command_line_turns_fork_support_off() -> None:
    """`tyrum` turns gRPC's fork handlers off before gRPC loads, when the environment does not say so."""
    code = (
        "import os, sys; os.environ.pop('GRPC_ENABLE_FORK_SUPPORT', None); sys.argv[1:] = ['--version'];"
        "from tyrum_gateway.cli.main import main; assert 'grpc' not in sys.modules\n"
        "try: main()\n"
        "finally: print(os.environ.get('GRPC_ENABLE_FORK_SUPPORT'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout.splitlines()[-1] == "0", done.stderr


def test_kinds_share_binding_and_sensitivity_only() -> None:
    """Contracts of kinds import nothing of each other, and of what is shared what has one meaning for all."""
    image = descriptor_pb2.FileDescriptorSet.FromString(
        (ROOT / "proto/tyrum/contracts/image.binpb").read_bytes()
    )
    kinds = {"isolation", "memory", "context"}
    for file in image.file:
        area = file.name.split("/")[1]
        if file.name.startswith("tyrum/") and area in kinds:
            foreign = {
                name
                for name in file.dependency
                if not name.startswith(("google/protobuf/", f"tyrum/{area}/")) and name not in SHARED
            }
            assert not foreign, file.name
