#include "services/convert/message_json.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/type.pb.h"
#include "google/protobuf/util/json_util.h"
#include "google/protobuf/util/type_resolver.h"
#include "google/protobuf/util/type_resolver_util.h"

namespace switchyard {
namespace {

namespace pb = google::protobuf;

constexpr char kPrefix[] = "type.googleapis.com";

// Finds the messages of this process, and those of error.proto under their public names as well.
class Resolver final : public pb::util::TypeResolver {
 public:
  pb::util::Status ResolveMessageType(const std::string& url, pb::Type* type) override {
    return own_->ResolveMessageType(OwnUrl(url), type);
  }
  pb::util::Status ResolveEnumType(const std::string& url, pb::Enum* type) override {
    return own_->ResolveEnumType(url, type);
  }

 private:
  static std::string OwnUrl(const std::string& url) {
    for (const char* name : {"ErrorInfo", "RetryInfo"}) {
      if (url == absl::StrCat(kPrefix, "/google.rpc.", name)) {
        return absl::StrCat(kPrefix, "/switchyard.v1.", name);
      }
    }
    return url;
  }

  const std::unique_ptr<pb::util::TypeResolver> own_{
      pb::util::NewTypeResolverForDescriptorPool(kPrefix, pb::DescriptorPool::generated_pool())};
};

}  // namespace

std::string MessageJson(const pb::Message& message) {
  pb::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  Resolver resolver;
  std::string json;
  const auto written = pb::util::BinaryToJsonString(
      &resolver, absl::StrCat(kPrefix, "/", message.GetDescriptor()->full_name()),
      message.SerializeAsString(), &json, options);
  // Fails for an Any of a type that nobody knows; ours has two, which the resolver knows.
  return written.ok() ? json : "{}";
}

}  // namespace switchyard
