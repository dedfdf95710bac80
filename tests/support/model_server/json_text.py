"""How the scripted model server writes JSON: as UTF-8, and half a character as its escape."""

import json
import re
from collections.abc import Mapping
from typing import Any

_HALF = re.compile("[\ud800-\udfff]")


def written(value: Mapping[str, Any]) -> str:
    """Write a mapping; what no UTF-8 holds is escaped."""
    text = json.dumps(value, ensure_ascii=False)
    return _HALF.sub(lambda half: f"\\u{ord(half[0]):04x}", text)
