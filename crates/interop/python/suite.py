"""The published Python client against a running server: every command it has, and what comes back.

Started by ci/interop-python, which makes the environment. Usage: suite.py ADDRESS
Each step prints its name; the first wrong content ends the run with a traceback and status 1.
"""

import asyncio
import sys
from datetime import timedelta

from apache_iggy import (
    AutoCommit,
    Consumer,
    GlobalPermissions,
    IggyClient,
    Partitioning,
    Permissions,
    PollingStrategy,
    SendMessage,
    UserStatus,
)

# Far beyond what it takes: a request without an answer is a failure and not a hang.
LIMIT = 120
PARTITIONS = 3


async def connect(address, user="iggy", password="iggy"):
    client = IggyClient(address)
    await client.connect()
    await client.login_user(user, password)
    return client


async def refused(awaitable, text):
    """The error of a request that must fail; it says `text`."""
    try:
        await awaitable
    except RuntimeError as error:
        assert text.lower() in str(error).lower(), f"refused with {error!r}, not {text!r}"
        return
    raise AssertionError(f"accepted, and not refused with {text!r}")


async def payloads(client, partition, strategy, count=100, consumer=None, commit=False):
    polled = await client.poll_messages(
        "orders",
        "placed",
        consumer=consumer or Consumer.Single("reader"),
        polling_strategy=strategy,
        count=count,
        auto_commit=commit,
        partition_id=partition,
    )
    return [message.payload().decode() for message in polled]


async def system(client):
    await client.ping()
    stats = await client.get_stats()
    assert stats.streams_count == 0 and stats.messages_count == 0, stats
    assert stats.clients_count >= 1 and stats.process_id > 0
    keys = {option.key for option in await client.describe_options("topic")}
    assert {"message_expiry", "max_topic_size", "segment_size", "durability"} <= keys, keys
    assert await client.describe_options("stream") == []
    assert await client.describe_options("user") == []


async def raw(client):
    assert bytes(await client.send_binary_request(1, b"")) == b""
    assert len(await client.send_binary_request(10, b"")) > 0
    await refused(client.send_binary_request(60000, b""), "invalid command")
    await refused(client.send_binary_request(38, b""), "invalid command")


async def streams(client):
    await client.create_stream("drafts")
    await refused(client.create_stream("drafts"), "already exists")
    stream = await client.get_stream("drafts")
    assert (stream.id, stream.name, stream.topics_count) == (0, "drafts", 0)
    assert (await client.get_stream(0)).name == "drafts"
    await client.update_stream("drafts", "orders")
    assert await client.get_stream("drafts") is None
    assert [stream.name for stream in await client.get_streams()] == ["orders"]
    await client.create_stream("gone")
    await client.delete_stream("gone")
    assert await client.get_stream("gone") is None


async def topics(client):
    await client.create_topic("orders", "new", PARTITIONS)
    await refused(client.create_topic("orders", "new", 1), "already exists")
    await client.update_topic("orders", "new", "placed")
    topic = await client.get_topic("orders", "placed")
    assert (topic.id, topic.name, topic.partitions_count) == (0, "placed", PARTITIONS)
    assert (topic.messages_count, topic.size) == (0, 0)
    assert [partition.id for partition in topic.partitions] == [0, 1, 2]
    await client.create_partitions("orders", "placed", 2)
    assert (await client.get_topic("orders", "placed")).partitions_count == PARTITIONS + 2
    await client.delete_partitions("orders", "placed", 2)
    assert (await client.get_topic("orders", "placed")).partitions_count == PARTITIONS
    await client.create_topic("orders", "gone", 1)
    assert [topic.name for topic in await client.get_topics("orders")] == ["placed", "gone"]
    await client.delete_topic("orders", "gone")
    assert await client.get_topic("orders", "gone") is None
    assert await client.get_topic("orders", "never") is None


async def messages(client):
    batch = [SendMessage(f"m{n}") for n in range(10)]
    answer = await client.send_messages("orders", "placed", 0, batch)
    assert answer is not None
    expected = [f"m{n}" for n in range(10)]
    assert await payloads(client, 0, PollingStrategy.Offset(0)) == expected
    assert await payloads(client, 0, PollingStrategy.First(), 3) == expected[:3]
    assert await payloads(client, 0, PollingStrategy.Last(), 3) == expected[-3:]
    assert await payloads(client, 0, PollingStrategy.Offset(4), 2) == expected[4:6]
    assert await payloads(client, 0, PollingStrategy.Offset(10)) == []
    assert await payloads(client, 0, PollingStrategy.Timestamp(1)) == expected
    # Next moves with the committed offset, and only with it.
    following = PollingStrategy.Next()
    assert await payloads(client, 0, following, 4) == expected[:4]
    assert await payloads(client, 0, following, 4, commit=True) == expected[:4]
    assert await payloads(client, 0, following, 4, commit=True) == expected[4:8]
    assert await payloads(client, 0, following, 4, commit=True) == expected[8:]
    assert await payloads(client, 0, following) == []

    headers = {"kind": "order", "count": 7}
    message = SendMessage(b"\x00\xff", user_headers=headers, id=99)
    await client.send_messages("orders", "placed", Partitioning.partition_id(1), [message])
    [polled] = await client.poll_messages(
        "orders",
        "placed",
        consumer=Consumer.Single(7),
        polling_strategy=PollingStrategy.First(),
        count=10,
        auto_commit=False,
        partition_id=1,
    )
    assert (polled.payload(), polled.id(), polled.offset()) == (b"\x00\xff", 99, 0)
    assert polled.partition_id() == 1
    assert polled.user_headers().to_scalar_dict() == headers

    for _ in range(3):
        key = Partitioning.messages_key("customer")
        await client.send_messages("orders", "placed", key, [SendMessage("keyed")])
    counts = [p.messages_count for p in (await client.get_topic("orders", "placed")).partitions]
    assert sum(counts) == 14, counts
    others = [after - before for after, before in zip(counts, (10, 1, 0))]
    assert sorted(others) == [0, 0, 3], "a key keeps its partition"
    stats = await client.get_stats()
    assert (stats.streams_count, stats.topics_count, stats.partitions_count) == (1, 1, PARTITIONS)
    assert stats.messages_count == 14


async def producer(client):
    """The high-level producer, which makes its stream and topic."""
    maker = await client.producer("events", "clicks", Partitioning.partition_id(0))
    await maker.send([SendMessage(f"c{n}") for n in range(20)])
    await maker.send_one(SendMessage("c20"))
    await maker.shutdown()
    topic = await client.get_topic("events", "clicks")
    assert (topic.partitions_count, topic.messages_count) == (1, 21)


async def groups(client):
    await client.create_consumer_group("orders", "placed", "workers")
    await refused(client.create_consumer_group("orders", "placed", "workers"), "already exists")
    await client.join_consumer_group("orders", "placed", "workers")
    details = await client.get_consumer_group("orders", "placed", "workers")
    assert (details.name, details.members_count) == ("workers", 1)
    assert sorted(details.members[0].partitions) == [0, 1, 2]
    assert [g.name for g in await client.get_consumer_groups("orders", "placed")] == ["workers"]
    await client.leave_consumer_group("orders", "placed", "workers")
    details = await client.get_consumer_group("orders", "placed", "workers")
    assert details.members_count == 0
    await client.delete_consumer_group("orders", "placed", "workers")
    assert await client.get_consumer_group("orders", "placed", "workers") is None


async def group_consumer(client):
    """The high-level consumer of a group, which joins and commits by itself."""
    consumer = await client.consumer_group(
        "readers",
        "events",
        "clicks",
        polling_strategy=PollingStrategy.Next(),
        batch_length=5,
        auto_commit=AutoCommit.Interval(timedelta(milliseconds=50)),
        poll_interval=timedelta(milliseconds=5),
    )
    seen = []
    async for message in consumer.iter_messages():
        seen.append(message.payload().decode())
        if len(seen) == 21:
            break
    assert seen == [f"c{n}" for n in range(21)], seen
    await consumer.store_offset(20, 0)
    assert consumer.get_last_stored_offset(0) == 20


async def users(client, address):
    rights = Permissions(GlobalPermissions(read_streams=True))
    await client.create_user("reader", "secret-1", UserStatus.Active, rights)
    await refused(client.create_user("reader", "secret-1"), "already exists")
    assert {user.username for user in await client.get_users()} == {"iggy", "reader"}
    user = await client.get_user("reader")
    assert user.permissions.global_permissions.read_streams
    assert not user.permissions.global_permissions.manage_streams

    reader = await connect(address, "reader", "secret-1")
    assert await reader.get_stream("orders") is not None
    await refused(reader.create_stream("forbidden"), "unauthorized")
    await client.update_permissions("reader", Permissions(GlobalPermissions(manage_streams=True)))
    await reader.create_stream("allowed")
    await client.delete_stream("allowed")

    await client.change_password("reader", "secret-1", "secret-2")
    await refused(connect(address, "reader", "secret-1"), "invalid credentials")
    await (await connect(address, "reader", "secret-2")).logout_user()
    await client.update_user("reader", username="renamed")
    assert await client.get_user("reader") is None
    await client.delete_user("renamed")
    assert await client.get_user("renamed") is None


async def purges(client):
    await client.purge_topic("orders", "placed")
    topic = await client.get_topic("orders", "placed")
    assert (topic.messages_count, topic.size) == (0, 0)
    assert await payloads(client, 0, PollingStrategy.First()) == []
    await client.send_messages("orders", "placed", 0, [SendMessage("again")])
    assert await payloads(client, 0, PollingStrategy.Offset(0)) == ["again"]
    assert await payloads(client, 0, PollingStrategy.Next()) == ["again"], "offsets are cleared"
    await client.purge_stream("orders")
    assert (await client.get_stream("orders")).messages_count == 0


async def main(address, skipped):
    client = await connect(address)
    steps = {
        "system": lambda: system(client),
        "raw": lambda: raw(client),
        "streams": lambda: streams(client),
        "topics": lambda: topics(client),
        "messages": lambda: messages(client),
        "producer": lambda: producer(client),
        "groups": lambda: groups(client),
        "group_consumer": lambda: group_consumer(client),
        "users": lambda: users(client, address),
        "purges": lambda: purges(client),
    }
    unknown = set(skipped) - set(steps)
    assert not unknown, f"no such steps: {unknown}"
    for name, step in steps.items():
        if name in skipped:
            print(f"python {name}: skipped, as asked", flush=True)
            continue
        await asyncio.wait_for(step(), LIMIT)
        print(f"python {name}: ok", flush=True)
    await client.logout_user()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2:]))
