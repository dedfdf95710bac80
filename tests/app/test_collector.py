"""What the interpreter looks through for garbage while the gateway serves."""

import gc

from tyrum_gateway.bootstrap import collector


def test_what_exists_when_serving_begins_is_not_looked_through_again() -> None:
    """Collections find what came later and pass over everything that was there before."""
    thresholds = gc.get_threshold()
    before = [["a cycle"]]
    try:
        collector.settle()
        later = [["a cycle"]]
        tracked = gc.get_objects()
        assert any(item is later for item in tracked)
        assert not any(item is before for item in tracked)
        assert gc.get_threshold() == collector.THRESHOLDS
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)
