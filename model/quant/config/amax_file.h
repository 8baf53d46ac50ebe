// The result of calibration: the largest magnitude that entered each projection of each expert.
//
//   {"switchyard_amax": 1,
//    "layers": [{"layer": 0, "experts": [{"gate_up": 3.25, "down": 0.9}, ...]}]}
//
// `gate_up` is max |x| over the rows that an expert received, `down` over the values that its gate
// and up computed from them; 0: the expert received no row. Experts are in the order of their ids.
// The format is this project's own. Pure, except for the calls that name a file; thread-safe. Cost:
// some 100 ns for each expert.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "model/io/file_descriptor.h"

namespace switchyard {

struct ExpertAmax {
  float gate_up = 0;
  float down = 0;

  friend bool operator==(const ExpertAmax&, const ExpertAmax&) = default;
};

struct LayerAmax {
  std::int32_t layer = 0;
  std::vector<ExpertAmax> experts;

  friend bool operator==(const LayerAmax&, const LayerAmax&) = default;
};

struct AmaxTable {
  std::vector<LayerAmax> layers;  // ascending by layer, each once

  // nullptr when the layer has no row.
  [[nodiscard]] const LayerAmax* Find(std::int32_t layer) const;
  friend bool operator==(const AmaxTable&, const AmaxTable&) = default;
};

// The layers may stand in any order.
// Errors: kInvalidArgument (BAD_CONFIG), metadata {key}: not JSON, above 16 MiB, another version, a
// key that is unknown or missing, a layer twice, no experts, a magnitude that is negative or that
// FP32 cannot hold.
absl::StatusOr<AmaxTable> ParseAmax(absl::string_view json);
// Numbers are written so that ParseAmax gives back the same bits.
// Errors: kInvalidArgument (BAD_CONFIG): a table that ParseAmax would refuse.
absl::StatusOr<std::string> AmaxJson(const AmaxTable& table);

// Errors: those of ParseAmax with metadata {file}; (CHECKPOINT) IO_ERROR, NOT_A_REGULAR_FILE.
absl::StatusOr<AmaxTable> ReadAmaxFile(const std::string& path);
// A file for the result of long work. It is opened before the work, so that a path that cannot be
// written fails at once. Commit replaces the file as a whole: a reader sees the old one or the new
// one. Without Commit nothing remains.
class AmaxFileWriter {
 public:
  // Errors: (CHECKPOINT) IO_ERROR.
  static absl::StatusOr<std::unique_ptr<AmaxFileWriter>> Open(const std::string& path);
  AmaxFileWriter(const AmaxFileWriter&) = delete;
  AmaxFileWriter& operator=(const AmaxFileWriter&) = delete;
  ~AmaxFileWriter();

  // Once; durable on return. Errors: those of AmaxJson; (CHECKPOINT) IO_ERROR.
  absl::Status Commit(const AmaxTable& table);

 private:
  AmaxFileWriter(std::string path, std::string partial, FileDescriptor file);

  const std::string path_;
  const std::string partial_;
  const FileDescriptor file_;
  bool committed_ = false;
};
// Create and Commit in one call.
absl::Status WriteAmaxFile(const std::string& path, const AmaxTable& table);

}  // namespace switchyard
