#pragma once

#include <utility>

#include <cuda_runtime.h>

namespace lockstep::gpu {

/// A CUDA event. An event without timing can only be waited for, and costs less.
class Event {
  public:
    enum class Timing : bool { off, on };

    explicit Event(Timing timing = Timing::off);
    ~Event();
    Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
    Event& operator=(Event&& other) noexcept {
        std::swap(event_, other.event_);
        return *this;
    }

    cudaEvent_t get() const { return event_; }
    bool done() const;

  private:
    cudaEvent_t event_ = nullptr;
};

/// The pause between two polls of the GPU. The first polls follow each other at once, for
/// waits of microseconds; later polls sleep a little, to leave the core to others.
class Pause {
  public:
    void operator()();

  private:
    int asked_ = 0;
};

/// A CUDA stream: its work runs in order, and concurrently with other streams. When a
/// full GPU has room again, it first starts blocks of kernels from urgent streams. So a
/// collective need not wait for a whole wave of a matrix product.
class Stream {
  public:
    enum class Priority : bool { usual, urgent };

    explicit Stream(Priority priority = Priority::usual);
    ~Stream();
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;

    cudaStream_t get() const { return stream_; }

    /// Work that is added later begins after `event`, which must be recorded already.
    void wait(const Event& event);
    void record(const Event& event);
    /// Work that is added later begins after all current work of `other`.
    void wait_for(const Stream& other);

  private:
    cudaStream_t stream_ = nullptr;
    Event reached_;  ///< for wait_for of others
};

}  // namespace lockstep::gpu
