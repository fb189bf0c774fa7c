//! Checks which versions of DGL can load a config. If host-probe has found the versions, a wrong
//! one is a fault; if not, forms that only old versions read are worth a warning.

use crate::args::Paths;
use partition::config::{DGL_GRAPH, PartConfig};
use partition::maps::Map;
use record::Host;
use record::error::{Fault, Report};
use record::python::{Version, version};

#[derive(Debug, PartialEq, Eq)]
struct VersionLimit {
    /// The first version that can load it, and the first that no longer can.
    from: Version,
    until: Version,
    what: &'static str,
    fix: &'static str,
}

const FIRST: Version = (0, 5, 0);
const NEVER: Version = (u32::MAX, 0, 0);

/// Faults for known versions; warnings if no version is known.
pub fn check(config: &PartConfig, paths: Paths, hosts: &[Host]) -> Result<Vec<String>, Report> {
    Report(lack_dgl(hosts).collect()).check()?;
    let limits = limits(config, paths);
    let versions: Vec<(&Host, Version)> = hosts
        .iter()
        .filter_map(|host| Some((host, version(host.facts.dgl.as_deref()?)?)))
        .collect();
    if versions.is_empty() {
        let surprising = limits
            .iter()
            .filter(|limit| limit.until != NEVER || limit.what == PATHS);
        return Ok(surprising
            .map(|limit| format!("{}: {}\n  fix: {}", config.location, limit.what, limit.fix))
            .collect());
    }
    let mut report = Report::default();
    for limit in limits {
        if let Some((host, _)) = versions
            .iter()
            .find(|(_, version)| *version < limit.from || *version >= limit.until)
        {
            let dgl = host.facts.dgl.as_deref().unwrap_or_default();
            report.push(
                Fault::data(
                    &config.location,
                    format!("{}; {} has DGL {dgl}", limit.what, host.location()),
                )
                .fix(limit.fix),
            );
        }
    }
    report.check().map(|()| Vec::new())
}

/// The hosts without DGL, which is certain only if host-probe examined the environment of the job:
/// the command may name another python3 than the examined one.
fn lack_dgl(hosts: &[Host]) -> impl Iterator<Item = Fault> {
    hosts
        .iter()
        .filter(|host| host.facts.dgl.is_none())
        .filter_map(|host| {
            let prefix = host.facts.prefix.as_deref()?;
            let problem = format!(
                "no dgl in the job's environment, {prefix}, and the graph is for DGL to load"
            );
            let fix = "install dgl on the host, or give host-probe another environment";
            Some(Fault::data(host.location(), problem).fix(fix))
        })
}

const PATHS: &str = "was written by DGL 0.5, which does not look for part files beside the config";

fn limits(config: &PartConfig, paths: Paths) -> Vec<VersionLimit> {
    let mut limits = Vec::new();
    let mut limit = |from, until, what, fix| {
        limits.push(VersionLimit {
            from,
            until,
            what,
            fix,
        });
    };
    let [nodes, edges] = &config.maps;
    if paths == Paths::Config {
        let what = if matches!(nodes, Map::Ends) {
            PATHS
        } else {
            "DGL before 0.6 does not look for part files beside the config"
        };
        limit(
            (0, 6, 0),
            NEVER,
            what,
            "use --paths workspace, or --paths absolute",
        );
    }
    if matches!(nodes, Map::Npy { .. }) {
        limit(
            FIRST,
            (1, 0, 0),
            "has .npy maps, which DGL reads to 0.9 and refuses from 1.0 on",
            "partition with reshuffle=True",
        );
    }
    if let Map::Ranges { canonical, .. } = edges {
        let fix = "partition the graph again with the hosts' version of DGL";
        if *canonical {
            limit(
                (1, 0, 0),
                NEVER,
                "names edge types as src:etype:dst, which DGL reads from 1.0 on",
                fix,
            );
        } else {
            limit(
                (0, 6, 0),
                (1, 0, 0),
                "names edge types without their node types, which DGL reads from 0.6 to 0.9 and \
                 refuses from 1.0 on",
                "for DGL 1.0 and later convert it with DGL's \
                 tools/change_etype_to_canonical_etype.py",
            );
        }
    }
    if !config.all_have(DGL_GRAPH) {
        limit(
            (2, 1, 0),
            NEVER,
            "has graphs of graphbolt's form alone, which DGL reads from 2.1 on",
            "partition with use_graphbolt=False",
        );
    }
    limits
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::Facts;

    fn config(maps: &str, graph: &str) -> PartConfig {
        let text = format!(
            "{{\"graph_name\":\"g\",\"num_parts\":1,\"num_nodes\":1,\"num_edges\":1,\
                 {maps},\"part-0\":{{\"{graph}\":\"g\",\"node_feats\":\"n\",\
                 \"edge_feats\":\"e\"}}}}"
        );
        PartConfig::parse(text.as_bytes(), "g.json", "/d/g.json".into()).unwrap()
    }

    #[test]
    fn each_host_must_have_dgl_where_the_environment_is_known() {
        let host = |prefix: Option<&str>, dgl: Option<&str>| Host {
            facts: Facts {
                prefix: prefix.map(str::to_owned),
                dgl: dgl.map(str::to_owned),
                ..Facts::default()
            },
            ..Host::default()
        };
        let table = [
            (vec![host(None, None)], 0),
            (vec![host(Some("/v"), Some("1.0.4"))], 0),
            (vec![host(Some("/v"), Some("unknown"))], 0),
            (
                vec![host(Some("/v"), None), host(Some("/v"), Some("1.0.4"))],
                1,
            ),
            (vec![host(Some("/v"), None), host(None, None)], 1),
            (vec![host(Some("/v"), None), host(Some("/u"), None)], 2),
        ];
        for (hosts, faults) in table {
            assert_eq!(lack_dgl(&hosts).count(), faults, "{hosts:?}");
        }
    }

    #[expect(clippy::too_many_lines, reason = "it is a table of cases")]
    #[test]
    fn what_suits_which_version() {
        let ends = r#""node_map":[1],"edge_map":[1]"#;
        let npy = r#""node_map":"n.npy","edge_map":"e.npy""#;
        let plain = r#""node_map":{"_N":[[0,1]]},"edge_map":{"_E":[[0,1]]},"etypes":{"_E":0}"#;
        let canonical =
            r#""node_map":{"_N":[[0,1]]},"edge_map":{"_N:_E:_N":[[0,1]]},"etypes":{"_N:_E:_N":0}"#;
        let (dgl, graphbolt) = ("part_graph", "part_graph_graphbolt");
        // which of these versions load it, and whether it causes a warning if the version is
        // unknown
        let versions = [
            "0.5.3",
            "0.6.1",
            "0.9.1",
            "1.0.4",
            "1.1.3+cu118",
            "2.1.0",
            "2.4.0",
        ];
        let table = [
            (
                ends,
                dgl,
                Paths::Config,
                [false, true, true, true, true, true, true],
                true,
            ),
            (ends, dgl, Paths::Workspace, [true; 7], false),
            (ends, dgl, Paths::Absolute, [true; 7], false),
            (
                npy,
                dgl,
                Paths::Workspace,
                [true, true, true, false, false, false, false],
                true,
            ),
            (
                npy,
                dgl,
                Paths::Config,
                [false, true, true, false, false, false, false],
                true,
            ),
            (
                plain,
                dgl,
                Paths::Config,
                [false, true, true, false, false, false, false],
                true,
            ),
            (
                canonical,
                dgl,
                Paths::Config,
                [false, false, false, true, true, true, true],
                false,
            ),
            (
                canonical,
                graphbolt,
                Paths::Absolute,
                [false, false, false, false, false, true, true],
                false,
            ),
        ];
        for (maps, graph, paths, expected, warned) in table {
            let config = config(maps, graph);
            let host = |dgl: Option<&str>| Host {
                facts: Facts {
                    dgl: dgl.map(str::to_owned),
                    ..Facts::default()
                },
                ..Host::default()
            };
            let suits = versions
                .map(|version| check(&config, paths, &[host(None), host(Some(version))]).is_ok());
            assert_eq!(suits, expected, "{maps} {graph} {paths:?}");
            assert_eq!(
                check(&config, paths, &[host(None)]).unwrap().len(),
                usize::from(warned),
                "{maps} {paths:?}"
            );
        }
    }
}
