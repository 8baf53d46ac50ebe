#include "model/quant/config/amax_file.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <limits>
#include <optional>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "model/io/checkpoint_error.h"
#include "model/io/config_json.h"
#include "model/io/file_descriptor.h"

namespace switchyard {
namespace {

using Json = nlohmann::json;

constexpr char kVersionKey[] = "switchyard_amax";
constexpr std::uint64_t kBytesMax = 16U << 20U;
constexpr std::int64_t kLayerMax = 1'000'000;

absl::Status BadKey(absl::string_view key, absl::string_view what) {
  return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                   absl::StrCat("calibration, key '", key, "': ", what),
                   {{"key", std::string(key)}});
}

// `value` is an object with exactly the keys of `keys`.
absl::Status CheckKeys(const Json& value, const std::string& path,
                       const std::vector<std::string>& keys) {
  if (!value.is_object()) return BadKey(path, "it must be an object");
  for (const auto& item : value.items()) {
    if (std::find(keys.begin(), keys.end(), item.key()) == keys.end()) {
      return BadKey(absl::StrCat(path, ".", PrintableName(item.key())), "this key is not known");
    }
  }
  for (const std::string& key : keys) {
    if (!value.contains(key)) return BadKey(absl::StrCat(path, ".", key), "it is missing");
  }
  return absl::OkStatus();
}

absl::Status CheckMagnitude(double value, const std::string& path) {
  // The comparisons are false for NaN, so NaN fails too.
  if (value >= 0 && value <= std::numeric_limits<float>::max()) return absl::OkStatus();
  return BadKey(path,
                absl::StrCat("a largest magnitude is a number from 0 to 3.4e38, found ", value));
}

absl::Status ReadMagnitude(const Json& object, const char* key, const std::string& path,
                           float& out) {
  const Json& value = object.at(key);
  const std::string where = absl::StrCat(path, ".", key);
  if (!value.is_number()) return BadKey(where, "it must be a number");
  SY_RETURN_IF_ERROR(CheckMagnitude(value.get<double>(), where));
  out = static_cast<float>(value.get<double>());
  return absl::OkStatus();
}

absl::StatusOr<LayerAmax> ReadLayer(const Json& value, const std::string& path) {
  SY_RETURN_IF_ERROR(CheckKeys(value, path, {"layer", "experts"}));
  const Json& number = value.at("layer");
  if (!number.is_number_unsigned() || number.get<std::uint64_t>() > kLayerMax) {
    return BadKey(absl::StrCat(path, ".layer"), "it must be the number of a layer");
  }
  LayerAmax layer;
  layer.layer = number.get<std::int32_t>();
  const Json& experts = value.at("experts");
  if (!experts.is_array()) return BadKey(absl::StrCat(path, ".experts"), "it must be a list");
  for (const Json& expert : experts) {
    const std::string at = absl::StrCat(path, ".experts[", layer.experts.size(), "]");
    SY_RETURN_IF_ERROR(CheckKeys(expert, at, {"gate_up", "down"}));
    ExpertAmax amax;
    SY_RETURN_IF_ERROR(ReadMagnitude(expert, "gate_up", at, amax.gate_up));
    SY_RETURN_IF_ERROR(ReadMagnitude(expert, "down", at, amax.down));
    layer.experts.push_back(amax);
  }
  return layer;
}

// The conditions of every table, read or to be written.
absl::Status CheckTable(const AmaxTable& table) {
  for (std::size_t i = 0; i < table.layers.size(); ++i) {
    const LayerAmax& layer = table.layers[i];
    const std::string path = absl::StrCat("layers (layer ", layer.layer, ")");
    if (layer.layer < 0 || layer.layer > kLayerMax)
      return BadKey(path, absl::StrCat("a layer is a number from 0 to ", kLayerMax));
    if (layer.experts.empty()) return BadKey(path, "it has no experts");
    if (i > 0 && table.layers[i - 1].layer >= layer.layer) {
      return BadKey(path, "it occurs twice, or is not in ascending order");
    }
    for (const ExpertAmax& expert : layer.experts) {
      SY_RETURN_IF_ERROR(CheckMagnitude(expert.gate_up, path));
      SY_RETURN_IF_ERROR(CheckMagnitude(expert.down, path));
    }
  }
  return absl::OkStatus();
}

absl::Status IoError(const std::string& path, absl::string_view call) {
  return MakeCheckpointIoError({.file = path, .tensor = "", .offset = std::nullopt}, call, errno);
}

// The recording behind the file may have taken hours, so it is on disk before the rename.
absl::Status WriteDurably(const FileDescriptor& file, const std::string& path,
                          absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t wrote = write(file.get(), bytes.data(), bytes.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return IoError(path, "write");
    bytes.remove_prefix(static_cast<std::size_t>(wrote));
  }
  if (fsync(file.get()) != 0) return IoError(path, "fsync");
  return absl::OkStatus();
}

}  // namespace

const LayerAmax* AmaxTable::Find(std::int32_t layer) const {
  const auto at = std::lower_bound(
      layers.begin(), layers.end(), layer,
      [](const LayerAmax& row, std::int32_t wanted) { return row.layer < wanted; });
  return at != layers.end() && at->layer == layer ? &*at : nullptr;
}

absl::StatusOr<AmaxTable> ParseAmax(absl::string_view json) {
  const absl::StatusOr<Json> tree = internal::ParseJsonTree(json, {.bytes_max = kBytesMax});
  if (!tree.ok()) return BadKey("$", tree.status().message());
  SY_RETURN_IF_ERROR(CheckKeys(*tree, "$", {kVersionKey, "layers"}));
  if (tree->at(kVersionKey) != 1) {
    return BadKey(kVersionKey, "only version 1 is supported; is the file from a newer release?");
  }
  const Json& layers = tree->at("layers");
  if (!layers.is_array()) return BadKey("layers", "it must be a list");
  AmaxTable table;
  for (const Json& layer : layers) {
    SY_ASSIGN_OR_RETURN(LayerAmax read,
                        ReadLayer(layer, absl::StrCat("layers[", table.layers.size(), "]")));
    table.layers.push_back(std::move(read));
  }
  std::sort(table.layers.begin(), table.layers.end(),
            [](const LayerAmax& a, const LayerAmax& b) { return a.layer < b.layer; });
  SY_RETURN_IF_ERROR(CheckTable(table));
  return table;
}

absl::StatusOr<std::string> AmaxJson(const AmaxTable& table) {
  SY_RETURN_IF_ERROR(CheckTable(table));
  nlohmann::ordered_json layers = nlohmann::ordered_json::array();
  for (const LayerAmax& layer : table.layers) {
    nlohmann::ordered_json experts = nlohmann::ordered_json::array();
    for (const ExpertAmax& expert : layer.experts) {
      // All digits of a double are written, so an FP32 number survives the round trip.
      experts.push_back({{"gate_up", static_cast<double>(expert.gate_up)},
                         {"down", static_cast<double>(expert.down)}});
    }
    layers.push_back({{"layer", layer.layer}, {"experts", std::move(experts)}});
  }
  const nlohmann::ordered_json file{{kVersionKey, 1}, {"layers", std::move(layers)}};
  return absl::StrCat(file.dump(1), "\n");
}

absl::StatusOr<AmaxTable> ReadAmaxFile(const std::string& path) {
  SY_ASSIGN_OR_RETURN(const FileDescriptor file, OpenRegularFile(path));
  SY_ASSIGN_OR_RETURN(const std::string text, ReadWhole(file, path, kBytesMax));
  absl::StatusOr<AmaxTable> table = ParseAmax(text);
  if (table.ok()) return table;
  return WithMetadata(Annotate(table.status(), path), "file", path);
}

AmaxFileWriter::AmaxFileWriter(std::string path, std::string partial, FileDescriptor file)
    : path_(std::move(path)), partial_(std::move(partial)), file_(std::move(file)) {}

AmaxFileWriter::~AmaxFileWriter() {
  if (!committed_) static_cast<void>(unlink(partial_.c_str()));
}

absl::StatusOr<std::unique_ptr<AmaxFileWriter>> AmaxFileWriter::Open(const std::string& path) {
  // rename would fail only at the end, after the work.
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    errno = EISDIR;
    return IoError(path, "create");
  }
  // In the same folder, because rename does not cross file systems.
  const std::string partial = absl::StrCat(path, ".partial");
  FileDescriptor file(open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file.valid()) return IoError(path, "create");
  return std::unique_ptr<AmaxFileWriter>(new AmaxFileWriter(path, partial, std::move(file)));
}

absl::Status AmaxFileWriter::Commit(const AmaxTable& table) {
  SY_ASSIGN_OR_RETURN(const std::string text, AmaxJson(table));
  SY_RETURN_IF_ERROR(WriteDurably(file_, partial_, text));
  if (std::rename(partial_.c_str(), path_.c_str()) != 0) return IoError(path_, "rename");
  committed_ = true;
  return absl::OkStatus();
}

absl::Status WriteAmaxFile(const std::string& path, const AmaxTable& table) {
  SY_ASSIGN_OR_RETURN(const auto file, AmaxFileWriter::Open(path));
  return file->Commit(table);
}

}  // namespace switchyard
