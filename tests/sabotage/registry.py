"""The register: one named change of the owner for each kernel invariant, and the check that must go red.

A sabotage replaces text that stands in the module exactly once, so that it cannot rot unnoticed.
"""

from dataclasses import dataclass

GATEWAY = "gateway/tyrum_gateway"
HOST = "providers/host/tyrum_provider_host"


@dataclass(frozen=True, slots=True)
class Sabotage:
    """One way to break one invariant."""

    invariant: str
    owner: str
    old: str
    new: str
    check: str
    """Test id as pytest takes it; it must fail under the sabotage."""


REGISTRY = (
    Sabotage(
        "INV-01",
        f"{GATEWAY}/app/engine.py",
        "for conversation_id, principal_id in await self._store.unfinished():",
        "for conversation_id, principal_id in ():",
        "tests/gateway/test_crash.py::test_killed_between_begin_and_call_the_model_learns_that_it_did_not_run",
    ),
    Sabotage(
        "INV-02",
        f"{GATEWAY}/app/runner.py",
        "effect = tool.settle(execution)",
        "effect = tool.execute(await tool.prepare(call.arguments), execution)  # type: ignore[arg-type]",
        "tests/gateway/test_crash.py::test_killed_between_begin_and_call_the_model_learns_that_it_did_not_run",
    ),
    Sabotage(
        "INV-03",
        f"{GATEWAY}/app/runner.py",
        "return begun, Launched(",
        "await self._agent.tools[call.tool].execute(prepared, execution)\n"
        "                return begun, Launched(",
        "tests/gateway/test_crash.py"
        "::test_killed_at_a_point_the_command_runs_at_most_once_and_the_turn_ends[decided]",
    ),
    Sabotage(
        "INV-04",
        f"{GATEWAY}/domain/policy/evaluate.py",
        "_SEVERITY = (Decision.DENY, Decision.REQUIRE_APPROVAL, Decision.ALLOW)",
        "_SEVERITY = (Decision.ALLOW, Decision.REQUIRE_APPROVAL, Decision.DENY)",
        "tests/domain/test_policy.py::test_of_all_rules_that_match_the_strictest_decides",
    ),
    Sabotage(
        "INV-05",
        f"{GATEWAY}/domain/policy/evaluate.py",
        "    if target.effect is Effect.READ_ONLY:\n        return _Finding(",
        "    if target.effect:\n        return _Finding(",
        "tests/domain/test_policy.py::test_nothing_matched_asks_unless_it_only_reads",
    ),
    Sabotage(
        "INV-06",
        f"{GATEWAY}/tools/run_arguments.py",
        '    "additionalProperties": False,',
        '    "additionalProperties": True,',
        "tests/tools/test_hostile_arguments.py::test_schema_is_closed_at_every_level",
    ),
    Sabotage(
        "INV-07",
        f"{GATEWAY}/tools/hosted_isolation.py",
        "if (provider_id, self._profile) != (bound.provider_id, bound.profile):",
        "if provider_id == bound.provider_id == self._profile:",
        "tests/tools/test_execution.py::test_settle_elsewhere_is_refused",
    ),
    Sabotage(
        "INV-08",
        f"{GATEWAY}/domain/approval.py",
        "else Outcome.DENIED\n    if approval.resolution is not None:",
        "else Outcome.DENIED\n    if approval.resolution == outcome:",
        "tests/domain/test_approval.py::test_only_the_first_answer_counts",
    ),
    Sabotage(
        "INV-09",
        f"{GATEWAY}/app/proposals.py",
        "worth = receipt(approved, call.call_id, prepared.subject, self._clock.now())",
        "worth = Receipt.VALID",
        "tests/gateway/test_approvals.py"
        "::test_a_program_that_changed_since_it_was_shown_is_asked_about_again",
    ),
    Sabotage(
        "INV-10",
        f"{GATEWAY}/storage/writes.py",
        'return int(taken["last_sequence"]) - len(change.events) + 1',
        'return int(taken["last_sequence"]) - len(change.events) + 2',
        "tests/storage/test_commit.py::test_sequences_have_no_holes",
    ),
    Sabotage(
        "INV-11",
        f"{GATEWAY}/app/engine.py",
        "        if conversation_id in self._active:\n",
        "        if conversation_id == self._active:\n",
        "tests/gateway/test_serial.py"
        "::test_a_message_waits_for_the_turn_before_it_and_for_no_other_conversation",
    ),
    Sabotage(
        "INV-12",
        f"{GATEWAY}/bootstrap/state_directory.py",
        "fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)",
        "fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)",
        "tests/gateway/test_life.py"
        "::test_a_second_gateway_on_one_state_directory_is_refused_and_told_who_holds_it",
    ),
    Sabotage(
        "INV-13",
        f"{GATEWAY}/domain/turn_machine.py",
        "    for call in turn.calls:\n        if call.state.final:\n            continue\n",
        "    for call in turn.calls:\n",
        "tests/domain/test_turn_machine.py::test_any_sequence_keeps_the_invariants",
    ),
    Sabotage(
        "INV-14",
        f"{GATEWAY}/domain/turn_machine.py",
        "            effects.append(CloseApproval(call.approval_id, Outcome.CANCELLED, reason))\n",
        "",
        "tests/domain/test_turn_machine.py::test_cancel_settles_everything_and_stops_what_runs",
    ),
    Sabotage(
        "INV-15",
        f"{GATEWAY}/app/agent.py",
        "if tool.available() and not bars(",
        "if not bars(",
        "tests/gateway/test_life.py::test_without_a_capable_binding_the_model_is_shown_no_tool",
    ),
    Sabotage(
        "INV-16",
        f"{GATEWAY}/config/secrets.py",
        '    def __repr__(self) -> str:\n        return "***"\n',
        "    def __repr__(self) -> str:\n        return self._value\n",
        "tests/config/test_secrets.py::test_nothing_shows_a_secret",
    ),
    Sabotage(
        "INV-17",
        f"{HOST}/handshake.py",
        "if not proof.proves(expected, answer.proof):",
        "if not answer.proof:",
        "tests/host/test_reject_matrix.py::test_refuses_before_any_bind[wrong-proof]",
    ),
    Sabotage(
        "INV-18",
        f"{GATEWAY}/tools/hosted_isolation.py",
        "        self._require_claims(posture)\n",
        "",
        "tests/tools/test_prepare.py::test_claims_that_are_not_proved_fail_closed",
    ),
    Sabotage(
        "INV-19",
        f"{GATEWAY}/domain/audit.py",
        "[sequence, at, kind, actor, subject, details, previous]",
        "[sequence, at, kind, actor, subject, details]",
        "tests/domain/test_audit.py::test_a_chain_that_was_computed_anew_is_found_by_the_next_head",
    ),
    Sabotage(
        "INV-20",
        f"{GATEWAY}/app/audit_heads.py",
        "        if found != head.hash:\n",
        "        if found is False:\n",
        "tests/storage/test_audit.py::test_a_start_on_an_older_database_is_refused",
    ),
    Sabotage(
        "INV-21",
        f"{GATEWAY}/tools/shell/parse.py",
        "if grammar.outline(source) != _outline(text, reading):",
        "if grammar.outline(source) == source:",
        "tests/tools/test_shell_text.py::test_everything_else_is_opaque",
    ),
    Sabotage(
        "INV-22",
        f"{GATEWAY}/domain/policy/evaluate.py",
        "if found.decision is not Decision.REQUIRE_APPROVAL or",
        "if found.decision is Decision.ALLOW or",
        "tests/domain/test_override.py::test_an_override_never_beats_a_deny",
    ),
    Sabotage(
        "INV-23",
        f"{GATEWAY}/domain/override.py",
        "if starts_others(target.program) or starts_others(target.argv[0]):",
        "if not target.program:",
        "tests/domain/test_override.py::test_never_derived_from_what_runs_others",
    ),
    Sabotage(
        "INV-24",
        f"{GATEWAY}/app/interrupt.py",
        "await asyncio.wait({task}, timeout=GRACE_SECONDS)",
        "await asyncio.wait({task})",
        "tests/app/test_interrupt.py::test_a_deadline_is_kept_against_work_that_ignores_cancellation",
    ),
    Sabotage(
        "INV-25",
        f"{GATEWAY}/app/engine.py",
        "        self._draining = True\n",
        "        self._draining = False\n",
        "tests/gateway/test_drain.py"
        "::test_sigterm_ends_what_is_in_work_and_leaves_the_rest_to_the_next_gateway",
    ),
    Sabotage(
        "INV-26",
        f"{GATEWAY}/domain/turn_machine.py",
        "    spent = worked(turn) + min(max(silence, timedelta()), event.unseen)\n",
        "    spent = min(max(silence, timedelta()), event.unseen)\n",
        "tests/domain/test_working_time.py::test_a_crash_loop_uses_the_time_up",
    ),
    Sabotage(
        "INV-27",
        f"{GATEWAY}/tools/hosted_isolation.py",
        "    if bound and denial.journal_id == bound:\n",
        "    if denial.journal_id:\n",
        "tests/tools/test_journals.py::test_a_lost_journal_proves_nothing",
    ),
)
"""Every registered sabotage, by invariant."""
