// A golden checkpoint with something wrong, for readers to refuse.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"

#include "tests/model/quant/golden_folder.h"
#include "tests/testing/safetensors_writer.h"

namespace switchyard::testing {

// The tensors of a golden checkpoint, for a test to spoil and write again.
class Spoiled {
 public:
  explicit Spoiled(const std::string& golden) : from_(absl::StrCat(SY_QUANT_GOLDENS "/", golden)) {
    const auto tensors = CheckpointTensors::Open(from_);
    SY_EXPECT_OK(tensors.status());
    for (const std::string& name : tensors->names()) {
      const TensorInfo* info = tensors->Find(name);
      std::string bytes(info->bytes, '\0');
      SY_EXPECT_OK(tensors->Read(name, std::as_writable_bytes(std::span(bytes))));
      tensors_.push_back({name, std::string(TensorDtypeName(info->dtype)), info->shape, bytes});
    }
  }

  WrittenTensor& at(absl::string_view name) {
    for (WrittenTensor& tensor : tensors_) {
      if (tensor.name == name) return tensor;
    }
    ADD_FAILURE() << "no tensor " << std::string(name);
    return tensors_.front();
  }
  void Add(WrittenTensor tensor) { tensors_.push_back(std::move(tensor)); }
  void Remove(absl::string_view name) {
    std::erase_if(tensors_, [&](const WrittenTensor& tensor) { return tensor.name == name; });
  }

  [[nodiscard]] absl::StatusOr<OpenedLayer> Open() const {
    for (const char* file :
         {"config.json", "hf_quant_config.json", "quant_model_description.json"}) {
      if (std::filesystem::exists(from_ + "/" + file)) {
        dir_.Write(file, ReadBytes(from_ + "/" + file));
      }
    }
    dir_.Write("model.safetensors", SafetensorsBytes(tensors_));
    return OpenLayer(dir_.path());
  }

 private:
  const TempDir dir_;
  std::string from_;
  std::vector<WrittenTensor> tensors_;
};

}  // namespace switchyard::testing
