"""Run by alembic: applies migrations on the connection that `upgrade` made."""

from alembic import context

from tyrum_gateway.storage.tables import metadata

context.configure(
    connection=context.config.attributes["connection"], target_metadata=metadata, transactional_ddl=True
)
with context.begin_transaction():
    context.run_migrations()
