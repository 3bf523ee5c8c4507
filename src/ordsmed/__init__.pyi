from ordsmed.api.model import OpenModel as OpenModel
from ordsmed.api.model import open as open
from ordsmed.api.run import TrainingRun as TrainingRun
from ordsmed.api.training import finetune as finetune
from ordsmed.api.training import pretrain as pretrain
from ordsmed.apply.embed import Embedded as Embedded
from ordsmed.apply.fill import Filled as Filled
from ordsmed.apply.fill import Guess as Guess
from ordsmed.apply.generation.options import Generated as Generated
from ordsmed.apply.predict import Classified as Classified
from ordsmed.apply.predict import Evaluated as Evaluated
from ordsmed.apply.predict import Predicted as Predicted
from ordsmed.apply.predict import Tagged as Tagged
from ordsmed.base.ending import Stopped as Stopped
from ordsmed.base.errors import DataError as DataError
from ordsmed.base.errors import OrdsmedError as OrdsmedError
from ordsmed.base.errors import RecipeError as RecipeError
from ordsmed.base.errors import RunError as RunError
from ordsmed.score.answers import Answered as Answered

__version__: str
FACE: dict[str, str]
VERBS: tuple[str, ...]
