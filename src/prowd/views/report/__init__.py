"""What run directories hold, as a page, figures and tables. The only importer of the plotting library."""

from prowd.views.report.sentences import verdict
from prowd.views.report.whole import Report, make_report

__all__ = ["Report", "make_report", "verdict"]
