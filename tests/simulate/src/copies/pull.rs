//! A pull: what part-pull asks of a host, in its order.

use super::agent::{Agent, Lost};
use super::world::{Process, World};
use part_pull::local::{self, Expected, Local, PullDestination};
use part_pull::plan::PulledFile;
use std::fs::Metadata;
use std::rc::Rc;
use std::sync::Arc;
use transfer::lock::LockAttempt;
use transfer::receiver::Receiver;
use transfer::{SMALL, sums};
use wire::files::{FileEvent, FileRequest, FileStep, FileToSend, FilesToSend};

const ATTEMPTS: usize = 30;

/// Brings the logs of a host; returns whether each is reported as copied.
pub fn pull(world: &Arc<World>, actor: usize, host: usize, run: &str) -> bool {
    let tool = Process::new(world, actor, 0);
    let brought = bring(world, &tool, actor, host, run);
    world.note(|| format!("actor {actor}: pull {run} of host {host}: {brought:?}"));
    brought.is_ok_and(|is_whole| is_whole)
}

fn bring(
    world: &Arc<World>,
    tool: &Rc<Process>,
    actor: usize,
    host: usize,
    run: &str,
) -> Result<bool, Lost> {
    let workspace = world.disks[world.hosts[host]].workspace();
    let give = FileRequest::Give {
        base: workspace.as_path().into(),
    };
    let (mut agent, ready) = Agent::begin(world, actor, host, &give);
    ready?;
    let folder = world.pulled(host);
    let find = FileRequest::Find {
        roots: vec!["./logs".into()],
        enter: vec!["**".to_owned()],
        mark: None,
    };
    let mut items = Vec::new();
    for (event, _) in agent.ask(find, &[])? {
        let FileEvent::Found { entries, .. } = event else {
            return Err(Lost);
        };
        for entry in entries.into_iter().filter(|entry| entry.meta.is_file()) {
            items.push(PulledFile {
                id: items.len() as u32,
                dst: folder.join(entry.path.path().strip_prefix(".").unwrap()),
                src: entry.path.path().to_owned(),
                there: entry.meta,
                unreadable: None,
            });
        }
    }
    let claim = (0..ATTEMPTS).find_map(|_| {
        world.turns.pass(actor, 100);
        let attempt = tool.run(|| local::claim(&folder, run)).ok()?;
        (!matches!(attempt, LockAttempt::Busy(_))).then_some(attempt)
    });
    let claim = match claim {
        Some(claim) if !tool.is_killed() => claim,
        other => {
            tool.run(|| drop(other));
            return Err(Lost);
        }
    };
    let local = Local::new(folder, false);
    let mut copied = Vec::new();
    let fetched = fetch(
        world,
        tool,
        &mut agent,
        (&local, &claim),
        (&items, &mut copied),
    );
    world.touch(Vec::new());
    if !tool.is_killed() {
        for (item, step) in copied {
            let source = workspace.join(&item.src);
            let has_length = |meta: Metadata| meta.len() == item.there.bytes;
            let is_copy =
                world.check(&item.dst, &source) && item.dst.metadata().is_ok_and(has_length);
            if !is_copy && !world.has_changed_since(&item.dst, step) {
                world.violation(format!("{} is reported, and not here", item.dst.display()));
            }
        }
    }
    tool.run(|| drop(claim));
    fetched
}

/// Adds each file that is here, with the step before it was found to be or arrived.
fn fetch<'a>(
    world: &World,
    tool: &Rc<Process>,
    agent: &mut Agent,
    (local, claim): (&Local, &LockAttempt),
    (items, copied): (&'a [PulledFile], &mut Vec<(&'a PulledFile, u64)>),
) -> Result<bool, Lost> {
    let begun = world.turns.steps();
    let (here, lacking): (Vec<&PulledFile>, Vec<_>) =
        items.iter().partition(|item| local.has(item));
    copied.extend(here.into_iter().map(|item| (item, begun)));
    let tree = tool.run(|| local.make());
    let receiver = Receiver::new(tree.map_err(|_| Lost)?, PullDestination::default());
    let mut pull = Pull {
        world,
        tool,
        receiver,
    };
    let mut is_whole = true;
    for item in &lacking {
        let source = world.disks[world.hosts[agent.host]].workspace();
        world.touch(vec![source.join(&item.src), item.dst.clone()]);
        let begun = world.turns.steps();
        let landed = pull.one(agent, local, item);
        let is_here = *landed.as_ref().unwrap_or(&false);
        copied.extend(is_here.then_some((*item, begun)));
        is_whole &= is_here;
        if tool.is_killed() || landed.is_err() {
            tool.run(|| drop(pull));
            return Err(Lost);
        }
    }
    tool.run(|| {
        drop(pull);
        local.remove_left(claim, &lacking);
    });
    Ok(is_whole)
}

struct Pull<'p, 'a> {
    world: &'p World,
    tool: &'p Rc<Process>,
    receiver: Receiver<PullDestination<'a>>,
}

impl<'a> Pull<'_, 'a> {
    fn one(
        &mut self,
        agent: &mut Agent,
        local: &Local,
        item: &'a PulledFile,
    ) -> Result<bool, Lost> {
        let bytes = item.there.bytes;
        let kept = self.tool.run(|| local.kept(item)).filter(|_| bytes > SMALL);
        let sums = kept
            .as_ref()
            .map(|kept| sums::of(&|_| true, &kept.file, &kept.parts, bytes));
        let sums = sums.transpose().ok().flatten();
        let kept = kept.filter(|_| sums.is_some());
        let wanted = FilesToSend {
            files: vec![FileToSend {
                id: item.id,
                path: item.src.as_path().into(),
                meta: item.there,
            }],
            kept: kept
                .as_ref()
                .map(|kept| kept.parts.list().to_vec())
                .unwrap_or_default(),
        };
        let body: Vec<u8> = sums.iter().flatten().flat_map(|sum| sum.0).collect();
        let expected = Expected::new(item, kept);
        self.receiver.destination.expected.insert(item.id, expected);
        let mut result = None;
        for (event, body) in agent.ask(FileRequest::Send(wanted), &body)? {
            let FileEvent::Step(step) = event else {
                return Err(Lost);
            };
            if matches!(step, FileStep::Write(_)) && self.world.leaves_out() {
                continue;
            }
            let is_theirs = matches!(step, FileStep::Abandon { .. });
            for (_, landed) in self.tool.run(|| self.receiver.step(step, body)) {
                result.get_or_insert(landed.is_ok() && !is_theirs);
            }
        }
        self.receiver.destination.expected.remove(&item.id);
        Ok(result.unwrap_or(false))
    }
}
