"""The papers' tables and figures, made by the policies that run in production, beside the papers' numbers and claims.

catalogue.py   the papers, and the figures of each
figure.py      what a figure is, and what making it gives: rows, claims, a picture
report.py      CSV, pictures and a Markdown report
<paper>.py     one file per paper, or a folder: what its experiments are
"""

from headrace.reproduce.catalogue import PAPERS, chosen
from headrace.reproduce.figure import Claim, Figure, Made, Paper, Picture, Settings
from headrace.reproduce.report import write_report

__all__ = ["PAPERS", "Claim", "Figure", "Made", "Paper", "Picture", "Settings", "chosen", "write_report"]
