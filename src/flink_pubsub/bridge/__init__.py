"""The Python side of the bridge between Flink's JVM and a Python worker process.

Nothing here knows Pub/Sub: any connector that implements `flink_pubsub.bridge.connector` could run on it.
"""
