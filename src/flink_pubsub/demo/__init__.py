"""The demo behind `flink-pubsub demo`: a year of flights through Pub/Sub and Flink, with a failure half way.

Every scheduled departure from New York's three airports in 2013 is published, ordered by carrier, to a topic per airport. One
Flink job reads the three subscriptions, computes the delays of each hour at each airport, and publishes them to a topic per
airport. Half way, the source's worker process is killed. At the end the results are compared, one by one, with the same table
computed from the file by the standard library.

`flights` reads the data, `delays` is the user code of the job, `job` the job, `service` the emulator in a process of its own,
`traffic` what is published and drained, `run` the sequence of it all, and `terminal` what one sees.
"""
