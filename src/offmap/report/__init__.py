"""The page a user gets after a fit: one HTML file that opens anywhere, without a network."""

from offmap.report.page import write

__all__ = ["write"]
