from spolia.training.parts import Trainer as Trainer
from spolia.training.ranker import RankerTrainer as RankerTrainer
from spolia.training.training import Trained as Trained
from spolia.training.training import train as train
