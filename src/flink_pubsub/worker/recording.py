"""How records become bytes for the JVM: pickled, or as PyFlink's coder for an explicit type writes them."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import TypeAlias

Encode: TypeAlias = Callable[[object], bytes]

_PROTOCOL = 4
"""What PyFlink itself pickles with; parts of Flink that unpickle in the JVM know no newer one."""


def encoder(type_info_proto: bytes | None) -> Encode:
    """What encodes records of a type, given as PyFlink's serialized `TypeInfo`; None stands for any Python object."""
    if type_info_proto is None:
        return pickled
    # PyFlink costs seconds and 180 MB, so only workers whose source has an explicit type import it.
    from pyflink.fn_execution import flink_fn_execution_pb2
    from pyflink.fn_execution.coders import from_type_info_proto

    type_info = flink_fn_execution_pb2.TypeInfo()
    type_info.ParseFromString(type_info_proto)
    encode: Encode = from_type_info_proto(type_info).get_impl().encode
    return encode


def pickled(record: object) -> bytes:
    """Pickles a record; by value what plain pickle cannot find by name, such as instances of a class of the main program."""
    try:
        return pickle.dumps(record, _PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError):
        import cloudpickle

        by_value: bytes = cloudpickle.dumps(record, _PROTOCOL)
        return by_value
