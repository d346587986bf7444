#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "lessons/book/laboratory_runs.hpp"
#include "lessons/page/quote.hpp"
#include "sim/cluster.hpp"
#include "src/comm/chunks.hpp"
#include "src/parallel/ring_collectives.hpp"
#include "src/report/write_diagnosis.hpp"

namespace lockstep::lessons {

namespace {

constexpr int kLeastDevices = 2;
constexpr int kMostDevices = 6;

// The page shows a chunk's first number. For device d's chunk c it is (c + 1) 10^d, so
// the digits of a sum show whose contributions it has. The other numbers are counters:
// number 1 + n c + d is 1 in device d's chunk c, and the rest are 0. In a sum, this
// number says how often device d's chunk c was added.
constexpr std::int64_t kNumbersOfChunk = 64;
static_assert(1 + kMostDevices * kMostDevices <= kNumbersOfChunk);

/// Returns the index of the number in chunk `at` that counts device d's chunk c.
std::int64_t count_of(int n, int at, int c, int d) {
    return at * kNumbersOfChunk + 1 + std::int64_t{n} * c + d;
}

/// How the program differs from the correct one.
struct Change {
    static constexpr int kNone = -1;
    static constexpr int kAll = -2;
    int no_wait = kNone;   ///< the step whose wait is missing, or kAll
    bool in_group = true;  ///< send and receive are in one group

    bool waits(int step) const { return no_wait != kAll && no_wait != step; }
};

/// Returns chunk `index` of the buffer, modulo n.
Tensor chunk_at(const Tensor& buffer, int n, int index) {
    const Chunk part = chunk(buffer.elements(), n, (index % n + n) % n);
    return buffer.slice(part.begin, part.count);
}

// lesson: ring-laboratory
/// Starts a step: sends one chunk to the right, and receives one from the left.
Work exchange(Communicator& ring, const Tensor& going, const Tensor& coming,
              bool in_group) {
    const int right = (ring.rank() + 1) % ring.size();
    const int left = (ring.rank() + ring.size() - 1) % ring.size();
    if (in_group) return ring.group().send(going, right).recv(coming, left).start();
    ring.send(going, right).wait();
    return ring.recv(coming, left);
}

void changed_all_reduce(Device& device, Communicator& ring, const Tensor& buffer,
                        const Change& change) {
    const int n = ring.size();
    const int me = ring.rank();
    const Tensor arriving = device.zeros({buffer.elements() / n}, buffer.dtype());

    // Reduce-scatter
    for (int step = 0; step < n - 1; ++step) {
        const Tensor going = chunk_at(buffer, n, me - 1 - step);
        const Tensor mine = chunk_at(buffer, n, me - 2 - step);
        Work moving = exchange(ring, going, arriving, change.in_group);
        if (change.waits(step)) moving.wait();
        device.add(mine, arriving);
    }
    // All-gather
    for (int step = n - 1; step < 2 * (n - 1); ++step) {
        const Tensor going = chunk_at(buffer, n, me - 1 - step);
        const Tensor coming = chunk_at(buffer, n, me - 2 - step);
        Work moving = exchange(ring, going, coming, change.in_group);
        if (change.waits(step)) moving.wait();
    }
}
// lesson: end

/// Calls `look` with the first operation of each launch, then starts the launch.
class WatchedRing final : public Communicator {
  public:
    using Look = std::function<void(const CommOperation& first)>;
    WatchedRing(Device& device, Communicator& ring, Look look)
        : Communicator(device, ring.name(), ring.rank(), ring.size()),
          ring_(ring),
          look_(std::move(look)) {}

  private:
    Work do_launch(std::span<CommOperation> operations, SourceLine at) override {
        look_(operations.front());
        if (operations.size() == 1) return ring_.start(operations.front());
        Group together = ring_.group(at);
        for (const CommOperation& operation : operations)
            together.add(operation);
        return together.start(at);
    }
    std::unique_ptr<Communicator> do_split(const SplitRequest& request,
                                           SourceLine at) override {
        return ring_.split(request, at);
    }
    BytesByVerb do_bytes_sent(SourceLine at) const override {
        return ring_.bytes_sent(at);
    }

    Communicator& ring_;
    Look look_;
};

HostTensor numbers_at_first(int device, int n) {
    HostTensor buffer({n * kNumbersOfChunk}, DType::f32);
    double power = 1;
    for (int d = 0; d < device; ++d)
        power *= 10;
    for (int c = 0; c < n; ++c) {
        buffer.set(c * kNumbersOfChunk, (c + 1) * power);
        buffer.set(count_of(n, c, c, device), 1);
    }
    return buffer;
}

using AllReduce =
    std::function<void(Device& device, Communicator& ring, const Tensor& buffer)>;

/// Keeps a device's buffer before the first step as "0", after it as "1", and so on. The
/// series "going" has the chunk that each step sends.
void watched_program(Rank& rank, const AllReduce& all_reduce) {
    Device& device = rank.device();
    const Tensor buffer = device.upload(numbers_at_first(rank.index(), rank.size()));
    int step = 0;
    const auto keep = [&] { rank.keep(std::to_string(step++), buffer); };
    WatchedRing ring(device, rank.world(), [&](const CommOperation& first) {
        if (first.verb != Verb::send) return;
        const std::int64_t bytes = first.input.offset_bytes() - buffer.offset_bytes();
        const std::int64_t going = bytes / first.bytes();
        rank.keep_value("going", static_cast<double>(going));
        keep();
    });
    all_reduce(device, ring, buffer);
    keep();
}

/// A run; it may have ended with a mistake.
struct RingRun {
    RunReport report;
    Json fault;  ///< the mistake's class, if there is one
};

/// Returns the part of a diagnosis that the page shows.
Json fault_json(const Diagnosis& diagnosis) {
    const Json whole = Json::parse(diagnosis_json(diagnosis));
    Json shown = Json::object();
    for (const char* name : {"fault", "title", "sentence", "cause", "waits"})
        shown[name] = whole.at(name);
    Json lines = Json::array();
    for (const Diagnosis::Party& party : diagnosis.parties)
        lines.push_back(party.at.line);
    shown["lines"] = std::move(lines);
    return shown;
}

sim::ClusterOptions ring_options(int n, sim::CheckLevel check) {
    sim::ClusterOptions options;
    options.ranks = n;
    options.spec = load_cluster("classroom");
    options.check = check;
    return options;
}

/// Runs with cheap checking, which does not find races.
RingRun run_watched(int n, const AllReduce& all_reduce) {
    sim::ClusterOptions options = ring_options(n, sim::CheckLevel::cheap);
    options.trace = true;
    try {
        return {sim::make_cluster(options)->run(
                    [&](Rank& rank) { watched_program(rank, all_reduce); }),
                nullptr};
    } catch (const FaultError& error) {
        return {*error.report(), error.diagnosis().fault};
    }
}

/// Returns the diagnosis of full checking. Does not keep the buffer, because that would
/// be one more read.
Json checked(int n, const AllReduce& all_reduce) {
    try {
        sim::make_cluster(ring_options(n, sim::CheckLevel::full))->run([&](Rank& rank) {
            all_reduce(rank.device(), rank.world(),
                       rank.device().upload(numbers_at_first(rank.index(), rank.size())));
        });
        return nullptr;
    } catch (const FaultError& error) {
        return fault_json(error.diagnosis());
    }
}

/// Returns a chunk as [value, {"c": "counts"}]. Digit d of the counts says how often the
/// chunk contains device d's chunk c.
Json chunk_json(const HostTensor& buffer, int n, int index) {
    Json made_of = Json::object();
    for (int c = 0; c < n; ++c) {
        std::string counts;
        for (int d = 0; d < n; ++d)
            counts += std::to_string(std::lround(buffer.at(count_of(n, index, c, d))));
        if (counts != std::string(static_cast<std::size_t>(n), '0'))
            made_of[std::to_string(c)] = counts;
    }
    return {buffer.at(index * kNumbersOfChunk), made_of};
}

/// Returns the chunks that have changed since the previous step, as [device, chunk,
/// value, made of]; all chunks for the first step.
Json changes_json(const RunReport& report, int step) {
    Json changes = Json::array();
    const auto n = static_cast<int>(report.ranks.size());
    for (int device = 0; device < n; ++device) {
        const auto& kept = report.ranks[static_cast<std::size_t>(device)].kept;
        for (int c = 0; c < n; ++c) {
            const Json now = chunk_json(kept.at(std::to_string(step)), n, c);
            if (step > 0 &&
                chunk_json(kept.at(std::to_string(step - 1)), n, c).dump() == now.dump())
                continue;
            changes.push_back({device, c, now.elements()[0], now.elements()[1]});
        }
    }
    return changes;
}

/// Returns the additions of a step that began before their chunk had arrived, as [device,
/// began, arrived], both in picoseconds.
Json early_json(const RunReport& report, int step) {
    Json early = Json::array();
    for (int device = 0; device < static_cast<int>(report.ranks.size()); ++device) {
        std::vector<Picoseconds> began, arrived;
        for (const TraceEvent& event : report.trace)
            if (event.rank == device && event.name == "add") began.push_back(event.start);
        for (const TraceFlow& flow : report.flows)
            if (flow.destination_rank == device) arrived.push_back(flow.end);
        const auto i = static_cast<std::size_t>(step);
        if (i < began.size() && i < arrived.size() && began[i] < arrived[i])
            early.push_back({device, began[i], arrived[i]});
    }
    return early;
}

/// Returns the bytes that each device has sent in its first `messages` messages.
Json bytes_json(const RunReport& report, int messages) {
    Json bytes = Json::array();
    for (int device = 0; device < static_cast<int>(report.ranks.size()); ++device) {
        std::int64_t sent = 0;
        int count = 0;
        for (const TraceFlow& flow : report.flows)
            if (flow.source_rank == device && count++ < messages) sent += flow.bytes;
        bytes.push_back(sent);
    }
    return bytes;
}

/// Returns the steps, from 1, that every device has completed.
Json steps_json(const RunReport& report) {
    Json steps = Json::array();
    for (int step = 1;; ++step) {
        Json going = Json::array();
        for (const RankReport& rank : report.ranks) {
            if (!rank.kept.contains(std::to_string(step))) return steps;
            going.push_back(static_cast<int>(rank.series.at("going")[step - 1]));
        }
        steps.push_back({{"going", going},
                         {"bytes", bytes_json(report, step)},
                         {"early", early_json(report, step - 1)},
                         {"changes", changes_json(report, step)}});
    }
}

Json ring_run_json(const std::string& name, int n, const AllReduce& all_reduce) {
    const RingRun run = run_watched(n, all_reduce);
    return {{"name", name},
            {"steps", steps_json(run.report)},
            {"cheap", run.fault},
            {"fault", checked(n, all_reduce)}};
}

AllReduce all_reduce_with(const Change& change) {
    return [change](Device& device, Communicator& ring, const Tensor& buffer) {
        changed_all_reduce(device, ring, buffer, change);
    };
}

Json ring_json(int n) {
    Json runs = Json::array();
    runs.push_back(ring_run_json("right", n, ring_all_reduce));
    for (int step = 0; step < 2 * (n - 1); ++step)
        runs.push_back(ring_run_json(std::to_string(step + 1), n,
                                     all_reduce_with({.no_wait = step})));
    runs.push_back(ring_run_json("all", n, all_reduce_with({.no_wait = Change::kAll})));
    runs.push_back(ring_run_json("group", n, all_reduce_with({.in_group = false})));
    const RunReport right = run_watched(n, ring_all_reduce).report;
    return {{"devices", n},
            {"bytes", n * kNumbersOfChunk * bytes_of(DType::f32)},
            {"first", changes_json(right, 0)},
            {"runs", std::move(runs)}};
}

}  // namespace

Json ring_runs() {
    const Quote& program = find_quote("ring-laboratory");
    Json rings = Json::array();
    for (int n = kLeastDevices; n <= kMostDevices; ++n)
        rings.push_back(ring_json(n));
    return {{"program",
             {{"file", program.file}, {"line", program.line}, {"code", program.code}}},
            {"rings", std::move(rings)}};
}

}  // namespace lockstep::lessons
