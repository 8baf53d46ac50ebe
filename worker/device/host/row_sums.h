// A SumRun in host memory.
#pragma once

#include <cstddef>

#include "worker/device/host/row_ops.h"
#include "worker/device/stream.h"

namespace switchyard {

// Terms of a row are collected in an array on the stack; no model has more experts a token.
inline constexpr std::size_t kTermsMax = 64;

// REQUIRES: no row has more than kTermsMax terms. Allocates nothing.
void SumRows(const SumRun& run, const RowOps& ops);

}  // namespace switchyard
