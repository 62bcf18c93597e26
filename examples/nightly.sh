#!/bin/bash
# For cron: divides the cluster anew every night and keeps the last good division. One line of crontab:
#   15 2 * * *  QUEUE=/srv/queue.toml PLANS=/srv/plans /srv/meshwright/examples/nightly.sh
# The planner's exit code decides: 0 the new division holds from now on; 3 (jobs that may not wait do not fit) and
# 2 (the queue file is wrong) leave the old one and tell the operator, cron mails what is printed; 4 tries once more.
set -uo pipefail

queue=${QUEUE:?which queue file}
plans=${PLANS:?where divisions are kept}
objective=${OBJECTIVE:-weighted-finish}

divide() { plan allocate "$queue" --objective "$objective" --time-limit "$1" --format json --output "$plans/next.json" --quiet; }

divide "${LIMIT:-5min}"
code=$?
if [ "$code" -eq 4 ]; then
  divide 30min
  code=$?
fi
if [ "$code" -eq 0 ]; then
  mv "$plans/next.json" "$plans/current.json"
else
  echo "$queue was not divided (exit code $code); the old division holds"
  rm -f "$plans/next.json"
fi
exit "$code"
