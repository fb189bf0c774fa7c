//! The paths on the hosts, and the form in which a config must have them so that DGL finds the
//! files.

use crate::args::{Args, PartsLocation, Paths};
use partition::files::path_on_hosts;
use record::Host;
use record::error::{Fault, Report};
use std::path::{Path, PathBuf};

/// The paths on the hosts; all of them are absolute.
#[derive(Clone, Debug)]
pub struct Layout {
    /// The directory of the job.
    pub workspace: PathBuf,
    /// The directory of the partitions.
    pub data: PathBuf,
    /// The path of the ip_config.
    pub ip_config: PathBuf,
    /// The name or absolute path of the partition config; if absent, it is named for the graph.
    pub config_name: Option<PathBuf>,
    /// The form of the paths in the config.
    pub paths: Paths,
    /// Where the parts are.
    pub parts: PartsLocation,
}

impl Layout {
    /// Checks the paths of the command line. `~/` is the home that host-probe found, which must be
    /// the same on all hosts; `data` is where the partitions go, unless the command line says
    /// otherwise.
    pub fn new(args: &Args, hosts: &[Host], data: &Path) -> Result<Layout, Report> {
        let mut report = Report::default();
        let mut path = |option, folder, path: &Path| {
            let path = path_on_hosts(option, path, folder, hosts).map_err(Report::from);
            report.keep(path).unwrap_or_default()
        };
        let workspace = path("--workspace", None, &args.workspace);
        let data = args.rel_data_path.as_deref().unwrap_or(data);
        let data = path("--rel-data-path", Some(&workspace), data);
        let ip_config = path("--ip-config", Some(&workspace), &args.ip_config);
        let config_name = args.config_name.as_ref().map(|name| {
            match name.is_absolute() || name.starts_with("~") {
                true => path("--config-name", None, name),
                false => name.clone(),
            }
        });
        if let Some(name) = &config_name {
            let plain = name.to_str().is_some()
                && name.components().count() == 1
                && name.file_name().is_some();
            if !plain && !name.is_absolute() {
                let fault = Fault::usage("--config-name", "is a file's name, or its absolute path");
                report
                    .push(fault.fix(
                        "give a name without a directory; --rel-data-path says the directory",
                    ));
            } else if args.paths == Paths::Workspace
                && name.is_absolute()
                && name.parent() != Some(&workspace)
            {
                report.push(
                    Fault::usage(
                        "--config-name",
                        "is not in the workspace, where --paths workspace puts it",
                    )
                    .fix("take --paths absolute"),
                );
            }
        }
        report.check()?;
        Ok(Layout {
            workspace,
            data,
            ip_config,
            config_name,
            paths: args.paths,
            parts: args.parts,
        })
    }

    /// The path of the partition config.
    pub fn config(&self, graph_name: &str) -> PathBuf {
        let folder = if self.paths == Paths::Workspace {
            &self.workspace
        } else {
            &self.data
        };
        match &self.config_name {
            Some(name) => folder.join(name),
            None => folder.join(format!("{graph_name}.json")),
        }
    }

    /// The form of a part's path in a config. DGL 0.6 and later read it relative to the config's
    /// directory, 0.5 relative to the working directory. An absolute path suits both, and is the
    /// only choice if the file is not below.
    pub fn part_path(&self, config: &Path, dst: &Path) -> PathBuf {
        let folder = config.parent().unwrap_or(&self.workspace);
        let relative = if self.paths == Paths::Absolute {
            None
        } else {
            dst.strip_prefix(folder).ok()
        };
        relative.unwrap_or(dst).to_owned()
    }

    /// The form of an .npy map's path in a config. Every version of DGL that has these maps reads
    /// them from the working directory, which is the workspace.
    pub fn map_path(&self, dst: &Path) -> PathBuf {
        if self.paths == Paths::Absolute {
            dst.to_owned()
        } else {
            self.from_workspace(dst)
        }
    }

    /// A path for the processes of the job: relative to the workspace if it is below.
    pub fn from_workspace(&self, path: &Path) -> PathBuf {
        path.strip_prefix(&self.workspace)
            .unwrap_or(path)
            .to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use record::Facts;

    fn layout(flags: &str, homes: &[Option<&str>]) -> Result<Layout, String> {
        let args = Args::parse_from(["part-map"].into_iter().chain(flags.split_whitespace()));
        let host = |home: &Option<&str>| Host {
            facts: Facts {
                home: home.map(str::to_owned),
                ..Facts::default()
            },
            ..Host::default()
        };
        let hosts: Vec<Host> = homes.iter().map(host).collect();
        Layout::new(&args, &hosts, Path::new("data")).map_err(|report| report.0[0].to_string())
    }

    #[expect(clippy::too_many_lines, reason = "it is a table of cases")]
    #[test]
    fn names_in_the_config_are_what_dgl_looks_for() {
        let table = [
            // flags; the config; a part's file as the config names it; a map; does 0.5 find the
            // part
            (
                "",
                "/ws/data/g.json",
                "part0/graph.dgl",
                "data/node_map.npy",
                false,
            ),
            (
                "--rel-data-path .",
                "/ws/g.json",
                "part0/graph.dgl",
                "node_map.npy",
                true,
            ),
            (
                "--rel-data-path ./a//b/ --config-name x.json",
                "/ws/a/b/x.json",
                "part0/graph.dgl",
                "a/b/node_map.npy",
                false,
            ),
            (
                "--rel-data-path /mnt/d",
                "/mnt/d/g.json",
                "part0/graph.dgl",
                "/mnt/d/node_map.npy",
                false,
            ),
            (
                "--config-name /etc/g.json",
                "/etc/g.json",
                "/ws/data/part0/graph.dgl",
                "data/node_map.npy",
                true,
            ),
            (
                "--paths workspace",
                "/ws/g.json",
                "data/part0/graph.dgl",
                "data/node_map.npy",
                true,
            ),
            (
                "--paths workspace --config-name /ws/h.json",
                "/ws/h.json",
                "data/part0/graph.dgl",
                "data/node_map.npy",
                true,
            ),
            (
                "--paths absolute",
                "/ws/data/g.json",
                "/ws/data/part0/graph.dgl",
                "/ws/data/node_map.npy",
                true,
            ),
        ];
        for (flags, config, part_path, map_path, old) in table {
            let layout = layout(&format!("--workspace /ws {flags}"), &[None]).unwrap();
            let (part, map) = (
                layout.data.join("part0/graph.dgl"),
                layout.data.join("node_map.npy"),
            );
            assert_eq!(layout.config("g"), PathBuf::from(config), "{flags}");
            assert_eq!(
                layout.part_path(Path::new(config), &part),
                PathBuf::from(part_path),
                "{flags}"
            );
            assert_eq!(layout.map_path(&map), PathBuf::from(map_path), "{flags}");
            // DGL's rules lead from there to the file: from 0.6 from the config's directory, in 0.5
            // and for all maps from the workspace
            let ws = Path::new("/ws");
            assert_eq!(
                Path::new(config).parent().unwrap().join(part_path),
                part,
                "{flags}"
            );
            assert_eq!(ws.join(map_path), map, "{flags}");
            assert_eq!(ws.join(part_path) == part, old, "0.5, {flags}");
        }
    }

    #[expect(clippy::too_many_lines, reason = "it is a table of cases")]
    #[test]
    fn paths_are_absolute_or_below_the_workspace_or_the_home() {
        let homes = &[Some("/home/me"), Some("/home/me")];
        let paths =
            |flags: &str| layout(flags, homes).map(|layout| [layout.workspace, layout.ip_config]);
        let pair = |a: &str, b: &str| Ok([PathBuf::from(a), PathBuf::from(b)]);
        assert_eq!(
            paths("--workspace /ws//./job/"),
            pair("/ws/job", "/ws/job/ip_config.txt")
        );
        assert_eq!(
            paths("--workspace ~/job --ip-config conf/ip.txt"),
            pair("/home/me/job", "/home/me/job/conf/ip.txt")
        );
        assert_eq!(
            paths("--workspace ~ --ip-config ~/ip.txt"),
            pair("/home/me", "/home/me/ip.txt")
        );
        assert_eq!(
            paths("--workspace /ws --ip-config /etc/ip.txt"),
            pair("/ws", "/etc/ip.txt")
        );
        let table: [(&str, &[Option<&str>], &str); 8] = [
            (
                "--workspace ws",
                homes,
                "--workspace: ws is not an absolute path",
            ),
            (
                "--workspace ~you/ws",
                homes,
                "--workspace: ~you/ws is not an absolute path",
            ),
            (
                "--workspace /ws/../x",
                homes,
                "--workspace: /ws/../x has .. in it",
            ),
            (
                "--workspace /ws --rel-data-path ../x",
                homes,
                "--rel-data-path: ../x has .. in it",
            ),
            (
                "--workspace ~/ws",
                &[None],
                "--workspace: ~/ws: the home of host 0 (0.0.0.0) is not known",
            ),
            (
                "--workspace ~/ws",
                &[Some("/a"), Some("/b")],
                "--workspace: ~/ws: home is /b on host 0 (0.0.0.0), /a on host 0",
            ),
            (
                "--workspace /ws --config-name a/b",
                homes,
                "--config-name: is a file's name, or its absolute path",
            ),
            (
                "--workspace /ws --paths workspace --config-name /x/g.json",
                homes,
                "--config-name: is not in the workspace",
            ),
        ];
        for (flags, homes, problem) in table {
            let got = layout(flags, homes).expect_err(flags);
            assert!(got.starts_with(problem), "{flags}: {got}");
        }
    }
}
