#include "services/coordinator/load_query.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/base/status_macros.h"
#include "services/convert/history.h"
#include "services/convert/plan.h"
#include "services/convert/work_times.h"
#include "services/coordinator/admin_queries.h"

namespace switchyard {
namespace {

std::string LittleEndian(const std::vector<std::uint32_t>& numbers) {
  std::string bytes;
  bytes.reserve(numbers.size() * sizeof(std::uint32_t));
  for (const std::uint32_t number : numbers) {
    for (int shift = 0; shift < 32; shift += 8) {
      bytes.push_back(static_cast<char>((number >> shift) & 0xFFU));
    }
  }
  return bytes;
}

void Encode(const LoadSample& in, v1::LoadSample* out) {
  out->set_number(in.number);
  EncodeTime(in.begin, out->mutable_begin());
  EncodeTime(in.duration, out->mutable_duration());
  out->set_rows(LittleEndian(in.rows));
  for (const WorkerLoad& worker : in.workers) {
    v1::WorkerLoad& one = *out->add_workers();
    one.set_id(worker.id);
    one.set_rows(LittleEndian(worker.rows));
    Encode(worker.times, one.mutable_times());
  }
}

std::size_t BytesOf(const LoadSample& sample) {
  std::size_t numbers = sample.rows.size();
  std::size_t times = 0;
  for (const WorkerLoad& worker : sample.workers) {
    numbers += worker.rows.size();
    times += worker.times.size();
  }
  return numbers * sizeof(std::uint32_t) + times * sizeof(WorkTimes);
}

}  // namespace

absl::StatusOr<v1::GetLoadResponse> GetLoad(
    const CoordinatorView& view, const v1::GetLoadRequest& request,
    const std::function<LoadView(const std::string& deployment, const LoadQuery& query)>& load) {
  v1::GetDeploymentRequest named;
  named.set_name(request.deployment());
  SY_ASSIGN_OR_RETURN(const v1::GetDeploymentResponse found, GetDeployment(view, named));
  const std::string& name = found.deployment().spec().name();
  LoadQuery query{.after = request.after(), .before = request.before(), .limit = kLoadSamplesMax};
  if (request.limit() != 0) query.limit = std::min<std::size_t>(query.limit, request.limit());
  const LoadView loads = load(name, query);

  v1::GetLoadResponse out;
  out.set_deployment(name);
  out.set_first(loads.first);
  out.set_last(loads.last);
  for (const LayerId layer : loads.shape.layers) {
    out.add_layers(static_cast<std::uint32_t>(layer.value));
  }
  out.set_experts(static_cast<std::uint32_t>(loads.shape.experts));
  std::size_t bytes = 0;
  std::size_t begin = loads.samples.size();
  while (begin > 0) {
    bytes += BytesOf(*loads.samples[begin - 1]);
    if (bytes > kLoadAnswerBytesMax && begin < loads.samples.size()) break;
    --begin;
  }
  for (; begin < loads.samples.size(); ++begin) Encode(*loads.samples[begin], out.add_samples());
  return out;
}

}  // namespace switchyard
