"""Exceptions: a class for every row of RONDO_STATUS_TABLE but success."""
from . import _api


class Error(RuntimeError):
    """An error of Rondo: status is its number, str() the sentence with cause, rank, host and remedy."""

    status = None

    def __init__(self, sentence, status=None):
        super().__init__(sentence)
        if status is not None:
            self.status = status


def _class_name(name):
    return "".join(word.capitalize() for word in name.split("_"))


BY_STATUS = {number: type(_class_name(name), (Error,), {"status": number, "__doc__": text})
             for name, number, text in _api.STATUSES if number != _api.SUCCESS}
globals().update({kind.__name__: kind for kind in BY_STATUS.values()})
__all__ = ["Error"] + [kind.__name__ for kind in BY_STATUS.values()]


def error(status, sentence):
    return BY_STATUS.get(status, Error)(sentence, status)


def bad_argument(sentence):
    return error(_api.INVALID_ARGUMENT, sentence)
