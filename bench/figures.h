// The parts of the acceptance run. Each measures its sides in turn, pass by pass, so that ratios
// hold on a machine whose speed drifts, and adds its figures to the report.
#pragma once

#include <string>

#include "bench/report.h"

namespace switchyard::bench {

struct RunOptions {
  std::string bin_dir;  // of switchyard-coordinator and switchyard-worker
  std::string model;    // folder of sqlite-moe-7m
  int passes = 9;       // of which the median counts; at least 7 for acceptance
  // Device of the workers and of the work in process, for decode only; empty: the CPU's default.
  std::string device = {};
  int busy_poll_us = 0;  // of workers and clients, for decode only
};

// A Qwen3-30B-A3B layer, 128 tokens, weights from memory: four workers against in process.
void LayerFigures(const RunOptions& options, Report* report);
// The same rows through two workers whose experts only copy, against memcpy of the bytes moved.
void DataPathFigures(const RunOptions& options, Report* report);
// 512 tokens through the whole decoder.
void PrefillFigures(const RunOptions& options, Report* report);
// One token: what the service adds to a layer, and where that goes.
void DecodeFigures(const RunOptions& options, Report* report);
// One token a step on one worker, beside two sessions of prefill, against the same steps alone.
void ContentionFigures(const RunOptions& options, Report* report);
// One token a step on one worker, while sessions with large rings open and close.
void OpeningFigures(const RunOptions& options, Report* report);
// One token a step with tracing off, of one step in a hundred, and of all.
void TraceFigures(const RunOptions& options, Report* report);

}  // namespace switchyard::bench
