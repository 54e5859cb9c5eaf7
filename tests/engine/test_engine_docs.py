from __future__ import annotations

import re
from pathlib import Path

from kdump.engine.engine_rates import LOCAL_RATES, SPARK_RATES, JobKind

DOCS = Path(__file__).resolve().parents[2] / "docs" / "engine.md"


def test_the_documented_rates_are_those_that_decide() -> None:
    rows = re.findall(
        r"^\| (\w+) \| .+ \| (.+) \| (.+) \| (.+) \| (.+) \|$", DOCS.read_text(), re.MULTILINE
    )
    documented = {name: tuple(map(float, numbers)) for name, *numbers in rows}
    assert documented == {
        kind.value: tuple(
            number
            for rate in (LOCAL_RATES[kind], SPARK_RATES[kind])
            for number in (rate.start_seconds, rate.core_seconds_per_gib)
        )
        for kind in JobKind
    }
