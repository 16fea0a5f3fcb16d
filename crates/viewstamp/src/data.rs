//! The data directory as a whole: its lock, wiping it, durable small files, and randomness.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use crate::{encryption, exit::Failure};

/// The data directory, locked for this process as long as this lives.
#[derive(Debug)]
pub(crate) struct Data {
    path: PathBuf,
    _lock: File,
}

impl Data {
    /// Makes the directory if it is missing, and locks it.
    ///
    /// # Errors
    /// If another process has it, or it cannot be used.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let cannot = |error: io::Error| {
            Failure::Data(format!(
                "the data directory {} cannot be used: {error}",
                path.display()
            ))
        };
        fs::create_dir_all(path).map_err(cannot)?;
        let mut lock = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path.join("lock"))
            .map_err(cannot)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut owner = String::new();
                let _ = lock.read_to_string(&mut owner);
                return Err(Failure::Locked(format!(
                    "the data directory {} is used by another process (pid {})",
                    path.display(),
                    owner.trim()
                )));
            }
            Err(TryLockError::Error(error)) => return Err(cannot(error)),
        }
        // For people; the lock is the kernel's.
        lock.set_len(0)
            .and_then(|()| writeln!(lock, "{}", std::process::id()))
            .map_err(cannot)?;
        Ok(Self {
            path: path.to_path_buf(),
            _lock: lock,
        })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes what this server has written here; what it does not know stays.
    ///
    /// # Errors
    /// If something cannot be removed.
    pub(crate) fn wipe(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            if name.starts_with("shard-") || ["metadata", "partitions", "runtime"].contains(&name) {
                fs::remove_dir_all(entry.path())?;
            } else if name == "root.credential" || name == encryption::FILE {
                fs::remove_file(entry.path())?;
            }
        }
        File::open(&self.path)?.sync_all()
    }

    /// Removes a small file, if it is there.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        match fs::remove_file(self.path.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Replaces a small file as a whole, durably. `name` may have a directory, which is made.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn replace(&self, name: &str, content: &str) -> io::Result<()> {
        let target = self.path.join(name);
        let directory = target.parent().expect("it is below the data directory");
        if !directory.is_dir() {
            fs::create_dir_all(directory)?;
            File::open(&self.path)?.sync_all()?;
        }
        let temporary = self.path.join(format!("{name}.tmp"));
        let mut options = File::options();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(&temporary)?;
        file.write_all(content.as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, &target)?;
        File::open(directory)?.sync_all()
    }
}

/// Changes exactly when the machine has been started anew: what was not synced may be lost then.
///
/// # Errors
/// If the kernel does not tell.
pub(crate) fn boot_id() -> io::Result<u128> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let digits: String = text.trim().chars().filter(|c| *c != '-').collect();
    u128::from_str_radix(&digits, 16).map_err(io::Error::other)
}

/// Random bytes of the operating system.
///
/// # Errors
/// If there are none.
pub(crate) fn random<const SIZE: usize>() -> io::Result<[u8; SIZE]> {
    let mut bytes = [0; SIZE];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    static COUNT: AtomicU32 = AtomicU32::new(0);

    /// A directory that goes with its owner.
    pub(crate) struct Directory(pub(crate) PathBuf);

    impl Directory {
        pub(crate) fn new() -> Self {
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let name = format!("viewstamp-data-{}-{number}", std::process::id());
            Self(std::env::temp_dir().join(name))
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_locked_directory_is_refused_until_its_owner_is_gone() {
        let directory = Directory::new();
        let first = Data::open(&directory.0).unwrap();
        let second = Data::open(&directory.0).unwrap_err();
        assert_eq!(second.code(), 4);
        assert!(
            second.to_string().contains(&std::process::id().to_string()),
            "{second}"
        );
        drop(first);
        Data::open(&directory.0).unwrap();
    }

    #[test]
    fn a_directory_that_cannot_be_is_refused() {
        assert_eq!(
            Data::open(Path::new("/dev/null/data")).unwrap_err().code(),
            5
        );
    }

    #[test]
    fn wiping_leaves_what_is_not_ours() {
        let directory = Directory::new();
        let data = Data::open(&directory.0).unwrap();
        for name in ["shard-0", "metadata", "partitions", "photos"] {
            fs::create_dir(directory.0.join(name)).unwrap();
        }
        data.replace("runtime/current_config.toml", "x").unwrap();
        data.replace("root.credential", "x").unwrap();
        data.wipe().unwrap();
        let mut names: Vec<_> = fs::read_dir(&directory.0)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        assert_eq!(names, ["lock", "photos"]);
    }

    #[test]
    fn a_replaced_file_has_the_new_content_only() {
        let directory = Directory::new();
        let data = Data::open(&directory.0).unwrap();
        data.replace("a/b", "longer content").unwrap();
        data.replace("a/b", "short").unwrap();
        assert_eq!(
            fs::read_to_string(directory.0.join("a/b")).unwrap(),
            "short"
        );
        assert!(!directory.0.join("a/b.tmp").exists());
    }

    #[test]
    fn the_boot_id_stays_while_the_machine_runs() {
        assert_eq!(boot_id().unwrap(), boot_id().unwrap());
        assert_ne!(boot_id().unwrap(), 0);
        assert_ne!(random::<16>().unwrap(), random::<16>().unwrap());
    }
}
