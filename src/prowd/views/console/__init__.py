"""What a person sees in a terminal: live progress, closing tables, download bars."""

from prowd.views.console.comparison import ComparisonView, comparison_tables
from prowd.views.console.run import RunView, result_table
from prowd.views.console.words import download_bar, percent, say, size

__all__ = ["ComparisonView", "RunView", "comparison_tables", "download_bar", "percent", "result_table", "say", "size"]
