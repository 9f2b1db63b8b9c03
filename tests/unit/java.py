"""Reaches the connector's Java classes, package-private ones included, in the JVM that PyFlink starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from py4j.protocol import Py4JJavaError
from pyflink.java_gateway import get_gateway
from pyflink.util.java_utils import add_jars_to_context_class_loader, load_java_class, to_jarray

import flink_pubsub

PACKAGE = "io.github.flinkpubsub"
WRAPPERS = ("java.lang.reflect.InvocationTargetException", "java.lang.reflect.UndeclaredThrowableException")


class JavaError(Exception):
    """What a Java method threw: its class and message."""

    def __init__(self, error: Py4JJavaError) -> None:
        thrown = error.java_exception
        while thrown.getClass().getName() in WRAPPERS:
            thrown = thrown.getCause()
        self.kind: str = thrown.getClass().getName()
        self.message: str = thrown.getMessage()
        super().__init__(f"{self.kind}: {self.message}")


@cache
def jvm() -> Any:
    """PyFlink's JVM, which knows the connector's jar whichever of its threads answers.

    Each of the gateway's connections has a thread of its own in the JVM, and each such thread a context class loader, by
    which Java classes are found: with loaders of their own, a class would not be the same class in two of them. A new
    thread takes its loader from the one that accepts connections.
    """
    add_jars_to_context_class_loader([flink_pubsub.jar()])
    known = get_gateway().jvm
    loader = known.Thread.currentThread().getContextClassLoader()
    for entry in known.Thread.getAllStackTraces().entrySet():
        if any("py4j.Gateway" in frame.getClassName() for frame in entry.getValue()):
            entry.getKey().setContextClassLoader(loader)
    return known


@cache
def java_class(name: str) -> Any:
    """A class of the connector, by its name below the package; any other, by its full name."""
    jvm()
    ours = name.split(".", 1)[0] in ("bridge", "message", "table")
    return load_java_class(f"{PACKAGE}.{name}" if ours else name)


def objects(values: Sequence[Any]) -> Any:
    """A Java array of objects; unlike py4j's own way to make one, it takes Python objects that implement an interface."""
    listed = jvm().java.util.ArrayList()
    for value in values:
        listed.add(value)
    return listed.toArray()


def classes(*values: Any) -> Any:
    """A Java array of classes."""
    return to_jarray(jvm().Class, values)


def answering_null(interface: str) -> Any:
    """An object of the interface, whose methods all return null."""
    invoke, handler = jvm().java.lang.invoke, java_class("java.lang.reflect.InvocationHandler")
    null = invoke.MethodHandles.constant(java_class("java.lang.Object"), None)
    taken = classes(java_class("java.lang.Object"), java_class("java.lang.reflect.Method"), objects([]).getClass())
    answer = invoke.MethodHandleProxies.asInterfaceInstance(handler, invoke.MethodHandles.dropArguments(null, 0, taken))
    kind = java_class(interface)
    return jvm().java.lang.reflect.Proxy.newProxyInstance(kind.getClassLoader(), classes(kind), answer)


def long_class() -> Any:
    """The class of Java's primitive long."""
    return java_class("java.lang.Long").getField("TYPE").get(None)


def boxed_long(value: int) -> Any:
    """A java.lang.Long: py4j would make an Integer of a small number, which a reflected call does not widen."""
    return jvm().java.lang.Long.valueOf(str(value))


class Reflected:
    """A Java object, or a class's static side, whose non-public methods can be called by name and number of arguments."""

    def __init__(self, name: str, instance: Any = None) -> None:
        self.instance = instance
        self._methods: dict[tuple[str, int], Any] = {}
        for method in java_class(name).getDeclaredMethods():
            method.setAccessible(True)
            self._methods[method.getName(), method.getParameterCount()] = method

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if all(name != known for known, _ in self._methods):
            raise AttributeError(name)

        def call(*arguments: Any) -> Any:
            try:
                return self._methods[name, len(arguments)].invoke(self.instance, objects(arguments))
            except Py4JJavaError as error:
                raise JavaError(error) from None

        return call


def make(name: str, *arguments: Any) -> Reflected:
    """A new object by the constructor with that many parameters."""
    for constructor in java_class(name).getDeclaredConstructors():
        if constructor.getParameterCount() == len(arguments):
            constructor.setAccessible(True)
            return Reflected(name, constructor.newInstance(objects(arguments)))
    raise AssertionError(f"{name} has no constructor of {len(arguments)} parameters")
