//! Transcripts of normal operation and of group sizes.

mod cluster;
mod transcript;

use cluster::Mode;
use expect_test::expect;
use transcript::check;

/// Goal: a written op is not acknowledged before the sync, when the mode asks for one.
#[test]
fn backup_acks_only_after_durable() {
    check(
        3,
        Mode::Persisted,
        r"
        prepare 0
        deliver 0 1
        write 1
        sync 1
        deliver 1 0
        write 0
        sync 0
        run
        state
        ",
        expect![[r#"
            prepare 0
              0 > 1 prepare 1v0 commit 0
              0 > 2 prepare 1v0 commit 0
            deliver 0 1
            write 1
            sync 1
              1 > 0 prepare_ok 1 view 0
            deliver 1 0
            write 0
            sync 0
              0 commits 1
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

/// Goal: in replicated mode the page cache is durable enough.
#[test]
fn replicated_mode_acks_what_is_written() {
    check(
        3,
        Mode::Replicated,
        r"
        prepare 0
        deliver 0 1
        write 1
        deliver 1 0
        run
        state
        ",
        expect![[r#"
            prepare 0
              0 > 1 prepare 1v0 commit 0
              0 > 2 prepare 1v0 commit 0
            deliver 0 1
            write 1
              1 > 0 prepare_ok 1 view 0
            deliver 1 0
            run
              0 commits 1
              1 commits 1
              2 commits 1
            state
              0 view 0 log_view 0 op 1 commit 1 primary, disk [1v0]
              1 view 0 log_view 0 op 1 commit 1 backup, disk [1v0]
              2 view 0 log_view 0 op 1 commit 1 backup, disk [1v0]
        "#]],
    );
}

/// Goal: prepare_ok is cumulative, a lost one is made good by the next.
#[test]
fn one_prepare_ok_acknowledges_all_before_it() {
    check(
        3,
        Mode::Persisted,
        r"
        prepare 0 2
        durable 0
        deliver 0 1 1
        durable 1
        lose 1 0
        deliver 0 1
        durable 1
        deliver 1 0
        state
        ",
        expect![[r#"
            prepare 0 2
              0 > 1 prepare 1v0 commit 0
              0 > 2 prepare 1v0 commit 0
              0 > 1 prepare 2v0 commit 0
              0 > 2 prepare 2v0 commit 0
            durable 0
            deliver 0 1 1
            durable 1
              1 > 0 prepare_ok 1 view 0
            lose 1 0
            deliver 0 1
            durable 1
              1 > 0 prepare_ok 2 view 0
            deliver 1 0
              0 commits 1
              0 commits 2
            state
              0 view 0 log_view 0 op 2 commit 2 primary, disk [1v0 2v0]
              1 view 0 log_view 0 op 2 commit 0 backup, disk [1v0 2v0]
              2 view 0 log_view 0 op 0 commit 0 backup, disk []
        "#]],
    );
}

/// Goal: a gap is seen at the next prepare and filled from a peer.
#[test]
fn lost_prepare_is_repaired() {
    check(
        3,
        Mode::Persisted,
        r"
        prepare 0
        lose 0 1
        prepare 0
        deliver 0 1
        state
        pass 300
        state
        ",
        expect![[r#"
            prepare 0
              0 > 1 prepare 1v0 commit 0
              0 > 2 prepare 1v0 commit 0
            lose 0 1
            prepare 0
              0 > 1 prepare 2v0 commit 0
              0 > 2 prepare 2v0 commit 0
            deliver 0 1
              1 > 2 request 1..=2
            state
              0 view 0 log_view 0 op 2 commit 0 primary, disk []
              1 view 0 log_view 0 op 0 commit 0 backup, disk []
              2 view 0 log_view 0 op 0 commit 0 backup, disk []
            pass 300
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

/// Goal: nothing follows the lost prepare; the status of a new link tells.
#[test]
fn lost_prepare_of_an_idle_group_is_repaired_on_reconnect() {
    check(
        3,
        Mode::Persisted,
        r"
        prepare 0
        lose 0 1
        lose 0 2
        connect 0 1
        connect 0 2
        pass 300
        state
        ",
        expect![[r#"
            prepare 0
              0 > 1 prepare 1v0 commit 0
              0 > 2 prepare 1v0 commit 0
            lose 0 1
            lose 0 2
            connect 0 1
            connect 0 2
            pass 300
              0 commits 1
              2 commits 1
              1 commits 1
            state
              0 view 0 log_view 0 op 1 commit 1 primary, disk [1v0]
              1 view 0 log_view 0 op 1 commit 1 backup, disk [1v0]
              2 view 0 log_view 0 op 1 commit 1 backup, disk [1v0]
        "#]],
    );
}

/// Goal: a primary that hears nobody stops after `pipeline_max` ops.
#[test]
fn pipeline_is_bounded() {
    check(
        3,
        Mode::Persisted,
        r"
        isolate 0
        prepare 0 5
        state
        ",
        expect![[r#"
            isolate 0
            prepare 0 5
              0 may not prepare
            state
              0 view 0 log_view 0 op 4 commit 0 primary, disk []
              1 view 0 log_view 0 op 0 commit 0 backup, disk []
              2 view 0 log_view 0 op 0 commit 0 backup, disk []
        "#]],
    );
}

/// Goal: n = 1 needs nobody, and recovers as its own primary.
#[test]
fn one_replica_commits_what_is_durable() {
    check(
        1,
        Mode::Persisted,
        r"
        prepare 0 2
        write 0
        sync 0
        crash 0
        restart 0
        prepare 0
        durable 0
        state
        ",
        expect![[r#"
            prepare 0 2
            write 0
            sync 0
              0 commits 1
            crash 0
            restart 0
              0 commits 1
            prepare 0
            durable 0
              0 commits 2
            state
              0 view 0 log_view 0 op 2 commit 2 primary, disk [1v0 2v0]
        "#]],
    );
}

/// Goal: n = 2 commits alone, but no view begins without both.
#[test]
fn two_replicas_commit_with_one_copy_and_change_views_with_two() {
    check(
        2,
        Mode::Persisted,
        r"
        isolate 1
        prepare 0
        durable 0
        suspect 1
        pass 3000
        state
        rejoin 1
        pass 300
        state
        ",
        expect![[r#"
            isolate 1
            prepare 0
            durable 0
              0 commits 1
            suspect 1
            pass 3000
            state
              0 view 0 log_view 0 op 1 commit 1 primary, disk [1v0]
              1 view 0 log_view 0 op 0 commit 0 backup, disk []
            rejoin 1
            pass 300
              1 commits 1
            state
              0 view 0 log_view 0 op 1 commit 1 primary, disk [1v0]
              1 view 0 log_view 0 op 1 commit 1 backup, disk [1v0]
        "#]],
    );
}

/// Goal: n = 4 has a replication quorum of two and a view-change quorum of three.
#[test]
fn four_replicas_commit_with_two_copies_and_change_views_with_three() {
    check(
        4,
        Mode::Persisted,
        r"
        prepare 0
        durable 0
        deliver 0 1
        durable 1
        deliver 1 0
        crash 0
        suspect 1
        suspect 2
        deliver 1 2
        deliver 2 1
        state
        suspect 3
        run
        state
        ",
        expect![[r#"
            prepare 0
              0 > 1 prepare 1v0 commit 0
              0 > 2 prepare 1v0 commit 0
              0 > 3 prepare 1v0 commit 0
            durable 0
            deliver 0 1
            durable 1
              1 > 0 prepare_ok 1 view 0
            deliver 1 0
              0 commits 1
            crash 0
            suspect 1
              1 > 2 start_view_change 1
              1 > 3 start_view_change 1
            suspect 2
              2 > 1 start_view_change 1
              2 > 3 start_view_change 1
            deliver 1 2
            deliver 2 1
            state
              0 down, disk [1v0]
              1 view 0 log_view 0 op 1 commit 0 backup, disk [1v0]
              2 view 0 log_view 0 op 0 commit 0 backup, disk []
              3 view 0 log_view 0 op 0 commit 0 backup, disk []
            suspect 3
              3 > 1 start_view_change 1
              3 > 2 start_view_change 1
            run
              3 stores view 1 log_view 0
              1 stores view 1 log_view 0
              2 stores view 1 log_view 0
              1 stores view 1 log_view 1
              2 stores view 1 log_view 1
              3 stores view 1 log_view 1
              1 commits 1
              2 commits 1
              3 commits 1
            state
              0 down, disk [1v0]
              1 view 1 log_view 1 op 1 commit 1 primary, disk [1v0]
              2 view 1 log_view 1 op 1 commit 1 backup, disk [1v0]
              3 view 1 log_view 1 op 1 commit 1 backup, disk [1v0]
        "#]],
    );
}

/// Goal: prepare_ok names what is held; one of another op 1, or of another view, commits nothing.
#[test]
fn an_acknowledgement_of_another_identity_does_not_count() {
    check(
        3,
        Mode::Persisted,
        r"
        prepare 0
        durable 0
        forge 1 0 1 0
        deliver 1 0
        forge 1 0 1 3
        deliver 1 0
        state
        ",
        expect![[r#"
            prepare 0
              0 > 1 prepare 1v0 commit 0
              0 > 2 prepare 1v0 commit 0
            durable 0
            forge 1 0 1 0
              1 > 0 prepare_ok 1 view 0
            deliver 1 0
            forge 1 0 1 3
              1 > 0 prepare_ok 1 view 3
            deliver 1 0
            state
              0 view 0 log_view 0 op 1 commit 0 primary, disk [1v0]
              1 view 0 log_view 0 op 0 commit 0 backup, disk []
              2 view 0 log_view 0 op 0 commit 0 backup, disk []
        "#]],
    );
}
