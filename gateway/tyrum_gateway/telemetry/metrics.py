"""What the gateway counts, for Prometheus.

Invariant: labels are names of our own (states, outcomes, methods, configured providers), never an id and
never text of a user, model or command; so their number is bounded.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from tyrum_gateway.app.observer import Observer
from tyrum_gateway.domain.approval import Outcome
from tyrum_gateway.domain.commit import Commit
from tyrum_gateway.domain.policy import Decision
from tyrum_gateway.domain.states import CallState, TurnState
from tyrum_gateway.domain.transcript import (
    ApprovalRequested,
    AttemptAbandoned,
    ToolCallDecided,
    ToolCallFinished,
    TurnFinished,
)

# A second series for every one, which says only when the process began to count.
disable_created_metrics()  # type: ignore[no-untyped-call]

_COMMIT = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0)
_ANSWER = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0)
_WORK = (0.02, 0.1, 0.5, 2.0, 10.0, 60.0, 600.0, 3600.0)
_WAIT = (1.0, 10.0, 60.0, 600.0, 3600.0, 86400.0)
"""Upper bounds of buckets, in seconds."""


@dataclass(frozen=True, slots=True)
class Description:
    """One metric, for the reference."""

    name: str
    """As it is exported; of a histogram without `_bucket`, `_sum` and `_count`."""
    kind: str
    labels: tuple[str, ...]
    meaning: str


@dataclass(frozen=True, slots=True)
class ProviderNow:
    """One configured provider at a moment."""

    name: str
    kind: str
    lifecycle: str


@dataclass(frozen=True, slots=True)
class AlarmNow:
    """One alarm at a moment."""

    name: str
    count: int
    """How often its cause was met since the start."""
    active: bool


@dataclass(frozen=True, slots=True)
class Present:
    """What holds at the moment of a question."""

    ready: bool
    providers: Sequence[ProviderNow] = ()
    lifecycles: Sequence[str] = ()
    """Every lifecycle that there is."""
    commits: int = 0
    transactions: int = 0
    """Of the store since the start."""
    working: int = 0
    """Conversations in work."""
    streams: int = 0
    """Streams of clients."""
    pending: int = 0
    """Approvals that wait."""
    unfinished: int = 0
    """Turns that have not ended."""
    alarms: Sequence[AlarmNow] = ()


class Metrics(Observer):
    """Counts what happens and shows it in Prometheus' text format."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._described: list[Description] = []
        count, time = self._counter, self._histogram
        self._turns = count("turns", "Turns that ended.", outcome=[s for s in TurnState if s.final])
        self._turn_seconds = time(
            "turn", _WORK, "From a turn's message to its end, waits for approval included."
        )
        self._steps = count("model_steps", "Model steps that were begun, of turns that ended.")
        self._answers = count("model_answers", "Model steps that were answered, by the model.", model=())
        self._spent = count(
            "model_tokens_refused",
            "Model steps that were not begun because the principal had used the tokens of the day.",
        )
        self._abandoned = count(
            "model_attempts_abandoned", "Attempts at a model step that failed, broke off or were lost."
        )
        self._tokens = count(
            "model_tokens", "Tokens that models reported, of turns that ended.", direction=("input", "output")
        )
        self._decisions = count("policy_decisions", "Decisions of policy on tool calls.", decision=Decision)
        self._calls = count("tool_calls", "Tool calls that ended.", state=[s for s in CallState if s.final])
        self._process_seconds = time("tool_process", _WORK, "Life of the processes of tool calls.")
        self._asked = count("approvals_requested", "Approvals that were asked.")
        self._resolved = count("approvals_resolved", "Approvals that ended.", outcome=Outcome)
        self._wait_seconds = time("approval_wait", _WAIT, "From an approval's question to its end.")
        self._commit_seconds = time(
            "commit", _COMMIT, "From handing a turn's transition to the store until it is durable."
        )
        self._rpc = count("rpc", "Calls of the gateway's methods that ended.", method=(), code=())
        self._rpc_seconds = time("rpc", _ANSWER, "Time to answer calls without streams.", "method")
        ProcessCollector(registry=self._registry)

    def _counter(self, name: str, meaning: str, **labels: Iterable[str]) -> Counter:
        """Make a counter; when its one label has known values, all of them are shown from the start."""
        name = f"tyrum_{name}"
        counter = Counter(name, meaning, list(labels), registry=self._registry)
        self._described.append(Description(f"{name}_total", "counter", tuple(labels), meaning))
        if len(labels) == 1:
            for values in labels.values():
                for value in values:
                    counter.labels(str(value))
        return counter

    def _histogram(self, name: str, buckets: tuple[float, ...], meaning: str, *labels: str) -> Histogram:
        name = f"tyrum_{name}_seconds"
        self._described.append(Description(name, "histogram", labels, meaning))
        return Histogram(name, meaning, labels, buckets=buckets, registry=self._registry)

    def committed(self, commit: Commit, seconds: float) -> None:
        """See `Observer.committed`."""
        self._commit_seconds.observe(seconds)
        for event in commit.events:
            match event:
                case TurnFinished(state=ended):
                    turn = commit.turn
                    self._turns.labels(ended.value).inc()
                    self._turn_seconds.observe(max((commit.at - turn.created_at).total_seconds(), 0))
                    self._steps.inc(turn.step)
                    self._tokens.labels("input").inc(turn.input_tokens)
                    self._tokens.labels("output").inc(turn.output_tokens)
                case AttemptAbandoned():
                    self._abandoned.inc()
                case ToolCallDecided(decision=decision):
                    self._decisions.labels(decision.value).inc()
                case ToolCallFinished(state=state, process=process):
                    self._calls.labels(state.value).inc()
                    if process is not None:
                        self._process_seconds.observe(process.duration_ms / 1000)
                case ApprovalRequested():
                    self._asked.inc()
                case _:
                    pass
        for approval in commit.resolved:
            if approval.resolution is not None:
                self._resolved.labels(approval.resolution.outcome.value).inc()
                waited = approval.resolution.resolved_at - approval.created_at
                self._wait_seconds.observe(max(waited.total_seconds(), 0))

    def step_answered(self, model: str) -> None:
        """See `Observer.step_answered`."""
        if model:
            self._answers.labels(model).inc()

    def tokens_refused(self) -> None:
        """See `Observer.tokens_refused`."""
        self._spent.inc()

    def called(self, method: str, code: str) -> None:
        """See `Observer.called`."""
        self._rpc.labels(method, code).inc()

    def answered(self, method: str, seconds: float) -> None:
        """See `Observer.answered`."""
        self._rpc_seconds.labels(method).observe(seconds)

    def text(self, present: Present) -> bytes:
        """Write everything in Prometheus' text format."""
        moment = CollectorRegistry()
        moment.register(_Moment(present))
        return generate_latest(self._registry) + generate_latest(moment)

    def described(self) -> list[Description]:
        """Describe the gateway's own metrics by name; the client library adds those of the process."""
        moment = _Moment(Present(ready=False))
        shown = [
            Description(
                f"{metric.name}_total" if metric.type == "counter" else metric.name,
                metric.type,
                _LABELS.get(metric.name, ()),
                metric.documentation,
            )
            for metric in moment.collect()
        ]
        return sorted([*self._described, *shown], key=lambda description: description.name)


_PROVIDER_STATE = "tyrum_provider_state"
_PROVIDER_LABELS = ("provider", "kind", "lifecycle")
_ALARM_ACTIVE = "tyrum_alarm_active"
_ALARMS = "tyrum_alarms"
_ALARM_LABELS = ("alarm",)
_LABELS = {
    _PROVIDER_STATE: _PROVIDER_LABELS,
    _ALARM_ACTIVE: _ALARM_LABELS,
    _ALARMS: _ALARM_LABELS,
}


class _Moment(Collector):
    """Metrics of what holds now."""

    def __init__(self, present: Present) -> None:
        self._present = present

    def collect(self) -> Iterator[Metric]:
        """Yield them."""
        now = self._present
        yield _gauge("ready", "1 while `/readyz` answers 200.", int(now.ready))
        yield _gauge("conversations_working", "Conversations in work.", now.working)
        yield _gauge("streams_open", "Streams that clients have open.", now.streams)
        yield _gauge("approvals_pending", "Approvals that wait for a human.", now.pending)
        yield _gauge("turns_unfinished", "Turns that are queued, run or wait.", now.unfinished)
        providers = GaugeMetricFamily(
            _PROVIDER_STATE,
            "1 for the lifecycle that a configured provider is in, 0 for the others.",
            labels=_PROVIDER_LABELS,
        )
        for provider in now.providers:
            for lifecycle in now.lifecycles:
                labels = (provider.name, provider.kind, lifecycle)
                providers.add_metric(labels, float(lifecycle == provider.lifecycle))
        yield providers
        yield from _alarms(now.alarms)
        for name, meaning, value in (
            ("commits", "Writes that are durable.", now.commits),
            ("transactions", "Database transactions; writes that wait together share one.", now.transactions),
        ):
            yield CounterMetricFamily(f"tyrum_store_{name}", meaning, value=value)


def _alarms(alarms: Iterable[AlarmNow]) -> Iterator[Metric]:
    active = GaugeMetricFamily(
        _ALARM_ACTIVE, "1 while an alarm keeps the gateway from being ready.", labels=_ALARM_LABELS
    )
    met = CounterMetricFamily(_ALARMS, "How often the cause of an alarm was met.", labels=_ALARM_LABELS)
    for alarm in alarms:
        active.add_metric([alarm.name], float(alarm.active))
        met.add_metric([alarm.name], alarm.count)
    yield active
    yield met


def _gauge(name: str, meaning: str, value: int) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"tyrum_{name}", meaning, value=value)
