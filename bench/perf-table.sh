#!/usr/bin/env bash
# Turns a result file of `cargo xtask bench` into a Markdown table of medians: one row a metric, one column a file system.
set -euo pipefail
file=${1:?usage: bench/perf-table.sh bench/results/NAME.json}
jq -r '
  def median: sort | if length % 2 == 1 then .[length / 2 | floor] else (.[length / 2 - 1] + .[length / 2]) / 2 end;
  def short: if . >= 100 then round else (. * 10 | round / 10) end;
  (reduce .figures[].subject as $s ([]; if index([$s]) then . else . + [$s] end)) as $subjects
  | (reduce .figures[].metric as $m ([]; if index([$m]) then . else . + [$m] end)) as $metrics
  | .figures as $figures
  | "| metric | " + ($subjects | join(" | ")) + " |",
    "|---" + ($subjects | map("|---") | join("")) + "|",
    ($metrics[] as $m
      | [$subjects[] as $s | [$figures[] | select(.metric == $m and .subject == $s)][0]] as $row
      | ($row | map(select(. != null))[0].unit) as $unit
      | "| \($m) \($unit) | " + ($row | map(if . == null then "-" else (.values | median | short | tostring) end) | join(" | ")) + " |")
' "$file"
