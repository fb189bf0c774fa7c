#!/bin/sh
# GLT (GraphLearn-for-PyTorch) in worker mode: each host has a partition, trains on it and starts its own samplers.
#
# Run it in a directory with ip_config.txt, this directory's code/, and graph/, which GLT's partitioner has written: part0, part1 and so
# on, and the partition books. Seeds, the nodes from which training samples, are copied with their partition if they are in its directory.
#
# Your own script: one that dgl-spawn starts must call torch.multiprocessing.set_start_method("spawn") itself, as code/sage.py does.
# GLT's examples spawn their trainers instead; without either, GLT cannot start samplers: "A SemLock created in a fork context".
# shellcheck disable=SC1083,SC2088 # placeholders of dgl-env, and a home directory on the hosts
set -e

ipconf-check ip_config.txt | host-probe --venv /data/venv |
  part-map --partitions graph --workspace '~/job' --script-folder code |
  part-push > pushed.jsonl

dgl-env --role worker < pushed.jsonl \
  -- python3 code/sage.py worker --num_nodes {num_hosts} \
  --node_rank {rank} --master_addr {master_addr} \
  --training_pg_master_port {master_port} \
  --train_loader_master_port {port:train} \
  --test_loader_master_port {port:test} |
  dgl-spawn --job sage
