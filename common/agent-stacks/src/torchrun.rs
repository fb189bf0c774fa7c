//! Reads from a command line how a torchrun meets those of other hosts.

use std::collections::BTreeMap;
use wire::stacks::Torchrun;

/// The modules that run torchrun's code, as `python -m` names them.
const MODULES: [&str; 3] = [
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate.commands.launch",
];
/// Options without a value, of torchrun and then of accelerate.
const FLAGS: [&str; 17] = [
    "m",
    "module",
    "no_python",
    "run_path",
    "standalone",
    "use_env",
    "virtual_local_rank",
    "cpu",
    "debug",
    "ipex",
    "mps",
    "multi_gpu",
    "q",
    "quiet",
    "use_deepspeed",
    "use_fsdp",
    "use_megatron_lm",
];

/// `None` if this is no torchrun of several nodes. An argument counts more than the variable
/// `PET_…` of the same name, as for torchrun itself: torch/distributed/argparse_util.py.
pub fn of_words(words: &[String], variable: impl Fn(&str) -> Option<String>) -> Option<Torchrun> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let options = options(arguments(&words)?);
    let find = |name: &str| match options.get(name) {
        Some(value) => Some((*value).to_owned()),
        None => variable(&format!("PET_{}", name.to_uppercase())),
    };
    // the second name is accelerate's
    let value = |name, other| {
        find(name)
            .or_else(|| find(other))
            .filter(|text| !text.is_empty())
    };
    let nodes = value("nnodes", "num_machines")?;
    let (min, max) = nodes.split_once(':').unwrap_or((&nodes, &nodes));
    let (min_nodes, max_nodes) = (min.parse().ok()?, max.parse().ok()?);
    if max_nodes < 2 || options.contains_key("standalone") {
        return None;
    }
    // the defaults are those of torch/distributed/run.py and of its c10d_rendezvous_backend.py
    let backend = value("rdzv_backend", "rdzv_backend").unwrap_or_else(|| "static".to_owned());
    let is_static = backend == "static";
    let master = value("master_addr", "main_process_ip");
    let endpoint = value("rdzv_endpoint", "rdzv_endpoint").unwrap_or_else(|| {
        let (address, port) = if is_static {
            ("127.0.0.1", "29500")
        } else {
            ("localhost", "29400")
        };
        let port = value("master_port", "main_process_port").unwrap_or_else(|| port.to_owned());
        format!("{}:{port}", master.as_deref().unwrap_or(address))
    });
    let node_rank = value("node_rank", "machine_rank");
    let node_rank = node_rank.map_or(Some(0), |rank| rank.parse().ok());
    Some(Torchrun {
        min_nodes,
        max_nodes,
        node_rank: node_rank.filter(|_| is_static),
        endpoint,
        id: value("rdzv_id", "rdzv_id").unwrap_or_else(|| "none".to_owned()),
    })
}

/// The words behind the name of the program, if it is torchrun.
fn arguments<'w, 'a>(words: &'w [&'a str]) -> Option<&'w [&'a str]> {
    let is = |word: &str, name: &str| word.rsplit('/').next() == Some(name);
    let mut rest = words;
    if let [python, after @ ..] = words
        && python.rsplit('/').next()?.starts_with("python")
    {
        rest = after;
        while let [option, after @ ..] = rest
            && option.starts_with('-')
            && *option != "-m"
        {
            let has_value = ["-X", "-W"].contains(option);
            rest = after.get(usize::from(has_value)..)?;
        }
    }
    match rest {
        ["-m", module, arguments @ ..] if MODULES.contains(module) => Some(arguments),
        [program, arguments @ ..] if is(program, "torchrun") => Some(arguments),
        [program, arguments @ ..] if is(program, "accelerate-launch") => Some(arguments),
        [program, "launch", arguments @ ..] if is(program, "accelerate") => Some(arguments),
        _ => None,
    }
}

/// The options before the script, with underscores in their names; those behind it are its own.
fn options<'a>(words: &[&'a str]) -> BTreeMap<String, &'a str> {
    let mut options = BTreeMap::new();
    let mut words = words.iter().copied().peekable();
    while let Some(option) = words.next_if(|word| word.starts_with('-')) {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        let name = name.trim_start_matches('-').replace('-', "_");
        // `-r3`
        let is_attached = !option.starts_with("--") && name.len() > 1;
        let has_next = value.is_none() && !is_attached && !FLAGS.contains(&name.as_str());
        let next = words.next_if(|word| has_next && !word.starts_with('-'));
        options.insert(name, value.or(next).unwrap_or_default());
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `VARIABLE=VALUE` before the first word of the command are its environment.
    fn read(line: &str) -> Option<Torchrun> {
        let mut words = line.split(' ').map(str::to_owned).peekable();
        let mut variables = BTreeMap::new();
        while let Some(word) = words.next_if(|word| word.starts_with("PET_")) {
            let (name, value) = word.split_once('=').unwrap();
            variables.insert(name.to_owned(), value.to_owned());
        }
        let words: Vec<String> = words.collect();
        of_words(&words, |name| variables.get(name).cloned())
    }

    fn of(nodes: (u32, u32), node_rank: Option<u32>, endpoint: &str, id: &str) -> Option<Torchrun> {
        Some(Torchrun {
            min_nodes: nodes.0,
            max_nodes: nodes.1,
            node_rank,
            endpoint: endpoint.to_owned(),
            id: id.to_owned(),
        })
    }

    #[test]
    fn a_torchrun_names_where_and_with_how_many_it_meets() {
        let at = "h0:29500";
        let meets = of((4, 4), Some(2), at, "none");
        let c10d = of((2, 4), None, at, "7");
        let unset = of((4, 4), Some(0), "127.0.0.1:29500", "none");
        let table = [
            (
                "torchrun --nnodes=4 --node_rank=2 --master_addr=h0 --master_port=29500 train.py",
                &meets,
            ),
            (
                "/usr/bin/python3.11 -u -X dev /usr/bin/torchrun --nnodes 4 --node-rank 2 \
                 --master-addr h0 train.py --nnodes 9",
                &meets,
            ),
            (
                "python3 -m torch.distributed.run --new-flag -r3 -m --nnodes 4 --node-rank \
                 2 --rdzv-endpoint h0:29500 train",
                &meets,
            ),
            (
                "PET_NODE_RANK=2 PET_MASTER_ADDR=h0 PET_NNODES=9 python -m \
                 torch.distributed.launch --use_env --nnodes=4 train.py",
                &meets,
            ),
            (
                "accelerate launch --multi_gpu --num_machines 4 --machine_rank 2 \
                 --main_process_ip h0 --main_process_port 29500 train.py --num_machines 9",
                &meets,
            ),
            (
                "torchrun --nnodes 2:4 --rdzv_backend=c10d --rdzv_endpoint=h0:29500 --rdzv_id=7 \
                 --node_rank 3 train.py",
                &c10d,
            ),
            (
                "PET_RDZV_BACKEND=c10d PET_RDZV_ENDPOINT=h0:29500 PET_RDZV_ID=7 PET_NNODES=2:4 \
                 torchrun train.py",
                &c10d,
            ),
            ("torchrun --nnodes 4 train.py", &unset),
            (
                "torchrun --nnodes 4 --rdzv-backend c10d train.py",
                &of((4, 4), None, "localhost:29400", "none"),
            ),
        ];
        for (line, expected) in table {
            assert_eq!(&read(line), expected, "{line}");
        }
    }

    #[test]
    fn what_waits_for_no_other_host_is_none() {
        for line in [
            "",
            "torchrun",
            "torchrun --nproc_per_node 8 train.py",
            "torchrun --nnodes 1 train.py",
            "torchrun --nnodes 1:1 train.py",
            "torchrun --nnodes x train.py",
            "torchrun --standalone --nnodes 4 train.py",
            "torchrun train.py --nnodes 4",
            "accelerate launch train.py",
            "accelerate test --num_machines 4",
            "python3 train.py --nnodes 4",
            "python3 -m torch.distributed.checkpoint --nnodes 4",
            "python3 -X",
            "ssh h1 torchrun --nnodes 4 train.py",
            "sh -c torchrun --nnodes 4 train.py",
            "vim torchrun --nnodes 4",
        ] {
            assert_eq!(read(line), None, "{line}");
        }
    }
}
