#!/usr/bin/env bash
# Train on two machines that are two network namespaces of this one, and compare the losses with
# those of worker processes on one. As root, with iproute2:
#
#     scripts/two_nodes.sh [OPTION=VALUE ...]
set -euo pipefail

bin=$(dirname "$(command -v gnnscale)")
work=$(mktemp -d)
options=(device_plan=cpu_x2 model.dropout=0 epochs=2 num_threads=1 runtime.drm=false
  "device_plan.split=[1024,1024]" "$@")

clean() {
  ip netns del gnnscale-a 2>/dev/null || true
  ip netns del gnnscale-b 2>/dev/null || true
  rm -rf "$work"
}
trap clean EXIT

ip netns add gnnscale-a
ip netns add gnnscale-b
ip link add veth-a netns gnnscale-a type veth peer name veth-b netns gnnscale-b
ip -n gnnscale-a addr add 10.87.0.1/24 dev veth-a
ip -n gnnscale-b addr add 10.87.0.2/24 dev veth-b
for side in a b; do
  ip -n "gnnscale-$side" link set lo up
  ip -n "gnnscale-$side" link set "veth-$side" up
done

node() { # side, rank
  ip netns exec "gnnscale-$1" env GLOO_SOCKET_IFNAME="veth-$1" \
    "$bin/torchrun" --nnodes 2 --node-rank "$2" --nproc-per-node 1 \
    --master-addr 10.87.0.1 --master-port 29400 \
    --no-python "$bin/gnnscale" train "${options[@]}" hydra.run.dir="$work/node-$1"
}

gnnscale train "${options[@]}" hydra.run.dir="$work/one"
node b 1 &
node a 0
wait

"$bin/python" - "$work" <<'PYTHON'
import json
import sys
from pathlib import Path

one, two = (
    [json.loads(line)["loss"] for line in (Path(sys.argv[1]) / run / "steps.jsonl").open()]
    for run in ("one", "node-a")
)
worst = max(abs(a - b) / a for a, b in zip(one, two, strict=True))
print(f"{len(one)} steps, largest relative difference of the losses {worst:.1e}")
raise SystemExit(worst > 1e-5)
PYTHON
