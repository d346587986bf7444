#include <algorithm>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>

#include "sim/check/check.hpp"
#include "sim/check/layouts.hpp"
#include "sim/check/origin.hpp"
#include "sim/check/shadow.hpp"
#include "sim/check/tensors.hpp"
#include "sim/engine.hpp"
#include "sim/watcher.hpp"
#include "src/run/fault_text.hpp"

namespace lockstep::sim {

namespace {

/// F25: weights that are read in two versions, or that should have been gathered again
/// before they are read.
///
/// Each update by an optimizer begins a new version. The forward of a micro-batch notes
/// what it reads; the backward of this micro-batch must find no update since. Weights
/// that were gathered from shards are stale in a forward once the rank has updated its
/// own shard. If a rank updates its shard of a whole in place, with a gradient that a
/// collective made, the rest of the whole is stale, too, until something writes it.
/// Phases tell forward from backward (PhaseScope); outside of phases nothing is checked.
/// Copies of the weights, and values written over them, are not checked.
class VersionWatcher final : public Watcher {
  public:
    VersionWatcher(int ranks, const Layouts& layouts)
        : ranks_(static_cast<std::size_t>(ranks)), layouts_(layouts) {}
    ~VersionWatcher() override;

    void launched(Launch& launch) override;
    void executing(int rank, const DeviceOperation& operation) override;
    void copied(int rank, CopyDirection direction, const Tensor& tensor,
                SourceLine at) override;
    void freed(int rank, const Storage& storage) noexcept override;
    void phase_began(int rank, Phase phase, int micro_batch) override;
    void phase_ended(int rank) noexcept override;

  private:
    /// A read of a part of a storage in a forward.
    struct Read {
        ByteRange range;
        std::uint64_t time = 0;
        std::uint64_t pass = 0;  ///< the forward that read
        SourceLine at;
    };
    /// Says whether an update changes only a shard: yes if the gradient was reduced and
    /// scattered, perhaps if it was all-reduced.
    enum class OfShard : std::uint8_t { no, perhaps, yes };
    struct Update {
        ByteRange range;
        std::uint64_t time = 0;
        const char* name = "";
        SourceLine at;
        OfShard of_shard = OfShard::no;
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

        bool has_shards() const {
            return std::ranges::any_of(updates, [](const Update& update) {
                return update.of_shard != OfShard::no;
            });
        }
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
        Shadow<std::uint64_t> written;        ///< times of writes to sharded storages
        std::uint64_t time = 0;               ///< counts updates, gathers and writes
        std::uint64_t pass = 0;
    };

    RankHistory& rank_history(int rank) { return ranks_[rank]; }
    static History& history_of(RankHistory& rank, const Tensor& tensor);
    void read_in_forward(int rank, const DeviceOperation& operation, const Tensor& read);
    void read_in_backward(int rank, const DeviceOperation& operation, const Tensor& read);
    void require_all_written(int rank, const DeviceOperation& operation,
                             const Tensor& read, const History& history) const;
    OfShard of_shard(int rank, const DeviceOperation& update) const;
    void updated(int rank, const Tensor& parameter, OfShard of_shard,
                 const DeviceOperation& operation);
    const Update* rounded_by(int rank, const DeviceOperation& operation) const;
    void written(int rank, const Tensor& tensor);

    std::vector<RankHistory> ranks_;
    const Layouts& layouts_;
};

bool is_backward(Phase phase) {
    return phase == Phase::backward || phase == Phase::backward_input ||
           phase == Phase::backward_weight;
}

std::string micro_batch_text(int micro_batch) {
    return micro_batch < 0 ? "" : fmt::format(" of micro-batch {}", micro_batch);
}

/// Returns the mistake (F25): a rank's steps use different versions.
FaultError stale(std::string sentence, std::vector<Diagnosis::Party> steps,
                 const char* cause = nullptr) {
    Diagnosis diagnosis = diagnosis_of("F25");
    diagnosis.sentence = std::move(sentence);
    diagnosis.parties = std::move(steps);
    if (cause != nullptr) diagnosis.cause = cause;
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
    if (is_update(operation))
        return updated(rank, parameter_of(operation), of_shard(rank, operation),
                       operation);
    const RankHistory& mine = rank_history(rank);
    const Phase phase = mine.phases.empty() ? Phase::none : mine.phases.back().phase;
    if (const Update* of_master = rounded_by(rank, operation))
        return updated(rank, *operation.writes[0], of_master->of_shard, operation);
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
    RankHistory& mine = rank_history(rank);
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
             party({rank}, fmt::format("{} in forward", operation.name), operation.at)},
            "Gather them again after each update, and release what was gathered before "
            "it (a ZeRO-3 unit that stays open is not gathered again).");
    }
    // The tensor was written since the forward began, so it is an activation.
    if (history.written_in_pass == phase.pass) return;
    if (history.has_shards()) require_all_written(rank, operation, read, history);
    std::vector<Read>& reads = history.reads[phase.micro_batch];
    std::erase_if(reads, [&](const Read& past) { return past.pass != phase.pass; });
    const bool known = std::any_of(reads.begin(), reads.end(),
                                   [&](const Read& past) { return past.range == range; });
    if (!known) reads.push_back({range, mine.time, phase.pass, operation.at});
    // A program may number micro-batches without end; the lowest numbers have ended.
    constexpr std::size_t kMicroBatches = 1024;
    if (history.reads.size() > kMicroBatches) history.reads.erase(history.reads.begin());
}

/// Returns the first byte of `bytes` that no range covers; -1 if there is none.
template <typename Ranges>
std::int64_t first_gap(const Ranges& ranges, std::int64_t bytes) {
    std::int64_t end = 0;
    for (const auto& range : ranges) {
        if (range.begin > end) break;
        end = range.end;
    }
    return end < bytes ? end : -1;
}

/// This rank updates only its shard of a whole (or of a flat buffer of parameters). If it
/// reads the rest, other ranks must send the rest after each update.
void VersionWatcher::require_all_written(int rank, const DeviceOperation& operation,
                                         const Tensor& read,
                                         const History& history) const {
    const RankHistory& mine = ranks_[rank];
    const OpenPhase& phase = mine.phases.back();
    const ByteRange range = ByteRange::of(read);
    std::uint64_t last = 0;  // time of the last forward that has read it
    bool was_read = false;
    for (const auto& [micro_batch, reads] : history.reads)
        for (const Read& past : reads)
            if (past.pass != phase.pass && past.range.overlaps(range)) {
                was_read = true;
                last = std::max(last, past.time);
            }
    if (!was_read) return;
    // If a shard of a flat buffer is updated, all of the buffer has new values.
    const auto step = std::ranges::find_if(history.updates, [&](const Update& update) {
        return update.time > last &&
               (update.range.overlaps(range)
                    ? update.of_shard != OfShard::no
                    : update.of_shard == OfShard::yes && read.labelled() != nullptr);
    });
    if (step == history.updates.end()) return;
    auto since = mine.written.read(read);
    std::erase_if(since, [&](const auto& past) { return past.fact <= last; });
    const std::int64_t gap = first_gap(since, read.bytes());
    if (gap < 0) return;
    throw stale(
        fmt::format("rank {} reads stale weights in forward{}: {} at {} reads {}. "
                    "Nothing has written its element {} since the previous forward, "
                    "although {} at {} has updated this rank's part",
                    rank, micro_batch_text(phase.micro_batch), operation.name,
                    operation.at.text(), name_of(read),
                    element_text(read.shape(), gap / bytes_of(read.dtype())), step->name,
                    step->at.text()),
        {party({rank}, step->name, step->at),
         party({rank}, fmt::format("{} in forward", operation.name), operation.at)},
        "Each rank updates only its own part: after each update, gather the parts of all "
        "ranks, for every bucket, before the next forward. If the number of ranks does "
        "not divide the number of elements, add padding, so that every element belongs "
        "to a rank.");
}

void VersionWatcher::read_in_backward(int rank, const DeviceOperation& operation,
                                      const Tensor& read) {
    RankHistory& mine = rank_history(rank);
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

VersionWatcher::OfShard VersionWatcher::of_shard(int rank,
                                                 const DeviceOperation& update) const {
    const Layout gradient = layouts_.layout_of(rank, gradient_of(update));
    if (gradient.kind == Layout::Kind::sharded || gradient.kind == Layout::Kind::varying)
        return OfShard::yes;
    return is_reduced(gradient) ? OfShard::perhaps : OfShard::no;
}

/// If the operation rounds a master in f32 to a parameter in bf16, returns the master's
/// last update; else null.
const VersionWatcher::Update* VersionWatcher::rounded_by(
    int rank, const DeviceOperation& operation) const {
    const RankHistory& mine = ranks_[rank];
    const bool is_in_step =
        mine.phases.empty() || mine.phases.back().phase == Phase::update;
    if (!is_in_step || !operation.is<ops::Cast>()) return nullptr;
    const Tensor& master = *operation.reads[0];
    const auto found = mine.storages.find(master.storage());
    return found == mine.storages.end()
               ? nullptr
               : found->second->updated(ByteRange::of(master), 0);
}

void VersionWatcher::updated(int rank, const Tensor& parameter, OfShard of_shard,
                             const DeviceOperation& operation) {
    RankHistory& mine = rank_history(rank);
    const ByteRange range = ByteRange::of(parameter);
    if (range.empty()) return;
    History& history = history_of(mine, parameter);
    // Updated values are no longer a copy of shards. But if a rank updates its own shard
    // in place, the gathered values must be gathered again.
    std::erase_if(history.gathered, [&](const Gathered& gathered) {
        return gathered.range.overlaps(range) &&
               !(gathered.in_place && gathered.shard.contains(range));
    });
    const Update update{range, ++mine.time, operation.name, operation.at, of_shard};
    const auto same =
        std::find_if(history.updates.begin(), history.updates.end(),
                     [&](const Update& past) { return past.range == range; });
    if (same == history.updates.end())
        history.updates.push_back(update);
    else
        *same = update;
    if (history.has_shards()) mine.written.set(parameter, update.time);
}

/// Notes a write by something other than an optimizer: the new values have no version.
void VersionWatcher::written(int rank, const Tensor& tensor) {
    RankHistory& mine = rank_history(rank);
    const bool in_forward =
        !mine.phases.empty() && mine.phases.back().phase == Phase::forward;
    const auto found = mine.storages.find(tensor.storage());
    if (found == mine.storages.end() && !in_forward) return;
    History& history =
        found == mine.storages.end() ? history_of(mine, tensor) : *found->second;
    if (in_forward) history.written_in_pass = mine.phases.back().pass;
    if (history.has_shards()) mine.written.set(tensor, ++mine.time);
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
        RankHistory& mine = rank_history(launch.rank);
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
        if (history.has_shards()) mine.written.set(operation.output, mine.time);
    }
}

void VersionWatcher::copied(int rank, CopyDirection direction, const Tensor& tensor,
                            SourceLine /*at*/) {
    if (direction == CopyDirection::to_device) written(rank, tensor);
}

void VersionWatcher::freed(int rank, const Storage& storage) noexcept {
    rank_history(rank).written.free(storage);
    const auto found = rank_history(rank).storages.find(&storage);
    if (found == rank_history(rank).storages.end()) return;
    found->second->gathered.clear();  // a history gathered in place points to itself
    rank_history(rank).storages.erase(found);
}

void VersionWatcher::phase_began(int rank, Phase phase, int micro_batch) {
    RankHistory& mine = rank_history(rank);
    const std::uint64_t pass = ++mine.pass;
    if (phase == Phase::forward) mine.passes[micro_batch] = pass;
    mine.phases.push_back({phase, micro_batch, pass});
}

void VersionWatcher::phase_ended(int rank) noexcept {
    rank_history(rank).phases.pop_back();
}

}  // namespace

std::unique_ptr<Watcher> watch_versions(Engine& engine, const Layouts& layouts) {
    return std::make_unique<VersionWatcher>(engine.options().ranks, layouts);
}

}  // namespace lockstep::sim
