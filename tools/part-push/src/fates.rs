//! The fate of each delivery to a host: one state, in one place.

use crate::plan::Delivery;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The state of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The host lacks the file, and no other host provides it.
    Lacks,
    /// The file is on the host already.
    There,
    /// Another host puts the file on the storage that both share.
    Shared,
    /// The delivery cannot be carried out; why.
    Refused(String),
    /// The record of the delivery is written, which is final.
    Reported,
}

/// The fates of one host's deliveries, which several threads read and change.
pub struct Fates(Mutex<BTreeMap<u32, Fate>>);

impl Fates {
    /// Starts with all deliveries lacking except those that are refused.
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

    /// The fate of a delivery of this host.
    pub fn of(&self, delivery: &Delivery) -> Fate {
        self.lock()
            .get(&delivery.id)
            .cloned()
            .unwrap_or(Fate::Reported)
    }

    /// Changes the fate of a delivery, unless it was reported or refused.
    pub fn set(&self, delivery: &Delivery, fate: Fate) {
        let mut fates = self.lock();
        if let Some(known) = fates.get_mut(&delivery.id)
            && (fate == Fate::Reported || !matches!(known, Fate::Reported | Fate::Refused(_)))
        {
            *known = fate;
        }
    }

    /// How many deliveries have this fate.
    pub fn count(&self, fate: &Fate) -> usize {
        self.lock().values().filter(|known| *known == fate).count()
    }

    /// Whether all deliveries have their records.
    pub fn are_reported(&self) -> bool {
        self.lock().values().all(|fate| *fate == Fate::Reported)
    }

    /// The deliveries that have this fate.
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
        fates.set(all[1], Fate::Reported);
        fates.set(all[1], Fate::Lacks);
        fates.set(all[2], Fate::Shared);
        let known: Vec<Fate> = all.iter().map(|delivery| fates.of(delivery)).collect();
        assert_eq!(
            known,
            [
                Fate::There,
                Fate::Reported,
                Fate::Refused("no".to_owned()),
                Fate::Lacks
            ]
        );
        assert!(!fates.are_reported() && fates.count(&Fate::Lacks) == 1);
        all.iter()
            .for_each(|delivery| fates.set(delivery, Fate::Reported));
        assert!(fates.are_reported() && fates.with(&Fate::Lacks, &all).is_empty());
    }
}
