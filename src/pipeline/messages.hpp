#pragma once

#include "src/pipeline/timer.hpp"

namespace lockstep {

/// The schedule with a send and a receive for all data that crosses stages, in one order
/// that all stages agree on: that in which the data is made if instructions take
/// `times`. Each send stands right behind what makes its data, each receive where its
/// stage's program is by then: where messages take no time and durations are as planned,
/// they meet without waiting. Else a message may wait for another, but no two stages ever
/// wait for each other's messages, even with one queue a device for everything. Throws
/// UsageError if the schedule has a problem, or messages already.
Schedule with_messages(const Schedule& schedule, const ScheduleTimes& times = {});

/// With each send right behind what makes its data, and each receive right
/// before what needs it: the first thing that one would write. If two
/// neighbours send to each other first, it deadlocks, as 1F1B does with two
/// stages and micro-batches or more. Throws as with_messages() does.
Schedule with_messages_in_place(const Schedule& schedule);

/// The same, with messages that stand side by side in groups. So 1F1B sends an activation
/// forward and receives a gradient back in one group, as Megatron-LM and
/// torch.distributed.pipelining have it, and does not deadlock. Throws as with_messages()
/// does.
Schedule with_grouped_messages(const Schedule& schedule);

}  // namespace lockstep
