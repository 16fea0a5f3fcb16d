//! The bytes that `docs/format.md` draws. A diff here is a new version of a format.

use std::fmt::Write;

use base::{GroupId, Op, ReplicaIndex, ShardIndex, View};
use expect_test::{Expect, expect};
use platform::{Outbox, Path};
use storage::{FileIds, ViewStore, ViewStoreConfig, ViewsIdentity, segment_name};

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
    store.put(GroupId::METADATA, View(0x11), View(0x10));
    store.put(GroupId::partition(Op(7), 3), View(0x22), View(0x21));
    store.submit(&mut out);
    run(&mut store, &mut out);
    store.forget(GroupId::partition(Op(7), 3));
    store.mark_clean(&mut out);
    run(&mut store, &mut out);
    check(
        &disk.content("shard-2/views.log"),
        &expect![[r#"
            0000  a2 48 de ab b0 8c 6f 49 79 06 44 93 55 f5 ea 64
            0016  01 01 00 00 00 00 00 00 00 00 00 00 00 00 00 00
            0032  a5 c1 00 00 00 00 00 00 00 00 00 00 00 00 00 00
            0048  01 03 02 00 04 00 00 00 00 00 00 00 00 00 00 00
            0064  fc da 43 5d d0 f2 89 5d e1 41 b6 9e ce fe e5 43
            0080  01 02 00 00 01 00 00 00 00 00 00 00 00 00 00 00
            0096  07 b0 00 00 00 00 00 00 00 00 00 00 00 00 00 00
            0128  c4 bd f3 6a d2 47 dd 18 ab 5d 6f 58 63 c1 c2 cc
            0144  01 03 00 00 02 00 00 00 02 00 00 00 00 00 00 00
            0160  00 00 00 00 00 00 00 00 11 00 00 00 10 00 00 00
            0192  c8 40 22 ae 22 70 12 c3 07 cc 51 1e b0 19 a7 12
            0208  01 03 00 00 03 00 00 00 02 00 00 00 00 00 00 00
            0224  03 1c 00 00 00 00 00 00 22 00 00 00 21 00 00 00
            0256  72 ef 8b 6a 3a 5e ec 1e ed 1e d0 97 76 d9 80 52
            0272  01 04 00 00 04 00 00 00 04 00 00 00 00 00 00 00
            0288  03 1c 00 00 00 00 00 00 00 00 00 00 00 00 00 00
            0320  2d 35 87 fb 96 7b 6f 83 1f c9 00 c8 8d 8f a6 2e
            0336  01 05 00 00 05 00 00 00 04 00 00 00 00 00 00 00
            0352  07 b0 00 00 00 00 00 00 00 00 00 00 00 00 00 00
            0384
        "#]],
    );
}
