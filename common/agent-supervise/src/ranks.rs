//! Variables by which a batch system or another launcher tells a process its rank in a job.
//!
//! Every process of a job inherits the environment of its agent. If the agent runs in a step of
//! Slurm, below mpirun or below torchrun, these variables mean "rank 0 of 1" for all processes of a
//! host, and many libraries prefer them to RANK and WORLD_SIZE: Lightning takes the rank from
//! SLURM_PROCID, DeepSpeed from OMPI_COMM_WORLD_RANK, and mpi4py joins the job of PMIX_RANK.
//! Variables in a process's record (`dgl-env --env`) are kept.

use std::env;
use std::process::Command;

const NAMES: [&str; 25] = [
    // srun(1), "OUTPUT ENVIRONMENT VARIABLES"
    "SLURM_GTIDS",
    "SLURM_LOCALID",
    "SLURM_NNODES",
    "SLURM_NODEID",
    "SLURM_NPROCS",
    "SLURM_NTASKS",
    "SLURM_NTASKS_PER_NODE",
    "SLURM_PROCID",
    "SLURM_TASKS_PER_NODE",
    "SLURM_TASK_PID",
    // mpirun(1) of Open MPI
    "OMPI_APP_CTX_NUM_PROCS",
    "OMPI_FIRST_RANKS",
    "OMPI_UNIVERSE_SIZE",
    // Intel MPI
    "MPI_LOCALNRANKS",
    "MPI_LOCALRANKID",
    // jsrun, aprun, flux run
    "JSM_NAMESPACE_LOCAL_RANK",
    "JSM_NAMESPACE_RANK",
    "JSM_NAMESPACE_SIZE",
    "ALPS_APP_PE",
    "FLUX_TASK_LOCAL_ID",
    "FLUX_TASK_RANK",
    // torchrun
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    "ROLE_RANK",
    "ROLE_WORLD_SIZE",
];
/// `OMPI_MCA_…` and `PMIX_MCA_…` are settings of the user and are kept.
const PREFIXES: [&str; 7] = [
    "MV2_COMM_WORLD_",
    "OMPI_COMM_WORLD_",
    "PALS_",
    "PMIX_",
    "PMI_",
    "SLURM_STEP_",
    "TORCHELASTIC_",
];

/// What torchrun sets beside `TORCHELASTIC_…`. Elsewhere these may be settings of the user.
const OF_TORCH: [&str; 6] = [
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "RANK",
    "WORLD_SIZE",
];

fn tells_a_place(name: &str, is_below_torchrun: bool) -> bool {
    let has_prefix = PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    // the number of the step, which squeue(1) shows, is no rank
    let is_setting = name.starts_with("PMIX_MCA_") || name == "SLURM_STEP_ID";
    let is_of_torch = is_below_torchrun && OF_TORCH.contains(&name);
    NAMES.contains(&name) || is_of_torch || has_prefix && !is_setting
}

/// Removes the rank of this program in another launcher's job.
pub fn remove(command: &mut Command) {
    let is_below_torchrun = env::var_os("TORCHELASTIC_RUN_ID").is_some();
    for (name, _) in env::vars_os() {
        if let Some(text) = name.to_str()
            && tells_a_place(text, is_below_torchrun)
        {
            command.env_remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_go_and_settings_stay() {
        let places = [
            "SLURM_PROCID",
            "SLURM_STEP_NUM_TASKS",
            "SLURM_NTASKS",
            "OMPI_COMM_WORLD_LOCAL_RANK",
            "PMIX_RANK",
            "PMI_SIZE",
            "PALS_RANKID",
            "TORCHELASTIC_RUN_ID",
        ];
        assert!(places.iter().all(|name| tells_a_place(name, false)));
        let settings = [
            "SLURM_JOB_ID",
            "SLURM_JOB_NODELIST",
            "SLURM_STEP_ID",
            "SLURM_CPUS_PER_TASK",
            "OMPI_MCA_btl",
            "PMIX_MCA_gds",
            "PATH",
        ];
        for below_torchrun in [false, true] {
            let mut settings = settings.iter();
            assert!(!settings.any(|name| tells_a_place(name, below_torchrun)));
            let mut of_torch = OF_TORCH.iter();
            assert!(of_torch.all(|name| tells_a_place(name, below_torchrun) == below_torchrun));
        }
    }
}
