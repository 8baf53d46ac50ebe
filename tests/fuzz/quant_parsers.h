// The readers of what a stranger's checkpoint says about its quantisation, behind one function that
// a fuzzer or a replay of its corpus can call.
#pragma once

#include "absl/strings/string_view.h"

namespace switchyard::fuzz {

// The first byte of `input` picks the reader, the rest is for it:
//
//   'c' config.json
//   'h' hf_quant_config.json
//   'd' quant_model_description.json
//   'p' a list's entry, a line break and the name of a module
//
// Any other first byte does nothing. What was accepted is applied to two layers, one of them a
// draft, and to the sizes of their experts. Ends the process when a promise is broken.
void ParseQuantPart(absl::string_view input);

}  // namespace switchyard::fuzz
