#include "worker/weights/weight_source_registry.h"

#include <array>
#include <utility>
#include <variant>

#include "core/base/status_macros.h"
#include "model/model_spec.h"
#include "worker/weights/safetensors_source.h"
#include "worker/weights/synthetic_source.h"

namespace switchyard {
namespace {

using Source = absl::StatusOr<std::unique_ptr<WeightSource>>;

// Opening a folder reads all headers, so errors of the checkpoint appear here and not in Load.
Source MakeSafetensors(const ModelSpec& spec, WeightCheck check) {
  SY_ASSIGN_OR_RETURN(auto checkpoint, Checkpoint::Open(std::get<CheckpointFolder>(spec).path));
  return std::make_unique<SafetensorsSource>(std::move(checkpoint), std::move(check));
}

Source MakeSynthetic(const ModelSpec& spec, WeightCheck check) {
  return std::make_unique<SyntheticSource>(std::get<SyntheticModel>(spec), std::move(check));
}

struct SourceRow {
  const char* name;
  Source (*make)(const ModelSpec& spec, WeightCheck check);
};

// Row i creates the source for alternative i of ModelSpec. The array's size is that of the variant,
// so a new alternative without a row does not compile.
constexpr std::array<SourceRow, std::variant_size_v<ModelSpec>> kSources{{
    {"safetensors", &MakeSafetensors},
    {"synthetic", &MakeSynthetic},
}};

}  // namespace

absl::StatusOr<std::unique_ptr<WeightSource>> MakeWeightSource(absl::string_view checkpoint,
                                                               WeightCheck check) {
  SY_ASSIGN_OR_RETURN(const ModelSpec spec, ParseModelSpec(checkpoint));
  return kSources[spec.index()].make(spec, std::move(check));
}

std::vector<std::string> WeightSourceNames() {
  std::vector<std::string> names;
  names.reserve(kSources.size());
  for (const SourceRow& row : kSources) names.emplace_back(row.name);
  return names;
}

}  // namespace switchyard
