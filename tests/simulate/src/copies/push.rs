//! A push: what part-push asks of its hosts, in its order.

use super::agent::{Agent, Answer, Lost};
use super::world::{Moment, Process, SOURCES, World};
use part_push::plan::{self, Delivery, DeliverySource};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use transfer::parts::Parts;
use transfer::sender::{self, Outlet, SourceFile};
use transfer::{content, sums};
use wire::files::{FileEvent, FileRequest, FileStep, Meta, Open, Receive, Sum};

/// How often a push asks again for directories that another push has.
const ATTEMPTS: usize = 30;

/// One push to all hosts; returns whether each file is reported as copied.
pub fn push(world: &Arc<World>, actor: usize, run: &str) -> bool {
    let plan = deliveries(world, run);
    let fsync = world.percent(50);
    let tool = Process::new(world, actor, 0);
    let receive = |host: usize| {
        FileRequest::Receive(Receive {
            base: world.disks[world.hosts[host]].workspace().into(),
            run: run.to_owned(),
            host: host as u32,
            dry: false,
            fsync,
            direct: false,
        })
    };
    world.note(|| format!("actor {actor}: push {run} begins"));
    let begun = (0..world.hosts.len()).map(|host| Agent::begin(world, actor, host, &receive(host)));
    let (mut agents, ready): (Vec<Agent>, Vec<_>) = begun.unzip();
    let mut busy: Vec<bool> = ready.iter().map(is_busy).collect();
    for _ in 0..ATTEMPTS {
        if !busy.contains(&true) {
            break;
        }
        for agent in &mut agents {
            let _ = agent.ask(FileRequest::Leave, &[]);
        }
        world.turns.pass(actor, 100);
        for (agent, busy) in agents.iter_mut().zip(&mut busy) {
            let answer = agent.ask(FileRequest::Enter, &[]);
            *busy = is_busy(&answer.and_then(first).map(|(ready, _)| ready));
            if *busy {
                break;
            }
        }
    }
    for agent in agents.iter().filter(|agent| !busy[agent.host]) {
        agent.hold(run);
    }
    let mut is_whole = true;
    // the first host of a directory sends what all hosts get there
    let mut taken: BTreeSet<(usize, &Path)> = BTreeSet::new();
    for agent in agents.iter_mut().filter(|agent| !busy[agent.host]) {
        let disk = world.hosts[agent.host];
        let of_host = plan
            .iter()
            .filter(|delivery| delivery.host == agent.host as u32);
        let (own, shared): (Vec<&Delivery>, Vec<_>) =
            of_host.partition(|delivery| taken.insert((disk, &*delivery.dst)));
        let mut sending = Sending {
            world,
            tool: Rc::clone(&tool),
            agent,
            fsync,
            partials: BTreeMap::new(),
            under_way: BTreeMap::new(),
            asked: 0,
            copied: 0,
        };
        let sent = sending.all(&own).and_then(|()| sending.present(&shared));
        world.touch(Vec::new());
        let all = own.len() + shared.len();
        is_whole &= sent.is_ok() && sending.copied == all;
        world.note(|| {
            format!(
                "actor {actor}: {} of {all} copied, {sent:?}",
                sending.copied
            )
        });
        if tool.is_killed() {
            return false;
        }
    }
    is_whole && !busy.contains(&true)
}

fn is_busy(ready: &Result<FileEvent, Lost>) -> bool {
    matches!(ready, Ok(FileEvent::Ready(ready)) if ready.busy.is_some())
}

fn first(answer: Answer) -> Result<(FileEvent, Vec<u8>), Lost> {
    answer.into_iter().next().ok_or(Lost)
}

/// As part-map lists what exists now: files for all hosts, one for each host, and a file of the
/// record itself.
fn deliveries(world: &World, run: &str) -> Vec<Delivery> {
    let text: Arc<str> = format!("10.0.0.1 {run}\n").into();
    world.add_moment(
        &world.source("ip"),
        Moment::new(text.as_bytes().to_vec(), 0o644),
    );
    let mut all = Vec::new();
    for host in 0..world.hosts.len() {
        let workspace = world.disks[world.hosts[host]].workspace();
        for (file, name) in (0..).zip(SOURCES.iter().chain(&["ip"])) {
            let path = world.source(name);
            let own = workspace.join(format!("own{host}"));
            let delivery = Delivery {
                id: all.len() as u32,
                host: host as u32,
                file,
                source: DeliverySource::Content(text.clone()),
                dst: if *name == "script.sh" {
                    own
                } else {
                    workspace.join(name)
                }
                .into(),
                bytes: text.len() as u64,
                mtime: None,
                mode: 0o644,
                original: None,
            };
            match std::fs::metadata(&path) {
                Ok(meta) => all.push(Delivery {
                    source: DeliverySource::File(path.into()),
                    bytes: meta.len(),
                    mtime: Some((meta.mtime(), meta.mtime_nsec() as u32)),
                    mode: meta.mode() & 0o777,
                    ..delivery
                }),
                Err(_) if *name == "ip" => all.push(delivery),
                Err(_) => {}
            }
        }
    }
    all
}

struct Sending<'a> {
    world: &'a World,
    tool: Rc<Process>,
    agent: &'a mut Agent,
    fsync: bool,
    /// What the host has of a file: the parts, their sums, and whether they are of the file that is
    /// to be replaced.
    partials: BTreeMap<u32, (Parts, Vec<Sum>, bool)>,
    under_way: BTreeMap<u32, &'a Delivery>,
    /// In this step, the host was asked for what is reported now.
    asked: u64,
    copied: usize,
}

impl<'a> Sending<'a> {
    fn all(&mut self, deliveries: &[&'a Delivery]) -> Result<(), Lost> {
        let lacking = self.lacking(deliveries)?;
        for delivery in lacking
            .iter()
            .filter(|delivery| plan::comes_in_parts(delivery))
        {
            self.at_work(delivery);
            let claim = FileRequest::Claim {
                partial_key: plan::partial_key(delivery),
                bytes: delivery.bytes,
                dst: delivery.dst.exists().then(|| delivery.dst.as_ref().into()),
            };
            let (event, body) = first(self.agent.ask(claim, &[])?)?;
            if let FileEvent::Partial {
                parts,
                from_replaced_file,
                ..
            } = event
            {
                let sums = Sum::list(&body).unwrap();
                let parts = Parts::of(&parts).whole_grains(delivery.bytes);
                self.partials
                    .insert(delivery.id, (parts, sums, from_replaced_file));
            }
        }
        let tool = Rc::clone(&self.tool);
        tool.run(|| sender::send(self, &lacking))
    }

    /// The deliveries that another host has sent to the shared directory.
    fn present(&mut self, deliveries: &[&'a Delivery]) -> Result<(), Lost> {
        self.lacking(deliveries).map(drop)
    }

    /// Reports those that are there.
    fn lacking(&mut self, deliveries: &[&'a Delivery]) -> Result<Vec<&'a Delivery>, Lost> {
        self.asked = self.world.turns.steps();
        let mut lacking = Vec::new();
        let there = self.inspect(deliveries, None)?;
        for (delivery, meta) in deliveries.iter().zip(there) {
            let mut is_there = meta.is_some_and(|meta| plan::is_present(delivery, &meta));
            if is_there && !plan::is_sure(delivery) {
                let DeliverySource::Content(text) = &delivery.source else {
                    continue;
                };
                let there =
                    self.inspect(&[delivery], Some(delivery.bytes))?[0].and_then(|meta| meta.sum);
                is_there = there == Some(content::sum(text.as_bytes()));
            }
            if is_there {
                self.report(delivery);
            } else {
                lacking.push(*delivery);
            }
        }
        Ok(lacking)
    }

    fn inspect(
        &mut self,
        asked: &[&Delivery],
        sums: Option<u64>,
    ) -> Result<Vec<Option<Meta>>, Lost> {
        let names = asked.iter();
        let names =
            names.flat_map(|delivery| [delivery.dst.as_os_str().as_bytes(), b"\0"].concat());
        let names: Vec<u8> = names.collect();
        let mut found = Vec::new();
        let inspect = FileRequest::Inspect {
            sums,
            follow: false,
        };
        for (event, _) in self.agent.ask(inspect, &names)? {
            let FileEvent::Inspected { entries, .. } = event else {
                return Err(Lost);
            };
            found.extend(entries);
        }
        let as_reported = |(delivery, meta): (&&Delivery, Option<Meta>)| {
            // the host tells that permissions mean nothing there
            let is_odd = self.world.disk_of(&delivery.dst).ignores_modes;
            let odd = 0o100_000 | delivery.mode;
            meta.map(|meta| Meta {
                mode: if is_odd { odd } else { meta.mode },
                ..meta
            })
        };
        Ok(asked.iter().zip(found).map(as_reported).collect())
    }

    /// Others may change its source and what it will replace.
    fn at_work(&self, delivery: &Delivery) {
        if let DeliverySource::File(source) = &delivery.source {
            let files = vec![source.to_path_buf(), delivery.dst.to_path_buf()];
            self.world.touch(files);
        }
    }

    fn report(&mut self, delivery: &Delivery) {
        self.copied += 1;
        let source = match &delivery.source {
            DeliverySource::File(path) => path.to_path_buf(),
            _ => self.world.source("ip"),
        };
        let is_copy = self.world.check(&delivery.dst, &source);
        if !is_copy && !self.world.has_changed_since(&delivery.dst, self.asked) {
            let what = format!("{} is reported, and not there", delivery.dst.display());
            self.world.violation(what);
        }
    }

    fn ask(&mut self, step: FileStep, body: &[u8]) -> Result<(), Lost> {
        if self.tool.is_killed() {
            return Err(Lost);
        }
        self.asked = self.world.turns.steps();
        if matches!(step, FileStep::Write(_)) && self.world.leaves_out() {
            return Ok(());
        }
        for (event, _) in self.agent.ask(FileRequest::Step(step), body)? {
            let FileEvent::Landed { done, failed } = event else {
                return Err(Lost);
            };
            for id in done {
                if let Some(delivery) = self.under_way.remove(&id) {
                    let disk = self.world.disk_of(&delivery.dst);
                    // without locks, another push may have replaced it
                    let is_ours =
                        disk.has_locks && !self.world.has_changed_since(&delivery.dst, self.asked);
                    if self.fsync && is_ours && !disk.is_synced(&delivery.dst) {
                        let what = format!("{} is not synced", delivery.dst.display());
                        self.world.violation(what);
                    }
                    self.report(delivery);
                }
            }
            for (id, fault) in failed {
                self.world.note(|| format!("delivery {id}: {fault}"));
                self.under_way.remove(&id);
            }
        }
        Ok(())
    }
}

impl<'a> Outlet<&'a Delivery> for Sending<'a> {
    type Broken = Lost;

    fn step(&mut self, step: FileStep, body: &[u8]) -> Result<(), Lost> {
        self.ask(step, body)
    }

    fn batch(
        &mut self,
        files: &[&'a Delivery],
        read: sender::SmallFiles<String>,
    ) -> Result<(), Lost> {
        for file in files {
            self.under_way.insert(file.id, file);
        }
        for (index, why) in &read.failed {
            self.world.note(|| why.clone());
            self.under_way.remove(&files[*index].id);
        }
        let (content, body) = content::pack(read.content, false);
        let files = read.files;
        self.ask(
            FileStep::Batch(wire::files::Batch { files, content }),
            &body,
        )
    }

    fn open(&mut self, delivery: &'a Delivery, source: &File) -> Result<Parts, Lost> {
        self.under_way.insert(delivery.id, delivery);
        self.at_work(delivery);
        self.world.overwrite(&delivery.dst);
        let (parts, theirs, of_replaced) = self.partials.remove(&delivery.id).unwrap_or_default();
        let ours = sums::of(&|_| true, source, &parts, delivery.bytes);
        let (kept, sum) = sums::same(&parts, delivery.bytes, &ours.unwrap_or_default(), &theirs);
        let open = FileStep::Open(Open {
            file: delivery.attributes(),
            partial_key: plan::partial_key(delivery),
            keep: kept.list().to_vec(),
            keep_sum: (of_replaced && !kept.list().is_empty()).then(|| Box::new(sum)),
            chained: None,
        });
        self.ask(open, &[])?;
        Ok(kept)
    }

    fn wants(&mut self, id: u32) -> bool {
        self.under_way.contains_key(&id)
    }

    fn abandon(&mut self, file: &'a Delivery, why: String) -> Result<(), Lost> {
        self.world.note(|| why);
        let id = file.id;
        self.under_way.remove(&id);
        let (keep, fault) = (false, None);
        self.ask(FileStep::Abandon { id, keep, fault }, &[])
    }
}
