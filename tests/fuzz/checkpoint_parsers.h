// The parsers of what a stranger's checkpoint holds, behind one function that a fuzzer or a replay
// of its corpus can call.
#pragma once

#include "absl/strings/string_view.h"

namespace switchyard::fuzz {

// The first byte of `input` picks the parser, the rest is for it:
//
//   'h' two bytes: size of the data, little endian; header of a safetensors file
//   'i' index of shards
//   'c' config.json
//   's' text that names a model
//
// Any other first byte, and an input that is too short, does nothing. Ends the process when what a
// parser accepted breaks one of its promises.
void ParseCheckpointPart(absl::string_view input);

}  // namespace switchyard::fuzz
