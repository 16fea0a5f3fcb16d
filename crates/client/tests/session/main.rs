//! The client machine against a scripted server: each test plays the network and the server by
//! hand and looks at what the client does.

#[expect(clippy::unwrap_used, reason = "helpers of tests are tests")]
mod chaos;
#[expect(clippy::unwrap_used, reason = "helpers of tests are tests")]
mod world;

use std::time::Duration;

use base::Instant;
use client::{ClientConfig, ClientError, StopReason, SubmitError};
use platform::Address;
use wire::{
    ErrorCode, EvictionReason, Name, Options, ReplyHeader, Request, RequestHeader, header,
    request::CreateStream, result,
};

use world::{ID, World, config, create_stream, node, without_session};

#[test]
fn login_comes_first_and_is_not_numbered() {
    let mut world = World::new(config());
    world.submit(&Request::Ping);
    assert!(world.sent.is_empty());
    world.connect();
    let (login, frame) = world.take_sent();
    assert_eq!((login.client, login.session, login.request), (ID, 0, 0));
    let body = Request::decode(login.operation, login.code, &frame[256..]).unwrap();
    let Request::Register(body) = body else {
        panic!("not a login: {body:?}")
    };
    assert_eq!(body.prefix.protocol_version, 11_264);
    assert_eq!(body.prefix.sdk_name.as_str(), "viewstamp");
    assert!(login.matches_body(&frame[256..]));
}

#[test]
fn writes_are_numbered_and_reads_use_no_number_up() {
    let mut world = World::logged_in(9);
    let numbers = [
        Request::GetStreams,
        create_stream(),
        Request::GetStreams,
        create_stream(),
    ]
    .map(|request| {
        let ticket = world.submit(&request);
        let (header, _) = world.take_sent();
        assert_eq!((header.client, header.session), (ID, 9));
        world.reply(&header, &result::RESULT_SUCCESS);
        let completion = world.take_completion();
        assert_eq!(
            (completion.ticket, completion.request),
            (ticket, header.request)
        );
        assert!(completion.outcome.is_ok());
        header.request
    });
    assert_eq!(numbers, [1, 1, 2, 2]);
}

#[test]
fn one_request_is_out_at_a_time_and_the_rest_follow_in_order() {
    let mut world = World::logged_in(9);
    let tickets = [(); 3].map(|()| world.submit(&create_stream()));
    for (ticket, number) in tickets.into_iter().zip(1..) {
        let (header, _) = world.take_sent();
        assert_eq!(header.request, number);
        world.reply(&header, &result::RESULT_SUCCESS);
        assert_eq!(world.take_completion().ticket, ticket);
    }
}

/// The connection breaks with a write out. On the next node the client is the same, and the write
/// has the same number and the same bytes, under the new session.
#[test]
fn reconnect_keeps_identity_number_and_bytes() {
    let mut world = World::logged_in(9);
    world.submit(&create_stream());
    let (first, first_frame) = world.take_sent();
    world.lose();
    world.reconnect();
    assert_eq!(world.dialed.last().unwrap().1, node(2));
    world.welcome(12);
    let (second, second_frame) = world.take_sent();
    assert_eq!(
        (second.client, second.request),
        (first.client, first.request)
    );
    assert_eq!((first.session, second.session), (9, 12));
    assert_eq!(
        without_session(&first_frame),
        without_session(&second_frame)
    );
    world.reply(&second, &result::RESULT_SUCCESS);
    assert!(world.take_completion().outcome.is_ok());
    world.submit(&create_stream());
    assert_eq!(world.take_sent().0.request, first.request + 1);
}

#[test]
fn not_committed_resends_the_same_bytes_on_the_same_connection() {
    let mut world = World::logged_in(9);
    world.submit(&create_stream());
    let (header, frame) = world.take_sent();
    for _ in 0..20 {
        world.refuse(&header, ErrorCode::TRANSIENT_NOT_COMMITTED);
        assert!(world.sent.is_empty(), "not without a pause");
        world.wait();
        assert_eq!(world.take_sent().1, frame);
    }
    assert_eq!(world.dialed.len(), 1);
    assert_eq!(world.client.counters().repetitions, 20);
}

/// The same, with the code in the result section, where committed operations have it.
#[test]
fn transient_result_resends_too() {
    let mut world = World::logged_in(9);
    world.submit(&create_stream());
    let (header, frame) = world.take_sent();
    world.reply(
        &header,
        &result::rejection(ErrorCode::TRANSIENT_NOT_ACCEPTED),
    );
    world.wait();
    assert_eq!(world.take_sent().1, frame);
}

#[test]
fn node_that_does_not_accept_for_two_seconds_is_left() {
    let mut world = World::logged_in(9);
    world.submit(&create_stream());
    let begin = world.now;
    let mut number = 0;
    while world.dialed.len() == 1 {
        if world.sent.is_empty() {
            world.wait();
            continue;
        }
        let (header, _) = world.take_sent();
        number = header.request;
        world.refuse(&header, ErrorCode::TRANSIENT_NOT_ACCEPTED);
    }
    let took = world.now.since(begin);
    assert!(
        took >= Duration::from_secs(2) && took < Duration::from_secs(3),
        "{took:?}"
    );
    assert_eq!(world.dialed.last().unwrap().1, node(2));
    world.connect();
    world.welcome(10);
    assert_eq!(world.take_sent().0.request, number);
}

#[test]
fn only_node_is_not_left_for_not_accepting() {
    let mut world = World::new(ClientConfig {
        nodes: vec![node(1)],
        ..config()
    });
    world.connect();
    world.welcome(9);
    world.submit(&create_stream());
    while world.client.pending() > 0 {
        if world.sent.is_empty() {
            world.wait();
        } else {
            let (header, _) = world.take_sent();
            world.refuse(&header, ErrorCode::TRANSIENT_NOT_ACCEPTED);
        }
    }
    assert_eq!(world.dialed.len(), 1);
    assert_eq!(
        world.take_error(),
        ClientError::Timeout {
            maybe_applied: false
        }
    );
}

#[test]
fn login_that_is_not_accepted_is_repeated() {
    let mut world = World::new(config());
    world.connect();
    let (login, frame) = world.take_sent();
    world.reply(
        &login,
        &result::rejection(ErrorCode::TRANSIENT_NOT_ACCEPTED),
    );
    world.wait();
    let (again, again_frame) = world.take_sent();
    assert_eq!(frame, again_frame);
    world.refuse(&again, ErrorCode::TRANSIENT_NOT_COMMITTED);
    world.wait();
    world.welcome(3);
    assert!(world.client.is_ready());
}

#[test]
fn eviction_registers_again_and_repeats_the_request() {
    for reason in [EvictionReason::NoSession, EvictionReason::SessionTooLow] {
        let mut world = World::logged_in(9);
        world.submit(&create_stream());
        let (first, first_frame) = world.take_sent();
        world.evict(reason);
        world.wait();
        world.welcome(15);
        let (second, second_frame) = world.take_sent();
        assert_eq!((second.session, second.request), (15, first.request));
        assert_eq!(
            without_session(&first_frame),
            without_session(&second_frame)
        );
        assert_eq!(world.dialed.len(), 1, "the connection is good");
    }
}

#[test]
fn stale_client_reconnects() {
    let mut world = World::logged_in(9);
    world.submit(&create_stream());
    let (first, _) = world.take_sent();
    world.evict(EvictionReason::StaleClient);
    assert_eq!(world.closed.len(), 1);
    world.reconnect();
    world.welcome(10);
    assert_eq!(world.take_sent().0.request, first.request);
}

#[test]
fn wrong_credentials_end_everything() {
    let mut world = World::new(config());
    world.submit(&create_stream());
    world.submit(&Request::Ping);
    world.connect();
    world.take_sent();
    world.evict(EvictionReason::InvalidCredentials);
    let reason = StopReason::Evicted(EvictionReason::InvalidCredentials);
    let stopped = ClientError::Stopped {
        reason,
        maybe_applied: false,
    };
    let completions = world.client.take_completions();
    assert_eq!(completions.len(), 2);
    for completion in completions {
        assert_eq!(completion.outcome.unwrap_err(), stopped);
    }
    assert_eq!(world.closed.len(), 1);
    assert_eq!(world.client.deadline(), None);
    let now = world.now();
    let refused = world.client.submit(now, &Request::Ping, &mut world.out);
    assert_eq!(refused, Err(SubmitError::Stopped(reason)));
}

#[test]
fn other_protocol_is_told_with_its_bounds() {
    let mut world = World::new(config());
    world.connect();
    world.take_sent();
    world.evict(EvictionReason::IncompatibleProtocol);
    let bounds = wire::PROTOCOL_VERSION;
    let reason = StopReason::Incompatible {
        min: bounds,
        max: bounds,
    };
    assert_eq!(world.client.stopped(), Some(reason));
}

#[test]
fn request_that_never_left_was_not_applied() {
    let mut world = World::new(config());
    world.submit(&create_stream());
    let begin = world.now;
    while world.client.pending() > 0 {
        world.wait();
    }
    assert_eq!(world.now.since(begin), config().timing.request_timeout);
    assert_eq!(
        world.take_error(),
        ClientError::Timeout {
            maybe_applied: false
        }
    );
    let nodes: Vec<Address> = world.dialed.iter().map(|(_, address)| *address).collect();
    assert!(nodes.len() > 4, "dialed {} times", nodes.len());
    assert!(
        nodes.chunks_exact(2).all(|pair| pair == [node(1), node(2)]),
        "round and round"
    );
}

/// A write was out when its time was over: it may be applied yet, and its connection is closed,
/// so that the late answer cannot be taken for the next one's.
#[test]
fn write_that_was_out_at_its_deadline_may_be_applied() {
    let mut slow = config();
    slow.timing.reply_timeout = slow.timing.request_timeout * 2;
    let mut world = World::new(slow);
    world.connect();
    world.welcome(9);
    world.submit(&create_stream());
    let (first, _) = world.take_sent();
    world.wait();
    assert_eq!(
        world.take_error(),
        ClientError::Timeout {
            maybe_applied: true
        }
    );
    assert_eq!(world.closed.len(), 1);
    world.submit(&create_stream());
    world.reconnect();
    world.welcome(10);
    assert_eq!(
        world.take_sent().0.request,
        first.request + 1,
        "a number is never used twice"
    );
}

#[test]
fn read_that_was_out_at_its_deadline_had_no_effect() {
    let mut slow = config();
    slow.timing.reply_timeout = slow.timing.request_timeout * 2;
    let mut world = World::new(slow);
    world.connect();
    world.welcome(9);
    world.submit(&Request::GetStreams);
    world.wait();
    assert_eq!(
        world.take_error(),
        ClientError::Timeout {
            maybe_applied: false
        }
    );
}

/// The answer to the first attempt was lost; the second is refused. The first may have counted.
#[test]
fn refusal_after_a_lost_answer_says_that_it_may_be_applied() {
    let mut world = World::logged_in(9);
    world.submit(&create_stream());
    world.take_sent();
    world.lose();
    world.reconnect();
    world.welcome(10);
    let (second, _) = world.take_sent();
    let code = ErrorCode::STREAM_NAME_ALREADY_EXISTS;
    world.reply(&second, &result::rejection(code));
    assert_eq!(
        world.take_error(),
        ClientError::Refused {
            code,
            maybe_applied: true
        }
    );
    world.submit(&create_stream());
    let (third, _) = world.take_sent();
    world.refuse(&third, code);
    assert_eq!(
        world.take_error(),
        ClientError::Refused {
            code,
            maybe_applied: false
        }
    );
}

#[test]
fn applied_before_is_not_a_refusal() {
    let mut world = World::logged_in(9);
    world.submit(&create_stream());
    let (header, _) = world.take_sent();
    world.refuse(&header, ErrorCode::REQUEST_ALREADY_APPLIED);
    let error = world.take_error();
    assert_eq!(error, ClientError::AlreadyApplied);
    assert!(error.maybe_applied());
}

#[test]
fn silent_server_is_left_for_the_next() {
    let mut world = World::logged_in(9);
    world.submit(&create_stream());
    let (first, _) = world.take_sent();
    world.wait();
    assert_eq!(
        world.now.since(Instant::ZERO),
        config().timing.reply_timeout
    );
    assert_eq!(world.closed.len(), 1);
    world.reconnect();
    world.welcome(10);
    assert_eq!(world.take_sent().0.request, first.request);
}

#[test]
fn answer_to_another_request_closes_the_connection() {
    let mut world = World::logged_in(9);
    world.submit(&create_stream());
    let (header, _) = world.take_sent();
    world.reply(
        &RequestHeader {
            request: header.request + 1,
            ..header
        },
        &[0; 4],
    );
    assert_eq!(world.client.counters().violations, 1);
    assert_eq!(world.closed.len(), 1);
    assert_eq!(world.client.pending(), 1, "the request goes on");
    world.reconnect();
    world.welcome(10);
    assert_eq!(world.take_sent().0.request, header.request);
}

#[test]
fn answer_nobody_asked_for_closes_the_connection() {
    let mut world = World::logged_in(9);
    world.submit(&Request::Ping);
    let (header, _) = world.take_sent();
    let reply = header::reply(&ReplyHeader::to(&header), &[]);
    world.deliver(&[&reply[..], &reply[..]].concat(), usize::MAX);
    assert!(world.take_completion().outcome.is_ok());
    assert_eq!(world.client.counters().violations, 1);
    assert_eq!(world.closed.len(), 1);
}

#[test]
fn reply_in_single_bytes_is_the_same_reply() {
    let mut world = World::logged_in(9);
    world.submit(&create_stream());
    let (header, _) = world.take_sent();
    let frame = header::reply(
        &ReplyHeader::to(&header),
        &result::encode_result(Ok(b"payload")),
    );
    world.deliver(&frame, 1);
    let completion = world.take_completion();
    assert_eq!(completion.frame.unwrap(), frame);
    assert_eq!(completion.outcome.unwrap().payload(), b"payload");
}

#[test]
fn idle_connection_is_pinged() {
    let mut world = World::logged_in(9);
    for _ in 0..3 {
        let before = world.now;
        world.wait();
        assert_eq!(world.now.since(before), config().timing.ping_interval);
        let (ping, _) = world.take_sent();
        assert_eq!((ping.code, ping.session), (1, 9));
        world.reply(&ping, &[]);
    }
    assert!(
        world.client.take_completions().is_empty(),
        "nobody asked for these"
    );
}

#[test]
fn queue_and_frames_are_bounded() {
    let mut small = config();
    small.limits.queue_max = 2;
    small.limits.frame_size_max = 300;
    let mut world = World::new(small);
    world.submit(&Request::Ping);
    world.submit(&Request::Ping);
    let now = world.now();
    let full = world.client.submit(now, &Request::Ping, &mut world.out);
    assert_eq!(full, Err(SubmitError::QueueFull));
    world.connect();
    world.welcome(9);
    let long = "x".repeat(255);
    let name = Name::new(&long).unwrap();
    let large = Request::CreateStream(CreateStream {
        name,
        options: Options::default(),
    });
    let refused = world.client.submit(now, &large, &mut world.out);
    assert_eq!(refused, Err(SubmitError::TooLarge));
}

#[test]
fn closing_ends_all_requests_and_the_connection() {
    let mut world = World::logged_in(9);
    world.submit(&create_stream());
    world.submit(&create_stream());
    world.client.close(&mut world.out);
    world.execute();
    assert_eq!(world.closed.len(), 1);
    let outcomes: Vec<bool> = world
        .client
        .take_completions()
        .into_iter()
        .map(|completion| completion.outcome.unwrap_err().maybe_applied())
        .collect();
    assert_eq!(outcomes, [true, false], "only the first was out");
    world.lose();
    assert_eq!(
        world.client.stopped(),
        Some(StopReason::Closed),
        "late events change nothing"
    );
}

#[test]
fn successor_under_the_same_identity_goes_on_counting() {
    let mut world = World::logged_in(9);
    world.submit(&create_stream());
    let (first, _) = world.take_sent();
    let last_request = world.client.last_request();
    assert_eq!(last_request, first.request);
    let mut world = World::new(ClientConfig {
        last_request,
        ..config()
    });
    world.connect();
    world.welcome(10);
    world.submit(&create_stream());
    let (second, _) = world.take_sent();
    assert_eq!((second.client, second.request), (ID, first.request + 1));
}

#[test]
fn same_seed_gives_the_same_client() {
    let run = || {
        let mut world = World::new(config());
        world.submit(&create_stream());
        let mut times = Vec::new();
        while world.client.pending() > 0 {
            world.wait();
            times.push(world.now);
        }
        times
    };
    assert_eq!(run(), run());
}
