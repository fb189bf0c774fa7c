# Names each host whose memory or /dev/shm is too small for its partition, from the records of host-probe and part-map, and exits with 1:
#   jq -n --argjson processes 4e9 -f fits.jq plan.jsonl
# Graph servers keep the files of their partitions in /dev/shm, and need up to twice their size in memory while they load them. `processes`
# is the memory of all processes of a host without the graph. With DGL 2.1 and torch 2.2 for CUDA, each server, trainer and sampler used
# 0.3 GB before it had data, and the libraries 0.2 GB on each host. For each further format in dgl-env --graph-format, add 60 percent of
# graph.dgl. If the partitions are on the hosts already, their sizes are not in the records.
def gb: . / 1e7 | round / 100 | "\(.) GB";

[inputs]
| map(select(.kind == "partition")) as $files
| [
    .[]
    | select(.type == "host")
    | . as $host
    | ($files | map(select(.host == $host.id).bytes) | add // 0) as $size
    | ["memory", 2 * $size + $processes, ([.mem_bytes, .mem_limit_bytes | numbers] | min)],
      ["/dev/shm", $size, .shm_free_bytes]
    | select(.[1] > .[2])
    | "host \($host.id) (\($host.ip)): needs \(.[1] | gb) of \(.[0]); it has \(.[2] | gb)\n"
  ]
| if . == [] then empty else add | halt_error(1) end
