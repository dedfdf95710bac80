"""Which models answered a turn, and the tokens of a principal on a day."""

from alembic import op

revision = "5"
down_revision = "4"

_CHANGES = (
    "ALTER TABLE turns ADD COLUMN answered_by TEXT DEFAULT '' NOT NULL",
    "CREATE TABLE token_days (\n"
    "\tprincipal_id TEXT NOT NULL, \n"
    "\tday INTEGER NOT NULL, \n"
    "\tinput_tokens INTEGER NOT NULL, \n"
    "\toutput_tokens INTEGER NOT NULL, \n"
    "\tPRIMARY KEY (principal_id, day)\n"
    ") STRICT",
)


def upgrade() -> None:
    """Add the column and the table."""
    for change in _CHANGES:
        op.execute(change)
