#include <atomic>

#include "tests/gpu/emulator/handles.hpp"
#include "tests/gpu/emulator/include/cuda_runtime.h"
#include "tests/gpu/emulator/runtime.hpp"
#include "tests/gpu/emulator/stream.hpp"

using namespace emulated;

namespace {

/// An event marks the point at which it was last recorded.
struct Event {
    bool timing = true;
    int device = 0;
    std::mutex mutex;
    std::shared_ptr<Point> point;

    std::shared_ptr<Point> recorded() {
        const std::lock_guard lock(mutex);
        return point;
    }
};

Handles<cudaEvent_t, Event>& events() {
    return immortal<Handles<cudaEvent_t, Event>>();
}

}  // namespace

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
    return answer([&] {
        if (flags > cudaStreamNonBlocking) return cudaErrorInvalidValue;
        *stream = add_stream(std::make_shared<Stream>(
            current_device(), flags == cudaStreamNonBlocking
                                  ? Stream::Order::alone
                                  : Stream::Order::with_null_stream));
        return cudaSuccess;
    });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
    return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
    return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    return answer([&] {
        const std::shared_ptr<Stream> found = remove_stream(stream);
        if (!found) return cudaErrorInvalidResourceHandle;
        found->close();
        return cudaSuccess;
    });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    return answer([&] {
        const std::shared_ptr<Stream> found = find_stream(stream);
        if (!found) return cudaErrorInvalidResourceHandle;
        found->wait();
        return fault_of(found->device());
    });
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
    return answer([&] {
        const std::shared_ptr<Stream> found = find_stream(stream);
        if (!found) return cudaErrorInvalidResourceHandle;
        return found->idle() ? fault_of(found->device()) : cudaErrorNotReady;
    });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
    return answer([&] {
        const std::shared_ptr<Stream> waiting = find_stream(stream);
        const std::shared_ptr<Event> awaited = events().find(event);
        if (!waiting || !awaited) return cudaErrorInvalidResourceHandle;
        if (flags != 0) return cudaErrorInvalidValue;
        if (const auto point = awaited->recorded()) wait_for(waiting, point);
        return cudaSuccess;
    });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
    return answer([&] {
        const std::shared_ptr<Stream> found = find_stream(stream);
        if (!found) return cudaErrorInvalidResourceHandle;
        if (function == nullptr) return cudaErrorInvalidValue;
        put_work(found, [function, data] { function(data); });
        return cudaSuccess;
    });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
    return answer([&] {
        const bool interprocess = (flags & cudaEventInterprocess) != 0;
        const bool timing = (flags & cudaEventDisableTiming) == 0;
        if (flags > 7 || (interprocess && timing)) return cudaErrorInvalidValue;
        auto made = std::make_shared<Event>();
        made->timing = timing;
        made->device = current_device();
        *event = events().add(std::move(made));
        return cudaSuccess;
    });
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    return answer([&] {
        return events().remove(event) ? cudaSuccess : cudaErrorInvalidResourceHandle;
    });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    return answer([&] {
        const std::shared_ptr<Event> recorded = events().find(event);
        const std::shared_ptr<Stream> found = find_stream(stream);
        if (!recorded || !found || recorded->device != found->device())
            return cudaErrorInvalidResourceHandle;
        auto point = mark(found);
        const std::lock_guard lock(recorded->mutex);
        recorded->point = std::move(point);
        return cudaSuccess;
    });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    return answer([&] {
        const std::shared_ptr<Event> found = events().find(event);
        if (!found) return cudaErrorInvalidResourceHandle;
        const auto point = found->recorded();
        return !point || point->reached() ? fault_of(found->device) : cudaErrorNotReady;
    });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    return answer([&] {
        const std::shared_ptr<Event> found = events().find(event);
        if (!found) return cudaErrorInvalidResourceHandle;
        if (const auto point = found->recorded()) point->wait();
        return fault_of(found->device);
    });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start,
                                 cudaEvent_t end) {
    return answer([&] {
        const std::shared_ptr<Event> first = events().find(start);
        const std::shared_ptr<Event> last = events().find(end);
        if (!first || !last || !first->timing || !last->timing)
            return cudaErrorInvalidResourceHandle;
        const auto from = first->recorded(), to = last->recorded();
        if (!from || !to) return cudaErrorInvalidResourceHandle;
        if (!from->reached() || !to->reached()) return cudaErrorNotReady;
        *milliseconds =
            std::chrono::duration<float, std::milli>(to->time() - from->time()).count();
        return cudaSuccess;
    });
}
