#include <algorithm>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>

#include "sim/check/check.hpp"
#include "sim/check/origin.hpp"
#include "sim/check/tensors.hpp"
#include "sim/engine.hpp"
#include "sim/watcher.hpp"
#include "src/run/fault_text.hpp"

namespace lockstep::sim {

namespace {

/// F25: weights that are read in one version and then in another, or after they should
/// have been gathered again.
///
/// A version is what lies between two updates by an optimizer. Forward of a micro-batch
/// notes what it reads; backward of the same one must find no update since. What was
/// gathered from shards is stale in a forward once the rank's own shard has been updated.
/// Phases say which is which (PhaseScope); outside of them nothing is looked at. A copy
/// of the weights, or values written over them, is the program's own care.
class VersionWatcher final : public Watcher {
  public:
    explicit VersionWatcher(int ranks) : ranks_(static_cast<std::size_t>(ranks)) {}
    ~VersionWatcher() override;

    void launched(Launch& launch) override;
    void executing(int rank, const DeviceOperation& operation) override;
    void copied(int rank, CopyDirection direction, const Tensor& tensor,
                SourceLine at) override;
    void freed(int rank, const Storage& storage) noexcept override;
    void phase_began(int rank, Phase phase, int micro_batch) override;
    void phase_ended(int rank) noexcept override;

  private:
    /// A forward's reading of a part of a storage.
    struct Read {
        ByteRange range;
        std::uint64_t time = 0;
        std::uint64_t pass = 0;  ///< the forward that read
        SourceLine at;
    };
    struct Update {
        ByteRange range;
        std::uint64_t time = 0;
        const char* name = "";
        SourceLine at;
    };
    struct History;
    /// A part of a storage that holds the shards of several ranks.
    struct Gathered {
        ByteRange range;
        std::shared_ptr<const History> source;
        ByteRange shard;  ///< in the source
        bool in_place = false;
        std::uint64_t time = 0;
        SourceLine at;
    };
    /// The history of a storage.
    struct History {
        std::vector<Update> updates;  ///< the last of each range
        std::vector<Gathered> gathered;
        std::map<int, std::vector<Read>> reads;  ///< by micro-batch
        std::uint64_t written_in_pass = 0;

        const Update* updated(ByteRange range, std::uint64_t since) const;
    };
    struct OpenPhase {
        Phase phase;
        int micro_batch;
        std::uint64_t pass;
    };
    struct RankHistory {
        std::unordered_map<const Storage*, std::shared_ptr<History>> storages;
        std::vector<OpenPhase> phases;
        std::map<int, std::uint64_t> passes;  ///< the last forward of each micro-batch
        std::uint64_t time = 0;               ///< of updates and gathers
        std::uint64_t pass = 0;
    };

    RankHistory& of(int rank) { return ranks_[rank]; }
    static History& history_of(RankHistory& rank, const Tensor& tensor);
    void read_in_forward(int rank, const DeviceOperation& operation, const Tensor& read);
    void read_in_backward(int rank, const DeviceOperation& operation, const Tensor& read);
    void updated(int rank, const DeviceOperation& operation);
    void written(int rank, const Tensor& tensor);

    std::vector<RankHistory> ranks_;
};

bool is_backward(Phase phase) {
    return phase == Phase::backward || phase == Phase::backward_input ||
           phase == Phase::backward_weight;
}

std::string micro_batch_text(int micro_batch) {
    return micro_batch < 0 ? "" : fmt::format(" of micro-batch {}", micro_batch);
}

/// A rank's three steps that do not go together.
FaultError stale(std::string sentence, std::vector<Diagnosis::Party> steps) {
    Diagnosis diagnosis = diagnosis_of("F25");
    diagnosis.sentence = std::move(sentence);
    diagnosis.parties = std::move(steps);
    return FaultError(std::move(diagnosis));
}

const VersionWatcher::Update* VersionWatcher::History::updated(
    ByteRange range, std::uint64_t since) const {
    for (const Update& update : updates)
        if (update.time > since && update.range.overlaps(range)) return &update;
    return nullptr;
}

VersionWatcher::History& VersionWatcher::history_of(RankHistory& rank,
                                                    const Tensor& tensor) {
    std::shared_ptr<History>& history = rank.storages[tensor.storage()];
    if (!history) history = std::make_shared<History>();
    return *history;
}

VersionWatcher::~VersionWatcher() {
    for (RankHistory& rank : ranks_)
        for (auto& [storage, history] : rank.storages)
            history->gathered.clear();
}

void VersionWatcher::executing(int rank, const DeviceOperation& operation) {
    if (is_update(operation)) return updated(rank, operation);
    const RankHistory& mine = of(rank);
    const Phase phase = mine.phases.empty() ? Phase::none : mine.phases.back().phase;
    if (phase == Phase::forward)
        for (const Tensor* read : operation.reads)
            read_in_forward(rank, operation, *read);
    if (is_backward(phase))
        for (const Tensor* read : operation.reads)
            read_in_backward(rank, operation, *read);
    for (const Tensor* write : operation.writes)
        written(rank, *write);
}

void VersionWatcher::read_in_forward(int rank, const DeviceOperation& operation,
                                     const Tensor& read) {
    RankHistory& mine = of(rank);
    const OpenPhase& phase = mine.phases.back();
    History& history = history_of(mine, read);
    const ByteRange range = ByteRange::of(read);
    for (const Gathered& gathered : history.gathered) {
        if (!gathered.range.overlaps(range)) continue;
        if (gathered.in_place && gathered.shard.contains(range)) continue;
        const Update* const update =
            gathered.source->updated(gathered.shard, gathered.time);
        if (update == nullptr) continue;
        throw stale(
            fmt::format("rank {} reads stale weights in forward{}: {} at {} reads {}, "
                        "gathered at {}, but {} at {} has updated this rank's shard "
                        "since, and nothing gathered it again",
                        rank, micro_batch_text(phase.micro_batch), operation.name,
                        operation.at.text(), name_of(read), gathered.at.text(),
                        update->name, update->at.text()),
            {party({rank}, "all_gather", gathered.at),
             party({rank}, update->name, update->at),
             party({rank}, fmt::format("{} in forward", operation.name), operation.at)});
    }
    // Written since the forward began: an activation.
    if (history.written_in_pass == phase.pass) return;
    std::vector<Read>& reads = history.reads[phase.micro_batch];
    std::erase_if(reads, [&](const Read& past) { return past.pass != phase.pass; });
    const bool known = std::any_of(reads.begin(), reads.end(),
                                   [&](const Read& past) { return past.range == range; });
    if (!known) reads.push_back({range, mine.time, phase.pass, operation.at});
    // A program may number them on and on; the lowest are long over.
    constexpr std::size_t kMicroBatches = 1024;
    if (history.reads.size() > kMicroBatches) history.reads.erase(history.reads.begin());
}

void VersionWatcher::read_in_backward(int rank, const DeviceOperation& operation,
                                      const Tensor& read) {
    RankHistory& mine = of(rank);
    const auto found = mine.storages.find(read.storage());
    if (found == mine.storages.end() || found->second->updates.empty()) return;
    const History& history = *found->second;
    const int micro_batch = mine.phases.back().micro_batch;
    const auto reads = history.reads.find(micro_batch);
    const auto pass = mine.passes.find(micro_batch);
    if (reads == history.reads.end() || pass == mine.passes.end()) return;
    const ByteRange range = ByteRange::of(read);
    for (const Read& forward : reads->second) {
        if (forward.pass != pass->second || !forward.range.overlaps(range)) continue;
        const ByteRange both{std::max(forward.range.begin, range.begin),
                             std::min(forward.range.end, range.end)};
        const Update* const update = history.updated(both, forward.time);
        if (update == nullptr) continue;
        throw stale(
            fmt::format("rank {} uses two versions of {}{}: forward reads it at "
                        "{} ({} at {} has changed it since), but backward reads "
                        "the new one, in {} at {}",
                        rank, name_of(read),
                        micro_batch < 0 ? " for one batch"
                                        : fmt::format(" for micro-batch {}", micro_batch),
                        forward.at.text(), update->name, update->at.text(),
                        operation.name, operation.at.text()),
            {party({rank}, "read in forward", forward.at),
             party({rank}, update->name, update->at),
             party({rank}, fmt::format("{} in backward", operation.name), operation.at)});
    }
}

void VersionWatcher::updated(int rank, const DeviceOperation& operation) {
    RankHistory& mine = of(rank);
    const Tensor& parameter = parameter_of(operation);
    const ByteRange range = ByteRange::of(parameter);
    if (range.empty()) return;
    History& history = history_of(mine, parameter);
    // If the parameter is a gathered one, it is more than a copy of shards; its own shard
    // in place is what gathering again is for.
    std::erase_if(history.gathered, [&](const Gathered& gathered) {
        return gathered.range.overlaps(range) &&
               !(gathered.in_place && gathered.shard.contains(range));
    });
    const Update update{range, ++mine.time, operation.name, operation.at};
    const auto same =
        std::find_if(history.updates.begin(), history.updates.end(),
                     [&](const Update& past) { return past.range == range; });
    if (same == history.updates.end())
        history.updates.push_back(update);
    else
        *same = update;
}

/// By something else than an optimizer: what is there now has no version.
void VersionWatcher::written(int rank, const Tensor& tensor) {
    RankHistory& mine = of(rank);
    const bool in_forward =
        !mine.phases.empty() && mine.phases.back().phase == Phase::forward;
    const auto found = mine.storages.find(tensor.storage());
    if (found == mine.storages.end() && !in_forward) return;
    History& history =
        found == mine.storages.end() ? history_of(mine, tensor) : *found->second;
    if (in_forward) history.written_in_pass = mine.phases.back().pass;
    const ByteRange range = ByteRange::of(tensor);
    if (!history.updates.empty())
        std::erase_if(history.updates,
                      [&](const Update& past) { return past.range.overlaps(range); });
    if (!history.gathered.empty())
        std::erase_if(history.gathered,
                      [&](const Gathered& past) { return past.range.overlaps(range); });
}

void VersionWatcher::launched(Launch& launch) {
    for (const Posted& posted : launch.posted) {
        const CommOperation& operation = posted.operation;
        if (!operation.output) continue;
        const VerbFacts verb = facts_of(operation.verb);
        const bool gathers = verb.gathers() && verb.is_alike() &&
                             launch.team->size() > 1 && operation.count > 0;
        if (!gathers) {
            written(launch.rank, operation.output);
            continue;
        }
        RankHistory& mine = of(launch.rank);
        const bool in_place = operation.output.overlaps(operation.input);
        if (!in_place) written(launch.rank, operation.output);
        const ByteRange range = ByteRange::of(operation.output);
        history_of(mine, operation.input);
        History& history = history_of(mine, operation.output);
        std::erase_if(history.gathered,
                      [&](const Gathered& past) { return past.range.overlaps(range); });
        history.gathered.push_back({range, mine.storages[operation.input.storage()],
                                    ByteRange::of(operation.input), in_place, ++mine.time,
                                    operation.at});
    }
}

void VersionWatcher::copied(int rank, CopyDirection direction, const Tensor& tensor,
                            SourceLine /*at*/) {
    if (direction == CopyDirection::to_device) written(rank, tensor);
}

void VersionWatcher::freed(int rank, const Storage& storage) noexcept {
    const auto found = of(rank).storages.find(&storage);
    if (found == of(rank).storages.end()) return;
    found->second->gathered.clear();  // may name itself: gathered in place
    of(rank).storages.erase(found);
}

void VersionWatcher::phase_began(int rank, Phase phase, int micro_batch) {
    RankHistory& mine = of(rank);
    const std::uint64_t pass = ++mine.pass;
    if (phase == Phase::forward) mine.passes[micro_batch] = pass;
    mine.phases.push_back({phase, micro_batch, pass});
}

void VersionWatcher::phase_ended(int rank) noexcept {
    of(rank).phases.pop_back();
}

}  // namespace

std::unique_ptr<Watcher> watch_versions(Engine& engine) {
    return std::make_unique<VersionWatcher>(engine.options().ranks);
}

}  // namespace lockstep::sim
