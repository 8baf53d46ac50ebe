// docs/DEPLOYMENT_FILE.md against the reader of deployment files: its table has the keys that the
// reader knows, with their types, defaults and limits.

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "google/protobuf/duration.pb.h"
#include "gtest/gtest.h"

#include "coordinator/spec/deployment.h"
#include "core/base/status_macros.h"
#include "core/base/units.h"
#include "services/config/config_file.h"
#include "services/convert/admin.h"
#include "services/convert/enum_words.h"
#include "services/convert/plan.h"
#include "tests/docs/pages.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

constexpr char kPage[] = "docs/DEPLOYMENT_FILE.md";
constexpr char kMinimal[] = "name: a\ncheckpoint: /m\n";

struct Row {
  std::string type;   // without its limit
  std::string limit;  // empty: the page names none
  std::string fallback;
};

// By key.
std::map<std::string, Row> RowsOfThePage() {
  std::map<std::string, Row> rows;
  for (const auto& cells : docs::TableBelow(kPage, {"key", "type", "default", "meaning"})) {
    EXPECT_EQ(cells.size(), 4U) << absl::StrJoin(cells, "|");
    if (cells.size() != 4) continue;
    EXPECT_FALSE(cells[3].empty()) << cells[0];
    const std::pair<std::string, std::string> type = absl::StrSplit(cells[1], ", to ");
    const bool added = rows.emplace(cells[0], Row{type.first, type.second, cells[2]}).second;
    EXPECT_TRUE(added) << cells[0] << " has two rows";
  }
  return rows;
}

bool IsDuration(const FieldDescriptor& field) {
  return field.message_type() == google::protobuf::Duration::descriptor();
}

// As the page names it.
std::string TypeOf(const FieldDescriptor& field) {
  if (field.is_repeated()) return "list";
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING:
      return "text";
    case FieldDescriptor::CPPTYPE_UINT32:
      return "integer";
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return IsDuration(field) ? "duration" : "";
    case FieldDescriptor::CPPTYPE_ENUM: {
      std::vector<std::string> words = EnumWords(*field.enum_type());
      const std::string last = words.back();
      words.pop_back();
      return absl::StrCat(absl::StrJoin(words, ", "), " or ", last);
    }
    default:
      return "";
  }
}

// Every key of a message and of its lists' elements, with its type.
void AddKeys(const Descriptor& type, const std::string& prefix,
             std::map<std::string, std::string>* keys) {
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    const std::string key = absl::StrCat(prefix, field.name());
    (*keys)[key] = TypeOf(field);
    EXPECT_NE((*keys)[key], "") << key << " has a type that this test does not know";
    if (field.is_repeated() && field.message_type() != nullptr) {
      AddKeys(*field.message_type(), absl::StrCat(key, "[]."), keys);
    }
  }
}

TEST(DeploymentFilePageTest, HasTheKeysOfTheReaderWithTheirTypes) {
  std::map<std::string, std::string> wanted;
  AddKeys(*v1::DeploymentSpec::descriptor(), "", &wanted);
  std::map<std::string, std::string> documented;
  for (const auto& [key, row] : RowsOfThePage()) documented[key] = row.type;

  EXPECT_THAT(documented, ::testing::ContainerEq(wanted));
}

// What the coordinator makes of a file.
absl::StatusOr<DeploymentSpec> Complete(const std::string& text) {
  v1::ApplyDeploymentRequest request;
  SY_RETURN_IF_ERROR(ReadConfigText(text, "deployment.yaml", request.mutable_deployment()));
  SY_ASSIGN_OR_RETURN(const DeploymentSpec spec, FromProto(request));
  return CompleteSpec(spec);
}

// A value as a file has it.
std::string TextOf(const v1::DeploymentSpec& spec, const FieldDescriptor& field) {
  const google::protobuf::Reflection& at = *spec.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_UINT32:
      return absl::StrCat(at.GetUInt32(spec, &field));
    case FieldDescriptor::CPPTYPE_ENUM:
      return EnumWord(*at.GetEnum(spec, &field));
    default: {
      google::protobuf::Duration time;
      time.CopyFrom(at.GetMessage(spec, &field));
      return DurationText(std::chrono::seconds(time.seconds()));
    }
  }
}

TEST(DeploymentFilePageTest, DefaultsAreThoseThatAreFilledIn) {
  SY_ASSERT_OK_AND_ASSIGN(const DeploymentSpec full, Complete(kMinimal));
  v1::DeploymentSpec filled;
  Encode(full, &filled);
  int compared = 0;
  for (const auto& [key, row] : RowsOfThePage()) {
    const FieldDescriptor* field = v1::DeploymentSpec::descriptor()->FindFieldByName(key);
    if (field == nullptr || field->is_repeated() ||
        field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
      continue;
    }
    // The coordinator's option is not part of the specification.
    if (key == "dispatcher_output_dtype") continue;
    ++compared;
    EXPECT_EQ(row.fallback, TextOf(filled, *field)) << key;
  }

  EXPECT_EQ(compared, 5);
  EXPECT_EQ(full.model, "m");
  EXPECT_EQ(full.phases.size(), 3U);
}

// "24h" is the last that is taken; one second, or one, more is refused.
std::string OneMore(const std::string& limit) {
  std::int64_t number = 0;
  return absl::SimpleAtoi(limit, &number) ? absl::StrCat(number + 1) : absl::StrCat(limit, "1s");
}

TEST(DeploymentFilePageTest, LimitsAreThoseOfTheCoordinator) {
  int limits = 0;
  for (const auto& [key, row] : RowsOfThePage()) {
    if (row.limit.empty()) continue;
    ++limits;
    EXPECT_TRUE(Complete(absl::StrCat(kMinimal, key, ": ", row.limit)).ok()) << key;
    EXPECT_FALSE(Complete(absl::StrCat(kMinimal, key, ": ", OneMore(row.limit))).ok()) << key;
  }
  EXPECT_EQ(limits, 4);
}

TEST(DeploymentFilePageTest, RequiredKeysAreRequired) {
  std::map<std::string, std::string> without{
      {"name", "checkpoint: /m\n"},
      {"checkpoint", "name: a\n"},
      {"phases[].phase", absl::StrCat(kMinimal, "phases: [{mode: normal}]\n")},
      {"layers[].layer", absl::StrCat(kMinimal, "layers: [{dispatcher_output_dtype: fp8}]\n")},
      {"layers[].dispatcher_output_dtype", absl::StrCat(kMinimal, "layers: [{layer: 0}]\n")}};
  SY_ASSERT_OK(Complete(kMinimal).status());
  for (const auto& [key, row] : RowsOfThePage()) {
    EXPECT_EQ(row.fallback == "required", without.contains(key)) << key;
    if (!without.contains(key)) continue;
    EXPECT_FALSE(Complete(without[key]).ok()) << key;
  }
}

// The examples are files that can be applied, and the longer one leaves no key out.
TEST(DeploymentFilePageTest, ExamplesAreRead) {
  std::vector<std::string> examples;
  bool inside = false;
  for (const std::string& line : docs::LinesOf(kPage)) {
    if (inside && line == "```") inside = false;
    if (inside) absl::StrAppend(&examples.back(), line, "\n");
    if (line == "```yaml") {
      inside = true;
      examples.emplace_back();
    }
  }
  ASSERT_EQ(examples.size(), 2U);
  for (const std::string& example : examples) SY_EXPECT_OK(Complete(example).status());
  for (const auto& [key, row] : RowsOfThePage()) {
    const std::vector<std::string> parts = absl::StrSplit(key, "[].");
    EXPECT_TRUE(absl::StrContains(examples[1], absl::StrCat(parts.back(), ":"))) << key;
  }
}

}  // namespace
}  // namespace switchyard
