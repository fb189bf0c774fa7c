//! The paths on the hosts, and the form in which DGL finds the files of a config.

use crate::args::{Args, PartsLocation, Paths};
use partition::files::path_on_hosts;
use record::Host;
use record::error::{Fault, Report};
use std::path::{Path, PathBuf};

/// All of them are absolute.
#[derive(Clone, Debug)]
pub struct Layout {
    pub workspace: PathBuf,
    pub data: PathBuf,
    pub ip_config: PathBuf,
    /// The name or absolute path of the partition config; if absent, it is named for the graph.
    pub config_name: Option<PathBuf>,
    pub paths: Paths,
    pub parts: PartsLocation,
}

impl Layout {
    /// Checks the paths of the command line. `~/` is the home that host-probe found, which must be
    /// the same on all hosts; `data` is where the partitions go by default.
    pub fn new(args: &Args, hosts: &[Host], data: &Path) -> Result<Layout, Report> {
        let mut report = Report::default();
        let mut path = |option, folder, path: &Path| {
            let path = path_on_hosts(option, path, folder, hosts);
            report.keep(path).unwrap_or_default()
        };
        let workspace = path("--workspace", None, &args.workspace);
        let data = args.rel_data_path.as_deref().unwrap_or(data);
        let data = path("--rel-data-path", Some(&workspace), data);
        let ip_config = path("--ip-config", Some(&workspace), &args.ip_config);
        let config_name = args.config_name.as_ref().map(|name| {
            if name.is_absolute() || name.starts_with("~") {
                path("--config-name", None, name)
            } else {
                name.clone()
            }
        });
        if let Some(name) = &config_name {
            let plain = name.to_str().is_some()
                && name.components().count() == 1
                && name.file_name().is_some();
            if !plain && !name.is_absolute() {
                let fault = Fault::usage("--config-name", "is a file's name, or its absolute path");
                report.push(
                    fault.fix(
                        "give a name without a directory; --rel-data-path gives the directory",
                    ),
                );
            } else if args.paths == Paths::Workspace
                && name.is_absolute()
                && name.parent() != Some(&workspace)
            {
                report.push(
                    Fault::usage(
                        "--config-name",
                        "is not in the workspace, where --paths workspace puts it",
                    )
                    .fix("use --paths absolute"),
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

    /// DGL 0.6 and later read a part's path relative to the config's directory, 0.5 relative to the
    /// working directory. An absolute path suits both, and is the only choice if the file is not
    /// below.
    pub fn part_path(&self, config: &Path, dst: &Path) -> PathBuf {
        let folder = config.parent().unwrap_or(&self.workspace);
        let relative = if self.paths == Paths::Absolute {
            None
        } else {
            dst.strip_prefix(folder).ok()
        };
        relative.unwrap_or(dst).to_owned()
    }

    /// Every version of DGL with .npy maps reads them from the working directory, the workspace.
    pub fn map_path(&self, dst: &Path) -> PathBuf {
        if self.paths == Paths::Absolute {
            dst.to_owned()
        } else {
            self.from_workspace(dst)
        }
    }

    /// For the processes of the job: relative to the workspace if it is below.
    pub fn from_workspace(&self, path: &Path) -> PathBuf {
        path.strip_prefix(&self.workspace)
            .unwrap_or(path)
            .to_owned()
    }
}
