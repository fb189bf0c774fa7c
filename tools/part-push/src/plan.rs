//! Plans which host gets which file, in which order, and which files are already there.

use record::error::{Fault, Report};
use record::jsonl::MAX_SET;
use record::{FileCopy, Host, RESERVED, is_reserved};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use transfer::fates::Numbered;
use transfer::source::same_time;
use transfer::{LARGE, SMALL};
use wire::files::Meta;

#[derive(Clone, Debug)]
pub struct Delivery {
    /// From 0 to `of` - 1.
    pub id: u32,
    pub host: u32,
    /// The `id` of the file record.
    pub file: u32,
    pub source: DeliverySource,
    /// The absolute path on the host. The deliveries of one file share `dst` and `source` (Arc),
    /// because there may be a million deliveries.
    pub dst: Arc<Path>,
    pub bytes: u64,
    /// In seconds and nanoseconds since 1970; `None` for a file made from a record.
    pub mtime: Option<(i64, u32)>,
    /// Permission bits.
    pub mode: u32,
    /// A file that the user may have on this machine, which it must not replace.
    pub original: Option<Original>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Original {
    /// An ip_config at the destination, if it has more than addresses and ports.
    IpConfig,
    /// The file from which the content of the record was made.
    Config(Arc<Path>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeliverySource {
    /// On this machine.
    File(Arc<Path>),
    /// The content of the record itself.
    Content(Arc<str>),
    /// An empty directory is made.
    Folder,
    /// It must already be there.
    MustExist,
}

impl Numbered for Delivery {
    fn number(&self) -> u32 {
        self.id
    }
}

impl Delivery {
    pub fn has_bytes(&self) -> bool {
        matches!(
            self.source,
            DeliverySource::File(_) | DeliverySource::Content(_)
        )
    }
}

/// In the order of hosts and files. All must be below the workspace, if it is known.
pub fn deliveries(
    hosts: &[Host],
    files: &[FileCopy],
    workspace: Option<&Path>,
) -> Result<Vec<Delivery>, Report> {
    let check = |file: &FileCopy| {
        let delivery = delivery(file, workspace);
        delivery.map(|delivery| (file.host, delivery))
    };
    let checked = Report::collect(files.iter().map(check))?;
    let goes_to = |only: &Option<u32>, host: &Host| only.is_none_or(|id| id == host.id);
    let count = |host: &Host| {
        checked
            .iter()
            .filter(|(only, _)| goes_to(only, host))
            .count()
    };
    let all: usize = hosts.iter().map(count).sum();
    if all > MAX_SET as usize {
        let problem = format!("{all} files for all hosts together, more than {MAX_SET}");
        let fix = "leave some out with part-map --exclude, or pack them into one file";
        return Err(Fault::data("files", problem).fix(fix).report());
    }
    let mut deliveries = Vec::with_capacity(all);
    let mut bytes = Some(0_u64);
    for host in hosts {
        for (_, delivery) in checked.iter().filter(|(only, _)| goes_to(only, host)) {
            bytes = bytes.and_then(|bytes| bytes.checked_add(delivery.bytes));
            deliveries.push(Delivery {
                id: u32::try_from(deliveries.len()).unwrap_or(u32::MAX),
                host: host.id,
                ..delivery.clone()
            });
        }
    }
    // so that all sums of sizes fit
    if bytes.is_none() {
        let problem = "the sizes of all files for all hosts together are 2^64 bytes or more";
        return Err(Fault::data("files", problem).fix(CREATE_AGAIN).report());
    }
    Ok(deliveries)
}

const CREATE_AGAIN: &str = "create the stream again, with part-map";

/// The delivery still lacks its number and host.
fn delivery(file: &FileCopy, workspace: Option<&Path>) -> Result<Delivery, Fault> {
    let location = || format!("file record {}", file.id);
    let dst: PathBuf = file.destination()?.components().collect();
    let inside = dst.is_absolute()
        && dst
            .components()
            .all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    if !inside || dst.file_name().is_none() || dst.as_os_str().as_bytes().contains(&0) {
        return Err(Fault::data(
            location(),
            format!("dst {} is not an absolute path without ..", dst.display()),
        )
        .fix(CREATE_AGAIN));
    }
    if is_reserved(&dst) {
        let problem = format!("dst {} has a name of part-push's own in it", dst.display());
        return Err(Fault::data(location(), problem)
            .fix(format!("rename it: no file may begin with {RESERVED}")));
    }
    if let Some(workspace) = workspace.filter(|workspace| !dst.starts_with(workspace)) {
        return Err(Fault::data(
            location(),
            format!(
                "dst {} is not below the workspace, {}",
                dst.display(),
                workspace.display()
            ),
        )
        .fix(CREATE_AGAIN));
    }
    let source = source(file)?;
    // a missing part of a second is unknown, so the time cannot be compared
    let mtime = file.mtime_s.zip(file.mtime_nsec);
    Ok(Delivery {
        id: 0,
        host: 0,
        file: file.id,
        source,
        dst: dst.into(),
        bytes: file.bytes,
        mtime,
        mode: file.mode & 0o777,
        original: original(file)?,
    })
}

fn original(file: &FileCopy) -> Result<Option<Original>, Fault> {
    let original = file.original()?.map(|path| Original::Config(path.into()));
    Ok(original.or((file.kind == "ip_config").then_some(Original::IpConfig)))
}

fn source(file: &FileCopy) -> Result<DeliverySource, Fault> {
    let wrong = |problem: &str| {
        Err(Fault::data(format!("file record {}", file.id), problem).fix(CREATE_AGAIN))
    };
    Ok(match (file.source()?, &file.content) {
        (None, None) if file.is_folder()? => DeliverySource::Folder,
        (None, None) => DeliverySource::MustExist,
        (Some(path), None) => DeliverySource::File(path.into()),
        (None, Some(content)) if content.len() as u64 == file.bytes => {
            DeliverySource::Content(content.as_str().into())
        }
        (None, Some(_)) => return wrong("bytes is not the length of content"),
        (Some(_), Some(_)) => return wrong("has both src and content, where one is enough"),
    })
}

/// Whether anything may be written on a host.
pub fn is_written(deliveries: &[Delivery]) -> bool {
    let is_written = |delivery: &Delivery| delivery.source != DeliverySource::MustExist;
    deliveries.iter().any(is_written)
}

/// The deepest directory that contains all destinations: of what is written, if anything is.
pub fn base(deliveries: &[Delivery]) -> PathBuf {
    let all = !is_written(deliveries);
    let counts = |delivery: &&Delivery| all || delivery.source != DeliverySource::MustExist;
    let counted = deliveries.iter().filter(counts);
    let mut parents = counted.filter_map(|delivery| delivery.dst.parent());
    let first = parents.next().map(Path::to_owned).unwrap_or_default();
    parents.fold(first, |base, parent| {
        let common = base
            .components()
            .zip(parent.components())
            .take_while(|(a, b)| a == b);
        common.map(|(part, _)| part).collect()
    })
}

/// The deliveries of a host whose destination an earlier one has, and why they are refused.
pub fn twice(deliveries: &[&Delivery]) -> BTreeMap<u32, String> {
    // by their bytes, because comparing paths splits them into components
    let mut taken: HashMap<&[u8], u32> = HashMap::with_capacity(deliveries.len());
    let mut refused = BTreeMap::new();
    for delivery in deliveries {
        let location = delivery.dst.as_os_str().as_bytes();
        let first = *taken.entry(location).or_insert(delivery.file);
        if first != delivery.file {
            refused.insert(
                delivery.id,
                format!("file record {first} goes to the same place"),
            );
        }
    }
    refused
}

/// A small file travels in one message with others.
pub fn is_small(delivery: &Delivery) -> bool {
    delivery.bytes <= SMALL
}

/// Whether hosts pass a file on. This machine sends a smaller file to all of them before they have
/// connected to each other.
pub fn is_handed_on(delivery: &Delivery) -> bool {
    delivery.bytes >= LARGE && matches!(delivery.source, DeliverySource::File(_))
}

const CRC: crc::Crc<u64> = crc::Crc::<u64>::new(&crc::CRC_64_XZ);

/// Whether a file is sent in parts, some of which may have arrived in an earlier push.
pub fn comes_in_parts(delivery: &Delivery) -> bool {
    delivery.has_bytes() && !is_small(delivery)
}

/// A host's name for a partial file: the same for the same file and destination. Its first half
/// depends on the destination only.
pub fn partial_key(delivery: &Delivery) -> String {
    let (seconds, nanos) = delivery.mtime.unwrap_or_default();
    let version = format!("{} {seconds} {nanos}", delivery.bytes);
    format!(
        "{:016x}.{:016x}",
        CRC.checksum(delivery.dst.as_os_str().as_bytes()),
        CRC.checksum(version.as_bytes())
    )
}

/// The leader of each host: the first of the hosts that share its workspace. Each host reports
/// which hosts' directories it sees beside its own. Two hosts share a workspace only if each sees
/// the other's directory, so a host that reports directories which do not exist harms only itself.
pub fn leaders(seen: &BTreeMap<u32, BTreeSet<u32>>) -> BTreeMap<u32, u32> {
    let mut leaders = BTreeMap::new();
    for (host, others) in seen {
        let sees_it = |other: &&u32| seen.get(other).is_some_and(|seen| seen.contains(host));
        let first = others.range(..host).find(sees_it);
        let leader = first.and_then(|first| leaders.get(first)).unwrap_or(host);
        leaders.insert(*host, *leader);
    }
    leaders
}

/// Judges by size and time.
pub fn is_present(delivery: &Delivery, existing: &Meta) -> bool {
    let same_time = || {
        delivery
            .mtime
            .is_none_or(|mtime| same_time(mtime, existing.mtime))
    };
    match delivery.source {
        DeliverySource::Folder => existing.is_folder(),
        // a part may be a directory, whose files are unknown here
        DeliverySource::MustExist => {
            existing.is_folder() || existing.is_file() && existing.bytes > 0
        }
        DeliverySource::File(_) | DeliverySource::Content(_) => {
            existing.is_file()
                && !existing.foreign
                && existing.bytes == delivery.bytes
                && existing.mode & 0o7777 == delivery.mode
                && same_time()
        }
    }
}

/// Whether an ip_config has only addresses and ports, as part-map writes it: a user's own may also
/// have comments, names and logins.
pub fn is_plain_ip_config(text: &str) -> bool {
    let is_plain = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_address = |word: &str| word.parse::<std::net::Ipv4Addr>().is_ok();
        match words[..] {
            [] => true,
            [address] => is_address(address),
            [address, port] => is_address(address) && port.parse::<u16>().is_ok(),
            _ => false,
        }
    };
    text.lines().all(is_plain)
}

/// Whether size and time are enough: a file made from a record has no time.
pub fn is_sure(delivery: &Delivery) -> bool {
    !delivery.has_bytes() || delivery.mtime.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Delivery {
        /// A delivery that the tests change.
        pub fn sample() -> Delivery {
            Delivery {
                id: 0,
                host: 0,
                file: 0,
                source: DeliverySource::Content(String::new().into()),
                dst: Path::new("/w/a").into(),
                bytes: 5,
                mtime: Some((100, 7)),
                mode: 0o644,
                original: None,
            }
        }
    }

    fn delivery(dst: &str) -> Delivery {
        Delivery {
            dst: Path::new(dst).into(),
            ..Delivery::sample()
        }
    }

    const EXISTING: Meta = Meta {
        bytes: 5,
        mode: 0o100_644,
        mtime: (100, 7),
        inode: 1,
        sent: None,
        sum: None,
        foreign: false,
    };

    #[test]
    fn same_size_and_time_is_there_already() {
        // the time, the bytes and the mode of what is there
        let table = [
            ((100, 7), 5, 0o100_644, true),
            ((100, 0), 5, 0o100_644, true),
            ((100, 8), 5, 0o100_644, false),
            // a file system with steps of 100 ns, rounded up
            ((100, 100), 5, 0o100_644, true),
            ((100, 200), 5, 0o100_644, false),
            ((101, 7), 5, 0o100_644, false),
            ((100, 7), 6, 0o100_644, false),
            ((100, 7), 5, 0o100_755, false),
            ((100, 7), 5, 0o120_644, false),
        ];
        for (mtime, bytes, mode, expected) in table {
            let existing = Meta {
                mtime,
                bytes,
                mode,
                ..EXISTING
            };
            assert_eq!(
                is_present(&delivery("/w/a"), &existing),
                expected,
                "{existing:?}"
            );
        }
        assert!(
            is_sure(&delivery("/w/a"))
                && !is_sure(&Delivery {
                    mtime: None,
                    ..delivery("/w/a")
                })
        );
    }

    #[test]
    fn an_ip_config_that_has_more_than_part_map_writes_is_a_users() {
        for (text, is_plain) in [
            ("10.0.0.1 30050\n10.0.0.2 30050\n", true),
            ("10.0.0.1\n\n", true),
            ("# mine\n10.0.0.1 30050\n", false),
            ("10.0.0.1 30050 # old\n", false),
            ("gpu1 30050\n", false),
            ("me@10.0.0.1\n", false),
            ("10.0.0.1 30050 gpu1\n", false),
        ] {
            assert_eq!(is_plain_ip_config(text), is_plain, "{text}");
        }
    }

    #[test]
    fn a_folder_and_a_file_that_must_be_there() {
        let kinds = [(4096, 0o40_700), (9, 0o100_600), (0, 0o100_600)].map(|(bytes, mode)| Meta {
            bytes,
            mode,
            ..EXISTING
        });
        // a directory, a file and an empty one
        for (source, expected) in [
            (DeliverySource::Folder, [true, false, false]),
            (DeliverySource::MustExist, [true, true, false]),
        ] {
            let delivery = Delivery {
                source,
                bytes: 0,
                mtime: None,
                ..delivery("/w/a")
            };
            assert_eq!(
                kinds.map(|existing| is_present(&delivery, &existing)),
                expected
            );
        }
        let record = |dst: &str| FileCopy {
            dst: Some(dst.into()),
            ..FileCopy::default()
        };
        let source = |dst: &str| {
            super::delivery(&record(dst), None).map(|delivery| (delivery.dst, delivery.source))
        };
        let (dst, folder) = source("/w/a/").unwrap();
        assert_eq!(dst.as_os_str(), "/w/a");
        assert!(matches!(folder, DeliverySource::Folder));
        assert!(matches!(source("/w/a"), Ok((_, DeliverySource::MustExist))));
    }

    #[test]
    fn what_arrived_is_known_by_place_and_version() {
        let (a, b) = (
            delivery("/w/a"),
            Delivery {
                bytes: 6,
                ..delivery("/w/a")
            },
        );
        assert!(
            partial_key(&a) == partial_key(&delivery("/w/a"))
                && partial_key(&a) != partial_key(&b)
                && partial_key(&a)[..17] == partial_key(&b)[..17]
        );
        assert_ne!(partial_key(&a)[..17], partial_key(&delivery("/w/b"))[..17]);
    }

    #[test]
    fn hosts_that_see_one_another_share_a_workspace() {
        let seen = [
            (0, BTreeSet::from([0, 1, 4])),
            (1, BTreeSet::from([1, 2])),
            (2, BTreeSet::from([1, 2, 3])),
            (3, BTreeSet::from([2, 3])),
            (4, BTreeSet::from([4, 9])),
        ];
        assert_eq!(
            leaders(&BTreeMap::from(seen)),
            BTreeMap::from([(0, 0), (1, 1), (2, 1), (3, 1), (4, 4)]),
            "nobody else sees what host 0 sees"
        );
    }

    #[test]
    fn two_files_in_one_place_are_one_too_many() {
        let file = |id, dst: &str| Delivery {
            id,
            file: id,
            ..delivery(dst)
        };
        let (a, b, c) = (file(0, "/w/a"), file(1, "/w/b"), file(2, "/w/a"));
        assert_eq!(
            twice(&[&a, &b, &c]),
            BTreeMap::from([(2, "file record 0 goes to the same place".to_owned())])
        );
    }

    #[test]
    fn more_deliveries_than_a_stream_may_number_are_refused_before_anything_is_sent() {
        let host = |id| Host {
            id,
            ..Host::default()
        };
        let hosts: Vec<Host> = (0..2001).map(host).collect();
        let file = |dst: String| FileCopy {
            dst: Some(dst),
            content: Some("hello".into()),
            bytes: 5,
            ..FileCopy::default()
        };
        let files: Vec<FileCopy> = (0..2000).map(|id| file(format!("/w/{id}"))).collect();
        let refused = deliveries(&hosts, &files, None).unwrap_err();
        let fault = refused.0[0].to_string();
        assert!(
            fault.contains("4002000 files for all hosts together"),
            "{fault}"
        );
        assert_eq!(deliveries(&hosts[..2], &files, None).unwrap().len(), 4000);
    }

    #[test]
    fn the_folder_above_all() {
        let (a, b, c) = (
            delivery("/w/job/a"),
            delivery("/w/job/data/part0/b"),
            delivery("/w/jobs/c"),
        );
        assert_eq!(base(&[a.clone(), b.clone()]), PathBuf::from("/w/job"));
        assert_eq!(base(&[a, c]), PathBuf::from("/w"));
        assert_eq!(base(&[b]), PathBuf::from("/w/job/data/part0"));
    }

    #[test]
    fn a_destination_stays_where_it_was_planned() {
        let file = |dst: &str| FileCopy {
            dst: Some(dst.into()),
            content: Some("hello".into()),
            bytes: 5,
            mode: 0o644,
            ..FileCopy::default()
        };
        let workspace = Some(Path::new("/w"));
        assert!(super::delivery(&file("/w/a"), workspace).is_ok());
        for dst in [
            "a",
            "/w/../a",
            "/",
            "",
            "/w/\0",
            "/ws/a",
            "/etc/passwd",
            "/w/.part-push.lock",
            "/w/.part-push.kept/a",
        ] {
            assert!(super::delivery(&file(dst), workspace).is_err(), "{dst:?}");
        }
        assert!(super::delivery(&file("/etc/passwd"), None).is_ok());
        assert!(
            super::delivery(
                &FileCopy {
                    bytes: 4,
                    ..file("/w/a")
                },
                workspace
            )
            .is_err()
        );
    }
}
