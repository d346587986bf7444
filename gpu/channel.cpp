#include "gpu/channel.hpp"

#include <utility>

#include "gpu/rank_run.hpp"
#include "src/core/require.hpp"

namespace lockstep::gpu {

LaunchedWork::LaunchedWork(RunHandle run, std::int64_t number,
                           std::span<CommOperation> operations)
    : run_(std::move(run)), number_(number) {
    for (CommOperation& operation : operations)
        for (Tensor* buffer : {&operation.output, &operation.input})
            buffers_.push_back(std::move(*buffer));
}

LaunchedWork::LaunchedWork(RunHandle run, const Tensor& destination, const Tensor& source)
    : run_(std::move(run)), buffers_{destination, source} {}

void LaunchedWork::wait(SourceLine at) {
    require(*run_ != nullptr, at,
            "wait() was called after the run that launched this work had ended");
    RankRun& run = **run_;
    run.naming([&] { return during("wait", at); }, [&] { wait_in(run, at); });
}

void LaunchedWork::wait_in(RankRun& run, SourceLine at) {
    run.nccl.check();
    if (number_) run.log.waited(*number_, at);
    TraceEvent label;
    label.rank = run.rank;
    Stream& stream = run.device.stream();
    const std::size_t span =
        run.spans.open(Spans::Kind::waiting, std::move(label), stream);
    stream.wait(end);
    run.spans.close(span, stream);
    if (!number_ || run.sync)
        for (Pause pause; !done(); pause())
            run.while_waiting();
    // From now on the device frees or overwrites the buffers only after the event.
    buffers_.clear();
}

std::size_t LaunchedWork::wait_any(std::span<PendingWork* const> works, SourceLine at) {
    require(*run_ != nullptr, at,
            "wait_any() was called after the run that launched these works had ended");
    RankRun& run = **run_;
    const auto doing = [&] { return during("wait_any", at); };
    return run.naming(doing, [&] {
        for (Pause pause;; pause()) {
            run.while_waiting();
            for (std::size_t i = 0; i < works.size(); ++i)
                if (static_cast<LaunchedWork*>(works[i])->done()) {
                    works[i]->wait(at);
                    return i;
                }
        }
    });
}

Work LaunchQueue::launched(const boost::intrusive_ptr<LaunchedWork>& work) {
    stream.record(work->end);
    in_flight.push_back(work);
    return Work(work.get());
}

void LaunchQueue::let_go_of_finished() {
    while (!in_flight.empty() && in_flight.front()->done())
        in_flight.pop_front();
}

}  // namespace lockstep::gpu
