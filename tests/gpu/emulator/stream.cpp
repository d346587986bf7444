#include "tests/gpu/emulator/stream.hpp"

#include <algorithm>
#include <atomic>
#include <map>
#include <thread>

#include "tests/gpu/emulator/handles.hpp"
#include "tests/gpu/emulator/runtime.hpp"

namespace emulated {

namespace {

using Streams = Handles<cudaStream_t, Stream>;

std::uint64_t next_number() {
    static std::atomic<std::uint64_t> streams = 0;
    return ++streams;
}

class NullStreams {
  public:
    std::shared_ptr<Stream> stream_of(int device) {
        const std::lock_guard lock(mutex_);
        std::shared_ptr<Stream>& stream = streams_[device];
        if (!stream)
            stream = std::make_shared<Stream>(device, Stream::Order::with_null_stream);
        return stream;
    }

  private:
    std::mutex mutex_;
    std::map<int, std::shared_ptr<Stream>> streams_;
};

void wait_for_stream(const std::shared_ptr<Stream>& stream,
                     const std::shared_ptr<Stream>& other) {
    if (!other->idle()) stream->wait_for(other->mark());
}

/// Applies CUDA's order of null stream and other streams to the next operation.
void order(const std::shared_ptr<Stream>& stream) {
    const std::shared_ptr<Stream> null_stream =
        immortal<NullStreams>().stream_of(stream->device());
    if (stream == null_stream) {
        for (const std::shared_ptr<Stream>& other : immortal<Streams>().all())
            if (other->device() == stream->device() &&
                other->order() == Stream::Order::with_null_stream)
                wait_for_stream(stream, other);
    } else if (stream->order() == Stream::Order::with_null_stream) {
        wait_for_stream(stream, null_stream);
    }
}

}  // namespace

void Point::reach() {
    const std::lock_guard lock(mutex_);
    reached_ = true;
    time_ = std::chrono::steady_clock::now();
    changed_.notify_all();
}

bool Point::reached() const {
    const std::lock_guard lock(mutex_);
    return reached_;
}

void Point::wait() const {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return reached_; });
}

std::chrono::steady_clock::time_point Point::time() const {
    const std::lock_guard lock(mutex_);
    return time_;
}

Stream::Stream(int device, Order order)
    : number_(next_number()),
      device_(device),
      order_(order),
      shaker_(settings().seed + 1000 * number_) {}

void Stream::put(std::function<void()> operation) {
    const std::lock_guard lock(mutex_);
    push(std::move(operation));
}

void Stream::push(std::function<void()> operation) {
    queue_.push_back(std::move(operation));
    if (!started_) std::thread([self = shared_from_this()] { self->serve(); }).detach();
    started_ = true;
    changed_.notify_all();
}

std::shared_ptr<Point> Stream::mark() {
    const std::lock_guard lock(mutex_);
    ++before_[number_];
    auto point = std::make_shared<Point>(number_, before_);
    push([point] { point->reach(); });
    return point;
}

void Stream::wait_for(const std::shared_ptr<Point>& point) {
    const std::lock_guard lock(mutex_);
    for (const auto& [stream, points] : point->before())
        before_[stream] = std::max(before_[stream], points);
    push([point] { point->wait(); });
}

bool Stream::is_behind(const Point& point) const {
    const std::lock_guard lock(mutex_);
    const auto known = before_.find(point.stream());
    return known != before_.end() && known->second >= point.number();
}

bool Stream::idle() const {
    const std::lock_guard lock(mutex_);
    return queue_.empty() && !busy_;
}

void Stream::wait() const {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return queue_.empty() && !busy_; });
}

void Stream::close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_all();
}

void Stream::serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [this] { return !queue_.empty() || closed_; });
        if (queue_.empty()) return;
        std::function<void()> operation = std::move(queue_.front());
        queue_.pop_front();
        busy_ = true;
        lock.unlock();
        delay_now_and_then(shaker_, 64);
        operation();
        operation = nullptr;  // destroys all it owns before it counts as done
        lock.lock();
        busy_ = false;
        if (queue_.empty()) changed_.notify_all();
    }
}

cudaStream_t add_stream(std::shared_ptr<Stream> stream) {
    return immortal<Streams>().add(std::move(stream));
}

std::shared_ptr<Stream> find_stream(cudaStream_t handle) {
    if (handle == nullptr) return immortal<NullStreams>().stream_of(current_device());
    return immortal<Streams>().find(handle);
}

std::shared_ptr<Stream> remove_stream(cudaStream_t handle) {
    return immortal<Streams>().remove(handle);
}

void put(const std::shared_ptr<Stream>& stream, std::function<void()> operation) {
    order(stream);
    stream->put(std::move(operation));
}

std::shared_ptr<Point> mark(const std::shared_ptr<Stream>& stream) {
    order(stream);
    return stream->mark();
}

void wait_for(const std::shared_ptr<Stream>& stream,
              const std::shared_ptr<Point>& point) {
    order(stream);
    stream->wait_for(point);
}

void wait_for_device(int device) {
    for (const std::shared_ptr<Stream>& stream : immortal<Streams>().all())
        if (stream->device() == device) stream->wait();
    immortal<NullStreams>().stream_of(device)->wait();
}

}  // namespace emulated
