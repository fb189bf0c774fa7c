//! Files and directories whose names differ in a number, so that each host gets its own: the parts
//! of a directory, and the files of `--per-host`.

use partition::files::{FileItem, FileSource};
use record::error::{Fault, Report};
use record::term;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

pub const HOST: &str = "{host}";
/// The patterns of a graph's parts: of DGL and GLT, and of PyG.
pub const PARTS: [&str; 2] = ["part{host}", "part_{host}"];
const MAX_NAMES: usize = 10;

/// Names that differ in a number, relative to one directory.
#[derive(Clone, Debug)]
pub struct NumberedNames {
    pub location: String,
    /// Each number may occur in only one of these patterns.
    pub forms: Vec<String>,
    /// Number k goes to host k div `per_host`.
    pub per_host: u32,
    pub may_be_absent: bool,
}

type NamesByNumber = BTreeMap<u64, BTreeSet<String>>;

pub fn from_user(forms: &[String], may_be_absent: bool) -> Result<Vec<NumberedNames>, Report> {
    let sets = forms.iter();
    Report::collect(sets.map(|form| NumberedNames::from_user(form, may_be_absent)))
}

impl NumberedNames {
    fn from_user(form: &str, may_be_absent: bool) -> Result<NumberedNames, Fault> {
        let wrong = |problem: &str, fix: &str| {
            Err(Fault::usage("--per-host", format!("{form} {problem}")).fix(fix))
        };
        if !form.contains(HOST) {
            return wrong(
                "has no {host} in it",
                "write {host} instead of the number of the host; for a file for each rank, see \
                 the examples in part-map(1); for files that all hosts get, use --extra",
            );
        }
        if Path::new(form).is_absolute() {
            return wrong(
                "is an absolute path",
                "give it relative to the directory of the config or of --partitions, or else to \
                 the working directory",
            );
        }
        let names = Path::new(form)
            .components()
            .filter(|part| *part != Component::CurDir);
        if !names
            .clone()
            .all(|part| matches!(part, Component::Normal(_)))
        {
            return wrong(
                "leaves the directory",
                "give a path below the directory of the config or of --partitions, or else below \
                 the working directory",
            );
        }
        Ok(NumberedNames {
            location: form.to_owned(),
            forms: vec![names.collect::<PathBuf>().display().to_string()],
            per_host: 1,
            may_be_absent,
        })
    }

    /// The number and name of a path, or of a directory above it.
    pub fn find(&self, path: &Path) -> Option<(u64, String)> {
        self.forms.iter().find_map(|form| {
            let length = Path::new(form).components().count();
            let name: PathBuf = path.components().take(length).collect();
            let number = number(form, name.to_str()?)?;
            Some((number, fill(form, number)))
        })
    }

    /// Whether they are the parts of a graph.
    pub fn are_parts(&self) -> bool {
        PARTS.contains(&&*self.forms[0])
    }

    /// The warning that the first pattern is only assumed to be that of the hosts.
    pub fn assumed(&self, items: &[FileItem]) -> Option<String> {
        let [assumed, others @ ..] = &self.forms[..] else {
            return None;
        };
        let is_known = items.iter().any(|item| self.find(&item.dst).is_some());
        let other = others.first().filter(|_| !is_known)?;
        Some(format!(
            "{}: no partition on this machine shows how the hosts name theirs, so host 0 must have \
             {}, and so on\n  fix: if it has {}, add --per-host '{other}'; if not, --per-host \
             '{assumed}' omits this warning",
            self.location,
            fill(assumed, 0),
            fill(other, 0),
        ))
    }

    /// The fault that no name is there; `all` lists those needed.
    fn nothing(&self, all: String) -> Fault {
        let first: Vec<String> = self.forms.iter().map(|form| fill(form, 0)).collect();
        let first = first.join(" or ");
        let problem = format!("has no file for any host, not even {first}");
        let fault = Fault::data(&self.location, problem);
        if self.forms.iter().any(|form| form.contains(['*', '?'])) {
            fault.fix(
                "write names without * and ?: if a host gets several files, put them into a \
                 directory for each host and name that",
            )
        } else {
            fault.fix(all)
        }
    }

    fn faults(&self, found: &NamesByNumber, num_hosts: u64) -> Vec<Fault> {
        let per_host = u64::from(self.per_host);
        let count = num_hosts * per_host;
        let fault = |problem: String| Fault::data(&self.location, problem);
        let all = format!(
            "{} to {} must be there, one for each number",
            fill(&self.forms[0], 0),
            fill(&self.forms[0], count.saturating_sub(1))
        );
        let Some(last) = found.keys().last() else {
            return vec![self.nothing(all)];
        };
        let is_there = |form: &&String| {
            found
                .values()
                .flatten()
                .any(|name| number(form, name).is_some())
        };
        let form = self.forms.iter().find(is_there).unwrap_or(&self.forms[0]);
        let missing = (0..count).filter(|number| !found.contains_key(number));
        let missing = list(missing.map(|number| fill(form, number)));
        let surplus = list(found.range(count..).flat_map(|(_, names)| names).cloned());
        let needed = match per_host {
            1 => format!("{num_hosts} hosts need {count}"),
            _ => format!("{num_hosts} hosts with {per_host} each need {count}"),
        };
        let has_gap = *last + 1 != found.len() as u64;
        let number = found.len() as u64;
        let fix = match number.checked_div(num_hosts).filter(|_| !has_gap) {
            Some(each) if each * num_hosts == number && self.forms.len() > 1 => {
                format!(
                    "use --parts-per-host {each}, or list {} hosts",
                    number / per_host
                )
            }
            Some(each) if each * num_hosts == number && each > 1 => {
                format!(
                    "for {each} files on each host, such as one for each rank, put those of a host \
                     into a directory and name that, as in part-map(1); for one on each host, list \
                     {number} hosts"
                )
            }
            _ => all,
        };
        let counts = [("missing", missing), ("surplus", surplus)].into_iter();
        let counts = counts
            .filter_map(|(what, names)| Some((what, names?)))
            .map(|(what, names)| fault(format!("{what}: {names}; {needed}")).fix(fix.clone()));
        let doubled = found.values().filter(|names| names.len() > 1).map(|names| {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            fault(format!("{} have the same number", names.join(" and "))).fix("remove one of them")
        });
        counts.chain(doubled).collect()
    }
}

/// The name of a pattern with this number.
pub fn fill(form: &str, number: u64) -> String {
    form.replace(HOST, &number.to_string())
}

/// The number with which a pattern has this name.
pub fn number(form: &str, name: &str) -> Option<u64> {
    let rest = name.strip_prefix(form.split(HOST).next()?)?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    (1..=digits)
        .filter_map(|length| rest[..length].parse().ok())
        .find(|number| fill(form, *number) == name)
}

fn list(names: impl Iterator<Item = String>) -> Option<String> {
    Some(term::first_few(names, MAX_NAMES)).filter(|text| !text.is_empty())
}

/// Gives each numbered file to its host; others stay for all. `dst` of the items is relative to the
/// directory of the numbered names. If a set may be absent on this machine and is, the hosts must
/// have its names.
pub fn assign(
    sets: &[NumberedNames],
    items: Vec<FileItem>,
    num_hosts: usize,
) -> Result<Vec<FileItem>, Report> {
    let num_hosts = num_hosts as u64;
    let mut report = Report::default();
    let mut found = vec![NamesByNumber::new(); sets.len()];
    let own = |set: &NumberedNames, number: u64, item: FileItem| FileItem {
        host: u32::try_from(number / u64::from(set.per_host)).ok(),
        kind: "partition",
        ..item
    };
    let mut assigned = Vec::with_capacity(items.len());
    for item in items {
        let of_set = sets
            .iter()
            .zip(&mut found)
            .find_map(|(set, names)| Some((set, names, set.find(&item.dst)?)));
        assigned.push(match of_set {
            None => item,
            Some((set, names, (number, name))) => {
                names.entry(number).or_default().insert(name);
                own(set, number, item)
            }
        });
    }
    for (set, names) in sets.iter().zip(found) {
        if names.is_empty() && set.may_be_absent {
            assigned.extend((0..num_hosts * u64::from(set.per_host)).map(|number| {
                let dst = fill(&set.forms[0], number).into();
                own(
                    set,
                    number,
                    FileItem::new("partition", dst, FileSource::OnHost),
                )
            }));
        } else {
            report.0.extend(set.faults(&names, num_hosts));
        }
    }
    report.check().map(|()| assigned)
}
