// Makes spans of OpenTelemetry from what was written down about steps. Pure; thread-safe.
//
//   moe.step                          the source, or the gateway
//     moe.plan                        which rows go to which worker
//     moe.chunk                       a chunk of rows, from encoding to its answer
//       moe.dispatch                  encoding, until the frame is handed to the transport
//       moe.serve                     the worker, from the frame's arrival to its answer
//         moe.queue, moe.compute, moe.reply
//     moe.combine                     from the last answer until y is complete
//
// The time of a chunk beyond its dispatch and its serve was spent on the way. Names, ids and
// counts go into spans; addresses, cookies, keys and tensors do not.
#pragma once

#include <cstdint>

#include "core/base/clock.h"
#include "core/tracing/trace_record.h"
#include "switchyard/otlp/v1/trace.pb.h"

namespace switchyard {

// Appends the spans of `record`. `wall` is added to its times.
void AppendSpans(const TraceRecord& record, Duration wall, otlp::v1::ScopeSpans* out);

}  // namespace switchyard
