"""What was measured: medians, and the ratios that are the point."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class Report:
    """Figures of one run, printed as they come."""

    missed: list[str] = field(default_factory=list)

    def section(self, title: str) -> None:
        """Begin a group of figures."""
        print(f"\n{title}")

    def median(self, name: str, values: Sequence[float], unit: str = "ms") -> float:
        """Print a median with its spread; return it."""
        ordered = sorted(values)
        middle = statistics.median(ordered)
        p90 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.9))]
        print(f"  {name:<44} {middle:8.2f} {unit}   p90 {p90:8.2f}   n {len(ordered)}")
        return middle

    def ratio(self, name: str, value: float, bound: float, *, least: bool = False) -> None:
        """Print a ratio beside its bound."""
        met = value >= bound if least else value <= bound
        sign = "≥" if least else "≤"
        print(f"  {name:<44} {value:8.2f} x    bound {sign} {bound:g}   {'met' if met else 'MISSED'}")
        if not met:
            self.missed.append(f"{name}: {value:.2f} (bound {sign} {bound:g})")

    def bounded(self, name: str, values: Sequence[float], bound: float) -> None:
        """Print a median of milliseconds beside its bound."""
        middle = self.median(name, values)
        if middle > bound:
            self.missed.append(f"{name}: {middle:.1f} ms (bound {bound:g} ms)")
