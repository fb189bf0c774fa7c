//! dgl-why on dumps of torch's flight recorder; tests/recordings/flight_recorder.sh has made them.
//! Those whose names begin with nccl have been completed by hand, because NCCL needs GPUs.

use std::path::PathBuf;
use support::{root, scratch, sh};

fn dumps(case: &str) -> PathBuf {
    root()
        .join("tools/dgl-why/tests/flight_recorder")
        .join(case)
}

#[test]
fn it_names_the_operation_and_the_ranks_that_did_not_come() {
    let table = [
        (
            "absent",
            "rank 1 did not come to broadcast 4 of default_pg, for which rank 0 waits, begun in \
             train (train.py:94); the last that it began is all_reduce 3 of default_pg in step \
             (train.py:81).\n  shown by: nccl_trace_rank_0: broadcast 4 of default_pg, not \
             completed, [4] Float\n            nccl_trace_rank_1: all_reduce 3 of default_pg, \
             completed or timed out, [4] Float\n  fix: ",
        ),
        (
            "timed-out",
            "rank 1 did not come to broadcast 4 of default_pg, for which ranks 0 and 2 wait, begun",
        ),
        // of which each rank has kept three operations
        (
            "overwritten",
            "rank 1 did not come to broadcast 4 of default_pg, for which rank 0 waits",
        ),
        (
            "missing",
            "rank 1 has no dump, and rank 0 waits in broadcast 4 of default_pg, begun in",
        ),
        (
            "different",
            "as operation 4 of default_pg, rank 1 began all_gather in train (train.py:98), but \
             ranks 0 and 2 began all_reduce in step (train.py:81).\n",
        ),
        (
            "sizes",
            "as operation 4 of default_pg, rank 1 began all_reduce of [5] Float in train \
             (train.py:102), but ranks 0 and 2 began all_reduce of [4] Float in",
        ),
        (
            "nccl-pair",
            "rank 0 did not begin its side of recv of default_pg, for which rank 2 waits",
        ),
        (
            "nccl-chain",
            "rank 2 did not come to all_reduce 1 of right, for which rank 1 waits",
        ),
    ];
    for (case, wanted) in table {
        let why = sh(&dumps(case), "dgl-why --flight-recorder .");
        why.ends(0);
        let wanted = format!("The job waits: {wanted}");
        assert!(why.out.starts_with(&wanted), "{case}: {}", why.out);
    }
    let chain = sh(&dumps("nccl-chain"), "dgl-why --flight-recorder .");
    chain.out_has("\nAlso: rank 0 waits in all_reduce 1 of left for rank 1.\n");
}

#[test]
fn with_the_records_it_names_processes_and_hosts() {
    let folder = scratch();
    // what part-pull has fetched of two hosts, with two programs, of which one is well
    let lines = format!(
        "mkdir -p d/h0 d/h1 && cd {:?} && cp *_0 \"$OLDPWD\"/d/h0 && cp *_[12] \"$OLDPWD\"/d/h1 && \
         cp nccl_trace_rank_1 \"$OLDPWD\"/d/h1/eval_nccl_trace_rank_0 && cd \"$OLDPWD\" && \
         printf '10.0.0.1\\n10.0.0.2\\n' >ip.txt && ipconf-check ip.txt | \
         dgl-env --role worker --num-workers 2 --workspace /srv -- python3 t.py >run.jsonl",
        dumps("absent")
    );
    sh(&folder, &lines).ends(0);
    let why = sh(&folder, "dgl-why --flight-recorder d run.jsonl");
    why.ends(0);
    let found = "\nAlso: rank 1 (worker 1 on host 0 (10.0.0.1)) did not come to broadcast 4";
    why.out_has("The job was not started: ")
        .out_has(found)
        .out_has("shown by: h0/nccl_trace_rank_0");
    assert!(!why.out.contains("eval"), "{}", why.out);
}

#[test]
fn a_dump_that_cannot_be_read_is_told_and_left_out() {
    let folder = scratch();
    let lines = format!(
        "cp {:?}/* . && head -c 900 nccl_trace_rank_1 >cut && mv cut nccl_trace_rank_1 && \
         echo text >notes_3",
        dumps("absent")
    );
    sh(&folder, &lines).ends(0);
    let why = sh(&folder, "dgl-why --brief --flight-recorder .");
    why.ends(0);
    why.out_has("rank 1 has no dump, and rank 0 waits in broadcast 4");
    assert_eq!(
        why.err,
        "dgl-why: nccl_trace_rank_1: byte 892: opcode 0x58: the file ends in it; left out\n"
    );
    sh(
        &folder,
        "printf '\\200\\2}cos\\nsystem\\n' >rank_0; dgl-why --flight-recorder .",
    )
    .err_has("dgl-why: rank_0: byte 3: opcode 0x63: GLOBAL would run code, so it is refused");
    sh(&folder, "rm *_[0-9]; dgl-why --flight-recorder .")
        .ends(65)
        .err_has("there is no dump of torch's flight recorder below it");
    sh(&folder, "dgl-why --flight-recorder none").ends(74);
}

#[test]
fn where_nothing_waits_it_says_so() {
    let folder = scratch();
    sh(&folder, &format!("cp {:?}/*_1 .", dumps("absent"))).ends(0);
    let why = sh(&folder, "dgl-why --flight-recorder .");
    why.ends(0);
    let wanted = "The job runs: in the dumps of 1 rank nothing waits.\nAlso: there is no dump of \
                  ranks 0 and 2.\n";
    assert_eq!(why.out, wanted);
}
