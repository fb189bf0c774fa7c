//! Any bytes as a partition config: no panic; and what is taken is written so that DGL's rules lead
//! to the files that were copied.
#![no_main]

use libfuzzer_sys::fuzz_target;
use part_map::args::{PartsLocation, Paths};
use part_map::layout::Layout;
use part_map::plan::{self, Present};
use partition::config::{self, PartConfig};
use partition::files::{FileItem, FileSource, WantedFile};
use record::LocalFile;
use std::path::Path;

fuzz_target!(|data: &[u8]| {
    let Ok(config) = PartConfig::parse(data, "g.json", "/out/g.json".into()) else {
        return;
    };
    for paths in [Paths::Config, Paths::Workspace, Paths::Absolute] {
        let workspace = Path::new("/ws");
        let layout = Layout {
            workspace: workspace.into(),
            data: "/ws/data".into(),
            ip_config: "/ws/ip_config.txt".into(),
            config_name: None,
            paths,
            parts: PartsLocation::Local,
        };
        let items: Vec<FileItem> = plan::wanted(&config, &layout, 1, |_| None)
            .into_iter()
            .filter(|wanted| wanted.required)
            .map(copied)
            .collect();
        let expected: Vec<_> = items
            .iter()
            .map(|item| (item.dst.clone(), item.key.clone()))
            .collect();
        let plan = plan::plan(Some(&config), None, &[], &layout, Present::default(), items);
        let Ok(plan) = plan else {
            continue;
        };
        let part_config = plan
            .files
            .iter()
            .find(|file| file.kind == "config")
            .expect("a config is made");
        let dst = part_config.destination().expect("it goes somewhere");
        let text = part_config.content.as_deref().expect("it has a content");
        let written = PartConfig::parse(text.as_bytes(), "written", dst.clone())
            .expect("what was written can be read");
        assert_eq!(
            written.maps.each_ref().map(std::mem::discriminant),
            config.maps.each_ref().map(std::mem::discriminant)
        );
        for (dst, key) in expected {
            let Some(key) = key else { continue };
            let found = match key.part {
                Some(k) => {
                    let text = config::text(&written.parts[k as usize][&key.name]).expect("a path");
                    if paths != Paths::Config {
                        assert_eq!(workspace.join(&text), dst, "as DGL 0.5 looks");
                    }
                    written.folders[0].join(text)
                }
                None => match &written.maps[usize::from(key.name == "edge_map")] {
                    partition::maps::Map::Npy { path, .. } => workspace.join(path),
                    other => panic!("{other:?}"),
                },
            };
            assert_eq!(found, dst, "as DGL 0.6 and later look");
        }
    }
});

/// As if its first candidate were there.
fn copied(wanted: WantedFile) -> FileItem {
    let here = LocalFile {
        path: wanted.candidates[0].clone(),
        bytes: 1,
        mode: 0o644,
        ..LocalFile::default()
    };
    FileItem {
        source: FileSource::Copied(here),
        ..wanted.item
    }
}
