"""The published Python client against a running server: every command it has, and what comes back.

Started by ci/interop-python, which makes the environment. Usage: suite.py ADDRESS
Each step prints its name; the first wrong content ends the run with a traceback and status 1.
Commands that the client has no method for go through its raw requests.
"""

import asyncio
import io
import struct
import sys
import zipfile
from datetime import timedelta

from apache_iggy import (
    AutoCommit,
    AutoCommitAfter,
    AutoCommitWhen,
    AutoLogin,
    BackgroundProducerConfig,
    Consumer,
    DirectProducerConfig,
    Durability,
    GlobalPermissions,
    IggyClient,
    IggyExpiry,
    MaxTopicSize,
    Partitioning,
    Permissions,
    PollingStrategy,
    SendMessage,
    StreamPermissions,
    TcpConfig,
    TopicPermissions,
    UserStatus,
)

# Far beyond what it takes: a request without an answer is a failure and not a hang.
LIMIT = 60
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


def identifier(value):
    """A name or a number on the wire."""
    if isinstance(value, int):
        return struct.pack("<BBI", 1, 4, value)
    return struct.pack("<BB", 2, len(value)) + value.encode()


def text(value):
    return struct.pack("<B", len(value)) + value.encode()


async def raw(client):
    async def ask(code, payload=b""):
        return bytes(await client.send_binary_request(code, payload))

    assert await ask(1) == b""
    assert len(await ask(10)) > 0
    await refused(client.send_binary_request(60000, b""), "invalid command")
    # The client itself keeps the commands of sessions to its own methods.
    await refused(client.send_binary_request(38, b""), "invalid command")

    cluster = await ask(12)
    [length] = struct.unpack_from("<I", cluster)
    [nodes] = struct.unpack_from("<I", cluster, 4 + length)
    assert nodes == 1, "a server alone is a cluster of one"

    mine = await ask(20)
    client_id, user_id, transport = struct.unpack_from("<IIB", mine)
    assert (user_id, transport) == (0, 1), "root, over TCP"
    assert await ask(21, struct.pack("<I", client_id)) == mine
    assert await ask(21, struct.pack("<I", client_id ^ 1)) == b"", "no such client"
    assert mine[:9] in await ask(22)

    archive = zipfile.ZipFile(io.BytesIO(await ask(11, bytes([2, 1, 100]))))
    assert archive.testzip() is None and archive.namelist(), "a ZIP archive with something in it"


async def raw_offsets(client):
    """Consumer offsets, which the client has through its consumers only."""
    target = b"\x01" + b"".join(map(identifier, ("auditor", "orders", "placed")))
    partition = struct.pack("<BI", 1, 0)
    assert bytes(await client.send_binary_request(120, target + partition)) == b""
    store = target + partition + struct.pack("<QB", 7, 1)
    await client.send_binary_request(121, store)
    found = bytes(await client.send_binary_request(120, target + partition))
    assert struct.unpack("<IQQ", found) == (0, 9, 7), "partition, last offset, stored offset"
    too_far = target + partition + struct.pack("<QB", 10, 1)
    await refused(client.send_binary_request(121, too_far), "offset")
    await client.send_binary_request(122, target + partition + b"\x01")
    await refused(client.send_binary_request(122, target + partition + b"\x01"), "not found")
    assert bytes(await client.send_binary_request(120, target + partition)) == b""

    where = identifier("orders") + identifier("placed")
    # One segment, which is being written, is nothing that could be deleted.
    await client.send_binary_request(503, where + struct.pack("<II", 0, 1))
    assert (await payloads(client, 0, PollingStrategy.First(), 1)) == ["m0"]
    await refused(client.send_binary_request(102, where + struct.pack("<IB", 0, 1)), "unavailable")


async def tokens(client, address):
    expiry = struct.pack("<Q", 3_600_000_000)
    answer = bytes(await client.send_binary_request(42, text("laptop") + expiry))
    token = answer[1:].decode()
    assert answer[0] == len(token) > 20
    await refused(client.send_binary_request(42, text("laptop") + expiry), "already exists")
    listed = bytes(await client.send_binary_request(41, b""))
    assert listed.startswith(text("laptop")) and len(listed) == len(text("laptop")) + 8
    login = AutoLogin.personal_access_token(token)
    holder = IggyClient(TcpConfig(server_address=address, auto_login=login))
    await holder.connect()
    assert [stream.name for stream in await holder.get_streams()] == ["orders", "events"]
    await holder.logout_user()
    await client.send_binary_request(43, text("laptop"))
    assert bytes(await client.send_binary_request(41, b"")) == b""


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
    await client.create_topic(
        "orders",
        "gone",
        1,
        compression_algorithm="gzip",
        message_expiry=IggyExpiry.ExpireDuration(timedelta(hours=1)),
        max_topic_size=MaxTopicSize.Custom(2 << 30),
        segment_size=1 << 20,
        durability=Durability.PERSISTED,
        consumer_offset_durability=Durability.PERSISTED,
        messages_required_to_save=100,
        size_of_messages_required_to_save=1 << 16,
        preallocate_segments=False,
    )
    gone = await client.get_topic("orders", "gone")
    assert gone.compression_algorithm.lower() == "gzip", gone.compression_algorithm
    await refused(client.create_topic("orders", "odd", 1, segment_size=1000), "option")
    await refused(client.create_topic("orders", "odd", 1, options={"colour": "red"}), "option")
    await refused(client.create_topic("orders", "odd", 1001), "partitions")
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
    """The high-level producer, which makes its stream and topic, in both of its modes."""
    direct = DirectProducerConfig(batch_length=7)
    maker = await client.producer("events", "clicks", Partitioning.partition_id(0), mode=direct)
    answer = await maker.send([SendMessage(f"c{n}") for n in range(10)])
    told = [(it.partition_id, it.base_offset) for it in answer.confirmations]
    assert told == [(0, 0), (0, 7)], "two requests of at most seven messages"
    await maker.send_one(SendMessage("c10"))
    await maker.shutdown()

    background = BackgroundProducerConfig(batch_length=3, linger_time=timedelta(milliseconds=5))
    maker = await client.producer("events", "clicks", Partitioning.partition_id(0), mode=background)
    for n in range(11, 21):
        await maker.send_one(SendMessage(f"c{n}"))
    await maker.shutdown()
    topic = await client.get_topic("events", "clicks")
    assert (topic.partitions_count, topic.messages_count) == (1, 21)

    missing = client.producer("never", "never", create_stream_if_not_exists=False)
    await refused(missing, "not found")


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


async def consumer(client, name, commit, batch=5):
    """The high-level consumer of a group, which creates it, joins and commits by itself."""
    return await client.consumer_group(
        name,
        "events",
        "clicks",
        polling_strategy=PollingStrategy.Next(),
        batch_length=batch,
        auto_commit=commit,
        poll_interval=timedelta(milliseconds=5),
    )


async def take(reader, count):
    seen = []
    async for message in reader.iter_messages():
        seen.append(message.payload().decode())
        if len(seen) == count:
            return seen


async def stored(client, group):
    """The stored offset of a group in partition 0 of the topic that consumers read."""
    payload = b"\x02" + b"".join(map(identifier, (group, "events", "clicks")))
    answer = bytes(await client.send_binary_request(120, payload + struct.pack("<BI", 1, 0)))
    return struct.unpack("<IQQ", answer)[2] if answer else None


async def stored_becomes(client, group, offset):
    for _ in range(200):
        if await stored(client, group) == offset:
            return
        await asyncio.sleep(0.02)
    assert await stored(client, group) == offset, f"{group} has stored {offset}"


async def group_consumer(client, address):
    expected = [f"c{n}" for n in range(21)]
    each = AutoCommitWhen.ConsumingEachMessage()
    modes = {
        "interval": AutoCommit.Interval(timedelta(milliseconds=50)),
        "each": AutoCommit.When(each),
        "polling": AutoCommit.When(AutoCommitWhen.PollingMessages()),
        "third": AutoCommit.When(AutoCommitWhen.ConsumingEveryNthMessage(3)),
        "mixed": AutoCommit.IntervalOrWhen(timedelta(milliseconds=50), each),
    }
    for name, mode in modes.items():
        member = await connect(address)
        reader = await consumer(member, name, mode)
        assert (reader.name(), reader.stream(), reader.topic()) == (name, "events", "clicks")
        seen = await take(reader, 21)
        assert seen == expected, f"{name}: {seen}"
        assert reader.partition_id() == 0 and reader.get_last_consumed_offset(0) == 20
        # Every third message is one whose offset is a multiple of three.
        await stored_becomes(client, name, 18 if name == "third" else 20)

    # Nothing is stored but what the consumer stores; all is polled at once, since the next
    # messages are those after the stored offset.
    member = await connect(address)
    reader = await consumer(member, "manual", AutoCommit.Disabled(), batch=100)
    assert await take(reader, 21) == expected
    assert await stored(client, "manual") is None
    await reader.store_offset(9, 0)
    assert await stored(client, "manual") == 9
    assert reader.get_last_stored_offset(0) == 9
    await reader.delete_offset(0)
    assert await stored(client, "manual") is None

    # With a callback, the offset is stored once the callback has returned.
    after = AutoCommit.After(AutoCommitAfter.ConsumingEachMessage())
    reader = await consumer(await connect(address), "callback", after)
    end, seen = asyncio.Event(), []
    loop = asyncio.get_running_loop()

    async def receive(message):
        seen.append(message.payload().decode())
        if len(seen) == 21:
            loop.call_soon_threadsafe(end.set)

    await asyncio.wait_for(reader.consume_messages(receive, end), LIMIT)
    assert seen == expected, seen
    await stored_becomes(client, "callback", 20)


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

    # Rights on one topic alone.
    topic = {0: TopicPermissions(read_topic=True, poll_messages=True)}
    narrow = Permissions(streams={0: StreamPermissions(topics=topic)})
    await client.update_permissions("reader", narrow)
    found = (await client.get_user("reader")).permissions
    assert found.streams[0].topics[0].poll_messages and not found.streams[0].read_stream
    assert await payloads(reader, 0, PollingStrategy.First(), 1) == ["m0"]
    sending = reader.send_messages("orders", "placed", 0, [SendMessage("no")])
    await refused(sending, "unauthorized")
    await refused(reader.get_stream("events"), "unauthorized")

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


async def main(address):
    client = await connect(address)
    steps = {
        "system": lambda: system(client),
        "raw": lambda: raw(client),
        "streams": lambda: streams(client),
        "topics": lambda: topics(client),
        "messages": lambda: messages(client),
        "producer": lambda: producer(client),
        "groups": lambda: groups(client),
        "group_consumer": lambda: group_consumer(client, address),
        "raw_offsets": lambda: raw_offsets(client),
        "tokens": lambda: tokens(client, address),
        "users": lambda: users(client, address),
        "purges": lambda: purges(client),
    }
    for name, step in steps.items():
        await asyncio.wait_for(step(), LIMIT)
        print(f"python {name}: ok", flush=True)
    await client.logout_user()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
