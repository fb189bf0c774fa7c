//! What becomes of each file that goes to a host or comes from it: one state, in one place.

use parking_lot::Mutex;

/// What is known of a file on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is wanted where it is not, and nobody else brings it.
    Lacks,
    /// It is there already.
    There,
    /// Another host puts it on the storage that both share.
    Shared,
    /// It cannot be: why.
    Refused(String),
    /// Its record is written; nothing more becomes of it.
    Reported,
}

/// What has a number of its own among all that is told.
pub trait Numbered {
    /// The number that its record has.
    fn number(&self) -> u32;
}

/// Those of one host. Threads that wait for the host ask and tell.
#[derive(Debug)]
pub struct Fates {
    /// The first of their numbers; the others follow without a gap.
    first: u32,
    fates: Mutex<Vec<Fate>>,
}

impl Fates {
    /// The fates of this many deliveries, numbered from `first` on; none has its file yet.
    pub fn new(first: u32, count: usize) -> Fates {
        Fates {
            first,
            fates: Mutex::new(vec![Fate::Lacks; count]),
        }
    }

    fn index(&self, one: &impl Numbered) -> usize {
        let index = one.number().checked_sub(self.first);
        index
            .and_then(|index| usize::try_from(index).ok())
            .unwrap_or(usize::MAX)
    }

    /// What is known of one; of another host's, that it is told.
    pub fn of(&self, one: &impl Numbered) -> Fate {
        self.fates
            .lock()
            .get(self.index(one))
            .cloned()
            .unwrap_or(Fate::Reported)
    }

    /// Something else is known. What was told or refused stays so.
    pub fn set(&self, one: &impl Numbered, fate: Fate) {
        if let Some(known) = self.fates.lock().get_mut(self.index(one))
            && !matches!(known, Fate::Reported | Fate::Refused(_))
        {
            *known = fate;
        }
    }

    /// The record of one is to be written; `false` if it was before. Whoever is told `true` writes
    /// it: a host that says the same thing twice is told of once.
    pub fn report(&self, one: &impl Numbered) -> bool {
        let mut fates = self.fates.lock();
        let known = fates.get_mut(self.index(one));
        known.is_some_and(|known| std::mem::replace(known, Fate::Reported) != Fate::Reported)
    }

    /// How many have this fate.
    pub fn count(&self, fate: &Fate) -> usize {
        self.fates
            .lock()
            .iter()
            .filter(|known| *known == fate)
            .count()
    }

    /// Whether each has its record.
    pub fn are_reported(&self) -> bool {
        self.fates.lock().iter().all(|fate| *fate == Fate::Reported)
    }

    /// Those of these that have this fate.
    pub fn with<'a, T: Numbered>(&self, fate: &Fate, all: &[&'a T]) -> Vec<&'a T> {
        let fates = self.fates.lock();
        let has = |one: &&&T| fates.get(self.index(**one)) == Some(fate);
        all.iter().filter(has).copied().collect()
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
        fates.set(all[0], Fate::There);
        assert!(fates.report(all[1]) && !fates.report(all[1]));
        fates.set(all[1], Fate::Lacks);
        fates.set(all[2], Fate::Shared);
        let refused = Fate::Refused("no".to_owned());
        let expected = [Fate::There, Fate::Reported, refused, Fate::Lacks];
        let known: Vec<Fate> = all.iter().map(|one| fates.of(*one)).collect();
        assert_eq!(known, expected);
        let lacking = fates.with(&Fate::Lacks, &all);
        assert!(!fates.are_reported() && lacking.len() == 1 && lacking[0].0 == 10);
        assert!([0, 2, 3].iter().all(|index| fates.report(all[*index])));
        assert!(fates.are_reported() && fates.count(&Fate::Lacks) == 0);
    }

    #[test]
    fn those_of_another_host_are_not_asked_for() {
        let fates = Fates::new(7, 1);
        for other in [6, 8, 0, u32::MAX].map(File) {
            fates.set(&other, Fate::There);
            assert!(fates.of(&other) == Fate::Reported && !fates.report(&other));
        }
        assert_eq!(fates.count(&Fate::Lacks), 1);
    }
}
