"""The same durable one-tool turn here and elsewhere, in one run."""
