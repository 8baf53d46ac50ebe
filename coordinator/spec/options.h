// Times and limits of a coordinator. The defaults are the product's; tests and the simulation set
// shorter times.
#pragma once

#include <chrono>
#include <cstddef>

#include "coordinator/spec/dispatch_defaults.h"
#include "core/base/clock.h"
#include "core/trace_settings.h"

namespace switchyard {

struct CoordinatorOptions {
  // A worker that sends nothing for this long counts as dead. A property of the worker and not of a
  // deployment, because one worker serves many deployments.
  Duration lease_ttl = std::chrono::seconds(2);
  // A worker whose stream ended counts as dead after this long without a new one. A live worker
  // connects again within 100 ms, and then nothing has to change. For a killed one this is the
  // delay before the re-plan (its sources see the death at once, in the data plane). A new
  // incarnation ends the grace at once.
  Duration stream_grace = std::chrono::milliseconds(300);
  // A stream without Register is closed after this long, so that it cannot hold one of max_streams.
  Duration register_timeout = std::chrono::seconds(5);
  // Workers that join a serving deployment within this time share one new epoch. Each join starts
  // it again, up to join_settle_most after the first.
  Duration join_settle = std::chrono::milliseconds(100);
  Duration join_settle_most = std::chrono::seconds(1);
  // When more than a third of a deployment's workers, and at least two, are lost, it is planned
  // again only after this long without a further loss: a rack or a network that fails takes several
  // moments, and moving a large part of the experts costs more than waiting for their workers.
  Duration mass_loss_hold = std::chrono::seconds(5);
  // A worker that comes back within this time gets the experts that it had, as far as its share
  // allows.
  Duration former_share_kept = std::chrono::minutes(10);
  // A PREPARE that is not answered in this time counts as refused. Long, because staging reads
  // weights from disk.
  Duration prepare_timeout = std::chrono::minutes(10);
  // The same for COMMIT. Short, because activating an epoch loads and allocates nothing.
  Duration commit_timeout = std::chrono::seconds(10);
  // While a worker of the serving epoch is lost, steps on an older epoch that is still retiring
  // have this long to end: no plan can replace the serving one before.
  Duration urgent_retire = std::chrono::seconds(5);
  // A worker whose data thread makes no turn for so long, although its heartbeats come, is stuck,
  // and plans do without it. An idle data thread turns ten times a second.
  Duration stuck_thread = std::chrono::seconds(10);
  // The same for a batch that does not end, which shows a device that hangs. Batches are bounded by
  // rows, so that a healthy device needs far less.
  Duration stuck_batch = std::chrono::minutes(1);
  // The same for an epoch that the worker still holds after the time of urgent_retire is over: the
  // worker ends the bindings by itself then.
  Duration stuck_retire = std::chrono::seconds(10);
  // Plans use such a worker again after its work has moved for so long.
  Duration stuck_recovery = std::chrono::seconds(10);
  // How long after a failed dial a worker is dialed again.
  Duration dial_again = std::chrono::seconds(2);
  // Sources dial a coordinator that restarts again within this time. Until then it retires no epoch
  // that it did not make itself: they would not know the one that replaces it. More than the
  // longest delays between dials (worker/source/plan_watch.cc, services/grpc/grpc_constants.h), and
  // less than workers that leave wait for.
  Duration sources_return = std::chrono::seconds(12);
  // A RETIRE that is not answered in this time becomes urgent. Far longer than the steps of healthy
  // sessions, whose deadlines it waits for.
  Duration retire_patience = std::chrono::hours(1);
  // Delay after a failed change: the first doubles with each failure, up to the last.
  Duration retry_first = std::chrono::milliseconds(250);
  Duration retry_last = std::chrono::seconds(5);
  // A coordinator makes workers release the epochs of deployments that it does not know after this
  // long: until then an operator may apply the deployment again, whose sessions may be running.
  Duration unclaimed_kept = std::chrono::minutes(10);
  // How long a worker that failed two changes in a row is left out of plans, if the others are at
  // least `min_workers`: the first time doubles with each failure, up to the last.
  Duration quarantine_first = std::chrono::seconds(5);
  Duration quarantine_last = std::chrono::minutes(1);
  // A session without a watch is forgotten after this long. Far longer than a source needs to
  // connect again.
  Duration session_linger = std::chrono::minutes(1);

  // Bounds on what clients can make the coordinator hold.
  std::size_t max_streams = 1024;
  // Refused ones are not among them. As many of those are kept, and the oldest go first.
  std::size_t max_deployments = 64;
  // Each deployment keeps its newest ones, and besides the one that serves.
  std::size_t revisions_kept = 10;
  std::size_t journal_entries = 1024;
  std::size_t max_sessions = 4096;  // and as many watches

  // Workers are told when they register, sources when they open a session.
  TraceSettings tracing = {};

  // Stored with each deployment when it is applied.
  DispatchDefaults dispatch = {};
};

}  // namespace switchyard
