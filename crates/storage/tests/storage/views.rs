//! Claims about the view store.

use base::{Domain, GroupId, Op, Prng, ReplicaIndex, ShardIndex, View};
use platform::{DiskError, DiskRequest, Outbox, Path};
use storage::{FileIds, ViewStore, ViewStoreConfig, ViewStoreEvent, Views, ViewsIdentity};
use wire::replica::Trust;

use crate::disk::Disk;

const FILE: &str = "shard-1/views.log";

fn identity() -> ViewsIdentity {
    ViewsIdentity {
        cluster: 5,
        replica: ReplicaIndex(1),
        replica_count: 3,
        shard: ShardIndex(1),
        shard_count: 2,
    }
}

fn group(number: u64) -> GroupId {
    GroupId::partition(Op(number + 1), 0)
}

/// What is put for a view: its half as that of the log, with every trust in turn.
fn views(view: u32) -> Views {
    Views {
        view: View(view),
        log_view: View(view / 2),
        trust: [Trust::Doubt, Trust::Trusted, Trust::Blank][view as usize % 3],
    }
}

struct Harness {
    disk: Disk,
    store: ViewStore,
    files: FileIds,
    out: Outbox,
    events: Vec<ViewStoreEvent>,
}

impl Harness {
    fn opening(disk: Disk, boot_id: u128, identity: ViewsIdentity) -> Self {
        let mut out = Outbox::new();
        let directory = Path::from("shard-1");
        let config = ViewStoreConfig {
            directory,
            owner: 3,
            identity,
            boot_id,
            compaction_size_min: 64 << 10,
        };
        let store = ViewStore::open(config, &mut out);
        Self {
            disk,
            store,
            files: FileIds::default(),
            out,
            events: Vec::new(),
        }
    }

    fn with(disk: Disk, boot_id: u128, identity: ViewsIdentity) -> Self {
        let mut harness = Self::opening(disk, boot_id, identity);
        harness.run();
        harness
    }

    fn on(disk: Disk, boot_id: u128) -> Self {
        Self::with(disk, boot_id, identity())
    }

    fn new() -> Self {
        Self::on(Disk::new(1), 1)
    }

    fn step(&mut self) -> bool {
        self.disk.submit(&mut self.out);
        let Some(done) = self.disk.step() else {
            return false;
        };
        self.store
            .on_disk(done, &mut self.files, &mut self.out, &mut self.events);
        true
    }

    fn run(&mut self) {
        while self.step() {}
    }

    /// The disk as a process crash leaves it.
    fn crash(mut self) -> Disk {
        self.disk.submit(&mut self.out);
        self.disk.crash();
        self.disk
    }

    /// The disk as a power loss leaves it.
    fn power_loss(mut self) -> Disk {
        self.disk.submit(&mut self.out);
        self.disk.power_loss();
        self.disk
    }

    fn put(&mut self, number: u64, view: u32) {
        self.store.put(group(number), views(view));
        self.store.submit(&mut self.out);
    }

    fn view(&self, number: u64) -> Option<u32> {
        self.store.get(group(number)).map(|found| {
            assert_eq!(found, views(found.view.0));
            found.view.0
        })
    }

    fn power_lost(&self) -> bool {
        let answer = |event: &ViewStoreEvent| match event {
            ViewStoreEvent::Recovered { power_lost, .. } => Some(*power_lost),
            _ => None,
        };
        self.events
            .iter()
            .find_map(answer)
            .expect("recovery has ended")
    }
}

#[test]
fn views_told_durable_survive_a_power_loss_at_any_step() {
    for steps in 0..12 {
        let mut harness = Harness::new();
        harness.put(1, 4);
        harness.run();
        harness.put(1, 6);
        harness.put(2, 8);
        harness.put(2, 10);
        for _ in 0..steps {
            harness.step();
        }
        let durable = |harness: &Harness, number, view: u32| {
            let (group, views) = (group(number), views(view));
            harness
                .events
                .contains(&ViewStoreEvent::Durable { group, views })
        };
        let least_1 = if durable(&harness, 1, 6) { 6 } else { 4 };
        let least_2 = [10, 8].into_iter().find(|view| durable(&harness, 2, *view));
        let harness = Harness::on(harness.power_loss(), 2);
        assert!(harness.view(1) >= Some(least_1));
        assert!(harness.view(2) >= least_2);
        assert!(harness.power_lost());
    }
}

#[test]
fn puts_of_one_turn_cost_one_write_and_one_sync() {
    let mut harness = Harness::new();
    harness.disk.trace.clear();
    for number in 0..100 {
        harness.store.put(group(number), views(3));
    }
    harness.store.submit(&mut harness.out);
    harness.run();
    assert_eq!(harness.disk.trace.len(), 2, "{:?}", harness.disk.trace);
    assert_eq!(harness.events.len(), 1 + 100);
}

#[test]
fn a_forgotten_group_stays_forgotten() {
    let mut harness = Harness::new();
    harness.put(1, 4);
    harness.put(2, 4);
    harness.store.forget(group(1));
    harness.store.submit(&mut harness.out);
    harness.run();
    let harness = Harness::on(harness.crash(), 1);
    assert_eq!((harness.view(1), harness.view(2)), (None, Some(4)));
}

#[test]
fn another_identity_is_refused_and_changes_nothing() {
    let harness = Harness::new();
    let content = harness.disk.content(FILE);
    let mut disk = harness.crash();
    for other in [
        ViewsIdentity {
            cluster: 6,
            ..identity()
        },
        ViewsIdentity {
            replica: ReplicaIndex(2),
            ..identity()
        },
        ViewsIdentity {
            replica_count: 5,
            ..identity()
        },
        ViewsIdentity {
            shard_count: 4,
            ..identity()
        },
    ] {
        let harness = Harness::with(disk, 1, other);
        let refused = ViewStoreEvent::IdentityMismatch { found: identity() };
        assert_eq!(harness.events, [refused]);
        assert_eq!(harness.disk.content(FILE), content);
        disk = harness.crash();
    }
}

#[test]
fn a_torn_tail_is_cut_at_every_byte() {
    let mut harness = Harness::new();
    harness.put(1, 4);
    harness.run();
    let durable = harness.disk.content(FILE).len();
    harness.put(1, 6);
    harness.run();
    let whole = harness.disk.content(FILE);
    for end in 0..whole.len() {
        let mut disk = Disk::new(1);
        disk.put(FILE, &whole[..end]);
        let mut harness = Harness::on(disk, 1);
        assert_eq!(
            harness.view(1),
            (end >= durable).then_some(4),
            "cut at {end}"
        );
        harness.put(1, 8);
        harness.run();
        let harness = Harness::on(harness.crash(), 1);
        assert_eq!(harness.view(1), Some(8));
    }
}

#[test]
fn damage_to_a_durable_record_is_not_taken_for_a_torn_tail() {
    let mut harness = Harness::new();
    for view in 1..5 {
        harness.put(1, 2 * view);
        harness.run();
    }
    let whole = harness.disk.content(FILE);
    for at in 0..whole.len() - 64 {
        let mut damaged = whole.clone();
        damaged[at] ^= 8;
        let mut disk = Disk::new(1);
        disk.put(FILE, &damaged);
        let harness = Harness::on(disk, 1);
        let position = at as u64 / 64 * 64;
        assert_eq!(
            harness.events,
            [ViewStoreEvent::Damaged { position }],
            "byte {at}"
        );
        assert_eq!(harness.disk.content(FILE), damaged);
    }
}

#[test]
fn a_power_loss_is_answered_until_the_logs_are_trusted() {
    let mut harness = Harness::new();
    assert!(!harness.power_lost(), "a new store has lost nothing");
    harness.put(1, 4);
    harness.run();
    let harness = Harness::on(harness.crash(), 1);
    assert!(!harness.power_lost(), "a process crash loses nothing");
    let harness = Harness::on(harness.power_loss(), 2);
    assert!(harness.power_lost());
    let mut harness = Harness::on(harness.crash(), 2);
    assert!(harness.power_lost(), "still catching up");
    harness.store.mark_clean(&mut harness.out);
    harness.run();
    let mut harness = Harness::on(harness.crash(), 2);
    assert!(harness.power_lost(), "a stop does not make logs trusted");
    harness.store.trust_logs(&mut harness.out);
    harness.run();
    let harness = Harness::on(harness.crash(), 2);
    assert!(!harness.power_lost());
    assert!(Harness::on(harness.power_loss(), 3).power_lost());
}

#[test]
fn a_clean_stop_forgives_one_new_boot() {
    let mut harness = Harness::new();
    harness.store.mark_clean(&mut harness.out);
    harness.run();
    assert_eq!(harness.events.last(), Some(&ViewStoreEvent::Clean));
    let harness = Harness::on(harness.power_loss(), 2);
    assert!(!harness.power_lost());
    // The mark is used up: this process may have written what it has not synced.
    assert!(Harness::on(harness.power_loss(), 3).power_lost());
    // Also if the boot stays the same.
    let mut harness = Harness::new();
    harness.store.mark_clean(&mut harness.out);
    harness.run();
    let harness = Harness::on(harness.crash(), 1);
    assert!(Harness::on(harness.power_loss(), 2).power_lost());
}

/// A store whose next put makes it compact.
fn before_compaction(seed: u64) -> Harness {
    let mut harness = Harness::on(Disk::new(seed), 1);
    for view in 1..=255 {
        for number in 0..4 {
            harness.store.put(group(number), views(view));
        }
        harness.store.submit(&mut harness.out);
        harness.run();
    }
    let size = harness.disk.content(FILE).len();
    assert!(size <= 64 << 10, "{size}");
    harness
}

#[test]
fn a_clean_stop_is_not_compacted_away() {
    let mut harness = before_compaction(1);
    while harness.disk.content(FILE).len() < 64 << 10 {
        harness.put(1, 600);
        harness.run();
    }
    harness.store.mark_clean(&mut harness.out);
    harness.run();
    assert_eq!(harness.events.last(), Some(&ViewStoreEvent::Clean));
    assert!(harness.disk.content(FILE).len() > 64 << 10);
    let harness = Harness::on(harness.power_loss(), 2);
    assert!(!harness.power_lost());
}

#[test]
fn a_compacted_file_says_the_same_in_less() {
    let mut harness = before_compaction(1);
    for number in 0..4 {
        harness.put(number, 1000);
    }
    harness.run();
    assert!(harness.disk.content(FILE).len() < 1000);
    assert_eq!(harness.disk.names("shard-1"), ["views.log"]);
    assert_eq!(harness.disk.open_files(), 1);
    harness.put(5, 2000);
    harness.run();
    let harness = Harness::on(harness.power_loss(), 1);
    assert!((0..4).all(|number| harness.view(number) == Some(1000)));
    assert_eq!(harness.view(5), Some(2000));
}

#[test]
fn a_crash_at_each_step_of_compaction_loses_nothing() {
    let mut compacted = 0;
    for seed in 0..20 {
        for steps in 0..14 {
            let mut harness = before_compaction(seed);
            for number in 0..4 {
                harness.put(number, 1000);
            }
            for _ in 0..steps {
                if harness.step() && harness.events.len() % 4 == 1 {
                    // Puts amid the compaction.
                    harness.put(0, 1000 + steps);
                }
            }
            compacted += usize::from(harness.disk.names("shard-1").len() == 2);
            let least: Vec<_> = (0..4)
                .map(|number| newest(&harness.events, number))
                .collect();
            let disk = if seed % 2 == 0 {
                harness.power_loss()
            } else {
                harness.crash()
            };
            let mut harness = Harness::on(disk, 1);
            for (number, least) in (0..).zip(least) {
                assert!(harness.view(number) >= least, "seed {seed}, {steps} steps");
            }
            harness.put(7, 3);
            harness.run();
            assert_eq!(Harness::on(harness.crash(), 1).view(7), Some(3));
        }
    }
    assert!(compacted > 20, "the test is about compaction: {compacted}");
}

/// The newest view of a group told to be durable.
fn newest(events: &[ViewStoreEvent], number: u64) -> Option<u32> {
    let view = |event: &ViewStoreEvent| match event {
        ViewStoreEvent::Durable { group: of, views } if *of == group(number) => Some(views.view.0),
        _ => None,
    };
    events.iter().filter_map(view).max()
}

#[test]
fn a_failed_sync_ends_the_store() {
    let mut harness = Harness::new();
    harness.disk.fails = Some((
        |request| matches!(request, DiskRequest::SyncData { .. }),
        DiskError::Io,
    ));
    harness.put(1, 4);
    harness.run();
    assert_eq!(
        harness.events.last(),
        Some(&ViewStoreEvent::Failed(DiskError::Io))
    );
    harness.disk.fails = None;
    harness.events.clear();
    harness.put(1, 6);
    harness.run();
    assert_eq!(harness.events, []);
}

/// What a random walk knows of a store: per group, the newest view put and the newest durable.
#[derive(Default)]
struct Walk {
    put: [u32; 4],
    durable: [u32; 4],
    boot_id: u128,
    /// Whether a power loss has not been made good.
    lost: bool,
    /// Whether a clean stop was durable and nothing has started since.
    clean: bool,
}

impl Walk {
    fn observe(&mut self, harness: &mut Harness) {
        for number in 0..4 {
            let newest = newest(&harness.events, number as u64).unwrap_or(0);
            self.durable[number] = self.durable[number].max(newest);
        }
        harness.events.clear();
    }

    /// Starts a process on what a crash has left, perhaps several times before it gets through.
    fn start(&mut self, mut disk: Disk, prng: &mut Prng) -> Harness {
        while prng.chance(1, 3) {
            let steps = prng.below(14);
            let mut harness = Harness::opening(disk, self.boot_id, identity());
            for _ in 0..steps {
                harness.step();
            }
            // A start that got through uses the mark up.
            let recovered =
                |event: &ViewStoreEvent| matches!(event, ViewStoreEvent::Recovered { .. });
            self.clean &= !harness.events.iter().any(recovered);
            disk = if prng.chance(1, 2) {
                self.boot_id += 1;
                self.lost |= !self.clean;
                harness.power_loss()
            } else {
                harness.crash()
            };
        }
        let mut harness = Harness::on(disk, self.boot_id);
        if self.lost {
            assert!(harness.power_lost());
        }
        self.clean = false;
        for (number, (durable, put)) in (0..).zip(self.durable.iter().zip(self.put)) {
            let view = harness.view(number).unwrap_or(0);
            assert!(*durable <= view && view <= put, "group {number}");
        }
        harness.events.clear();
        harness
    }
}

/// Goal: whatever happens, no durable view is lost, none is invented, nothing is taken for damage,
/// and a power loss is told. Method: random walks, with crashes also amid recovery.
#[test]
fn random_walks_lose_no_durable_view() {
    for seed in 0..300 {
        let mut prng = Prng::new(seed, Domain::Workload, 0);
        let mut walk = Walk {
            boot_id: 1,
            ..Walk::default()
        };
        let mut harness = Harness::on(Disk::new(seed), 1);
        for _ in 0..60 {
            match prng.below(12) {
                0..4 => {
                    for _ in 0..prng.between(1, 200) {
                        let number = prng.index(4);
                        walk.put[number] += 1;
                        let view = walk.put[number];
                        harness.store.put(group(number as u64), views(view));
                    }
                }
                4..6 => harness.store.submit(&mut harness.out),
                6 => {
                    harness.store.trust_logs(&mut harness.out);
                    harness.run();
                    walk.lost = false;
                }
                7 => {
                    harness.store.mark_clean(&mut harness.out);
                    harness.run();
                    walk.observe(&mut harness);
                    walk.clean = !walk.lost;
                    walk.boot_id += 1;
                    harness = walk.start(harness.power_loss(), &mut prng);
                }
                8 => {
                    walk.observe(&mut harness);
                    harness = walk.start(harness.crash(), &mut prng);
                }
                9 => {
                    walk.observe(&mut harness);
                    walk.boot_id += 1;
                    walk.lost = true;
                    harness = walk.start(harness.power_loss(), &mut prng);
                }
                _ => {
                    for _ in 0..prng.below(6) {
                        harness.step();
                    }
                }
            }
        }
    }
}

fn is_founded(harness: &Harness) -> bool {
    let answer = |event: &ViewStoreEvent| match event {
        ViewStoreEvent::Recovered { founded, .. } => Some(*founded),
        _ => None,
    };
    let found = harness.events.iter().find_map(answer);
    let found = found.expect("recovery has ended");
    assert_eq!(found, harness.store.is_founded());
    found
}

#[test]
fn a_store_is_founded_once_and_for_all() {
    let harness = Harness::new();
    assert!(!is_founded(&harness), "a new disk knows nothing");
    let mut harness = Harness::on(harness.crash(), 1);
    assert!(!is_founded(&harness));
    harness.store.found(Op(7));
    harness.store.found(Op(9));
    harness.put(1, 4);
    harness.run();
    let mut harness = Harness::on(harness.power_loss(), 2);
    assert!(is_founded(&harness));
    // Nor does compaction forget it.
    while harness.disk.names("shard-1").len() == 1 {
        let view = harness.view(1).expect("put before") + 1;
        harness.put(1, view);
        while harness.step() && harness.disk.names("shard-1").len() == 1 {}
    }
    harness.run();
    assert!(harness.disk.content(FILE).len() < 1000, "compacted");
    assert!(is_founded(&Harness::on(harness.power_loss(), 3)));
}

/// A file as the first version of the format wrote it, but for lines of zeros: identity, boot,
/// a group, a clean stop.
const VERSION_1: [&str; 10] = [
    "0000  a2 48 de ab b0 8c 6f 49 79 06 44 93 55 f5 ea 64",
    "0016  01 01 00 00 00 00 00 00 00 00 00 00 00 00 00 00",
    "0032  a5 c1 00 00 00 00 00 00 00 00 00 00 00 00 00 00",
    "0048  01 03 02 00 04 00 00 00 00 00 00 00 00 00 00 00",
    "0064  fc da 43 5d d0 f2 89 5d e1 41 b6 9e ce fe e5 43",
    "0080  01 02 00 00 01 00 00 00 00 00 00 00 00 00 00 00",
    "0096  07 b0 00 00 00 00 00 00 00 00 00 00 00 00 00 00",
    "0128  c4 bd f3 6a d2 47 dd 18 ab 5d 6f 58 63 c1 c2 cc",
    "0144  01 03 00 00 02 00 00 00 02 00 00 00 00 00 00 00",
    "0160  00 00 00 00 00 00 00 00 11 00 00 00 10 00 00 00",
];

#[test]
fn a_store_of_version_1_is_read_and_is_founded() {
    let identity = ViewsIdentity {
        cluster: 0xc1a5,
        replica: ReplicaIndex(1),
        replica_count: 3,
        shard: ShardIndex(2),
        shard_count: 4,
    };
    let mut content = vec![0; 192];
    for line in VERSION_1 {
        let (offset, bytes) = line.split_once("  ").expect("an offset and bytes");
        let at: usize = offset.parse().expect("digits");
        for (place, byte) in content[at..].iter_mut().zip(bytes.split(' ')) {
            *place = u8::from_str_radix(byte, 16).expect("digits");
        }
    }
    let mut disk = Disk::new(1);
    disk.put(FILE, &content);
    let mut harness = Harness::with(disk, 0xb007, identity);
    assert!(is_founded(&harness) && !harness.power_lost());
    let metadata = Views {
        view: View(0x11),
        log_view: View(0x10),
        trust: Trust::Trusted,
    };
    assert_eq!(harness.store.get(GroupId::METADATA), Some(metadata));
    // Records of both versions stand side by side.
    harness.put(1, 3);
    harness.run();
    let harness = Harness::with(harness.crash(), 0xb007, identity);
    assert!(is_founded(&harness));
    assert_eq!(harness.store.get(GroupId::METADATA), Some(metadata));
    assert_eq!(harness.view(1), Some(3));
}

/// Goal: a full disk loses nothing and stops nobody. Method: every kind of request that may fail
/// for want of space does, twice each time, from the first start on and through compactions.
#[test]
fn a_full_disk_is_waited_for() {
    let full: [fn(&DiskRequest) -> bool; 4] = [
        |request| matches!(request, DiskRequest::Write { .. }),
        |request| matches!(request, DiskRequest::Open { .. }),
        |request| matches!(request, DiskRequest::Rename { .. }),
        |request| matches!(request, DiskRequest::CreateDir { .. }),
    ];
    for fails in full {
        let fails = Some((fails, DiskError::Full));
        let mut waited = 0;
        let mut harness = Harness::opening(Disk::new(1), 1, identity());
        for view in 0..300 {
            if view > 0 {
                for number in 0..4 {
                    harness.put(number, view);
                }
            }
            harness.disk.fails = fails;
            harness.run();
            if harness.store.is_full() {
                waited += 1;
                assert!(!harness.store.is_quiet());
                assert_eq!(harness.events.last(), Some(&ViewStoreEvent::Full));
                let told = harness.events.len();
                harness.store.retry(&mut harness.out);
                harness.run();
                assert!(harness.store.is_full(), "still");
                assert_eq!(harness.events.len(), told, "said once");
                harness.disk.fails = None;
                harness.store.retry(&mut harness.out);
                harness.run();
                assert_eq!(harness.events[told], ViewStoreEvent::Space);
            }
            assert!(harness.store.is_quiet());
            if view > 0 {
                assert!((0..4).all(|number| newest(&harness.events, number) == Some(view)));
            }
        }
        assert!(waited > 0);
        harness.disk.fails = None;
        let harness = Harness::on(harness.power_loss(), 1);
        assert!((0..4).all(|number| harness.view(number) == Some(299)));
    }
}
