//! The diagnostic archive: a ZIP file with one text per content asked for.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs,
    io::{self, Cursor, Write},
    path::Path,
};

use platform::Facts;
use wire::{ArchiveCompression, ArchiveContent};
use zip::{CompressionMethod, ZipWriter, write::SimpleFileOptions};

use super::LogTail;
use crate::effective;

/// Files listed of a data directory; one with more has had its say.
const FILES_MAX: usize = 100_000;

/// Every content there is but "all".
const CONTENTS: [ArchiveContent; 6] = [
    ArchiveContent::FilesystemOverview,
    ArchiveContent::ProcessList,
    ArchiveContent::ResourceUsage,
    ArchiveContent::Test,
    ArchiveContent::ServerLogs,
    ArchiveContent::ServerConfig,
];

/// Where contents come from.
pub(super) struct Sources<'a> {
    pub(super) data: &'a Path,
    pub(super) log: &'a LogTail,
    pub(super) facts: Facts,
}

/// The archive's bytes; each content is in it once.
///
/// # Errors
/// If a compression is not to be had.
pub(super) fn make(
    compression: ArchiveCompression,
    contents: &[ArchiveContent],
    sources: &Sources<'_>,
) -> io::Result<Vec<u8>> {
    let wanted: BTreeSet<ArchiveContent> = if contents.contains(&ArchiveContent::All) {
        CONTENTS.into()
    } else {
        contents.iter().copied().collect()
    };
    let method = match compression {
        ArchiveCompression::Stored => CompressionMethod::Stored,
        ArchiveCompression::Deflated => CompressionMethod::Deflated,
        ArchiveCompression::Bzip2 => CompressionMethod::Bzip2,
        ArchiveCompression::Zstd => CompressionMethod::Zstd,
        ArchiveCompression::Lzma => CompressionMethod::LZMA,
        ArchiveCompression::Xz => CompressionMethod::Xz,
    };
    let options = SimpleFileOptions::default()
        .compression_method(method)
        .unix_permissions(0o600);
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    for content in wanted {
        let (name, text) = sources.text(content);
        archive.start_file(name, options)?;
        archive.write_all(&text)?;
    }
    Ok(archive.finish()?.into_inner())
}

impl Sources<'_> {
    /// A content's file name and bytes. What cannot be read says so in its place.
    fn text(&self, content: ArchiveContent) -> (&'static str, Vec<u8>) {
        let told = |result: io::Result<String>| match result {
            Ok(text) => text.into_bytes(),
            Err(error) => format!("cannot be read: {error}\n").into_bytes(),
        };
        match content {
            ArchiveContent::FilesystemOverview => {
                ("filesystem_overview.txt", told(self.filesystem()))
            }
            ArchiveContent::ProcessList => ("process_list.txt", told(processes())),
            ArchiveContent::ResourceUsage => {
                ("resource_usage.txt", format!("{:#?}\n", self.facts).into())
            }
            ArchiveContent::ServerLogs => ("server_logs.txt", self.log.text()),
            ArchiveContent::ServerConfig => {
                let config = fs::read_to_string(self.data.join(effective::FILE));
                ("server_config.toml", told(config))
            }
            ArchiveContent::Test | ArchiveContent::All => {
                ("test.txt", b"An archive of viewstamp-server.\n".to_vec())
            }
        }
    }

    /// Every file of the data directory and its size.
    fn filesystem(&self) -> io::Result<String> {
        let Facts {
            disk_free,
            disk_total,
            ..
        } = self.facts;
        let path = self.data.display();
        let mut text = format!("{path}: {disk_free} of {disk_total} bytes free\n");
        let mut directories = vec![self.data.to_path_buf()];
        let mut files = 0;
        while let Some(directory) = directories.pop() {
            let mut entries = fs::read_dir(&directory)?.collect::<io::Result<Vec<_>>>()?;
            entries.sort_by_key(fs::DirEntry::file_name);
            for entry in entries {
                // It may have been removed since; that is no news.
                let Ok(metadata) = entry.metadata() else {
                    continue;
                };
                if metadata.is_dir() {
                    directories.push(entry.path());
                    continue;
                }
                files += 1;
                if files > FILES_MAX {
                    text.push_str("and more\n");
                    return Ok(text);
                }
                let name = entry.path();
                let name = name.strip_prefix(self.data).unwrap_or(&name);
                let _ = writeln!(text, "{:>14} {}", metadata.len(), name.display());
            }
        }
        Ok(text)
    }
}

/// Number, state and name of every process. Command lines are left out: they may hold secrets.
fn processes() -> io::Result<String> {
    let mut numbers: Vec<u32> = fs::read_dir("/proc")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    numbers.sort_unstable();
    let mut text = String::from("    pid state name\n");
    for number in numbers {
        let stat = fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
        let Some((head, rest)) = stat.rsplit_once(')') else {
            continue;
        };
        let name = head.split_once('(').map_or("", |(_, name)| name);
        let state = rest.split_whitespace().next().unwrap_or("?");
        let _ = writeln!(text, "{number:>7} {state:<5} {name}");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use zip::ZipArchive;

    use super::*;
    use crate::data::tests::Directory;

    fn unpacked(bytes: Vec<u8>) -> Vec<(String, String)> {
        let mut archive = ZipArchive::new(Cursor::new(bytes)).unwrap();
        let mut files = Vec::new();
        for index in 0..archive.len() {
            let mut file = archive.by_index(index).unwrap();
            let mut text = String::new();
            file.read_to_string(&mut text).unwrap();
            let name = file.name().unwrap().into_owned();
            files.push((name, text));
        }
        files
    }

    #[test]
    fn every_content_is_there_in_every_compression() {
        let directory = Directory::new();
        fs::create_dir_all(directory.0.join("runtime")).unwrap();
        fs::write(directory.0.join(effective::FILE), "[tcp]\n").unwrap();
        let mut log = LogTail::default();
        log.write_all(b"a line\n").unwrap();
        for compression in (1..=6).filter_map(ArchiveCompression::from_byte) {
            let sources = Sources {
                data: &directory.0,
                log: &log,
                facts: Facts::default(),
            };
            let made = make(compression, &[ArchiveContent::All], &sources);
            if compression == ArchiveCompression::Lzma {
                assert!(made.is_err(), "the server refuses it before it gets here");
                continue;
            }
            let files = unpacked(made.unwrap());
            let text = |name: &str| &files.iter().find(|(found, _)| found == name).unwrap().1;
            assert_eq!(files.len(), CONTENTS.len());
            assert!(text("filesystem_overview.txt").contains(effective::FILE));
            assert!(text("process_list.txt").lines().count() > 1);
            assert!(text("resource_usage.txt").contains("process_id"));
            assert!(text("test.txt").contains("viewstamp"));
            assert_eq!(text("server_logs.txt"), "a line\n");
            assert_eq!(text("server_config.toml"), "[tcp]\n");
            let twice = [ArchiveContent::Test, ArchiveContent::Test];
            let files = unpacked(make(compression, &twice, &sources).unwrap());
            assert_eq!(files.len(), 1);
        }
    }
}
