"""Protobuf classes of Pub/Sub's public wire format, generated from `pubsub.proto` beside this file.

Google's own `google.pubsub_v1` package takes half a second and 24 MB more to import, and its version would tie the worker's
gRPC and protobuf to the job's. These classes are a subset with the same field numbers; a test compares them with Google's.

`views.proto` holds other ways to read the same bytes. Both are compiled in `src` with grpcio-tools 1.49, for what a newer one
makes needs a newer protobuf than PyFlink's::

    python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. flink_pubsub/wire/*.proto
"""
