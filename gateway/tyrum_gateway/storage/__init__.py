"""The kernel's database: one writer, query-only readers, migrations."""
