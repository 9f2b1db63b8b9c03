"""Runs a worker: `python -m flink_pubsub.bridge`, with the JVM at both ends of its standard streams."""

from flink_pubsub.bridge.session import main

if __name__ == "__main__":
    main()
