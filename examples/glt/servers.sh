#!/bin/sh
# GLT in server-client mode: the first two hosts of ip_config.txt hold the partitions and sample, the third has two trainers. The
# partitions go to the servers, the scripts to all hosts. workers.sh explains what must be in this directory.
#
# For sampling, the servers use ports of the first server, and the clients tell them which. A port belongs to the program whose dgl-env has
# its placeholder, so the dgl-env of the servers names these ports too, in the variables TRAIN and TEST.
#
# Clients shut the servers down, so --service is not needed. In GLT's own examples of this mode a parent process starts the servers, and
# exits with 0 even if they failed; here dgl-spawn starts each of them, so that a failure stops the job.
# shellcheck disable=SC1083,SC2088 # placeholders of dgl-env, and a home directory on the hosts
set -e

head -n 2 ip_config.txt > servers.txt
ipconf-check servers.txt | host-probe |
  part-map --partitions graph --workspace '~/job' |
  part-push > parts.jsonl
ipconf-check ip_config.txt | host-probe --venv /data/venv |
  part-map --workspace '~/job' --script-folder code |
  part-push > pushed.jsonl

dgl-env --program store --on 0-1 < pushed.jsonl \
  --env TRAIN={port:train} --env TEST={port:test} \
  -- python3 code/sage.py server --num_client_nodes 2 \
  --num_server_nodes {num_hosts} --node_rank {rank} \
  --master_addr {master_addr} \
  --server_client_master_port {port:rpc} |
  dgl-env --program train --on 2 --num-workers 2 \
    -- python3 code/sage.py client --node_rank {rank} \
    --num_client_nodes {world_size} \
    --num_server_nodes {store.num_hosts} \
    --master_addr {master_addr} \
    --training_pg_master_port {master_port} \
    --server_addr {store.master_addr} \
    --server_client_master_port {store.port:rpc} \
    --train_loader_master_port {store.port:train} \
    --test_loader_master_port {store.port:test} |
  dgl-spawn --job sage
