"""Migrations of the database, applied by alembic when the gateway starts."""
