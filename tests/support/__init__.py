"""Fixtures' machinery: builders, processes, ports; no assertions hidden here."""
