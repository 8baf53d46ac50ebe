// What the fuzzers run: one function for each kind of file or message that a stranger may have
// written. Each gives
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
//   register            messages (messages.h) of workers         services/convert/control.h,
//                                                                coordinator/coordinator.h
//   attach              messages of sources: attach, bind,       services/convert/attach.h,
//                       release                                  worker/expert/expert_engine.h
//   frames              frames of two sessions                   worker/transport/inbox.h,
//                                                                worker/expert/expert_engine.h
//   inbox               a ring's kind, then doorbells and pieces worker/transport/inbox.h
//   ring_offer          offers of rings                          worker/transport/ring_geometry.h,
//                                                                worker/transport/ring_exchange.h,
//                                                                worker/transport/ucx/address.h
//   forward             steps of a gateway's caller              services/convert/step.h,
//                                                                worker/source/step_validation.h,
//                                                                worker/routing/chunk_plan.h
//   forward_stream      messages of a gateway's caller           services/worker/forward_stream.h
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
void FuzzRegister(absl::string_view input);
void FuzzAttach(absl::string_view input);
void FuzzFrames(absl::string_view input);
void FuzzInbox(absl::string_view input);
void FuzzRingOffer(absl::string_view input);
void FuzzForward(absl::string_view input);
void FuzzForwardStream(absl::string_view input);

}  // namespace switchyard::fuzz
