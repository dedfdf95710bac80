"""Shell text, read without a shell: literal simple commands and what joins them, or why it is not that."""

from tyrum_gateway.tools.shell.parse import parse
from tyrum_gateway.tools.shell.script import Opaque, Operator, Script, Sighting, SimpleCommand

__all__ = ["Opaque", "Operator", "Script", "Sighting", "SimpleCommand", "parse"]
