//! Files by which GraphStorm's processes communicate, which all hosts must see. GraphStorm does not
//! check that; a wrong path shows only at the end of a training, or makes it hang. Learned from its
//! source, in which 0.4 and 0.5 are alike.

use crate::command::UserCommand;
use crate::script::option;
use record::Host;
use std::path::Path;

/// File systems that belong to one host.
const OF_ONE_HOST: [&str; 9] = [
    "ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "tmpfs", "overlay",
];

/// Warns about a file that others read in a workspace that each host has for itself.
pub fn own_disks(command: &UserCommand, workspace: Option<&str>, hosts: &[Host]) -> Option<String> {
    if hosts.len() < 2 {
        return None;
    }
    let kind = |host: &Host| {
        let kind = host.facts.workspace_fs.as_deref()?;
        OF_ONE_HOST.contains(&kind).then(|| kind.to_owned())
    };
    let (host, kind) = hosts.iter().find_map(|host| Some((host, kind(host)?)))?;
    let (words, script) = command.program()?;
    let (script, args) = words[script..].split_first()?;
    let given = |name: &str| option(args, name);
    let below = |path: &str| Path::new(workspace.unwrap_or_default()).join(path);
    let is_in_workspace = |path: &str| workspace.is_some_and(|dir| below(path).starts_with(dir));
    let in_workspace = |name: &str| given(name).filter(|(_, path)| is_in_workspace(path));

    let remaps = script == "graphstorm.gconstruct.remap_result";
    let name = script.rsplit('.').next().unwrap_or_default();
    let trains = script.starts_with("graphstorm.run.")
        && name.starts_with("gsgnn_")
        && name != "gsgnn_node_emb";
    let shared = given("with_shared_fs")
        .is_none_or(|(_, value)| ["true", "1"].contains(&value.to_lowercase().as_str()));
    let (found, why, fix) = match (remaps, trains) {
        (true, _) if shared => (
            in_workspace("save_embed_path").or(in_workspace("save_prediction_path")),
            "worker 0 would wait for ever for the files that the others write",
            "give a path on storage that all hosts share, or use --with-shared-fs False",
        ),
        (_, true) if given("save_embed_path").is_some() => (
            in_workspace("save_model_path"),
            "to save embeddings, all trainers read the model that trainer 0 has written",
            "give a path on storage that all hosts share, or save embeddings by an inference",
        ),
        _ => return None,
    };
    let (name, path) = found?;
    Some(format!(
        "{name} {path} is in the workspace, which is {kind} on {}, its own: {why}\n  fix: {fix}",
        host.location()
    ))
}
