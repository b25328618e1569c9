from spolia.models.local import address as address
from spolia.models.local import colbert as colbert
from spolia.models.local import embedders as embedders
from spolia.models.local import gguf as gguf
from spolia.models.local import gguf_session as gguf_session
from spolia.models.local import language_model as language_model
from spolia.models.local import scorers as scorers
