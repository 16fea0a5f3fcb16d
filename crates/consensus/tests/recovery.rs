//! Transcripts of restarts, and of logs that a power loss has put in doubt.

mod cluster;
mod transcript;

use cluster::Mode;
use expect_test::expect;
use transcript::check;

/// Goal: a backup keeps view, log and promises over a crash.
#[test]
fn a_backup_restarts_where_it_was() {
    check(
        3,
        Mode::Persisted,
        r"
        prepare 0 2
        run
        prepare 0
        deliver 0 1
        write 1
        crash 1
        state
        restart 1
        run
        state
        ",
        expect![[r#"
            prepare 0 2
              0 > 1 prepare 1v0 commit 0
              0 > 2 prepare 1v0 commit 0
              0 > 1 prepare 2v0 commit 0
              0 > 2 prepare 2v0 commit 0
            run
              0 commits 1
              0 commits 2
              1 commits 1
              1 commits 2
              2 commits 1
              2 commits 2
            prepare 0
              0 > 1 prepare 3v0 commit 2
              0 > 2 prepare 3v0 commit 2
            deliver 0 1
            write 1
            crash 1
            state
              0 view 0 log_view 0 op 3 commit 2 primary, disk [1v0 2v0]
              1 down, disk [1v0 2v0 3v0]
              2 view 0 log_view 0 op 2 commit 2 backup, disk [1v0 2v0]
            restart 1
            run
              0 commits 3
              1 commits 3
              2 commits 3
            state
              0 view 0 log_view 0 op 3 commit 3 primary, disk [1v0 2v0 3v0]
              1 view 0 log_view 0 op 3 commit 3 backup, disk [1v0 2v0 3v0]
              2 view 0 log_view 0 op 3 commit 3 backup, disk [1v0 2v0 3v0]
        "#]],
    );
}

/// Goal: it may have sent ops that it lost, so it never prepares in its view again.
#[test]
fn a_primary_that_restarts_abdicates() {
    check(
        3,
        Mode::Persisted,
        r"
        prepare 0
        deliver 0 1
        deliver 0 2
        crash 0
        restart 0
        prepare 0
        state
        run
        pass 300
        state
        ",
        expect![[r#"
            prepare 0
              0 > 1 prepare 1v0 commit 0
              0 > 2 prepare 1v0 commit 0
            deliver 0 1
            deliver 0 2
            crash 0
            restart 0
            prepare 0
              0 may not prepare
            state
              0 view 0 log_view 0 op 0 commit 0 primary, not serving, disk []
              1 view 0 log_view 0 op 1 commit 0 backup, disk []
              2 view 0 log_view 0 op 1 commit 0 backup, disk []
            run
              0 stores view 1 log_view 0
              2 stores view 1 log_view 0
              1 stores view 1 log_view 0
              1 stores view 1 log_view 1
              2 stores view 1 log_view 1
              1 commits 1
              0 commits 1
              2 commits 1
              0 stores view 1 log_view 1
            pass 300
            state
              0 view 1 log_view 1 op 1 commit 1 backup, disk [1v0]
              1 view 1 log_view 1 op 1 commit 1 primary, disk [1v0]
              2 view 1 log_view 1 op 1 commit 1 backup, disk [1v0]
        "#]],
    );
}

/// Goal: with view above log_view on disk it votes again.
#[test]
fn a_replica_restarts_between_two_views() {
    check(
        3,
        Mode::Persisted,
        r"
        prepare 0
        run
        isolate 0
        suspect 1
        suspect 2
        deliver 1 2
        store 2
        crash 2
        restart 2
        state
        pass 500
        state
        ",
        expect![[r#"
            prepare 0
              0 > 1 prepare 1v0 commit 0
              0 > 2 prepare 1v0 commit 0
            run
              0 commits 1
              1 commits 1
              2 commits 1
            isolate 0
            suspect 1
              1 > 2 start_view_change 1
            suspect 2
              2 > 1 start_view_change 1
            deliver 1 2
              2 stores view 1 log_view 0
            store 2
              2 > 1 do_view_change 1 log_view 0 op 1 commit 1
            crash 2
            restart 2
            state
              0 view 0 log_view 0 op 1 commit 1 primary, disk [1v0]
              1 view 0 log_view 0 op 1 commit 1 backup, disk [1v0]
              2 view 1 log_view 0 op 1 commit 0 view change, disk [1v0]
            pass 500
              0 stores view 1 log_view 0
              1 stores view 1 log_view 0
              1 stores view 1 log_view 1
              2 commits 1
              2 stores view 1 log_view 1
            state
              0 view 1 log_view 0 op 1 commit 1 view change, disk [1v0]
              1 view 1 log_view 1 op 1 commit 1 primary, disk [1v0]
              2 view 1 log_view 1 op 1 commit 1 backup, disk [1v0]
        "#]],
    );
}

/// Goal: a backup's prepare_ok arrives after its crash and counts, for the op is on its disk
/// (scenario 36).
#[test]
fn an_acknowledgement_outlives_its_sender() {
    check(
        3,
        Mode::Persisted,
        r"
        prepare 0
        durable 0
        deliver 0 1
        durable 1
        crash 1
        deliver 1 0
        restart 1
        run
        state
        ",
        expect![[r#"
            prepare 0
              0 > 1 prepare 1v0 commit 0
              0 > 2 prepare 1v0 commit 0
            durable 0
            deliver 0 1
            durable 1
              1 > 0 prepare_ok 1 view 0
            crash 1
            deliver 1 0
              0 commits 1
            restart 1
            run
              1 commits 1
              2 commits 1
            state
              0 view 0 log_view 0 op 1 commit 1 primary, disk [1v0]
              1 view 0 log_view 0 op 1 commit 1 backup, disk [1v0]
              2 view 0 log_view 0 op 1 commit 1 backup, disk [1v0]
        "#]],
    );
}

/// Goal: n = 1 after a power loss has all that it committed (scenario 5).
#[test]
fn a_solo_replica_keeps_ops_of_its_view() {
    check(
        1,
        Mode::Persisted,
        r"
        prepare 0 3
        write 0
        sync 0
        write 0
        power 0
        restart 0
        state
        durable 0
        prepare 0
        durable 0
        state
        ",
        expect![[r#"
            prepare 0 3
            write 0
            sync 0
              0 commits 1
            write 0
            power 0
            restart 0
              0 commits 1
            state
              0 view 0 log_view 0 op 1 commit 1 primary, disk [1v0]
            durable 0
            prepare 0
            durable 0
              0 commits 2
            state
              0 view 0 log_view 0 op 2 commit 2 primary, disk [1v0 2v0]
        "#]],
    );
}

/// Goal: after a power loss of one replica, two trusted logs are needed to begin a view.
#[test]
fn a_log_in_doubt_waits_for_a_trusted_quorum() {
    check(
        3,
        Mode::Replicated,
        r"
        prepare 0 2
        run
        power 1
        restart 1
        state
        run
        state
        ",
        expect![[r#"
            prepare 0 2
              0 > 1 prepare 1v0 commit 0
              0 > 2 prepare 1v0 commit 0
              0 > 1 prepare 2v0 commit 0
              0 > 2 prepare 2v0 commit 0
            run
              0 commits 1
              0 commits 2
              1 commits 1
              1 commits 2
              2 commits 1
              2 commits 2
            power 1
            restart 1
            state
              0 view 0 log_view 0 op 2 commit 2 primary, disk [1v0 2v0]
              1 view 0 log_view 0 op 2 commit 0 backup untrusted, disk [1v0 2v0]
              2 view 0 log_view 0 op 2 commit 2 backup, disk [1v0 2v0]
            run
              1 commits 1
              1 commits 2
            state
              0 view 0 log_view 0 op 2 commit 2 primary, disk [1v0 2v0]
              1 view 0 log_view 0 op 2 commit 2 backup, disk [1v0 2v0]
              2 view 0 log_view 0 op 2 commit 2 backup, disk [1v0 2v0]
        "#]],
    );
}

/// Goal: the primary is gone, one of two backups has lost power before it caught up: no view
/// begins until the primary is back.
#[test]
fn a_log_in_doubt_does_not_count() {
    check(
        3,
        Mode::Replicated,
        r"
        prepare 0 2
        deliver 0 1
        write 0
        write 0
        write 1
        write 1
        deliver 1 0
        isolate 0
        power 1
        restart 1
        isolate 0
        suspect 1
        suspect 2
        pass 3000
        state
        rejoin 0
        pass 3000
        state
        ",
        expect![[r#"
            prepare 0 2
              0 > 1 prepare 1v0 commit 0
              0 > 2 prepare 1v0 commit 0
              0 > 1 prepare 2v0 commit 0
              0 > 2 prepare 2v0 commit 0
            deliver 0 1
            write 0
            write 0
            write 1
              1 > 0 prepare_ok 1 view 0
            write 1
              1 > 0 prepare_ok 2 view 0
            deliver 1 0
              0 commits 1
              0 commits 2
            isolate 0
            power 1
            restart 1
            isolate 0
            suspect 1
              1 > 2 start_view_change 1
            suspect 2
              2 > 1 start_view_change 1
            pass 3000
              2 stores view 1 log_view 0
              1 stores view 1 log_view 0
              1 stores view 2 log_view 0
              2 stores view 2 log_view 0
            state
              0 view 0 log_view 0 op 2 commit 2 primary, disk [1v0 2v0]
              1 view 2 log_view 0 op 0 commit 0 view change untrusted, disk []
              2 view 2 log_view 0 op 0 commit 0 view change, disk []
            rejoin 0
            pass 3000
              0 stores view 2 log_view 0
              2 commits 1
              2 commits 2
              2 stores view 2 log_view 2
              0 stores view 2 log_view 2
              1 commits 1
              1 commits 2
              1 stores view 2 log_view 2
            state
              0 view 2 log_view 2 op 2 commit 2 backup, disk [1v0 2v0]
              1 view 2 log_view 2 op 2 commit 2 backup, disk [1v0 2v0]
              2 view 2 log_view 2 op 2 commit 2 primary, disk [1v0 2v0]
        "#]],
    );
}

/// Goal: it has the highest log_view and lacks a committed op; two trusted logs decide without
/// it.
#[test]
fn a_log_in_doubt_with_a_later_view_loses() {
    check(
        3,
        Mode::Replicated,
        r"
        prepare 0 2
        deliver 0 2
        write 0
        write 0
        write 2
        write 2
        deliver 2 0
        isolate 0
        suspect 1
        suspect 2
        deliver 1 2
        deliver 2 1
        store 1
        store 2
        deliver 2 1
        deliver 1 2
        serve 2
        deliver 2 1
        write 1
        write 1
        store 1
        isolate 1
        power 1
        restart 1
        isolate 1
        state
        rejoin 0
        rejoin 1
        pass 3000
        state
        ",
        expect![[r#"
            prepare 0 2
              0 > 1 prepare 1v0 commit 0
              0 > 2 prepare 1v0 commit 0
              0 > 1 prepare 2v0 commit 0
              0 > 2 prepare 2v0 commit 0
            deliver 0 2
            write 0
            write 0
            write 2
              2 > 0 prepare_ok 1 view 0
            write 2
              2 > 0 prepare_ok 2 view 0
            deliver 2 0
              0 commits 1
              0 commits 2
            isolate 0
            suspect 1
              1 > 2 start_view_change 1
            suspect 2
              2 > 1 start_view_change 1
            deliver 1 2
              2 stores view 1 log_view 0
            deliver 2 1
              1 stores view 1 log_view 0
            store 1
            store 2
              2 > 1 do_view_change 1 log_view 0 op 2 commit 0
            deliver 2 1
              1 > 2 request 1..=2
            deliver 1 2
            serve 2
              2 > 1 repair 1v0 in view 1
              2 > 1 repair 2v0 in view 1
            deliver 2 1
            write 1
            write 1
              1 stores view 1 log_view 1
            store 1
              1 > 2 start_view 1 op 2 commit 0
            isolate 1
            power 1
            restart 1
            isolate 1
            state
              0 view 0 log_view 0 op 2 commit 2 primary, disk [1v0 2v0]
              1 view 1 log_view 1 op 0 commit 0 primary, not serving untrusted, disk []
              2 view 1 log_view 0 op 2 commit 0 view change, disk [1v0 2v0]
            rejoin 0
            rejoin 1
            pass 3000
              0 stores view 1 log_view 0
              0 stores view 2 log_view 0
              1 stores view 2 log_view 1
              2 stores view 2 log_view 0
              2 commits 1
              2 commits 2
              2 stores view 2 log_view 2
              0 stores view 2 log_view 2
              1 commits 1
              1 commits 2
              1 stores view 2 log_view 2
            state
              0 view 2 log_view 2 op 2 commit 2 backup, disk [1v0 2v0]
              1 view 2 log_view 2 op 2 commit 2 backup, disk [1v0 2v0]
              2 view 2 log_view 2 op 2 commit 2 primary, disk [1v0 2v0]
        "#]],
    );
}

/// Goal: no trusted quorum can ever be; with all votes heard the view begins, and says that ops
/// may be lost.
#[test]
fn losing_power_everywhere_is_said() {
    check(
        3,
        Mode::Replicated,
        r"
        prepare 0 2
        run
        power 0
        power 1
        power 2
        restart 0
        restart 1
        pass 3000
        state
        restart 2
        pass 3000
        state
        ",
        expect![[r#"
            prepare 0 2
              0 > 1 prepare 1v0 commit 0
              0 > 2 prepare 1v0 commit 0
              0 > 1 prepare 2v0 commit 0
              0 > 2 prepare 2v0 commit 0
            run
              0 commits 1
              0 commits 2
              1 commits 1
              1 commits 2
              2 commits 1
              2 commits 2
            power 0
            power 1
            power 2
            restart 0
            restart 1
            pass 3000
              0 stores view 1 log_view 0
              1 stores view 1 log_view 0
              0 stores view 2 log_view 0
              1 stores view 2 log_view 0
              1 stores view 3 log_view 0
              0 stores view 3 log_view 0
            state
              0 view 3 log_view 0 op 2 commit 0 view change untrusted, disk [1v0 2v0]
              1 view 3 log_view 0 op 2 commit 0 view change untrusted, disk [1v0 2v0]
              2 down, disk [1v0 2v0]
            restart 2
            pass 3000
              2 stores view 3 log_view 0
              0 says that ops may be lost
              0 stores view 3 log_view 3
              1 stores view 3 log_view 3
              2 stores view 3 log_view 3
              0 commits 1
              0 commits 2
              1 commits 1
              1 commits 2
              2 commits 1
              2 commits 2
            state
              0 view 3 log_view 3 op 2 commit 2 primary, disk [1v0 2v0]
              1 view 3 log_view 3 op 2 commit 2 backup, disk [1v0 2v0]
              2 view 3 log_view 3 op 2 commit 2 backup, disk [1v0 2v0]
        "#]],
    );
}

/// Goal: what a log in doubt lacked has arrived but is not written; a crash then leaves it in
/// doubt.
#[test]
fn trust_returns_once_the_log_is_durable() {
    check(
        3,
        Mode::Replicated,
        r"
        prepare 0 2
        deliver 0 1
        write 1
        write 1
        power 1
        restart 1
        connect 0 1
        deliver 0 1
        deliver 1 0
        serve 0
        deliver 0 1
        state
        crash 1
        restart 1
        state
        run
        state
        ",
        expect![[r#"
            prepare 0 2
              0 > 1 prepare 1v0 commit 0
              0 > 2 prepare 1v0 commit 0
              0 > 1 prepare 2v0 commit 0
              0 > 2 prepare 2v0 commit 0
            deliver 0 1
            write 1
              1 > 0 prepare_ok 1 view 0
            write 1
              1 > 0 prepare_ok 2 view 0
            power 1
            restart 1
            connect 0 1
            deliver 0 1
              1 > 0 request 1..=2
            deliver 1 0
            serve 0
              0 > 1 repair 1v0 in view 0
              0 > 1 repair 2v0 in view 0
            deliver 0 1
            state
              0 view 0 log_view 0 op 2 commit 0 primary, disk []
              1 view 0 log_view 0 op 2 commit 0 backup untrusted, disk []
              2 view 0 log_view 0 op 0 commit 0 backup, disk []
            crash 1
            restart 1
            state
              0 view 0 log_view 0 op 2 commit 0 primary, disk []
              1 view 0 log_view 0 op 0 commit 0 backup untrusted, disk []
              2 view 0 log_view 0 op 0 commit 0 backup, disk []
            run
              0 commits 1
              0 commits 2
              1 commits 1
              1 commits 2
              2 commits 1
              2 commits 2
            state
              0 view 0 log_view 0 op 2 commit 2 primary, disk [1v0 2v0]
              1 view 0 log_view 0 op 2 commit 2 backup, disk [1v0 2v0]
              2 view 0 log_view 0 op 2 commit 2 backup, disk [1v0 2v0]
        "#]],
    );
}
