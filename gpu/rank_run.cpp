#include "gpu/rank_run.hpp"

namespace lockstep::gpu {

RankRun::RankRun(int index, bool trace, bool tf32, NcclFamily& family,
                 const std::vector<std::string>& host_names, OperationLog& calls)
    : rank(index),
      nccl(family),
      hosts(host_names),
      log(calls),
      spans(trace),
      monitor(index, spans, family.watch()),
      device(index, monitor, {tf32, [&family] { family.check(); }}),
      handle(std::make_shared<RankRun*>(this)) {
    monitor.attach(device.stream());
}

RankRun::~RankRun() {
    *handle = nullptr;
    // What a failed program left on its streams has been ended, or ends by itself.
    for (const Channel& channel : channels)
        if (!channel.in_flight.empty()) cudaStreamSynchronize(channel.stream.get());
    channels.clear();
}

void RankRun::finish() {
    for (Channel& channel : channels) {
        for (Pause pause; !channel.in_flight.empty(); pause()) {
            channel.let_go_of_finished();
            nccl.check();
        }
    }
    device.synchronize();
    for (Channel& channel : channels)
        channel.own = NcclHandle();
}

}  // namespace lockstep::gpu
