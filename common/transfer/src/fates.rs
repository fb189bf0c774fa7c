//! The fate of each file that is copied to or from a host.

use parking_lot::Mutex;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is missing at the destination, and this tool has to copy it.
    Lacks,
    /// It is at the destination already.
    Present,
    /// The host with this number puts it on the storage that both share.
    Shared(u32),
    /// It cannot be copied, for this reason.
    Refused(String),
    /// Its record is written.
    Reported,
}

pub trait Numbered {
    fn number(&self) -> u32;
}

/// Shared by threads.
#[derive(Debug)]
pub struct Fates {
    /// The others follow without a gap.
    first: u32,
    fates: Mutex<Vec<Fate>>,
}

impl Fates {
    /// None of the deliveries has its file yet.
    pub fn new(first: u32, count: usize) -> Fates {
        Fates {
            first,
            fates: Mutex::new(vec![Fate::Lacks; count]),
        }
    }

    fn index(&self, delivery: &impl Numbered) -> usize {
        let index = delivery.number().checked_sub(self.first);
        index
            .and_then(|index| usize::try_from(index).ok())
            .unwrap_or(usize::MAX)
    }

    /// `Reported` if the delivery is another host's.
    pub fn of(&self, delivery: &impl Numbered) -> Fate {
        self.fates
            .lock()
            .get(self.index(delivery))
            .cloned()
            .unwrap_or(Fate::Reported)
    }

    /// Does nothing if the fate was reported or refused.
    pub fn set(&self, delivery: &impl Numbered, fate: Fate) {
        if let Some(known) = self.fates.lock().get_mut(self.index(delivery))
            && !matches!(known, Fate::Reported | Fate::Refused(_))
        {
            *known = fate;
        }
    }

    /// Returns `false` if it was reported before. The caller that gets `true` writes the record, so
    /// that a host that reports a result twice causes one record.
    pub fn report(&self, delivery: &impl Numbered) -> bool {
        let mut fates = self.fates.lock();
        let known = fates.get_mut(self.index(delivery));
        known.is_some_and(|known| std::mem::replace(known, Fate::Reported) != Fate::Reported)
    }

    pub fn count(&self, fate: &Fate) -> usize {
        self.fates
            .lock()
            .iter()
            .filter(|known| *known == fate)
            .count()
    }

    /// With the number of the host that puts each there.
    pub fn shared<'a, T: Numbered>(&self, deliveries: &[&'a T]) -> Vec<(&'a T, u32)> {
        let fates = self.fates.lock();
        let by = |delivery: &&'a T| match fates.get(self.index(*delivery)) {
            Some(Fate::Shared(host)) => Some((*delivery, *host)),
            _ => None,
        };
        deliveries.iter().filter_map(by).collect()
    }

    pub fn are_reported(&self) -> bool {
        self.fates.lock().iter().all(|fate| *fate == Fate::Reported)
    }

    pub fn with<'a, T: Numbered>(
        &self,
        fate: &Fate,
        deliveries: impl IntoIterator<Item = &'a T>,
    ) -> Vec<&'a T> {
        let fates = self.fates.lock();
        let has = |delivery: &&T| fates.get(self.index(*delivery)) == Some(fate);
        deliveries.into_iter().filter(has).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct File(u32);

    impl Numbered for File {
        fn number(&self) -> u32 {
            self.0
        }
    }

    #[test]
    fn what_was_refused_or_told_stays_so() {
        let files = [7, 8, 9, 10].map(File);
        let all: Vec<&File> = files.iter().collect();
        let fates = Fates::new(7, 4);
        fates.set(all[2], Fate::Refused("no".to_owned()));
        fates.set(all[0], Fate::Present);
        assert!(fates.report(all[1]) && !fates.report(all[1]));
        fates.set(all[1], Fate::Lacks);
        fates.set(all[2], Fate::Shared(5));
        let refused = Fate::Refused("no".to_owned());
        let expected = [Fate::Present, Fate::Reported, refused, Fate::Lacks];
        let known: Vec<Fate> = all.iter().map(|one| fates.of(*one)).collect();
        assert_eq!(known, expected);
        let lacking = fates.with(&Fate::Lacks, &files);
        assert!(!fates.are_reported() && lacking.len() == 1 && lacking[0].0 == 10);
        assert!([0, 2, 3].iter().all(|index| fates.report(all[*index])));
        assert!(fates.are_reported() && fates.count(&Fate::Lacks) == 0);
    }

    #[test]
    fn those_of_another_host_are_not_asked_for() {
        let fates = Fates::new(7, 1);
        for other in [6, 8, 0, u32::MAX].map(File) {
            fates.set(&other, Fate::Present);
            assert!(fates.of(&other) == Fate::Reported && !fates.report(&other));
        }
        assert_eq!(fates.count(&Fate::Lacks), 1);
    }
}
