#include "core/weight_manifest.h"

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace switchyard {
namespace {

// Layers 0 and 2 (1 is dense), two experts, three projections, each with a hash of its own.
WeightManifest SmallManifest() {
  WeightManifest manifest;
  for (const std::int32_t layer : {0, 2}) {
    for (const std::int32_t expert : {0, 1}) {
      for (const auto projection : kAllProjections) {
        const std::string name = absl::StrCat(layer, ".", expert, ".", ProjectionName(projection));
        manifest.tensors.push_back({LayerId{layer}, ExpertId{expert}, projection, Sha256(name)});
      }
    }
  }
  return manifest;
}

TEST(WeightManifestTest, FindsEveryRowAndNoOther) {
  const WeightManifest manifest = SmallManifest();

  for (const TensorHash& row : manifest.tensors) {
    const TensorHash* found = manifest.Find(row.layer, row.expert, row.projection);
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(*found, row);
  }
  EXPECT_EQ(manifest.Find(LayerId{1}, ExpertId{0}, Projection::kGate), nullptr);
  EXPECT_EQ(manifest.Find(LayerId{2}, ExpertId{2}, Projection::kGate), nullptr);
  EXPECT_EQ(manifest.Find(LayerId{3}, ExpertId{0}, Projection::kDown), nullptr);
  EXPECT_EQ(WeightManifest{}.Find(LayerId{0}, ExpertId{0}, Projection::kGate), nullptr);
}

TEST(WeightManifestTest, HashSeesEveryFieldOfEveryRow) {
  const WeightManifest manifest = SmallManifest();
  ASSERT_EQ(SmallManifest().Hash(), manifest.Hash());

  for (std::size_t i = 0; i < manifest.tensors.size(); ++i) {
    WeightManifest other = manifest;
    other.tensors[i].sha256.bytes[31] ^= 1;
    EXPECT_NE(other.Hash(), manifest.Hash()) << "digest of row " << i;
    other = manifest;
    other.tensors[i].expert.value += 10;
    EXPECT_NE(other.Hash(), manifest.Hash()) << "expert of row " << i;
    other = manifest;
    other.tensors.erase(other.tensors.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_NE(other.Hash(), manifest.Hash()) << "absence of row " << i;
  }
}

TEST(WeightManifestTest, ProjectionNamesAreTheCheckpoints) {
  EXPECT_EQ(ProjectionName(Projection::kGate), "gate_proj");
  EXPECT_EQ(ProjectionName(Projection::kUp), "up_proj");
  EXPECT_EQ(ProjectionName(Projection::kDown), "down_proj");
}

}  // namespace
}  // namespace switchyard
