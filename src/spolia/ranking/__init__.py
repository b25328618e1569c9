"""The arithmetic of fusing ranked lists: pure, over plain sequences and arrays, best first."""

from spolia.ranking.fusion import convex_combination as convex_combination
from spolia.ranking.fusion import highest_score as highest_score
from spolia.ranking.fusion import reciprocal_rank_fusion as reciprocal_rank_fusion
from spolia.ranking.scalings import Scaling as Scaling
from spolia.ranking.scalings import min_max as min_max
from spolia.ranking.scalings import theoretical_min_max as theoretical_min_max
from spolia.ranking.scalings import three_sigma as three_sigma
from spolia.ranking.scalings import z_score as z_score
