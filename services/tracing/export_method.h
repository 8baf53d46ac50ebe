// The call of OTLP/gRPC that takes spans.
#pragma once

namespace switchyard {

inline constexpr char kExportMethod[] =
    "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

}  // namespace switchyard
