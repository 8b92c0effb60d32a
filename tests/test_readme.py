"""The README's first example runs and prints what it says."""

import contextlib
import io
import re
from pathlib import Path

README = Path(__file__).resolve().parent.parent / "README.md"


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README.read_text(), re.S)


def test_first_example_prints_what_the_readme_shows():
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(blocks("python")[0], {})
    shown, answer = blocks("text")[0].splitlines(), printed.getvalue().splitlines()
    assert len(shown) == len(answer)
    for expected, line in zip(shown, answer, strict=True):
        # Words must agree; numbers may differ in what floating point leaves open.
        assert re.sub(r"[\d.e+-]+", "#", line) == re.sub(r"[\d.e+-]+", "#", expected)
    assert answer[-1] == "[-0.9899925   0.14112001  0.1       ]"
    assert "sin(theta)·px' − cos(theta)·py' = 0" in printed.getvalue()
