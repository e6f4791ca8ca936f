//! The end of a case: all is made good, and everything must come to rest as wanted.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use longshore_integration::env::pause;
use longshore_integration::fuzz::{PodBook, Role, Size};
use nix::sys::signal::Signal;

use crate::case::{LONGEST_LIFE, good};
use crate::dress::{bad_hook, bad_probe};
use crate::eyes::measure;
use crate::hands::{Hands, signal};
use crate::scene::locked;

/// How long the eyes may take for one look.
const LOOK: Duration = Duration::from_secs(60);
/// Until everything is as wanted once nothing is changed any more: the agent waits a second before it starts again what
/// has ended, a loaded machine takes its time for each.
const REST: Duration = Duration::from_secs(60);

impl Hands<'_, '_> {
    /// Waits until the eyes have seen everything that is so now.
    fn seen(&self) -> Result<()> {
        let before = locked(self.scene).looks;
        let begin = Instant::now();
        while locked(self.scene).looks < before + 2 {
            ensure!(begin.elapsed() < LOOK, "nobody looks any more");
            pause(Duration::from_millis(20));
        }
        Ok(())
    }

    fn unrests(&mut self) -> Result<Vec<String>> {
        let mut unrests = Vec::new();
        let mut wanted = Vec::new();
        for index in 0..self.pods.len() {
            let alive = self.is_alive(index)?;
            if let Some(uid) = self.pods[index].uid.clone() {
                if alive { wanted.push(uid) } else { unrests.push(format!("{uid} is deleted and still there")) }
            }
        }
        self.seen()?;
        let mut scene = locked(self.scene);
        measure(&mut scene);
        for uid in wanted {
            if scene.book.pod(&uid).is_some_and(PodBook::is_endless) {
                continue;
            }
            let actual = |id: &str| -> Option<Size> { scene.sizes.get(id).copied() };
            let unrest = scene.book.pod(&uid).and_then(PodBook::unrest);
            let unrest = unrest.or_else(|| scene.book.unrest_of_sizes(&uid, self.cpu, &actual));
            unrests.extend(unrest.map(|text| format!("{uid}: {text}")));
        }
        Ok(unrests)
    }

    /// Makes everything good and waits until all is as wanted.
    pub(crate) fn rest(&mut self) -> Result<()> {
        locked(self.scene).note("everything is good from here on");
        let parts: Vec<_> = self.pods.iter().flat_map(|pod| pod.plan.parts.clone()).collect();
        let mut inits = Vec::new();
        for part in &parts {
            self.program(&part.name, &good(part.role))?;
            part.probes.iter().for_each(|(kind, _)| self.scripts.take(&bad_probe(&part.name, *kind)));
            self.scripts.take(&bad_hook(&part.name));
            if part.role == Role::Init {
                inits.push(part.name.clone());
            }
        }
        {
            let mut scene = locked(self.scene);
            scene.bad.clear();
            let uids: Vec<String> = self.pods.iter().filter_map(|pod| pod.uid.clone()).collect();
            for uid in uids {
                let running = scene.book.pod(&uid).map(PodBook::running).unwrap_or_default();
                for (id, part) in running.iter().flat_map(|id| parts.iter().map(move |part| (id, part))) {
                    part.probes.iter().for_each(|(kind, _)| scene.book.probed_by_name(id, &part.name, *kind, true));
                }
            }
        }
        let begin = Instant::now();
        loop {
            // An init container whose process never ends would hold up its pod for ever.
            self.end_inits(&inits);
            let unrests = self.unrests()?;
            if unrests.is_empty() && begin.elapsed() > LONGEST_LIFE {
                return Ok(());
            }
            if begin.elapsed() > REST {
                bail!("never at rest: {}", unrests.join("; "));
            }
            if !locked(self.scene).book.faults().is_empty() {
                return Ok(());
            }
            pause(Duration::from_millis(200));
        }
    }

    fn end_inits(&self, inits: &[String]) {
        let mut scene = locked(self.scene);
        let pids = scene.pids.clone();
        for (id, pid) in pids {
            let pod = scene.book.owner(&id).and_then(|uid| scene.book.pod(uid));
            let is_init = pod.and_then(|pod| pod.container(&id)).is_some_and(|made| inits.contains(made.name()));
            if is_init && scene.hit.insert(id) {
                signal(pid, Signal::SIGHUP);
            }
        }
    }
}
