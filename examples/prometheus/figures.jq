# Figures for the textfile collector of Prometheus' node_exporter, from the records of dgl-spawn, also while they are being written:
#   jq -Rnr --arg job NAME -f figures.jq run.jsonl
def help: {
  dgl_job_stalled: "Whether the job stalls.",
  dgl_process_up: "Whether the process runs.",
  dgl_process_failed: "Whether the process failed before the job was ended."
};
def escaped:
  split("\\") | join("\\\\") | split("\"") | join("\\\"") | split("\n") | join("\\n");
def labels:
  [to_entries[] | "\(.key)=\"\(.value | tostring | escaped)\""] | join(",");

# The name, labels and value of each figure in a record.
def figures($host):
  {dgl_job: $job} as $of_job
  | ($of_job + {host: $host, role, rank}) as $of_process
  | if .type == "stalled" then
      ["dgl_job_stalled", $of_job, 1]
    elif .type == "resumed" then
      ["dgl_job_stalled", $of_job, 0]
    elif .type == "started" then
      ["dgl_job_stalled", $of_job, 0],
      ["dgl_process_up", $of_process, 1],
      ["dgl_process_failed", $of_process, 0]
    elif .type == "exited" then
      (if .code == 0 or .while_ending then 0 else 1 end) as $failed
      | ["dgl_process_up", $of_process, 0],
        ["dgl_process_failed", $of_process, $failed]
    else empty end;

# A line that dgl-spawn is still writing is not JSON yet, and is left out.
reduce (inputs | fromjson?) as $record ({hosts: {}, values: {}};
  ($record.host | tostring) as $id
  | if $record.type == "host" then
      .hosts[$record.id | tostring] = ($record.name // $record.ip)
    else
      (.hosts[$id] // $id) as $host
      | reduce ($record | figures($host)) as [$name, $labels, $value] (.;
          .values[$name][$labels | labels] = $value)
    end)
| .values as $values
| help | to_entries[] | .key as $name | select($values[$name])
| "# HELP \($name) \(.value)",
  "# TYPE \($name) gauge",
  ($values[$name] | to_entries[]
    | "\($name){\(.key)} \(.value)")
