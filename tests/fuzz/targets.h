// What the fuzzers run: one function a kind of file that a stranger may have written. Each gives
// the input to its reader and ends the process when the reader breaks a promise of its header. Any
// bytes are an input; no state; thread-safe. Cost: that of the reader.
//
//   fuzzer              input                                    reader
//   safetensors_header  bytes of the data (2, little-endian),
//   model/safetensors/safetensors_header.h
//                       then the header's JSON
//   safetensors_index   model.safetensors.index.json model/safetensors/safetensors_index.h
//   model_config        config.json                              model/model_config.h,
//                                                                model/experts/moe_outline.h
//   quant_config        a letter, then the file that it names:   model/quant/config/quant_config.h,
//                       c config.json, h hf_quant_config.json,   model/quant/config/layer_quant.h
//                       d quant_model_description.json, a all
//                       three, parted by 0x1e
//   tensor_values       layout, projection, rows (a byte each), model/quant/layout/tensor_values.h,
//                       then the bytes of its tensors, repeated  model/quant/layout/scale_range.h
//   names               a letter, then s the text of a model     model/model_spec.h,
//                       spec, p an entry and a module's name,    model/quant/config/name_patterns.h
//                       parted by a line feed
//
// A fuzzer's corpus is the folder of its name under corpus/.
#pragma once

#include "absl/strings/string_view.h"

namespace switchyard::fuzz {

void FuzzSafetensorsHeader(absl::string_view input);
void FuzzSafetensorsIndex(absl::string_view input);
void FuzzModelConfig(absl::string_view input);
void FuzzQuantConfig(absl::string_view input);
void FuzzTensorValues(absl::string_view input);
void FuzzNames(absl::string_view input);

}  // namespace switchyard::fuzz
