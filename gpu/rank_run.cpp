#include "gpu/rank_run.hpp"

#include <algorithm>

namespace lockstep::gpu {

RankRun::RankRun(int index, bool trace, const DeviceOptions& options, NcclFamily& family,
                 const std::vector<std::string>& host_names, OperationLog& calls,
                 const HostFactory& make_host)
    : rank(index),
      sync(options.sync),
      nccl(family),
      hosts(host_names),
      log(calls),
      spans(trace),
      monitor(index, sync, spans, family.watch()),
      device(index, monitor, {options.tf32, options.sync, [this] { while_waiting(); }}),
      host_monitor(index, spans, family.watch()),
      handle(std::make_shared<RankRun*>(this)),
      copies(*this) {
    monitor.attach(device.stream(), copies);
    if (!make_host) return;
    host = make_host(index, host_monitor, pinned);
    host->set_host(*host);
    device.set_host(*host);
}

RankRun::~RankRun() {
    *handle = nullptr;
    // Work that a failed program left on its streams was aborted, or ends without help.
    const auto end = [](const LaunchQueue& queue) {
        if (!queue.in_flight.empty()) cudaStreamSynchronize(queue.stream.get());
    };
    std::ranges::for_each(channels, end);
    std::ranges::for_each(copies.queues(), end);
    channels.clear();
}

void RankRun::finish() {
    spans.end_computing();
    const auto wait = [this](LaunchQueue& queue) {
        for (Pause pause; !queue.in_flight.empty(); pause()) {
            queue.let_go_of_finished();
            while_waiting();
        }
    };
    std::ranges::for_each(channels, wait);
    std::ranges::for_each(copies.queues(), wait);
    device.synchronize();
    for (Channel& channel : channels)
        channel.own = NcclHandle();
}

}  // namespace lockstep::gpu
