"""Read pickles of data without executing them.

A pickle is a program for a small stack machine, and Python's own reader lets that program import and call anything.
This reader is another machine for the same programs, which can do neither: it holds no instruction that imports, calls
or sets an attribute. The four names that a pickled array needs are compared as text and stand for themselves, the
three calls that it makes are recognised as a whole and their results built here, and every other instruction, name or
call is refused. `pickletools` only cuts the file into instructions and their arguments, which are numbers and text.
"""

import math
import pickletools
from enum import Enum, auto

import numpy as np

from gridgrad.nn.files import limits

INSTRUCTIONS = 1_000_000  # a published file has some 50,000; each costs memory, so there must be an end


class Name(Enum):
    """What a program may name. No instruction but those for calls looks at one."""

    MARK = auto()  # on the stack, where a list of items begins
    RECONSTRUCT = auto()
    NDARRAY = auto()
    DTYPE = auto()
    ENCODE = auto()
    BYTES = auto()  # the type that dtype("u1") is


NAMES = {
    "numpy.core.multiarray _reconstruct": Name.RECONSTRUCT,
    "numpy._core.multiarray _reconstruct": Name.RECONSTRUCT,
    "numpy ndarray": Name.NDARRAY,
    "numpy dtype": Name.DTYPE,
    "_codecs encode": Name.ENCODE,  # how Python 3 writes bytes for Python 2
}
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
ARGUMENTS = {
    "BININT", "BININT1", "BININT2", "BINSTRING", "SHORT_BINSTRING", "BINUNICODE", "SHORT_BINUNICODE",
    "BINBYTES", "SHORT_BINBYTES",
}  # fmt: skip


class Array:
    """Stands for an array from where the program makes it to where it fills it; value: of unsigned bytes, or None."""

    value = None


def parse(path, content):
    """What the pickle `content` holds: numbers, text, bytes, tuples, lists, dicts with keys of text, and `Array`s.

    Text of Python 2 comes as if it were Latin-1. ValueError, naming the file, for anything else.
    """
    try:
        return PickleMachine().run(content)
    except Exception as error:  # a damaged or hostile program can break off anywhere
        reason = " ".join(str(error).split())[:120] or type(error).__name__
        raise ValueError(f"{path}: not a pickle of plain data ({reason}); fetch it anew from where it was published") from None


class PickleMachine:
    """stack, memo: as the format's description (`pickletools`) has them."""

    def __init__(self):
        self.stack, self.memo, self.decoded = [], {}, 0

    def run(self, content):
        for count, (instruction, argument, _) in enumerate(pickletools.genops(content)):
            if count >= INSTRUCTIONS:
                raise ValueError(f"more than {INSTRUCTIONS} instructions")
            if instruction.name == "STOP":
                return self.stack.pop()
            self.step(instruction.name, argument)

    def step(self, instruction, argument):
        stack, memo = self.stack, self.memo
        match instruction:
            case "PROTO" | "FRAME":
                pass
            case _ if instruction in ARGUMENTS:
                stack.append(argument)
            case _ if instruction in CONSTANTS:
                stack.append(CONSTANTS[instruction])
            case "BINPUT" | "LONG_BINPUT":
                memo[argument] = stack[-1]
            case "MEMOIZE":
                memo[len(memo)] = stack[-1]
            case "BINGET" | "LONG_BINGET":
                stack.append(memo[argument])
            case "MARK":
                stack.append(Name.MARK)
            case "EMPTY_TUPLE":
                stack.append(())
            case "EMPTY_LIST":
                stack.append([])
            case "EMPTY_DICT":
                stack.append({})
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                stack.append(self.items(int(instruction[-1])))
            case "TUPLE":
                stack.append(self.items())
            case "APPEND":
                self.append(self.items(1))
            case "APPENDS":
                self.append(self.items())
            case "SETITEM":
                self.set(self.items(2))
            case "SETITEMS":
                self.set(self.items())
            case "GLOBAL":
                stack.append(named(argument))
            case "STACK_GLOBAL":
                stack.append(named(" ".join(self.items(2))))
            case "REDUCE":
                stack.append(self.called(*self.items(2)))
            case "BUILD":
                (state,) = self.items(1)
                self.fill(stack[-1], state)
            case _:
                raise ValueError(f"instruction {instruction}")

    def items(self, count=None):
        """The topmost `count` items off the stack, or those above the last mark, which goes as well: a tuple."""
        if count is not None:
            if len(self.stack) < count:
                raise ValueError("nothing on the stack")
            return tuple(self.stack.pop() for _ in range(count))[::-1]
        found = []
        while (item := self.stack.pop()) is not Name.MARK:
            found.append(item)
        return tuple(found[::-1])

    def append(self, items):
        if type(self.stack[-1]) is not list:
            raise ValueError("items for what is no list")
        self.stack[-1].extend(items)

    def set(self, items):
        keys = [self.latin(key) if type(key) is bytes else key for key in items[::2]]
        if type(self.stack[-1]) is not dict or len(items) % 2 or any(type(key) is not str for key in keys):
            raise ValueError("items for what is no dict, or keys that are no text")
        self.stack[-1].update(zip(keys, items[1::2]))

    def latin(self, text):
        """A text as bytes, or bytes as text. One that stands once in the file can be turned over and over: all must fit."""
        self.decoded += len(text)
        if self.decoded > limits.BUDGET:
            raise ValueError(f"more than {limits.size(limits.BUDGET)} of text")
        return text.encode("latin-1") if type(text) is str else text.decode("latin-1")

    def called(self, function, arguments):
        """What a call gives, of the three that are known. Nothing is called."""
        if type(arguments) is tuple and arguments:
            first = arguments[0]
            if function is Name.RECONSTRUCT and first is Name.NDARRAY:
                return Array()
            if function is Name.DTYPE and type(first) is str and first == "u1":
                return Name.BYTES
            if function is Name.ENCODE and type(first) is str and arguments[1:] == ("latin1",):
                return self.latin(first)
        raise ValueError("a call that makes no array of bytes")

    def fill(self, target, state):
        """Give an Array its shape and numbers. The state of the type is that of any byte, and is passed over."""
        if target is Name.BYTES:
            return
        if type(target) is not Array or type(state) is not tuple or len(state) != 5:
            raise ValueError("a state for what is no array")
        _, shape, kind, by_columns, raw = state
        raw = self.latin(raw) if type(raw) is str else raw
        whole = type(shape) is tuple and len(shape) < 9 and all(type(length) is int and length >= 0 for length in shape)
        if kind is not Name.BYTES or type(raw) is not bytes or not whole or math.prod(shape) != len(raw):
            raise ValueError("an array of another type or size than it says")
        target.value = np.frombuffer(raw, np.uint8).reshape(shape, order="F" if by_columns is True else "C")


def named(text):
    """The Name for the text "module name"."""
    if text not in NAMES:
        raise ValueError(f"it names {text}")
    return NAMES[text]
