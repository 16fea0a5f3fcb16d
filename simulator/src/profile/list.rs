//! The profiles, each with a paragraph on what it does to a cluster.

use super::Profile;

/// Which classes the product can take so far; one that it cannot is off in every profile.
const WIPES: bool = true;
const DAMAGE: bool = true;
const ERRORS: bool = true;
const FULL: bool = true;

const fn share(on: bool, percent: u64) -> u64 {
    if on { percent } else { 0 }
}

const SWARM: Profile = Profile {
    name: "swarm",
    about: "Every class of faults, and each seed draws which of them it has: processes and \
            machines that die, disks that fail, fill up, are slow, damaged or lost, cut, slow \
            and damaged links, clocks that drift and step, clients that die and come back, \
            overload. 3 to 5 replicas, one or two shards, a quarter of an hour of virtual time, \
            idle for most of it. The fault atlas keeps it within what a cluster promises to \
            survive, so whatever is lost is a bug.",
    replicas: (3, 5),
    shards: (1, 2),
    clients: (2, 4),
    busy_stretches: (9, 12),
    faults_per_stretch: (0, 3),
    think: (100_000, 600_000),
    crashes: 85,
    power_losses: 60,
    wipes: share(WIPES, 10),
    damage: share(DAMAGE, 30),
    disk_errors: share(ERRORS, 20),
    disk_full: share(FULL, 15),
    slow_disks: 20,
    pauses: 30,
    partitions: 50,
    resets: 40,
    successions: 0,
    slow_links: 30,
    damaged_links: 30,
    clocks: 40,
    slow_processors: 20,
    client_crashes: 35,
    overloads: 20,
    evictions: 15,
    all_persisted: 40,
    broken: false,
};

/// All profiles, the default first.
pub(crate) const PROFILES: [Profile; 13] = [
    SWARM,
    Profile {
        name: "lite",
        about: "A first look: 3 replicas of one shard, at most one fault in a busy stretch, all \
                classes as in swarm. Twice as fast, and what fails here is easy to read.",
        replicas: (3, 3),
        shards: (1, 1),
        faults_per_stretch: (0, 1),
        partitions: 30,
        resets: 30,
        ..SWARM
    },
    Profile {
        name: "crash",
        about: "Few ops and very many deaths: processes that are killed alone, together or again \
                and again, machines that lose power, at any time or at the n-th disk request, \
                completion, sync or rename, so that a process dies in the middle of everything \
                it ever does. More than ten crashes for a hundred committed ops.",
        shards: (1, 1),
        faults_per_stretch: (5, 9),
        think: (400_000, 1_200_000),
        crashes: 100,
        power_losses: 80,
        wipes: share(WIPES, 5),
        damage: share(DAMAGE, 10),
        disk_errors: share(ERRORS, 20),
        disk_full: 0,
        slow_disks: 10,
        pauses: 10,
        partitions: 15,
        resets: 10,
        slow_links: 10,
        damaged_links: 5,
        clocks: 10,
        slow_processors: 5,
        client_crashes: 10,
        overloads: 0,
        evictions: 5,
        all_persisted: 60,
        ..SWARM
    },
    Profile {
        name: "partition",
        about: "A network at its worst: one-way cuts, halves, rings and bridges, clients cut off \
                from nodes, links that are slow, late or damage what they carry, connections \
                reset in the middle of a frame, paused nodes that come back with old views. Few \
                crashes.",
        faults_per_stretch: (1, 4),
        crashes: 25,
        power_losses: 10,
        pauses: 60,
        partitions: 100,
        resets: 60,
        slow_links: 60,
        damaged_links: 40,
        ..SWARM
    },
    Profile {
        name: "succession",
        about: "One primary after another: each is cut off with what only it has, dies with its \
                newest writes in flight, is killed at the very disk requests of its election, or \
                finds damaged what others lack, while others lag behind. Busy all the time and short.",
        shards: (1, 1),
        busy_stretches: (4, 5),
        faults_per_stretch: (1, 3),
        think: (50_000, 200_000),
        crashes: 30,
        power_losses: 20,
        wipes: share(WIPES, 5),
        damage: share(DAMAGE, 50),
        disk_errors: 0,
        disk_full: 0,
        slow_disks: 10,
        pauses: 20,
        partitions: 20,
        resets: 10,
        successions: 100,
        slow_links: 10,
        damaged_links: 0,
        clocks: 0,
        slow_processors: 0,
        client_crashes: 0,
        overloads: 0,
        evictions: 0,
        all_persisted: 50,
        ..SWARM
    },
    Profile {
        name: "disk",
        about: "Disks that lie and die: bits that rot, sectors that cannot be read, writes that \
                were lost or went astray, in running nodes and in stopped ones, each record on \
                another minority; reads, writes and syncs that fail, the pages of a failed sync \
                gone; disks that are full, a hundred times slower, stuck, or lost with all they \
                held. Crashes and power losses among it.",
        faults_per_stretch: (1, 4),
        crashes: 60,
        power_losses: 50,
        wipes: share(WIPES, 40),
        damage: share(DAMAGE, 90),
        disk_errors: share(ERRORS, 60),
        disk_full: share(FULL, 40),
        slow_disks: 60,
        pauses: 10,
        partitions: 20,
        resets: 10,
        slow_links: 10,
        damaged_links: 10,
        clocks: 10,
        slow_processors: 10,
        client_crashes: 10,
        overloads: 5,
        evictions: 5,
        ..SWARM
    },
    Profile {
        name: "clock",
        about: "Clocks that are wrong from the start, drift by up to 500 ppm and step while the \
                cluster works, processors ten times slower, pauses, late links. Few crashes.",
        faults_per_stretch: (1, 4),
        crashes: 40,
        power_losses: 20,
        pauses: 60,
        partitions: 30,
        resets: 20,
        slow_links: 50,
        damaged_links: 10,
        clocks: 100,
        slow_processors: 60,
        ..SWARM
    },
    Profile {
        name: "overload",
        about: "Bursts of many clients against tiny pipelines, queues and tables, over slow links \
                to slow processors. What cannot be taken must be refused in time, and all must be \
                well once the bursts are over.",
        clients: (4, 8),
        faults_per_stretch: (1, 3),
        crashes: 40,
        power_losses: 20,
        pauses: 40,
        partitions: 20,
        slow_links: 60,
        slow_processors: 50,
        overloads: 100,
        evictions: 20,
        ..SWARM
    },
    Profile {
        name: "client",
        about: "Clients that die in the middle of a call, come back under their old identity or a \
                new one, try again in storms, and lose their sessions to others. Nothing is done \
                twice.",
        clients: (3, 8),
        faults_per_stretch: (1, 4),
        crashes: 40,
        power_losses: 20,
        partitions: 40,
        resets: 60,
        client_crashes: 100,
        evictions: 50,
        ..SWARM
    },
    Profile {
        name: "quiet",
        about: "No faults at all, 1 to 5 replicas: whatever fails here is plainly wrong.",
        replicas: (1, 5),
        faults_per_stretch: (0, 0),
        clocks: 0,
        client_crashes: 0,
        overloads: 0,
        evictions: 0,
        ..SWARM
    },
    Profile {
        name: "broken-promise",
        about: "More than a cluster promises to survive: every copy of a record damaged, disks of \
                more than a minority lost, power lost everywhere while topics are only \
                replicated. The cluster must say so (a loss that is possible, an op that nobody \
                can decide, a node that stops for damage) and must not lie: what it has not said \
                anything about is checked as ever, and an offset that was served never shows \
                another message.",
        faults_per_stretch: (1, 3),
        crashes: 40,
        power_losses: 70,
        wipes: share(WIPES, 60),
        damage: share(DAMAGE, 70),
        disk_errors: share(ERRORS, 20),
        disk_full: 0,
        partitions: 20,
        clocks: 0,
        overloads: 0,
        evictions: 0,
        client_crashes: 0,
        all_persisted: 0,
        broken: true,
        ..SWARM
    },
    Profile {
        name: "solo",
        about: "One replica, one to three shards: crashes, and power losses where every topic is \
                persisted. Nobody is there to repair from.",
        replicas: (1, 1),
        shards: (1, 3),
        faults_per_stretch: (1, 3),
        crashes: 100,
        power_losses: 60,
        partitions: 20,
        ..SWARM
    },
    Profile {
        name: "smoke",
        about: "3 replicas, two short busy stretches, few faults: for quick checks and as the \
                scenario of `sim sweep`.",
        replicas: (3, 3),
        shards: (1, 1),
        clients: (2, 2),
        busy_stretches: (2, 2),
        faults_per_stretch: (0, 2),
        ..SWARM
    },
];
