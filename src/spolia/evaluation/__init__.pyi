from spolia.evaluation.measures.judged.judge import Decisions as Decisions
from spolia.evaluation.measures.judged.judge import OrUndetermined as OrUndetermined
from spolia.evaluation.measures.judged.judge import Statements as Statements
