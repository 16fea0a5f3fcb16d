//! Transcripts of view changes.

mod cluster;
mod transcript;

use cluster::Mode;
use expect_test::expect;
use transcript::check;

/// Goal: an op that one backup holds and the dead primary committed is in the new view.
#[test]
fn view_change_keeps_the_committed_op() {
    check(
        3,
        Mode::Persisted,
        r"
        prepare 0
        durable 0
        deliver 0 2
        durable 2
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
        store 1
        durable 1
        store 1
        run
        state
        ",
        expect![[r#"
            prepare 0
              0 > 1 prepare 1v0 commit 0
              0 > 2 prepare 1v0 commit 0
            durable 0
            deliver 0 2
            durable 2
              2 > 0 prepare_ok 1 view 0
            deliver 2 0
              0 commits 1
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
              2 > 1 do_view_change 1 log_view 0 op 1 commit 0
            deliver 2 1
              1 > 2 request 1..=1
            deliver 1 2
            serve 2
              2 > 1 repair 1v0 in view 1
            deliver 2 1
            store 1
            durable 1
              1 stores view 1 log_view 1
            store 1
              1 > 2 start_view 1 op 1 commit 0
            run
              2 stores view 1 log_view 1
              1 commits 1
              2 commits 1
            state
              0 view 0 log_view 0 op 1 commit 1 primary, disk [1v0]
              1 view 1 log_view 1 op 1 commit 1 primary, disk [1v0]
              2 view 1 log_view 1 op 1 commit 1 backup, disk [1v0]
        "#]],
    );
}

/// Goal: the isolated primary's longer log of view 0 loses against a shorter one of view 1
/// (scenario 4).
#[test]
fn later_log_view_beats_longer_log() {
    check(
        3,
        Mode::Persisted,
        r"
        isolate 0
        prepare 0 4
        durable 0
        suspect 1
        suspect 2
        run
        prepare 1 2
        run
        state
        isolate 1
        rejoin 0
        suspect 2
        isolate 1
        pass 3000
        state
        rejoin 1
        pass 500
        state
        ",
        expect![[r#"
            isolate 0
            prepare 0 4
            durable 0
            suspect 1
              1 > 2 start_view_change 1
            suspect 2
              2 > 1 start_view_change 1
            run
              2 stores view 1 log_view 0
              1 stores view 1 log_view 0
              1 stores view 1 log_view 1
              2 stores view 1 log_view 1
            prepare 1 2
              1 > 2 prepare 1v1 commit 0
              1 > 2 prepare 2v1 commit 0
            run
              1 commits 1
              1 commits 2
              2 commits 1
              2 commits 2
            state
              0 view 0 log_view 0 op 4 commit 0 primary, disk [1v0 2v0 3v0 4v0]
              1 view 1 log_view 1 op 2 commit 2 primary, disk [1v1 2v1]
              2 view 1 log_view 1 op 2 commit 2 backup, disk [1v1 2v1]
            isolate 1
            rejoin 0
            suspect 2
              2 > 0 start_view_change 2
            isolate 1
            pass 3000
              0 stores view 1 log_view 0
              0 stores view 2 log_view 0
              2 stores view 2 log_view 1
              2 stores view 2 log_view 2
              0 cuts its log after 0
              0 commits 1
              0 commits 2
              0 stores view 2 log_view 2
            state
              0 view 2 log_view 2 op 2 commit 2 backup, disk [1v1 2v1]
              1 view 1 log_view 1 op 2 commit 2 primary, disk [1v1 2v1]
              2 view 2 log_view 2 op 2 commit 2 primary, disk [1v1 2v1]
            rejoin 1
            pass 500
              1 stores view 2 log_view 1
              1 stores view 2 log_view 2
            state
              0 view 2 log_view 2 op 2 commit 2 backup, disk [1v1 2v1]
              1 view 2 log_view 2 op 2 commit 2 backup, disk [1v1 2v1]
              2 view 2 log_view 2 op 2 commit 2 primary, disk [1v1 2v1]
        "#]],
    );
}

/// Goal: a suffix that conflicts with start_view is cut and replaced; log_view is stored once the
/// cut and the new log are durable.
#[test]
fn log_view_waits_for_the_cut() {
    check(
        3,
        Mode::Persisted,
        r"
        isolate 0
        prepare 0 2
        durable 0
        suspect 1
        suspect 2
        run
        prepare 1
        run
        connect 0 1
        deliver 1 0
        store 0
        deliver 0 1
        deliver 1 0
        deliver 0 1
        serve 1
        deliver 1 0
        state
        write 0
        write 0
        state
        sync 0
        store 0
        run
        state
        ",
        expect![[r#"
            isolate 0
            prepare 0 2
            durable 0
            suspect 1
              1 > 2 start_view_change 1
            suspect 2
              2 > 1 start_view_change 1
            run
              2 stores view 1 log_view 0
              1 stores view 1 log_view 0
              1 stores view 1 log_view 1
              2 stores view 1 log_view 1
            prepare 1
              1 > 2 prepare 1v1 commit 0
            run
              1 commits 1
              2 commits 1
            connect 0 1
            deliver 1 0
              0 stores view 1 log_view 0
            store 0
              0 > 1 do_view_change 1 log_view 0 op 2 commit 0
            deliver 0 1
              1 > 0 start_view 1 op 1 commit 1
              1 > 0 start_view 1 op 1 commit 1
            deliver 1 0
              0 cuts its log after 0
              0 > 1 request 1..=1
            deliver 0 1
            serve 1
              1 > 0 repair 1v1 in view 1
            deliver 1 0
              0 commits 1
            state
              0 view 1 log_view 0 op 1 commit 1 view change, disk [1v0 2v0]
              1 view 1 log_view 1 op 1 commit 1 primary, disk [1v1]
              2 view 1 log_view 1 op 1 commit 1 backup, disk [1v1]
            write 0
            write 0
            state
              0 view 1 log_view 0 op 1 commit 1 view change, disk [1v1]
              1 view 1 log_view 1 op 1 commit 1 primary, disk [1v1]
              2 view 1 log_view 1 op 1 commit 1 backup, disk [1v1]
            sync 0
              0 stores view 1 log_view 1
            store 0
              0 > 1 prepare_ok 1 view 1
            run
            state
              0 view 1 log_view 1 op 1 commit 1 backup, disk [1v1]
              1 view 1 log_view 1 op 1 commit 1 primary, disk [1v1]
              2 view 1 log_view 1 op 1 commit 1 backup, disk [1v1]
        "#]],
    );
}

/// Goal: a new primary whose log is not yet durable does not store log_view; a crash leaves it in
/// the old one (scenario 2).
#[test]
fn log_view_waits_for_the_log() {
    check(
        3,
        Mode::Persisted,
        r"
        prepare 0 2
        durable 0
        deliver 0 1
        deliver 0 2
        durable 2
        deliver 2 0
        isolate 0
        suspect 1
        suspect 2
        deliver 1 2
        deliver 2 1
        store 1
        store 2
        deliver 2 1
        state
        crash 1
        restart 1
        state
        pass 3000
        state
        ",
        expect![[r#"
            prepare 0 2
              0 > 1 prepare 1v0 commit 0
              0 > 2 prepare 1v0 commit 0
              0 > 1 prepare 2v0 commit 0
              0 > 2 prepare 2v0 commit 0
            durable 0
            deliver 0 1
            deliver 0 2
            durable 2
              2 > 0 prepare_ok 1 view 0
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
            state
              0 view 0 log_view 0 op 2 commit 2 primary, disk [1v0 2v0]
              1 view 1 log_view 0 op 2 commit 0 view change, disk []
              2 view 1 log_view 0 op 2 commit 0 view change, disk [1v0 2v0]
            crash 1
            restart 1
            state
              0 view 0 log_view 0 op 2 commit 2 primary, disk [1v0 2v0]
              1 view 1 log_view 0 op 0 commit 0 view change, disk []
              2 view 1 log_view 0 op 2 commit 0 view change, disk [1v0 2v0]
            pass 3000
              0 stores view 1 log_view 0
              1 commits 1
              1 commits 2
              1 stores view 1 log_view 1
              0 stores view 1 log_view 1
              2 commits 1
              2 commits 2
              2 stores view 1 log_view 1
            state
              0 view 1 log_view 1 op 2 commit 2 backup, disk [1v0 2v0]
              1 view 1 log_view 1 op 2 commit 2 primary, disk [1v0 2v0]
              2 view 1 log_view 1 op 2 commit 2 backup, disk [1v0 2v0]
        "#]],
    );
}

/// Goal: a replica that crashes before its view is durable has not voted (scenario 3).
#[test]
fn no_vote_before_the_view_is_durable() {
    check(
        3,
        Mode::Persisted,
        r"
        isolate 0
        suspect 1
        suspect 2
        deliver 1 2
        crash 2
        restart 2
        state
        pass 1500
        state
        ",
        expect![[r#"
            isolate 0
            suspect 1
              1 > 2 start_view_change 1
            suspect 2
              2 > 1 start_view_change 1
            deliver 1 2
              2 stores view 1 log_view 0
            crash 2
            restart 2
            state
              0 view 0 log_view 0 op 0 commit 0 primary, disk []
              1 view 0 log_view 0 op 0 commit 0 backup, disk []
              2 view 0 log_view 0 op 0 commit 0 backup, disk []
            pass 1500
            state
              0 view 0 log_view 0 op 0 commit 0 primary, disk []
              1 view 0 log_view 0 op 0 commit 0 backup, disk []
              2 view 0 log_view 0 op 0 commit 0 backup, disk []
        "#]],
    );
}

/// Goal: it wakes with acknowledgements of its old view in its queue and prepares more (scenario
/// 35).
#[test]
fn a_paused_primary_commits_nothing_in_its_old_view() {
    check(
        3,
        Mode::Persisted,
        r"
        prepare 0
        deliver 0 1
        deliver 0 2
        suspect 1
        suspect 2
        deliver 1 2
        deliver 2 1
        store 1
        store 2
        durable 1
        durable 2
        deliver 2 1
        store 1
        deliver 1 2
        store 2
        prepare 0
        durable 0
        state
        run
        state
        ",
        expect![[r#"
            prepare 0
              0 > 1 prepare 1v0 commit 0
              0 > 2 prepare 1v0 commit 0
            deliver 0 1
            deliver 0 2
            suspect 1
              1 > 0 start_view_change 1
              1 > 2 start_view_change 1
            suspect 2
              2 > 0 start_view_change 1
              2 > 1 start_view_change 1
            deliver 1 2
              2 stores view 1 log_view 0
            deliver 2 1
              1 stores view 1 log_view 0
            store 1
            store 2
              2 > 1 do_view_change 1 log_view 0 op 1 commit 0
            durable 1
            durable 2
            deliver 2 1
              1 stores view 1 log_view 1
            store 1
              1 > 0 start_view 1 op 1 commit 0
              1 > 2 start_view 1 op 1 commit 0
            deliver 1 2
              2 stores view 1 log_view 1
            store 2
              2 > 1 prepare_ok 1 view 1
            prepare 0
              0 > 1 prepare 2v0 commit 0
              0 > 2 prepare 2v0 commit 0
            durable 0
            state
              0 view 0 log_view 0 op 2 commit 0 primary, disk [1v0 2v0]
              1 view 1 log_view 1 op 1 commit 0 primary, not serving, disk [1v0]
              2 view 1 log_view 1 op 1 commit 0 backup, disk [1v0]
            run
              0 stores view 1 log_view 0
              0 cuts its log after 1
              1 commits 1
              0 stores view 1 log_view 1
              0 commits 1
              2 commits 1
            state
              0 view 1 log_view 1 op 1 commit 1 backup, disk [1v0]
              1 view 1 log_view 1 op 1 commit 1 primary, disk [1v0]
              2 view 1 log_view 1 op 1 commit 1 backup, disk [1v0]
        "#]],
    );
}

/// Goal: view 1's primary is dead too; five replicas reach view 2.
#[test]
fn a_silent_new_primary_is_passed_over() {
    check(
        5,
        Mode::Persisted,
        r"
        prepare 0
        run
        isolate 0
        isolate 1
        suspect 2
        suspect 3
        suspect 4
        run
        state
        pass 4000
        state
        ",
        expect![[r#"
            prepare 0
              0 > 1 prepare 1v0 commit 0
              0 > 2 prepare 1v0 commit 0
              0 > 3 prepare 1v0 commit 0
              0 > 4 prepare 1v0 commit 0
            run
              0 commits 1
              1 commits 1
              2 commits 1
              3 commits 1
              4 commits 1
            isolate 0
            isolate 1
            suspect 2
              2 > 3 start_view_change 1
              2 > 4 start_view_change 1
            suspect 3
              3 > 2 start_view_change 1
              3 > 4 start_view_change 1
            suspect 4
              4 > 2 start_view_change 1
              4 > 3 start_view_change 1
            run
              4 stores view 1 log_view 0
              2 stores view 1 log_view 0
              3 stores view 1 log_view 0
            state
              0 view 0 log_view 0 op 1 commit 1 primary, disk [1v0]
              1 view 0 log_view 0 op 1 commit 1 backup, disk [1v0]
              2 view 1 log_view 0 op 1 commit 1 view change, disk [1v0]
              3 view 1 log_view 0 op 1 commit 1 view change, disk [1v0]
              4 view 1 log_view 0 op 1 commit 1 view change, disk [1v0]
            pass 4000
              2 stores view 2 log_view 0
              3 stores view 2 log_view 0
              4 stores view 2 log_view 0
              2 stores view 2 log_view 2
              3 stores view 2 log_view 2
              4 stores view 2 log_view 2
            state
              0 view 0 log_view 0 op 1 commit 1 primary, disk [1v0]
              1 view 0 log_view 0 op 1 commit 1 backup, disk [1v0]
              2 view 2 log_view 2 op 1 commit 1 primary, disk [1v0]
              3 view 2 log_view 2 op 1 commit 1 backup, disk [1v0]
              4 view 2 log_view 2 op 1 commit 1 backup, disk [1v0]
        "#]],
    );
}

/// Goal: after a cut of as many ops as headers are kept, votes and start_view name the head.
#[test]
fn a_log_cut_back_to_its_commit_can_still_be_told() {
    check(
        3,
        Mode::Persisted,
        r"
        prepare 0
        run
        isolate 0
        prepare 0 4
        durable 0
        suspect 1
        suspect 2
        run
        rejoin 0
        run
        state
        isolate 1
        suspect 0
        suspect 2
        run
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
            prepare 0 4
            durable 0
            suspect 1
              1 > 2 start_view_change 1
            suspect 2
              2 > 1 start_view_change 1
            run
              2 stores view 1 log_view 0
              1 stores view 1 log_view 0
              1 stores view 1 log_view 1
              2 stores view 1 log_view 1
            rejoin 0
            run
              0 stores view 1 log_view 0
              0 cuts its log after 1
              0 stores view 1 log_view 1
            state
              0 view 1 log_view 1 op 1 commit 1 backup, disk [1v0]
              1 view 1 log_view 1 op 1 commit 1 primary, disk [1v0]
              2 view 1 log_view 1 op 1 commit 1 backup, disk [1v0]
            isolate 1
            suspect 0
              0 > 2 start_view_change 2
            suspect 2
              2 > 0 start_view_change 2
            run
              2 stores view 2 log_view 1
              0 stores view 2 log_view 1
              2 stores view 2 log_view 2
              0 stores view 2 log_view 2
            state
              0 view 2 log_view 2 op 1 commit 1 backup, disk [1v0]
              1 view 1 log_view 1 op 1 commit 1 primary, disk [1v0]
              2 view 2 log_view 2 op 1 commit 1 primary, disk [1v0]
        "#]],
    );
}
