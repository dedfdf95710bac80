"""Registered sabotages: each breaks one kernel invariant, and its check must notice."""
