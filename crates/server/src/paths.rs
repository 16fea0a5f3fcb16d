//! Names in a node's data directory; drawn in `docs/format.md`.

use alloc::string::String;

use platform::Path;

/// A directory below the data directory, known by name.
pub(crate) struct Directory(&'static str);

/// The logs of partitions, one directory per group.
pub(crate) const PARTITIONS: Directory = Directory("partitions");

impl Directory {
    pub(crate) fn path(&self) -> Path {
        Path::from(self.0)
    }

    pub(crate) fn join(&self, name: &str) -> Path {
        self.path().join(name)
    }
}

/// Where a shard keeps its view store.
pub(crate) fn shard(shard: base::ShardIndex) -> Path {
    let name: String = alloc::format!("shard-{shard}");
    Path(name)
}
