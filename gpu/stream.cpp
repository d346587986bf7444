#include "gpu/stream.hpp"

#include <chrono>
#include <thread>

#include "gpu/check.hpp"

namespace lockstep::gpu {

Event::Event(Timing timing) {
    GPU_CHECK(cudaEventCreateWithFlags(
        &event_, timing == Timing::on ? cudaEventDefault : cudaEventDisableTiming));
}

Event::~Event() {
    if (event_ != nullptr) cudaEventDestroy(event_);
}

bool Event::done() const {
    const cudaError_t result = cudaEventQuery(event_);
    if (result == cudaErrorNotReady) return false;
    check(result, "cudaEventQuery", __FILE__, __LINE__);
    return true;
}

void Pause::operator()() {
    constexpr int kBusy = 2000;
    if (++asked_ < kBusy)
        std::this_thread::yield();
    else
        std::this_thread::sleep_for(std::chrono::microseconds(50));
}

Stream::Stream(Priority priority) {
    int least = 0;
    int greatest = 0;
    GPU_CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    GPU_CHECK(
        cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking,
                                     priority == Priority::urgent ? greatest : least));
}

Stream::~Stream() {
    cudaStreamDestroy(stream_);
}

void Stream::wait(const Event& event) {
    GPU_CHECK(cudaStreamWaitEvent(stream_, event.get(), 0));
}

void Stream::record(const Event& event) {
    GPU_CHECK(cudaEventRecord(event.get(), stream_));
}

void Stream::wait_for(const Stream& other) {
    GPU_CHECK(cudaEventRecord(other.reached_.get(), other.stream_));
    wait(other.reached_);
}

}  // namespace lockstep::gpu
