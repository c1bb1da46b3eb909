"""What the tests over PyTorch's databases print at the end."""

import suite


def pytest_terminal_summary(terminalreporter):
    """Counts of compared cases and of exceptions."""
    for line in suite.summary():
        terminalreporter.write_line(line)
