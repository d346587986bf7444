#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "tests/gpu/emulator/include/emulated_types.h"
#include "tests/gpu/emulator/settings.hpp"

namespace emulated {

/// By stream number: how many points of that stream come before a point or operation.
using Points = std::map<std::uint64_t, std::uint64_t>;

/// A point of a stream. It is reached when all operations put in before it have ended.
class Point {
  public:
    /// `before` counts the points before this point, and this point itself.
    Point(std::uint64_t stream, Points before)
        : stream_(stream), before_(std::move(before)) {}
    std::uint64_t stream() const { return stream_; }
    std::uint64_t number() const { return before_.at(stream_); }
    const Points& before() const { return before_; }

    void reach();
    bool reached() const;
    void wait() const;
    std::chrono::steady_clock::time_point time() const;

  private:
    const std::uint64_t stream_;
    const Points before_;
    mutable std::mutex mutex_;
    mutable std::condition_variable changed_;
    bool reached_ = false;
    std::chrono::steady_clock::time_point time_;
};

/// A queue whose operations run in order on their own thread. The thread starts with the
/// first operation, and ends when the stream is closed and empty.
class Stream : public std::enable_shared_from_this<Stream> {
  public:
    enum class Order : bool { alone, with_null_stream };

    Stream(int device, Order order);
    int device() const { return device_; }
    Order order() const { return order_; }

    void put(std::function<void()> operation);
    /// Returns a point after all operations that were put in so far.
    std::shared_ptr<Point> mark();
    /// Makes operations that are put in later wait until the point is reached.
    void wait_for(const std::shared_ptr<Point>& point);
    /// Returns whether, by the order of streams and events, an operation that is put in
    /// now must begin after the point.
    bool is_behind(const Point& point) const;
    bool idle() const;
    void wait() const;
    void close();

  private:
    void serve();
    void push(std::function<void()> operation);

    const std::uint64_t number_;
    const int device_;
    const Order order_;
    mutable std::mutex mutex_;
    mutable std::condition_variable changed_;
    std::deque<std::function<void()>> queue_;
    Points before_;  ///< points before the operation that is put in now
    bool started_ = false, busy_ = false, closed_ = false;
    Shaker shaker_;
};

cudaStream_t add_stream(std::shared_ptr<Stream> stream);
/// Returns a handle's stream; for nullptr the current device's null stream. Returns null
/// if there is no such stream.
std::shared_ptr<Stream> find_stream(cudaStream_t handle);
std::shared_ptr<Stream> remove_stream(cudaStream_t handle);

/// Puts in an operation, in CUDA's order of the null stream and other streams.
void put(const std::shared_ptr<Stream>& stream, std::function<void()> operation);
std::shared_ptr<Point> mark(const std::shared_ptr<Stream>& stream);
void wait_for(const std::shared_ptr<Stream>& stream, const std::shared_ptr<Point>& point);

void wait_for_device(int device);

}  // namespace emulated
