from spolia.evaluation.data.dataset import DataSet as DataSet
from spolia.evaluation.experiment.execution import ask as ask
from spolia.evaluation.experiment.experiment import Experiment as Experiment
from spolia.evaluation.measures.judged.judge import Decisions as Decisions
from spolia.evaluation.measures.judged.judge import OrUndetermined as OrUndetermined
from spolia.evaluation.measures.judged.judge import Statements as Statements
from spolia.evaluation.measures.registry import parse_measures as parse_measures
