"""The journal under which an operation was bound."""

from alembic import op

revision = "4"
down_revision = "3"


def upgrade() -> None:
    """Add the column; bindings of before name no journal, so that none proves anything of them."""
    op.execute("ALTER TABLE bindings ADD COLUMN journal_id TEXT DEFAULT '' NOT NULL")
