from spolia.optimizer.budget import TuningBudget as TuningBudget
from spolia.optimizer.strategies import GreedySearch as GreedySearch
from spolia.optimizer.strategies import GridSearch as GridSearch
from spolia.optimizer.strategies import Halving as Halving
from spolia.optimizer.strategies import HalvingWithNeighbours as HalvingWithNeighbours
from spolia.optimizer.strategies import RandomSearch as RandomSearch
from spolia.optimizer.tuned_flow import TunedFlow as TunedFlow
from spolia.optimizer.tuning import tune as tune
