from ordsmed.api.made import Made as Made
from ordsmed.api.making import corpus as corpus
from ordsmed.api.making import encode as encode
from ordsmed.api.making import export as export
from ordsmed.api.making import report as report
from ordsmed.api.making import tokenizer as tokenizer
from ordsmed.api.measuring import compare as compare
from ordsmed.api.measuring import evaluate as evaluate
from ordsmed.api.model import OpenModel as OpenModel
from ordsmed.api.model import open as open
from ordsmed.api.run import TrainingRun as TrainingRun
from ordsmed.api.searching import index as index
from ordsmed.api.searching import open_index as open_index
from ordsmed.api.searching import search as search
from ordsmed.api.training import finetune as finetune
from ordsmed.api.training import pretrain as pretrain
from ordsmed.base.ending import Stopped as Stopped
from ordsmed.base.errors import DataError as DataError
from ordsmed.base.errors import OrdsmedError as OrdsmedError
from ordsmed.base.errors import RecipeError as RecipeError
from ordsmed.base.errors import RunError as RunError
from ordsmed.learn.score.answers import Answered as Answered
from ordsmed.maker.make import MadeModel as MadeModel
from ordsmed.maker.make import make as make
from ordsmed.measure.likelihood.scored import Scored as Scored
from ordsmed.use.embed import Embedded as Embedded
from ordsmed.use.fill import Filled as Filled
from ordsmed.use.fill import Guess as Guess
from ordsmed.use.generation.options import Generated as Generated
from ordsmed.use.index.opened import OpenIndex as OpenIndex
from ordsmed.use.index.opened import SearchHit as SearchHit
from ordsmed.use.predict import Classified as Classified
from ordsmed.use.predict import Evaluated as Evaluated
from ordsmed.use.predict import Predicted as Predicted
from ordsmed.use.predict import Tagged as Tagged

__version__: str
FACE: dict[str, str]
