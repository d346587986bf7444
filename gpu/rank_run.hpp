#pragma once

#include <deque>
#include <string>
#include <vector>

#include "gpu/device.hpp"
#include "gpu/measured_device.hpp"
#include "gpu/spans.hpp"
#include "gpu/watch.hpp"
#include "src/comm/operation_log.hpp"
#include "src/cost/traffic.hpp"

namespace lockstep::gpu {

/// What a rank's device and communicators share while its program runs.
struct RankRun {
    RankRun(int index, bool trace, bool tf32, const Watch& watched,
            const std::vector<std::string>& host_names, OperationLog& calls)
        : rank(index),
          watch(watched),
          hosts(host_names),
          log(calls),
          spans(trace),
          monitor(index, spans, watch),
          device(index, monitor, {tf32, [this] { watch.check(); }}) {
        monitor.attach(device.stream());
    }

    bool same_node(int a, int b) const {
        return hosts[static_cast<std::size_t>(a)] == hosts[static_cast<std::size_t>(b)];
    }

    int rank;
    Watch watch;
    const std::vector<std::string>& hosts;  ///< by rank
    OperationLog& log;
    Spans spans;
    MeasuredDevice monitor;
    Device device;

    /// What the rank exchanged over each of its communicators, in the order of their
    /// making; a communicator may be gone before the run is over.
    struct Counts {
        std::string group;
        TrafficByVerb counts{};
    };
    std::deque<Counts> traffic;
};

}  // namespace lockstep::gpu
