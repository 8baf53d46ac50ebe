#include "worker/device/cpu/expert_run.h"

#include <algorithm>

namespace switchyard {

KernelCall CallAt(const ExpertRun& run, std::int64_t first) {
  const auto row_count = static_cast<std::int64_t>(run.rows.size());
  return {.dims = run.dims,
          .weights = run.weights,
          .rows = run.rows.data() + first,
          .row_count = std::min(run.layout.rows_per_call, row_count - first),
          .out = run.out + first * run.dims.hidden,
          .scratch = run.scratch};
}

void RunExpert(const ExpertRun& run) {
  const auto row_count = static_cast<std::int64_t>(run.rows.size());
  for (std::int64_t first = 0; first < row_count; first += run.layout.rows_per_call) {
    const KernelCall call = CallAt(run, first);
    run.family->load_rows(call);
    run.family->gate_up(call, 0, run.layout.gate_up_panels);
    run.family->down(call, 0, run.layout.down_panels);
  }
}

}  // namespace switchyard
