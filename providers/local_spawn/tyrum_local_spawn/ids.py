"""The ids this provider is given, as types of their own."""

from typing import NewType

OperationId = NewType("OperationId", str)
"""`op_` and 26 characters of [0-9a-z]; safe as a file name."""
ProcessId = NewType("ProcessId", str)
"""`proc_` and 26 characters of [0-9a-z]."""
