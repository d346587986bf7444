#include "gpu/host.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "gpu/check.hpp"
#include "gpu/rank_run.hpp"
#include "src/core/units.hpp"

namespace lockstep::gpu {

PinnedPool::~PinnedPool() {
    for (const auto& [data, block] : blocks_)
        cudaFreeHost(data);
}

std::byte* PinnedPool::allocate(std::int64_t bytes) {
    for (auto& [data, block] : blocks_)
        if (!block.is_used && block.bytes == bytes) {
            block.is_used = true;
            return data;
        }
    void* memory = nullptr;
    const cudaError_t result = cudaMallocHost(&memory, static_cast<std::size_t>(bytes));
    if (result == cudaErrorMemoryAllocation) {
        cudaGetLastError();  // clears the error, so that no later launch reports it
        throw GpuError(
            fmt::format("the host cannot pin another {} of memory", bytes_text(bytes)));
    }
    check(result, "cudaMallocHost", __FILE__, __LINE__);
    auto* const data = static_cast<std::byte*>(memory);
    blocks_.emplace(data, Block{bytes, true});
    return data;
}

void PinnedPool::free(std::byte* data) noexcept {
    blocks_.find(data)->second.is_used = false;
}

TraceEvent MeasuredHost::label(const char* name, const char* kind, SourceLine at) const {
    return {.rank = rank_,
            .queue = "host",
            .name = name,
            .kind = kind,
            .micro_batch = phases_.empty() ? -1 : phases_.back().label.micro_batch,
            .at = at};
}

void MeasuredHost::execute(const DeviceOperation& operation,
                           FunctionRef<void()> numbers) {
    watch_.progress();
    TraceEvent event = label(operation.name, "operation", operation.at);
    event.bytes = operation.bytes;
    const Spans::HostTime start = Spans::host_now();
    numbers();
    counts_.compute += spans_.on_host(std::move(event), start);
    counts_.flops += operation.flops;
    watch_.progress();
}

void MeasuredHost::copy(CopyDirection direction, const Tensor& tensor, SourceLine at,
                        FunctionRef<void()> move) {
    const bool to_host = direction == CopyDirection::to_host;
    TraceEvent event = label(to_host ? "to host" : "to device", "copy", at);
    event.bytes = tensor.bytes();
    const Spans::HostTime start = Spans::host_now();
    move();
    spans_.on_host(std::move(event), start);
}

void MeasuredHost::allocated(const Storage& storage) {
    ledger_.add(storage.category, storage.bytes);
}

void MeasuredHost::freed(const Storage& storage) noexcept {
    ledger_.remove(storage.category, storage.bytes);
}

void MeasuredHost::phase_began(Phase phase, int micro_batch, SourceLine at) {
    TraceEvent event = label(name_of(phase), "phase", at);
    event.micro_batch = micro_batch;
    phases_.push_back({std::move(event), Spans::host_now()});
}

void MeasuredHost::phase_ended() noexcept {
    OpenPhase ended = std::move(phases_.back());
    phases_.pop_back();
    try {
        spans_.on_host(std::move(ended.label), ended.start);
    } catch (const std::exception&) {
        // Ignored: the trace lacks this phase, but the run's result is right.
    }
}

void MeasuredHost::copied(CopyDirection direction, std::int64_t bytes) {
    (direction == CopyDirection::to_host ? counts_.bytes_to_host
                                         : counts_.bytes_to_device) += bytes;
}

HostReport MeasuredHost::report() const {
    HostReport report = counts_;
    report.memory = ledger_.report();
    return report;
}

Work HostCopies::start(CopyDirection direction, const Tensor& destination,
                       const Tensor& source, SourceLine at) {
    run_.nccl.watch().progress();
    const auto doing = [&] { return during("start_copy", at); };
    return run_.naming(doing, [&] { return launch(direction, destination, source, at); });
}

Work HostCopies::launch(CopyDirection direction, const Tensor& destination,
                        const Tensor& source, SourceLine at) {
    run_.nccl.check();
    const bool to_host = direction == CopyDirection::to_host;
    LaunchQueue& queue = queues_[static_cast<std::size_t>(direction)];
    queue.let_go_of_finished();
    run_.device.forget_indices(destination);

    // Memory that is not pinned must not change until the copy's end, and CUDA may block
    // the host until the stream reaches the copy. So the host waits here instead.
    const bool pinned = (to_host ? destination : source).storage()->pinned;
    if (!pinned) run_.device.synchronize();

    queue.stream.wait_for(run_.device.stream());
    TraceEvent label{.rank = run_.rank,
                     .queue = to_host ? "copy to host" : "copy to device",
                     .name = "copy",
                     .kind = "copy",
                     .micro_batch = run_.monitor.micro_batch(),
                     .bytes = source.bytes(),
                     .at = at};
    const std::size_t span =
        run_.spans.open(Spans::Kind::copy, std::move(label), queue.stream);
    if (source.elements() > 0)
        GPU_CHECK(
            cudaMemcpyAsync(destination.bytes_begin(), source.bytes_begin(),
                            static_cast<std::size_t>(source.bytes()),
                            to_host ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice,
                            queue.stream.get()));
    run_.spans.close(span, queue.stream);
    run_.host_monitor.copied(direction, source.bytes());

    Work work = queue.launched(new LaunchedWork(run_.handle, destination, source));
    if (!pinned) work.wait(at);
    return work;
}

}  // namespace lockstep::gpu
