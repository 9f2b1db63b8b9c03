"""Runs a worker: `python -m flink_pubsub.bridge ROLE`, with the JVM at both ends of its standard streams.

The role in the command line is for people who look at processes; what counts is INIT.
"""

from flink_pubsub.bridge.session import main

if __name__ == "__main__":
    main()
