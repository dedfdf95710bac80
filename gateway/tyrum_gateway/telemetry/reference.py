"""Writes docs/reference/metrics.md: `python -m tyrum_gateway.telemetry.reference`."""

from tyrum_gateway.telemetry.metrics import Metrics

COMMAND = "python -m tyrum_gateway.telemetry.reference > docs/reference/metrics.md"

_PAGE = """\
# Metrics

<!-- Generated: .venv/bin/{command} -->

With `listen.ops` the gateway answers on loopback, over HTTP and without a token:

| path | answer |
|---|---|
| `/livez` | 200 while the process answers at all |
| `/readyz` | 200 while the gateway is ready; else 503 with what is not, a line each |
| `/metrics` | Prometheus' text format |

It is ready while it serves clients, its database takes writes, every provider that an agent needs is
admitted, no alarm is active, and it does not drain. Alarms, which the log tells with their cause:

| alarm | raised when | ends when |
|---|---|---|
| `database_damaged` | something stored cannot be read (`DATA_LOSS`) | a restored database is started on |
| `disk_full` | a write was refused for want of room | there is room again |
| `audit_heads` | a head cannot be signed, or its file was taken away | a head could be signed again |

Labels are names of the gateway's own: states, outcomes, methods, providers as configured. No label holds an
id, or text of a user, a model or a command. Seconds are histograms. Counters begin at zero with each start.

| metric | kind | labels | meaning |
|---|---|---|---|
{rows}

Beside these stand the usual metrics of the process, such as `process_resident_memory_bytes`,
`process_cpu_seconds_total` and `process_open_fds`.
"""


def render() -> str:
    """Return the page."""
    rows = [
        f"| `{one.name}` | {one.kind} | {', '.join(f'`{label}`' for label in one.labels)} | {one.meaning} |"
        for one in Metrics().described()
    ]
    return _PAGE.format(command=COMMAND, rows="\n".join(rows))


if __name__ == "__main__":
    print(render(), end="")  # noqa: T201 - the page
