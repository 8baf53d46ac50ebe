#include "quantize/safetensors_writer.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"

#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace switchyard {
namespace {

using Json = nlohmann::ordered_json;

// File names have five digits for the number of a shard.
constexpr std::size_t kShardsMax = 99'999;
// The reference writer pads headers to this, so that the data begins aligned.
constexpr std::size_t kHeaderAlignment = 8;

absl::Status Error(Reason reason, absl::string_view name, absl::string_view what) {
  return MakeError(absl::StatusCode::kInvalidArgument, reason, absl::StrCat(name, ": ", what),
                   {{"tensor", std::string(name)}});
}

std::string Text(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

absl::StatusOr<std::uint64_t> BytesOf(const PlannedTensor& tensor) {
  constexpr std::uint64_t kBitsMax = std::numeric_limits<std::int64_t>::max();
  std::uint64_t bits = TensorDtypeBits(tensor.dtype);
  for (const std::int64_t dim : tensor.shape) {
    if (dim < 0) return Error(Reason::kBadShape, tensor.name, "it has a negative dimension");
    if (dim > 0 && bits > kBitsMax / static_cast<std::uint64_t>(dim)) {
      return Error(Reason::kBadShape, tensor.name, "it has more than 2^63 bits");
    }
    bits *= static_cast<std::uint64_t>(dim);
  }
  if (bits % 8 != 0) return Error(Reason::kBadShape, tensor.name, "it ends inside a byte");
  return bits / 8;
}

absl::StatusOr<std::unique_ptr<SafetensorsWriter>> SafetensorsWriter::Create(
    OutputFolder* folder, const std::vector<PlannedTensor>& plan, std::uint64_t shard_bytes) {
  std::unique_ptr<SafetensorsWriter> writer(new SafetensorsWriter(folder));
  SY_RETURN_IF_ERROR(writer->AddAll(plan, shard_bytes));
  SY_RETURN_IF_ERROR(writer->NameShards());
  writer->LayOut();
  return writer;
}

absl::Status SafetensorsWriter::AddAll(const std::vector<PlannedTensor>& plan,
                                       std::uint64_t shard_bytes) {
  if (shard_bytes == 0) return Error(Reason::kBadConfig, "shard_bytes", "it must be above 0");
  shards_.emplace_back();
  for (const PlannedTensor& tensor : plan) {
    SY_ASSIGN_OR_RETURN(const std::uint64_t bytes, BytesOf(tensor));
    const std::uint64_t before = shards_.back().data_bytes;
    // Written without a sum, which could overflow. A shard always takes at least one tensor.
    if (before > 0 && (bytes > shard_bytes || before > shard_bytes - bytes)) {
      shards_.emplace_back();
    }
    shards_.back().data_bytes += bytes;
    entries_.push_back({tensor, shards_.size() - 1, 0, bytes, 0});
    total_bytes_ += bytes;
  }
  return absl::OkStatus();
}

absl::Status SafetensorsWriter::NameShards() {
  if (shards_.size() > kShardsMax) {
    return Error(
        Reason::kBadConfig, "shard_bytes",
        absl::StrCat("it splits the checkpoint into ", shards_.size(), " files; choose more"));
  }
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    shards_[i].missing = shards_[i].data_bytes;
    shards_[i].name = shards_.size() == 1 ? std::string("model.safetensors")
                                          : absl::StrFormat("model-%05d-of-%05d.safetensors",
                                                            static_cast<int>(i + 1),
                                                            static_cast<int>(shards_.size()));
  }
  std::vector<std::string> names;
  for (const Entry& entry : entries_) names.push_back(entry.tensor.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice == names.end()) return absl::OkStatus();
  return Error(Reason::kBadConfig, *twice, "two tensors of the new checkpoint have this name");
}

void SafetensorsWriter::LayOut() {
  // Widest dtype first: each tensor then begins at a multiple of its element's size without gaps,
  // which the format does not allow.
  const auto key = [](const Entry& entry) {
    const auto bits = static_cast<std::int64_t>(TensorDtypeBits(entry.tensor.dtype));
    return std::make_tuple(entry.shard, -bits, std::cref(entry.tensor.name));
  };
  std::sort(entries_.begin(), entries_.end(),
            [&](const Entry& a, const Entry& b) { return key(a) < key(b); });
  std::uint64_t at = 0;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (i > 0 && entries_[i].shard != entries_[i - 1].shard) at = 0;
    entries_[i].begin = at;
    at += entries_[i].bytes;
    by_name_[entries_[i].tensor.name] = i;
  }
}

std::string SafetensorsWriter::HeaderOf(std::size_t shard) const {
  Json header;
  header["__metadata__"]["format"] = "pt";  // transformers refuses files without this key
  auto entry =
      std::lower_bound(entries_.begin(), entries_.end(), shard,
                       [](const Entry& one, std::size_t wanted) { return one.shard < wanted; });
  for (; entry != entries_.end() && entry->shard == shard; ++entry) {
    Json tensor;
    tensor["dtype"] = std::string(TensorDtypeName(entry->tensor.dtype));
    tensor["shape"] = entry->tensor.shape;
    tensor["data_offsets"] = {entry->begin, entry->begin + entry->bytes};
    // operator[] would search all names for each new one; NameShards made sure that they differ.
    header.get_ref<Json::object_t&>().emplace_back(entry->tensor.name, std::move(tensor));
  }
  std::string text = Text(header, -1);
  text.append((kHeaderAlignment - text.size() % kHeaderAlignment) % kHeaderAlignment, ' ');
  std::string bytes;
  for (std::size_t i = 0; i < sizeof(std::uint64_t); ++i) {  // little endian
    bytes.push_back(static_cast<char>(text.size() >> (8 * i) & 0xffU));
  }
  return bytes + text;
}

std::string SafetensorsWriter::PathOf(const Shard& shard) const {
  return absl::StrCat(folder_->partial(), "/", shard.name);
}

absl::Status SafetensorsWriter::Open(std::size_t index) {
  Shard& shard = shards_[index];
  const std::string path = PathOf(shard);
  SY_ASSIGN_OR_RETURN(shard.file, CreateFile(path));
  const std::string header = HeaderOf(index);
  shard.header_bytes = header.size();
  return WriteAt(shard.file, path, 0, std::as_bytes(std::span<const char>(header)));
}

absl::Status SafetensorsWriter::CloseWhenWhole(Shard& shard) {
  // Closing early bounds the open files, and syncing here spreads the wait over the run.
  if (shard.missing > 0) return absl::OkStatus();
  SY_RETURN_IF_ERROR(Sync(shard.file, PathOf(shard)));
  shard.file.reset();
  return absl::OkStatus();
}

absl::Status SafetensorsWriter::Write(absl::string_view name, std::span<const std::byte> bytes) {
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) {
    return Error(Reason::kBadRequest, name, "this tensor is not in the plan of the file");
  }
  Entry& entry = entries_[found->second];
  if (bytes.size() > entry.bytes - entry.written) {
    return Error(Reason::kBadRequest, name,
                 absl::StrCat("more than its ", entry.bytes, " bytes were given"));
  }
  // Nothing to write, and the shard may already be complete and closed.
  if (bytes.empty()) return absl::OkStatus();
  Shard& shard = shards_[entry.shard];
  if (shard.header_bytes == 0) SY_RETURN_IF_ERROR(Open(entry.shard));
  SY_RETURN_IF_ERROR(
      WriteAt(shard.file, PathOf(shard), shard.header_bytes + entry.begin + entry.written, bytes));
  entry.written += bytes.size();
  shard.missing -= bytes.size();
  return CloseWhenWhole(shard);
}

absl::Status SafetensorsWriter::Finish() {
  for (const Entry& entry : entries_) {
    if (entry.written == entry.bytes) continue;
    return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kStageOrder,
                     absl::StrCat(entry.tensor.name, ": only ", entry.written, " of its ",
                                  entry.bytes, " bytes were written"),
                     {{"tensor", entry.tensor.name}});
  }
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    if (shards_[i].header_bytes > 0) continue;
    // A shard of zero-size tensors gets no Write, but readers expect the file.
    SY_RETURN_IF_ERROR(Open(i));
    SY_RETURN_IF_ERROR(CloseWhenWhole(shards_[i]));
  }
  return shards_.size() == 1 ? absl::OkStatus() : WriteIndex();
}

absl::Status SafetensorsWriter::WriteIndex() {
  Json index;
  index["metadata"]["total_size"] = total_bytes_;
  Json& map = index["weight_map"] = Json::object();
  for (const auto& [name, at] : by_name_) {
    map.get_ref<Json::object_t&>().emplace_back(name, shards_[entries_[at].shard].name);
  }
  return folder_->WriteFile("model.safetensors.index.json", absl::StrCat(Text(index, 2), "\n"));
}

std::vector<std::string> SafetensorsWriter::files() const {
  std::vector<std::string> names;
  for (const Shard& shard : shards_) names.push_back(shard.name);
  return names;
}

}  // namespace switchyard
