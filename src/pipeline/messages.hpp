#pragma once

#include "src/pipeline/timer.hpp"

namespace lockstep {

/// Returns the schedule with a send and a receive for all data that crosses stages. All
/// stages use one order: the order in which the data is made if instructions take
/// `times`. Each send is right behind the instruction that makes its data. Its receive is
/// at the place that the other stage has reached, as planned, when the data is made. If
/// durations are as planned and messages take no time, send and receive meet without
/// waiting. Otherwise a message may wait for another message, but two stages never wait
/// for each other's messages, even if a device has one queue for everything. Throws
/// UsageError if the schedule has a problem, or has messages already.
Schedule with_messages(const Schedule& schedule, const ScheduleTimes& times = {});

/// Returns the schedule with each send right behind the instruction that makes its data,
/// and each receive right before the instruction that needs the data. This is the order
/// that most people try first. It deadlocks if two neighbours both send first, as in 1F1B
/// with at least two stages and two micro-batches. Throws as with_messages() does.
Schedule with_messages_in_place(const Schedule& schedule);

/// Like with_messages_in_place(), but adjacent messages form groups. So 1F1B sends an
/// activation forward and receives a gradient back in one group, as in Megatron-LM and
/// torch.distributed.pipelining, and does not deadlock. Throws as with_messages() does.
Schedule with_grouped_messages(const Schedule& schedule);

}  // namespace lockstep
