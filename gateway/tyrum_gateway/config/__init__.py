"""The operator's YAML: loading, validation with positions, secrets."""
