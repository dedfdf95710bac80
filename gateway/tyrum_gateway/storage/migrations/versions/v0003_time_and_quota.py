"""A turn's working time and lost attempts, and indexes over a principal's turns: unfinished ones, and all."""

from alembic import op

revision = "3"
down_revision = "2"

_CHANGES = (
    "ALTER TABLE turns ADD COLUMN lost INTEGER DEFAULT 0 NOT NULL",
    "ALTER TABLE turns ADD COLUMN working_since INTEGER",
    "ALTER TABLE turns ADD COLUMN changed_at INTEGER",
    "CREATE INDEX turns_unfinished_of ON turns (principal_id, ended_at) WHERE ended_at IS NULL",
    "CREATE INDEX turns_of_principal ON turns (principal_id, turn_id)",
)


def upgrade() -> None:
    """Add columns and indexes."""
    for change in _CHANGES:
        op.execute(change)
