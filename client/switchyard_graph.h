/* Switchyard's C interface for engines whose forward pass is a CUDA graph: steps that are recorded
 * in the graph, and made whenever it runs.
 *
 *   sy_graph_open, { sy_graph_add }* while a stream is being captured,
 *   { sy_graph_begin_launch, cudaGraphLaunch, sy_graph_end_launch ... sy_wait }*, sy_graph_close
 *
 * For collective sessions of expert parallelism (switchyard_worker.h), where every rank of the
 * group is an engine with a worker. All ranks record the same steps, each with the same number of
 * tokens at all of them (pad), and launch their graphs equally often and in the same order. A rank
 * that does otherwise, or does not come within the session's step deadline, is an error on all
 * ranks: sy_wait of the launch, or the next call, says so, the session forms its group anew, and
 * graphs are recorded again.
 *
 * Steps beside launches. All ranks submit them, in any session of the same workers, in the same
 * order among their launches. Open such sessions with `in_step`: otherwise a source that is a
 * millisecond late takes part without tokens, and its own step comes after the next launch. In
 * step, a step has at most as many tokens as the group takes at once. A call whose turn has not
 * come is SY_RESOURCE_EXHAUSTED. Do not wait for a p2p step between launches: a launch that waits
 * for another rank holds the GPU, which that step may need.
 *
 * A graph is of the plan of when it was opened, and goes on to run on it though a newer plan
 * serves, while that plan's workers are there. sy_graph_state says when it is out of date: then all
 * ranks open and record graphs again, between the same two launches and soon, and close the old
 * ones. Open graphs keep the experts of their plan in memory, beside what --weight-bytes-max
 * counts.
 *
 * Codes, SY_INIT and the rules of handles are those of switchyard.h; sy_last_error of the client
 * gives details. Calls of one session may come from several threads, one launch at a time. */
#pragma once

#include "client/switchyard.h"

/* NOLINTBEGIN(modernize-use-using,readability-identifier-naming): C's own names, no `using`. */

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sy_graph sy_graph;
typedef enum sy_graph_condition {
  SY_GRAPH_CURRENT = 0,     /* of the plan that serves now */
  SY_GRAPH_OUT_OF_DATE = 1, /* a newer plan serves: record again */
  SY_GRAPH_GONE = 2         /* cannot be launched any more */
} sy_graph_condition;

/* Sets *out to NULL on error. SY_FAILED_PRECONDITION: a rank of the group is not an engine with a
 * worker; SY_RESOURCE_EXHAUSTED: 256 graphs are open in the session. */
SY_EXPORT sy_code sy_graph_open(sy_session* session, sy_graph** out);

/* Records a step in the graph that `request->stream` is being captured into: some kernels, no
 * events. x, ids, weights and y are device memory that stays where it is; work that follows on the
 * stream reads the whole y. deadline_ms and y_on_stream do not count. At most as many tokens as the
 * group takes at once, and 1,024 steps. SY_FAILED_PRECONDITION: the stream is not being captured,
 * another plan serves by now, or the graph was launched; as sy_submit otherwise. Ids that are wrong
 * are reported by sy_wait of the launch. */
SY_EXPORT sy_code sy_graph_add(sy_graph* graph, const sy_step_request* request);

/* Has `stream` wait for the steps that this worker has begun. Then launch the graph there, at once:
 * no other step of this worker begins before sy_graph_end_launch, and after the session's step
 * deadline the group ends. SY_RESOURCE_EXHAUSTED, with nothing changed: 16 steps and launches, or
 * launches of 1,024 steps, have not been waited for; other ranks have begun a step that this engine
 * has to submit first; or the device has no room. SY_FAILED_PRECONDITION: a launch has not been
 * ended, or the group has ended. */
SY_EXPORT sy_code sy_graph_begin_launch(sy_graph* graph, void* stream);

/* The graph is in `stream`. sy_wait of *out, some launches later, says whether it gave results. */
SY_EXPORT sy_code sy_graph_end_launch(sy_graph* graph, void* stream, sy_step** out);

/* Sets *condition to a sy_graph_condition. */
SY_EXPORT sy_code sy_graph_state(sy_graph* graph, uint32_t* condition);

/* No launch of it runs. Ends the handle, unless a launch has not been ended
 * (SY_FAILED_PRECONDITION). */
SY_EXPORT sy_code sy_graph_close(sy_graph* graph);

#ifdef __cplusplus
}
#endif

/* NOLINTEND(modernize-use-using,readability-identifier-naming) */
