//! The messages of libssh2, shells and srun about the end of a connection, in words for users.
//! Unknown messages stay unchanged.

pub const CLOSED: &str = "the connection was closed, by the host or on the way to it";
pub const LATE: &str = "it did not answer in time";

/// libssh2's messages name the function that failed.
pub fn explain_libssh2(message: &str) -> &str {
    match message {
        "transport read"
        | "socket disconnect"
        | "Failure while draining incoming flow"
        | "Unable to send channel data"
        | "Unable to send EOF on channel"
        | "Unable to send keepalive message"
        | "Unable to send transfer-window adjustment packet, deferring"
        | "Unable to send channel-open request"
        | "Unable to send channel request"
        | "Failed sending banner"
        | "Unable to ask for ssh-userauth service" => CLOSED,
        "Failed getting banner" => {
            "no sshd answers on the host, or it closed the connection at \
                                    once"
        }
        "Unable to exchange encryption keys" => {
            "the host closed the connection, or its sshd and libssh2 have no cipher, key exchange \
             or kind of host key in common (try --connect ssh)"
        }
        "API timeout expired"
        | "Timed out waiting on socket"
        | "Timed out waiting for KEX reply"
        | "Timed out waiting for NEWKEYS" => LATE,
        "Channel open failure (administratively prohibited)" => {
            "its sshd allows no more sessions on a connection (MaxSessions)"
        }
        "Channel open failure (resource shortage)" => "it has no room for another session",
        "Unable to complete request for channel-process-startup" => {
            "its sshd runs no command for this user"
        }
        // followed by the name of the method or of the function, depending on the version
        other if other.starts_with("Unable to verify host") => {
            "the host could not prove that it has its host key"
        }
        other if other.contains("transport_read() bailed out") => CLOSED,
        other => other,
    }
}

/// A shell does not name the program that a signal ended.
pub fn explain_shell(line: &str) -> &str {
    match line {
        "Killed" => {
            "a program on the host was killed, by a user or because memory ran out (see dmesg)"
        }
        "Terminated" => "a program on the host was stopped by SIGTERM",
        "Hangup" => "a program on the host was stopped by SIGHUP",
        other => other,
    }
}

/// The fix if srun refuses, or an allocation does not give, the nodes. `message` must be of the
/// user's command, because a host may print any words.
pub fn fix_of_srun(message: &str) -> Option<&'static str> {
    if !message.contains("srun: ") {
        return None;
    }
    // `existing_allocation` of Slurm's src/srun/allocate.c, and ESLURM_ALREADY_DONE
    let ended = [
        " has expired",
        "Expired or invalid job",
        "Unable to confirm allocation",
        "already completing or completed",
    ];
    // ESLURM_REQUESTED_NODES_NOT_IN_ALLOCATION, ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE
    let outside = [
        "Requested nodes not in this allocation",
        "Requested node configuration is not available",
    ];
    let says = |parts: &[&str]| parts.iter().any(|part| message.contains(part));
    // srun(1): from 20.11 on, steps no longer share what an allocation has
    if says(&["unrecognized option '--overlap'"]) {
        Some(
            "this Slurm is older than 20.11: leave out --overlap; steps share their nodes \
             without it",
        )
    } else if says(&["SLURM_MEM_PER_NODE are mutually exclusive"]) {
        Some(
            "this shell has the memory variables of two Slurm jobs, as after salloc within a job: \
             unset the one that the inner job did not ask for, SLURM_MEM_PER_CPU, \
             SLURM_MEM_PER_GPU or SLURM_MEM_PER_NODE",
        )
    } else if says(&ended) {
        Some(
            "this Slurm job has ended, so srun starts nothing more on its nodes; a new job on \
             them (sbatch -w NODES) can fetch the files that are left",
        )
    } else if says(&outside) {
        Some(
            "this Slurm job has no such node, or not what the command requests of it: compare the \
             hosts with `scontrol show hostnames \"$SLURM_JOB_NODELIST\"`",
        )
    } else {
        None
    }
}

pub fn wants_a_terminal(message: &str) -> Option<&'static str> {
    let programs = [
        ("open terminal failed: not a terminal", "tmux"),
        ("Must be connected to a terminal", "screen"),
    ];
    let (_, program) = programs.iter().find(|(part, _)| message.contains(part))?;
    Some(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_for_users() {
        let table = [
            ("transport read", CLOSED),
            ("socket disconnect", CLOSED),
            ("API timeout expired", LATE),
            (
                "Connection reset by peer (os error 104)",
                "Connection reset by peer (os error 104)",
            ),
            ("ssh2_transport_read() bailed out", CLOSED),
            (
                "Unable to verify host key signature ECDH",
                "the host could not prove that it has its host key",
            ),
            ("", ""),
        ];
        for (message, reason) in table {
            assert_eq!(explain_libssh2(message), reason);
        }
        let fixes = [
            (
                "srun: unrecognized option '--overlap'",
                Some("older than 20.11"),
            ),
            (
                "srun: fatal: SLURM_MEM_PER_CPU, SLURM_MEM_PER_GPU, and SLURM_MEM_PER_NODE are \
                 mutually exclusive.",
                Some("unset"),
            ),
            (
                "srun: error: Unable to confirm allocation",
                Some("has ended"),
            ),
            ("srun: unrecognized option '--overlapping'", None),
            ("unrecognized option '--overlap'", None),
        ];
        for (message, part) in fixes {
            let fix = fix_of_srun(message);
            assert_eq!(fix.is_some(), part.is_some(), "{message}");
            assert!(part.is_none_or(|part| fix.unwrap().contains(part)));
        }
        assert!(explain_shell("Killed").contains("memory ran out"));
        assert_eq!(explain_shell("sh: x: not found"), "sh: x: not found");
    }
}
