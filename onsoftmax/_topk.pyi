# Python 3.10 has no NamedTuple with parameters. For type checkers the kinds of both arrays are parameters.
from typing import Any, Generic, NamedTuple

from typing_extensions import TypeVar

from ._normalizer import Normalizer

_Values = TypeVar("_Values", default=Any)
_Indices = TypeVar("_Indices", default=Any)

class TopK(NamedTuple, Generic[_Values, _Indices]):
    values: _Values
    indices: _Indices

class TopKWithNormalizer(NamedTuple, Generic[_Values, _Indices]):
    values: _Values
    indices: _Indices
    normalizer: Normalizer
