#include "core/quant_scheme.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"

namespace switchyard {
namespace {

constexpr std::array kKinds{DeviceKind::kCpu, DeviceKind::kCuda, DeviceKind::kAscend};
constexpr std::array kModes{DispatchMode::kNormal, DispatchMode::kLowLatency};
constexpr std::array kDtypes{DispatchDtype::kBf16, DispatchDtype::kFp8, DispatchDtype::kInt8,
                             DispatchDtype::kNvfp4};

// The table of the dispatch semantics, section 4, one line for each scheme and kind of worker:
// the default dtypes of rows in normal / low_latency, and the accepted ones in each. A trailing
// "!" marks a dtype that is accepted only when it is named.
constexpr absl::string_view kTable = R"(
none cpu                bf16/bf16   bf16/bf16
none cuda               bf16/bf16   bf16/bf16
none ascend             bf16/bf16   bf16/bf16
fp8_block cpu           fp8/fp8     bf16,fp8/bf16,fp8
fp8_block cuda          fp8/fp8     bf16,fp8/bf16,fp8
fp8_block ascend        bf16/bf16   bf16,fp8/bf16,fp8
fp8_tensor_static cpu     bf16/bf16   bf16/bf16
fp8_tensor_static cuda    bf16/bf16   bf16/bf16
fp8_tensor_static ascend  bf16/bf16   bf16/bf16
fp8_tensor_dynamic cpu    bf16/bf16   bf16/bf16
fp8_tensor_dynamic cuda   bf16/bf16   bf16/bf16
fp8_tensor_dynamic ascend bf16/bf16   bf16/bf16
fp8_channel cpu         bf16/bf16   bf16/bf16
fp8_channel cuda        bf16/bf16   bf16/bf16
fp8_channel ascend      bf16/bf16   bf16/bf16
nvfp4 cpu               bf16/nvfp4  bf16/bf16,nvfp4
nvfp4 cuda              bf16/nvfp4  bf16/bf16,nvfp4
nvfp4 ascend            bf16/nvfp4  bf16/bf16,nvfp4
w4afp8 cpu              bf16/bf16   bf16/bf16,fp8
w4afp8 cuda             bf16/bf16   bf16/bf16,fp8
w4afp8 ascend           bf16/bf16   bf16/bf16,fp8
w8a8_int8 cpu           int8/int8   bf16,int8/bf16,int8
w8a8_int8 cuda          bf16/bf16   bf16,fp8!/bf16,fp8!
w8a8_int8 ascend        int8/int8   bf16,int8/bf16,int8
w4a8_int8 cpu           int8/int8   int8/int8
w4a8_int8 cuda          int8/int8   int8/int8
w4a8_int8 ascend        int8/int8   int8/int8
w4a4_int4 cpu           bf16/bf16   bf16/bf16
w4a4_int4 cuda          bf16/bf16   bf16/bf16
w4a4_int4 ascend        bf16/bf16   bf16/bf16
w4a16_int4 cpu          bf16/bf16   bf16/bf16
w4a16_int4 cuda         bf16/bf16   bf16/bf16
w4a16_int4 ascend       bf16/bf16   bf16/bf16
awq_int4 cpu            bf16/bf16   bf16/bf16
awq_int4 cuda           bf16/bf16   bf16/bf16
awq_int4 ascend         bf16/bf16   bf16/bf16
mxfp8 cpu               bf16/bf16   bf16/bf16
mxfp8 cuda              bf16/bf16   bf16/bf16
mxfp8 ascend            bf16/bf16   bf16/bf16
)";

std::string AcceptedBy(QuantScheme scheme, const SchemeUse& use) {
  std::string out;
  for (const DispatchDtype dtype : kDtypes) {
    if (!Accepts(scheme, dtype, use, DtypeOrigin::kExplicit)) continue;
    const bool by_default = Accepts(scheme, dtype, use, DtypeOrigin::kAuto);
    absl::StrAppend(&out, out.empty() ? "" : ",", DispatchDtypeName(dtype), by_default ? "" : "!");
  }
  return out;
}

// R74 - R76, R79 - R85, R13: what each scheme travels as on each kind of worker, in each mode.
TEST(QuantSchemeTest, PrefersAndAcceptsWhatTheTableSays) {
  std::set<std::string> rows;
  for (const absl::string_view line : absl::StrSplit(kTable, '\n', absl::SkipEmpty())) {
    const std::vector<std::string> cells = absl::StrSplit(line, ' ', absl::SkipEmpty());
    ASSERT_EQ(cells.size(), 4U) << line;
    const std::optional<QuantScheme> scheme = QuantSchemeFromName(cells[0]);
    SchemeUse use{.global_scale = true};
    ASSERT_TRUE(scheme && DeviceKindFromName(cells[1], &use.worker)) << line;

    std::string preferred;
    std::string accepted;
    for (const DispatchMode mode : kModes) {
      use.mode = mode;
      const char* const slash = mode == DispatchMode::kNormal ? "" : "/";
      absl::StrAppend(&preferred, slash, DispatchDtypeName(PreferredDtype(*scheme, use)));
      absl::StrAppend(&accepted, slash, AcceptedBy(*scheme, use));
    }

    EXPECT_EQ(preferred, cells[2]) << line;
    EXPECT_EQ(accepted, cells[3]) << line;
    EXPECT_TRUE(rows.insert(cells[0] + cells[1]).second) << line;
  }
  EXPECT_EQ(rows.size(), AllQuantSchemes().size() * kKinds.size());
}

// R77, R78: without a global input scale no row can be encoded as NVFP4.
TEST(QuantSchemeTest, Nvfp4NeedsAGlobalScale) {
  for (const DeviceKind worker : kKinds) {
    for (const DispatchMode mode : kModes) {
      const SchemeUse use{worker, mode, /*global_scale=*/false};

      EXPECT_EQ(PreferredDtype(QuantScheme::kNvfp4, use), DispatchDtype::kBf16);
      EXPECT_FALSE(
          Accepts(QuantScheme::kNvfp4, DispatchDtype::kNvfp4, use, DtypeOrigin::kExplicit));
    }
  }
}

// R96: scales of 1x128 are not those of these experts.
TEST(QuantSchemeTest, Fp8InGroupsOf128IsNoneOfTheOtherFp8Schemes) {
  for (const QuantScheme scheme : {QuantScheme::kMxfp8, QuantScheme::kFp8TensorStatic,
                                   QuantScheme::kFp8TensorDynamic, QuantScheme::kFp8Channel}) {
    for (const DeviceKind worker : kKinds) {
      for (const DispatchMode mode : kModes) {
        EXPECT_FALSE(
            Accepts(scheme, DispatchDtype::kFp8, {worker, mode, true}, DtypeOrigin::kExplicit))
            << QuantSchemeInfoOf(scheme).name;
      }
    }
  }
}

TEST(QuantSchemeTest, EverySchemeAcceptsByDefaultWhatItPrefers) {
  for (const QuantSchemeInfo& info : AllQuantSchemes()) {
    for (const DeviceKind worker : kKinds) {
      for (const DispatchMode mode : kModes) {
        for (const bool global_scale : {false, true}) {
          const SchemeUse use{worker, mode, global_scale};
          EXPECT_TRUE(
              Accepts(info.scheme, PreferredDtype(info.scheme, use), use, DtypeOrigin::kAuto))
              << info.name << " on " << DeviceKindName(worker);
        }
      }
    }
  }
}

TEST(QuantSchemeTest, NamesAreUniqueAndReadBackAndRowsAreInOrder) {
  std::set<std::string> names;
  std::size_t index = 0;
  for (const QuantSchemeInfo& info : AllQuantSchemes()) {
    EXPECT_EQ(static_cast<std::size_t>(info.scheme), index++);
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    EXPECT_EQ(QuantSchemeFromName(info.name), info.scheme);
    EXPECT_NE(std::string(info.description), "");
  }
  EXPECT_EQ(index, static_cast<std::size_t>(kLastQuantScheme) + 1);
  EXPECT_EQ(QuantSchemeFromName("fp9"), std::nullopt);
}

// The meaning of a stored plan, or of one on the wire, must never change.
TEST(QuantSchemeTest, WireValuesStay) {
  const std::map<std::string, int> values{{"none", 0},
                                          {"fp8_block", 1},
                                          {"fp8_tensor_static", 2},
                                          {"fp8_tensor_dynamic", 3},
                                          {"fp8_channel", 4},
                                          {"nvfp4", 5},
                                          {"w4afp8", 6},
                                          {"w8a8_int8", 7},
                                          {"w4a8_int8", 8},
                                          {"w4a4_int4", 9},
                                          {"w4a16_int4", 10},
                                          {"awq_int4", 11},
                                          {"mxfp8", 12}};

  for (const auto& [name, value] : values) {
    ASSERT_TRUE(QuantSchemeFromName(name)) << name;
    EXPECT_EQ(static_cast<int>(*QuantSchemeFromName(name)), value) << name;
  }
  EXPECT_EQ(values.size(), AllQuantSchemes().size());
}

TEST(ActivationQuantTest, TheLaterIsTheCoarser) {
  std::set<std::string> names;
  double finer = 0;
  for (int i = 0; i <= static_cast<int>(ActivationQuant::kInt4Token); ++i) {
    const auto quant = static_cast<ActivationQuant>(i);
    EXPECT_GT(LayerErrorBound(quant), finer);
    finer = LayerErrorBound(quant);
    EXPECT_TRUE(names.insert(std::string(ActivationQuantName(quant))).second);
  }
}

TEST(ActivationQuantTest, TheCoarsestOfWireAndExpertsCounts) {
  const auto bound = [](QuantScheme scheme, DispatchDtype wire) {
    return LayerErrorBound(CoarsestActivationQuant(scheme, wire));
  };

  EXPECT_EQ(bound(QuantScheme::kNone, DispatchDtype::kBf16), 1e-4);
  EXPECT_EQ(bound(QuantScheme::kW4A16Int4, DispatchDtype::kBf16), 1e-4);
  EXPECT_EQ(bound(QuantScheme::kAwqInt4, DispatchDtype::kBf16), 1e-4);
  EXPECT_EQ(bound(QuantScheme::kW8A8Int8, DispatchDtype::kBf16), 5e-4);
  EXPECT_EQ(bound(QuantScheme::kW8A8Int8, DispatchDtype::kInt8), 5e-4);
  EXPECT_EQ(bound(QuantScheme::kW4A8Int8, DispatchDtype::kInt8), 5e-4);
  EXPECT_EQ(bound(QuantScheme::kW8A8Int8, DispatchDtype::kFp8), 1.1e-3);
  EXPECT_EQ(bound(QuantScheme::kFp8Block, DispatchDtype::kFp8), 1.1e-3);
  EXPECT_EQ(bound(QuantScheme::kFp8Block, DispatchDtype::kBf16), 1.1e-3);
  EXPECT_EQ(bound(QuantScheme::kFp8TensorStatic, DispatchDtype::kBf16), 1.2e-3);
  EXPECT_EQ(bound(QuantScheme::kFp8TensorDynamic, DispatchDtype::kBf16), 1.2e-3);
  EXPECT_EQ(bound(QuantScheme::kFp8Channel, DispatchDtype::kBf16), 1.2e-3);
  EXPECT_EQ(bound(QuantScheme::kW4Afp8, DispatchDtype::kFp8), 1.2e-3);
  EXPECT_EQ(bound(QuantScheme::kNvfp4, DispatchDtype::kNvfp4), 1.5e-2);
  EXPECT_EQ(bound(QuantScheme::kNvfp4, DispatchDtype::kBf16), 1.5e-2);
  EXPECT_EQ(bound(QuantScheme::kW4A4Int4, DispatchDtype::kBf16), 3e-2);
}

}  // namespace
}  // namespace switchyard
