#!/usr/bin/env bash
# Trains on two nodes, which are two network namespaces with a cable between them, and compares the
# losses, step by step, with those of two workers on one node. Needs root, and ip of iproute2.
#
#   scripts/tools/two_nodes.sh [OPTION=VALUE ...]      options of gnnscale train, beside those below
set -euo pipefail

python=${PYTHON:-python}
options=(device_plan=cpu_x2 'device_plan.split=[1024,1024]' model.dropout=0 epochs=2 num_threads=1
  runtime.drm=false "$@")
folder=$(mktemp -d -t gnnscale-nodes-XXXXXX)
nodes=("gnnscale-$$-a" "gnnscale-$$-b")
links=("gns$$a" "gns$$b") # names of links have 15 letters at most
addresses=(10.213.7.1 10.213.7.2)

clean_up() {
  for node in "${nodes[@]}"; do
    ip netns pids "$node" 2>/dev/null | xargs --no-run-if-empty kill 2>/dev/null || true
    ip netns delete "$node" 2>/dev/null || true
  done
  rm -rf "$folder"
}
trap clean_up EXIT

for node in "${nodes[@]}"; do ip netns add "$node"; done
ip link add "${links[0]}" netns "${nodes[0]}" type veth peer name "${links[1]}" netns "${nodes[1]}"
for i in 0 1; do
  ip -n "${nodes[i]}" link set lo up
  ip -n "${nodes[i]}" address add "${addresses[i]}/24" dev "${links[i]}"
  ip -n "${nodes[i]}" link set "${links[i]}" up
done

"$python" -m gnnscale train "${options[@]}" "hydra.run.dir=$folder/one"

node() {
  ip netns exec "${nodes[$1]}" env GLOO_SOCKET_IFNAME="${links[$1]}" OMP_NUM_THREADS=1 \
    "$python" -m torch.distributed.run --nnodes=2 --nproc-per-node=1 --node-rank="$1" \
    --master-addr="${addresses[0]}" --master-port=29500 \
    -m gnnscale train "${options[@]}" "hydra.run.dir=$folder/two"
}
node 1 &
second=$!
node 0
wait "$second"

"$python" - "$folder" <<'COMPARE'
import json, pathlib, sys

one, two = (
    [json.loads(line)["loss"] for line in (pathlib.Path(sys.argv[1]) / run / "steps.jsonl").open()]
    for run in ("one", "two")
)
assert len(one) == len(two) > 0, (len(one), len(two))
worst = max(abs(left - right) / abs(left) for left, right in zip(one, two))
print(f"{len(one)} steps, largest relative difference of a loss: {worst:.1e}")
sys.exit(worst > 1e-5)
COMPARE
