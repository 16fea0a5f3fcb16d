//! The bytes that `docs/format.md` draws. A diff here is a new version of a format.

use std::fmt::Write;

use base::{GroupId, Op, ReplicaIndex, ShardIndex, View};
use expect_test::{Expect, expect};
use platform::{Outbox, Path};
use storage::{
    CheckpointHeader, FileIds, ViewStore, ViewStoreConfig, Views, ViewsIdentity, checkpoint_name,
    segment_name,
};
use wire::replica::{CheckpointMark, Trust};

use crate::{
    disk::Disk,
    harness::{DIRECTORY, Harness, config},
};

/// Lines of 16 bytes, but for those that are zero.
fn check(content: &[u8], expected: &Expect) {
    let mut dump = String::new();
    for (line, bytes) in content.chunks(16).enumerate() {
        if bytes.iter().any(|byte| *byte != 0) {
            write!(dump, "{:04} ", line * 16).expect("a string takes all");
            for byte in bytes {
                write!(dump, " {byte:02x}").expect("a string takes all");
            }
            dump.push('\n');
        }
    }
    writeln!(dump, "{:04}", content.len()).expect("a string takes all");
    expected.assert_eq(&dump);
}

#[test]
fn a_segment_is_a_header_and_prepares() {
    let mut harness = Harness::new(config());
    harness.append(256 + 16);
    harness.append_messages(512, 3, 0x7777);
    harness.submit();
    harness.run();
    let content = harness
        .disk
        .content(&format!("{DIRECTORY}/{}", segment_name(Op(1))));
    check(
        &content[..768],
        &expect![[r#"
            0000  cb 07 5e 2e 57 07 e6 b4 4b 74 57 d0 3b fd e8 68
            0016  76 69 65 77 73 74 61 6d 70 20 6c 6f 67 20 31 00
            0032  a5 c1 00 00 00 00 00 00 00 00 00 00 00 00 00 00
            0048  03 1c 00 00 00 00 00 00 01 00 00 00 00 00 00 00
            0256  b5 9b d3 2d bf 9f 0a 90 91 57 a5 83 4f a4 d5 d0
            0272  9d b3 0f 44 75 bc 99 cb 47 e7 06 38 27 ac 62 a4
            0288  a5 c1 00 00 00 00 00 00 00 00 00 00 00 00 00 00
            0304  10 01 00 00 01 00 00 00 00 00 00 00 06 00 00 00
            0400  01 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
            0416  03 1c 00 00 00 00 00 00 01 00 00 00 00 00 00 00
            0432  00 00 00 00 00 00 00 00 01 00 00 00 00 00 00 00
            0448  01 00 00 00 00 00 00 00 01 00 00 00 00 00 00 00
            0480  01 00 00 00 a1 00 00 00 00 00 00 00 00 00 00 00
            0512  9c bb da f9 1d 3c 5b 7a 99 b8 d7 f6 1a 39 58 77
            0528  5e 51 15 77 5d 78 75 ac 55 28 4c aa d1 e8 e4 d7
            0544  43 90 7f 97 ba 05 bb 4c c4 e9 9a cb c4 85 fd 44
            0560  a5 c1 00 00 00 00 00 00 00 00 00 00 00 00 00 00
            0576  00 02 00 00 01 00 00 00 00 00 00 00 06 00 00 00
            0656  b5 9b d3 2d bf 9f 0a 90 91 57 a5 83 4f a4 d5 d0
            0672  01 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
            0688  03 1c 00 00 00 00 00 00 02 00 00 00 00 00 00 00
            0704  00 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00
            0720  02 00 00 00 00 00 00 00 01 00 00 00 00 00 00 00
            0752  01 00 00 00 a0 00 00 00 00 00 00 00 00 00 00 00
            0768
        "#]],
    );
}

#[test]
fn a_later_segment_names_its_parent() {
    let mut harness = Harness::new(config());
    harness.write(5000);
    harness.write(256);
    let content = harness
        .disk
        .content(&format!("{DIRECTORY}/{}", segment_name(Op(2))));
    check(
        &content[..256],
        &expect![[r#"
            0000  0e cc 74 56 01 5c 7c 83 03 09 4e da 60 63 6a 35
            0016  76 69 65 77 73 74 61 6d 70 20 6c 6f 67 20 31 00
            0032  a5 c1 00 00 00 00 00 00 00 00 00 00 00 00 00 00
            0048  03 1c 00 00 00 00 00 00 02 00 00 00 00 00 00 00
            0064  38 c0 81 c5 1d 3d 3d 88 be b5 bc 1a d0 1f be 16
            0256
        "#]],
    );
}

#[test]
fn a_view_store_is_records_of_64_bytes() {
    let identity = ViewsIdentity {
        cluster: 0xc1a5,
        replica: ReplicaIndex(1),
        replica_count: 3,
        shard: ShardIndex(2),
        shard_count: 4,
    };
    let directory = Path::from("shard-2");
    let config = ViewStoreConfig {
        directory,
        owner: 1,
        identity,
        boot_id: 0xb007,
        compaction_size_min: 64 << 10,
    };
    let (mut out, mut files, mut events) = (Outbox::new(), FileIds::default(), Vec::new());
    let mut disk = Disk::new(1);
    let mut store = ViewStore::open(config, &mut out);
    let mut run = |store: &mut ViewStore, out: &mut Outbox| {
        disk.submit(out);
        while let Some(done) = disk.step() {
            store.on_disk(done, &mut files, out, &mut events);
            disk.submit(out);
        }
    };
    run(&mut store, &mut out);
    let views = |view, trust| Views {
        view: View(view),
        log_view: View(view - 1),
        trust,
    };
    store.put(GroupId::METADATA, views(0x11, Trust::Trusted));
    store.found(Op(0x0f));
    store.put(GroupId::partition(Op(7), 3), views(0x22, Trust::Doubt));
    store.submit(&mut out);
    run(&mut store, &mut out);
    store.forget(GroupId::partition(Op(7), 3));
    store.mark_clean(&mut out);
    run(&mut store, &mut out);
    check(
        &disk.content("shard-2/views.log"),
        &expect![[r#"
            0000  f6 ea 96 fb 69 c6 3e c4 d9 b0 d5 ff 90 02 17 37
            0016  02 01 00 00 00 00 00 00 00 00 00 00 00 00 00 00
            0032  a5 c1 00 00 00 00 00 00 00 00 00 00 00 00 00 00
            0048  01 03 02 00 04 00 00 00 00 00 00 00 00 00 00 00
            0064  66 b8 02 3b 0b 7c bb 4e 76 c8 d5 79 d5 0b 09 ca
            0080  02 02 00 00 01 00 00 00 00 00 00 00 00 00 00 00
            0096  07 b0 00 00 00 00 00 00 00 00 00 00 00 00 00 00
            0128  26 d1 b4 13 6f d6 92 5e e1 0d fe 60 0d c6 26 6f
            0144  02 03 00 00 02 00 00 00 02 00 00 00 00 00 00 00
            0160  00 00 00 00 00 00 00 00 11 00 00 00 10 00 00 00
            0192  1a 8b f5 26 10 e9 7d 7d aa 78 b7 1f 78 eb 77 42
            0208  02 06 00 00 03 00 00 00 02 00 00 00 00 00 00 00
            0224  0f 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
            0256  7f b7 cf 9b da 1e fb 38 bb 74 93 38 aa c7 da 8f
            0272  02 03 00 00 04 00 00 00 02 00 00 00 00 00 00 00
            0288  03 1c 00 00 00 00 00 00 22 00 00 00 21 00 00 00
            0304  01 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
            0320  14 0a 76 37 b7 88 10 9d 7b b7 ce 34 f8 a8 d2 f2
            0336  02 04 00 00 05 00 00 00 05 00 00 00 00 00 00 00
            0352  03 1c 00 00 00 00 00 00 00 00 00 00 00 00 00 00
            0384  31 91 2e 19 77 53 c0 d9 7e bf 4b 64 10 a1 ec 21
            0400  02 05 00 00 06 00 00 00 05 00 00 00 00 00 00 00
            0416  07 b0 00 00 00 00 00 00 00 00 00 00 00 00 00 00
            0448
        "#]],
    );
}

#[test]
fn a_checkpoint_is_a_header_and_a_body() {
    let mark = CheckpointMark {
        op: Op(1024),
        identity: 0x1111,
        base: Op(512),
        base_identity: 0x2222,
        size: 6,
        digest: base::checksum::xxh3_128(b"a body"),
    };
    let header = CheckpointHeader {
        cluster: 0xc1a5,
        group: GroupId(7 << 10 | 3),
        mark,
        replaces: Some(Op(0x300)),
    };
    let mut content = header.encode().to_vec();
    content.extend_from_slice(b"a body");
    check(
        &content,
        &expect![[r#"
            0000  95 22 aa d2 ba 50 ac fb 62 1c 06 7e 3c 7c fd 3c
            0016  76 69 65 77 73 74 61 6d 70 20 63 6b 70 74 20 31
            0032  a5 c1 00 00 00 00 00 00 00 00 00 00 00 00 00 00
            0048  03 1c 00 00 00 00 00 00 00 04 00 00 00 00 00 00
            0064  11 11 00 00 00 00 00 00 00 00 00 00 00 00 00 00
            0080  00 02 00 00 00 00 00 00 06 00 00 00 00 00 00 00
            0096  22 22 00 00 00 00 00 00 00 00 00 00 00 00 00 00
            0112  e5 c2 f8 16 c4 4f 58 43 a4 66 fc f4 1e 31 d3 7c
            0128  01 03 00 00 00 00 00 00 00 00 00 00 00 00 00 00
            0256  61 20 62 6f 64 79
            0262
        "#]],
    );
    assert_eq!(CheckpointHeader::decode(&content), Some(header));
    assert_eq!(checkpoint_name(Op(1024)), "00000000000000001024.checkpoint");
}
