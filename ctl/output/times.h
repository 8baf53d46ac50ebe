// Times and quantiles as tables show them. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "core/base/histogram.h"

namespace switchyard::ctl {

// For example "85us", "1.2ms" or "3.0s".
std::string SecondsText(double seconds);
// As QuantileOf (core/base/histogram.h): "" where nothing was counted, ">10.0s" above all bounds.
// `is_time`: the bounds are seconds.
std::string QuantileText(std::span<const double> bounds, std::span<const std::uint64_t> buckets,
                         bool is_time, double quantile);
// The quantile of times in seconds, likewise NaN and infinity.
double QuantileOf(const HistogramCounts& times, double quantile);
std::string QuantileText(const HistogramCounts& times, double quantile);

}  // namespace switchyard::ctl
