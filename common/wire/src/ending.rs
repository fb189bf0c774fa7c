//! The end of a job, in the form in which all of its hosts know it.

use ::job::{Cause, Loss, Reason};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::time::Duration;

/// The end of a job has begun, and why.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ending {
    /// The cause; absent if every process succeeded.
    pub cause: Option<Cause>,
    /// What failed first.
    pub failure: Option<Failure>,
}

impl Ending {
    /// Whoever keeps the job did not run for this long.
    pub fn paused(time: Duration) -> Ending {
        Ending {
            cause: Some(Cause::Paused(time)),
            failure: None,
        }
    }

    /// A host was lost.
    pub fn lost(host: u32, loss: Loss) -> Ending {
        Ending {
            cause: Some(Cause::Host),
            failure: Some(Failure {
                host,
                index: None,
                reason: Reason::Lost(loss),
            }),
        }
    }
}

/// What failed first, in the form in which all hosts know it.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The number of the host.
    pub host: u32,
    /// The number of the process on its host; absent if the host itself was lost.
    pub index: Option<u32>,
    /// What happened to the process or host.
    pub reason: Reason,
}
