//! What becomes of each delivery to a host: one state, in one place.

use crate::plan::Delivery;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What is known of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The host lacks it, and nobody else brings it.
    Lacks,
    /// It is there already.
    There,
    /// Another host puts it on the storage that both share.
    Shared,
    /// It cannot be: why.
    Refused(String),
    /// Its record is written; nothing more becomes of it.
    Told,
}

/// Those of one host, by delivery. Threads that wait for the host ask and tell.
pub struct Fates(Mutex<BTreeMap<u32, Fate>>);

impl Fates {
    /// All are lacking but those that are refused.
    pub fn new(deliveries: &[&Delivery], mut refused: BTreeMap<u32, String>) -> Fates {
        let fate = |delivery: &&Delivery| {
            let why = refused.remove(&delivery.id);
            (delivery.id, why.map_or(Fate::Lacks, Fate::Refused))
        };
        Fates(Mutex::new(deliveries.iter().map(fate).collect()))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, Fate>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of a delivery of this host.
    pub fn of(&self, delivery: &Delivery) -> Fate {
        self.lock().get(&delivery.id).cloned().unwrap_or(Fate::Told)
    }

    /// Something else is known. What was told or refused stays so.
    pub fn set(&self, delivery: &Delivery, fate: Fate) {
        let mut fates = self.lock();
        if let Some(known) = fates.get_mut(&delivery.id)
            && (fate == Fate::Told || !matches!(known, Fate::Told | Fate::Refused(_)))
        {
            *known = fate;
        }
    }

    /// How many have this fate.
    pub fn count(&self, fate: &Fate) -> usize {
        self.lock().values().filter(|known| *known == fate).count()
    }

    /// Whether each has its record.
    pub fn are_told(&self) -> bool {
        self.lock().values().all(|fate| *fate == Fate::Told)
    }

    /// Those that have this fate.
    pub fn with<'a>(&self, fate: &Fate, deliveries: &[&'a Delivery]) -> Vec<&'a Delivery> {
        let fates = self.lock();
        let has = |delivery: &&&Delivery| fates.get(&delivery.id) == Some(fate);
        deliveries.iter().filter(has).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_refused_or_told_stays_so() {
        let deliveries: Vec<Delivery> = (0..4)
            .map(|id| Delivery {
                id,
                ..Delivery::sample()
            })
            .collect();
        let all: Vec<&Delivery> = deliveries.iter().collect();
        let fates = Fates::new(&all, BTreeMap::from([(2, "no".to_owned())]));
        fates.set(all[0], Fate::There);
        fates.set(all[1], Fate::Told);
        fates.set(all[1], Fate::Lacks);
        fates.set(all[2], Fate::Shared);
        let known: Vec<Fate> = all.iter().map(|delivery| fates.of(delivery)).collect();
        assert_eq!(
            known,
            [
                Fate::There,
                Fate::Told,
                Fate::Refused("no".to_owned()),
                Fate::Lacks
            ]
        );
        assert!(!fates.are_told() && fates.count(&Fate::Lacks) == 1);
        all.iter()
            .for_each(|delivery| fates.set(delivery, Fate::Told));
        assert!(fates.are_told() && fates.with(&Fate::Lacks, &all).is_empty());
    }
}
