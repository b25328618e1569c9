from spolia.evaluation.report import gate_report as gate_report
from spolia.evaluation.report import html as html
from spolia.evaluation.report import plots as plots
from spolia.evaluation.report import tables as tables
