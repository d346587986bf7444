#include "lessons/tools/stopwatch.hpp"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "src/core/units.hpp"

namespace lockstep::lessons {

namespace {

constexpr const char* kSeries = "seconds";
constexpr std::int64_t kElement = 2;  // bytes of bf16
constexpr int kTrials = 3;

}  // namespace

std::vector<Measurable> planned_measurements(int ranks, std::int64_t largest) {
    constexpr std::int64_t kLeastExtent = 64;
    constexpr std::int64_t kLeastCopied = 1 << 20, kLeastSent = 1 << 10;
    const std::int64_t matrix = largest * largest * kElement;
    std::vector<Measurable> plan;
    for (std::int64_t n = kLeastExtent; n <= largest; n *= 2)
        plan.emplace_back(MeasuredProduct{n, n, n, DType::bf16});
    for (std::int64_t bytes = kLeastCopied; bytes <= matrix; bytes *= 4)
        plan.emplace_back(MeasuredTraffic{2 * bytes});  // read and written
    if (ranks < 2) return plan;
    for (const Verb verb :
         {Verb::all_reduce, Verb::all_gather, Verb::reduce_scatter, Verb::all_to_all})
        for (std::int64_t bytes = kLeastSent; bytes <= matrix; bytes *= 4)
            if (const std::int64_t whole = bytes / (kElement * ranks); whole > 0)
                plan.emplace_back(
                    MeasuredCollective{verb, ranks, 0, whole * kElement * ranks});
    return plan;
}

namespace {

/// One device, and the buffers of its measurements.
class Stopwatch {
  public:
    explicit Stopwatch(Rank& rank)
        : rank_(rank), device_(rank.device()), one_(device_.zeros({1}, DType::bf16)) {}

    double seconds(const MeasuredProduct& it) {
        const Tensor a = random({it.rows, it.inner});
        const Tensor b = random({it.inner, it.columns});
        const Tensor c = device_.empty({it.rows, it.columns}, DType::bf16);
        return seconds_of(it.rows * it.inner * it.columns > kLargeProduct,
                          [&] { device_.matmul_into(c, a, b); });
    }
    double seconds(const MeasuredTraffic& it) {
        const Tensor source = random({it.bytes / (2 * kElement)});
        const Tensor destination = device_.empty(source.shape(), DType::bf16);
        return seconds_of(it.bytes > kLargeBuffer,
                          [&] { device_.copy(destination, source); });
    }
    double seconds(const MeasuredCollective& it) {
        Communicator& world = rank_.world();
        const std::int64_t whole = it.bytes / kElement;
        const Tensor large = random({whole});
        const Tensor other = device_.empty({whole}, DType::bf16);
        const Tensor share = random({whole / it.ranks});
        return seconds_of(it.bytes > kLargeBuffer, [&] {
            switch (it.verb) {
                case Verb::all_gather:
                    return world.all_gather(large, share).wait();
                case Verb::reduce_scatter:
                    return world.reduce_scatter(share, large).wait();
                case Verb::all_to_all:
                    return world.all_to_all(other, large).wait();
                default:
                    return world.all_reduce(other, large, Reduction::sum).wait();
            }
        });
    }

  private:
    static constexpr std::int64_t kLargeProduct = std::int64_t{1} << 36;
    static constexpr std::int64_t kLargeBuffer = 64 << 20;
    static constexpr Picoseconds kNanosecond = kSecond / 1'000'000'000;

    Tensor random(const Shape& shape) {
        Tensor values = device_.empty(shape, DType::bf16);
        device_.random_normal(values, {1, 0}, 0, 1e-3);
        return values;
    }
    /// Waits until the device is done, and returns the time.
    Picoseconds now() {
        (void)device_.download(one_);
        return device_.now();
    }
    /// All ranks repeat an action equally often, since they meet in it.
    template <typename Action>
    double seconds_of(bool large, const Action& action) {
        const int times = large ? 3 : 20;
        action();
        Picoseconds least_empty = std::numeric_limits<Picoseconds>::max();
        Picoseconds least = least_empty;
        for (int trial = 0; trial < kTrials; ++trial) {
            const Picoseconds begin = now();
            const Picoseconds ready = now();
            for (int i = 0; i < times; ++i)
                action();
            least = std::min(least, now() - ready);
            least_empty = std::min(least_empty, ready - begin);
        }
        // A time of 0 or less would be the clock's own noise.
        const Picoseconds each = std::max((least - least_empty) / times, kNanosecond);
        return lockstep::seconds(each);
    }

    Rank& rank_;
    Device& device_;
    Tensor one_;
};

}  // namespace

Program measuring(const std::vector<Measurable>& plan) {
    return [plan](Rank& rank) {
        Stopwatch stopwatch(rank);
        for (const Measurable& each : plan) {
            const double seconds =
                std::visit([&](const auto& it) { return stopwatch.seconds(it); }, each);
            if (rank.index() == 0) rank.keep_value(kSeries, seconds);
        }
    };
}

namespace {

const std::vector<double>& seconds_in(const RunReport& report) {
    return report.ranks.front().series.at(kSeries);
}

}  // namespace

std::vector<Measurement> measured(const std::vector<Measurable>& plan,
                                  const RunReport& report) {
    std::vector<Measurement> rows;
    for (std::size_t i = 0; i < plan.size(); ++i)
        std::visit(
            [&](const auto& it) {
                rows.push_back({it, seconds_in(report).at(i)});
            },
            plan[i]);
    return rows;
}

namespace {

std::string cells_of(const MeasuredCollective& it) {
    return fmt::format("{},{},{},{},,,,,", name_of(it.verb), it.ranks, it.nodes,
                       it.bytes);
}
std::string cells_of(const MeasuredProduct& it) {
    return fmt::format(",,,,{},{},{},{},", it.rows, it.inner, it.columns,
                       name_of(it.dtype));
}
std::string cells_of(const MeasuredTraffic& it) {
    return fmt::format(",,,,,,,,{}", it.bytes);
}

}  // namespace

std::string measured_csv(const std::vector<Measurable>& plan, const RunReport& report) {
    std::string text =
        "verb,ranks,nodes,bytes,rows,inner,columns,dtype,traffic_bytes,us\n";
    for (std::size_t i = 0; i < plan.size(); ++i)
        text +=
            fmt::format("{},{:.6g}\n",
                        std::visit([](const auto& it) { return cells_of(it); }, plan[i]),
                        seconds_in(report).at(i) * 1e6);
    return text;
}

}  // namespace lockstep::lessons
