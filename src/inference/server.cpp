#include "src/inference/server.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "src/core/require.hpp"
#include "src/inference/decision.hpp"

namespace lockstep {

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

/// Returns the time as a double, for an all-reduce. It is never rounded down.
double time_of(Picoseconds time) {
    return std::nextafter(static_cast<double>(time), kNever);
}

double reduced(Device& device, Communicator& ranks, double own, Reduction reduction) {
    const MemoryScope scope(device, MemoryCategory::workspace);
    const Tensor number = device.upload(HostTensor::of<double>({1}, std::vector{own}));
    ranks.all_reduce(number, reduction).wait();
    return device.download(number).at(0);
}

/// Requests that come at their arrival times.
class TimedArrivals : public Arrivals {
  public:
    TimedArrivals(Device& device, const ServiceRanks& ranks,
                  std::span<const Request> requests)
        : device_(device), ranks_(ranks), left_(requests) {
        require(std::ranges::is_sorted(requests, {}, &Request::arrival),
                "the requests are not in the order of their arrivals");
        require(ranks.others == nullptr || device.has_numbers(),
                "ranks with their own requests must tell each other when they have work; "
                "this needs a run with numbers");
    }

    // lesson: serve-arrivals
    bool go_on(bool has_work) override {
        double due = kNever;
        if (has_work)
            due = 0;
        else if (!left_.empty())
            due = time_of(left_.front().arrival);
        if (ranks_.others)
            due = reduced(device_, *ranks_.others, due, Reduction::minimum);
        if (due == kNever) return false;
        device_.sleep_until(static_cast<Picoseconds>(due));
        return true;
    }
    std::vector<Arrived> take_in(Batcher& batcher) override {
        std::vector<Arrived> taken;
        for (auto count = come(); count > 0; --count) {
            const Request& request = left_.front();
            batcher.add(request);
            taken.push_back({request.id, request.arrival});
            left_ = left_.subspan(1);
        }
        return taken;
    }
    // lesson: end
    bool serves_others() const override { return ranks_.others != nullptr; }

  private:
    /// Returns how many more requests have come, by the clock of rank 0 of `ranks_.same`.
    std::int32_t come() {
        const auto later =
            std::ranges::upper_bound(left_, device_.now(), {}, &Request::arrival);
        const auto own = static_cast<std::int32_t>(later - left_.begin());
        return ranks_.same ? told_by_first(device_, *ranks_.same, own) : own;
    }

    Device& device_;
    ServiceRanks ranks_;
    std::span<const Request> left_;
};

/// Notes when requests arrived and when they had tokens.
class ServiceLog {
  public:
    void came(const std::vector<Arrived>& requests) {
        for (const Arrived& arrived : requests)
            under_way_[arrived.id] = {arrived.arrival, arrived.first};
    }
    void had_token(std::int64_t request, Picoseconds now) {
        UnderWay& times = under_way_.at(request);
        times.first = times.first.value_or(now);
        times.last = now;
    }
    void ended(std::vector<Answer> answers) {
        for (Answer& answer : answers) {
            const auto times = under_way_.extract(answer.id).mapped();
            const Picoseconds first = times.first.value_or(0);
            served_.push_back(
                {std::move(answer), times.arrival, first, std::max(first, times.last)});
        }
    }
    std::vector<Served> take() { return std::move(served_); }

  private:
    struct UnderWay {
        Picoseconds arrival = 0;
        std::optional<Picoseconds> first;
        Picoseconds last = 0;
    };
    std::map<std::int64_t, UnderWay> under_way_;
    std::vector<Served> served_;
};

}  // namespace

std::vector<Served> serve(Device& device, Arrivals& arrivals, Batcher& batcher,
                          const ComputePass& compute) {
    require(batcher.idle() && batcher.answers().empty(),
            "serve() got a batcher that still has other requests or answers; it must "
            "have none");
    ServiceLog log;
    while (arrivals.go_on(!batcher.idle())) {
        log.came(arrivals.take_in(batcher));
        const bool idle = batcher.idle();
        const Pass pass = batcher.next();
        const std::vector<Wanted> wanted = batcher.wanted();
        require(idle || !pass.ids.empty(),
                "no sequence can continue: other sequences have the pool's pages");
        const bool computes = !pass.ids.empty() || arrivals.serves_others();
        batcher.take(computes ? compute(pass, wanted) : std::vector<std::int32_t>());
        for (const Wanted& row : wanted)
            log.had_token(row.request, device.now());
        log.ended(batcher.answers());
    }
    return log.take();
}

std::vector<Served> serve(Device& device, const ServiceRanks& ranks, Batcher& batcher,
                          const std::vector<Request>& requests,
                          const ComputePass& compute) {
    TimedArrivals arrivals(device, ranks, requests);
    return serve(device, arrivals, batcher, compute);
}

}  // namespace lockstep
