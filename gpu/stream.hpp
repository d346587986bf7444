#pragma once

#include <utility>

#include <cuda_runtime.h>

namespace lockstep::gpu {

/// A CUDA event. Events that are only waited for keep no time and cost less.
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

/// How long a loop that asks the GPU again and again lies still between two questions:
/// not at all at first, for what takes microseconds; then a little, to leave the core to
/// others.
class Pause {
  public:
    void operator()();

  private:
    int asked_ = 0;
};

/// A CUDA stream: what is put in runs in order, beside other streams. If a GPU is full,
/// blocks of kernels in an urgent stream are the next that it begins: those of a
/// collective need not wait for a whole wave of a product's.
class Stream {
  public:
    enum class Priority : bool { usual, urgent };

    explicit Stream(Priority priority = Priority::usual);
    ~Stream();
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;

    cudaStream_t get() const { return stream_; }

    /// What is put in later begins once the event, recorded before, has happened.
    void wait(const Event& event);
    void record(const Event& event);
    /// What is put in later begins once all that `other` holds now is done.
    void wait_for(const Stream& other);

  private:
    cudaStream_t stream_ = nullptr;
    Event reached_;  ///< for wait_for of others
};

}  // namespace lockstep::gpu
