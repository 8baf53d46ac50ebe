// Converts enums between core and the wire. A value on the wire is core's plus one, because zero
// means "not set". If an enum of core gains a value that the proto lacks, this header does not
// compile. Names of values are not compared; tests/services/convert does that.
//
// To add an enum: one WireEnum row here, and the values in the same order in both definitions. A
// row names the wire's enum (Proto), core's last value (kLast) and the wire's (kProtoMax). A table
// of numbers would allow two different orders, and a frame from an older peer would then be
// misread.
//
// Pure; thread-safe; a conversion is an addition.
#pragma once

#include <optional>

#include "core/dispatch_config.h"
#include "core/gdn_facts.h"
#include "core/resolve/dtype_option.h"
#include "core/resolve/dtype_order.h"
#include "core/session_messages.h"
#include "core/weight_manifest.h"
#include "core/work_times.h"
#include "switchyard/v1/metrics.pb.h"
#include "switchyard/v1/model.pb.h"
#include "switchyard/v1/types.pb.h"

namespace switchyard {

template <typename Core>
struct WireEnum;  // has Proto (the wire's enum), kLast (core's last value), kProtoMax (the wire's)

// One row for each enum that core and the wire share. kLast and kProtoMax let EnumToProto check at
// compile time that both sides have the same number of values.
template <>
struct WireEnum<DeviceKind> {
  using Proto = v1::DeviceKind;
  static constexpr DeviceKind kLast = kLastDeviceKind;
  static constexpr int kProtoMax = v1::DeviceKind_MAX;
};
template <>
struct WireEnum<Phase> {
  using Proto = v1::Phase;
  static constexpr Phase kLast = Phase::kMixed;
  static constexpr int kProtoMax = v1::Phase_MAX;
};
template <>
struct WireEnum<DispatchMode> {
  using Proto = v1::DispatchMode;
  static constexpr DispatchMode kLast = DispatchMode::kLowLatency;
  static constexpr int kProtoMax = v1::DispatchMode_MAX;
};
template <>
struct WireEnum<DispatchDtype> {
  using Proto = v1::DispatchDtype;
  static constexpr DispatchDtype kLast = DispatchDtype::kNvfp4;
  static constexpr int kProtoMax = v1::DispatchDtype_MAX;
};
template <>
struct WireEnum<WorkKind> {
  using Proto = v1::WorkKind;
  static constexpr WorkKind kLast = WorkKind::kLockstep;
  static constexpr int kProtoMax = v1::WorkKind_MAX;
};
template <>
struct WireEnum<ScaleKind> {
  using Proto = v1::ScaleKind;
  static constexpr ScaleKind kLast = ScaleKind::kE4m3;
  static constexpr int kProtoMax = v1::ScaleKind_MAX;
};
template <>
struct WireEnum<GdnVerifyKernel> {
  using Proto = v1::GdnVerifyKernel;
  static constexpr GdnVerifyKernel kLast = GdnVerifyKernel::kFlashinfer;
  static constexpr int kProtoMax = v1::GdnVerifyKernel_MAX;
};
template <>
struct WireEnum<OutputDtype> {
  using Proto = v1::OutputDtype;
  static constexpr OutputDtype kLast = OutputDtype::kF32;
  static constexpr int kProtoMax = v1::OutputDtype_MAX;
};
template <>
struct WireEnum<QuantScheme> {
  using Proto = v1::QuantScheme;
  static constexpr QuantScheme kLast = kLastQuantScheme;
  static constexpr int kProtoMax = v1::QuantScheme_MAX;
};
template <>
struct WireEnum<DtypeChoice> {
  using Proto = v1::DtypeChoice;
  static constexpr DtypeChoice kLast = DtypeChoice::kNvfp4;
  static constexpr int kProtoMax = v1::DtypeChoice_MAX;
};
template <>
struct WireEnum<RunnerBackend> {
  using Proto = v1::MoeRunnerBackend;
  static constexpr RunnerBackend kLast = RunnerBackend::kHumming;
  static constexpr int kProtoMax = v1::MoeRunnerBackend_MAX;
};
template <>
struct WireEnum<BindingChoice> {
  using Proto = v1::BindingChoice;
  static constexpr BindingChoice kLast = BindingChoice::kCollective;
  static constexpr int kProtoMax = v1::BindingChoice_MAX;
};
template <>
struct WireEnum<TransportChoice> {
  using Proto = v1::TransportChoice;
  static constexpr TransportChoice kLast = TransportChoice::kInProcess;
  static constexpr int kProtoMax = v1::TransportChoice_MAX;
};
template <>
struct WireEnum<Projection> {
  using Proto = v1::Projection;
  static constexpr Projection kLast = Projection::kDown;
  static constexpr int kProtoMax = v1::Projection_MAX;
};

// Converts to the wire; every value of core has one.
template <typename Core>
constexpr typename WireEnum<Core>::Proto EnumToProto(Core value) {
  // Fails to compile when one of the two enums has grown.
  static_assert(static_cast<int>(WireEnum<Core>::kLast) + 1 == WireEnum<Core>::kProtoMax);
  return static_cast<typename WireEnum<Core>::Proto>(static_cast<int>(value) + 1);
}

// nullopt for "not set" and for values of a later version.
template <typename Core>
constexpr std::optional<Core> EnumFromProto(typename WireEnum<Core>::Proto value) {
  // proto3 keeps numbers that this version does not know, so the range must be checked here.
  const int number = static_cast<int>(value);
  if (number < 1 || number > WireEnum<Core>::kProtoMax) return std::nullopt;
  // In range, hence a value of Core: both enums are dense.
  return static_cast<Core>(number - 1);
}

}  // namespace switchyard
