// Implementation of quant_layout.h: one decoder for each arrangement of codes in memory. For
// quant_layout.cc only; everybody else calls QuantLayoutInfo::decoder.
//
// Each is a RowDecoder::decode. Pure; thread-safe. Cost: about a nanosecond for each weight.
#pragma once

#include <cstdint>

#include "model/quant/layout/raw_projection.h"

namespace switchyard::internal {

void DecodeBf16(const RawProjection& raw, std::int64_t n, float* out);
void DecodeE4m3(const RawProjection& raw, std::int64_t n, float* out);
// One two's complement integer in each byte; INT4 too, which FindValueFault checks for its range.
void DecodeInt8(const RawProjection& raw, std::int64_t n, float* out);
// Two values of a row in each byte, even k in the low nibble.
void DecodeE2m1Pairs(const RawProjection& raw, std::int64_t n, float* out);
void DecodeInt4Pairs(const RawProjection& raw, std::int64_t n, float* out);
// Two rows in each byte, the even one in the low nibble.
void DecodeInt4RowPairs(const RawProjection& raw, std::int64_t n, float* out);
// Nibble i of word j of a row is k = 8j + i; the code is the nibble less 8.
void DecodeInt4Words(const RawProjection& raw, std::int64_t n, float* out);
// [K, N/8]: nibble i of word j of a line is row 8j + {0, 2, 4, 6, 1, 3, 5, 7}[i]; the code is the
// nibble less the zero point that lies at the same place of the group's line.
void DecodeAwqWords(const RawProjection& raw, std::int64_t n, float* out);

}  // namespace switchyard::internal
