//! Transcripts of suspicions, wishes and abdications.

mod cluster;
mod transcript;

use cluster::Mode;
use expect_test::expect;
use transcript::check;

/// Goal: a replica that can send but not receive wishes for ever; nobody follows, no state
/// changes (scenario 27).
#[test]
fn a_wish_alone_changes_nothing() {
    check(
        3,
        Mode::Persisted,
        r"
        cut 0 2
        cut 1 2
        suspect 2
        pass 2000
        prepare 0
        run
        state
        connect 0 2
        connect 1 2
        run
        state
        ",
        expect![[r#"
            cut 0 2
            cut 1 2
            suspect 2
              2 > 0 start_view_change 1
              2 > 1 start_view_change 1
            pass 2000
            prepare 0
              0 > 1 prepare 1v0 commit 0
            run
              0 commits 1
              1 commits 1
            state
              0 view 0 log_view 0 op 1 commit 1 primary, disk [1v0]
              1 view 0 log_view 0 op 1 commit 1 backup, disk [1v0]
              2 view 0 log_view 0 op 0 commit 0 backup, disk []
            connect 0 2
            connect 1 2
            run
              2 commits 1
            state
              0 view 0 log_view 0 op 1 commit 1 primary, disk [1v0]
              1 view 0 log_view 0 op 1 commit 1 backup, disk [1v0]
              2 view 0 log_view 0 op 1 commit 1 backup, disk [1v0]
        "#]],
    );
}

/// Goal: a wrong suspicion on a link that stands ends with the next heartbeats; the wish does not
/// linger.
#[test]
fn a_wish_ends_when_the_primary_is_heard() {
    check(
        3,
        Mode::Persisted,
        r"
        suspect 1
        run
        suspect 2
        run
        pass 1000
        state
        ",
        expect![[r#"
            suspect 1
              1 > 0 start_view_change 1
              1 > 2 start_view_change 1
            run
            suspect 2
              2 > 0 start_view_change 1
              2 > 1 start_view_change 1
            run
            pass 1000
            state
              0 view 0 log_view 0 op 0 commit 0 primary, disk []
              1 view 0 log_view 0 op 0 commit 0 backup, disk []
              2 view 0 log_view 0 op 0 commit 0 backup, disk []
        "#]],
    );
}

/// Goal: five replicas, three wishes; the statuses between them do not make peers forget one.
#[test]
fn heartbeats_do_not_withdraw_a_wish() {
    check(
        5,
        Mode::Persisted,
        r"
        isolate 0
        suspect 1
        run
        suspect 2
        run
        suspect 3
        run
        state
        ",
        expect![[r#"
            isolate 0
            suspect 1
              1 > 2 start_view_change 1
              1 > 3 start_view_change 1
              1 > 4 start_view_change 1
            run
            suspect 2
              2 > 1 start_view_change 1
              2 > 3 start_view_change 1
              2 > 4 start_view_change 1
            run
            suspect 3
              3 > 1 start_view_change 1
              3 > 2 start_view_change 1
              3 > 4 start_view_change 1
              3 stores view 1 log_view 0
            run
              1 stores view 1 log_view 0
              2 stores view 1 log_view 0
              4 stores view 1 log_view 0
              1 stores view 1 log_view 1
              2 stores view 1 log_view 1
              3 stores view 1 log_view 1
              4 stores view 1 log_view 1
            state
              0 view 0 log_view 0 op 0 commit 0 primary, disk []
              1 view 1 log_view 1 op 0 commit 0 primary, disk []
              2 view 1 log_view 1 op 0 commit 0 backup, disk []
              3 view 1 log_view 1 op 0 commit 0 backup, disk []
              4 view 1 log_view 1 op 0 commit 0 backup, disk []
        "#]],
    );
}

/// Goal: n = 2; a wish from before a cut is forgotten once its replica hears the primary.
#[test]
fn two_replicas_outlive_a_stale_wish() {
    check(
        2,
        Mode::Persisted,
        r"
        suspect 1
        deliver 1 0
        connect 0 1
        run
        pass 1000
        state
        prepare 0
        run
        state
        ",
        expect![[r#"
            suspect 1
              1 > 0 start_view_change 1
            deliver 1 0
            connect 0 1
            run
            pass 1000
            state
              0 view 0 log_view 0 op 0 commit 0 primary, disk []
              1 view 0 log_view 0 op 0 commit 0 backup, disk []
            prepare 0
              0 > 1 prepare 1v0 commit 0
            run
              0 commits 1
              1 commits 1
            state
              0 view 0 log_view 0 op 1 commit 1 primary, disk [1v0]
              1 view 0 log_view 0 op 1 commit 1 backup, disk [1v0]
        "#]],
    );
}

/// Goal: it sends but does not receive, so backups never suspect it; its status tells them
/// (scenario 26).
#[test]
fn a_primary_that_hears_nobody_abdicates() {
    check(
        3,
        Mode::Persisted,
        r"
        cut 1 0
        cut 2 0
        prepare 0
        abdicate 0
        prepare 0
        run
        state
        connect 0 1
        connect 0 2
        pass 1000
        state
        ",
        expect![[r#"
            cut 1 0
            cut 2 0
            prepare 0
              0 > 1 prepare 1v0 commit 0
              0 > 2 prepare 1v0 commit 0
            abdicate 0
              0 > 1 start_view_change 1
              0 > 2 start_view_change 1
            prepare 0
              0 may not prepare
            run
              1 stores view 1 log_view 0
              2 stores view 1 log_view 0
              1 stores view 1 log_view 1
              2 stores view 1 log_view 1
              1 commits 1
              2 commits 1
            state
              0 view 0 log_view 0 op 1 commit 0 primary, not serving, disk [1v0]
              1 view 1 log_view 1 op 1 commit 1 primary, disk [1v0]
              2 view 1 log_view 1 op 1 commit 1 backup, disk [1v0]
            connect 0 1
            connect 0 2
            pass 1000
              0 stores view 1 log_view 0
              0 commits 1
              0 stores view 1 log_view 1
            state
              0 view 1 log_view 1 op 1 commit 1 backup, disk [1v0]
              1 view 1 log_view 1 op 1 commit 1 primary, disk [1v0]
              2 view 1 log_view 1 op 1 commit 1 backup, disk [1v0]
        "#]],
    );
}

/// Goal: an isolated primary of view 0 learns of view 1 from a status, without any op (scenario
/// 25).
#[test]
fn two_idle_primaries_find_each_other() {
    check(
        3,
        Mode::Persisted,
        r"
        isolate 0
        suspect 1
        suspect 2
        run
        state
        rejoin 0
        run
        state
        ",
        expect![[r#"
            isolate 0
            suspect 1
              1 > 2 start_view_change 1
            suspect 2
              2 > 1 start_view_change 1
            run
              2 stores view 1 log_view 0
              1 stores view 1 log_view 0
              1 stores view 1 log_view 1
              2 stores view 1 log_view 1
            state
              0 view 0 log_view 0 op 0 commit 0 primary, disk []
              1 view 1 log_view 1 op 0 commit 0 primary, disk []
              2 view 1 log_view 1 op 0 commit 0 backup, disk []
            rejoin 0
            run
              0 stores view 1 log_view 0
              0 stores view 1 log_view 1
            state
              0 view 1 log_view 1 op 0 commit 0 backup, disk []
              1 view 1 log_view 1 op 0 commit 0 primary, disk []
              2 view 1 log_view 1 op 0 commit 0 backup, disk []
        "#]],
    );
}

/// Goal: its view begins nowhere and the next one does.
#[test]
fn a_primary_that_abdicates_before_its_view_is_durable_wishes_on() {
    check(
        3,
        Mode::Persisted,
        r"
        isolate 0
        suspect 1
        suspect 2
        deliver 1 2
        deliver 2 1
        store 1
        store 2
        deliver 2 1
        abdicate 1
        store 1
        state
        pass 3000
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
            deliver 2 1
              1 stores view 1 log_view 0
            store 1
            store 2
              2 > 1 do_view_change 1 log_view 0 op 0 commit 0
            deliver 2 1
              1 stores view 1 log_view 1
            abdicate 1
              1 > 2 start_view_change 2
            store 1
            state
              0 view 0 log_view 0 op 0 commit 0 primary, disk []
              1 view 1 log_view 1 op 0 commit 0 primary, not serving, disk []
              2 view 1 log_view 0 op 0 commit 0 view change, disk []
            pass 3000
              2 stores view 2 log_view 0
              1 stores view 2 log_view 1
              2 stores view 2 log_view 2
              1 stores view 2 log_view 2
            state
              0 view 0 log_view 0 op 0 commit 0 primary, disk []
              1 view 2 log_view 2 op 0 commit 0 backup, disk []
              2 view 2 log_view 2 op 0 commit 0 primary, disk []
        "#]],
    );
}

/// Goal: a backup suspects the primary while it fetches the log, gets the rest from another, and
/// still wishes: silence is not told twice.
#[test]
fn a_wish_outlives_the_end_of_an_install() {
    check(
        3,
        Mode::Persisted,
        r"
        isolate 2
        prepare 0 2
        run
        abdicate 0
        run
        connect 1 2
        deliver 1 2
        store 2
        deliver 2 1
        deliver 1 2
        isolate 1
        suspect 2
        connect 0 2
        pass 1200
        state
        suspect 0
        pass 3000
        state
        ",
        expect![[r#"
            isolate 2
            prepare 0 2
              0 > 1 prepare 1v0 commit 0
              0 > 1 prepare 2v0 commit 0
            run
              0 commits 1
              0 commits 2
              1 commits 1
              1 commits 2
            abdicate 0
              0 > 1 start_view_change 1
            run
              1 stores view 1 log_view 0
              0 stores view 1 log_view 0
              1 stores view 1 log_view 1
              0 stores view 1 log_view 1
            connect 1 2
            deliver 1 2
              2 stores view 1 log_view 0
            store 2
              2 > 1 do_view_change 1 log_view 0 op 0 commit 0
            deliver 2 1
              1 > 2 start_view 1 op 2 commit 2
              1 > 2 start_view 1 op 2 commit 2
            deliver 1 2
              2 > 1 request 1..=2
            isolate 1
            suspect 2
            connect 0 2
            pass 1200
              2 commits 1
              2 commits 2
              2 stores view 1 log_view 1
            state
              0 view 1 log_view 1 op 2 commit 2 backup, disk [1v0 2v0]
              1 view 1 log_view 1 op 2 commit 2 primary, disk [1v0 2v0]
              2 view 1 log_view 1 op 2 commit 2 backup, disk [1v0 2v0]
            suspect 0
              0 > 2 start_view_change 2
              0 stores view 2 log_view 1
            pass 3000
              2 stores view 2 log_view 1
              2 stores view 2 log_view 2
              0 stores view 2 log_view 2
            state
              0 view 2 log_view 2 op 2 commit 2 backup, disk [1v0 2v0]
              1 view 1 log_view 1 op 2 commit 2 primary, disk [1v0 2v0]
              2 view 2 log_view 2 op 2 commit 2 primary, disk [1v0 2v0]
        "#]],
    );
}
