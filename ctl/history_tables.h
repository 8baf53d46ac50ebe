// The output of 'syctl get' for what the coordinator keeps of the past, and for sessions: one line
// for each entry. Pure; thread-safe.
//
// `width` is the terminal's width in characters; 0: no limit.
#pragma once

#include <cstddef>
#include <string>

#include "switchyard/v1/coordinator.pb.h"

namespace switchyard::ctl {

std::string RevisionsTable(const v1::ListRevisionsResponse& list, std::size_t width);

std::string EventsTable(const v1::ListEventsResponse& list, std::size_t width);
// One line, for a list that goes on.
std::string EventLine(const v1::Event& event);
std::string SessionsTable(const v1::ListSessionsResponse& list);

}  // namespace switchyard::ctl
