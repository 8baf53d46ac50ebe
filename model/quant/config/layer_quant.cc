#include "model/quant/config/layer_quant.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "model/io/checkpoint_error.h"
#include "model/io/config_reader.h"
#include "model/io/json_view.h"

namespace switchyard {
namespace {

using internal::UnsupportedConfig;

LayerQuant Unquantized(std::string why) {
  LayerQuant quant;
  quant.why = std::move(why);
  return quant;
}

// The storage of one module. No group: BF16.
struct Decision {
  const QuantGroup* group = nullptr;
  std::string why;
};

// Matches of a module's container and expert, computed once for all modules below them.
struct Above {
  std::string excluded;               // entry that names the container or the expert
  const QuantGroup* group = nullptr;  // first group that names one of them
  std::string target;
};

void LookAt(const QuantConfig& config, const std::string& name, Above& above) {
  if (above.excluded.empty()) above.excluded = config.excluded.Match(name);
  for (const QuantGroup& group : config.groups) {
    // The first group that names a module or anything above it applies.
    if (above.group != nullptr) return;
    above.target = group.targets.Match(name);
    if (!above.target.empty()) above.group = &group;
  }
}

Decision Decide(const QuantConfig& config, Above names, const std::string& module) {
  // `names` is a copy: what is found for this module must not apply to the next.
  LookAt(config, module, names);
  if (!names.excluded.empty()) return {nullptr, absl::StrCat("excluded by '", names.excluded, "'")};
  if (names.group != nullptr) {
    return {names.group, absl::StrCat("named by '", names.target, "' of ", names.group->key)};
  }
  for (const QuantGroup& group : config.groups) {
    if (group.every_linear) return {&group, absl::StrCat("linear modules of ", group.key)};
  }
  return {nullptr, "named by no group of the quant config"};
}

absl::StatusOr<LayerQuant> ResolveByGroups(const QuantConfig& config,
                                           const ExpertModules& modules) {
  Above container;
  LookAt(config, modules.container, container);
  std::optional<Decision> first;
  // Every expert is checked, although experts of one layer are alike in all known checkpoints:
  // lists of exact names can miss one, and its weights would be read in the wrong layout.
  for (std::int32_t expert = 0; expert < (modules.packed ? 1 : modules.experts); ++expert) {
    Above above = container;
    if (!modules.packed) LookAt(config, absl::StrCat(modules.container, ".", expert), above);
    for (const Projection projection : kAllProjections) {
      const std::string module = modules.Name(expert, projection);
      Decision decision = Decide(config, above, module);
      if (!first.has_value()) {
        first = std::move(decision);
      } else if (first->group != decision.group) {
        return UnsupportedConfig(
            module, absl::StrCat("it is ", decision.why, ", while '",
                                 modules.Name(0, Projection::kGate), "' is ", first->why,
                                 "; experts of one layer that are stored in several ways are not "
                                 "served"));
      }
    }
  }
  if (!first.has_value() || first->group == nullptr) {
    return Unquantized(first.has_value() ? first->why : "no experts");
  }
  LayerQuant quant;
  quant.projections.fill(first->group->quant);
  quant.scheme = SchemeOf(first->group->quant);
  quant.why = first->why;
  return quant;
}

// The spellings of an expert's projections that descriptions use, besides the checkpoint's own.
std::vector<std::array<std::string, 3>> Spellings(const ExpertModules& modules) {
  return {modules.projections, {"gate_proj", "up_proj", "down_proj"}, {"w1", "w3", "w2"}};
}

std::string NameAs(const ExpertModules& modules, const std::array<std::string, 3>& spelling,
                   std::int32_t expert, Projection projection) {
  return absl::StrCat(modules.container, ".", expert, ".",
                      spelling[static_cast<std::size_t>(projection)]);
}

absl::Status NoRows(const ExpertModules& modules) {
  std::vector<std::string> tried;
  for (const auto& spelling : Spellings(modules)) {
    tried.push_back(absl::StrCat("'", NameAs(modules, spelling, 0, Projection::kGate), ".weight'"));
  }
  return BadConfig(modules.Name(0, Projection::kGate),
                   absl::StrCat("quant_model_description.json has no row for the experts of this "
                                "layer; tried ",
                                absl::StrJoin(tried, ", ")));
}

absl::StatusOr<QuantLayout> LayoutOfType(const std::string& module, const std::string* type) {
  if (type == nullptr) {
    return BadConfig(module,
                     absl::StrCat("quant_model_description.json has no row '", module, ".weight'"));
  }
  for (const ModelSlimType& row : kModelSlimTypes) {
    if (*type == row.name) return row.layout;
  }
  return UnsupportedConfig(
      module, absl::StrCat("experts of type '", PrintableName(*type), "' are not served, only ",
                           absl::StrJoin(kModelSlimTypes, ", ",
                                         [](std::string* out, const ModelSlimType& row) {
                                           out->append(row.name);
                                         })));
}

// The layouts of one expert, by Projection; gate and up agree.
absl::StatusOr<std::array<QuantLayout, 3>> LayoutsOfExpert(
    const ModelSlimDescription& description, const ExpertModules& modules,
    const std::array<std::string, 3>& spelling, std::int32_t expert) {
  std::array<QuantLayout, 3> layouts{};
  for (const Projection projection : kAllProjections) {
    const std::string module = NameAs(modules, spelling, expert, projection);
    SY_ASSIGN_OR_RETURN(layouts[static_cast<std::size_t>(projection)],
                        LayoutOfType(module, description.TypeOf(module)));
  }
  const auto type = [&](Projection projection) {
    return PrintableName(*description.TypeOf(NameAs(modules, spelling, expert, projection)));
  };
  // One kernel computes both from one layout.
  if (layouts[0] != layouts[1]) {
    return BadConfig(
        NameAs(modules, spelling, expert, Projection::kUp),
        absl::StrCat("it is ", type(Projection::kUp), " and gate is ", type(Projection::kGate),
                     "; gate and up are computed together and must agree"));
  }
  if ((layouts[0] == QuantLayout::kBf16) != (layouts[2] == QuantLayout::kBf16)) {
    return UnsupportedConfig(
        NameAs(modules, spelling, expert, Projection::kDown),
        absl::StrCat("it is ", type(Projection::kDown), " and gate is ", type(Projection::kGate),
                     "; experts that are quantized in part are not served"));
  }
  return layouts;
}

ProjectionQuant QuantOfLayout(QuantLayout layout, const ModelSlimDescription& description) {
  ProjectionQuant quant{.layout = layout};
  if (layout == QuantLayout::kModelSlimW4A8) quant.group_size = description.group_size();
  return quant;
}

// Descriptions do not always use the names of the checkpoint's tensors, so several spellings are
// tried.
absl::StatusOr<LayerQuant> ResolveByDescription(const ModelSlimDescription& description,
                                                const ExpertModules& modules) {
  std::optional<std::array<std::string, 3>> found;
  for (const auto& spelling : Spellings(modules)) {
    const std::string module = NameAs(modules, spelling, 0, Projection::kGate);
    if (!found.has_value() && description.TypeOf(module) != nullptr) found = spelling;
  }
  if (!found.has_value()) {
    // msModelSlim leaves drafts out of its description when it does not quantize them.
    if (modules.draft) return Unquantized("draft layer without rows in the description");
    if (modules.packed && modules.stored_in_bf16) return Unquantized("packed experts in BF16");
    return NoRows(modules);
  }
  SY_ASSIGN_OR_RETURN(const auto layouts, LayoutsOfExpert(description, modules, *found, 0));
  for (std::int32_t expert = 1; expert < modules.experts; ++expert) {
    SY_ASSIGN_OR_RETURN(const auto others, LayoutsOfExpert(description, modules, *found, expert));
    if (others != layouts) {
      return UnsupportedConfig(NameAs(modules, *found, expert, Projection::kGate),
                               "its types differ from those of expert 0; experts of one layer that "
                               "are stored in several ways are not served");
    }
  }
  LayerQuant quant;
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    quant.projections[i] = QuantOfLayout(layouts[i], description);
  }
  quant.scheme = SchemeOf(quant.of(Projection::kGate));
  quant.why =
      absl::StrCat("quant_model_description.json: ",
                   *description.TypeOf(NameAs(modules, *found, 0, Projection::kGate)), " and ",
                   *description.TypeOf(NameAs(modules, *found, 0, Projection::kDown)), " (down)");
  return quant;
}

}  // namespace

std::string ExpertModules::Name(std::int32_t expert, Projection projection) const {
  const std::string& part = projections[static_cast<std::size_t>(projection)];
  if (packed) return absl::StrCat(container, ".", part);
  return absl::StrCat(container, ".", expert, ".", part);
}

absl::StatusOr<LayerQuant> ResolveLayerQuant(const QuantConfig& config,
                                             const ExpertModules& modules) {
  if (config.family == "none") return Unquantized("no quant config");
  // The tensors outweigh the config, which often names all linear modules and forgets the draft.
  if (modules.draft && modules.stored_in_bf16) return Unquantized("draft layer stored in BF16");
  SY_ASSIGN_OR_RETURN(LayerQuant quant, config.description.has_value()
                                            ? ResolveByDescription(*config.description, modules)
                                            : ResolveByGroups(config, modules));
  // Fused experts (gpt-oss has them, gate and up interleaved) have no layout to read them by.
  if (modules.packed && quant.scheme != QuantScheme::kNone) {
    return UnsupportedConfig(modules.Name(0, Projection::kGate),
                             absl::StrCat("quantized experts in one packed tensor are not served; ",
                                          "store one tensor for each expert (", quant.why, ")"));
  }
  return quant;
}

}  // namespace switchyard
