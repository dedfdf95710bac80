"""Deliberately bad providers, and the good one they deviate from.

They are product parts: hosts prove with them that they refuse what must be refused. Each module is one
deviation and runs as `python -m tyrum_conformance.broken NAME`; nothing imports them.
"""
