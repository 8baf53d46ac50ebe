#include "coordinator/store/worker_duty.h"

namespace switchyard {

absl::string_view WorkerDutyName(WorkerDuty duty) {
  switch (duty) {
    case WorkerDuty::kServe:
      return "serve";
    case WorkerDuty::kCordoned:
      return "cordoned";
    case WorkerDuty::kDraining:
      return "draining";
  }
  return "unknown";
}

}  // namespace switchyard
